//! Replaces the older waiters of a group by its newest request.
//!
//! A group is a name within one owner's leases: the same name in the requests of another principal is another group.

use alloc::boxed::Box;
use alloc::vec::Vec;
use tenure_types::{Name, Refusal, SupersededBy};

use crate::codec::{EventRef, SubjectRef};
use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::Notice;
use crate::state::owner::OwnerId;
use crate::state::slab::SlabIndex;

/// The group of a waiting request at one of its locks. At most one request waits under each.
pub(crate) type GroupKey = (SlabIndex, Option<OwnerId>, Name);

impl Machine {
    /// Ends the older places of the group of a new place.
    #[inline(never)]
    pub(super) fn supersede(&mut self, place: SlabIndex) {
        let older = self.older_of_group(place);
        if !mutant!("superseded_waiter_stays") {
            for slot in older {
                self.end_superseded(slot, place);
            }
        }
        self.join_group(place);
    }

    /// The places of the same group that wait for one of the locks of a place, in the order of their numbers.
    fn older_of_group(&self, place: SlabIndex) -> Vec<SlabIndex> {
        let mut older: Vec<SlabIndex> =
            self.group_keys(place).filter_map(|key| self.groups.get(&key).copied()).collect();
        #[cfg(mutants)]
        if mutant!("supersede_ignores_the_group") || mutant!("supersede_ignores_the_principal") {
            older = self.wrong_group(place);
        }
        older.sort_unstable_by_key(|slot| self.places.at(*slot).number);
        older.dedup();
        older
    }

    /// Ends the place of a request that a newer one of its group replaces.
    fn end_superseded(&mut self, slot: SlabIndex, newer: SlabIndex) {
        let by = self.leases.at(self.places.at(newer).lease);
        let by = SupersededBy { client: by.client.clone(), lease: by.id };
        let record = self.places.at(slot);
        let (number, lease) = (record.number, self.handle(record.lease));
        let revision = self.begin_revision();
        let record = self.places.at(slot);
        let group = record.group.as_deref().map(Name::as_str);
        let waits = self.leases.at(record.lease);
        let mut next = Some(record.first);
        while let Some(wait) = next {
            let wait = self.waits.at(wait);
            next = wait.next;
            self.history.emit(
                revision,
                &EventRef {
                    lease: Some(waits.id),
                    client: Some(waits.client.as_bytes()),
                    mode: Some(wait.mode),
                    place: Some(number),
                    by: Some(by.client.as_bytes()),
                    reason: group,
                    ..EventRef::new(
                        Cause::Superseded,
                        SubjectRef::Lock(self.locks.at(wait.lock).name.as_bytes()),
                    )
                },
            );
        }
        self.unlink_place(slot);
        let refusal = Some(Box::new(Refusal::Superseded(Box::new(by))));
        self.now.notices.push(Notice::WaitEnded { lease, place: number, revision, refusal });
    }

    /// Enters a place into the index of groups, at each of its locks.
    pub(crate) fn join_group(&mut self, place: SlabIndex) {
        let keys: Vec<GroupKey> = self.group_keys(place).collect();
        for key in keys {
            self.groups.insert(key, place);
        }
    }

    /// Removes a place from the index of groups.
    #[inline(never)]
    pub(super) fn leave_group(&mut self, place: SlabIndex) {
        if self.places.at(place).group.is_none() {
            return;
        }
        let keys: Vec<GroupKey> = self.group_keys(place).collect();
        for key in keys {
            if self.groups.get(&key) == Some(&place) {
                self.groups.remove(&key);
            }
        }
    }

    /// The group of a place at one lock.
    pub(super) fn group_key(&self, place: SlabIndex, lock: SlabIndex) -> Option<GroupKey> {
        let record = self.places.at(place);
        let group = record.group.as_deref()?.clone();
        Some((lock, self.leases.at(record.lease).owner, group))
    }

    /// The group of a place at each of its locks; none if it has no group.
    pub(crate) fn group_keys(&self, place: SlabIndex) -> impl Iterator<Item = GroupKey> {
        let record = self.places.at(place);
        let owner = self.leases.at(record.lease).owner;
        let group = record.group.as_deref();
        let waits = group.map(|_| self.waits_of(place)).into_iter().flatten();
        waits.filter_map(move |(_, wait)| Some((wait.lock, owner, group?.clone())))
    }

    /// Planted bugs: finds the waiters of other groups, or of other principals.
    #[cfg(mutants)]
    fn wrong_group(&self, place: SlabIndex) -> Vec<SlabIndex> {
        let own: Vec<GroupKey> = self.group_keys(place).collect();
        let wrong = |key: &GroupKey| {
            own.iter().any(|it| {
                it.0 == key.0
                    && (mutant!("supersede_ignores_the_group") && it.1 == key.1
                        || mutant!("supersede_ignores_the_principal") && it.2 == key.2)
            })
        };
        let found = self.groups.iter().filter(|(key, _)| wrong(key));
        found.map(|(_, slot)| *slot).collect()
    }
}
