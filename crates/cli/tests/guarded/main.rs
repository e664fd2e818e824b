//! Tests that the real store and proxy keep their promise while they, their clients and the cluster are killed.

#[path = "../common/authority.rs"]
mod authority;
#[path = "../../../gate/tests/gate/calls.rs"]
mod calls;
mod command;
#[path = "../common/mod.rs"]
mod common;
mod kill;
mod pause;
#[path = "../../../../examples/pause_over_redlock.rs"]
#[allow(dead_code, reason = "examples have a `main`, which is not what is called here")]
mod pause_over_redlock;
#[path = "../../../backends/tests/stores/servers.rs"]
#[allow(dead_code, reason = "only one of the servers is needed here")]
mod servers;
mod set;
mod state_restore;
mod states;
mod terraform;
mod tickets;
#[path = "../../../gate/tests/gate/upstream.rs"]
mod upstream;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use common::{Process, free_port, wait};

/// The module in which the included server starters look for ports.
mod ports {
    pub(crate) use crate::common::free_port;
}

/// A store or a proxy that can be killed and started again at the same address.
pub(crate) struct Guardian {
    arguments: Vec<String>,
    said: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) process: Option<Process>,
}

impl Guardian {
    pub(crate) fn store(dir: &Path) -> Self {
        Self::store_with(dir, &[])
    }

    pub(crate) fn store_with(dir: &Path, more: &[&str]) -> Self {
        Self::start(dir, "store", &[&["store"][..], more].concat())
    }

    pub(crate) fn proxy(dir: &Path, upstream: SocketAddr) -> Self {
        Self::proxy_with(dir, upstream, &[])
    }

    pub(crate) fn proxy_with(dir: &Path, upstream: SocketAddr, more: &[&str]) -> Self {
        let url = format!("http://{upstream}");
        let plain = ["fence", "proxy", "--upstream", &url, "--resource", "l"];
        Self::start(dir, "proxy", &[&plain[..], more].concat())
    }

    fn start(dir: &Path, name: &str, arguments: &[&str]) -> Self {
        let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
        let (data, listen) = (dir.join(name), address.to_string());
        let more = ["--data", data.to_str().unwrap(), "--listen", &listen];
        let arguments = arguments.iter().chain(&more).map(|each| (*each).to_owned()).collect();
        let said = dir.join(format!("{name}.log"));
        let mut guardian = Self { arguments, said, address, process: None };
        guardian.again();
        guardian
    }

    /// Starts it and waits until it listens.
    pub(crate) fn again(&mut self) {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        self.process = Some(Process::start(&self.said, &arguments));
        wait("it listens", || calls::Connection::open(self.address).ok());
    }

    /// Kills it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {}", std::fs::read_to_string(&self.said).unwrap_or_default());
        }
    }
}
