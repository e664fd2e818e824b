//! Encodes and decodes each kind of record in a snapshot.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::{NonZeroU32, NonZeroU64};
use tenure_types::{Epoch, LeaseId, Limit, Limits, Name, PlaceNumber, Revision, Term, Token};

use super::drains::{get_drains, put_drains};
use super::options::{get_options, put_options};
use crate::access::Access;
use crate::codec::access::{get_access, put_access};
use crate::codec::request::{get_lease_id, get_priority};
use crate::codec::{Malformed, Reader, Writer, get_outcome, put_outcome};
use crate::command::Reopening;
use crate::machine::{LEVEL_MAX, Machine};
use crate::request::{
    LEVEL_ABANDON, LEVEL_ACCESS, LEVEL_ANY, LEVEL_HAND_ON, LEVEL_MIN_HOLD, LEVEL_POLICY,
    LEVEL_PRIORITY, LEVEL_REOPENING, LEVEL_REPAIRED_SHARES, LEVEL_SHARES,
};
use crate::state::drain::Drains;
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

/// The parts of the state that are numbers rather than records.
#[derive(Clone, Debug)]
pub(super) struct SnapshotHead {
    pub(super) clock_ms: u64,
    pub(super) clock_term: Term,
    pub(super) base_ms: u64,
    pub(super) epoch: Epoch,
    pub(super) counter: u64,
    pub(super) revision: Revision,
    pub(super) newest_place: PlaceNumber,
    pub(super) leases_granted: u64,
    pub(super) level: u16,
    pub(super) quiet_until_ms: Option<u64>,
    pub(super) deadlock_searches_cut: u64,
    pub(super) rolling_hash: u128,
    pub(super) floor: Revision,
    pub(super) access: Arc<Access>,
    /// The number, the name and the time of revocation of each owner.
    pub(super) owners: Vec<(OwnerId, Name, Option<u64>)>,
    pub(super) drains: Drains,
    pub(super) reopening: Option<Reopening>,
}

impl SnapshotHead {
    pub(super) fn of(machine: &Machine) -> Self {
        Self {
            clock_ms: if mutant!("clock_not_in_snapshot") { 0 } else { machine.clock_ms },
            clock_term: machine.clock_term,
            base_ms: if mutant!("clock_base_not_in_snapshot") { 0 } else { machine.base_ms },
            epoch: machine.epoch,
            counter: if mutant!("token_counter_not_in_snapshot") { 0 } else { machine.counter },
            revision: machine.revision,
            newest_place: machine.newest_place,
            leases_granted: machine.leases_granted,
            level: machine.level,
            quiet_until_ms: machine.quiet_until_ms,
            deadlock_searches_cut: machine.deadlock_searches_cut,
            rolling_hash: machine.rolling_hash,
            floor: machine.history.floor(),
            access: Arc::clone(&machine.access),
            owners: machine
                .owners
                .iter()
                .map(|(id, owner)| (id, owner.name.clone(), owner.revoked_ms))
                .collect(),
            drains: if mutant!("drains_not_in_snapshot") {
                Drains::default()
            } else {
                machine.drains.clone()
            },
            reopening: machine.reopening.filter(|_| !mutant!("reopening_not_in_snapshot")),
        }
    }
}

pub(super) fn put_head(out: &mut Vec<u8>, head: &SnapshotHead, limits: &Limits) {
    out.put(head.clock_ms);
    out.put(head.clock_term.0);
    out.put(head.base_ms);
    out.put(u64::from(head.epoch.get()));
    out.put(head.counter);
    out.put(head.revision.0);
    out.put(head.newest_place.0);
    out.put(head.leases_granted);
    out.put(u64::from(head.level));
    out.put_optional(head.quiet_until_ms);
    out.put(head.deadlock_searches_cut);
    out.put_raw(&head.rolling_hash.to_le_bytes());
    out.put(head.floor.0);
    out.put(Limit::all().count() as u64);
    Limit::all().for_each(|limit| out.put(limits.get(limit)));
    if head.level >= LEVEL_ACCESS {
        put_access(out, &head.access, head.level);
        out.put(head.owners.len() as u64);
        for (id, name, revoked_ms) in &head.owners {
            out.put(u64::from(id.number()));
            out.put_name(name);
            out.put_optional(*revoked_ms);
        }
    }
    if head.level >= LEVEL_POLICY {
        put_drains(out, &head.drains);
    }
    if head.level >= LEVEL_REOPENING {
        out.put_optional(head.reopening.map(|reopening| reopening.since_ms));
        if let Some(Reopening { after, .. }) = head.reopening {
            out.put_optional(after.map(LeaseId::get));
        }
    }
}

pub(super) fn get_head(reader: &mut Reader<'_>) -> Result<(SnapshotHead, Limits), Malformed> {
    let mut head = SnapshotHead {
        clock_ms: get_time(reader)?,
        clock_term: Term(reader.number()?),
        base_ms: get_time(reader)?,
        epoch: Epoch::new(reader.u16()?).ok_or(Malformed)?,
        counter: get_counter(reader)?,
        revision: get_revision(reader)?,
        newest_place: PlaceNumber(get_count(reader)?),
        leases_granted: get_count(reader)?,
        level: reader.u16()?,
        quiet_until_ms: get_optional_time(reader)?,
        deadlock_searches_cut: get_count(reader)?,
        rolling_hash: get_hash(reader)?,
        floor: reader.revision()?,
        access: Arc::default(),
        owners: Vec::new(),
        drains: Drains::default(),
        reopening: None,
    };
    let mut limits = Limits::default();
    if reader.number()? != Limit::all().count() as u64 {
        return Err(Malformed);
    }
    for limit in Limit::all() {
        if !limits.set(limit, reader.number()?) {
            return Err(Malformed);
        }
    }
    if limits.get(Limit::TtlMinMs) > limits.get(Limit::TtlMaxMs) {
        return Err(Malformed);
    }
    // A level that this build does not know may have another form.
    if (LEVEL_ACCESS..=LEVEL_MAX).contains(&head.level) {
        head.access = Arc::new(get_access(reader, head.level)?);
        let len = reader.len(4)?;
        for _ in 0..len {
            let id = OwnerId::from_number(reader.u32()?).ok_or(Malformed)?;
            let owner = (id, reader.name()?, get_optional_time(reader)?);
            // Equal states have equal bytes, so there is one order.
            if head.owners.last().is_some_and(|(last, _, _)| *last >= id) {
                return Err(Malformed);
            }
            head.owners.push(owner);
        }
    }
    if (LEVEL_POLICY..=LEVEL_MAX).contains(&head.level) {
        head.drains = get_drains(reader)?;
    }
    if (LEVEL_REOPENING..=LEVEL_MAX).contains(&head.level)
        && let Some(since_ms) = get_optional_time(reader)?
    {
        let after = reader.optional()?.map(|id| LeaseId::new(id).ok_or(Malformed)).transpose()?;
        head.reopening = Some(Reopening { since_ms, after });
    }
    Ok((head, limits))
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
fn get_count(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let count = reader.number()?;
    if count > 1 << 62 { Err(Malformed) } else { Ok(count) }
}

/// Reads the newest revision, which fits a signed integer in every epoch.
fn get_revision(reader: &mut Reader<'_>) -> Result<Revision, Malformed> {
    let revision = reader.revision()?;
    if revision.0 > i64::MAX as u64 { Err(Malformed) } else { Ok(revision) }
}

fn get_counter(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let counter = reader.number()?;
    if counter > Token::COUNTER_MAX { Err(Malformed) } else { Ok(counter) }
}

pub(super) fn get_time(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let time = reader.number()?;
    if time > CLOCK_MAX { Err(Malformed) } else { Ok(time) }
}

fn get_optional_time(reader: &mut Reader<'_>) -> Result<Option<u64>, Malformed> {
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
        out.put_raw(&self.hash.to_le_bytes());
        out.put(self.since_ms);
        put_remembered(out, &self.answer, level);
    }

    fn get(reader: &mut Reader<'_>, level: u16) -> Result<Self, Malformed> {
        Ok(KeyRequest {
            principal: Box::from(reader.text()?),
            key: reader.name()?,
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
