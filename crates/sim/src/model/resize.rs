//! Sets how many slots a semaphore has.

use tenure_core::event::{Cause, Event, Subject};
use tenure_core::outcome::{Answer, Notice};
use tenure_types::{Limit, Mode, Name, PlaceNumber, Refusal};

use super::event::blank;
use super::pass::takes;
use super::{LEVEL_ANY, LEVEL_REPAIRED, Model, NO_HANDLE, Verdict};

impl Model {
    pub(super) fn resize(&mut self, lock: &str, slots: Option<u32>, by: &str) -> Verdict {
        let name = match slots {
            None if self.level >= LEVEL_REPAIRED => self.known_name(lock)?,
            _ => self.name(lock)?,
        };
        self.can_be_said((by, ""))?;
        let Some(slots) = slots else {
            if let Some(lock) = self.locks.get_mut(&name).filter(|lock| lock.sized) {
                lock.sized = false;
                self.resized_event(name.clone(), None, by);
                let touched = self.leave_slot(&name);
                self.grant_pass(touched);
            }
            return Ok(Answer::Resized);
        };
        let bound = self.limits.get(Limit::Slots);
        if slots == 0 || u64::from(slots) > bound {
            return Err(Refusal::Limit { limit: Limit::Slots, bound, asked: u64::from(slots) });
        }
        match self.locks.get(&name) {
            Some(lock) if lock.sized && lock.slots == Some(slots) => {
                // Asks for a pool that had to stay out may be able to join by now.
                if self.level >= LEVEL_ANY {
                    self.join_slot(&name, slots);
                    self.grant_pass([name]);
                }
                return Ok(Answer::Resized);
            }
            Some(lock) if lock.slots.is_none() => {
                return Err(Refusal::OtherKind { lock: name, slots: None });
            }
            Some(_) => {}
            None => self.room()?,
        }
        let mode = Mode::Slot { of: slots, take: 1 };
        self.come_into_being(&name, mode);
        let lock = self.locks.get_mut(&name).expect("it came into being");
        lock.slots = Some(slots);
        lock.sized = true;
        lock.grants.iter_mut().for_each(|grant| grant.mode = mode);
        self.resized_event(name.clone(), Some(mode), by);
        let mut touched = vec![name.clone()];
        for number in self.set_in_places(&name, slots) {
            let place = self.places[&number].clone();
            if place.any && place.locks.len() > 1 {
                self.leave_one_queue(&place, &name, Cause::TooManySlots);
                continue;
            }
            touched.extend(self.end_too_large(number, &name, slots));
        }
        self.join_slot(&name, slots);
        self.grant_pass(touched);
        Ok(Answer::Resized)
    }

    /// Sets the new number in what waits for the semaphore. Returns the places that want more, in the order of numbers.
    fn set_in_places(&mut self, name: &Name, slots: u32) -> Vec<PlaceNumber> {
        let mut too_large = Vec::new();
        for place in self.places.values_mut() {
            for (lock, mode) in &mut place.locks {
                if lock == name {
                    let take = takes(*mode);
                    *mode = Mode::Slot { of: slots, take };
                    if take > slots {
                        too_large.push(place.number);
                    }
                }
            }
        }
        too_large
    }

    fn end_too_large(&mut self, number: PlaceNumber, name: &Name, slots: u32) -> Vec<Name> {
        let asked = self.places[&number].mode_of(name).map_or(0, takes).into();
        let refusal = Refusal::Limit { limit: Limit::Slots, bound: slots.into(), asked };
        self.notices.push(Notice::WaitEnded {
            lease: NO_HANDLE,
            place: number,
            revision: self.this_revision(),
            refusal: Some(Box::new(refusal)),
        });
        self.remove_place(number, Cause::TooManySlots)
    }

    fn resized_event(&mut self, lock: Name, mode: Option<Mode>, by: &str) {
        let by = Name::new(by).ok();
        self.events.push(Event { mode, by, ..blank(Cause::Resized, Subject::Lock(lock)) });
    }
}
