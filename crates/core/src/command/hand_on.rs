//! Executes `HandOn`: gives a hold to a lease that waits for the lock, ahead of all others.
//!
//! The giver has stopped, and says so by this command. The receiver has agreed, because it waits. Both happen in one
//! revision, so the lock is never free and never held by both.

use tenure_types::{LeaseId, Refusal};

use super::queue::Asker;
use super::slots::MetadataTold;
use super::{TakeAwayDetails, name};
use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::{Answer, Grants, Notice};
use crate::request::{Hold, LEVEL_REPAIRED_SHARES, LeaseRef};
use crate::state::record::{AskCount, GrantOptions, IN_LEASE};
use crate::state::slab::SlabIndex;

impl Machine {
    pub(super) fn hand_on(&mut self, hold: &Hold<'_>, to: LeaseId) -> Result<Answer, Refusal> {
        let grant = self.held(hold)?;
        let not_waiting = || Refusal::NotWaiting { lock: name(hold.lock) };
        let place = self.receiver(grant, to).ok_or_else(not_waiting)?;
        if let Some(drained) = self.draining(hold.lock) {
            // The record of this refusal has the reason of the drain, which may be long.
            if self.level >= LEVEL_REPAIRED_SHARES {
                self.check_space()?;
            }
            return Err(drained);
        }
        if self.tokens_left() == 0 {
            return Err(Refusal::TokensExhausted);
        }
        let record = self.grants.at(grant);
        let (lock, mode) = (record.lock, record.mode);
        let options = self.handed_options(grant, place);
        let rests = self.min_hold_deadline(self.grants.at(grant)) > self.clock_ms;
        let number = self.places.at(place).number;
        self.emit_grant_to(
            grant,
            Cause::HandedOn,
            None,
            (TakeAwayDetails::default(), Some(number)),
        );
        self.detach(grant);
        if !mutant!("giver_keeps_its_hold") {
            self.remove_grant(grant);
        }
        let record = self.unlink_place(place);
        // An abandoned request does not rest, because its caller never knew of the grant. The min hold of the giver
        // must last all the same, so no abandoned request ends this grant.
        let kept =
            rests && self.level >= LEVEL_REPAIRED_SHARES && !mutant!("handed_min_hold_abandoned");
        let asks = if kept { AskCount::UNCOUNTED } else { record.asks };
        let asker = Asker { lease: record.lease, options: &options, asks };
        let before = self.grant_before(lock, mode);
        let granted =
            self.insert_grant(lock, (mode, before), asker, record.number, MetadataTold::InEvent);
        let token = granted.token;
        self.now.notices.push(Notice::Granted {
            lease: self.handle(record.lease),
            place: record.number,
            revision: self.revision,
            grants: Grants::One(granted),
        });
        Ok(Answer::HandedOn { token })
    }

    /// The place in which the receiver waits for this grant's lock alone, in the same mode. Its lease must not wait for
    /// anything else, unless that is independent: those whom it passes would wait for that, too.
    fn receiver(&self, grant: SlabIndex, to: LeaseId) -> Option<SlabIndex> {
        let grant = self.grants.at(grant);
        let lease = self.live_lease(LeaseRef::Id(to)).ok()?;
        let place = self.place_of(lease, grant.lock)?;
        #[cfg(mutants)]
        let place = self.wrong_receiver(grant.lock).unwrap_or(place);
        let record = self.places.at(place);
        let wait = self.waits.at(record.first);
        let asked = grant.asked_mode(self.locks.at(grant.lock).slots);
        let alone = wait.next.is_none() && wait.mode == asked && !record.upgrade && !record.any;
        let mut others = self.leases.at(record.lease).places.iter::<IN_LEASE, _>(&self.places);
        let free = others.all(|(slot, other)| slot == place || other.independent);
        (alone && free).then_some(place)
    }

    /// The options of the receiver's request. A min hold of the giver that is not over goes on.
    fn handed_options(&self, grant: SlabIndex, place: SlabIndex) -> GrantOptions {
        let options = self.places.at(place).options.clone();
        let until_ms = self.min_hold_deadline(self.grants.at(grant));
        let left_ms = until_ms.saturating_sub(self.clock_ms);
        if left_ms <= options.min_hold_ms() || mutant!("hand_on_forgets_the_min_hold") {
            return options;
        }
        options.with_min_hold(left_ms)
    }

    /// Planted bug: the first waiter gets the hold.
    #[cfg(mutants)]
    fn wrong_receiver(&self, lock: SlabIndex) -> Option<SlabIndex> {
        let first = self.locks.at(lock).queue.first?;
        mutant!("handed_on_to_the_first_waiter").then(|| self.waits.at(first).place)
    }
}
