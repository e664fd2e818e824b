//! Builds a package twice, in two directories, and compares the results byte by byte.
//!
//! Each build starts from nothing, in a copy of the repository's files and with a target directory of its own. A
//! wrapper around the compiler replaces the directories in the output by fixed names; the flags that cargo hashes are
//! the same in both builds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::cargo::{self, cargo};
use crate::repo::Repo;

use super::compiler;

/// The names of the two directories: of different length, so that a path in the output also moves what follows it.
const COPIES: [&str; 2] = ["one", "another-directory"];

/// Flags of `cargo xtask reproducible`.
#[derive(clap::Args)]
pub(crate) struct ReproducibleArgs {
    /// Build this package
    #[arg(long, value_name = "NAME", default_value = "tenure-cli")]
    package: String,
    /// With this profile
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// With these features
    #[arg(long, value_name = "NAMES")]
    features: Option<String>,
    /// Work in this directory, and leave the builds there [default: target/reproducible, emptied first and afterwards]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Builds twice, and fails if anything differs.
pub(crate) fn run(repo: &Repo, args: &ReproducibleArgs) -> Result<ExitCode> {
    let (rustc, target) = compiler::in_use()?;
    let manifest = fs::read_to_string(repo.path("Cargo.toml")).context("cannot read Cargo.toml")?;
    let tested = compiler::recorded(&manifest)?.tested;
    println!("rustc {rustc} for {target}; releases are built with {tested}");
    let base = args.dir.clone().unwrap_or_else(|| repo.path("target/reproducible"));
    if args.dir.is_none() && base.exists() {
        fs::remove_dir_all(&base).with_context(|| format!("cannot empty {}", base.display()))?;
    }
    let mut builds = Vec::new();
    for name in COPIES {
        let copy = base.join(name);
        ensure!(!copy.exists(), "{} is there already", copy.display());
        copy_files(repo, &copy)?;
        builds.push((copy.clone(), build(repo, &copy, args)?));
    }
    let [(first, ours), (second, theirs)] = &builds[..] else { bail!("there are two builds") };
    ensure!(!ours.is_empty(), "cargo built nothing of {}", args.package);
    let relative = |copy: &Path, all: &[PathBuf]| -> Vec<PathBuf> {
        all.iter().map(|path| path.strip_prefix(copy).unwrap_or(path).to_owned()).collect()
    };
    let (names, others) = (relative(first, ours), relative(second, theirs));
    ensure!(names == others, "the builds have files of different names: {names:?} and {others:?}");
    let mut same = true;
    for name in &names {
        let difference = difference(&fs::read(first.join(name))?, &fs::read(second.join(name))?);
        let shown = name.display();
        match difference {
            None => println!("same       {shown}"),
            Some(at) => println!("DIFFERENT  {shown}, from byte {at} on"),
        }
        same &= difference.is_none();
    }
    if args.dir.is_none() && same {
        fs::remove_dir_all(&base).with_context(|| format!("cannot empty {}", base.display()))?;
    }
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn copy_files(repo: &Repo, to: &Path) -> Result<()> {
    for name in repo.files()? {
        let path = to.join(&name);
        let dir = path.parent().context("a file has a directory")?;
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        fs::copy(repo.path(&name), &path).with_context(|| format!("cannot copy {name}"))?;
    }
    Ok(())
}

/// Builds the package in a copy, and returns what cargo made of it, in order.
fn build(repo: &Repo, copy: &Path, args: &ReproducibleArgs) -> Result<Vec<PathBuf>> {
    let copy = copy.canonicalize()?;
    let home = cargo::home().context("neither CARGO_HOME nor HOME is set")?;
    let maps = [(copy.as_path(), "/tenure"), (home.as_path(), "/cargo")];
    let wrapper = wrapper(&copy, &maps)?;
    let mut command: Command = cargo(repo, "build");
    command
        .current_dir(&copy)
        .args(["--offline", "--locked", "--package", &args.package, "--profile", &args.profile])
        .args(args.features.iter().flat_map(|features| ["--features", features]))
        .args(["--message-format", "json-render-diagnostics"])
        .env("CARGO_TARGET_DIR", copy.join("target"))
        .env("CARGO_INCREMENTAL", "0")
        .env("RUSTC_WRAPPER", wrapper)
        .env(
            "CFLAGS",
            maps.map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display())).join(" "),
        )
        .stdout(Stdio::piped());
    println!("{} in {}", cargo::shown(&command), copy.display());
    let output = command.spawn().and_then(std::process::Child::wait_with_output);
    let output = output.context("cannot start cargo build")?;
    ensure!(output.status.success(), "the build in {} failed", copy.display());
    artifacts(&String::from_utf8(output.stdout).context("cargo build printed no text")?, &copy)
}

/// Writes a program that starts the compiler with the directories replaced by fixed names.
fn wrapper(copy: &Path, maps: &[(&Path, &str)]) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = copy.join("rustc-wrapper");
    let flags =
        maps.iter().map(|(from, to)| format!(" '--remap-path-prefix={}={to}'", from.display()));
    ensure!(!copy.to_string_lossy().contains('\''), "{} has a quote in it", copy.display());
    fs::write(&path, format!("#!/bin/sh\nexec \"$@\"{}\n", flags.collect::<String>()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// The files that cargo made of the package in the top directory's workspace member, from its messages.
fn artifacts(messages: &str, copy: &Path) -> Result<Vec<PathBuf>> {
    let copy = copy.to_string_lossy();
    let mut files = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line).context("cargo build printed no json")?;
        let ours = message["manifest_path"].as_str().is_some_and(|path| path.starts_with(&*copy));
        let script = message["target"]["kind"].as_array().is_some_and(|kinds| {
            kinds.iter().any(|kind| kind == "custom-build" || kind == "proc-macro")
        });
        if message["reason"] == "compiler-artifact" && ours && !script {
            let names = message["filenames"].as_array().map(Vec::as_slice).unwrap_or_default();
            files.extend(names.iter().filter_map(|name| Some(PathBuf::from(name.as_str()?))));
        }
    }
    files.sort();
    Ok(files)
}

/// The first byte at which two files differ.
fn difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let at = one.iter().zip(other).position(|(a, b)| a != b);
    at.or_else(|| (one.len() != other.len()).then(|| one.len().min(other.len())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_difference_is_found() {
        assert_eq!(difference(b"abc", b"abc"), None);
        assert_eq!(difference(b"abc", b"abd"), Some(2));
        assert_eq!(difference(b"abc", b"ab"), Some(2));
    }

    #[test]
    fn libraries_and_programs_of_the_workspace_are_compared_and_build_scripts_are_not() {
        let made = |package: &str, kind: &str, file: &str| {
            let (target, manifest) = (json!({ "kind": [kind] }), format!("{package}/Cargo.toml"));
            let reason = "compiler-artifact";
            json!({ "reason": reason, "manifest_path": manifest, "target": target, "filenames": [file] })
                .to_string()
        };
        let messages = [
            made("/c/x", "bin", "/c/t/x"),
            made("/c/x", "custom-build", "/c/t/y"),
            made("/home/z", "lib", "/c/t/z"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = artifacts(&messages.join("\n"), Path::new("/c")).unwrap();
        assert_eq!(found, [PathBuf::from("/c/t/x")]);
    }
}
