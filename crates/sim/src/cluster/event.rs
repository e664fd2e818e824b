//! What happens next?

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use tenure_raft::{MemberId, Saved};

use super::packet::{Address, Packet};

/// Something that happens at a moment.
pub(super) enum Event {
    /// A member's loop turns.
    Turn { node: usize, boot: u64 },
    /// A packet arrives.
    Arrive { from: Address, to: Address, packet: Packet },
    /// The disk has been told to make the log durable.
    Sync { node: usize, boot: u64 },
    /// A member learns that it is.
    Synced { node: usize, boot: u64, number: u64 },
    /// A member that had no space tries again.
    Write { node: usize, boot: u64 },
    /// A snapshot is written.
    Save { node: usize, boot: u64 },
    /// A member learns what became of a snapshot that it sent.
    Sent { node: usize, boot: u64, to: MemberId, saved: Saved },
    /// A member starts.
    Start { node: usize },
    /// A client does something.
    Client { client: usize },
    /// A watcher asks for what is new.
    Watch { watcher: usize },
    /// Something fails, or heals.
    Nemesis,
    /// A disk is put back to what it was.
    RollBack { node: usize },
}

/// Events in the order of their moments, and of their making at the same moment.
#[derive(Default)]
pub(super) struct Queue {
    order: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    made: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at_us: u64, event: Event) {
        self.made += 1;
        self.order.push(Reverse((at_us, self.made)));
        self.events.insert(self.made, event);
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        let Reverse((at_us, number)) = self.order.pop()?;
        self.events.remove(&number).map(|event| (at_us, event))
    }
}
