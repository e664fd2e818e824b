//! Starts three members, of which the one in this process leads.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tempfile::TempDir;
use tenure_raft::MemberId;
use tenure_server::{
    AdminRequest, ArchiveSettings, MemberHandle, RunningServer, ServerSettings, StartMode, os,
};

/// The number of members; the first leads.
const MEMBERS: usize = 3;
/// Long enough for any election on a busy machine.
const LEADER_WAIT_US: u64 = 30_000_000;
/// The pause between two checks of who leads.
const PAUSE: Duration = Duration::from_millis(20);

/// Three members and their data, which is removed with them.
pub(crate) struct BenchCluster {
    here: RunningServer,
    followers: Vec<Follower>,
    // Declared last, so that it is removed after the members have stopped.
    dir: TempDir,
}

/// A member in a process of its own. It ends when its standard input is closed.
struct Follower(Child);

impl Drop for Follower {
    fn drop(&mut self) {
        // Its data is not needed any more, so it need not shut down gracefully.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for BenchCluster {
    fn drop(&mut self) {
        self.here.stop();
    }
}

impl BenchCluster {
    pub(crate) fn leader(&self) -> &MemberHandle {
        &self.here.member
    }

    /// The address of the leader's APIs.
    pub(crate) fn clients(&self) -> SocketAddr {
        self.here.clients
    }

    /// The data directory of the leader.
    pub(crate) fn leader_data(&self) -> PathBuf {
        data(self.dir.path(), 0)
    }

    /// The process ids of the other members.
    pub(crate) fn followers(&self) -> impl Iterator<Item = u32> + '_ {
        self.followers.iter().map(|follower| follower.0.id())
    }
}

/// Whether the members keep an event archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventArchive {
    Kept,
    Off,
}

impl EventArchive {
    pub(crate) fn unless(off: bool) -> Self {
        if off { Self::Off } else { Self::Kept }
    }
}

/// Starts all three, with or without an event archive, and waits until the one in this process leads.
pub(crate) fn start_with(archive: EventArchive) -> Result<BenchCluster> {
    let program = std::env::current_exe().context("finding this program")?;
    // Beside the program, which is on a disk; the system's temporary directory may be in memory.
    let near = program.parent().context("the program is in a directory")?;
    let dir = tempfile::Builder::new().prefix("bench-cluster-").tempdir_in(near);
    let dir = dir.context("making a directory for the members' data")?;
    let addresses = free_addresses()?;
    let mut followers = Vec::new();
    for at in 1..MEMBERS {
        let child = Process::new(&program)
            .args(["follow", &at.to_string()])
            .args((archive == EventArchive::Off).then_some("--no-archive"))
            .arg(dir.path())
            .args(&addresses)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // The members' logs are kept beside their data, so that they do not mix with the results.
            .stderr(log_file(dir.path(), at)?)
            .spawn()
            .context("starting a member")?;
        followers.push(Follower(child));
    }
    // Members wait for each other at bootstrap. If one cannot start, this process would wait for ever.
    let settings = settings(0, dir.path(), &addresses, archive);
    let starting = std::thread::spawn(|| tenure_server::start(settings));
    while !starting.is_finished() {
        for (at, Follower(child)) in followers.iter_mut().enumerate() {
            if child.try_wait().context("looking at a member")?.is_some() {
                let log = data(dir.path(), at + 1).with_extension("log");
                let log = std::fs::read_to_string(log).unwrap_or_default();
                bail!("a member did not start: {}", log.lines().next().unwrap_or_default());
            }
        }
        std::thread::sleep(PAUSE);
    }
    let here = starting.join().map_err(|_| anyhow!("a member panicked"))??;
    let mut cluster = BenchCluster { here, followers, dir };
    cluster.lead()?;
    Ok(cluster)
}

impl BenchCluster {
    /// Asks the current leader to transfer leadership, until this process leads.
    pub(crate) fn lead(&mut self) -> Result<()> {
        let until_us = os::now_us() + LEADER_WAIT_US;
        let me = self.here.member.id();
        loop {
            if self.here.member.status()?.agreement.serving {
                return Ok(());
            }
            ensure!(os::now_us() < until_us, "this process does not get to lead");
            for Follower(child) in &mut self.followers {
                let to = child.stdin.as_mut().context("a member has an input")?;
                writeln!(to, "{me}").context("telling a member who is to lead")?;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Runs one of the other members. Each line of input names the member that is to lead instead.
pub(crate) fn follow(
    at: usize,
    dir: &Path,
    addresses: &[String],
    archive: EventArchive,
) -> Result<()> {
    ensure!(at < addresses.len(), "there is no member {at}");
    let running = tenure_server::start(settings(at, dir, addresses, archive))?;
    for line in BufReader::new(std::io::stdin()).lines() {
        let line = line.context("reading who is to lead")?;
        let to = u64::from_str_radix(&line, 16).ok().and_then(MemberId::new);
        let Some(to) = to else { bail!("`{line}` is no member") };
        if running.member.status()?.agreement.serving {
            // If the transfer is refused or lost, the next line asks again.
            let _ = running.member.admin(AdminRequest::Transfer(to), Duration::from_secs(1));
        }
    }
    Ok(())
}

fn settings(at: usize, dir: &Path, addresses: &[String], archive: EventArchive) -> ServerSettings {
    let kept = ArchiveSettings::default();
    let archive = match archive {
        EventArchive::Kept => kept,
        EventArchive::Off => ArchiveSettings { bytes_max: 0, ..kept },
    };
    let name = |at: usize| format!("m{at}");
    let listed = addresses.iter().enumerate().map(|(at, address)| (name(at), address.clone()));
    ServerSettings {
        clients: "127.0.0.1:0".into(),
        members: Some(addresses[at].clone()),
        entrance: StartMode::Bootstrap(listed.collect()),
        archive,
        ..ServerSettings::new(name(at), data(dir, at))
    }
}

fn data(dir: &Path, at: usize) -> PathBuf {
    dir.join(format!("m{at}"))
}

fn log_file(dir: &Path, at: usize) -> Result<std::fs::File> {
    std::fs::File::create(data(dir, at).with_extension("log")).context("making a log file")
}

/// The members' ports are below the range that Linux uses for port 0, from which the members take their client ports.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Finds free addresses on loopback. All ports are held until the last one is found, so that they differ.
fn free_addresses() -> Result<Vec<String>> {
    // Two benchmarks at a time begin at different ports.
    let first = u16::try_from(std::process::id() % 10_000).unwrap_or_default();
    let ports = PORTS.skip(usize::from(first));
    let free = ports.filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    let held: Vec<TcpListener> = free.take(MEMBERS).collect();
    ensure!(held.len() == MEMBERS, "there are no free ports from {} on", PORTS.start + first);
    held.iter().map(|port| Ok(port.local_addr()?.to_string())).collect()
}
