//! Executes `GrantLease`, `Renew` and `Revoke`, and ends a lease with everything bound to it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use tenure_types::{Handle, Limit, Quota, RENEW_MAX, Refusal, Revision, Token, Verb};

use super::{TakeAwayDetails, name};
use crate::codec::{EventRef, SubjectRef};
use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::{Answer, LeaseGrant, Notice, Renewal};
use crate::request::{LEVEL_RECORDS, LeaseRef, NewLease, Revoker, Urgency};
use crate::state::due::DueKind;
use crate::state::list::LinkedList;
use crate::state::record::{IN_LEASE, Lease};
use crate::state::slab::SlabIndex;

/// The weight of a lease in `state_bytes`, without its client name and metadata.
pub(crate) const LEASE_BYTES: u64 = 128;

/// Why a lease ends, which decides how its grants end.
#[derive(Clone, Copy, Debug)]
pub(super) enum LeaseEnd<'a> {
    /// Its client has stopped and revoked it.
    Asked,
    /// It was not renewed in time.
    Expired,
    /// Another caller revoked it.
    TakenAway { said: TakeAwayDetails<'a>, urgency: Urgency },
}

/// The part of a lease by which an observer can check that it did not end early.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseTimes {
    pub(super) ttl_ms: u64,
    /// The machine's clock at the last renewal, or at the grant.
    pub(super) renewed_ms: u64,
}

impl LeaseEnd<'_> {
    /// The cause in the event of the lease itself.
    pub(super) fn cause(self) -> Cause {
        match self {
            LeaseEnd::Expired => Cause::Expired,
            LeaseEnd::Asked | LeaseEnd::TakenAway { .. } => Cause::Revoked,
        }
    }

    /// The cause in the events of its places.
    fn place_cause(self, level: u16) -> Cause {
        match self {
            // The client gave them up itself. Only what another caller took away reads as revoked.
            LeaseEnd::Asked if level >= LEVEL_RECORDS => Cause::Left,
            _ => self.cause(),
        }
    }
}

impl Machine {
    pub(super) fn grant_lease(&mut self, new: &NewLease<'_>) -> Result<Answer, Refusal> {
        let slot = match self.check_new_lease(new)? {
            Some(slot) => slot,
            None => self.create_lease(new),
        };
        Ok(Answer::LeaseGranted(self.lease_grant(slot)))
    }

    /// Checks whether a lease may be granted. Returns the live lease with the same id, client, ttl and metadata, if
    /// there is one.
    #[inline(never)]
    pub(super) fn check_new_lease(&self, new: &NewLease<'_>) -> Result<Option<SlabIndex>, Refusal> {
        self.check_name(new.client)?;
        self.check_limit(Limit::MetadataBytes, new.metadata.len() as u64)?;
        let ttl_min = self.limits.get(Limit::TtlMinMs);
        if new.ttl_ms < ttl_min {
            let (limit, asked) = (Limit::TtlMinMs, new.ttl_ms);
            return Err(Refusal::Limit { limit, bound: ttl_min, asked });
        }
        self.check_limit(Limit::TtlMaxMs, new.ttl_ms)?;
        if let Some(&slot) = self.leases_by_id.get(&new.id) {
            let lease = self.leases.at(slot);
            let same = self.is_own(lease.owner)
                && lease.client.as_bytes() == new.client.as_bytes()
                && u64::from(lease.ttl_ms) == new.ttl_ms
                && lease.metadata() == new.metadata;
            // A lease that is due is no longer live, but its id stays in use until `end_due` removes it.
            return if same && self.is_live(slot) {
                Ok(Some(slot))
            } else {
                Err(Refusal::LeaseExists { lease: new.id })
            };
        }
        self.check_limit(Limit::Leases, self.leases.len() as u64 + 1)?;
        self.check_quota(self.caller_pays(), Quota::Leases, 1)?;
        self.check_quota(self.caller_pays(), Quota::Bytes, new.metadata.len() as u64)?;
        self.check_space()?;
        Ok(None)
    }

    #[inline(never)]
    pub(super) fn create_lease(&mut self, new: &NewLease<'_>) -> SlabIndex {
        let slot = self.add_lease(new);
        self.emit_lease_granted(slot);
        slot
    }

    /// Adds a lease without an event: the request that brings it may still be refused.
    #[inline(never)]
    pub(super) fn add_lease(&mut self, new: &NewLease<'_>) -> SlabIndex {
        let created = self.begin_revision();
        self.leases_granted += 1;
        let deadline_ms = self.deadline(new.ttl_ms);
        let owner = self.make_owner();
        let metadata = (!new.metadata.is_empty()).then(|| Box::new(Box::from(new.metadata)));
        let slot = self.leases.insert(Lease {
            id: new.id,
            created,
            generation: self.epoch.generation(self.leases_granted),
            ttl_ms: u32::try_from(new.ttl_ms).expect("a ttl is within its limit's range"),
            deadline_ms,
            client: name(new.client),
            owner,
            metadata,
            changed: Revision(0),
            grants: LinkedList::default(),
            places: LinkedList::default(),
            waits: 0,
            keys: LinkedList::default(),
            done: 0,
            requests: LinkedList::default(),
        });
        self.leases_by_id.insert(new.id, slot);
        if let Some(owner) = owner {
            self.owners.add_lease(owner, created, slot, new.metadata.len() as u64);
        }
        self.due.insert(deadline_ms, DueKind::Lease, new.id.get(), Some(slot));
        self.state_bytes += LEASE_BYTES + (new.client.len() + new.metadata.len()) as u64;
        slot
    }

    pub(super) fn emit_lease_granted(&mut self, slot: SlabIndex) {
        let revision = self.begin_revision();
        let lease = self.leases.at(slot);
        self.history.emit(
            revision,
            &EventRef {
                lease: Some(lease.id),
                client: Some(lease.client.as_bytes()),
                ..EventRef::new(Cause::LeaseGranted, SubjectRef::Lease(lease.id))
            },
        );
    }

    /// Removes a lease whose request was refused, as if it had never been added.
    pub(super) fn forget_lease(&mut self, slot: SlabIndex) {
        self.take_out_lease(slot);
        self.leases_granted -= 1;
    }

    fn take_out_lease(&mut self, slot: SlabIndex) -> Lease {
        let lease = self.leases.remove(slot);
        self.leases_by_id.remove(&lease.id);
        self.disown_lease(&lease, slot);
        self.due.remove(lease.deadline_ms, DueKind::Lease, lease.id.get());
        self.state_bytes -= lease.weight();
        lease
    }

    pub(crate) fn lease_grant(&self, slot: SlabIndex) -> LeaseGrant {
        let lease = self.leases.at(slot);
        LeaseGrant {
            id: lease.id,
            created: lease.created,
            handle: Handle { slot: slot.number(), generation: lease.generation },
            ttl_ms: u64::from(lease.ttl_ms),
        }
    }

    pub(crate) fn handle(&self, slot: SlabIndex) -> Handle {
        Handle { slot: slot.number(), generation: self.leases.at(slot).generation }
    }

    pub(super) fn renew(&mut self, leases: &[LeaseRef]) -> Result<Answer, Refusal> {
        if leases.len() > RENEW_MAX {
            return Err(Refusal::TooManyInCommand { max: RENEW_MAX as u64 });
        }
        Ok(Answer::Renewed(leases.iter().map(|&lease| self.renew_one(lease)).collect()))
    }

    fn renew_one(&mut self, lease: LeaseRef) -> Option<Renewal> {
        let mut slot = self.own_lease(lease).ok();
        if mutant!("lease_of_another_principal_renewed") {
            slot = self.live_lease(lease).ok();
        }
        if mutant!("renewal_revives_ended_lease")
            && let LeaseRef::Id(id) = lease
        {
            slot = self.leases_by_id.get(&id).copied();
        }
        let slot = slot?;
        let lease = self.leases.at(slot);
        let (id, old, ttl_ms) = (lease.id.get(), lease.deadline_ms, u64::from(lease.ttl_ms));
        let changed = lease.changed;
        let new = self.deadline(ttl_ms);
        assert!(old <= new, "T1: a renewal never shortens a lease");
        if old != new {
            self.due.remove(old, DueKind::Lease, id);
            self.due.insert(new, DueKind::Lease, id, Some(slot));
            self.leases.at_mut(slot).deadline_ms = new;
        }
        Some(Renewal { ttl_ms, changed })
    }

    pub(super) fn revoke(
        &mut self,
        principal: &str,
        lease: LeaseRef,
        by: Revoker<'_>,
    ) -> Result<Answer, Refusal> {
        let slot = match by {
            // To end the lease of another principal, with locks of any name, takes this verb for every name.
            Revoker::Other { .. } if self.may(self.deciding(principal), Verb::Force, "") => {
                self.live_lease(lease)?
            }
            Revoker::Holder | Revoker::Other { .. } => self.own_lease(lease)?,
        };
        let end = match by {
            Revoker::Holder => LeaseEnd::Asked,
            Revoker::Other { name, reason, urgency } => {
                let principal = self.recorded(principal);
                let said = TakeAwayDetails { by: name, reason, principal };
                self.check_said(said)?;
                LeaseEnd::TakenAway { said, urgency }
            }
        };
        self.end_places(slot, end.place_cause(self.level));
        self.end_lease(slot, end);
        Ok(Answer::Revoked)
    }

    /// Removes every place of a lease. This must happen before its locks are released, or the lease would be granted
    /// the locks that it gives up.
    pub(super) fn end_places(&mut self, lease: SlabIndex, cause: Cause) {
        while let Some(place) = self.leases.at(lease).places.first {
            self.remove_place(place, cause);
        }
    }

    /// The cause of the events about the locks of a lease that its own client ends: the client gives them back, and
    /// only the lease is revoked. Before this level the events did not tell the two apart.
    fn given_back_cause(&self) -> Cause {
        if self.level >= LEVEL_RECORDS { Cause::Released } else { Cause::Revoked }
    }

    /// Ends a lease that has no places any more: its grants, its keys, then the lease itself.
    pub(super) fn end_lease(&mut self, slot: SlabIndex, end: LeaseEnd<'_>) {
        let lease = self.leases.at(slot);
        let mut grants: Vec<(Token, SlabIndex)> = lease
            .grants
            .iter::<IN_LEASE, _>(&self.grants)
            .map(|(slot, grant)| (grant.token, slot))
            .collect();
        grants.sort_unstable();
        #[cfg(mutants)]
        if mutant!("hash_order") {
            self.shuffle(&mut grants);
        }
        for (_, grant) in grants {
            match end {
                LeaseEnd::Asked => {
                    let rest = self.rest_of(grant);
                    self.give_back(grant, self.given_back_cause(), rest);
                }
                LeaseEnd::Expired => self.expire_grant(grant),
                LeaseEnd::TakenAway { said, urgency } => {
                    // Reason and principal go only into the event of the lease: they may be long, and the lease may
                    // have many locks.
                    let said = TakeAwayDetails { by: said.by, ..TakeAwayDetails::default() };
                    self.take_away(grant, Cause::Revoked, said, urgency);
                }
            }
        }
        let lease = self.leases.at(slot);
        let mut keys: Vec<_> = lease
            .keys
            .iter::<IN_LEASE, _>(&self.keys)
            .map(|(slot, key)| (key.name.clone(), slot))
            .collect();
        keys.sort_unstable();
        for (_, key) in keys {
            self.delete_key(key, None);
        }
        self.forget_requests(slot, u64::MAX);
        self.remove_lease(slot, end);
    }

    /// The ttl and the last renewal of a lease, for the event that ends it or one of its holds.
    pub(super) fn lease_life(&self, lease: &Lease) -> Option<LeaseTimes> {
        let ttl_ms = u64::from(lease.ttl_ms);
        let renewed_ms = lease.deadline_ms.saturating_sub(self.promised_ms(ttl_ms));
        (self.level >= LEVEL_RECORDS).then_some(LeaseTimes { ttl_ms, renewed_ms })
    }

    fn remove_lease(&mut self, slot: SlabIndex, end: LeaseEnd<'_>) {
        let handle = self.handle(slot);
        let lease = self.take_out_lease(slot);
        let said = match end {
            LeaseEnd::TakenAway { said, .. } => said,
            LeaseEnd::Asked | LeaseEnd::Expired => TakeAwayDetails::default(),
        };
        let life = self.lease_life(&lease);
        self.emit(&EventRef {
            ttl_ms: life.map(|life| life.ttl_ms),
            renewed_ms: life.map(|life| life.renewed_ms),
            lease: Some(lease.id),
            client: Some(lease.client.as_bytes()),
            by: said.by(),
            reason: said.reason(),
            principal: said.principal(),
            ..EventRef::new(end.cause(), SubjectRef::Lease(lease.id))
        });
        if !matches!(end, LeaseEnd::Asked) {
            let revision = self.revision;
            self.now.notices.push(Notice::LeaseEnded {
                lease: handle,
                revision,
                cause: Some(end.cause()),
                word: said.word(),
            });
        }
    }
}

impl Lease {
    pub(crate) fn metadata(&self) -> &[u8] {
        self.metadata.as_ref().map_or(&[], |metadata| metadata)
    }

    /// The weight of the lease in `state_bytes`.
    pub(crate) fn weight(&self) -> u64 {
        LEASE_BYTES + (self.client.as_bytes().len() + self.metadata().len()) as u64
    }
}
