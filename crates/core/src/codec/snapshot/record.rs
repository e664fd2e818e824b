//! Encodes and decodes each kind of record in a snapshot.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::{NonZeroU32, NonZeroU64};
use tenure_types::{LeaseId, PlaceNumber, Revision, Token};

use super::options::{get_options, put_options};
use crate::codec::request::{get_lease_id, get_priority};
use crate::codec::{Malformed, Reader, Writer, get_outcome, put_outcome};
use crate::request::{
    LEVEL_ABANDON, LEVEL_ACCESS, LEVEL_ANY, LEVEL_FAIR_RECORDS, LEVEL_HAND_ON, LEVEL_MIN_HOLD,
    LEVEL_POLICY, LEVEL_PRIORITY, LEVEL_REPAIRED_SHARES, LEVEL_SHARES,
};
use crate::state::due::CLOCK_MAX;
use crate::state::list::{LinkedList, ListLink};
use crate::state::owner::OwnerId;
use crate::state::record::{
    AskCount, AskRecord, EndedGrant, Grant, GrantMode, GrantPhase, GrantState, HeldRecord, Key,
    KeyRequest, Lease, Lock, Place, Remembered, SeqRequest, WaitRecord,
};
use crate::state::slab::SlabIndex;

/// A record that can be encoded and decoded. Links are derived: decoding leaves them empty. The level of the state
/// decides which parts a record has, so that members of different versions write the same bytes as long as they apply
/// at the same level.
pub(super) trait SnapshotRecord: Sized {
    fn put(&self, out: &mut Vec<u8>, level: u16);
    fn get(reader: &mut Reader<'_>, level: u16) -> Result<Self, Malformed>;
}

pub(super) fn get_hash(reader: &mut Reader<'_>) -> Result<u128, Malformed> {
    let bytes = reader.raw(16)?.try_into().map_err(|_| Malformed)?;
    Ok(u128::from_le_bytes(bytes))
}

pub(super) fn get_slot(reader: &mut Reader<'_>) -> Result<SlabIndex, Malformed> {
    SlabIndex::from_number(reader.u32()?).ok_or(Malformed)
}

fn put_slot(out: &mut Vec<u8>, slot: SlabIndex) {
    out.put(u64::from(slot.number()));
}

/// Reads a counter that grows by one at a time, and so never gets near the end of its range by counting.
pub(super) fn get_count(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let count = reader.number()?;
    if count > 1 << 62 { Err(Malformed) } else { Ok(count) }
}

/// Reads the newest revision, which fits a signed integer in every epoch.
pub(super) fn get_revision(reader: &mut Reader<'_>) -> Result<Revision, Malformed> {
    let revision = reader.revision()?;
    if revision.0 > i64::MAX as u64 { Err(Malformed) } else { Ok(revision) }
}

pub(super) fn get_counter(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let counter = reader.number()?;
    if counter > Token::COUNTER_MAX { Err(Malformed) } else { Ok(counter) }
}

pub(super) fn get_time(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let time = reader.number()?;
    if time > CLOCK_MAX { Err(Malformed) } else { Ok(time) }
}

pub(super) fn get_optional_time(reader: &mut Reader<'_>) -> Result<Option<u64>, Malformed> {
    let time = reader.optional()?;
    if time.is_some_and(|time| time > CLOCK_MAX) { Err(Malformed) } else { Ok(time) }
}

/// Writes the owner, which exists from a level on.
fn put_owner(out: &mut Vec<u8>, owner: Option<OwnerId>, level: u16) {
    if level >= LEVEL_ACCESS {
        out.put(owner.map_or(0, |owner| u64::from(owner.number())));
    }
}

fn get_owner(reader: &mut Reader<'_>, level: u16) -> Result<Option<OwnerId>, Malformed> {
    if level >= LEVEL_ACCESS { Ok(OwnerId::from_number(reader.u32()?)) } else { Ok(None) }
}

impl SnapshotRecord for Lease {
    fn put(&self, out: &mut Vec<u8>, level: u16) {
        out.put(self.id.get());
        out.put(self.created.0);
        out.put(self.generation);
        out.put(u64::from(self.ttl_ms));
        out.put(self.deadline_ms);
        out.put_name(&self.client);
        out.put_bytes(self.metadata());
        out.put(self.changed.0);
        out.put(if mutant!("requests_not_in_snapshot") { 0 } else { self.done });
        put_owner(out, self.owner, level);
    }

    fn get(reader: &mut Reader<'_>, level: u16) -> Result<Self, Malformed> {
        Ok(Lease {
            id: get_lease_id(reader)?,
            created: reader.revision()?,
            generation: reader.number()?,
            ttl_ms: reader.u32()?,
            deadline_ms: get_time(reader)?,
            client: reader.name()?,
            metadata: match reader.bytes()? {
                [] => None,
                bytes => Some(Box::new(Box::from(bytes))),
            },
            changed: reader.revision()?,
            grants: LinkedList::default(),
            places: LinkedList::default(),
            waits: 0,
            keys: LinkedList::default(),
            done: reader.number()?,
            requests: LinkedList::default(),
            owner: get_owner(reader, level)?,
        })
    }
}

/// Added to the number of slots of a lock if an operator set it.
const SIZED: u64 = 1 << 32;

impl SnapshotRecord for Lock {
    fn put(&self, out: &mut Vec<u8>, _level: u16) {
        out.put_name(&self.name);
        out.put(self.created.0);
        out.put(self.modified.0);
        out.put(self.version);
        let sized = if self.sized && !mutant!("size_not_in_snapshot") { SIZED } else { 0 };
        out.put(u64::from(self.slots.map_or(0, NonZeroU32::get)) | sized);
    }

    fn get(reader: &mut Reader<'_>, level: u16) -> Result<Self, Malformed> {
        let mut lock = Lock {
            name: reader.name()?,
            created: reader.revision()?,
            modified: reader.revision()?,
            version: get_count(reader)?,
            slots: None,
            sized: false,
            grants: LinkedList::default(),
            queue: LinkedList::default(),
        };
        let slots = reader.number()?;
        lock.sized = slots & SIZED != 0;
        lock.slots = NonZeroU32::new(u32::try_from(slots & !SIZED).map_err(|_| Malformed)?);
        let known = !lock.sized || level >= LEVEL_SHARES && lock.slots.is_some();
        if known { Ok(lock) } else { Err(Malformed) }
    }
}

impl SnapshotRecord for Grant {
    fn put(&self, out: &mut Vec<u8>, level: u16) {
        put_slot(out, self.lock);
        out.put(self.token.get());
        out.put(self.place.0);
        out.put(self.since_ms);
        match &self.state {
            GrantState::Held(lease) => {
                out.put_u8(0);
                put_slot(out, *lease);
            }
            GrantState::Over(over) => {
                out.put_u8(match over.phase {
                    GrantPhase::Cooling => 1,
                    GrantPhase::Delayed => 2,
                    GrantPhase::Resting => 3,
                });
                out.put(over.until_ms);
                out.put(over.lease.get());
                out.put(over.created.0);
                out.put_name(&over.client);
                put_owner(out, over.owner, level);
            }
        }
        put_options(out, &self.options);
        match self.mode {
            GrantMode::Exclusive => out.put_u8(0),
            GrantMode::Shared => out.put_u8(1),
            GrantMode::Slot(slot) => {
                out.put_u8(2);
                out.put(u64::from(slot));
            }
        }
        put_asks(out, self.asks, level);
    }

    fn get(reader: &mut Reader<'_>, level: u16) -> Result<Self, Malformed> {
        Ok(Grant {
            lock: get_slot(reader)?,
            token: reader.token()?,
            place: PlaceNumber(reader.number()?),
            since_ms: get_time(reader)?,
            state: match reader.u8()? {
                0 => GrantState::Held(get_slot(reader)?),
                phase @ 1..=3 => GrantState::Over(Box::new(EndedGrant {
                    phase: match phase {
                        1 => GrantPhase::Cooling,
                        2 => GrantPhase::Delayed,
                        _ if level >= LEVEL_MIN_HOLD => GrantPhase::Resting,
                        _ => return Err(Malformed),
                    },
                    until_ms: get_time(reader)?,
                    lease: get_lease_id(reader)?,
                    created: reader.revision()?,
                    client: reader.name()?,
                    owner: get_owner(reader, level)?,
                })),
                _ => return Err(Malformed),
            },
            options: get_options(reader, level)?,
            mode: match reader.u8()? {
                0 => GrantMode::Exclusive,
                1 => GrantMode::Shared,
                2 => GrantMode::Slot(reader.u32()?),
                _ => return Err(Malformed),
            },
            asks: get_asks(reader, level)?,
            in_lock: ListLink::default(),
            in_lease: ListLink::default(),
        })
    }
}

impl SnapshotRecord for Place {
    fn put(&self, out: &mut Vec<u8>, level: u16) {
        out.put(self.number.0);
        put_slot(out, self.lease);
        out.put(self.created.0);
        out.put(self.since_ms);
        out.put_optional(self.until_ms.map(NonZeroU64::get));
        put_options(out, &self.options);
        let priority = if mutant!("priority_not_in_snapshot") { 0 } else { self.priority };
        let upgrade = self.upgrade && !mutant!("upgrade_not_in_snapshot");
        // Only a request of a level that has groups, priorities, upgrades and choices can have brought one.
        out.put_u8(
            u8::from(self.independent)
                | u8::from(self.group.is_some()) << 1
                | u8::from(priority > 0) << 2
                | u8::from(upgrade) << 3
                | u8::from(self.any && !mutant!("any_not_in_snapshot")) << 4
                | u8::from(self.pool.is_some()) << 5,
        );
        if let Some(group) = &self.group {
            out.put_name(group);
        }
        if priority > 0 {
            out.put_u8(priority);
        }
        if let Some(pool) = &self.pool {
            out.put_name(pool);
        }
        put_asks(out, self.asks, level);
    }

    fn get(reader: &mut Reader<'_>, level: u16) -> Result<Self, Malformed> {
        let number = PlaceNumber(reader.number()?);
        let lease = get_slot(reader)?;
        let mut place = Place {
            number,
            lease,
            // A placeholder, replaced when the waits are read. A place without any wait is rejected then.
            first: lease,
            created: reader.revision()?,
            since_ms: get_time(reader)?,
            until_ms: match get_optional_time(reader)? {
                None => None,
                Some(until_ms) => Some(NonZeroU64::new(until_ms).ok_or(Malformed)?),
            },
            options: get_options(reader, level)?,
            group: None,
            independent: false,
            upgrade: false,
            any: false,
            pool: None,
            priority: 0,
            asks: AskCount::first(level),
            in_lease: ListLink::default(),
        };
        let flags = reader.u8()?;
        let known = match level {
            LEVEL_ANY.. => 63,
            LEVEL_HAND_ON.. => 15,
            LEVEL_PRIORITY.. => 7,
            LEVEL_POLICY.. => 3,
            _ => 1,
        };
        if flags > known {
            return Err(Malformed);
        }
        place.independent = flags & 1 == 1;
        if flags & 2 == 2 {
            place.group = Some(Box::new(reader.name()?));
        }
        if flags & 4 == 4 {
            place.priority = get_priority(reader)?;
        }
        place.upgrade = flags & 8 == 8;
        place.any = flags & 16 == 16;
        if flags & 32 == 32 {
            place.pool = Some(Box::new(reader.name()?));
        }
        place.asks = get_asks(reader, level)?;
        Ok(place)
    }
}

impl SnapshotRecord for WaitRecord {
    fn put(&self, out: &mut Vec<u8>, _level: u16) {
        put_slot(out, self.place);
        put_slot(out, self.lock);
        out.put_mode(self.mode);
    }

    fn get(reader: &mut Reader<'_>, level: u16) -> Result<Self, Malformed> {
        let wait = WaitRecord {
            place: get_slot(reader)?,
            lock: get_slot(reader)?,
            mode: reader.mode()?,
            next: None,
            in_queue: ListLink::default(),
        };
        if wait.mode.grants() > 1 && level < LEVEL_SHARES { Err(Malformed) } else { Ok(wait) }
    }
}

impl SnapshotRecord for Key {
    fn put(&self, out: &mut Vec<u8>, level: u16) {
        out.put_name(&self.name);
        out.put_bytes(&self.value);
        out.put(self.created.0);
        out.put(self.modified.0);
        out.put(self.version);
        out.put_optional(self.lease.map(|lease| u64::from(lease.number())));
        put_owner(out, self.owner, level);
    }

    fn get(reader: &mut Reader<'_>, level: u16) -> Result<Self, Malformed> {
        Ok(Key {
            name: reader.name()?,
            value: Box::from(reader.bytes()?),
            created: reader.revision()?,
            modified: reader.revision()?,
            version: get_count(reader)?,
            lease: match reader.optional()? {
                None => None,
                Some(number) => {
                    let number = u32::try_from(number).map_err(|_| Malformed)?;
                    Some(SlabIndex::from_number(number).ok_or(Malformed)?)
                }
            },
            owner: get_owner(reader, level)?,
            in_lease: ListLink::default(),
        })
    }
}

impl SnapshotRecord for SeqRequest {
    fn put(&self, out: &mut Vec<u8>, level: u16) {
        put_slot(out, self.lease);
        out.put(self.seq);
        out.put_raw(&self.hash.to_le_bytes());
        put_remembered(out, &self.answer, level);
    }

    fn get(reader: &mut Reader<'_>, level: u16) -> Result<Self, Malformed> {
        Ok(SeqRequest {
            lease: get_slot(reader)?,
            seq: reader.number()?,
            hash: get_u64(reader)?,
            answer: get_remembered(reader, level)?,
            in_lease: ListLink::default(),
        })
    }
}

impl SnapshotRecord for KeyRequest {
    fn put(&self, out: &mut Vec<u8>, level: u16) {
        out.put_bytes(self.principal.as_bytes());
        out.put_name(&self.key);
        if level >= LEVEL_FAIR_RECORDS {
            out.put_optional(self.lease.map(LeaseId::get));
        }
        out.put_raw(&self.hash.to_le_bytes());
        out.put(self.since_ms);
        put_remembered(out, &self.answer, level);
    }

    fn get(reader: &mut Reader<'_>, level: u16) -> Result<Self, Malformed> {
        let principal: Box<str> = Box::from(reader.text()?);
        let key = reader.name()?;
        let number = if level >= LEVEL_FAIR_RECORDS { reader.optional()? } else { None };
        let lease = number.map(|id| LeaseId::new(id).ok_or(Malformed)).transpose()?;
        // The records of a principal are its own, whatever lease it named.
        if lease.is_some() && !principal.is_empty() {
            return Err(Malformed);
        }
        Ok(KeyRequest {
            principal,
            key,
            lease,
            hash: get_u64(reader)?,
            since_ms: get_time(reader)?,
            answer: get_remembered(reader, level)?,
            in_order: ListLink::default(),
        })
    }
}

fn get_u64(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let bytes = reader.raw(8)?.try_into().map_err(|_| Malformed)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Writes the request count, which exists from a level on.
fn put_asks(out: &mut Vec<u8>, asks: AskCount, level: u16) {
    if level >= LEVEL_ABANDON {
        out.put(u64::from(asks.0));
    }
}

fn get_asks(reader: &mut Reader<'_>, level: u16) -> Result<AskCount, Malformed> {
    if level >= LEVEL_ABANDON { Ok(AskCount(reader.u32()?)) } else { Ok(AskCount::first(level)) }
}

fn put_remembered(out: &mut Vec<u8>, answer: &Remembered, level: u16) {
    match answer {
        Remembered::Ask(ask) => {
            out.put_u8(0);
            out.put(ask.lease.get());
            out.put(ask.created.0);
            out.put(ask.place.0);
            put_asks(out, ask.asks, level);
        }
        Remembered::Outcome(outcome) => {
            out.put_u8(1);
            put_outcome(out, outcome, level);
        }
        Remembered::Held(held) => {
            out.put_u8(2);
            out.put(held.lease.get());
            out.put(held.created.0);
            out.put(held.place.0);
        }
    }
}

fn get_remembered(reader: &mut Reader<'_>, level: u16) -> Result<Remembered, Malformed> {
    match reader.u8()? {
        0 => Ok(Remembered::Ask(AskRecord {
            lease: get_lease_id(reader)?,
            created: reader.revision()?,
            place: PlaceNumber(reader.number()?),
            asks: get_asks(reader, level)?,
        })),
        1 => Ok(Remembered::Outcome(Box::new(get_outcome(reader)?))),
        2 if level >= LEVEL_REPAIRED_SHARES => Ok(Remembered::Held(HeldRecord {
            lease: get_lease_id(reader)?,
            created: reader.revision()?,
            place: PlaceNumber(reader.number()?),
        })),
        _ => Err(Malformed),
    }
}
