//! Lists the workloads, how large they are and how often each is repeated.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::CONNECTIONS;

/// One workload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PeerWorkload {
    /// Clients acquire and release a lock of their own.
    Cycles {
        /// The number of clients.
        clients: usize,
        /// The connections that they share.
        connections: usize,
    },
    /// Clients acquire and release one lock in turns.
    HandOver {
        /// The number of clients.
        clients: usize,
    },
    /// Clients read one key.
    Reads {
        /// The number of clients.
        clients: usize,
    },
    /// The process that holds a lock is killed.
    HolderKilled,
    /// The server that leads is killed.
    LeaderKilled,
    /// Leases are kept alive.
    Leases {
        /// The number of leases.
        leases: usize,
    },
    /// One key is written while it is watched.
    Watchers {
        /// The number of watchers.
        watchers: usize,
    },
    /// Clients queue for one lock; then each gets it once.
    Queue {
        /// The number of waiters.
        waiters: usize,
    },
}

use PeerWorkload::{Cycles, HandOver, HolderKilled, LeaderKilled, Leases, Queue, Reads, Watchers};

const fn shared(clients: usize) -> PeerWorkload {
    let connections = if clients < CONNECTIONS { clients } else { CONNECTIONS };
    Cycles { clients, connections }
}

const fn alone(clients: usize) -> PeerWorkload {
    Cycles { clients, connections: clients }
}

/// Every workload, in the order in which they run.
pub(crate) const WORKLOADS: &[PeerWorkload] = &[
    shared(1),
    shared(16),
    shared(64),
    shared(256),
    shared(1_024),
    alone(64),
    alone(256),
    alone(1_024),
    HandOver { clients: 2 },
    HandOver { clients: 16 },
    HandOver { clients: 64 },
    HandOver { clients: 256 },
    HandOver { clients: 1_024 },
    Reads { clients: 64 },
    HolderKilled,
    LeaderKilled,
    Leases { leases: 10_000 },
    Leases { leases: 100_000 },
    Watchers { watchers: 10_000 },
    Queue { waiters: 5_000 },
    Queue { waiters: 100_000 },
];

impl PeerWorkload {
    /// Whether it takes long, and leaves much behind: it gets servers of its own.
    pub(crate) fn is_heavy(self) -> bool {
        matches!(self, Leases { .. } | Watchers { .. } | Queue { .. })
    }

    /// The same with few clients, to see that it runs.
    pub(crate) fn small(self) -> Self {
        match self {
            Cycles { clients, connections } => {
                let clients = clients.min(32);
                Cycles { clients, connections: connections.min(clients) }
            }
            HandOver { clients } => HandOver { clients: clients.min(16) },
            Reads { clients } => Reads { clients: clients.min(16) },
            Leases { leases } => Leases { leases: leases.min(200) },
            Watchers { watchers } => Watchers { watchers: watchers.min(50) },
            Queue { waiters } => Queue { waiters: waiters.min(100) },
            HolderKilled | LeaderKilled => self,
        }
    }

    /// Whether the name on the command line means this workload: its own, or that of its kind.
    pub(crate) fn is_called(self, name: &str) -> bool {
        let own = self.to_string();
        own == name || own.split('-').next() == Some(name)
    }
}

impl fmt::Display for PeerWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cycles { clients, connections } => write!(f, "cycles-{clients}x{connections}"),
            HandOver { clients } => write!(f, "handover-{clients}"),
            Reads { clients } => write!(f, "reads-{clients}"),
            HolderKilled => write!(f, "holder-killed"),
            LeaderKilled => write!(f, "leader-killed"),
            Leases { leases } => write!(f, "leases-{leases}"),
            Watchers { watchers } => write!(f, "watchers-{watchers}"),
            Queue { waiters } => write!(f, "queue-{waiters}"),
        }
    }
}

/// How long the parts of a measurement take.
#[derive(Clone, Debug)]
pub struct MeasurePlan {
    /// Before the window.
    pub(crate) warm_up: Duration,
    /// The window in which operations count.
    pub(crate) window: Duration,
    /// The window in which renewals of leases count; one renewal of each lease falls into it.
    pub(crate) renewals: Duration,
    /// The ttl of the leases that are kept alive.
    pub(crate) lease_ttl: Duration,
    /// How long a queue may take to form and to drain. What is left then has failed.
    pub(crate) queue_max: Duration,
    /// How long everything that prepares a measurement may take.
    pub(crate) prepare_max: Duration,
    /// How often a watched key is written.
    pub(crate) writes: usize,
    /// A directory on the disk that the servers use.
    pub(crate) data: PathBuf,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn workloads_have_names_of_their_own() {
        let names: BTreeSet<String> = WORKLOADS.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), WORKLOADS.len());
        assert!(names.contains("cycles-256x16") && names.contains("cycles-256x256"));
        assert!(WORKLOADS.iter().all(|it| it.is_called(&it.to_string())));
        assert_eq!(WORKLOADS.iter().filter(|it| it.is_called("queue")).count(), 2);
        assert_eq!(WORKLOADS.iter().filter(|it| it.is_called("leader")).count(), 1);
    }
}
