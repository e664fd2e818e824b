//! Defines the options of a new place in a queue, the part of a place that its grants take over, and the weight and the
//! waits of a place.

use alloc::boxed::Box;
use tenure_types::{Name, PlaceNumber};

use super::queue::PLACE_BYTES;
use crate::event::{ANY, UPGRADE};
use crate::machine::Machine;
use crate::request::Acquire;
use crate::state::record::{AskCount, GrantOptions, Place, WaitRecord};
use crate::state::slab::SlabIndex;

/// The options of a request that decide where its place stands in the queue, and what it waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlaceOptions<'a> {
    pub(super) group: Option<&'a str>,
    pub(super) independent: bool,
    pub(super) upgrade: bool,
    pub(super) any: bool,
    pub(super) pool: Option<&'a str>,
    pub(super) priority: u8,
}

/// The part of a removed place that its grants take over.
#[derive(Debug)]
pub(super) struct UnlinkedPlace {
    pub(super) number: PlaceNumber,
    pub(super) lease: SlabIndex,
    pub(super) options: GrantOptions,
    pub(super) asks: AskCount,
}

impl<'a> PlaceOptions<'a> {
    pub(super) fn of(acquire: &'a Acquire<'_>) -> Self {
        Self {
            group: acquire.supersede,
            independent: acquire.independent,
            upgrade: false,
            any: acquire.is_choice(),
            pool: acquire.pool(),
            priority: acquire.priority,
        }
    }
}

impl Place {
    /// The reason in the event that queues the place, if the event has one.
    pub(super) fn queued_reason(&self) -> Option<&'static str> {
        match (self.upgrade, self.any) {
            (true, _) => Some(UPGRADE),
            (false, true) => Some(ANY),
            (false, false) => None,
        }
    }

    /// The weight of the place in `state_bytes`, without its waits.
    pub(crate) fn weight(&self) -> u64 {
        let length = |name: &Option<Box<Name>>| name.as_ref().map_or(0, |it| it.as_bytes().len());
        let names = length(&self.group) + length(&self.pool);
        PLACE_BYTES + (self.options.metadata().len() + names) as u64
    }
}

impl Machine {
    /// The waits of a place, in the order of their locks' names.
    pub(crate) fn waits_of(
        &self,
        place: SlabIndex,
    ) -> impl Iterator<Item = (SlabIndex, &WaitRecord)> {
        self.waits_from(self.places.at(place).first)
    }

    /// The waits of a place from one of them on.
    pub(super) fn waits_from(
        &self,
        first: SlabIndex,
    ) -> impl Iterator<Item = (SlabIndex, &WaitRecord)> {
        let mut next = Some(first);
        core::iter::from_fn(move || {
            let slot = next?;
            let wait = self.waits.at(slot);
            next = wait.next;
            Some((slot, wait))
        })
    }

    /// How many grants a place waits for: one for each slot that it takes.
    pub(crate) fn slots_awaited(&self, place: SlabIndex) -> u64 {
        self.waits_of(place).map(|(_, wait)| u64::from(wait.mode.grants())).sum()
    }
}
