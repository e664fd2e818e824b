//! Starts and kills real servers for the tests.

use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::ports::free_port;

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(60);

/// How often to retry an installation.
const INSTALLS_MAX: u32 = 5;

/// A server process with a directory and a port of its own. It is killed when this is dropped.
pub(crate) struct Server {
    pub(crate) address: String,
    command: Box<dyn Fn() -> Command + Send + Sync>,
    child: Option<Child>,
    dir: TempDir,
}

impl Server {
    /// Starts one etcd. Returns `None` if it is not on this machine and cannot be installed.
    pub(crate) async fn etcd() -> Option<Self> {
        let [one] = Self::etcds().await?;
        Some(one)
    }

    /// Starts `MEMBERS` members of one etcd.
    pub(crate) async fn etcds<const MEMBERS: usize>() -> Option<[Self; MEMBERS]> {
        available("etcd", "etcd-server")?;
        let peers: [String; MEMBERS] =
            std::array::from_fn(|_| format!("http://127.0.0.1:{}", free_port()));
        let named = peers.iter().enumerate().map(|(at, peer)| format!("m{at}={peer}"));
        let all = named.collect::<Vec<_>>().join(",");
        let mut at = 0;
        let mut members = peers.map(|peer| {
            let (dir, port, name) = (tempfile::tempdir().unwrap(), free_port(), format!("m{at}"));
            at += 1;
            let (data, all) = (dir.path().join("data"), all.clone());
            let command = move || {
                let clients = format!("http://127.0.0.1:{port}");
                let mut command = Command::new("etcd");
                command.arg("--data-dir").arg(&data).args(["--name", &name]);
                command.args(["--listen-client-urls", &clients]);
                command.args(["--advertise-client-urls", &clients]);
                command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
                command.args(["--initial-cluster", &all]);
                command
            };
            Self::new(dir, port, Box::new(command))
        });
        // A member listens only after a majority of them has started.
        members.iter_mut().for_each(Self::spawn);
        for member in &mut members {
            member.listens().await;
        }
        Some(members)
    }

    /// Starts one Redis, which loses its data when it is killed.
    pub(crate) async fn redis() -> Option<Self> {
        available("redis-server", "redis-server")?;
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let data = dir.path().to_owned();
        let command = move || {
            let mut command = Command::new("redis-server");
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
            command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
            command.arg("--dir").arg(&data);
            command
        };
        let mut server = Self::new(dir, port, Box::new(command));
        server.restart().await;
        Some(server)
    }

    fn new(dir: TempDir, port: u16, command: Box<dyn Fn() -> Command + Send + Sync>) -> Self {
        Self { address: format!("127.0.0.1:{port}"), command, child: None, dir }
    }

    /// Starts the server again with the content of its directory.
    pub(crate) async fn restart(&mut self) {
        self.spawn();
        self.listens().await;
    }

    fn spawn(&mut self) {
        let said = std::fs::File::create(self.dir.path().join("said")).unwrap();
        let mut command = (self.command)();
        command.stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said);
        self.child = Some(command.spawn().unwrap());
    }

    async fn listens(&mut self) {
        let began = Instant::now();
        while TcpStream::connect(&self.address).await.is_err() {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
            let said = || std::fs::read_to_string(self.dir.path().join("said")).unwrap_or_default();
            assert!(ended.is_none() && began.elapsed() < START, "{ended:?}: {}", said());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills the server, as if its machine had failed.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Makes sure that a program is installed, from Debian's packages if need be. In continuous integration it must be.
fn available(program: &'static str, package: &'static str) -> Option<()> {
    static ETCD: OnceLock<Result<(), String>> = OnceLock::new();
    static REDIS: OnceLock<Result<(), String>> = OnceLock::new();
    let once = if program == "etcd" { &ETCD } else { &REDIS };
    match once.get_or_init(|| is_there(program).or_else(|_| install(package))) {
        Ok(()) => Some(()),
        Err(why) if in_ci() => panic!("{why}"),
        Err(why) => {
            eprintln!("skipped, nothing was shown: {why}");
            None
        }
    }
}

fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

fn is_there(program: &str) -> Result<(), String> {
    run(Command::new(program).arg("--version"))
}

fn install(package: &str) -> Result<(), String> {
    // Two installations at once would only wait for each other, or fail over the package lists.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        // Another process may be installing at the same time.
        command.args(["-o", "DPkg::Lock::Timeout=120", "-q"]).args(words);
        // The installation must not start a server; in run level 1 none are started.
        command.env("RUNLEVEL", "1").env("DEBIAN_FRONTEND", "noninteractive");
        run(&mut command)
    };
    let words = ["-y", "--no-install-recommends", "install", package];
    let mut installed = apt(&words);
    for _ in 0..INSTALLS_MAX {
        if installed.is_ok() {
            break;
        }
        // The package lists may never have been fetched, or another process on this machine is fetching them.
        installed = apt(&["update"]).and_then(|()| apt(&words));
        if installed.is_err() {
            std::thread::sleep(Duration::from_secs(3));
        }
    }
    installed
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
