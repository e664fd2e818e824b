//! Replays the vectors in every language, and with the program on their format page.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::cargo;
use crate::output;
use crate::repo::Repo;

use super::RUST;
use super::language::{self, Installed};

const VECTORS: &str = "clients/vectors";

/// Replays all vectors in each language, prints a line for each, and returns how many languages failed.
pub(super) fn replay(repo: &Repo, installed: &[Installed]) -> Result<u64> {
    let traces = count(repo)?;
    let mut failed = 0;
    for (name, mut command) in commands(repo, installed)? {
        let output = command.output().with_context(|| format!("{name}: cannot be started"))?;
        let text =
            [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        let verdict = verdict(&text.concat(), traces, output.status.success());
        match verdict {
            Ok(()) => println!("{name:12} ok     vectors traces={traces} failed=0"),
            Err(why) => {
                println!("{name:12} FAILED vectors: {why}\n{}", text.concat());
                failed += 1;
            }
        }
    }
    Ok(failed)
}

/// The commands that replay all vectors, each with the name of its language.
pub(crate) fn commands(repo: &Repo, installed: &[Installed]) -> Result<Vec<(String, Command)>> {
    let mut commands = Vec::new();
    for it in installed {
        let name = it.language.name.clone();
        if name == RUST {
            let mut command = cargo(repo, "test");
            // Of the whole workspace, so that nothing is compiled anew after the layer of unit tests.
            command.args(["--workspace", "--exclude", crate::fuzz::PACKAGE, "--lib"]);
            command.args(["lease_state::vectors", "--", "--nocapture"]);
            commands.push((name, command));
        } else {
            commands.push((name, language::shell(repo, &it.language, &it.language.vectors)));
        }
    }
    if installed.iter().any(|it| it.language.name == "python") {
        commands.push(("format page".to_owned(), format_page(repo)?));
    }
    Ok(commands)
}

/// How many traces the files have.
pub(crate) fn count(repo: &Repo) -> Result<u64> {
    let mut traces = 0;
    for file in files(repo)? {
        let text =
            fs::read_to_string(repo.path(&file)).with_context(|| format!("cannot read {file}"))?;
        traces += text.lines().count() as u64;
    }
    ensure!(traces > 0, "{VECTORS} has no traces");
    Ok(traces)
}

/// Whether the output of a replay says that all traces were replayed, and none failed.
pub(crate) fn verdict(text: &str, traces: u64, succeeded: bool) -> Result<(), String> {
    // A test runner may put words before the line.
    let mut lines =
        text.lines().filter_map(|line| line.find("vectors traces=").map(|at| &line[at..]));
    let fields = lines.find_map(|line| output::fields("vectors", line));
    let fields = fields.ok_or("it prints no line `vectors traces=N failed=0`")?;
    let number = |name: &str| fields.get(name).copied();
    if number("traces") != Some(traces) {
        return Err(format!("{:?} of {traces} traces were replayed", number("traces")));
    }
    if number("failed").unwrap_or(0) != 0 || !succeeded {
        return Err("some traces differ".to_owned());
    }
    Ok(())
}

fn files(repo: &Repo) -> Result<Vec<String>> {
    let files =
        fs::read_dir(repo.path(VECTORS)).with_context(|| format!("cannot read {VECTORS}"))?;
    let names = files.flatten().filter_map(|file| file.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".jsonl")).collect();
    names.sort();
    Ok(names.iter().map(|name| format!("{VECTORS}/{name}")).collect())
}

/// Takes the program from the format page, so that the page stays true.
fn format_page(repo: &Repo) -> Result<Command> {
    let page = fs::read_to_string(repo.path(VECTORS).join("README.md"))
        .context("cannot read the format page")?;
    let parts = page.split("```python\n").skip(1);
    let program: String = parts.filter_map(|part| part.split("```").next()).collect();
    let path = repo.path("target/clients/vectors.py");
    fs::write(&path, program).with_context(|| format!("cannot write {}", path.display()))?;
    let mut command = Command::new("python3");
    command.current_dir(repo.root()).arg(path).args(files(repo)?);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_counts_only_if_it_replayed_every_trace() {
        assert!(verdict("ok\n    vectors.go: vectors traces=7 failed=0\n", 7, true).is_ok());
        assert!(verdict("vectors traces=6 failed=0\n", 7, true).is_err());
        assert!(verdict("vectors traces=7 failed=1\n", 7, true).is_err());
        assert!(verdict("vectors traces=7 failed=0\n", 7, false).is_err());
        assert!(verdict("all is well\n", 7, true).is_err());
    }
}
