//! Tests what `flock`, `etcdctl lock` and `consul lock` do with the same command under the same faults.
//!
//! The behaviour of these tools is theirs to decide: the tests check only what the table in `docs/guides/run.md` says.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use tenure_server::os;

use crate::common::proxy::{Proxies, Road};
use crate::common::{free_port, wait};
use crate::job::{self, Role};
use crate::world::{Held, is_alive, runs, scratch, side_by_side};

/// How long a command is watched after another client has its lock.
const OBSERVED_US: u64 = 2_000_000;

const BLOWS: [&str; 3] = ["stop", "kill", "partition"];

/// A separate server that ends when it goes out of scope.
struct Server {
    child: Child,
    _dir: tempfile::TempDir,
    clients: u16,
}

impl Server {
    /// Starts etcd; `None` if it is not installed.
    fn etcd() -> Option<Self> {
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

    /// Starts consul; `None` if it is not installed, or outside a campaign: it hands locks over only after a delay of
    /// 15 seconds.
    fn consul() -> Option<Self> {
        if std::env::var_os("TENURE_RUNS").is_none() {
            println!("SKIPPED: consul takes a minute; cargo xtask campaign run has it");
            return None;
        }
        if Command::new("consul").arg("version").output().is_err() {
            println!("SKIPPED: there is no consul here");
            return None;
        }
        let (dir, clients) = (scratch(), free_port());
        let mut command = Command::new("consul");
        command.args(["agent", "-dev", "-bind=127.0.0.1", "-dns-port=-1", "-grpc-port=-1"]);
        command.arg(format!("-http-port={clients}"));
        for port in ["serf-lan", "serf-wan", "server"] {
            command.arg(format!("-{port}-port={}", free_port()));
        }
        command.current_dir(dir.path());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let server = Self { child, _dir: dir, clients };
        wait("consul answers", || {
            let put = consul(clients, &["kv", "put"]).args(["a", "b"]).output().unwrap();
            put.status.success().then_some(())
        });
        Some(server)
    }
}

impl Drop for Server {
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

fn consul(port: u16, words: &[&str]) -> Command {
    let mut command = Command::new("consul");
    command.args(words).arg(format!("-http-addr=http://127.0.0.1:{port}"));
    command
}

/// What was seen after another client got the lock.
struct Seen {
    /// How long the command ran beside its successor, while it was watched.
    beside_us: u64,
}

/// Waits until another client gets the lock with this command, and watches the first client's command.
fn watch_overlap(held: &Held, mut next: Command) -> Seen {
    assert!(next.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    let granted_us = os::now_us();
    wait("a while passes", || (os::now_us() > granted_us + OBSERVED_US).then_some(()));
    Seen { beside_us: held.record().last_us().saturating_sub(granted_us) }
}

fn tell(name: &str, blow: &str, seen: &Seen) {
    let (overlaps, beside_ms) = (u64::from(seen.beside_us > 0), seen.beside_us / 1_000);
    println!("peer name={name} scene={blow} runs=1 overlaps={overlaps} beside_ms={beside_ms}");
}

fn etcd_once(etcd: &Server, blow: &str, lock: &str) -> Seen {
    let proxies = Proxies::new(&[etcd.clients, free_port()]);
    let mut command = etcdctl(proxies.port(0));
    command.args(["lock", "--ttl=3", lock, "--"]).args(job::program());
    let held = struck(command, &proxies, blow);
    let mut next = etcdctl(etcd.clients);
    next.args(["lock", "--ttl=3", lock, "--", "true"]);
    watch_overlap(&held, next)
}

fn consul_once(server: &Server, blow: &str, lock: &str) -> Seen {
    let proxies = Proxies::new(&[server.clients, free_port()]);
    let mut command = consul(proxies.port(0), &["lock"]);
    command.args(["-shell=false", lock]).args(job::program());
    let held = struck(command, &proxies, blow);
    let mut next = consul(server.clients, &["lock"]);
    next.args(["-shell=false", lock, "true"]);
    watch_overlap(&held, next)
}

/// Starts a command under a lock, and injects a fault into the holder.
fn struck(command: Command, proxies: &Proxies, blow: &str) -> Held {
    let held = Held::spawn(command, scratch(), Role::Family);
    proxies.know(1, held.child.id());
    held.runs(3);
    match blow {
        "stop" => held.signal(Signal::STOP),
        "kill" => held.signal(Signal::KILL),
        "partition" => proxies.around(1, Road::Hole),
        _ => unreachable!("no such blow"),
    }
    held
}

#[test]
fn under_consul_lock_what_the_command_started_runs_beside_its_successor() {
    let Some(server) = Server::consul() else { return };
    side_by_side(runs(1) * BLOWS.len(), |run| {
        let blow = BLOWS[run % BLOWS.len()];
        let seen = consul_once(&server, blow, &format!("{blow}-{run}"));
        tell("consul", blow, &seen);
        assert!(seen.beside_us > 0, "{blow}: the table says that it overlaps");
    });
}

#[test]
fn under_etcdctl_lock_the_command_runs_beside_its_successor() {
    let Some(etcd) = Server::etcd() else { return };
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

/// Whether no other process gets the lock while the command is watched.
fn stays(file: &Path) -> bool {
    let seconds = (OBSERVED_US / 1_000_000).to_string();
    !flock(file, &["-w", &seconds]).arg("true").status().unwrap().success()
}

fn word(blow: Signal) -> &'static str {
    if blow == Signal::KILL { "kill" } else { "stop" }
}

/// Runs `flock` or `flock -o` once: no other process gets the lock, and the command runs on.
fn flock_stays(name: &str, flags: &[&str], blow: Signal) {
    let dir = scratch();
    let file = dir.path().join("lock");
    let mut command = flock(&file, flags);
    command.args(job::program());
    let held = Held::spawn(command, scratch(), Role::Family);
    held.runs(3);
    held.signal(blow);
    assert!(stays(&file), "no other process gets it");
    let record = held.record();
    assert!(record.pids.iter().all(|pid| is_alive(*pid)), "and no process is stopped");
    drop(held);
    let busy = || !flock(&file, &["-n"]).arg("true").status().unwrap().success();
    wait("all of it is gone", || (!busy()).then_some(()));
    tell(name, word(blow), &Seen { beside_us: 0 });
}

#[test]
fn under_flock_the_lock_stays_with_whatever_the_command_left_running() {
    let blows = [Signal::STOP, Signal::KILL];
    side_by_side(runs(1) * blows.len(), |run| flock_stays("flock", &[], blows[run % blows.len()]));
}

#[test]
fn under_flock_that_closes_its_file_the_command_runs_beside_its_successor() {
    side_by_side(runs(1), |_| {
        let dir = scratch();
        let file = dir.path().join("lock");
        let mut command = flock(&file, &["-o"]);
        command.args(job::program());
        let held = Held::spawn(command, scratch(), Role::Family);
        held.runs(3);
        held.signal(Signal::KILL);
        let mut next = flock(&file, &[]);
        next.arg("true");
        let seen = watch_overlap(&held, next);
        assert!(seen.beside_us > 0);
        tell("flock-o", "kill", &seen);
    });
    // A stopped `flock -o` keeps the file itself.
    side_by_side(runs(1), |_| flock_stays("flock-o", &["-o"], Signal::STOP));
}
