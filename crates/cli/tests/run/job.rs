//! Provides the commands that `tenure run` runs in these tests: this test binary in another role.
//!
//! Each of their processes records every few milliseconds, with the time, that it runs.

use std::fs::{self, File};
use std::io::Write;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tenure_server::os;

use crate::common::http::{Call, Connection};
use crate::world::{client, runtime};

/// The variables for the role and for the directory to write to.
const ROLE: &str = "TENURE_TEST_ROLE";
const DIR: &str = "TENURE_TEST_DIR";
/// The test that takes the role.
const NAME: &str = "basics::the_command_is_told_what_it_holds";
const BEAT: Duration = Duration::from_millis(4);

/// What a command does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Records that it runs until it is ended; SIGTERM ends it.
    Plain,
    /// Does the same, but ignores SIGTERM, SIGINT and SIGHUP. It starts a second process in a separate session, whose
    /// parent has ended, and that one starts a third; both ignore the signals too.
    Family,
    /// The second process of `Family`.
    Deep,
    /// The third process of `Family`.
    Leaf,
    /// Writes to a key that the lock guards, until it is ended.
    Writer,
    /// Not a command, but a program that holds a lock and does not stop the command that it started.
    Loose,
    /// Checks that no other process runs at the same time.
    Alone,
}

const ROLES: [Role; 7] =
    [Role::Plain, Role::Family, Role::Deep, Role::Leaf, Role::Writer, Role::Loose, Role::Alone];

/// This test binary in a role, as a program and its arguments.
pub(crate) fn program() -> [String; 5] {
    let own = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    [own, "--exact".to_owned(), NAME.to_owned(), "--nocapture".to_owned(), "--quiet".to_owned()]
}

/// The environment that selects the role.
pub(crate) fn environment(role: Role, dir: &Path) -> [(&'static str, String); 2] {
    [(ROLE, format!("{role:?}")), (DIR, dir.to_str().unwrap().to_owned())]
}

/// Takes the role that this process was started for, if it was.
#[expect(clippy::zombie_processes, reason = "no process waits for it: that is its purpose")]
pub(crate) fn act() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let role = ROLES.into_iter().find(|it| format!("{it:?}") == role).unwrap();
    let dir = PathBuf::from(std::env::var(DIR).unwrap());
    match role {
        Role::Plain => beat(&dir),
        Role::Family => {
            deaf();
            // Forks, so that its parent ends, and starts a session.
            let [own, rest @ ..] = program();
            let mut deep = Command::new("setsid");
            deep.arg("--fork").arg(own).args(rest).envs(environment(Role::Deep, &dir));
            assert!(deep.stdout(Stdio::null()).status().unwrap().success());
            beat(&dir);
        }
        Role::Deep => {
            deaf();
            let [own, rest @ ..] = program();
            let mut leaf = Command::new(own);
            leaf.args(rest).envs(environment(Role::Leaf, &dir)).stdout(Stdio::null());
            leaf.spawn().unwrap();
            beat(&dir);
        }
        Role::Leaf => {
            deaf();
            beat(&dir);
        }
        Role::Writer => write_guarded(&dir),
        Role::Loose => loose(&dir),
        Role::Alone => crate::storm::alone(&dir),
    }
    std::process::exit(0);
}

/// Ignores the signals that ask it to end.
fn deaf() {
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).unwrap();
    }
}

/// Records again and again that it runs.
fn beat(dir: &Path) {
    let mut file = record(dir);
    loop {
        writeln!(file, "{}", os::now_us()).unwrap();
        std::thread::sleep(BEAT);
    }
}

/// Writes to a guarded key again and again, and records the results.
fn write_guarded(dir: &Path) {
    let [lock, token, address] =
        ["TENURE_LOCK", "TENURE_TOKEN", "TENURE_ADDR"].map(|name| std::env::var(name).unwrap());
    let mut file = record(dir);
    loop {
        let sent_us = os::now_us();
        let answer = put_guarded(&address, &lock, &token);
        writeln!(file, "{sent_us} {answer}").unwrap();
        std::thread::sleep(BEAT);
    }
}

/// Writes once to the key of a lock, under a token, and returns the status of the response.
pub(crate) fn put_guarded(addresses: &str, lock: &str, token: &str) -> String {
    let address = addresses.split(',').next().unwrap().to_socket_addrs().unwrap().next().unwrap();
    let path = format!("/v1/keys/{lock}/effects?lock={lock}&token={token}");
    let body = Some(("application/octet-stream", token.to_owned()));
    let call = Call { verb: "PUT", path, key: None, body };
    let answer = Connection::open(address, None, Duration::from_secs(5));
    let answer = answer.and_then(|mut connection| connection.call(&call));
    answer.map_or("none".to_owned(), |answer| answer.status.to_string())
}

/// Acquires the lock with the SDK, and starts a command that nothing ends.
#[expect(clippy::zombie_processes, reason = "no process waits for it: that is its purpose")]
fn loose(dir: &Path) {
    let [lock, address] = ["TENURE_LOCK", "TENURE_ADDR"].map(|name| std::env::var(name).unwrap());
    let runtime = runtime();
    runtime.block_on(async {
        let client = client(&address, "loose").await;
        let _guard = client.lock(lock).ttl(crate::world::TTL).await.unwrap();
        let [own, rest @ ..] = program();
        let mut command = Command::new(own);
        command.args(rest).envs(environment(Role::Plain, dir)).stdout(Stdio::null());
        command.spawn().unwrap();
        std::future::pending::<()>().await;
    });
}

/// The file of this process, named by its pid.
fn record(dir: &Path) -> File {
    let name = dir.join(std::process::id().to_string());
    File::options().create(true).append(true).open(name).unwrap()
}

/// What the processes of one command recorded.
pub(crate) struct Record {
    /// The pids of the processes.
    pub(crate) pids: Vec<u32>,
    /// When each of them ran, with the rest of each line.
    pub(crate) beats: Vec<(u64, String)>,
}

impl Record {
    pub(crate) fn read(dir: &Path) -> Self {
        let (mut pids, mut beats) = (Vec::new(), Vec::new());
        for file in fs::read_dir(dir).unwrap().flatten() {
            let Some(pid) = file.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            pids.push(pid);
            let text = fs::read_to_string(file.path()).unwrap();
            // A line that was being written when its process was killed is incomplete.
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            beats.extend(whole.lines().map(|line| {
                let (at_us, rest) = line.split_once(' ').unwrap_or((line, ""));
                (at_us.parse().unwrap(), rest.to_owned())
            }));
        }
        beats.sort_unstable();
        Self { pids, beats }
    }

    /// When any of them last ran.
    pub(crate) fn last_us(&self) -> u64 {
        self.beats.last().expect("a command that ran wrote so").0
    }
}
