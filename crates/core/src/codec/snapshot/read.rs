//! Decodes a snapshot piece by piece from untrusted bytes.

use alloc::boxed::Box;
use alloc::vec::Vec;
use tenure_types::Epoch;
use xxhash_rust::xxh3::Xxh3Default;

use super::head::get_head;
use super::record::{SnapshotRecord, get_hash, get_slot};
use super::{MAGIC, Section};
use crate::codec::{Malformed, Reader};
use crate::machine::Machine;
use crate::state::history::History;
use crate::state::slab::{Slab, SlabIndex};

/// The number of slabs, each with its own list of vacant slots.
const SLABS: usize = 8;

/// Why a snapshot is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadSnapshot {
    /// It does not begin like a snapshot of a version that this build knows.
    #[error("not a snapshot of a known version")]
    Version,
    /// It was written at a level newer than this build knows.
    #[error("the state is at feature level {level}, this version of tenure knows up to {known}")]
    Level {
        /// The level of the snapshot.
        level: u16,
        /// The newest level that this build knows.
        known: u16,
    },
    /// Some of its bytes do not follow the format.
    #[error("malformed bytes in the snapshot")]
    Malformed,
    /// Its bytes do not match its hash.
    #[error("the hash of the snapshot does not match")]
    Hash,
    /// Some of its bytes are missing.
    #[error("the snapshot is incomplete")]
    Incomplete,
    /// It is well-formed, but its records contradict each other.
    #[error("the snapshot contradicts itself")]
    Inconsistent,
}

impl From<Malformed> for BadSnapshot {
    fn from(_: Malformed) -> Self {
        BadSnapshot::Malformed
    }
}

/// Decodes a snapshot as it arrives. Memory grows with the bytes that arrived, never with the lengths they claim.
pub struct SnapshotReader {
    machine: Box<Machine>,
    /// The bytes of an incomplete frame.
    pending: Vec<u8>,
    hasher: Xxh3Default,
    section: Section,
    begun: bool,
    complete: bool,
    failed: bool,
    vacant: [Vacant; SLABS],
    vacant_at: usize,
    key_request_order: Vec<SlabIndex>,
}

#[derive(Default)]
struct Vacant {
    used: usize,
    len: usize,
    order: Vec<SlabIndex>,
}

impl Default for SnapshotReader {
    fn default() -> Self {
        Self {
            machine: Box::new(Machine::new(Epoch::default())),
            pending: Vec::new(),
            hasher: Xxh3Default::new(),
            section: Section::Head,
            begun: false,
            complete: false,
            failed: false,
            vacant: Default::default(),
            vacant_at: 0,
            key_request_order: Vec::new(),
        }
    }
}

impl Machine {
    /// Decodes a complete encoding of the state.
    pub fn decode(bytes: &[u8]) -> Result<Machine, BadSnapshot> {
        let mut reader = SnapshotReader::default();
        reader.push(bytes)?;
        reader.finish()
    }
}

impl SnapshotReader {
    /// Creates a reader for a build that knows levels up to this one.
    pub fn knowing(level: u16) -> Self {
        let mut reader = Self::default();
        reader.machine.level_known = level;
        reader
    }

    /// Decodes the next piece. After an error every further piece fails.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), BadSnapshot> {
        let result = if self.failed { Err(BadSnapshot::Malformed) } else { self.read(bytes) };
        self.failed |= result.is_err();
        result
    }

    fn read(&mut self, mut bytes: &[u8]) -> Result<(), BadSnapshot> {
        if !self.begun {
            let missing = MAGIC.len() - self.pending.len();
            let (head, rest) = bytes.split_at(missing.min(bytes.len()));
            self.pending.extend_from_slice(head);
            bytes = rest;
            if !MAGIC.starts_with(&self.pending) {
                return Err(BadSnapshot::Version);
            }
            if self.pending.len() < MAGIC.len() {
                return Ok(());
            }
            self.hasher.update(MAGIC);
            self.pending.clear();
            self.begun = true;
        }
        self.pending.extend_from_slice(bytes);
        // Taken out so that frames can be read from it. A long frame accumulates here and is not copied again for every
        // piece that it arrives in.
        let mut pending = core::mem::take(&mut self.pending);
        let mut read = 0;
        while let Some((frame, after)) = next_frame(&pending[read..]) {
            let end = pending.len() - after.len();
            self.frame(&pending[read..end], frame)?;
            read = end;
        }
        pending.drain(..read);
        self.pending = pending;
        Ok(())
    }

    /// Returns the state, once every piece was read.
    pub fn finish(mut self) -> Result<Machine, BadSnapshot> {
        if self.failed || !self.complete || !self.pending.is_empty() {
            return Err(BadSnapshot::Incomplete);
        }
        self.machine.rebuild(&self.key_request_order)?;
        if self.machine.check_invariants().is_err() {
            return Err(BadSnapshot::Inconsistent);
        }
        Ok(*self.machine)
    }

    fn frame(&mut self, whole: &[u8], frame: &[u8]) -> Result<(), BadSnapshot> {
        if self.complete {
            return Err(BadSnapshot::Malformed);
        }
        let mut reader = Reader::new(frame);
        let section = Section::from_number(reader.u8()?).ok_or(BadSnapshot::Malformed)?;
        if section < self.section {
            return Err(BadSnapshot::Malformed);
        }
        let first = section > self.section || self.section == Section::Head;
        if section > Section::Vacant && self.section <= Section::Vacant {
            self.vacant_is_complete()?;
        }
        self.section = section;
        if section != Section::End {
            self.hasher.update(whole);
        }
        let level = self.machine.level;
        match section {
            Section::Head if first => self.head(&mut reader)?,
            Section::Head => return Err(BadSnapshot::Malformed),
            Section::Vacant => self.vacant(&mut reader)?,
            Section::Leases => {
                records(&mut reader, level, &mut self.machine.leases, &self.vacant[0])?;
            }
            Section::Locks => {
                records(&mut reader, level, &mut self.machine.locks, &self.vacant[1])?;
            }
            Section::Grants => {
                records(&mut reader, level, &mut self.machine.grants, &self.vacant[2])?;
            }
            Section::Places => {
                records(&mut reader, level, &mut self.machine.places, &self.vacant[3])?;
            }
            Section::Waits => {
                records(&mut reader, level, &mut self.machine.waits, &self.vacant[4])?;
            }
            Section::Keys => records(&mut reader, level, &mut self.machine.keys, &self.vacant[5])?,
            Section::SeqRequests => {
                records(&mut reader, level, &mut self.machine.seq_requests, &self.vacant[6])?;
            }
            Section::KeyRequests => {
                records(&mut reader, level, &mut self.machine.key_requests, &self.vacant[7])?;
            }
            Section::KeyRequestOrder => {
                while !reader.is_empty() {
                    self.key_request_order.push(get_slot(&mut reader)?);
                }
            }
            Section::History => self.history(&mut reader)?,
            Section::End => self.end(&mut reader)?,
        }
        reader.end()?;
        Ok(())
    }

    fn head(&mut self, reader: &mut Reader<'_>) -> Result<(), BadSnapshot> {
        let (head, limits) = get_head(reader)?;
        let machine = &mut self.machine;
        if head.level > machine.level_known {
            return Err(BadSnapshot::Level { level: head.level, known: machine.level_known });
        }
        machine.clock_ms = head.clock_ms;
        machine.clock_term = head.clock_term;
        machine.base_ms = head.base_ms;
        machine.epoch = head.epoch;
        machine.counter = head.counter;
        machine.revision = head.revision;
        machine.newest_place = head.newest_place;
        machine.leases_granted = head.leases_granted;
        machine.level = head.level;
        machine.quiet_until_ms = head.quiet_until_ms;
        machine.deadlock_searches_cut = head.deadlock_searches_cut;
        machine.rolling_hash = head.rolling_hash;
        machine.limits = limits;
        machine.access = head.access;
        machine.drains = head.drains;
        machine.reopening = head.reopening;
        for (id, name, revoked_ms) in head.owners {
            if !machine.owners.insert(id, name, revoked_ms) {
                return Err(BadSnapshot::Inconsistent);
            }
        }
        machine.history = History::new(head.floor);
        // The head is accepted once: only later sections may follow it.
        self.section = Section::Vacant;
        Ok(())
    }

    fn vacant(&mut self, reader: &mut Reader<'_>) -> Result<(), BadSnapshot> {
        if self.vacant_at > 0 {
            let current = &mut self.vacant[self.vacant_at - 1];
            if current.order.len() < current.len {
                while !reader.is_empty() {
                    current.order.push(get_slot(reader)?);
                }
                return Ok(());
            }
        }
        let next = self.vacant.get_mut(self.vacant_at).ok_or(BadSnapshot::Malformed)?;
        next.used = usize::try_from(reader.number()?).map_err(|_| Malformed)?;
        next.len = usize::try_from(reader.number()?).map_err(|_| Malformed)?;
        self.vacant_at += 1;
        Ok(())
    }

    fn vacant_is_complete(&self) -> Result<(), BadSnapshot> {
        let complete = self.section == Section::Vacant
            && self.vacant_at == SLABS
            && self.vacant.iter().all(|vacant| vacant.order.len() == vacant.len);
        if complete { Ok(()) } else { Err(BadSnapshot::Malformed) }
    }

    fn history(&mut self, reader: &mut Reader<'_>) -> Result<(), BadSnapshot> {
        while !reader.is_empty() {
            let revision = reader.revision()?;
            let events = reader.bytes()?;
            self.machine.history.append_record(revision, events)?;
        }
        Ok(())
    }

    fn end(&mut self, reader: &mut Reader<'_>) -> Result<(), BadSnapshot> {
        if get_hash(reader)? != self.hasher.digest128() {
            return Err(BadSnapshot::Hash);
        }
        let machine = &mut self.machine;
        let [leases, locks, grants, places, waits, keys, seq_requests, key_requests] = &self.vacant;
        let ordered = order(&mut machine.leases, leases)
            && order(&mut machine.locks, locks)
            && order(&mut machine.grants, grants)
            && order(&mut machine.places, places)
            && order(&mut machine.waits, waits)
            && order(&mut machine.keys, keys)
            && order(&mut machine.seq_requests, seq_requests)
            && order(&mut machine.key_requests, key_requests);
        if !ordered {
            return Err(BadSnapshot::Inconsistent);
        }
        self.complete = true;
        Ok(())
    }
}

/// The hash with which a snapshot with these bytes ahead of its last frame ends.
pub fn snapshot_hash(bytes: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128(bytes)
}

/// Splits off the first frame, if it is complete.
fn next_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)
}

fn records<T: SnapshotRecord + Clone>(
    reader: &mut Reader<'_>,
    level: u16,
    slab: &mut Slab<T>,
    vacant: &Vacant,
) -> Result<(), BadSnapshot> {
    while !reader.is_empty() {
        let slot = get_slot(reader)?;
        // Every slot below is a record that was read or a vacant slot that was listed, so that no slot number can make
        // the slab grow beyond what was sent.
        if slot.index() > slab.len() + vacant.order.len() {
            return Err(BadSnapshot::Inconsistent);
        }
        if !slab.place(slot, T::get(reader, level)?) {
            return Err(BadSnapshot::Inconsistent);
        }
    }
    Ok(())
}

fn order<T: Clone>(slab: &mut Slab<T>, vacant: &Vacant) -> bool {
    // The same bound: no more slots than were sent.
    vacant.used <= slab.len() + vacant.order.len() && slab.order_vacant(vacant.used, &vacant.order)
}
