//! Tests that a Python program can use every call with only the `.proto` files.
//!
//! The packages are installed from Python's index once and stay in `target/`. Where they cannot be installed, the test
//! reports that and proves nothing; in continuous integration that is a failure.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::bounded::output;
use crate::common::Members;

/// The installed packages. A change here uses another directory.
const PACKAGES: [&str; 4] = [
    "grpcio==1.85.1",
    "grpcio-tools==1.85.1",
    "grpcio-reflection==1.85.1",
    "grpcio-status==1.85.1",
];

/// How long a program may take; installing the packages takes longest.
const PROGRAM: Duration = Duration::from_secs(240);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Runs a program to its end; returns its output as the error if it failed.
fn run(command: &mut Command) -> Result<String, String> {
    let ran = output(command, PROGRAM).map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    if ran.status.success() {
        return Ok(said);
    }
    Err(format!("{command:?}: {said}{}", String::from_utf8_lossy(&ran.stderr)))
}

/// A Python with the packages.
fn python() -> Result<PathBuf, String> {
    let name: String = PACKAGES.concat().chars().filter(char::is_ascii_alphanumeric).collect();
    let dir = root().join("target/python").join(name);
    let python = dir.join("bin/python");
    let whole = dir.join("whole");
    if whole.exists() {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir))?;
    let pip = "-m pip install -q --no-compile --disable-pip-version-check --timeout 15";
    run(Command::new(&python).args(pip.split(' ')).args(PACKAGES))?;
    std::fs::write(whole, "").map_err(|error| error.to_string())?;
    Ok(python)
}

#[test]
fn python_locks_renews_watches_and_reads_errors() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no Python: {why}");
            // Write past the capture of output, so that the skipped test is visible.
            let _ = writeln!(std::io::stderr(), "\nNOT TESTED: clients in Python. {why}\n");
            return;
        }
    };
    let stubs = tempfile::tempdir().unwrap();
    let protos = root().join("crates/wire/proto");
    let mut generate = Command::new(&python);
    generate.args(["-m", "grpc_tools.protoc"]).arg(format!("-I{}", protos.display()));
    for kind in ["python_out", "grpc_python_out"] {
        generate.arg(format!("--{kind}={}", stubs.path().display()));
    }
    let files = std::fs::read_dir(protos.join("tenure/v1")).unwrap();
    generate.args(files.map(|file| file.unwrap().path()));
    run(&mut generate).unwrap();

    let members = Members::found(3);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/locks.py");
    for at in [members.leader(), members.follower()] {
        let address = members.one(at).clients.to_string();
        let mut client = Command::new(&python);
        client.arg(&script).arg(address).env("PYTHONPATH", stubs.path());
        let said =
            run(client.env("PYTHONDONTWRITEBYTECODE", "1")).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(said.trim(), "ok");
    }
}
