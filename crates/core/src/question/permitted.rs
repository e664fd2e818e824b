//! Answers queries of a principal: with what it may read, and its own leases.
//!
//! `docs/internals/access.md` has the rules. While identity is not enabled, the answers are complete.

use alloc::vec::Vec;
use tenure_types::{LeaseId, Name, Refusal, Verb};

use super::explain::{Chain, Explained};
use super::list::SortedLocks;
use crate::machine::Machine;
use crate::request::{Hold, LeaseRef};
use crate::state::owner::OwnerId;
use crate::view::{DrainView, HolderView, KeyView, LeaseView, LockView, WaiterView};

/// What a principal is told about a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Explanation {
    /// All of it: the principal may read the lock.
    Whole(Explained),
    /// What concerns its own lease.
    Own {
        /// The lock.
        lock: Name,
        /// The grants of its lease.
        holders: Vec<HolderView>,
        /// The place of its lease, without the place ahead of it.
        own: Option<WaiterView>,
        /// For how much longer nothing is granted because the cluster was restored.
        quiet_ms: Option<u64>,
        /// The drained prefix that the lock is below.
        drained: Option<DrainView>,
    },
}

impl SortedLocks<'_> {
    /// The locks below `prefix` that the principal may read, in the order of names, starting after `after`.
    pub fn locks_seen_by(
        &self,
        principal: &str,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> Vec<LockView> {
        self.machine.below(principal, prefix, max, |prefix, max| self.locks(prefix, after, max))
    }
}

impl Machine {
    /// Whether identity is enabled and a live lease belongs to this principal.
    pub fn owns_lease(&self, principal: &str, lease: LeaseRef) -> bool {
        let owner = |slot| self.leases.at(slot).owner;
        self.access.is_enabled()
            && self.live_lease(lease).is_ok_and(|slot| self.owns(principal, owner(slot)))
    }

    /// Whether a live lease exists for this principal: it is its own, has no owner, or the principal may read every
    /// name.
    pub fn sees_lease(&self, principal: &str, lease: LeaseRef) -> bool {
        let owner = |slot| self.leases.at(slot).owner;
        self.live_lease(lease).is_ok_and(|slot| {
            self.uses(principal, owner(slot)) || self.may(principal, Verb::Read, "")
        })
    }

    /// Returns a live lease that the principal sees. Of a lease that is not its own it sees the names that it may
    /// read.
    pub fn lease_seen_by(&self, principal: &str, lease: LeaseRef) -> Option<LeaseView> {
        let slot = self.live_lease(lease).ok().filter(|_| self.sees_lease(principal, lease))?;
        let mut view = self.lease_view(slot);
        if !self.access.is_enabled() || self.owns(principal, self.leases.at(slot).owner) {
            return Some(view);
        }
        let reads = |name: &Name| self.may(principal, Verb::Read, name.as_str());
        view.holds.retain(|(lock, _)| reads(lock));
        view.waits.retain(|(_, lock)| reads(lock));
        view.keys.retain(reads);
        Some(view)
    }

    /// The ids of the principal's own live leases, in order, starting after `after`. Only a principal that may read
    /// every name may list other leases.
    pub fn own_leases(&self, principal: &str, after: Option<LeaseId>, max: usize) -> Vec<LeaseId> {
        let Some(owner) = self.owners.find(principal.as_bytes()) else { return Vec::new() };
        let live = self.owners.leases(owner).filter(|slot| self.is_live(*slot));
        let mut own: Vec<_> = live.map(|slot| self.leases.at(slot).id).collect();
        own.retain(|id| after.is_none_or(|after| *id > after));
        // A principal may have very many leases: only those of the page are sorted.
        if let Some(last) = max.checked_sub(1).filter(|last| *last < own.len()) {
            own.select_nth_unstable(last);
        }
        own.truncate(max);
        own.sort_unstable();
        own
    }

    /// The keys below `prefix` that the principal may read, in the order of names, starting after `after`.
    pub fn keys_seen_by(
        &self,
        principal: &str,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> Vec<KeyView> {
        self.below(principal, prefix, max, |prefix, max| self.keys(prefix, after, max))
    }

    /// Reads the prefixes that a principal may read, one after the other.
    fn below<T>(
        &self,
        principal: &str,
        prefix: &str,
        max: usize,
        read: impl Fn(&str, usize) -> Vec<T>,
    ) -> Vec<T> {
        let mut found = Vec::new();
        for prefix in self.access.prefixes(principal, Verb::Read, prefix) {
            if found.len() == max {
                break;
            }
            found.append(&mut read(prefix, max - found.len()));
        }
        found
    }

    /// Removes the names of locks that the principal may not read from places in the queue of one that it may read.
    pub fn redact_waiters(&self, principal: &str, waiters: &mut [WaiterView]) {
        if self.access.is_enabled() {
            for waiter in waiters {
                waiter.locks.retain(|lock| self.may(principal, Verb::Read, lock.as_str()));
            }
        }
    }

    /// Explains a lock to a principal. `None` if it has neither holder nor queue.
    ///
    /// Without permission to read the lock, the answer has only what concerns the given lease, which must be the
    /// principal's own and hold the lock or wait for it; else `read` is missing.
    pub fn explain_to(
        &self,
        principal: &str,
        lease: Option<LeaseRef>,
        lock: &str,
        max: usize,
    ) -> Result<Option<Explanation>, Verb> {
        let asker = lease.and_then(|lease| self.live_lease(lease).ok());
        let asker = asker.filter(|slot| self.uses(principal, self.leases.at(*slot).owner));
        let whole = self.may(principal, Verb::Read, lock);
        let id = asker.map(|slot| self.leases.at(slot).id);
        if !whole && id.is_none() {
            return Err(Verb::Read);
        }
        let explained = self.explain(id.map(LeaseRef::Id), lock, if whole { max } else { 0 });
        if whole {
            return Ok(explained.map(|it| Explanation::Whole(self.redacted(principal, it))));
        }
        let own_holds =
            self.lock_slot(lock).zip(id).map(|(lock, id)| self.holders_of_lease(lock, id));
        let holders = own_holds.unwrap_or_default();
        let Explained { lock, own, quiet_ms, drained, .. } = explained.ok_or(Verb::Read)?;
        let own = own.map(|own| WaiterView { behind: None, ..own });
        if holders.is_empty() && own.is_none() {
            return Err(Verb::Read);
        }
        Ok(Some(Explanation::Own { lock: lock.lock, holders, own, quiet_ms, drained }))
    }

    /// Removes what an explanation tells of locks that the principal may not read.
    fn redacted(&self, principal: &str, mut explained: Explained) -> Explained {
        if !self.access.is_enabled() {
            return explained;
        }
        self.redact_waiters(principal, &mut explained.ahead);
        let Chain { steps, goes_on } = &mut explained.chain;
        let hidden = |step: &super::ChainStep| !self.may(principal, Verb::Read, step.lock.as_str());
        // What comes after a hidden step would tell what its holder waits for.
        if let Some(first) = steps.iter().position(hidden) {
            steps.truncate(first);
            *goes_on = true;
        }
        explained
    }

    /// Returns the grant in force with this lease and token, or the refusal that a command of the principal on it
    /// would get.
    pub fn holding_of(&self, principal: &str, hold: &Hold<'_>) -> Result<HolderView, Refusal> {
        self.check_known_name(hold.lock)?;
        let owner = self.leases.at(self.live_lease(hold.lease)?).owner;
        if self.uses(principal, owner) { self.holding(hold) } else { Err(Refusal::LeaseNotFound) }
    }

    /// Whether a principal may use what has this owner. What has no owner is from before there were principals.
    fn uses(&self, principal: &str, owner: Option<OwnerId>) -> bool {
        !self.access.is_enabled() || owner.is_none() || self.owns(principal, owner)
    }

    fn owns(&self, principal: &str, owner: Option<OwnerId>) -> bool {
        owner.is_some() && owner == self.owners.find(principal.as_bytes())
    }
}
