//! Runs the members that are attacked, each with a log pipe that can stop being read.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::cpu;
use crate::common::client::{Client, ClientReply};
use crate::common::http::{Call, Connection, connect_from};
use crate::common::{TENURE, ask, field, free_port, wait};

/// Keys that make a page of a list, or a backup, a megabyte long.
const LARGE_KEYS: usize = 40;
const LARGE_BYTES: usize = 30_000;

/// How long a member may take to show its metrics.
const METRICS: Duration = Duration::from_secs(10);

/// A cluster of members in separate processes.
pub(crate) struct AttackedCluster {
    members: Vec<Member>,
    before_kb: u64,
    dir: tempfile::TempDir,
    /// The credentials of an operator, once identity is enabled.
    operator: Option<String>,
}

/// The credentials of callers, once identity is enabled.
pub(crate) struct StageKeys {
    pub(crate) honest: String,
    /// Another team, which may take locks, write keys and watch as the honest clients may.
    pub(crate) team: String,
}

struct Member {
    child: Child,
    clients: u16,
    members: u16,
    stuck: Arc<AtomicBool>,
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The addresses that an attack needs.
pub(crate) struct Target {
    /// The client port of the leader.
    pub(crate) leader: SocketAddr,
    /// The client port of another member; of the leader, if it is alone.
    pub(crate) follower: SocketAddr,
    /// The members' port of the leader.
    pub(crate) members: SocketAddr,
    /// The cluster, as every client can read it.
    pub(crate) cluster: String,
}

impl AttackedCluster {
    /// Starts a cluster of this many members and waits for its leader.
    pub(crate) fn start(size: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ports: Vec<(u16, u16)> = (0..size).map(|_| (free_port(), free_port())).collect();
        let listed = ports.iter().enumerate().map(|(at, it)| format!("m{at}=127.0.0.1:{}", it.1));
        let listed = listed.collect::<Vec<_>>().join(",");
        let members = ports.iter().enumerate();
        let members = members.map(|(at, it)| Member::start(dir.path(), at, *it, &listed)).collect();
        let mut stage = Self { members, before_kb: 0, dir, operator: None };
        let port = stage.target().leader.port();
        for key in 0..LARGE_KEYS {
            let value = "v".repeat(LARGE_BYTES);
            let put = format!("put large/{key} {value}");
            wait("a large key is written", || ask(port, &put)?.starts_with("ok").then_some(()));
        }
        stage.before_kb = stage.memory_kb();
        stage
    }

    /// The addresses as they are now.
    pub(crate) fn target(&self) -> Target {
        let leader = wait("a member leads", || {
            self.members.iter().position(|it| {
                self.ask(it.clients, "status").is_some_and(|it| it.contains("serving=true"))
            })
        });
        let here = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let follower = &self.members[(leader + 1) % self.members.len()];
        let leader = &self.members[leader];
        let status = wait("it tells its status", || self.ask(leader.clients, "status"));
        let own = |name| field(&status, name).unwrap();
        let (cluster, epoch) = (own("cluster"), own("epoch"));
        let incarnation = own("incarnation");
        Target {
            leader: here(leader.clients),
            follower: here(follower.clients),
            members: here(leader.members),
            cluster: format!("cluster {cluster}\nepoch {epoch}\nincarnation {incarnation}"),
        }
    }

    /// The addresses of all members for clients.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|it| (Ipv4Addr::LOCALHOST, it.clients).into()).collect()
    }

    /// How many leases the cluster has, as its leader counts them.
    pub(crate) fn leases(&self) -> Option<u64> {
        let call = Call { verb: "GET", path: "/metrics".to_owned(), key: None, body: None };
        let connection = Connection::open(self.target().leader, None, METRICS).ok()?;
        let mut connection = connection.with_bearer(self.operator.clone());
        let text = String::from_utf8(connection.call(&call).ok()?.body).ok()?;
        text.lines().find_map(|line| line.strip_prefix("tenure_leases "))?.parse().ok()
    }

    /// Stops reading the logs of all members, or goes on.
    pub(crate) fn stick_logs(&self, stuck: bool) {
        self.members.iter().for_each(|it| it.stuck.store(stuck, Ordering::Release));
    }

    /// The most memory that a member has needed so far.
    pub(crate) fn memory_kb(&self) -> u64 {
        self.members.iter().map(|it| cpu::memory_kb(it.child.id())).max().unwrap()
    }

    /// The processor time of all members so far.
    pub(crate) fn processor_us(&self) -> u64 {
        self.members.iter().map(|it| cpu::process_us(it.child.id())).sum()
    }

    /// The most memory that a member has needed more than at the beginning.
    pub(crate) fn grown_kb(&self) -> u64 {
        self.memory_kb().saturating_sub(self.before_kb)
    }

    /// What is wrong with a member, if anything is: it has ended, or does not answer.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for at in 0..self.members.len() {
            if let Some(ended) = self.members[at].child.try_wait().unwrap() {
                all.push(format!("m{at} has ended: {ended}"));
            } else if self.ask(self.members[at].clients, "status").is_none() {
                all.push(format!("m{at} does not answer"));
            }
        }
        all
    }

    /// Sends a command of the operator to a member.
    fn ask(&self, port: u16, line: &str) -> Option<String> {
        let to = (Ipv4Addr::LOCALHOST, port).into();
        let mut client = Client::new(vec![to], METRICS).with_bearer(self.operator.clone());
        match client.say(line) {
            ClientReply::Ok(answer) => Some(answer),
            ClientReply::Refused(_) | ClientReply::NotDone(_) | ClientReply::Unknown => None,
        }
    }

    /// Whether a key exists.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        let answer = wait("a member answers", || {
            self.ask(self.target().leader.port(), &format!("get {key}"))
        });
        !answer.contains("absent") && !answer.is_empty()
    }

    /// Enables identity.
    pub(crate) fn enable_identity(&mut self) -> StageKeys {
        let leader = self.target().leader;
        let at = self.members.iter().position(|it| it.clients == leader.port()).unwrap();
        let data = self.dir.path().join(format!("m{at}"));
        let tenure = |key: &str, arguments: &[&str]| {
            let mut command = Command::new(TENURE);
            command.args(arguments).env_clear().env("TENURE_ADDR", leader.to_string());
            let ran = command.env("TENURE_API_KEY", key).stdin(Stdio::null()).output().unwrap();
            assert!(ran.status.success(), "{arguments:?}: {ran:?}");
            String::from_utf8(ran.stdout).unwrap().trim().to_owned()
        };
        let admin = tenure("", &["auth", "init", "--data-dir", data.to_str().unwrap()]);
        let allow = "read,observe,acquire,keys,elect:";
        tenure(&admin, &["auth", "role", "put", "team", "--allow", allow]);
        let [honest, team] = ["honest", "team"].map(|name| {
            tenure(&admin, &["auth", "principal", "put", name, "--role", "team"]);
            format!("Bearer {}", tenure(&admin, &["auth", "key", "create", name]))
        });
        tenure(&admin, &["auth", "enable"]);
        self.operator = Some(format!("Bearer {admin}"));
        let all = self.addresses();
        let knows = |at: &SocketAddr| self.ask(at.port(), "status").is_some();
        wait("all members know the operator", || all.iter().all(knows).then_some(()));
        StageKeys { honest, team }
    }

    /// The last lines that each member logged.
    pub(crate) fn logs(&self) -> String {
        let last = |at: usize| {
            let text = fs::read_to_string(log(self.dir.path(), at)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(20).collect();
            format!("--- m{at}\n{}\n", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        (0..self.members.len()).map(last).collect()
    }
}

fn log(dir: &Path, at: usize) -> std::path::PathBuf {
    dir.join(format!("m{at}.log"))
}

impl Member {
    fn start(dir: &Path, at: usize, (clients, members): (u16, u16), listed: &str) -> Self {
        let mut child = Command::new(TENURE)
            .args(["serve", "--name", &format!("m{at}"), "--bootstrap", listed, "--health", "none"])
            .arg("--data")
            .arg(dir.join(format!("m{at}")))
            .args(["--clients", &format!("127.0.0.1:{clients}")])
            .args(["--members", &format!("127.0.0.1:{members}")])
            .args(["--advertise-members", &format!("127.0.0.1:{members}")])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (pipe, file) = (child.stderr.take().unwrap(), File::create(log(dir, at)).unwrap());
        let stuck = Arc::new(AtomicBool::new(false));
        let also = stuck.clone();
        std::thread::spawn(move || relay(pipe, file, &also));
        Self { child, clients, members, stuck }
    }
}

/// Copies a log to a file while the pipe is not stuck. Ends with the member.
fn relay(mut from: ChildStderr, mut to: File, stuck: &AtomicBool) {
    let mut part = [0; 4096];
    loop {
        if stuck.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        match from.read(&mut part) {
            Ok(bytes @ 1..) => drop(to.write_all(&part[..bytes])),
            _ => return,
        }
    }
}

/// Connects from an address of the loopback network, without waiting in later operations.
pub(crate) fn dial(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let stream = connect_from(from, to)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}
