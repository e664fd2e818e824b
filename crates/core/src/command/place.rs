//! Defines what a request brings to its place in the queue, what the grants take over from it, and what a place weighs.

use alloc::boxed::Box;
use tenure_types::{Name, PlaceNumber};

use super::queue::PLACE_BYTES;
use crate::event::{ANY, UPGRADE};
use crate::request::Acquire;
use crate::state::record::{AskCount, GrantOptions, Place};
use crate::state::slab::SlabIndex;

/// What decides where a new place stands, and what its wait means.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlaceOptions<'a> {
    pub(super) group: Option<&'a str>,
    pub(super) independent: bool,
    pub(super) upgrade: bool,
    pub(super) any: bool,
    pub(super) pool: Option<&'a str>,
    pub(super) priority: u8,
}

/// What the grants of a place take over from it.
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
    /// What the event says that queues it, beside that it is queued.
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
