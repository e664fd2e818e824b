//! Puts every member on a separate network.
//!
//! Each member gets a network namespace; a bridge joins it to the others and to the test. Packets are dropped where
//! they arrive, so that the sender gets no error.

use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The most bridges at once on this machine: each has a subnet.
const BRIDGES_MAX: u32 = 250;

/// The network namespaces of a cluster. Dropping this removes them.
pub(crate) struct Spaces {
    bridge: u32,
    members: usize,
}

impl Spaces {
    /// Makes this many namespaces. Without the privileges it prints a line and returns `None`, except in continuous
    /// integration, where that is a failure.
    pub(crate) fn new(members: usize) -> Option<Self> {
        let why = match Self::try_new(members) {
            Ok(spaces) => return Some(spaces),
            Err(why) => why,
        };
        let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
        assert!(!in_ci, "network namespaces are needed here: {why}");
        // Not with a macro: the test runner would capture it.
        let line = format!("SKIPPED: no network namespaces, nothing was tested in them: {why}\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        None
    }

    fn try_new(members: usize) -> Result<Self, String> {
        tools()?;
        let mut last = String::new();
        for bridge in 0..BRIDGES_MAX {
            let name = bridge_name(bridge);
            sweep(bridge);
            match run("ip", &["link", "add", &name, "type", "bridge"]) {
                Err(why) if why.contains("File exists") => last = why,
                Err(why) => return Err(why),
                Ok(()) => {
                    let spaces = Self { bridge, members };
                    spaces.make()?;
                    return Ok(spaces);
                }
            }
        }
        Err(last)
    }

    fn make(&self) -> Result<(), String> {
        let bridge = bridge_name(self.bridge);
        let me = std::process::id().to_string();
        // The owner, so that others can clean up after a process that was killed.
        run("ip", &["link", "set", &bridge, "alias", &me])?;
        let host = format!("10.213.{}.1/24", self.bridge);
        run("ip", &["address", "add", &host, "dev", &bridge])?;
        run("ip", &["link", "set", &bridge, "up"])?;
        for at in 0..self.members {
            let (space, outside) = (self.space(at), self.outside(at));
            run("ip", &["netns", "add", &space])?;
            let veth = ["link", "add", &outside, "type", "veth", "peer", "name", "eth0"];
            run("ip", &[&veth[..], &["netns", &space]].concat())?;
            run("ip", &["link", "set", &outside, "master", &bridge, "up"])?;
            let host = format!("{}/24", self.host(at));
            run("ip", &["-n", &space, "address", "add", &host, "dev", "eth0"])?;
            run("ip", &["-n", &space, "link", "set", "eth0", "up"])?;
            run("ip", &["-n", &space, "link", "set", "lo", "up"])?;
            self.nft(at, &["add", "table", "ip", "faults"])?;
            let chain = "{ type filter hook input priority 0; }";
            self.nft(at, &["add", "chain", "ip", "faults", "input", chain])?;
        }
        Ok(())
    }

    pub(crate) fn host(&self, at: usize) -> Ipv4Addr {
        let (bridge, at) = (u8::try_from(self.bridge).unwrap(), u8::try_from(at).unwrap());
        Ipv4Addr::new(10, 213, bridge, 10 + at)
    }

    /// A command that runs a program in a namespace.
    pub(crate) fn command(&self, at: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space(at), program]);
        command
    }

    /// Drops every packet from one member to another; packets in the other direction arrive.
    pub(crate) fn lose(&self, from: usize, to: usize) {
        let from = self.host(from).to_string();
        let rule = ["add", "rule", "ip", "faults", "input", "ip", "saddr", &from, "drop"];
        self.nft(to, &rule).unwrap();
    }

    /// Drops every packet between two members.
    pub(crate) fn part(&self, one: usize, other: usize) {
        self.lose(one, other);
        self.lose(other, one);
    }

    /// Takes a member's link down: clients do not reach it either.
    pub(crate) fn unplug(&self, at: usize) {
        run("ip", &["link", "set", &self.outside(at), "down"]).unwrap();
    }

    /// Ends all faults.
    pub(crate) fn heal(&self) {
        for at in 0..self.members {
            self.nft(at, &["flush", "chain", "ip", "faults", "input"]).unwrap();
            run("ip", &["link", "set", &self.outside(at), "up"]).unwrap();
        }
    }

    fn nft(&self, at: usize, words: &[&str]) -> Result<(), String> {
        let space = self.space(at);
        run("ip", &[&["netns", "exec", &space, "nft"], words].concat())
    }

    fn space(&self, at: usize) -> String {
        space_name(self.bridge, at)
    }

    fn outside(&self, at: usize) -> String {
        format!("tenure{}v{at}", self.bridge)
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        remove(self.bridge);
    }
}

fn bridge_name(bridge: u32) -> String {
    format!("tenure{bridge}")
}

fn space_name(bridge: u32, at: usize) -> String {
    format!("tenure{bridge}-{at}")
}

/// Removes what a process that no longer exists left behind.
fn sweep(bridge: u32) {
    let Ok(shown) = output("ip", &["link", "show", &bridge_name(bridge)]) else { return };
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let owner = shown.split_once("alias ").and_then(|(_, rest)| rest.split_whitespace().next());
    if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
        remove(bridge);
    }
}

fn remove(bridge: u32) {
    // Links are removed with their namespaces. The bridge goes last: it marks the rest as taken.
    for at in 0..9 {
        let space = space_name(bridge, at);
        if Path::new("/run/netns").join(&space).exists() {
            let _ = run("ip", &["netns", "delete", &space]);
        }
        let outside = format!("tenure{bridge}v{at}");
        if Path::new("/sys/class/net").join(&outside).exists() {
            let _ = run("ip", &["link", "delete", &outside]);
        }
    }
    let _ = run("ip", &["link", "delete", &bridge_name(bridge)]);
}

/// Ensures that the network tools are installed, from Debian's packages if necessary, once for all tests.
fn tools() -> Result<(), String> {
    static THERE: OnceLock<Result<(), String>> = OnceLock::new();
    let are_there = || run("nft", &["--version"]).and_then(|()| run("ip", &["-V"]));
    let install = || {
        // Other processes may install at the same time, and the package lists may never have been fetched.
        let wait = "DPkg::Lock::Timeout=120";
        let packages = ["-y", "-q", "install", "nftables", "iproute2"];
        let installed = run("apt-get", &[&["-o", wait][..], &packages].concat());
        installed.or_else(|_| {
            run("apt-get", &["-o", wait, "-q", "update"])?;
            run("apt-get", &[&["-o", wait][..], &packages].concat())
        })
    };
    THERE.get_or_init(|| are_there().or_else(|_| install().and_then(|()| are_there()))).clone()
}

fn run(program: &str, words: &[&str]) -> Result<(), String> {
    let output = output(program, words)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{program} {}: {said}", words.join(" ")))
}

fn output(program: &str, words: &[&str]) -> Result<Output, String> {
    let output = Command::new(program).args(words).output();
    output.map_err(|error| format!("cannot start {program}: {error}"))
}
