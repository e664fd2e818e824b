//! Starts real processes of the built binary and sends them requests.
#![allow(dead_code, reason = "each test binary uses a part of this")]

pub(crate) mod client;
pub(crate) mod history;
pub(crate) mod http;
pub(crate) mod load;
mod ports;
pub(crate) mod proxy;
pub(crate) mod spaces;
pub(crate) mod waiting;
pub(crate) mod watch;
pub(crate) mod words;

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tenure_server::tls::DialTrust;

pub(crate) use client::field;
use http::Connection;
pub(crate) use ports::free_port;
use proxy::Proxies;
use spaces::Spaces;
pub(crate) use waiting::wait;

/// The time limit of an answer: longer than members try to get one.
const TIMEOUT: Duration = Duration::from_secs(40);

/// The binary under test.
pub(crate) const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// How many members to kill: as many as a campaign sets, or a few.
pub(crate) fn kills(few: usize) -> usize {
    let kills = std::env::var("TENURE_KILLS").ok();
    kills.map_or(few, |kills| kills.parse().expect("TENURE_KILLS is a number"))
}

/// Shows the progress of a campaign on a terminal.
pub(crate) fn progress(kills: usize) -> ProgressBar {
    let style = "{bar:40} {pos}/{len} kills, {elapsed} gone, {eta} left";
    let bar = ProgressBar::new(kills as u64);
    bar.with_style(ProgressStyle::with_template(style).unwrap())
}

/// A process that is killed when it goes out of scope.
pub(crate) struct Process {
    child: Child,
    pub(crate) said: PathBuf,
}

impl Process {
    /// Starts the binary; its stderr goes to a file.
    pub(crate) fn start(said: &Path, arguments: &[&str]) -> Self {
        Self::run(said, Command::new(TENURE).args(arguments))
    }

    /// Starts a command that becomes the binary.
    fn run(said: &Path, command: &mut Command) -> Self {
        let log = File::options().create(true).append(true).open(said).unwrap();
        let child = command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", said.parent().unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, said: said.to_owned() }
    }

    /// Kills it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal, as `kill` or Ctrl-C does.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends by itself.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        wait("the process ends", || self.child.try_wait().unwrap())
    }

    /// How it has ended, if it has.
    pub(crate) fn try_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Everything it printed.
    pub(crate) fn words(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The output of a command that ended by itself, and its exit code.
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

/// Sends one line to a member on loopback and returns its answer; `None` without one.
pub(crate) fn ask(port: u16, line: &str) -> Option<String> {
    let address = (Ipv4Addr::LOCALHOST, port).into();
    ask_within(TIMEOUT, address, None, line)
}

/// Does the same within a given time.
fn ask_within(
    time: Duration,
    to: SocketAddr,
    trust: Option<&DialTrust>,
    line: &str,
) -> Option<String> {
    let answer = Connection::open(to, trust, time).ok()?.call(&words::call(line, time)).ok()?;
    Some(words::told(line, &answer))
}

/// Members on loopback, or each in a separate network namespace.
pub(crate) struct Cluster {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) members: Vec<One>,
    /// Further arguments of every member.
    pub(crate) more: Vec<String>,
    /// The certificates for talking to them, if they do not speak plaintext.
    pub(crate) trust: Option<DialTrust>,
    /// The proxies between members, if there are any.
    pub(crate) proxies: Option<Proxies>,
    /// The proxies between members and clients, which know no other address.
    pub(crate) client_proxies: Option<Proxies>,
    pub(crate) spaces: Option<Spaces>,
}

/// One member of the cluster.
pub(crate) struct One {
    pub(crate) name: String,
    pub(crate) host: Ipv4Addr,
    pub(crate) clients: u16,
    pub(crate) members: u16,
    /// Further arguments of this member, such as its certificate.
    pub(crate) flags: Vec<String>,
    pub(crate) process: Option<Process>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for at in 0..self.members.len() {
                let name = &self.members[at].name;
                let path = self.dir.path().join(format!("{name}.log"));
                let status = self.ask_within(Duration::from_secs(2), at, "status");
                eprintln!("--- {name}, which now says {status:?}");
                eprintln!("{}", fs::read_to_string(path).unwrap_or_default());
            }
        }
        // The members run in the namespaces, which are removed next.
        self.members.clear();
    }
}

impl Cluster {
    /// Bootstraps a cluster and waits for its first leader.
    pub(crate) fn found(size: usize) -> Self {
        let mut cluster = Self::new();
        for _ in 0..size {
            cluster.add();
        }
        cluster.founded()
    }

    /// Three members that write a snapshot after this many entries.
    pub(crate) fn found_with_snapshots(entries: u64) -> Self {
        let mut cluster = Self::new();
        cluster.more = vec!["--snapshot-entries".to_owned(), entries.to_string()];
        for _ in 0..3 {
            cluster.add();
        }
        cluster.founded()
    }

    /// Three members that reach each other only through proxies.
    pub(crate) fn found_behind_proxies() -> Self {
        let mut cluster = Self::new();
        for _ in 0..3 {
            cluster.add();
        }
        cluster.put_behind_proxies();
        cluster.founded()
    }

    /// Lets the members reach each other only through proxies. They are not started yet.
    pub(crate) fn put_behind_proxies(&mut self) {
        let ports: Vec<u16> = self.members.iter().map(|one| one.members).collect();
        self.proxies = Some(Proxies::new(&ports));
    }

    /// Three members behind two sets of proxies: between members, and between clients and members. The proxies
    /// distinguish this many clients.
    pub(crate) fn found_behind_client_proxies(clients: usize) -> Self {
        let mut cluster = Self::new();
        for _ in 0..3 {
            cluster.add();
        }
        cluster.put_behind_proxies();
        let ports: Vec<u16> = cluster.members.iter().map(|one| one.clients).collect();
        cluster.client_proxies = Some(Proxies::with_diallers(&ports, clients));
        cluster.founded()
    }

    /// Three members, each with a separate network; `None` without the privileges to make those.
    pub(crate) fn found_in_spaces() -> Option<Self> {
        let spaces = Spaces::new(3)?;
        let mut cluster = Self::new();
        for at in 0..3 {
            cluster.add();
            cluster.members[at].host = spaces.host(at);
        }
        cluster.more = vec!["--insecure".to_owned()];
        cluster.spaces = Some(spaces);
        Some(cluster.founded())
    }

    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (members, more) = (Vec::new(), Vec::new());
        Self { dir, members, more, trust: None, proxies: None, client_proxies: None, spaces: None }
    }

    /// Starts all members as initial members, and waits until each of them has founded the cluster and one leads.
    pub(crate) fn founded(mut self) -> Self {
        (0..self.members.len()).for_each(|at| self.start_initial_member(at));
        self.until_founded();
        self
    }

    /// Waits until one member leads and all answer. A majority can elect a leader while another initial member has no
    /// identity on its disk yet, and that one could not be killed and started again.
    pub(crate) fn until_founded(&self) {
        self.leader();
        (0..self.members.len()).for_each(|at| drop(self.id(at)));
    }

    /// Makes room for a member that is not started.
    pub(crate) fn add(&mut self) -> usize {
        let name = format!("m{}", self.members.len());
        let (clients, members) = (free_port(), free_port());
        let host = Ipv4Addr::LOCALHOST;
        let flags = Vec::new();
        self.members.push(One { name, host, clients, members, flags, process: None });
        self.members.len() - 1
    }

    /// The address at which other members reach this one.
    pub(crate) fn advertised(&self, at: usize) -> String {
        let One { host, members, .. } = &self.members[at];
        let port = self.proxies.as_ref().map_or(*members, |proxies| proxies.port(at));
        format!("{host}:{port}")
    }

    /// Starts a member with the list of all initial members.
    pub(crate) fn start_initial_member(&mut self, at: usize) {
        let listed = self.members.iter().enumerate();
        let listed = listed.map(|(at, one)| format!("{}={}", one.name, self.advertised(at)));
        let listed = listed.collect::<Vec<_>>().join(",");
        self.start(at, &["--bootstrap", &listed]);
    }

    /// Starts a member that joins through these members, with an invitation that is made for it.
    pub(crate) fn start_joining(&mut self, at: usize, seeds: &str, more: &[&str]) {
        let invitation = self.invite("{}");
        let joining = ["--join", seeds, "--invitation", &invitation];
        self.start(at, &[&joining[..], more].concat());
    }

    /// Makes an invitation at any member that runs. `wanted` is the body of the request.
    pub(crate) fn invite(&self, wanted: &str) -> String {
        let body = Some(("application/json", wanted.to_owned()));
        let path = "/v1/cluster/invitations".to_owned();
        let call = http::Call { verb: "POST", path, key: None, body };
        wait("a member makes an invitation", || {
            let mut running =
                (0..self.members.len()).filter(|at| self.members[*at].process.is_some());
            running.find_map(|at| {
                let (to, trust) = (self.address(at), self.trust.as_ref());
                let mut connection = Connection::open(to, trust, TIMEOUT).ok()?;
                let answer = connection.call(&call).ok().filter(|answer| answer.status == 200)?;
                let body: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
                body["invitation"].as_str().map(str::to_owned)
            })
        })
    }

    /// Starts a member.
    pub(crate) fn start(&mut self, at: usize, more: &[&str]) {
        let (data, advertised) = (self.data(at), self.advertised(at));
        let One { name, host, clients, members, flags, .. } = &self.members[at];
        let (clients, members) = (format!("{host}:{clients}"), format!("{host}:{members}"));
        let mut arguments = vec!["serve", "--name", name, "--data", data.to_str().unwrap()];
        arguments.extend(["--clients", &clients, "--members", &members]);
        arguments.extend(["--advertise-members", &advertised, "--health", "none"]);
        let client_proxy = self
            .client_proxies
            .as_ref()
            .map(|client_proxies| format!("{host}:{}", client_proxies.port(at)));
        arguments.extend(
            client_proxy.iter().flat_map(|client_proxy| ["--advertise-clients", client_proxy]),
        );
        arguments.extend(self.more.iter().chain(flags).map(String::as_str));
        arguments.extend(more);
        let said = self.dir.path().join(format!("{name}.log"));
        let process = match &self.spaces {
            Some(spaces) => Process::run(&said, spaces.command(at, TENURE).args(&arguments)),
            None => Process::start(&said, &arguments),
        };
        if let Some(proxies) = &self.proxies {
            proxies.know(at, process.pid());
        }
        self.members[at].process = Some(process);
    }

    pub(crate) fn data(&self, at: usize) -> PathBuf {
        self.dir.path().join(&self.members[at].name)
    }

    pub(crate) fn kill(&mut self, at: usize) {
        self.members[at].process = None;
    }

    /// The address at which clients reach this one.
    pub(crate) fn address(&self, at: usize) -> SocketAddr {
        let One { host, clients, .. } = &self.members[at];
        (*host, *clients).into()
    }

    /// The addresses of all members.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        (0..self.members.len()).map(|at| self.address(at)).collect()
    }

    pub(crate) fn ask(&self, at: usize, line: &str) -> Option<String> {
        self.ask_within(TIMEOUT, at, line)
    }

    pub(crate) fn ask_within(&self, time: Duration, at: usize, line: &str) -> Option<String> {
        ask_within(time, self.address(at), self.trust.as_ref(), line)
    }

    /// Whether this member leads and serves. A stopped member does not answer.
    pub(crate) fn leads(&self, at: usize) -> bool {
        let up = self.members[at].process.is_some();
        let status = up.then(|| self.ask_within(Duration::from_secs(1), at, "status")).flatten();
        status.is_some_and(|status| status.contains("serving=true"))
    }

    /// Waits for a leader that serves.
    pub(crate) fn leader(&self) -> usize {
        wait("a member leads", || (0..self.members.len()).find(|at| self.leads(*at)))
    }

    /// Waits for a leader among these members.
    pub(crate) fn leader_of(&self, members: &[usize]) -> usize {
        wait("one of them leads", || members.iter().copied().find(|at| self.leads(*at)))
    }

    /// Sends a command to the current leader, and again if it had no effect.
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

    /// Waits until all of these members have applied the same entries, and checks that their states are equal.
    pub(crate) fn agree(&self, members: &[usize]) -> String {
        wait("all members have applied the same", || {
            let ask = |at: &usize| self.ask_within(Duration::from_secs(5), *at, "hash");
            let hashes: Vec<String> = members.iter().map(ask).collect::<Option<_>>()?;
            let index = |hash: &String| field(hash, "index");
            let first = hashes.first()?;
            if hashes.iter().any(|hash| index(hash) != index(first)) {
                return None;
            }
            assert!(hashes.iter().all(|hash| hash == first), "states differ: {hashes:?}");
            Some(first.clone())
        })
    }
}
