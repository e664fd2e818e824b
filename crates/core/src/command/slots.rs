//! Grants the slots of a semaphore: the lowest that are free, as many as a request takes.

use alloc::vec::Vec;
use tenure_types::{Mode, PlaceNumber};

use super::queue::Asker;
use crate::machine::Machine;
use crate::outcome;
use crate::request::LEVEL_REPAIRED_SHARES;
use crate::state::record::GrantMode;
use crate::state::slab::SlabIndex;

/// Where the metadata of a request is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MetadataTold {
    /// In the event of this grant.
    InEvent,
    /// In the event of the first slot. A request may take 1,024 slots with 4 KiB of metadata.
    Before,
}

impl Machine {
    /// Grants one lock: of a semaphore as many slots as were requested, each with its own token.
    pub(super) fn grant_slots(
        &mut self,
        lock: SlabIndex,
        mode: Mode,
        asker: Asker<'_>,
        place: PlaceNumber,
        grants: &mut Vec<outcome::LockGrant>,
    ) {
        let lost = u32::from(mutant!("last_slot_not_granted") && mode.grants() > 1);
        // Each search for a free slot begins after the slot that was just granted, because all below it are taken.
        let (mut told, mut free) = (MetadataTold::InEvent, (0, None));
        for _ in lost..mode.grants() {
            let at = match mode {
                Mode::Slot { of, .. } => self.free_slot(lock, of, free),
                Mode::Exclusive | Mode::Shared => self.insertion_point(lock, mode),
            };
            grants.push(self.insert_grant(lock, at, asker, place, told));
            free = match at {
                (GrantMode::Slot(slot), before) => (slot + 1, self.grant_after(lock, before)),
                _ => free,
            };
            if self.level >= LEVEL_REPAIRED_SHARES && !mutant!("metadata_in_every_event") {
                told = MetadataTold::Before;
            }
        }
    }

    /// Returns the lowest free slot and the grant after which to insert its grant. All slots below the given one are
    /// taken, and the given grant has the last of them.
    pub(super) fn free_slot(
        &self,
        lock: SlabIndex,
        of: u32,
        (mut free, mut before): (u32, Option<SlabIndex>),
    ) -> (GrantMode, Option<SlabIndex>) {
        while let Some(slot) = self.grant_after(lock, before)
            && self.grants.at(slot).mode == GrantMode::Slot(free)
        {
            free += 1;
            before = Some(slot);
        }
        // There are fewer grants than slots, also if the semaphore was made smaller than what is held of it.
        assert!(free < of || cfg!(mutants), "S1: a slot is free, the caller asked");
        (GrantMode::Slot(free), before)
    }

    /// The grant of a lock that follows another one; the first grant, if none is given.
    fn grant_after(&self, lock: SlabIndex, before: Option<SlabIndex>) -> Option<SlabIndex> {
        match before {
            Some(before) => self.grants.at(before).in_lock.after,
            None => self.locks.at(lock).grants.first,
        }
    }
}
