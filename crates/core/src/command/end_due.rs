//! Ends leases, waits, holds and delays whose deadline has passed.

use alloc::vec::Vec;
use tenure_types::Limit;

use super::TakeAwayDetails;
use super::access::PRINCIPAL_REVOKED;
use super::lease::LeaseEnd;
use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::Notice;
use crate::request::{LEVEL_REOPENING, Urgency};
use crate::state::due::{Due, DueKind};
use crate::state::owner::OwnerId;
use crate::state::record::GrantPhase;
use crate::state::slab::SlabIndex;

impl Machine {
    /// Ends what is due, up to a bounded number of objects, in one revision.
    ///
    /// The rest stays due and counts as ended in every liveness check. The leader ticks again at once.
    pub(crate) fn end_due(&mut self) {
        if self.due.next().is_none_or(|next| next > self.clock_ms) {
            return;
        }
        let taken = self.take_due();
        #[cfg(mutants)]
        if mutant!("expire_holders_before_waiters") {
            self.expire_holders(&taken);
        }
        for due in &taken {
            match (due.kind, due.slot) {
                (DueKind::WaitLimit, Some(place)) => self.end_wait(place),
                (DueKind::Lease, Some(lease)) => self.end_places(lease, Cause::Expired),
                (DueKind::Revoked, Some(lease)) => self.end_places(lease, Cause::Revoked),
                _ => {}
            }
        }
        self.end_taken(&taken);
        if self.reopening.is_some() {
            // First the queues that advance because something ended.
            self.grant_pass();
            self.reopen();
        }
        self.finish();
    }

    fn end_taken(&mut self, taken: &[Due]) {
        for due in taken {
            match (due.kind, due.slot) {
                (DueKind::Lease, Some(lease)) if self.leases.get(lease).is_some() => {
                    self.end_lease(lease, LeaseEnd::Expired);
                }
                // The lease may have been due by itself and ended earlier in this pass.
                (DueKind::Revoked, Some(lease)) if self.leases.get(lease).is_some() => {
                    let reason = PRINCIPAL_REVOKED;
                    let said = TakeAwayDetails { reason, ..TakeAwayDetails::default() };
                    self.end_lease(lease, LeaseEnd::TakenAway { said, urgency: Urgency::Cooling });
                }
                (DueKind::MaxHold, Some(grant)) if self.is_in_phase(grant, None) => {
                    self.take_away(
                        grant,
                        Cause::MaxHold,
                        TakeAwayDetails::default(),
                        Urgency::Cooling,
                    );
                }
                (DueKind::Progress, Some(grant)) if self.is_in_phase(grant, None) => {
                    self.progress_due(grant);
                }
                (DueKind::Cooling, Some(grant))
                    if self.is_in_phase(grant, Some(GrantPhase::Cooling)) =>
                {
                    self.cooled(grant, TakeAwayDetails::default());
                }
                (DueKind::LockDelay, Some(grant))
                    if self.is_in_phase(grant, Some(GrantPhase::Delayed)) =>
                {
                    self.delay_over(grant);
                }
                (DueKind::MinHold, Some(grant))
                    if self.is_in_phase(grant, Some(GrantPhase::Resting)) =>
                {
                    self.min_hold_over(grant, TakeAwayDetails::default());
                }
                (DueKind::Quiet, _) => self.end_quiet(),
                _ => {}
            }
        }
    }

    /// Planted bug: releases the locks of a lease while its places are still in the queues.
    #[cfg(mutants)]
    fn expire_holders(&mut self, taken: &[Due]) {
        use crate::state::record::IN_LEASE;
        for lease in
            taken.iter().filter(|due| due.kind == DueKind::Lease).filter_map(|due| due.slot)
        {
            let grants = self.leases.at(lease).grants;
            let grants: Vec<SlabIndex> =
                grants.iter::<IN_LEASE, _>(&self.grants).map(|g| g.0).collect();
            grants.into_iter().for_each(|grant| self.expire_grant(grant));
        }
        self.grant_pass();
    }

    /// Planted bug: lets a wait limit pass without effect.
    #[cfg(mutants)]
    fn forget_limit(&mut self, slot: SlabIndex) {
        let place = self.places.at_mut(slot);
        let number = place.number.0;
        if let Some(until_ms) = place.until_ms.take() {
            self.due.remove(until_ms.get(), DueKind::WaitLimit, number);
        }
    }

    /// The items to end now, in the order of (deadline, kind, id). A lease is never split.
    fn take_due(&self) -> Vec<Due> {
        let ends_max = self.limits.get(Limit::EndsPerEntry);
        let mut objects = 0;
        let mut taken = Vec::new();
        for due in self.due.until(self.clock_ms) {
            if objects >= ends_max {
                break;
            }
            // It takes objects of its own, so that neither the queues nor what is due waits for the other.
            if due.kind == DueKind::Reopening {
                if mutant!("reopening_puts_off_what_is_due") {
                    break;
                }
                continue;
            }
            if due.kind == DueKind::Revoked {
                objects = self.take_revoked(due, objects, &mut taken);
                continue;
            }
            objects += match (due.kind, due.slot) {
                (DueKind::Lease, Some(lease)) => self.objects_of(lease),
                _ => 1,
            };
            taken.push(due);
        }
        taken
    }

    /// Adds leases of a revoked principal to the items to end now, in the order of their creation. Returns how many
    /// objects end in all.
    fn take_revoked(&self, due: Due, mut objects: u64, taken: &mut Vec<Due>) -> u64 {
        let Some(owner) = u32::try_from(due.id).ok().and_then(OwnerId::from_number) else {
            return objects;
        };
        for lease in self.owners.leases(owner) {
            if objects >= self.limits.get(Limit::EndsPerEntry) {
                break;
            }
            objects += self.objects_of(lease);
            taken.push(Due { slot: Some(lease), ..due });
        }
        objects
    }

    /// How many objects end with a lease.
    fn objects_of(&self, lease: SlabIndex) -> u64 {
        let lease = self.leases.at(lease);
        [lease.grants.len, lease.places.len, lease.keys.len]
            .into_iter()
            .fold(1, |sum, len| sum + u64::from(len))
    }

    fn end_wait(&mut self, slot: SlabIndex) {
        // The place may be gone already, because its lease was taken earlier in this pass.
        let Some(place) = self.places.get(slot) else { return };
        let (lease, number) = (self.handle(place.lease), place.number);
        #[cfg(mutants)]
        if mutant!("wait_limit_forgotten") {
            return self.forget_limit(slot);
        }
        self.remove_place(slot, Cause::WaitTimeout);
        let revision = self.revision;
        self.now.notices.push(Notice::WaitEnded { lease, place: number, revision, refusal: None });
    }

    fn end_quiet(&mut self) {
        let Some(until_ms) = self.quiet_until_ms.take() else { return };
        self.due.remove(until_ms, DueKind::Quiet, 0);
        if self.level >= LEVEL_REOPENING {
            return self.begin_reopening();
        }
        let locks: Vec<SlabIndex> = self.locks.iter().map(|(slot, _)| slot).collect();
        for lock in locks {
            self.touch(lock);
        }
    }

    fn is_in_phase(&self, grant: SlabIndex, phase: Option<GrantPhase>) -> bool {
        self.grants.get(grant).is_some_and(|grant| grant.phase() == phase)
    }
}
