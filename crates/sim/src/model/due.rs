//! Ends what is due, in the order of the rules.

use std::collections::BTreeSet;

use tenure_core::event::Cause;
use tenure_core::outcome::Notice;
use tenure_core::request::Urgency;
use tenure_types::{LeaseId, Limit, Name, PlaceNumber, Token};

use super::lease::LeaseEnd;
use super::{GrantState, LEVEL_REOPENING, Model, NO_HANDLE};

/// Something with a deadline.
#[derive(Clone)]
pub(super) struct DueItem {
    pub(super) deadline_ms: u64,
    what: DueWhat,
}

#[derive(Clone)]
enum DueWhat {
    WaitLimit(PlaceNumber),
    Lease(LeaseId),
    MaxHold(Name, Token),
    Cooling(Name, Token),
    LockDelay(Name, Token),
    MinHold(Name, Token),
    Progress(Name, Token),
    Quiet,
    /// Queues that were held back and are not served yet.
    Reopening,
    /// The leases of a revoked principal with this number.
    Revoked(u64, Vec<LeaseId>),
    /// One of them.
    RevokedLease(LeaseId),
}

impl DueItem {
    /// The sort key: deadline, kind, id.
    fn order(&self) -> (u64, u8, u64) {
        let (kind, id) = match &self.what {
            DueWhat::WaitLimit(place) => (0, place.0),
            DueWhat::Lease(lease) => (1, lease.get()),
            DueWhat::MaxHold(_, token) => (2, token.get()),
            DueWhat::Cooling(_, token) => (3, token.get()),
            DueWhat::LockDelay(_, token) => (4, token.get()),
            DueWhat::Quiet => (5, 0),
            DueWhat::Revoked(number, _) => (6, *number),
            DueWhat::MinHold(_, token) => (7, token.get()),
            DueWhat::Progress(_, token) => (8, token.get()),
            DueWhat::Reopening => (9, 0),
            DueWhat::RevokedLease(_) => unreachable!("it is made after sorting"),
        };
        (self.deadline_ms, kind, id)
    }
}

impl Model {
    /// Everything that has a deadline, in the order in which it is due.
    pub(super) fn pending(&self) -> Vec<DueItem> {
        let mut items = Vec::new();
        let mut add = |deadline_ms, what| items.push(DueItem { deadline_ms, what });
        for place in self.places.values() {
            if let Some(until_ms) = place.wait_until_ms {
                add(until_ms, DueWhat::WaitLimit(place.number));
            }
        }
        for lease in self.leases.values() {
            add(lease.deadline_ms, DueWhat::Lease(lease.id));
        }
        for (name, lock) in &self.locks {
            for grant in &lock.grants {
                let (name, token) = (name.clone(), grant.token);
                if let Some(due_ms) = self.progress_due_ms(grant) {
                    add(due_ms, DueWhat::Progress(name.clone(), token));
                }
                match (grant.state, grant.max_hold_due_ms) {
                    (GrantState::Held, None) => {}
                    (GrantState::Held, Some(due_ms)) => add(due_ms, DueWhat::MaxHold(name, token)),
                    (GrantState::Cooling { until_ms }, _) => {
                        add(until_ms, DueWhat::Cooling(name, token));
                    }
                    (GrantState::Delayed { until_ms }, _) => {
                        add(until_ms, DueWhat::LockDelay(name, token));
                    }
                    (GrantState::Resting { until_ms }, _) => {
                        add(until_ms, DueWhat::MinHold(name, token));
                    }
                }
            }
        }
        for (since_ms, number, leases) in self.ending() {
            add(since_ms, DueWhat::Revoked(number, leases));
        }
        if let Some(until_ms) = self.quiet_until_ms {
            add(until_ms, DueWhat::Quiet);
        }
        if let Some(reopening) = &self.reopening {
            add(reopening.since_ms, DueWhat::Reopening);
        }
        items.sort_by_key(DueItem::order);
        items
    }

    /// Ends what is due, up to the limit for one entry.
    pub(super) fn end_due(&mut self) {
        let taken = self.take_due();
        let mut touched = BTreeSet::new();
        for item in &taken {
            match item.what {
                DueWhat::WaitLimit(number) => touched.extend(self.end_wait(number)),
                DueWhat::Lease(lease) => {
                    touched.extend(self.remove_places_of(lease, Cause::Expired));
                }
                DueWhat::RevokedLease(lease) => {
                    touched.extend(self.remove_places_of(lease, Cause::Revoked));
                }
                _ => {}
            }
        }
        for item in taken {
            touched.extend(self.end_item(item.what));
        }
        self.grant_pass(touched);
        if self.reopening.is_some() {
            self.reopen();
        }
    }

    fn take_due(&self) -> Vec<DueItem> {
        let most = self.limits.get(Limit::EndsPerEntry);
        let mut objects = 0;
        let mut taken = Vec::new();
        for item in self.pending() {
            if item.deadline_ms > self.clock_ms || objects >= most {
                break;
            }
            match &item.what {
                DueWhat::Revoked(_, leases) => {
                    for lease in leases {
                        if objects >= most {
                            break;
                        }
                        objects += self.objects_of(*lease);
                        let what = DueWhat::RevokedLease(*lease);
                        taken.push(DueItem { deadline_ms: item.deadline_ms, what });
                    }
                    continue;
                }
                DueWhat::Lease(lease) => objects += self.objects_of(*lease),
                // A slice of queues has objects of its own.
                DueWhat::Reopening => continue,
                _ => objects += 1,
            }
            taken.push(item);
        }
        taken
    }

    /// The number of objects that end with a lease.
    fn objects_of(&self, lease: LeaseId) -> u64 {
        let bound =
            self.held_by(lease).len() + self.places_of(lease).len() + self.keys_of(lease).len();
        1 + bound as u64
    }

    fn end_wait(&mut self, number: PlaceNumber) -> Vec<Name> {
        // The place may just have been removed with its lease.
        if !self.places.contains_key(&number) {
            return Vec::new();
        }
        let revision = self.this_revision();
        self.notices.push(Notice::WaitEnded {
            lease: NO_HANDLE,
            place: number,
            revision,
            refusal: None,
        });
        self.remove_place(number, Cause::WaitTimeout)
    }

    /// Ends anything but a place. Returns the locks that this touched.
    fn end_item(&mut self, what: DueWhat) -> BTreeSet<Name> {
        match what {
            DueWhat::WaitLimit(_) | DueWhat::Revoked(..) | DueWhat::Reopening => BTreeSet::new(),
            // The lease may just have ended, by its deadline or with its principal.
            DueWhat::Lease(lease) | DueWhat::RevokedLease(lease)
                if !self.leases.contains_key(&lease) =>
            {
                BTreeSet::new()
            }
            DueWhat::Lease(lease) => self.end_lease(lease, LeaseEnd::Expired),
            DueWhat::RevokedLease(lease) => {
                let (said, urgency) = (("", super::access::REVOKED), Urgency::Cooling);
                self.end_lease(lease, LeaseEnd::ByOther { said, urgency })
            }
            DueWhat::MaxHold(lock, token) => {
                // The lease may just have ended, and the grant with it.
                if self.grant(&lock, token).is_none_or(|grant| !grant.is_held()) {
                    return BTreeSet::new();
                }
                self.take_away(&lock, token, Cause::MaxHold, Urgency::Cooling, ("", ""));
                self.if_gone(lock, token)
            }
            DueWhat::Progress(lock, token) => {
                // Its lease may just have ended, or its longest hold may be over.
                if self.grant(&lock, token).is_none_or(|grant| !grant.is_held()) {
                    return BTreeSet::new();
                }
                self.no_progress(&lock, token);
                self.if_gone(lock, token)
            }
            DueWhat::Cooling(lock, token) => {
                self.cooling_over(&lock, token, ("", ""));
                self.if_gone(lock, token)
            }
            DueWhat::LockDelay(lock, token) => {
                self.delay_over(&lock, token);
                self.if_gone(lock, token)
            }
            DueWhat::MinHold(lock, token) => {
                self.min_hold_over(&lock, token, ("", ""));
                BTreeSet::from([lock])
            }
            DueWhat::Quiet => {
                self.quiet_until_ms = None;
                if self.level >= LEVEL_REOPENING {
                    self.begin_reopening();
                    return BTreeSet::new();
                }
                self.locks.keys().cloned().collect()
            }
        }
    }
}
