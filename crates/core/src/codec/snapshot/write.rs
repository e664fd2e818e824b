//! Encodes a frozen state frame by frame.

use alloc::vec::Vec;
use tenure_types::{Limits, Revision};
use xxhash_rust::xxh3::Xxh3Default;

use super::head::{SnapshotHead, put_head};
use super::record::SnapshotRecord;
use super::{FRAME_BYTES, MAGIC, Section};
use crate::codec::Writer;
use crate::machine::Machine;
use crate::state::history::History;
use crate::state::list::LinkedList;
use crate::state::record::{
    Grant, IN_ORDER, Key, KeyRequest, Lease, Lock, Place, SeqRequest, WaitRecord,
};
use crate::state::slab::{Slab, SlabIndex};

/// The whole state at one revision, to be encoded while the machine goes on.
pub struct Frozen {
    head: SnapshotHead,
    limits: Limits,
    leases: Slab<Lease>,
    locks: Slab<Lock>,
    grants: Slab<Grant>,
    places: Slab<Place>,
    waits: Slab<WaitRecord>,
    keys: Slab<Key>,
    seq_requests: Slab<SeqRequest>,
    key_requests: Slab<KeyRequest>,
    key_request_order: LinkedList,
    history: History,
}

/// The source of a snapshot: a frozen state, or the machine itself.
struct SnapshotSource<'a> {
    head: SnapshotHead,
    limits: &'a Limits,
    leases: &'a Slab<Lease>,
    locks: &'a Slab<Lock>,
    grants: &'a Slab<Grant>,
    places: &'a Slab<Place>,
    waits: &'a Slab<WaitRecord>,
    keys: &'a Slab<Key>,
    seq_requests: &'a Slab<SeqRequest>,
    key_requests: &'a Slab<KeyRequest>,
    key_request_order: LinkedList,
    history: &'a History,
}

impl Machine {
    /// Copies the whole state as it is now, at the cost of one step per 256 records.
    pub fn freeze(&mut self) -> Frozen {
        Frozen {
            head: SnapshotHead::of(self),
            limits: self.limits.clone(),
            leases: self.leases.freeze(),
            locks: self.locks.freeze(),
            grants: self.grants.freeze(),
            places: self.places.freeze(),
            waits: self.waits.freeze(),
            keys: self.keys.freeze(),
            seq_requests: self.seq_requests.freeze(),
            key_requests: self.key_requests.freeze(),
            key_request_order: self.key_request_order,
            history: self.history.clone(),
        }
    }

    /// The canonical encoding of the whole state.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.source().write(&mut |frame| out.extend_from_slice(frame));
        out
    }

    /// Hash over the canonical encoding.
    pub fn full_hash(&self) -> u128 {
        self.source().write(&mut |_| {})
    }

    fn source(&self) -> SnapshotSource<'_> {
        SnapshotSource {
            head: SnapshotHead::of(self),
            limits: &self.limits,
            leases: &self.leases,
            locks: &self.locks,
            grants: &self.grants,
            places: &self.places,
            waits: &self.waits,
            keys: &self.keys,
            seq_requests: &self.seq_requests,
            key_requests: &self.key_requests,
            key_request_order: self.key_request_order,
            history: &self.history,
        }
    }
}

impl Frozen {
    /// The revision at which the state was frozen.
    pub fn revision(&self) -> Revision {
        self.head.revision
    }

    /// Writes the canonical encoding in pieces of some 64 KiB and returns the hash over it.
    ///
    /// The caller may pause between pieces for any length of time.
    pub fn write(&self, sink: &mut dyn FnMut(&[u8])) -> u128 {
        let source = SnapshotSource {
            head: self.head.clone(),
            limits: &self.limits,
            leases: &self.leases,
            locks: &self.locks,
            grants: &self.grants,
            places: &self.places,
            waits: &self.waits,
            keys: &self.keys,
            seq_requests: &self.seq_requests,
            key_requests: &self.key_requests,
            key_request_order: self.key_request_order,
            history: &self.history,
        };
        source.write(sink)
    }
}

impl SnapshotSource<'_> {
    fn write(&self, sink: &mut dyn FnMut(&[u8])) -> u128 {
        let level = self.head.level;
        let mut frames = Frames { sink, level, hasher: Xxh3Default::new(), frame: Vec::new() };
        frames.send(MAGIC);
        frames.section(Section::Head, |out| put_head(out, &self.head, self.limits));
        self.write_vacant(&mut frames);
        frames.records(Section::Leases, self.leases);
        frames.records(Section::Locks, self.locks);
        frames.records(Section::Grants, self.grants);
        if !mutant!("queue_not_in_snapshot") {
            frames.records(Section::Places, self.places);
            frames.records(Section::Waits, self.waits);
        }
        frames.records(Section::Keys, self.keys);
        if !mutant!("requests_not_in_snapshot") {
            frames.records(Section::SeqRequests, self.seq_requests);
            frames.records(Section::KeyRequests, self.key_requests);
            let order = self.key_request_order.iter::<IN_ORDER, _>(self.key_requests);
            frames.slots(Section::KeyRequestOrder, order.map(|(slot, _)| slot));
        }
        let records = self.history.records(self.history.floor());
        frames.many(Section::History, records, |out, (revision, events)| {
            out.put(revision.0);
            out.put_bytes(events);
        });
        frames.end()
    }

    /// Writes for each slab how many slots were ever used, and which of them are vacant.
    fn write_vacant(&self, frames: &mut Frames<'_>) {
        frames.vacant(self.leases);
        frames.vacant(self.locks);
        frames.vacant(self.grants);
        if !mutant!("queue_not_in_snapshot") {
            frames.vacant(self.places);
            frames.vacant(self.waits);
        } else {
            frames.vacant(&Slab::<Place>::default());
            frames.vacant(&Slab::<WaitRecord>::default());
        }
        frames.vacant(self.keys);
        if !mutant!("requests_not_in_snapshot") {
            frames.vacant(self.seq_requests);
            frames.vacant(self.key_requests);
        } else {
            frames.vacant(&Slab::<SeqRequest>::default());
            frames.vacant(&Slab::<KeyRequest>::default());
        }
    }
}

/// Splits the output into frames and hashes them.
struct Frames<'a> {
    sink: &'a mut dyn FnMut(&[u8]),
    /// The level of the state, which decides the format of its records.
    level: u16,
    hasher: Xxh3Default,
    frame: Vec<u8>,
}

impl Frames<'_> {
    fn send(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        (self.sink)(bytes);
    }

    fn begin(&mut self, section: Section) {
        self.frame.clear();
        self.frame.extend_from_slice(&[0; 8]);
        self.frame.put_u8(section as u8);
    }

    fn close(&mut self) {
        let len = self.frame.len() as u64 - 8;
        self.frame[..8].copy_from_slice(&len.to_le_bytes());
        let frame = core::mem::take(&mut self.frame);
        self.send(&frame);
        self.frame = frame;
    }

    fn section(&mut self, section: Section, put: impl FnOnce(&mut Vec<u8>)) {
        self.begin(section);
        put(&mut self.frame);
        self.close();
    }

    /// Writes the items of one section, in as many frames as they need.
    fn many<I>(
        &mut self,
        section: Section,
        items: impl Iterator<Item = I>,
        mut put: impl FnMut(&mut Vec<u8>, I),
    ) {
        let mut open = false;
        for item in items {
            if !open {
                self.begin(section);
                open = true;
            }
            put(&mut self.frame, item);
            if self.frame.len() >= FRAME_BYTES {
                self.close();
                open = false;
            }
        }
        if open {
            self.close();
        }
    }

    fn records<T: SnapshotRecord>(&mut self, section: Section, slab: &Slab<T>) {
        let level = self.level;
        self.many(section, slab.iter(), |out, (slot, record)| {
            out.put(u64::from(slot.number()));
            record.put(out, level);
        });
    }

    fn slots(&mut self, section: Section, slots: impl Iterator<Item = SlabIndex>) {
        self.many(section, slots, |out, slot| out.put(u64::from(slot.number())));
    }

    /// Writes one frame with the counts, then frames with the slots themselves.
    fn vacant<T>(&mut self, slab: &Slab<T>) {
        self.section(Section::Vacant, |out| {
            out.put(slab.used() as u64);
            out.put((slab.used() - slab.len()) as u64);
        });
        self.slots(Section::Vacant, slab.vacant());
    }

    fn end(mut self) -> u128 {
        let hash = self.hasher.digest128();
        self.section(Section::End, |out| out.put_raw(&hash.to_le_bytes()));
        hash
    }
}
