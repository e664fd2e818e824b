//! Executes `Upgrade`: turns a shared hold into an exclusive one, once there is no other holder.
//!
//! The lease keeps its shared hold while it waits, in a place before all others. A second holder that wants the same
//! would wait for the first one for ever, so it is refused.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU64;
use tenure_types::{Held, Limit, Mode, PlaceNumber, Quota, Refusal, RingLink};

use super::acquire::Located;
use super::name;
use super::place::PlaceOptions;
use super::queue::Asker;
use crate::codec::{EventRef, SubjectRef};
use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::{Answer, Grants, LockGrant, Notice};
use crate::request::{Ask, AskWait, LEVEL_RECORDS, LEVEL_REPAIRED_SHARES, Upgrade};
use crate::state::record::{AskCount, GrantMode, GrantOptions, IN_LOCK, IN_QUEUE};
use crate::state::slab::SlabIndex;

impl Machine {
    pub(super) fn upgrade(&mut self, upgrade: &Upgrade<'_>) -> Result<Answer, Refusal> {
        self.check_known_name(upgrade.lock)?;
        if let AskWait::Limit { ms } = upgrade.wait {
            self.check_limit(Limit::WaitMs, ms)?;
        }
        let lease = self.own_lease(upgrade.lease)?;
        let lock = self.lock_slot(upgrade.lock);
        if let Some(standing) = lock.and_then(|lock| self.upgrade_standing(lease, lock, upgrade)) {
            return Ok(standing);
        }
        if upgrade.resume {
            return Ok(Answer::Ended);
        }
        let not_holder = || Refusal::NotHolder { lock: name(upgrade.lock) };
        let lock = lock.ok_or_else(not_holder)?;
        let grant = self.shared_grant(lease, lock).ok_or_else(not_holder)?;
        // Places of leases that are due may still be ahead in the queue. Remove them first.
        if self.locks.at(lock).queue.len > 0 {
            self.touch(lock);
            self.grant_pass();
        }
        if self.tokens_left() == 0 {
            return Err(Refusal::TokensExhausted);
        }
        if self.locks.at(lock).grants.len == 1 {
            return self.upgrade_at_once(lease, grant, upgrade);
        }
        let until_ms = match upgrade.wait {
            AskWait::No | AskWait::Limit { ms: 0 } => return Err(self.others_hold(lock, grant)),
            AskWait::Unlimited => None,
            AskWait::Limit { ms } => NonZeroU64::new(self.deadline(ms)),
        };
        self.check_upgrade_room(lease, lock)?;
        let place = self.add_upgrade(lease, lock, until_ms, upgrade)?;
        self.emit_place(place, Cause::Queued);
        Ok(self.queued_answer(place))
    }

    /// Upgrades the hold of the only holder. Those that wait to share the lock with it wait for it from then on, and
    /// that can close a cycle.
    fn upgrade_at_once(
        &mut self,
        lease: SlabIndex,
        grant: SlabIndex,
        upgrade: &Upgrade<'_>,
    ) -> Result<Answer, Refusal> {
        let lock = self.grants.at(grant).lock;
        let is_searched = self.level >= LEVEL_REPAIRED_SHARES
            && self.locks.at(lock).queue.len > 0
            && !mutant!("upgrade_at_once_not_searched");
        if is_searched {
            let place = self.add_upgrade(lease, lock, None, upgrade)?;
            self.unlink_place(place);
        } else {
            self.newest_place.0 += 1;
        }
        let place = self.newest_place;
        let grant = self.make_exclusive(grant, place);
        Ok(self.acquired_answer(lease, place, Grants::One(grant)))
    }

    /// Adds the place of an upgrade, unless that closes a cycle of waits.
    fn add_upgrade(
        &mut self,
        lease: SlabIndex,
        lock: SlabIndex,
        until_ms: Option<NonZeroU64>,
        upgrade: &Upgrade<'_>,
    ) -> Result<SlabIndex, Refusal> {
        let asks = AskCount::first(self.level);
        let asker = Asker { lease, options: &GrantOptions::default(), asks };
        let ask = Ask { lock: upgrade.lock, mode: Mode::Exclusive };
        let independent = upgrade.independent;
        let options = PlaceOptions {
            group: None,
            independent,
            upgrade: true,
            any: false,
            pool: None,
            priority: 0,
        };
        let located = [Located { ask, lock: Some(lock) }];
        let place = self.add_place(asker, &located, until_ms, &options);
        if let Err(deadlock) = self.check_deadlock(place) {
            debug_assert!(self.level >= LEVEL_RECORDS, "upgrades are of a later level");
            self.emit_place(place, Cause::Deadlock);
            self.unlink_place(place);
            self.newest_place.0 -= 1;
            return Err(deadlock);
        }
        Ok(place)
    }

    /// Whether an upgrade was made, or waits, already.
    pub(super) fn upgrades_again(&self, upgrade: &Upgrade<'_>) -> bool {
        let Ok(lease) = self.own_lease(upgrade.lease) else { return false };
        let Some(lock) = self.lock_slot(upgrade.lock) else { return false };
        let grant = self.grant_of(lease, lock).map(|grant| self.grants.at(grant).mode);
        grant == Some(GrantMode::Exclusive) || self.upgrade_of(lease, lock).is_some()
    }

    /// The answer to a request for an upgrade that was made, or waits, already.
    fn upgrade_standing(
        &mut self,
        lease: SlabIndex,
        lock: SlabIndex,
        upgrade: &Upgrade<'_>,
    ) -> Option<Answer> {
        let grant = self.grants.at(self.grant_of(lease, lock)?);
        if grant.mode == GrantMode::Exclusive {
            let place = grant.place;
            let grants = self.grants_of_place(lease, place)?;
            self.count_ask(lease, place);
            return Some(self.acquired_answer(lease, place, grants));
        }
        let place = self.upgrade_of(lease, lock)?;
        self.replace_limit(place, upgrade.wait);
        self.count_ask(lease, self.places.at(place).number);
        Some(self.queued_answer(place))
    }

    /// Checks that the limits and the state have room for one more place.
    fn check_upgrade_room(&self, lease: SlabIndex, lock: SlabIndex) -> Result<(), Refusal> {
        let record = self.leases.at(lease);
        let has = u64::from(record.grants.len) + u64::from(record.waits);
        self.check_limit(Limit::LocksPerLease, has + 1)?;
        self.check_quota(self.owner_pays(record.owner), Quota::Locks, 1)?;
        self.check_space()?;
        let queue = self.locks.at(lock).queue.len;
        self.check_limit(Limit::WaitersPerLock, u64::from(queue) + 1)?;
        self.check_quota(self.owner_pays(record.owner), Quota::Places, 1)
    }

    /// The refusal of an upgrade that does not wait: it names the first other holder.
    fn others_hold(&self, lock: SlabIndex, own: SlabIndex) -> Refusal {
        let record = self.locks.at(lock);
        let mut grants = record.grants.iter::<IN_LOCK, _>(&self.grants);
        let other = grants.find(|(slot, _)| *slot != own).map(|(slot, _)| slot);
        Refusal::Held(Box::new(Held {
            lock: record.name.clone(),
            holder: other.map(|slot| self.shown_holder(slot)),
            ahead: 0,
        }))
    }

    /// The grant by which a lease holds a lock in shared mode.
    pub(crate) fn shared_grant(&self, lease: SlabIndex, lock: SlabIndex) -> Option<SlabIndex> {
        self.grant_of(lease, lock).filter(|&grant| self.grants.at(grant).mode == GrantMode::Shared)
    }

    /// The place in which a lease waits for an upgrade of its hold on this lock.
    fn upgrade_of(&self, lease: SlabIndex, lock: SlabIndex) -> Option<SlabIndex> {
        let first = self.locks.at(lock).queue.first?;
        let slot = self.waits.at(first).place;
        let place = self.places.at(slot);
        (place.upgrade && place.lease == lease).then_some(slot)
    }

    /// Another upgrade that waits for the lock of a new one.
    pub(super) fn other_upgrade(&self, place: SlabIndex) -> Option<SlabIndex> {
        let record = self.places.at(place);
        if mutant!("second_upgrade_waits") {
            return None;
        }
        // At most these two are upgrades, and upgrades come first.
        let queue = self.locks.at(self.waits.at(record.first).lock).queue;
        let mut first = queue.iter::<IN_QUEUE, _>(&self.waits).take(2);
        let other = |slot: SlabIndex| slot != place && self.places.at(slot).upgrade;
        first.find(|(_, wait)| other(wait.place)).map(|(_, wait)| wait.place)
    }

    /// The cycle of two leases that wait for each other to release one lock.
    pub(super) fn ring_of_upgrades(&self, place: SlabIndex, other: SlabIndex) -> Vec<RingLink> {
        let link = |place: SlabIndex| {
            let place = self.places.at(place);
            let (lease, wait) = (self.leases.at(place.lease), self.waits.at(place.first));
            let lock = self.locks.at(wait.lock).name.clone();
            RingLink { lease: lease.id, client: lease.client.clone(), lock }
        };
        vec![link(place), link(other)]
    }

    /// Grants a waiting upgrade and adds a notice for its lease.
    #[inline(never)]
    pub(super) fn grant_upgrade(&mut self, place: SlabIndex) {
        let lock = self.waits.at(self.places.at(place).first).lock;
        let record = self.unlink_place(place);
        let grant = self.grant_of(record.lease, lock).expect("Q8: an upgrade has a hold");
        let grant = self.make_exclusive(grant, record.number);
        self.now.notices.push(Notice::Granted {
            lease: self.handle(record.lease),
            place: record.number,
            revision: self.revision,
            grants: Grants::One(grant),
        });
    }

    /// Makes a shared grant exclusive, under a new token. Its options and its time stay as they are. It is never given
    /// back because a caller was not told: the lease held the lock before that caller asked.
    fn make_exclusive(&mut self, slot: SlabIndex, place: PlaceNumber) -> LockGrant {
        self.tokens.remove(self.grants.at(slot));
        let token = self.renew_token(slot);
        let revision = self.begin_revision();
        let grant = self.grants.at_mut(slot);
        grant.mode = GrantMode::Exclusive;
        grant.place = place;
        grant.asks = AskCount::UNCOUNTED;
        let lock = grant.lock;
        let lease = self.leases.at(self.lease_of(slot).expect("only a held grant is upgraded"));
        let record = self.locks.at_mut(lock);
        record.change(revision);
        self.history.emit(
            revision,
            &EventRef {
                lease: Some(lease.id),
                client: Some(lease.client.as_bytes()),
                token: Some(token),
                mode: Some(Mode::Exclusive),
                place: Some(place),
                ..EventRef::new(Cause::Upgraded, SubjectRef::Lock(record.name.as_bytes()))
            },
        );
        LockGrant { lock: record.name.clone(), token, slot: None }
    }

    /// Ends the wait for an upgrade of a hold that has ended.
    #[inline(never)]
    pub(super) fn end_upgrade(&mut self, lease: SlabIndex, lock: SlabIndex) {
        let Some(place) = self.upgrade_of(lease, lock) else { return };
        let number = self.places.at(place).number;
        self.remove_place(place, Cause::Left);
        let (lease, revision) = (self.handle(lease), self.revision);
        // Without a refusal the client is told that its time to wait is over.
        let told = self.level >= LEVEL_REPAIRED_SHARES && !mutant!("lost_upgrade_is_a_timeout");
        let refusal =
            told.then(|| Box::new(Refusal::NotHolder { lock: self.locks.at(lock).name.clone() }));
        self.now.notices.push(Notice::WaitEnded { lease, place: number, revision, refusal });
    }
}
