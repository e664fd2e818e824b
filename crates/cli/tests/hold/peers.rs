//! What becomes of the same command under `flock` and `etcdctl lock` when the same is done to them?
//!
//! What they do is theirs to decide: only what the table in `docs/guides/run.md` says of them is checked here.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use tenure_server::os;

use crate::common::proxy::{Proxies, Road};
use crate::common::{free_port, wait};
use crate::job::{self, Role};
use crate::world::{Held, is_alive, runs, scratch};

/// How long a command is looked at after somebody else has its lock.
const LOOK_US: u64 = 2_000_000;

const BLOWS: [&str; 3] = ["stop", "kill", "partition"];

/// An etcd of its own, ended when it goes out of scope.
struct Etcd {
    child: Child,
    _dir: tempfile::TempDir,
    clients: u16,
}

impl Etcd {
    /// Nothing if there is no etcd on this machine.
    fn start() -> Option<Self> {
        let found = |name: &str| Command::new(name).arg("--version").output().is_ok();
        let found = found("etcd") && Command::new("etcdctl").arg("version").output().is_ok();
        if !found {
            println!("SKIPPED: there is no etcd here");
            return None;
        }
        let (dir, clients) = (scratch(), free_port());
        let url = format!("http://127.0.0.1:{clients}");
        let peers = format!("http://127.0.0.1:{}", free_port());
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(dir.path().join("data"));
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}")]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let etcd = Self { child, _dir: dir, clients };
        wait("etcd answers", || {
            let health = etcdctl(clients).args(["endpoint", "health"]).output().unwrap();
            health.status.success().then_some(())
        });
        Some(etcd)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn etcdctl(port: u16) -> Command {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").arg(format!("--endpoints=http://127.0.0.1:{port}"));
    command
}

/// What was seen after somebody else got the lock.
struct Seen {
    /// How long the command ran beside its successor, as far as it was looked at.
    beside_us: u64,
}

/// Waits for somebody else to get the lock by such a command, and watches the first one's.
fn look(held: &Held, mut next: Command) -> Seen {
    assert!(next.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    let granted_us = os::now_us();
    wait("a while passes", || (os::now_us() > granted_us + LOOK_US).then_some(()));
    Seen { beside_us: held.record().last_us().saturating_sub(granted_us) }
}

fn tell(name: &str, blow: &str, seen: &Seen) {
    let (overlaps, beside_ms) = (u64::from(seen.beside_us > 0), seen.beside_us / 1_000);
    println!("peer name={name} scene={blow} runs=1 overlaps={overlaps} beside_ms={beside_ms}");
}

fn etcd_once(etcd: &Etcd, blow: &str, lock: &str) -> Seen {
    let proxies = Proxies::new(&[etcd.clients, free_port()]);
    let mut command = etcdctl(proxies.port(0));
    command.args(["lock", "--ttl=3", lock, "--"]).args(job::program());
    let held = Held::spawn(command, scratch(), Role::Family);
    proxies.know(1, held.child.id());
    held.runs(3);
    match blow {
        "stop" => held.signal(Signal::STOP),
        "kill" => held.signal(Signal::KILL),
        "partition" => proxies.around(1, Road::Hole),
        _ => unreachable!("no such blow"),
    }
    let mut next = etcdctl(etcd.clients);
    next.args(["lock", "--ttl=3", lock, "--", "true"]);
    look(&held, next)
}

#[test]
fn under_etcdctl_lock_the_command_runs_beside_its_successor() {
    let Some(etcd) = Etcd::start() else { return };
    let etcd = &etcd;
    for run in 0..runs(1) {
        std::thread::scope(|scope| {
            let spawn =
                |blow| scope.spawn(move || (blow, etcd_once(etcd, blow, &format!("{blow}-{run}"))));
            for each in BLOWS.map(spawn) {
                let (blow, seen) = each.join().unwrap();
                tell("etcdctl", blow, &seen);
                assert!(seen.beside_us > 0, "{blow}: the table says that it overlaps");
            }
        });
    }
}

fn flock(file: &Path, more: &[&str]) -> Command {
    let mut command = Command::new("flock");
    command.args(more).arg(file);
    command
}

#[test]
fn under_flock_the_lock_stays_with_whatever_the_command_left_running() {
    for blow in [Signal::STOP, Signal::KILL] {
        let dir = scratch();
        let file = dir.path().join("lock");
        let mut command = flock(&file, &[]);
        command.args(job::program());
        let held = Held::spawn(command, scratch(), Role::Family);
        held.runs(3);
        held.signal(blow);
        let busy = || !flock(&file, &["-n"]).arg("true").status().unwrap().success();
        assert!(busy(), "nobody else gets it");
        let record = held.record();
        assert!(record.pids.iter().all(|pid| is_alive(*pid)), "and nobody is stopped");
        drop(held);
        wait("all of it is gone", || (!busy()).then_some(()));
        let word = if blow == Signal::KILL { "kill" } else { "stop" };
        tell("flock", word, &Seen { beside_us: 0 });
    }
}

#[test]
fn under_flock_that_closes_its_file_the_command_runs_beside_its_successor() {
    let dir = scratch();
    let file = dir.path().join("lock");
    let mut command = flock(&file, &["-o"]);
    command.args(job::program());
    let held = Held::spawn(command, scratch(), Role::Family);
    held.runs(3);
    held.signal(Signal::KILL);
    let mut next = flock(&file, &[]);
    next.arg("true");
    let seen = look(&held, next);
    assert!(seen.beside_us > 0);
    tell("flock-o", "kill", &seen);
}
