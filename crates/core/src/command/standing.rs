//! Recognises a request that a lease has made before, by what it holds and waits for.

use alloc::vec::Vec;
use tenure_types::{Mode, PlaceNumber, Refusal};

use super::about;
use super::acquire::{Located, grants_asked};
use crate::machine::Machine;
use crate::outcome::Grants;
use crate::request::{Acquire, LEVEL_REPAIRED_SHARES};
use crate::state::slab::SlabIndex;

/// What the lease already holds or waits for among the requested locks.
pub(super) enum HeldPart {
    Nothing,
    Waits(SlabIndex),
    Holds(PlaceNumber, Grants),
}

impl Machine {
    /// Returns what the lease already has of these locks. If it has exactly these locks and modes, the result is that
    /// grant or place. If it has some of them, or has them in other modes, the request is refused, because later
    /// commands could not tell the two requests apart. If any of the locks is enough, the result is the one that it
    /// has, or a place for some of them.
    pub(super) fn standing(
        &self,
        lease: SlabIndex,
        acquire: &Acquire<'_>,
        asks: &[Located<'_>],
    ) -> Result<HeldPart, Refusal> {
        let any = acquire.is_choice();
        for located @ Located { ask, lock } in asks {
            let Some(lock) = *lock else { continue };
            let needed = if any { core::slice::from_ref(located) } else { asks };
            let overlap = || about(ask.lock, |lock| Refusal::Overlap { lock });
            if let Some(grant) = self.grant_of(lease, lock) {
                let place = self.grants.at(grant).place;
                let grants = self.same_grants(lease, place, needed).ok_or_else(overlap)?;
                return Ok(HeldPart::Holds(place, grants));
            }
            if let Some(place) = self.place_of(lease, lock) {
                if mutant!("reask_takes_second_place") {
                    continue;
                }
                let waits = self
                    .waits_of(place)
                    .map(|(_, wait)| (self.locks.at(wait.lock).name.as_bytes(), wait.mode));
                let mut asked =
                    asks.iter().map(|other| (other.ask.lock.as_bytes(), self.recognised(other)));
                let record = self.places.at(place);
                let same = match any {
                    // It may have left a queue since, because a semaphore became too small.
                    true => {
                        let asked: Vec<(&[u8], Mode)> = asked.collect();
                        let mut waits = waits;
                        record.any
                            && waits.all(|wait| asked.contains(&wait))
                            && !self.has_elsewhere(lease, place, asks)
                    }
                    false => !record.any && asked.by_ref().eq(waits),
                };
                let same = same && record.pool.is_none();
                return if same { Ok(HeldPart::Waits(place)) } else { Err(overlap()) };
            }
        }
        Ok(HeldPart::Nothing)
    }

    /// Whether a lease holds one of these locks, or waits for one in another place.
    fn has_elsewhere(&self, lease: SlabIndex, place: SlabIndex, asks: &[Located<'_>]) -> bool {
        asks.iter().filter_map(|located| located.lock).any(|lock| {
            let other = self.place_of(lease, lock).is_some_and(|found| found != place);
            other || self.grant_of(lease, lock).is_some()
        })
    }

    /// The mode by which a request is recognised as one that was made before. The number of slots may have been set
    /// since, and not be set any more.
    fn recognised(&self, located: &Located<'_>) -> Mode {
        let slots = located.lock.and_then(|lock| self.locks.at(lock).slots);
        match slots {
            Some(slots)
                if self.level >= LEVEL_REPAIRED_SHARES
                    && !mutant!("resized_request_not_recognised") =>
            {
                located.ask.mode.resized(slots.get())
            }
            _ => located.ask.mode,
        }
    }

    /// Returns the grants of a place, if they cover exactly these locks and modes.
    fn same_grants(
        &self,
        lease: SlabIndex,
        place: PlaceNumber,
        asks: &[Located<'_>],
    ) -> Option<Grants> {
        let mut found = self.find_grants(lease, place);
        if found.len() as u64 != grants_asked(asks) {
            return None;
        }
        found.sort_unstable_by(|a, b| a.0.order().cmp(&b.0.order()));
        let mut next = found.iter();
        let same = asks.iter().all(|located| {
            let (lock, asked) = (located.ask.lock.as_bytes(), self.recognised(located).of_grant());
            let count = located.ask.mode.grants() as usize;
            let mut grants = next.by_ref().take(count);
            grants.all(|(grant, mode)| grant.lock.as_bytes() == lock && *mode == asked)
        });
        same.then(|| found.into_iter().map(|(grant, _)| grant).collect())
    }
}
