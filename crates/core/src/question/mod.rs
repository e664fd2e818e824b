//! What can the machine be asked without changing it?

mod events;
mod explain;
mod list;
mod records;
mod stats;

pub use events::{Compacted, Events, Filter};
pub use explain::{Chain, ChainStep, Explained, Freed};
pub use records::{Most, Record, Recorded, Records};
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

    /// Prepares lists: puts up to `max` names of locks in order; `true` when all are.
    ///
    /// Lists do this themselves. A member that calls it while it has nothing else to do spares
    /// whoever lists next the wait.
    pub fn settle_lists(&self, max: usize) -> bool {
        self.names.settle(&self.locks, max)
    }

    /// Chooses how names of locks are hashed, so that whoever chooses names cannot make finding them
    /// slow. No answer and no byte of the state depends on it; a member draws it at random.
    pub fn reseed_names(&mut self, seed: u64) {
        self.names.reseed(&self.locks, seed);
    }

    /// The newest revision.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The oldest revision whose events can be asked for.
    pub fn floor(&self) -> Revision {
        self.history.floor()
    }

    /// How often the cluster was restored.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The rule book in force.
    pub fn level(&self) -> u16 {
        self.level
    }

    /// How long nothing is granted after a restore; nothing if that is over, or was waived.
    pub fn quiet_ms(&self) -> Option<u64> {
        self.quiet_until_ms.map(|until_ms| until_ms.saturating_sub(self.clock_ms))
    }

    /// Whether this is a new cluster: it is of the first epoch and never granted a lease. Its founders
    /// may raise it to the newest level that all of them know; any other is raised by command.
    pub fn is_new(&self) -> bool {
        self.epoch == Epoch::default() && self.leases_granted == 0
    }

    /// The newest level that this machine's build knows.
    pub fn level_known(&self) -> u16 {
        self.level_known
    }

    /// Says that the build knows another level than [`LEVEL_MAX`](crate::LEVEL_MAX), as an older or
    /// a newer one would.
    pub fn know_level(&mut self, level: u16) {
        self.level_known = level;
    }

    /// The level above [`Machine::level_known`] that the log has raised the cluster to: from there on
    /// the state here is not that of the cluster, and must not be used.
    pub fn outgrown(&self) -> Option<u16> {
        self.outgrown
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The weight of the state that its limit is compared with.
    pub fn state_bytes(&self) -> u64 {
        self.state_bytes
    }

    /// When the next thing ends, by the machine's clock. A leader appends an entry at that moment
    /// if nothing else does; a moment that has passed means that more is due than one entry ends.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.due.next()
    }

    /// Hash over everything applied and answered since the cluster began, or since the snapshot
    /// that it was read from was made: members that differ have diverged.
    pub fn rolling_hash(&self) -> u128 {
        self.rolling_hash
    }
}
