//! Grants, renews and ends leases, with everything that ends with them.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::event::{Cause, Event, Previous, Subject};
use tenure_core::outcome::{Answer, LeaseGrant, Notice, Renewal};
use tenure_core::request::{LeaseRef, NewLease, Revoker, Urgency};
use tenure_types::{LeaseId, Limit, Name, Quota, Refusal, Revision};

use super::event::{blank, held_event, lease_event, name_and_reason, word};
use super::state::later;
use super::{HandleOf, LEVEL_RECORDS, Lease, Model, NO_HANDLE, Verdict};

/// The most leases that one command may renew.
const RENEWALS_PER_COMMAND: usize = 4_096;

/// Why a lease ends.
#[derive(Clone, Copy)]
pub(super) enum LeaseEnd<'a> {
    /// The lease was not renewed in time.
    Expired,
    /// The holder revoked it.
    ByHolder,
    /// Another caller revoked it.
    ByOther {
        /// The name of the caller, and the reason.
        said: (&'a str, &'a str),
        /// Whether its locks cool first.
        urgency: Urgency,
    },
}

impl LeaseEnd<'_> {
    fn cause(self) -> Cause {
        match self {
            LeaseEnd::Expired => Cause::Expired,
            LeaseEnd::ByHolder | LeaseEnd::ByOther { .. } => Cause::Revoked,
        }
    }
}

impl Model {
    pub(super) fn grant_lease(&mut self, new: &NewLease<'_>) -> Verdict {
        let id = match self.check_new_lease(new)? {
            Some(same) => same,
            None => self.add_lease(new),
        };
        Ok(Answer::LeaseGranted(self.lease_grant(id)))
    }

    /// Checks whether the lease can be granted. Returns its id if it already exists.
    pub(super) fn check_new_lease(&self, new: &NewLease<'_>) -> Result<Option<LeaseId>, Refusal> {
        let client = self.name(new.client)?;
        self.within(Limit::MetadataBytes, new.metadata.len() as u64)?;
        let least = self.limits.get(Limit::TtlMinMs);
        if new.ttl_ms < least {
            let limit = Limit::TtlMinMs;
            return Err(Refusal::Limit { limit, bound: least, asked: new.ttl_ms });
        }
        self.within(Limit::TtlMaxMs, new.ttl_ms)?;
        if let Some(lease) = self.leases.get(&new.id) {
            let same = self.is_own(lease.owner.as_ref())
                && lease.client == client
                && lease.ttl_ms == new.ttl_ms
                && lease.metadata == new.metadata;
            if same && self.is_live(new.id) {
                return Ok(Some(new.id));
            }
            return Err(Refusal::LeaseExists { lease: new.id });
        }
        self.within(Limit::Leases, self.leases.len() as u64 + 1)?;
        let caller = self.caller();
        self.within_quota(caller.as_ref(), Quota::Leases, 1)?;
        self.within_quota(caller.as_ref(), Quota::Bytes, new.metadata.len() as u64)?;
        self.room()?;
        Ok(None)
    }

    /// Grants a lease that is known to be new.
    pub(super) fn add_lease(&mut self, new: &NewLease<'_>) -> LeaseId {
        let owner = self.number_caller();
        let lease = Lease {
            id: new.id,
            created: self.this_revision(),
            ttl_ms: new.ttl_ms,
            deadline_ms: later(self.clock_ms, self.whole(new.ttl_ms)),
            client: Name::new(new.client).expect("the client's name was checked"),
            metadata: new.metadata.to_vec(),
            changed: Revision(0),
            done: 0,
            records: BTreeMap::new(),
            owner,
        };
        self.events.push(lease_event(Cause::LeaseGranted, &lease));
        self.leases.insert(new.id, lease);
        new.id
    }

    pub(super) fn lease_grant(&self, id: LeaseId) -> LeaseGrant {
        let lease = &self.leases[&id];
        LeaseGrant { id, created: lease.created, handle: NO_HANDLE, ttl_ms: lease.ttl_ms }
    }

    pub(super) fn renew(&mut self, leases: &[LeaseRef], handle_of: HandleOf<'_>) -> Verdict {
        if leases.len() > RENEWALS_PER_COMMAND {
            return Err(Refusal::TooManyInCommand { max: RENEWALS_PER_COMMAND as u64 });
        }
        let mut renewals = Vec::new();
        for &lease in leases {
            let Ok(id) = self.own(lease, handle_of) else {
                renewals.push(None);
                continue;
            };
            let deadline_ms = later(self.clock_ms, self.whole(self.leases[&id].ttl_ms));
            let lease = self.leases.get_mut(&id).expect("a live lease exists");
            lease.deadline_ms = deadline_ms;
            renewals.push(Some(Renewal { ttl_ms: lease.ttl_ms, changed: lease.changed }));
        }
        Ok(Answer::Renewed(renewals))
    }

    pub(super) fn revoke(
        &mut self,
        principal: &str,
        lease: LeaseRef,
        by: Revoker<'_>,
        handle_of: HandleOf<'_>,
    ) -> Verdict {
        let any = matches!(by, Revoker::Other { .. }) && self.may_force_all(principal);
        let id = if any { self.live(lease, handle_of)? } else { self.own(lease, handle_of)? };
        let end = match by {
            Revoker::Holder => LeaseEnd::ByHolder,
            Revoker::Other { name, reason, urgency } => {
                self.can_be_said((name, reason))?;
                LeaseEnd::ByOther { said: (name, reason), urgency }
            }
        };
        let left = matches!(end, LeaseEnd::ByHolder) && self.level >= LEVEL_RECORDS;
        let cause = if left { Cause::Left } else { end.cause() };
        let mut touched = self.remove_places_of(id, cause);
        touched.extend(self.end_lease(id, end));
        self.grant_pass(touched);
        Ok(Answer::Revoked)
    }

    /// Removes every place of a lease that ends. Returns the locks that they waited for.
    pub(super) fn remove_places_of(&mut self, id: LeaseId, cause: Cause) -> BTreeSet<Name> {
        let mut touched = BTreeSet::new();
        for place in self.places_of(id) {
            touched.extend(self.remove_place(place.number, cause));
        }
        touched
    }

    /// Ends a lease whose places are gone: its grants, its keys, itself. Returns the locks that it held.
    pub(super) fn end_lease(&mut self, id: LeaseId, end: LeaseEnd<'_>) -> BTreeSet<Name> {
        let mut held = self.held_by(id);
        held.sort_by_key(|(_, grant)| grant.token);
        let mut touched = BTreeSet::new();
        for (lock, grant) in held {
            match end {
                LeaseEnd::Expired => {
                    let left_ms = self.delay_or_go(&lock, grant.token);
                    let event = held_event(Cause::Expired, &lock, &grant);
                    self.end_event(&lock, Event { left_ms, ..event });
                    self.lost(&lock, &grant, Cause::Expired, ("", ""));
                }
                LeaseEnd::ByHolder => {
                    let told = self.level >= LEVEL_RECORDS;
                    let cause = if told { Cause::Released } else { Cause::Revoked };
                    self.give_back(&lock, &grant, cause);
                }
                LeaseEnd::ByOther { said: (by, _), urgency } => {
                    self.take_away(&lock, grant.token, Cause::Revoked, urgency, (by, ""));
                }
            }
            touched.extend(self.if_gone(lock, grant.token));
        }
        let lease = self.leases.get(&id).expect("a lease ends once").clone();
        for name in self.keys_of(id) {
            let key = self.keys.remove(&name).expect("keys of a lease exist");
            let previous = Previous { modified: key.modified, value: key.value.into() };
            self.events.push(Event {
                lease: Some(id),
                client: Some(lease.client.clone()),
                previous: Some(previous),
                ..blank(Cause::KeyDeleted, Subject::Key(name))
            });
        }
        let word = match end {
            LeaseEnd::ByOther { said, .. } => word(said),
            LeaseEnd::Expired | LeaseEnd::ByHolder => None,
        };
        let (by, reason) = name_and_reason(word.as_deref());
        let event = Event { by, reason, ..lease_event(end.cause(), &lease) };
        let event = self.told(event, id);
        self.events.push(event);
        if !matches!(end, LeaseEnd::ByHolder) {
            let revision = self.this_revision();
            let cause = Some(end.cause());
            self.notices.push(Notice::LeaseEnded { lease: NO_HANDLE, revision, cause, word });
        }
        self.leases.remove(&id);
        touched
    }
}
