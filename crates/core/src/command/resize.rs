//! Executes `Resize`: sets how many slots a semaphore has, also while it is used.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use tenure_types::{Limit, Mode, Refusal};

use super::acquire::{Located, too_many_slots};
use super::{TakeAwayDetails, name};
use crate::codec::{EventRef, SubjectRef};
use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::{Answer, Notice};
use crate::request::{Ask, LEVEL_ANY, LEVEL_REPAIRED_SHARES};
use crate::state::record::IN_QUEUE;
use crate::state::slab::SlabIndex;

impl Machine {
    /// Sets the number of slots, or leaves it to the requests again. Holders keep what they have: a smaller semaphore
    /// grants nothing until enough slots are given back.
    pub(super) fn resize(
        &mut self,
        lock: &str,
        slots: Option<u32>,
        said: TakeAwayDetails<'_>,
    ) -> Result<Answer, Refusal> {
        // The size of a lock that was named while longer names were allowed can still be left to the requests again.
        if slots.is_none() && self.level >= LEVEL_REPAIRED_SHARES {
            self.check_known_name(lock)?;
        } else {
            self.check_name(lock)?;
        }
        self.check_said(said)?;
        let Some(asked) = slots else {
            self.unset_size(lock, said);
            return Ok(Answer::Resized);
        };
        let (limit, bound) = (Limit::Slots, self.limits.get(Limit::Slots));
        let Some(slots) = NonZeroU32::new(asked).filter(|_| u64::from(asked) <= bound) else {
            return Err(Refusal::Limit { limit, bound, asked: u64::from(asked) });
        };
        let found = self.lock_slot(lock);
        match found.map(|found| self.locks.at(found)) {
            Some(record) if record.sized && record.slots == Some(slots) => {
                // Requests for a pool that had to stay out of its queue may be able to join it by now.
                if let Some(slot) = found.filter(|_| self.level >= LEVEL_ANY) {
                    self.add_to_pools(slot);
                    self.touch(slot);
                }
                return Ok(Answer::Resized);
            }
            Some(record) if record.slots.is_none() => {
                return Err(Refusal::OtherKind { lock: name(lock), slots: None });
            }
            Some(_) => {}
            None => self.check_space()?,
        }
        let mode = Mode::slot(asked);
        let slot = self.lock_for(&Located { ask: Ask { lock, mode }, lock: found });
        let record = self.locks.at_mut(slot);
        record.slots = Some(slots);
        record.sized = true;
        self.emit_resized(lock, Some(mode), said);
        self.resize_queue(slot, asked);
        self.add_to_pools(slot);
        if !mutant!("grown_semaphore_forgets_waiters") {
            self.touch(slot);
        }
        Ok(Answer::Resized)
    }

    /// Leaves the number of slots to the requests. The semaphore keeps its number while it is used.
    fn unset_size(&mut self, lock: &str, said: TakeAwayDetails<'_>) {
        let Some(slot) = self.lock_slot(lock).filter(|&slot| self.locks.at(slot).sized) else {
            return;
        };
        self.locks.at_mut(slot).sized = false;
        self.emit_resized(lock, None, said);
        self.remove_from_pools(slot);
        self.now.idle.push(slot);
    }

    /// Sets the new number in every waiting request, and ends those that requested more. One for which another lock is
    /// enough only leaves this queue.
    fn resize_queue(&mut self, lock: SlabIndex, slots: u32) {
        let queue = self.locks.at(lock).queue;
        let waits: Vec<SlabIndex> =
            queue.iter::<IN_QUEUE, _>(&self.waits).map(|(wait, _)| wait).collect();
        let mut ended = Vec::new();
        for slot in waits {
            let wait = self.waits.at_mut(slot);
            wait.mode = wait.mode.resized(slots);
            let (place, take) = (wait.place, wait.mode.grants());
            if take > slots && !mutant!("too_large_waiter_stays") {
                ended.push((self.places.at(place).number, place, slot, take));
            }
        }
        ended.sort_unstable_by_key(|(number, ..)| *number);
        for (number, place, slot, take) in ended {
            if self.places.at(place).any && self.waits_of(place).count() > 1 {
                self.remove_wait(place, slot, Cause::TooManySlots);
                continue;
            }
            let lease = self.handle(self.places.at(place).lease);
            self.remove_place(place, Cause::TooManySlots);
            let (revision, refusal) = (self.revision, Some(Box::new(too_many_slots(slots, take))));
            self.now.notices.push(Notice::WaitEnded { lease, place: number, revision, refusal });
        }
    }

    fn emit_resized(&mut self, lock: &str, mode: Option<Mode>, said: TakeAwayDetails<'_>) {
        self.emit(&EventRef {
            mode,
            by: said.by(),
            principal: said.principal(),
            ..EventRef::new(Cause::Resized, SubjectRef::Lock(lock.as_bytes()))
        });
    }
}
