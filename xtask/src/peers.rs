//! Builds and starts the comparison with other lock systems.

use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, hand_over};
use crate::programs::CLI;
use crate::repo::Repo;

/// The name of the benchmark, and the directory of the package that has the clients of the other systems.
pub(crate) const NAME: &str = "peers";
/// The program that compiles .proto files, which the client of etcd needs, and the Debian packages that have it.
const PROTOC: &str = "protoc";
const PROTOC_PACKAGES: &[&str] = &["protobuf-compiler", "libprotobuf-dev"];
/// A file that `protoc` compiles if it works.
const PROBE: &str = "peers-probe.proto";
const PROBED: &str = "syntax = \"proto3\";\nimport \"google/protobuf/descriptor.proto\";\n";

/// Runs `cargo xtask bench peers`.
pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<ExitCode> {
    let mut tenure = cargo(repo, "build");
    tenure.args(["--profile", "release", "--package", CLI]);
    ensure!(tenure.status()?.success(), "the binary does not build");
    // The build directory is that of the workspace: most crates are the same.
    let mut build = cargo(repo, "build");
    build.args(["--profile", "release", "--manifest-path", "peers/Cargo.toml"]);
    build.arg("--target-dir").arg(repo.path("target"));
    if let Err(why) = have_protoc(repo) {
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

/// Makes sure that `protoc` works, from Debian's packages if need be.
fn have_protoc(repo: &Repo) -> Result<()> {
    // It needs files beside it, which are in another package.
    std::fs::create_dir_all(repo.path("target"))?;
    std::fs::write(repo.path("target").join(PROBE), PROBED).context("cannot write a file")?;
    let works = || {
        let mut protoc = Command::new(PROTOC);
        protoc.current_dir(repo.path("target")).args(["--proto_path=.", "-o/dev/null", PROBE]);
        protoc.stdout(Stdio::null()).stderr(Stdio::null());
        protoc.status().is_ok_and(|it| it.success())
    };
    if works() {
        return Ok(());
    }
    eprintln!("installing {} from Debian", PROTOC_PACKAGES.join(" "));
    let apt = |words: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.args(["-o", "DPkg::Lock::Timeout=120", "-q"]).args(words);
        apt.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(Stdio::null());
        anyhow::Ok(apt.status().context("cannot start apt-get")?.success())
    };
    let install = [&["-y", "--no-install-recommends", "install"], PROTOC_PACKAGES].concat();
    if !apt(&install)? {
        // The package lists may never have been fetched.
        apt(&["update"])?;
        apt(&install)?;
    }
    ensure!(works(), "{} cannot be installed", PROTOC_PACKAGES.join(" "));
    Ok(())
}
