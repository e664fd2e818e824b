//! Turns a backup into the first state of a new incarnation of the cluster.

use alloc::vec::Vec;
use tenure_types::{Epoch, Limit, Term};

use crate::machine::Machine;
use crate::state::due::{CLOCK_MAX, DueKind, DueSet};
use crate::state::history::History;
use crate::state::list::LinkedList;
use crate::state::record::{GrantPhase, GrantState, Lock};
use crate::state::slab::{Slab, SlabIndex};

/// How long the clients of the old incarnation are known to have stopped, as stated by the operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoppedFor {
    /// For this many milliseconds. Zero if nothing is known.
    ForMs(u64),
    /// They will never act on the locks that they held. The new incarnation grants locks at once.
    ForGood,
}

impl Machine {
    /// Turns the state of a backup into the first state of a new incarnation. Returns `false` and changes nothing
    /// unless `epoch` is above the present one.
    ///
    /// Holders of the old incarnation may still be at work. Their tokens are below every new one and their leases are
    /// gone. The machine grants nothing until the longest lease that they can have would have ended and the longest
    /// lock-delay after it has passed.
    pub fn restore(&mut self, epoch: Epoch, stopped: StoppedFor) -> bool {
        if epoch <= self.epoch {
            return false;
        }
        let quiet_until_ms = match stopped {
            StoppedFor::ForGood => None,
            StoppedFor::ForMs(ms) => {
                // The next leader counts from zero, so its rounding can only make this period longer.
                let left_ms = self.unsure_ms().saturating_sub(ms);
                Some(self.clock_ms.saturating_add(left_ms).min(CLOCK_MAX))
            }
        };
        self.end_everything_leased();
        if !mutant!("restore_keeps_epoch") {
            self.epoch = epoch;
        }
        self.counter = 0;
        self.revision = epoch.revision(self.revision);
        self.history = History::new(self.revision.next());
        self.clock_term = Term(0);
        self.base_ms = self.clock_ms;
        self.quiet_until_ms = quiet_until_ms.filter(|&until_ms| until_ms > self.clock_ms);
        if let Some(until_ms) = self.quiet_until_ms {
            self.due.insert(until_ms, DueKind::Quiet, 0, None);
        }
        true
    }

    /// How long a lock of the old incarnation can keep other clients out, by the clock of the backup.
    ///
    /// A lease may have been granted after the backup, so the leases in the backup are not enough: the limits bound
    /// what was granted while they were in force. The backup itself may hold leases from a time of higher limits, and
    /// the quiet period of an earlier restore may not be over.
    fn unsure_ms(&self) -> u64 {
        let ttl_ms = self.leases.iter().map(|(_, lease)| u64::from(lease.ttl_ms)).max();
        let delay_ms = self.grants.iter().map(|(_, grant)| grant.options.lock_delay_ms()).max();
        let over_ms = self.grants.iter().filter_map(|(_, grant)| match &grant.state {
            GrantState::Over(over) if over.phase == GrantPhase::Cooling => {
                let delay_ms = self.promised_ms(grant.options.lock_delay_ms());
                Some(over.until_ms.saturating_add(delay_ms))
            }
            // No client works under a grant that rests. A min hold does not outlive the incarnation.
            GrantState::Over(over) if over.phase == GrantPhase::Resting => None,
            GrantState::Over(over) => Some(over.until_ms),
            GrantState::Held(_) => None,
        });
        let left_ms = |until_ms: u64| until_ms.saturating_sub(self.clock_ms);
        let known_ms = over_ms.chain(self.quiet_until_ms).map(left_ms).max().unwrap_or(0);
        if mutant!("quiet_from_backup_leases_only") {
            return known_ms.max(ttl_ms.unwrap_or(0));
        }
        let longest_ms = |limit, known_ms: Option<u64>| {
            self.promised_ms(self.limits.get(limit).max(known_ms.unwrap_or(0)))
        };
        let unknown_ms = longest_ms(Limit::TtlMaxMs, ttl_ms)
            .saturating_add(longest_ms(Limit::LockDelayMs, delay_ms));
        known_ms.max(unknown_ms)
    }

    /// Removes leases, places, grants, leased keys and numbered requests, without handing locks over.
    fn end_everything_leased(&mut self) {
        let leased: Vec<SlabIndex> =
            self.keys.iter().filter(|(_, key)| key.lease.is_some()).map(|(slot, _)| slot).collect();
        for slot in leased {
            let key = self.keys.remove(slot);
            self.keys_by_name.remove(&key.name);
        }
        // A size is a setting of an operator, like a drained prefix.
        let sized: Vec<Lock> = self
            .locks
            .iter()
            .filter(|(_, lock)| lock.sized)
            .map(|(_, lock)| lock.clone())
            .collect();
        self.leases = Slab::default();
        self.locks = Slab::default();
        self.grants = Slab::default();
        self.places = Slab::default();
        self.waits = Slab::default();
        self.seq_requests = Slab::default();
        self.leases_by_id.clear();
        self.names.clear();
        self.tokens.clear();
        self.due = DueSet::default();
        self.reopening = None;
        self.groups.clear();
        self.ranks.clear();
        self.sized.clear();
        self.pool_waiters.clear();
        for lock in sized {
            let (grants, queue) = (LinkedList::default(), LinkedList::default());
            let slot = self.locks.insert(Lock { grants, queue, ..lock });
            self.names.insert(&self.locks, slot);
            self.sized.insert(self.locks.at(slot).name.clone(), slot);
        }
        self.drop_unused_owners();
        let locks: u64 = self.locks.iter().map(|(_, lock)| lock.weight()).sum();
        let keys: u64 = self.keys.iter().map(|(_, key)| key.weight()).sum();
        self.state_bytes = locks + keys + self.access.bytes + self.drains.weight();
    }
}
