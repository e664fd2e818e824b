//! Runs members in this process, over real sockets and disks, for HTTP clients.

use crate::client::{Client, local_bearer};
use crate::common;
pub(crate) use crate::common::wait;

/// A cluster that ends with its test.
pub(crate) struct Members {
    all: common::Members,
}

impl Members {
    pub(crate) fn start(size: usize) -> Self {
        Self { all: common::Members::found(size) }
    }

    pub(crate) fn leader(&self) -> usize {
        self.all.leader()
    }

    pub(crate) fn client(&self, at: usize, name: &'static str) -> Client {
        Client::new(self.all.one(at).clients, name)
    }

    /// The header of the local administrator of a member.
    pub(crate) fn administrator(&self, at: usize) -> String {
        local_bearer(&self.all.data(at))
    }

    /// Stops a member.
    pub(crate) fn stop(&mut self, at: usize) {
        self.all.stop(at);
    }
}
