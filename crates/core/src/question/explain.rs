//! Explains a lock to a waiter: its holders, the places ahead, the chain of waits and when it can be free.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use tenure_types::{LeaseId, Name};

use crate::machine::Machine;
use crate::request::LeaseRef;
use crate::state::record::{GrantState, IN_LEASE, IN_LOCK, IN_QUEUE};
use crate::state::slab::SlabIndex;
use crate::view::{DrainView, LockView, WaiterView};

/// The most steps of a chain of waits in an answer; a longer chain is marked as continuing.
const CHAIN_MAX: usize = 32;

/// Everything a waiter can learn about a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explained {
    /// The lock and its holders.
    pub lock: LockView,
    /// The first few places ahead of the asking lease, or of the whole queue if the lease does not wait.
    pub ahead: Vec<WaiterView>,
    /// The place of the asking lease.
    pub own: Option<WaiterView>,
    /// Which lease waits for which, starting from the lock's first holder.
    pub chain: Chain,
    /// When the lock can be free of its holders. While it is drained, it is not granted even then.
    pub freed: Freed,
    /// For how much longer nothing is granted because the cluster was restored, by the machine's clock; `None` outside
    /// such a quiet period.
    pub quiet_ms: Option<u64>,
    /// The drained prefix that the lock is below.
    pub drained: Option<DrainView>,
    /// For how long the machine has served queues since a prefix was opened or the quiet period ended, if this lock can
    /// be granted and its turn is still to come.
    pub reopening_ms: Option<u64>,
}

/// Which lease waits for which: each lease holds the lock of its step and waits for the lock of the next step.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chain {
    /// The steps.
    pub steps: Vec<ChainStep>,
    /// Whether the chain continues beyond the steps shown.
    pub goes_on: bool,
}

/// One step of a chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainStep {
    /// The lock.
    pub lock: Name,
    /// The lease that holds the lock.
    pub holder: LeaseId,
    /// The client of that lease.
    pub client: Name,
}

/// When a lock can be free for the next waiter without any client's help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freed {
    /// It is free.
    Now,
    /// After this many milliseconds by the machine's clock if its holders stop renewing; earlier if they release.
    IfSilentMs(u64),
    /// After this many milliseconds by the machine's clock at the latest, whatever its holders do.
    AtLatestMs(u64),
}

impl Machine {
    /// Explains a lock, optionally from the point of view of a lease. `None` if the lock has neither holder nor queue.
    ///
    /// At most `max` places are shown, counted from the head of the queue.
    pub fn explain(&self, lease: Option<LeaseRef>, lock: &str, max: usize) -> Option<Explained> {
        let slot = self.lock_slot(lock)?;
        let asker = lease.and_then(|lease| self.live_lease(lease).ok());
        let mut ahead = Vec::new();
        let mut own = None;
        let mut behind = None;
        let queue = self.locks.at(slot).queue;
        for (at, (wait, record)) in queue.iter::<IN_QUEUE, _>(&self.waits).enumerate() {
            let place = self.places.at(record.place);
            if Some(place.lease) == asker {
                own = Some(self.waiter_view(wait, at as u64, behind));
                break;
            }
            if ahead.len() < max {
                ahead.push(self.waiter_view(wait, at as u64, behind));
            } else if asker.is_none() {
                break;
            }
            behind = Some(place.number);
        }
        let (lock, drained) = (self.lock(lock)?, self.drained(lock));
        let (chain, freed, quiet_ms) = (self.chain(slot), self.freed(slot), self.quiet_ms());
        let reopening_ms = self.reopening_ms(slot);
        Some(Explained { lock, ahead, own, chain, freed, quiet_ms, drained, reopening_ms })
    }

    /// For how long the queues have been served again, if the first place of this one can be granted and is still to be
    /// served.
    fn reopening_ms(&self, lock: SlabIndex) -> Option<u64> {
        let reopening = self.reopening()?;
        let place = self.waits.at(self.locks.at(lock).queue.first?).place;
        let waits = self.is_to_be_served(place) && self.could_be_granted(place);
        waits.then_some(reopening.for_ms)
    }

    /// Follows the first holder of each lock to the lock that it waits for.
    fn chain(&self, lock: SlabIndex) -> Chain {
        let mut chain = Chain::default();
        let mut seen = BTreeSet::new();
        let mut next = Some(lock);
        let mut last = None;
        while let Some(lock) = next {
            let record = self.locks.at(lock);
            let holder = record.grants.iter::<IN_LOCK, _>(&self.grants).find_map(|(_, grant)| {
                match grant.state {
                    // A lease that waits for an upgrade waits for the other holders.
                    GrantState::Held(lease) => Some(lease).filter(|it| last != Some(*it)),
                    GrantState::Over(_) => None,
                }
            });
            let Some(holder) = holder else { break };
            if chain.steps.len() == CHAIN_MAX || !seen.insert(holder) {
                chain.goes_on = true;
                break;
            }
            let lease = self.leases.at(holder);
            chain.steps.push(ChainStep {
                lock: record.name.clone(),
                holder: lease.id,
                client: lease.client.clone(),
            });
            last = Some(holder);
            next = self.awaited_lock(holder);
        }
        chain
    }

    /// The lock that keeps a lease's oldest place waiting.
    fn awaited_lock(&self, lease: SlabIndex) -> Option<SlabIndex> {
        let places = self.leases.at(lease).places;
        let (place, _) = places.iter::<IN_LEASE, _>(&self.places).next()?;
        let blocks = |wait: &crate::state::record::WaitRecord, slot: SlabIndex| {
            self.locks.at(wait.lock).queue.first != Some(slot) || !self.admits_place(wait)
        };
        let mut waits = self.waits_of(place);
        waits.find(|(slot, wait)| blocks(wait, *slot)).map(|(_, wait)| wait.lock)
    }

    /// When the head of the queue could have the lock: when its last holder is gone or, for a semaphore, when as many
    /// slots are free as it requests.
    fn freed(&self, lock: SlabIndex) -> Freed {
        let record = self.locks.at(lock);
        let head = record.queue.first.map(|first| self.places.at(self.waits.at(first).place));
        // An upgrade does not wait for the hold of its own lease.
        let own = head.filter(|place| place.upgrade).map(|place| place.lease);
        let mut ends = self.ends_of_grants(lock, own);
        let quiet_ms = self.quiet_ms();
        let take = record.queue.first.map_or(1, |first| self.waits.at(first).mode.grants());
        // How many of the grants must end.
        let over = match record.slots {
            Some(slots) => (ends.len() + take as usize).saturating_sub(slots.get() as usize),
            None => ends.len(),
        };
        ends.sort_unstable();
        let last = over.checked_sub(1).and_then(|at| ends.get(at));
        let Some(&(left_ms, _)) = last else {
            return quiet_ms.map_or(Freed::Now, Freed::AtLatestMs);
        };
        let left_ms = left_ms.max(quiet_ms.unwrap_or(0));
        let certain = ends.iter().all(|(_, certain)| *certain);
        if certain { Freed::AtLatestMs(left_ms) } else { Freed::IfSilentMs(left_ms) }
    }

    /// In how many milliseconds each grant of a lock is gone, and whether that holds whatever the holder does. Leaves
    /// out what this lease holds.
    fn ends_of_grants(&self, lock: SlabIndex, except: Option<SlabIndex>) -> Vec<(u64, bool)> {
        let mut ends = Vec::new();
        for (slot, grant) in self.locks.at(lock).grants.iter::<IN_LOCK, _>(&self.grants) {
            if except.is_some() && self.lease_of(slot) == except {
                continue;
            }
            let delay_ms = self.promised_ms(grant.options.lock_delay_ms());
            let mut certain = true;
            let until_ms = match &grant.state {
                GrantState::Over(over) => {
                    let cools = over.phase == crate::state::record::GrantPhase::Cooling;
                    over.until_ms.saturating_add(if cools { delay_ms } else { 0 })
                }
                GrantState::Held(lease) => {
                    let lease = self.leases.at(*lease);
                    let silent_ms = lease.deadline_ms;
                    // The grant is taken away one ttl before its longest hold is over. It then cools for as long as a
                    // lease that was renewed just before lives.
                    let ttl_ms = u64::from(lease.ttl_ms);
                    let cooling_ms = self.promised_ms(ttl_ms);
                    let longest_ms = self
                        .max_hold_deadline(grant)
                        .map(|taken_ms| taken_ms.saturating_add(cooling_ms));
                    certain = longest_ms.is_some();
                    longest_ms.unwrap_or(silent_ms).saturating_add(delay_ms)
                }
            };
            let until_ms = until_ms.max(self.min_hold_deadline(grant));
            ends.push((until_ms.saturating_sub(self.clock_ms), certain));
        }
        ends
    }
}
