//! Sets up a cluster, commands under its locks, and a client that acquires the lock next.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tenure::Client;
use tenure_server::os;
use tokio::runtime::Runtime;

use crate::common::{self, Cluster, TENURE, wait};
use crate::job::{self, Record, Role};

/// The ttl of locks in these tests.
pub(crate) const TTL: Duration = Duration::from_secs(3);

pub(crate) struct World {
    // Dropped first: its tasks use connections to the members.
    pub(crate) client: Client,
    pub(crate) runtime: Runtime,
    pub(crate) cluster: Cluster,
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) async fn client(addresses: &str, name: &str) -> Client {
    let builder = Client::builder().addresses(addresses).name(name);
    builder.timeout(Duration::from_secs(30)).connect().await.unwrap()
}

impl World {
    pub(crate) fn new(members: usize) -> Self {
        let cluster = Cluster::found(members);
        let runtime = runtime();
        let client = runtime.block_on(client(&addresses(&cluster), "next"));
        Self { client, runtime, cluster }
    }

    pub(crate) fn addresses(&self) -> String {
        addresses(&self.cluster)
    }

    /// Starts `tenure run` with these flags, and this test binary in a role as its command.
    pub(crate) fn hold(&self, lock: &str, flags: &[&str], role: Role) -> Held {
        Held::start(&self.addresses(), lock, flags, role)
    }

    /// Runs `tenure run` with these flags and this command to its end.
    pub(crate) fn run(&self, lock: &str, flags: &[&str], command: &[&str]) -> common::Ended {
        let addresses = self.addresses();
        let mut all = vec!["run", lock, "--addr", &addresses];
        all.extend(flags);
        all.push("--");
        all.extend(command);
        let ran = Command::new(TENURE).args(all).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        common::Ended { code: ran.status.code(), out: text(ran.stdout), err: text(ran.stderr) }
    }

    /// Waits for the lock like any client.
    pub(crate) fn next(&self, lock: &str) -> tenure::Guard {
        self.runtime.block_on(async { self.client.lock(lock).await }).unwrap()
    }

    /// Waits for the lock, and returns when it was granted: the waiting task itself notes the time, before another
    /// thread has to wake up.
    pub(crate) fn next_at(&self, lock: &str) -> (tenure::Guard, u64) {
        let asked = async {
            let guard = self.client.lock(lock).await;
            (guard, os::now_us())
        };
        let (guard, granted_us) = self.runtime.block_on(asked);
        (guard.unwrap(), granted_us)
    }

    /// How many clients wait for a lock.
    pub(crate) fn waiting(&self, lock: &str) -> u64 {
        let shown = self.runtime.block_on(self.client.show(lock)).unwrap();
        shown.map_or(0, |it| it.waiting)
    }
}

/// The most runs at the same time.
const TOGETHER: usize = 10;

/// How many runs: as many as a campaign sets, or a few.
pub(crate) fn runs(few: usize) -> usize {
    let runs = std::env::var("TENURE_RUNS").ok();
    runs.map_or(few, |runs| runs.parse().expect("TENURE_RUNS is a number"))
}

/// Does something `count` times, some of them at once, with a progress bar on a terminal.
pub(crate) fn side_by_side(count: usize, each: impl Fn(usize) + Sync) {
    let style = "{bar:40} {pos}/{len} runs, {elapsed} gone, {eta} left";
    let bar = ProgressBar::new(count as u64);
    let bar = bar.with_style(ProgressStyle::with_template(style).unwrap());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER.min(count) {
            scope.spawn(|| {
                loop {
                    let run = next.fetch_add(1, Ordering::Relaxed);
                    if run >= count {
                        return;
                    }
                    each(run);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
}

/// A directory in memory, so that the measured times contain no wait for a disk: a process in the middle of a system
/// call is killed only after it.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.unwrap()
}

fn addresses(cluster: &Cluster) -> String {
    let each = cluster.addresses();
    each.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// A `tenure run` process and its files.
pub(crate) struct Held {
    pub(crate) child: Child,
    pub(crate) dir: tempfile::TempDir,
}

impl Held {
    pub(crate) fn start(addresses: &str, lock: &str, flags: &[&str], role: Role) -> Self {
        let held = Self::begin(addresses, lock, flags, role);
        held.runs(1);
        held
    }

    /// Starts a `tenure run` that may have to wait for its lock.
    pub(crate) fn begin(addresses: &str, lock: &str, flags: &[&str], role: Role) -> Self {
        let dir = scratch();
        let mut command = Command::new(TENURE);
        command.args(["run", lock, "--addr", addresses, "--events"]);
        command.arg(dir.path().join("events")).args(flags);
        if !flags.contains(&"--ttl") {
            command.args(["--ttl", &format!("{}s", TTL.as_secs())]);
        }
        command.arg("--").args(job::program());
        Self::spawn(command, dir, role)
    }

    /// Starts any command that becomes the test binary in a role.
    pub(crate) fn spawn(command: Command, dir: tempfile::TempDir, role: Role) -> Self {
        let said = fs::File::create(dir.path().join("said")).unwrap();
        Self::spawn_saying(command, dir, role, said)
    }

    /// Does the same with another stderr.
    pub(crate) fn spawn_saying(
        mut command: Command,
        dir: tempfile::TempDir,
        role: Role,
        said: impl Into<Stdio>,
    ) -> Self {
        command.envs(job::environment(role, dir.path()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        Self { child: command.spawn().unwrap(), dir }
    }

    /// Waits until this many processes of the command run.
    pub(crate) fn runs(&self, processes: usize) {
        wait("the command runs", || (self.record().pids.len() >= processes).then_some(()));
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The pid of the watchdog.
    pub(crate) fn watchdog(&self) -> Pid {
        let list = format!("/proc/{}/task/{}/children", self.pid(), self.pid());
        wait("there is a watchdog", || {
            let mut pids: Vec<i32> = Vec::new();
            for task in fs::read_dir(format!("/proc/{}/task", self.pid())).ok()?.flatten() {
                let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                pids.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
            }
            assert!(pids.len() <= 1, "{list}: {pids:?}");
            pids.first().copied().and_then(Pid::from_raw)
        })
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn record(&self) -> Record {
        Record::read(self.dir.path())
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        wait("`tenure run` ends", || self.child.try_wait().unwrap())
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.dir.path().join("said")).unwrap()
    }

    /// The events with this name.
    pub(crate) fn events(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.path().join("events")).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["event"] == name).collect()
    }

    /// Waits for an event.
    pub(crate) fn event(&self, name: &str) -> Value {
        wait(name, || self.events(name).first().cloned())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Kill whatever a scenario left behind, by the pids that it recorded itself.
        for pid in Record::read(self.dir.path()).pids.into_iter().filter(|pid| is_ours(*pid)) {
            let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            let _ = kill_process(pid, Signal::KILL);
        }
        if std::thread::panicking() {
            let said = fs::read_to_string(self.dir.path().join("said")).unwrap_or_default();
            eprintln!("--- tenure run said\n{said}");
        }
    }
}

/// Whether a process is still one that these tests started: pids are reused.
fn is_ours(pid: u32) -> bool {
    let own = std::env::current_exe().unwrap();
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == own)
}

/// Whether a process runs, or could run.
pub(crate) fn is_alive(pid: u32) -> bool {
    is_ours(pid) && state(Path::new(&format!("/proc/{pid}"))).is_some_and(|state| state != 'Z')
}

/// The state of a process: `R`, `S`, `T`, `Z`.
pub(crate) fn state(of: &Path) -> Option<char> {
    let text = fs::read_to_string(of.join("stat")).ok()?;
    text.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Whether a signal to a process is still pending.
pub(crate) fn is_pending(of: &Path, signal: Signal) -> bool {
    let status = fs::read_to_string(of.join("status")).unwrap_or_default();
    let masks = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    masks.fold(0, |all, mask| all | mask) >> (signal.as_raw() - 1) & 1 == 1
}
