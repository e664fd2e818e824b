//! Tests a real Terraform or OpenTofu, where one is installed, against a real store and a real member.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::Guardian;
use crate::common::{Cluster, TENURE, wait};

/// The configuration: one resource that needs no provider from elsewhere. Its command waits for a file, if it is told
/// to.
const MAIN: &str = r#"
terraform {
  backend "http" {}
}
variable "value" {}
resource "terraform_data" "one" {
  triggers_replace = var.value
  provisioner "local-exec" {
    command = "test ! -e wait || { touch started; while test -e wait; do sleep 0.05; done; }"
  }
}
"#;
/// A key of writers.
const KEY: &str = "0123456789abcdef0123456789abcdef";

/// How often to do everything: as often as a campaign says, or once.
fn rounds() -> u64 {
    let rounds = std::env::var("TENURE_TERRAFORM_ROUNDS").ok();
    rounds.map_or(1, |rounds| rounds.parse().expect("TENURE_TERRAFORM_ROUNDS is a number"))
}

/// The programs that are installed.
fn programs() -> Vec<&'static str> {
    let installed = |program: &&str| {
        let asked = Command::new(program).arg("version").stdin(Stdio::null()).output();
        asked.is_ok_and(|asked| asked.status.success())
    };
    ["terraform", "tofu"].into_iter().filter(installed).collect()
}

/// A directory with the configuration, and how to reach its state.
struct Project {
    dir: PathBuf,
    program: &'static str,
    address: String,
    /// Whether the state is locked, and with which password.
    key: Option<&'static str>,
}

impl Project {
    fn new(
        dir: PathBuf,
        program: &'static str,
        address: String,
        key: Option<&'static str>,
    ) -> Self {
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("main.tf"), MAIN).unwrap();
        Self { dir, program, address, key }
    }

    /// Prepares a command, alone or behind `tenure run`.
    fn command(&self, before: &[&str], words: &[&str]) -> Command {
        let all: Vec<&str> = before.iter().chain(&[self.program]).chain(words).copied().collect();
        let mut command = Command::new(all[0]);
        command.args(&all[1..]).current_dir(&self.dir).stdin(Stdio::null()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", &self.dir);
        command.envs([("CHECKPOINT_DISABLE", "1"), ("TF_IN_AUTOMATION", "1"), ("TF_INPUT", "0")]);
        if before.is_empty() {
            command.env("TF_HTTP_ADDRESS", &self.address);
            command.env("TF_HTTP_LOCK_ADDRESS", &self.address);
            command.env("TF_HTTP_UNLOCK_ADDRESS", &self.address);
            if let Some(key) = self.key {
                command.env("TF_HTTP_USERNAME", "ci").env("TF_HTTP_PASSWORD", key);
            }
        }
        command
    }

    fn init(&self) {
        done(&self.command(&[], &["init", "-no-color"]).output().unwrap());
    }

    fn apply(&self, before: &[&str], value: u64, more: &[&str]) -> Command {
        let value = format!("value={value}");
        let words = ["apply", "-auto-approve", "-no-color", "-var", &value];
        self.command(before, &[&words, more].concat())
    }

    /// Starts an apply and returns once its resource is being created.
    fn start(&self, before: &[&str], value: u64, more: &[&str]) -> Child {
        std::fs::write(self.dir.join("wait"), "").unwrap();
        let mut apply = self.apply(before, value, more);
        let child = apply.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let started = self.dir.join("started");
        wait("the apply has begun", || started.exists().then_some(()));
        std::fs::remove_file(started).unwrap();
        child
    }

    fn go_on(&self) {
        std::fs::remove_file(self.dir.join("wait")).unwrap();
    }
}

fn text(output: &Output) -> String {
    [&output.stdout[..], b"\n", &output.stderr].concat().iter().map(|it| char::from(*it)).collect()
}

fn done(output: &Output) {
    assert!(output.status.success(), "{}", text(output));
}

/// The id of the holder in a message about a lock.
fn holder(said: &str) -> String {
    let line = said.lines().find_map(|line| line.split_once("ID:"));
    let line = line.unwrap_or_else(|| panic!("no holder in:\n{said}"));
    line.1.trim().to_owned()
}

#[test]
fn real_terraform_keeps_its_state_in_the_store() {
    let programs = programs();
    if programs.is_empty() {
        eprintln!("skipped: neither terraform nor tofu is installed");
        return;
    }
    let mut counts = Counts::default();
    for _ in 0..rounds() {
        for program in &programs {
            round(program, &mut counts);
        }
    }
    let Counts { applies, refusals, kills } = counts;
    let (rounds, programs) = (rounds(), programs.join(","));
    println!(
        "terraform programs={} rounds={rounds} applies={applies} refusals={refusals} kills={kills} violations=0",
        programs.split(',').count()
    );
    eprintln!("with {programs}");
}

#[derive(Default)]
struct Counts {
    applies: u64,
    refusals: u64,
    kills: u64,
}

fn round(program: &'static str, counts: &mut Counts) {
    let (dir, cluster) = (tempfile::tempdir().unwrap(), Cluster::found(1));
    let member = cluster.address(0).to_string();
    let (keys, writers) = (format!("http://{member}"), dir.path().join("writers"));
    std::fs::write(&writers, KEY).unwrap();
    let more = ["--addr", &member, "--require-ticket", "--keys", &keys, "--writers"];
    let more = [&more[..], &[writers.to_str().unwrap()]].concat();
    let store = Guardian::store_with(dir.path(), &more);
    let address = format!("http://{}/v1/states/prod", store.address);
    let project = Project::new(dir.path().join("one"), program, address.clone(), Some(KEY));
    project.init();
    done(&project.apply(&[], 1, &[]).output().unwrap());
    let other = Project::new(dir.path().join("two"), program, address.clone(), Some(KEY));
    other.init();
    counts.applies += 1;
    two_at_once(&project, &other, counts);
    killed_in_the_middle(&project, &other, counts);
    a_job_under_a_lease(&project, &other, &member, &address, counts);
    drop(store);
    lost_update(dir.path(), program, counts);
}

/// The second one waits as long as it is told to, and is told who holds the state.
fn two_at_once(one: &Project, two: &Project, counts: &mut Counts) {
    let first = one.start(&[], 2, &[]);
    let refused = two.apply(&[], 3, &[]).output().unwrap();
    assert!(!refused.status.success());
    assert!(text(&refused).contains("Error acquiring the state lock"), "{}", text(&refused));
    let patient = two.apply(&[], 3, &["-lock-timeout=60s"]).stdout(Stdio::piped()).spawn().unwrap();
    one.go_on();
    done(&first.wait_with_output().unwrap());
    done(&patient.wait_with_output().unwrap());
    counts.applies += 2;
    counts.refusals += 1;
}

/// A process that was killed still holds the state, until it is unlocked by force.
fn killed_in_the_middle(one: &Project, two: &Project, counts: &mut Counts) {
    let mut first = one.start(&[], 4, &[]);
    first.kill().unwrap();
    first.wait().unwrap();
    one.go_on();
    let refused = two.apply(&[], 5, &[]).output().unwrap();
    assert!(!refused.status.success(), "{}", text(&refused));
    let id = holder_id(two, &text(&refused));
    done(&two.command(&[], &["force-unlock", "-force", &id]).output().unwrap());
    done(&two.apply(&[], 5, &[]).output().unwrap());
    counts.applies += 1;
    counts.refusals += 1;
    counts.kills += 1;
}

/// The id of the holder. Some versions of Terraform show their own id in its place, so the store is asked, too.
fn holder_id(of: &Project, said: &str) -> String {
    let (store, _) = of.address.split_once("/v1/").unwrap();
    let list = Command::new(TENURE)
        .args(["store", "state", "list", "--output", "json", "--store", store])
        .envs([("TF_HTTP_USERNAME", "ci"), ("TF_HTTP_PASSWORD", KEY)])
        .output()
        .unwrap();
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    let id = list["held"]["ID"].as_str().unwrap().to_owned();
    assert!(said.contains(&id), "the message does not name {id}, but {}:\n{said}", holder(said));
    id
}

/// A job whose lease ended frees the state: the next one needs no force.
fn a_job_under_a_lease(
    one: &Project,
    two: &Project,
    member: &str,
    address: &str,
    counts: &mut Counts,
) {
    let run =
        [TENURE, "run", "prod", "--addr", member, "--ttl", "2s", "--terraform", address, "--"];
    let mut job = one.start(&run, 6, &[]);
    job.kill().unwrap();
    job.wait().unwrap();
    one.go_on();
    done(&two.apply(&run, 7, &[]).output().unwrap());
    counts.applies += 1;
    counts.kills += 1;
}

/// Without locks, the one that is late is refused, and keeps its state in a file.
fn lost_update(dir: &Path, program: &'static str, counts: &mut Counts) {
    let plain = dir.join("plain");
    std::fs::create_dir(&plain).unwrap();
    let store = Guardian::store(&plain);
    let address = format!("http://{}/v1/states/lost", store.address);
    let [late, quick] = ["late", "quick"]
        .map(|name| Project::new(plain.join(name), program, address.clone(), None));
    late.init();
    quick.init();
    done(&late.apply(&[], 1, &[]).output().unwrap());
    let started = late.start(&[], 2, &["-lock=false"]);
    done(&quick.apply(&[], 3, &["-lock=false"]).output().unwrap());
    late.go_on();
    let refused = started.wait_with_output().unwrap();
    assert!(!refused.status.success() && text(&refused).contains("409"), "{}", text(&refused));
    assert!(late.dir.join("errored.tfstate").exists());
    counts.applies += 2;
    counts.refusals += 1;
}
