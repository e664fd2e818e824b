//! What becomes of a backup when a new incarnation of the cluster starts from it?

use alloc::vec::Vec;
use tenure_types::{Epoch, Term};

use crate::machine::Machine;
use crate::state::due::{DueSet, Kind};
use crate::state::history::History;
use crate::state::record::GrantState;
use crate::state::slab::{Slab, Slot};

impl Machine {
    /// Turns the state of a backup into the first state of a new incarnation; `false`, and no
    /// change, unless the epoch is above the present one.
    ///
    /// Holders of the old incarnation may still be at work: their tokens are below every new one,
    /// their leases are gone, and unless the caller waives it nothing is granted before the longest
    /// of them would have ended.
    pub fn restore(&mut self, epoch: Epoch, waive_quiet: bool) -> bool {
        if epoch <= self.epoch {
            return false;
        }
        let quiet_until_ms = if waive_quiet { None } else { self.last_work_ms() };
        self.end_everything_leased();
        if !mutant!("restore_keeps_epoch") {
            self.epoch = epoch;
        }
        self.counter = 0;
        self.revision = epoch.revision(self.revision);
        self.history = History::new(self.revision.next());
        self.clock_term = Term(0);
        self.base_ms = self.clock_ms;
        self.quiet_until_ms = quiet_until_ms;
        if let Some(until_ms) = self.quiet_until_ms {
            self.due.insert(until_ms, Kind::Quiet, 0, None);
        }
        true
    }

    /// Until when a holder of the old incarnation can be at work: a lease may have been renewed
    /// after the backup, a lock taken away may still cool, and an earlier restore may not be over.
    fn last_work_ms(&self) -> Option<u64> {
        let leases = self.leases.iter().map(|(_, lease)| self.deadline(u64::from(lease.ttl_ms)));
        let grants = self.grants.iter().filter_map(|(_, grant)| match &grant.state {
            GrantState::Over(over) => Some(over.until_ms),
            GrantState::Held(_) => None,
        });
        leases.chain(grants).chain(self.quiet_until_ms).filter(|&until| until > self.clock_ms).max()
    }

    /// Leases, places, grants, leased keys and numbered requests go, without hand-over.
    fn end_everything_leased(&mut self) {
        let leased: Vec<Slot> =
            self.keys.iter().filter(|(_, key)| key.lease.is_some()).map(|(slot, _)| slot).collect();
        for slot in leased {
            let key = self.keys.remove(slot);
            self.keys_by_name.remove(&key.name);
        }
        self.leases = Slab::default();
        self.locks = Slab::default();
        self.grants = Slab::default();
        self.places = Slab::default();
        self.waits = Slab::default();
        self.seq_requests = Slab::default();
        self.leases_by_id.clear();
        self.names.clear();
        self.due = DueSet::default();
        self.state_bytes = self.keys.iter().map(|(_, key)| key.weight()).sum();
    }
}
