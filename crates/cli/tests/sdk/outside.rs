//! Tests the SDK from a project outside of the workspace: it builds, gains few crates, and does what the guide says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::addresses;
use crate::common::Cluster;

/// The most crates that a project gains, as `docs/guides/sdk.md` promises.
const PLAIN_MAX: usize = 60;
const TLS_MAX: usize = 90;

/// A project in a directory of its own.
struct Project {
    dir: tempfile::TempDir,
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

impl Project {
    /// A project that uses Tokio and, unless it is empty, the SDK as this line of the manifest says.
    fn new(dependency: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let manifest = format!(
            "[package]\nname = \"stranger\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
             [dependencies]\n\
             tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\", \"time\"] }}\n{dependency}\n"
        );
        std::fs::write(dir.path().join("Cargo.toml"), manifest).unwrap();
        std::fs::create_dir(dir.path().join("src")).unwrap();
        let program = include_str!("outside/program.rs");
        std::fs::write(dir.path().join("src/main.rs"), program).unwrap();
        // The versions that this machine has: nothing is downloaded.
        std::fs::copy(workspace().join("Cargo.lock"), dir.path().join("Cargo.lock")).unwrap();
        Self { dir }
    }

    /// Runs cargo in the project. What it builds stays beside what the workspace builds, for the next run.
    fn cargo(&self, arguments: &[&str]) -> String {
        let target = Path::new(env!("CARGO_BIN_EXE_tenure")).ancestors().nth(2).unwrap();
        let mut command = Command::new(option_env!("CARGO").unwrap_or("cargo"));
        command.args(arguments).arg("--offline").current_dir(self.dir.path());
        // Without debug information, which slows a build down.
        command.env("CARGO_TARGET_DIR", target.join("outside"));
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
        command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    }

    /// All crates that building it needs, as `name vVERSION`.
    fn crates(&self) -> BTreeSet<String> {
        let tree =
            self.cargo(&["tree", "--edges", "normal,build", "--prefix", "none", "--no-dedupe"]);
        let name = |line: &str| {
            let mut words = line.split_whitespace();
            Some(format!("{} {}", words.next()?, words.next()?))
        };
        tree.lines().filter_map(name).collect()
    }
}

fn sdk(more: &str) -> String {
    format!("tenure = {{ path = \"{}/crates/client\"{more} }}", workspace().display())
}

#[test]
fn a_project_outside_of_the_workspace_gains_few_crates_and_runs_the_guide() {
    let with_tls = Project::new(&sdk(""));
    let own = Project::new("").crates();
    let gained = |project: &Project| {
        let all = project.crates();
        let ours = all.iter().filter(|name| name.starts_with("tenure v")).count();
        assert_eq!(ours, 1, "{all:?}");
        all.difference(&own).count() - ours
    };
    let plain = gained(&Project::new(&sdk(", default-features = false")));
    let tls = gained(&with_tls);
    println!("outside gained plain={plain} tls={tls}");
    assert!(plain <= PLAIN_MAX && plain < tls && tls <= TLS_MAX, "{plain} and {tls}");

    with_tls.cargo(&["build", "--quiet"]);
    let target = Path::new(env!("CARGO_BIN_EXE_tenure")).ancestors().nth(2).unwrap();
    let cluster = Cluster::found(1);
    let mut program = Command::new("timeout");
    program.arg("120").arg(target.join("outside/debug/stranger"));
    let ran = program.env("TENURE_ADDR", addresses(&cluster)).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}{err}");
    let did: Vec<&str> = out.lines().collect();
    let expected = [
        "migration: no such table",
        "long work: released",
        "blocking work: 7 rows",
        "pool: never more than three",
        "election: led, and was seen to",
        "keys: written, and seen",
    ];
    assert_eq!(did[..6], expected, "{out}");
    assert!(did[6].starts_with("contention: ") && did[6].contains("wait"), "{out}");
    assert!(did[7].starts_with("lost: forced by ") && did[7].ends_with(": stuck"), "{out}");
    assert_eq!(did[8..], ["closed", "without async: released"], "{out}");
}
