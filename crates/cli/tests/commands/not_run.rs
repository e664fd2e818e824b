//! Lists the commands of the documentation that no test runs as they are written, each with the reason, and tests that
//! the list is complete.

use crate::pages::{pages, root};

/// Commands that no test runs as they are written: the page, what the command begins with, and why.
const NOT_RUN: [(&str, &str, &str); 51] = [
    ("README.md", "cargo ", "it builds a release, or runs all tests"),
    ("README.md", "tenure dev", "it runs until Ctrl-C: `dev.rs`"),
    ("README.md", "tenure run deploy", "in terminals of their own: `basics.rs` of `run`"),
    ("README.md", "kill -9", "the watchdog gives the lock back: `holding.rs` of `run`"),
    ("README.md", "tenure history deploy", "who held it at a time: `past.rs`"),
    (
        "docs/benchmarks.md",
        "cargo xtask bench",
        "it takes long: `benches.rs` of `bench` has a part",
    ),
    ("docs/operate/install.md", "cargo build", "it builds a release"),
    ("docs/operate/install.md", "sudo ", "it needs root, and systemd"),
    ("docs/operate/install.md", "journalctl", "it needs systemd"),
    (
        "docs/operate/install.md",
        "tenure doctor",
        "guides/cli.md: its exit code is that of the disk",
    ),
    ("docs/operate/install.md", "tenure serve", "tutorial/three-members.md starts three members"),
    ("docs/operate/membership.md", "tenure cluster", "tutorial/three-members.md replaces a member"),
    ("docs/operate/membership.md", "mv ", "tutorial/three-members.md replaces a member"),
    ("docs/operate/membership.md", "tenure serve", "tutorial/three-members.md replaces a member"),
    (
        "docs/operate/monitoring.md",
        "curl -s '127.0.0.1:7452/debug/threads",
        "it measures for some seconds; server/tests/health.rs asks for less",
    ),
    ("docs/operate/monitoring.md", "perf ", "it needs perf, and the right to use it"),
    (
        "docs/operate/troubleshooting.md",
        "tenure explain",
        "it needs a cluster that was just restored",
    ),
    ("docs/guides/cli.md", "tenure dev", "it runs until Ctrl-C: `dev.rs`"),
    ("docs/guides/cli.md", "tenure lock deploy", "it runs until Ctrl-C: `locks.rs`"),
    ("docs/guides/cli.md", "tenure locks", "a table of a busy cluster: `screens.rs`"),
    ("docs/guides/cli.md", "tenure explain", "an example of a busy cluster: `screens.rs`"),
    ("docs/guides/cli.md", "tenure doctor", "its exit code is that of the disk: `members.rs`"),
    ("docs/guides/cli.md", "tenure cluster status", "a cluster with a dead member: `members.rs`"),
    ("docs/guides/cli.md", "tenure try nightly", "a fragment; exit-codes.md runs each case"),
    ("docs/how-to/blue-green.md", "tenure hand-on", "leases of two processes: `hand_on.rs`"),
    (
        "docs/how-to/ci-deploy-lock.md",
        "tenure run deploy/api --supersede main --client ci/4123",
        "a run that a newer one replaces: `draining.rs`",
    ),
    ("docs/how-to/migrations.md", "#!/bin/sh", "a script whose command the page runs"),
    ("docs/guides/grpc.md", "pip ", "server/tests/python.rs, where the packages are at hand"),
    ("docs/guides/grpc.md", "python ", "server/tests/python.rs, where the packages are at hand"),
    (
        "docs/guides/history.md",
        "tenure explain deploy --stale",
        "a cluster without a majority: `no_quorum.rs` of `processes`",
    ),
    (
        "docs/guides/history.md",
        "tenure history deploy --at",
        "an incident of last night: `past.rs`",
    ),
    ("docs/guides/history.md", "tenure history --verify", "copies of three archives: `past.rs`"),
    ("docs/guides/store.md", "tenure store --listen", "another machine: `set.rs` of `guarded`"),
    ("docs/guides/supply-chain.md", "git clone", "it needs a network"),
    ("docs/guides/supply-chain.md", "ADVISORY_DB=", "it needs what the clone brings"),
    ("docs/guides/supply-chain.md", "cargo xtask", "it builds, for minutes"),
    ("docs/guides/supply-chain.md", "tenure --version", "the compiler differs"),
    (
        "docs/guides/terraform.md",
        "export TF_HTTP",
        "it needs Terraform: `terraform.rs` of `guarded`",
    ),
    ("docs/guides/terraform.md", "terraform ", "it needs Terraform: `terraform.rs` of `guarded`"),
    (
        "docs/guides/terraform.md",
        "tenure run prod",
        "it needs Terraform: `terraform.rs` of `guarded`",
    ),
    ("docs/guides/terraform.md", "tenure store", "other machines: `states.rs` of `guarded`"),
    (
        "docs/guides/tickets.md",
        "curl -s 127.0.0.1:7450/v1/tickets",
        "the page signs by command line",
    ),
    ("docs/guides/tickets.md", "tenure store", "other machines: `tickets.rs` of `guarded`"),
    ("docs/guides/tickets.md", "tenure fence proxy", "other machines: `tickets.rs` of `guarded`"),
    ("docs/tutorial/first-lock.md", "tenure dev", "it runs until Ctrl-C: `dev.rs`"),
    ("docs/concepts/elections.md", "tenure observe", "it runs until Ctrl-C: `lead.rs` of `run`"),
    ("docs/concepts/forced-revocation.md", "tenure ", "one example in steps: `locks.rs`"),
    ("docs/concepts/queues-and-fairness.md", "tenure explain", "a queue of several: `priority.rs`"),
    ("docs/concepts/queues-and-fairness.md", "tenure queue", "a queue of several: `locks.rs`"),
    ("docs/reference/exit-codes.md", "tenure try nightly", "a fragment; the page runs each case"),
    (
        "docs/reference/grpc.md",
        "grpcurl",
        "grpcurl is not at hand; `grpc` of the server has each call",
    ),
];

/// The commands of a page that are in blocks which are not run: each line behind a prompt, and the first line of each
/// block of a script.
fn shown(page: &str) -> Vec<&str> {
    let (mut kind, mut first) = (None, false);
    let mut shown = Vec::new();
    for line in page.lines() {
        if let Some(next) = line.strip_prefix("```") {
            kind = kind.is_none().then_some(next);
            first = true;
            continue;
        }
        match kind {
            Some("text") => shown.extend(line.strip_prefix("$ ")),
            Some("sh") if first => shown.push(line),
            _ => {}
        }
        first = false;
    }
    shown
}

/// A command that cannot be run by a test is in the list, with the reason, and nothing else is.
#[test]
fn every_command_that_is_not_run_has_a_reason() {
    let docs = root().join("docs");
    let folders = std::fs::read_dir(&docs).unwrap().map(|entry| entry.unwrap().path());
    let folders = folders.filter(|path| path.is_dir()).chain([docs.clone(), root()]);
    let (mut wrong, mut used) = (Vec::new(), vec![false; NOT_RUN.len()]);
    for (name, page) in folders.flat_map(|folder| pages(&folder)) {
        // The texts of `--help` have tests of their own; notes about the code are not for users.
        let is_other = ["ARCHITECTURE.md", "CHANGELOG.md", "docs/reference/cli.md"];
        let name = name.trim_start_matches("../").to_owned();
        if is_other.contains(&&*name) || name.starts_with("docs/internals/") {
            continue;
        }
        for command in shown(&page) {
            let mut listed = NOT_RUN.iter().enumerate();
            match listed.find(|(_, it)| name.ends_with(it.0) && command.starts_with(it.1)) {
                Some((at, _)) => used[at] = true,
                None => wrong.push(format!("{name}: {command}")),
            }
        }
    }
    assert!(wrong.is_empty(), "no test runs these, and no list says why: {wrong:#?}");
    let unused: Vec<_> = NOT_RUN.iter().zip(used).filter(|(_, used)| !used).collect();
    assert!(unused.is_empty(), "no page has these: {unused:#?}");
}
