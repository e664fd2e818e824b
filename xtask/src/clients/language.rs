//! Reads how each client library is built, and builds it into `target/clients`.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::repo::Repo;

use super::RUST;

const FILE: &str = "clients/languages.toml";
/// The command that the tests of the libraries start.
const BINARY: &str = "target/debug/tenure";
/// Directories that building fills.
const BUILT: &[&str] = &["node_modules", "dist", "target", "build", "__pycache__", ".venv"];
/// The last lines of a failed command that are shown.
const TAIL: usize = 30;

#[derive(Deserialize)]
struct Languages {
    language: Vec<Language>,
}

/// A client library.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Language {
    pub(crate) name: String,
    directory: String,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    install: Vec<String>,
    driver: String,
    pub(crate) vectors: String,
    /// Quick commands that must succeed.
    #[serde(default)]
    pub(crate) checks: Vec<String>,
    /// Commands that must succeed, and take long.
    #[serde(default)]
    pub(crate) tests: Vec<String>,
}

/// A client library that was built.
pub(crate) struct Installed {
    pub(crate) language: Language,
    /// How to start its driver: `NAME@DIRECTORY=COMMAND`.
    pub(crate) driver: String,
    /// How to replay its vectors, in the same form; empty for Rust.
    pub(crate) vectors: String,
}

/// Every client library, Rust first.
pub(crate) fn all(repo: &Repo) -> Result<Vec<Language>> {
    let text =
        fs::read_to_string(repo.path(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    let read: Languages = toml::from_str(&text).with_context(|| format!("cannot read {FILE}"))?;
    let rust = Language {
        name: RUST.to_owned(),
        directory: ".".to_owned(),
        needs: Vec::new(),
        install: Vec::new(),
        driver: "own".to_owned(),
        vectors: String::new(),
        checks: Vec::new(),
        tests: Vec::new(),
    };
    Ok(std::iter::once(rust).chain(read.language).collect())
}

/// Builds a library, unless it was built since its files last changed.
pub(crate) fn install(repo: &Repo, language: &Language) -> Result<Installed> {
    let directory = repo.path(&language.directory);
    ensure!(directory.is_dir(), "{} is not there", language.directory);
    for program in &language.needs {
        ensure!(is_there(program), "`{program}` is not installed");
    }
    let out = out(repo, language);
    let stamp = out.join(".built");
    let print = fingerprint(&directory, &language.install)?.to_string();
    if fs::read_to_string(&stamp).ok().as_ref() != Some(&print) {
        fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
        for command in &language.install {
            run(repo, language, command)?;
        }
        fs::write(&stamp, print).with_context(|| format!("cannot write {}", stamp.display()))?;
    }
    let placed = |command: &str| {
        format!("{}@{}={}", language.name, directory.display(), filled(repo, language, command))
    };
    let vectors = Some(&language.vectors).filter(|it| !it.is_empty());
    let vectors = vectors.map(|it| placed(it)).unwrap_or_default();
    Ok(Installed { language: language.clone(), driver: placed(&language.driver), vectors })
}

/// Runs one command of a library in its directory.
pub(crate) fn run(repo: &Repo, language: &Language, command: &str) -> Result<String> {
    let output = shell(repo, language, command).output().context("cannot start sh")?;
    let text = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    let text = text.concat();
    if !output.status.success() {
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
        bail!("`{command}` failed:\n{tail}");
    }
    Ok(text)
}

/// The command as a child process, which prints where its parent does.
pub(crate) fn shell(repo: &Repo, language: &Language, command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &filled(repo, language, command)]);
    shell.current_dir(repo.path(&language.directory)).stdin(Stdio::null());
    shell.env("TENURE_BIN", repo.path(BINARY));
    shell
}

fn filled(repo: &Repo, language: &Language, command: &str) -> String {
    command.replace("$OUT", &out(repo, language).display().to_string())
}

fn out(repo: &Repo, language: &Language) -> PathBuf {
    repo.path("target/clients").join(&language.name)
}

fn is_there(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

/// A number that changes when a file of a directory does, or a command that builds it. What building writes does not
/// count.
fn fingerprint(directory: &Path, install: &[String]) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    install.hash(&mut hasher);
    add(directory, &mut hasher)?;
    Ok(hasher.finish())
}

fn add(directory: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    let files =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut paths: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if BUILT.contains(&name) || name == ".built" {
            continue;
        }
        if path.is_dir() {
            add(&path, hasher)?;
        } else {
            path.hash(hasher);
            fs::read(&path)
                .with_context(|| format!("cannot read {}", path.display()))?
                .hash(hasher);
        }
    }
    Ok(())
}
