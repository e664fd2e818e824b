//! Builds and starts the comparison with other lock systems.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, hand_over};
use crate::programs::CLI;
use crate::repo::Repo;

/// The name of the benchmark, and the directory of the package that has the clients of the other systems.
pub(crate) const NAME: &str = "peers";
/// The program that compiles .proto files, which the client of etcd needs, and the Debian package that has it.
const PROTOC: &str = "protoc";
const PROTOC_PACKAGE: &str = "protobuf-compiler";

/// Runs `cargo xtask bench peers`.
pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<ExitCode> {
    let mut tenure = cargo(repo, "build");
    tenure.args(["--profile", "release", "--package", CLI]);
    ensure!(tenure.status()?.success(), "the binary does not build");
    // The build directory is that of the workspace: most crates are the same.
    let mut build = cargo(repo, "build");
    build.args(["--profile", "release", "--manifest-path", "peers/Cargo.toml"]);
    build.arg("--target-dir").arg(repo.path("target"));
    if let Err(why) = have_protoc() {
        eprintln!("WARNING: ETCD IS NOT COMPARED: its client needs {PROTOC}: {why:#}");
        build.args(["--no-default-features", "--features", "zookeeper"]);
    }
    ensure!(build.status()?.success(), "the clients of the other systems do not build");
    let mut measure = Command::new(repo.path("target/release/tenure-peers"));
    measure.current_dir(repo.root()).arg(NAME).args(args);
    // Last, because the page shows only what was typed.
    measure.arg("--tenure").arg(repo.path("target/release/tenure"));
    hand_over(measure)
}

/// Makes sure that `protoc` is there, from Debian's packages if need be.
fn have_protoc() -> Result<()> {
    let is_there = |program: &Path| {
        let mut version = Command::new(program);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|it| it.success())
    };
    if is_there(Path::new(PROTOC)) {
        return Ok(());
    }
    eprintln!("installing {PROTOC_PACKAGE} from Debian");
    let install = || {
        let mut apt = Command::new("apt-get");
        apt.args([
            "-o",
            "DPkg::Lock::Timeout=120",
            "-q",
            "-y",
            "--no-install-recommends",
            "install",
        ]);
        apt.arg(PROTOC_PACKAGE).env("DEBIAN_FRONTEND", "noninteractive");
        anyhow::Ok(apt.stdout(Stdio::null()).status().context("cannot start apt-get")?.success())
    };
    if !install()? {
        // The package lists may never have been fetched.
        Command::new("apt-get").args(["-q", "update"]).status().context("cannot start apt-get")?;
        install()?;
    }
    ensure!(is_there(Path::new(PROTOC)), "{PROTOC_PACKAGE} cannot be installed");
    Ok(())
}
