//! Counts what each principal owns, and checks its quotas.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use tenure_types::{Name, Quota, Refusal};

use crate::access::{KnownPrincipal, acting};
use crate::machine::Machine;
use crate::request::{LEVEL_ACCESS, LEVEL_RECORDS, LEVEL_REPAIRED_SHARES};
use crate::state::due::DueKind;
use crate::state::owner::{EndedUsage, OwnerId, Owners, Usage};
use crate::state::record::{Grant, GrantState, IN_LEASE, Key, Lease, Place};
use crate::state::slab::SlabIndex;

/// The principal that pays for a command.
#[derive(Clone, Copy)]
pub(super) struct Payer<'a> {
    name: &'a Name,
    /// What it uses so far.
    used: Usage,
    /// What the access rules say of it, if that is known without looking.
    known: Option<&'a KnownPrincipal>,
}

impl Machine {
    /// Remembers the principal of the command that is about to be executed.
    pub(super) fn set_caller(&mut self, principal: &str) {
        let principal = self.deciding(principal);
        let named = self.level >= LEVEL_ACCESS
            && !principal.is_empty()
            && principal != crate::access::MEMBER;
        if named {
            self.name_caller(principal);
        } else if self.now.caller.is_some() {
            (self.now.caller, self.now.known, self.now.caller_owner) = (None, None, None);
        }
    }

    #[inline(never)]
    fn name_caller(&mut self, principal: &str) {
        // Most commands come from the same caller as the one before.
        let is_same = |caller: &Name| caller.as_bytes() == principal.as_bytes();
        if !self.now.caller.as_ref().is_some_and(is_same) {
            self.now.caller = Name::new(principal).ok();
            self.now.known = None;
        } else if self.now.known.is_none() {
            // Callers that take turns would make a copy for every command.
            self.now.known = KnownPrincipal::of(&self.access, principal);
        }
        let caller = self.now.caller.as_ref();
        self.now.caller_owner = caller.and_then(|caller| self.owners.find(caller.as_bytes()));
    }

    /// The principal that decides what a command may do: that of the member if a member acts for a caller.
    pub(super) fn deciding<'a>(&self, principal: &'a str) -> &'a str {
        if self.level >= LEVEL_RECORDS { acting(principal).0 } else { principal }
    }

    /// The caller whose name an administrative event records; empty if it has none, or at a level without such names.
    pub(super) fn recorded<'a>(&self, principal: &'a str) -> &'a str {
        let caller = if self.level >= LEVEL_RECORDS { acting(principal).1 } else { "" };
        if Name::check(caller).is_ok() { caller } else { "" }
    }

    /// The owner that the principal of the present command is, so that it can own something.
    pub(super) fn make_owner(&mut self) -> Option<OwnerId> {
        let caller = self.now.caller.as_ref()?;
        self.now.caller_owner = Some(self.owners.make(caller));
        self.now.caller_owner
    }

    /// Whether what has this owner may be used by the principal of the present command. What has no owner is from
    /// before there were principals.
    pub(super) fn is_own(&self, owner: Option<OwnerId>) -> bool {
        !self.access.is_enabled() || owner.is_none() || owner == self.now.caller_owner
    }

    /// Whether this owner is the principal of the present command.
    pub(super) fn is_callers(&self, owner: Option<OwnerId>) -> bool {
        owner.is_some() && owner == self.now.caller_owner
    }

    /// The principal of the present command as a payer.
    pub(super) fn caller_pays(&self) -> Option<Payer<'_>> {
        let used = self.now.caller_owner.and_then(|id| self.owners.get(id)).map(|owner| owner.used);
        let known = self.now.known.as_ref();
        self.now.caller.as_ref().map(|name| Payer { name, used: used.unwrap_or_default(), known })
    }

    /// An owner as a payer.
    pub(super) fn owner_pays(&self, owner: Option<OwnerId>) -> Option<Payer<'_>> {
        let known = self.now.known.as_ref().filter(|_| self.is_callers(owner));
        let owner = self.owners.get(owner?)?;
        Some(Payer { name: &owner.name, used: owner.used, known })
    }

    /// Refuses what would take a principal beyond a quota.
    #[inline]
    pub(super) fn check_quota(
        &self,
        payer: Option<Payer<'_>>,
        quota: Quota,
        more: u64,
    ) -> Result<(), Refusal> {
        match payer {
            // A quota may have been lowered below what is in use: what needs no more is still allowed.
            Some(payer) if more > 0 => self.check_quota_of(payer, quota, more),
            _ => Ok(()),
        }
    }

    #[inline(never)]
    fn check_quota_of(
        &self,
        Payer { name, used, known }: Payer<'_>,
        quota: Quota,
        more: u64,
    ) -> Result<(), Refusal> {
        let found = known.map_or_else(|| self.access.quota(name, quota), |it| it.quota(quota));
        let Some((bound, set_by)) = found else { return Ok(()) };
        let asked = used.of(quota).saturating_add(more);
        let counted = if mutant!("quota_checked_after_the_fact") { used.of(quota) } else { asked };
        if counted > bound {
            let setter = self.access.quota_setter(name, quota, set_by).cloned().map(Box::new);
            return Err(Refusal::Quota { quota, set_by, bound, asked, setter });
        }
        Ok(())
    }

    /// Counts a lease that has ended, and what remains to be done for its owner.
    pub(super) fn disown_lease(&mut self, lease: &Lease, slot: SlabIndex) {
        let Some(owner) = lease.owner else { return };
        let bytes = lease.metadata().len() as u64;
        if let Some(since_ms) = self.owners.remove_lease(owner, lease.created, slot, bytes) {
            self.due.remove(since_ms, DueKind::Revoked, u64::from(owner.number()));
        }
    }

    /// Counts every record for its owner, from nothing. Returns `None` if a record names an owner that does not exist,
    /// or an owner has nothing.
    pub(crate) fn count_owners(&self) -> Option<Owners> {
        let mut owners = Owners::default();
        let mut complete = true;
        for (id, owner) in self.owners.iter() {
            complete &= owners.insert(id, owner.name.clone(), owner.revoked_ms);
        }
        // Leases and keys first, or an owner would be removed before all its records are counted.
        for (slot, lease) in self.leases.iter() {
            if let Some(owner) = lease.owner {
                complete &= owners.get(owner).is_some();
                owners.add_lease(owner, lease.created, slot, lease.metadata().len() as u64);
            }
        }
        for (_, key) in self.keys.iter() {
            complete &= key.owner.is_none_or(|owner| owners.get(owner).is_some());
            owners.count(key.owner, |used| {
                used.keys += 1;
                used.bytes += key.owned_bytes();
            });
        }
        for (_, grant) in self.grants.iter() {
            match &grant.state {
                GrantState::Held(_) => {}
                GrantState::Over(over) => {
                    complete &= over.owner.is_none_or(|owner| owners.get(owner).is_some());
                    let kept = self.kept_by_ended(grant);
                    owners.count(over.owner, |used| used.add_ended(kept));
                }
            }
        }
        // Only the leases of an owner count against its quotas, and most leases have none.
        for (_, lease) in self.leases.iter().filter(|(_, lease)| lease.owner.is_some()) {
            let grants = lease.grants.iter::<IN_LEASE, _>(&self.grants);
            let metadata = grants.map(|(_, grant)| grant.options.metadata().len() as u64);
            let (locks, bytes) = metadata.fold((0, 0), |(n, sum), bytes| (n + 1, sum + bytes));
            let requests = lease.requests.iter::<IN_LEASE, _>(&self.seq_requests);
            let requests: u64 = match self.pays_for_numbered() {
                true => requests.map(|(_, request)| request.weight()).sum(),
                false => 0,
            };
            owners.count(lease.owner, |used| {
                used.locks += locks + u64::from(lease.waits);
                used.places += u64::from(lease.places.len);
                used.bytes += bytes + requests;
            });
        }
        for (slot, place) in self.places.iter() {
            let owner = self.leases.at(place.lease).owner;
            if owner.is_some() {
                let locks = self.slots_awaited(slot);
                owners.count(owner, |used| used.bytes += place.owned_bytes(locks));
            }
        }
        let unused = owners.iter().any(|(_, owner)| owner.used == Usage::default());
        (complete && !unused).then_some(owners)
    }

    /// What a grant that is over counts against the quotas of its owner. With a long min hold, a grant that was held
    /// for a moment keeps other leases out for as long as one that is held.
    pub(super) fn kept_by_ended(&self, grant: &Grant) -> EndedUsage {
        if self.level < LEVEL_REPAIRED_SHARES || mutant!("resting_grant_costs_nothing") {
            return EndedUsage::default();
        }
        EndedUsage { locks: 1, bytes: grant.options.metadata().len() as u64 }
    }

    /// Counts what every principal uses anew, at a level that counts otherwise than the one before.
    pub(super) fn recount_owners(&mut self) {
        self.owners = self.count_owners().expect("A4: every record has an owner that exists");
    }

    /// Removes owners that have nothing, after their records were removed without counting.
    pub(crate) fn drop_unused_owners(&mut self) {
        let keys: BTreeSet<OwnerId> = self.keys.iter().filter_map(|(_, key)| key.owner).collect();
        let mut kept = Owners::default();
        for (id, owner) in self.owners.iter().filter(|(id, _)| keys.contains(id)) {
            kept.insert(id, owner.name.clone(), owner.revoked_ms);
        }
        self.owners = kept;
        self.owners = self.count_owners().expect("every owner that is kept has a key");
    }
}

impl Key {
    /// What counts against the quota of its owner.
    pub(crate) fn owned_bytes(&self) -> u64 {
        (self.name.as_bytes().len() + self.value.len()) as u64
    }
}

impl Place {
    /// What counts against the quota of its owner: as much as its grants will.
    pub(crate) fn owned_bytes(&self, locks: u64) -> u64 {
        self.options.metadata().len() as u64 * locks
    }
}
