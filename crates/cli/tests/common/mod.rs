//! Real processes of the built binary, and somebody who talks to them in lines.
#![allow(dead_code, reason = "each test binary uses a part of this")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure_server::os;

/// How long anything may take here before the test fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// The binary under test.
pub(crate) const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// Waits until something is so.
pub(crate) fn wait<T>(what: &str, mut is_so: impl FnMut() -> Option<T>) -> T {
    let until_us = os::now_us() + u64::try_from(DEADLINE.as_micros()).unwrap();
    loop {
        if let Some(found) = is_so() {
            return found;
        }
        assert!(os::now_us() < until_us, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A port that is free, and stays so: below those that the system gives to connections.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id() * 64 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(10_000 + next % 20_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A process that is killed when it goes out of scope.
pub(crate) struct Process {
    child: Child,
    pub(crate) said: PathBuf,
}

impl Process {
    /// Starts the binary; what it says goes to a file.
    pub(crate) fn start(said: &Path, arguments: &[&str]) -> Self {
        let log = File::options().create(true).append(true).open(said).unwrap();
        let child = Command::new(TENURE)
            .args(arguments)
            .env_clear()
            .env("HOME", said.parent().unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, said: said.to_owned() }
    }

    /// As by `kill -9`.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// As by `kill`, or Ctrl-C.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Waits until it ends by itself.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        wait("the process ends", || self.child.try_wait().unwrap())
    }

    /// Everything it said.
    pub(crate) fn words(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a command that ends by itself said, and how it ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs the binary to its end.
pub(crate) fn tenure(arguments: &[&str]) -> Ended {
    let ran = Command::new(TENURE).args(arguments).env_clear().stdin(Stdio::null()).output();
    let ran = ran.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: ran.status.code(), out: text(ran.stdout), err: text(ran.stderr) }
}

/// One line to a port, one line back; nothing if nobody answers.
pub(crate) fn ask(port: u16, line: &str) -> Option<String> {
    ask_within(Duration::from_secs(40), port, line)
}

/// The same, for answers that need nobody's agreement.
fn ask_within(time: Duration, port: u16, line: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(time)).ok()?;
    stream.write_all(format!("{line}\n").as_bytes()).ok()?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).ok()?;
    answer.ends_with('\n').then(|| answer.trim_end().to_owned())
}

/// The value of `name=value` in an answer.
pub(crate) fn field(answer: &str, name: &str) -> Option<String> {
    let start = format!("{name}=");
    answer.split(' ').find_map(|word| word.strip_prefix(&start)).map(str::to_owned)
}

/// Three members on loopback.
pub(crate) struct Cluster {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) members: Vec<One>,
}

/// One of them.
pub(crate) struct One {
    pub(crate) name: String,
    pub(crate) clients: u16,
    pub(crate) members: u16,
    pub(crate) process: Option<Process>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for at in 0..self.members.len() {
                let name = &self.members[at].name;
                let path = self.dir.path().join(format!("{name}.log"));
                eprintln!("--- {name}, which now says {:?}", self.ask(at, "status"));
                eprintln!("{}", fs::read_to_string(path).unwrap_or_default());
            }
        }
    }
}

impl Cluster {
    /// Founds a cluster and waits for its first leader.
    pub(crate) fn found(size: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut cluster = Self { dir, members: Vec::new() };
        for _ in 0..size {
            cluster.add();
        }
        for at in 0..size {
            cluster.start_founder(at);
        }
        cluster.leader();
        cluster
    }

    /// Makes room for a member that is not started.
    pub(crate) fn add(&mut self) -> usize {
        let name = format!("m{}", self.members.len());
        let (clients, members) = (free_port(), free_port());
        self.members.push(One { name, clients, members, process: None });
        self.members.len() - 1
    }

    /// Starts a member with the list of all founders.
    pub(crate) fn start_founder(&mut self, at: usize) {
        let listed =
            self.members.iter().map(|one| format!("{}=127.0.0.1:{}", one.name, one.members));
        let listed = listed.collect::<Vec<_>>().join(",");
        self.start(at, &["--bootstrap", &listed]);
    }

    /// Starts a member.
    pub(crate) fn start(&mut self, at: usize, more: &[&str]) {
        let data = self.data(at);
        let one = &mut self.members[at];
        let clients = format!("127.0.0.1:{}", one.clients);
        let members = format!("127.0.0.1:{}", one.members);
        let mut arguments = vec!["serve", "--name", &one.name, "--data", data.to_str().unwrap()];
        arguments.extend(["--clients", &clients, "--members", &members]);
        arguments.extend(more);
        let said = self.dir.path().join(format!("{}.log", one.name));
        one.process = Some(Process::start(&said, &arguments));
    }

    pub(crate) fn data(&self, at: usize) -> PathBuf {
        self.dir.path().join(&self.members[at].name)
    }

    pub(crate) fn kill(&mut self, at: usize) {
        self.members[at].process = None;
    }

    pub(crate) fn ask(&self, at: usize, line: &str) -> Option<String> {
        ask(self.members[at].clients, line)
    }

    /// Waits for a leader that serves.
    pub(crate) fn leader(&self) -> usize {
        wait("a member leads", || {
            (0..self.members.len()).find(|at| {
                let up = self.members[*at].process.is_some();
                // One that is stopped does not answer.
                let soon = Duration::from_secs(1);
                let port = self.members[*at].clients;
                let status = up.then(|| ask_within(soon, port, "status")).flatten();
                status.is_some_and(|status| status.contains("serving=true"))
            })
        })
    }

    /// Has the leader do something, whoever that is; again if it had no effect.
    pub(crate) fn ok(&self, line: &str) -> String {
        wait(line, || {
            let answer = self.ask(self.leader(), line)?;
            assert!(!answer.starts_with("refused"), "{line}: {answer}");
            answer.starts_with("ok").then_some(answer)
        })
    }

    /// The id of a member.
    pub(crate) fn id(&self, at: usize) -> String {
        wait("it tells its id", || field(&self.ask(at, "status")?, "member"))
    }

    /// Waits until all of these have the same state.
    pub(crate) fn agree(&self, members: &[usize]) -> String {
        wait("all members have the same hash", || {
            let first = self.ask(members[0], "hash")?;
            members.iter().all(|at| self.ask(*at, "hash").as_ref() == Some(&first)).then_some(first)
        })
    }
}
