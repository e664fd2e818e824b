//! Answers queries about the state without changing it.

mod drains;
mod events;
mod explain;
mod list;
mod permitted;
mod records;
mod stats;
mod usage;

pub use events::{Compacted, Events, Filter};
pub use explain::{Chain, ChainStep, Explained, Freed};
pub use list::SortedLocks;
pub use permitted::Explanation;
pub use records::{Most, Recorded, RevisionRecord, RevisionRecords};
pub use stats::Stats;

use tenure_types::{Epoch, Limits, Revision, Term};

use crate::machine::Machine;

impl Machine {
    /// The machine's clock.
    pub fn clock_ms(&self) -> u64 {
        self.clock_ms
    }

    /// The term whose leader's count the clock follows.
    pub fn clock_term(&self) -> Term {
        self.clock_term
    }

    /// Chooses the hash seed for names of locks, so that clients cannot choose names that make lookups slow. No answer
    /// and no byte of the state depends on it; a member draws it at random.
    pub fn reseed_names(&mut self, seed: u64) {
        self.names.reseed(&self.locks, seed);
    }

    /// The newest revision.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The oldest revision whose events can be read.
    pub fn floor(&self) -> Revision {
        self.history.floor()
    }

    /// The number of times the cluster was restored.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The level in force.
    pub fn level(&self) -> u16 {
        self.level
    }

    /// How long nothing is granted after a restore; `None` if the quiet period is over or was waived.
    pub fn quiet_ms(&self) -> Option<u64> {
        self.quiet_until_ms.map(|until_ms| until_ms.saturating_sub(self.clock_ms))
    }

    /// Whether this is a new cluster: it is in the first epoch and has never granted a lease. The members that
    /// bootstrap it may raise it to the newest level that all of them know; any other cluster is raised by command.
    pub fn is_new(&self) -> bool {
        self.epoch == Epoch::default() && self.leases_granted == 0
    }

    /// The newest level that this machine's build knows.
    pub fn level_known(&self) -> u16 {
        self.level_known
    }

    /// Sets the newest known level to another value than [`LEVEL_MAX`](crate::LEVEL_MAX), as in an older or newer
    /// build.
    pub fn know_level(&mut self, level: u16) {
        self.level_known = level;
    }

    /// The level above [`Machine::level_known`] that the log raised the cluster to. From there on the state of this
    /// machine is not that of the cluster, and must not be used.
    pub fn outgrown(&self) -> Option<u16> {
        self.outgrown
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The weight of the state, to which its limit applies.
    pub fn state_bytes(&self) -> u64 {
        self.state_bytes
    }

    /// The earliest deadline, by the machine's clock. The leader appends an entry at that instant if it has no other
    /// reason to. A deadline that has passed means that more was due than one entry ends.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.due.next()
    }

    /// A hash over everything applied and answered since the cluster began, or since the snapshot that this machine was
    /// read from. Members whose hashes differ have diverged.
    pub fn rolling_hash(&self) -> u128 {
        self.rolling_hash
    }
}
