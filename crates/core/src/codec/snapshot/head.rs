//! Encodes and decodes the head of a snapshot: everything that is not a record.

use alloc::sync::Arc;
use alloc::vec::Vec;
use tenure_types::{Epoch, LeaseId, Limit, Limits, Name, PlaceNumber, Revision, Term};

use super::drains::{get_drains, put_drains};
use super::record::{get_count, get_counter, get_hash, get_optional_time, get_revision, get_time};
use crate::access::Access;
use crate::codec::access::{get_access, put_access};
use crate::codec::{Malformed, Reader, Writer};
use crate::command::Reopening;
use crate::machine::{LEVEL_MAX, Machine};
use crate::request::{LEVEL_ACCESS, LEVEL_POLICY, LEVEL_REOPENING};
use crate::state::drain::Drains;
use crate::state::owner::OwnerId;

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
        if let Some(Reopening { after, again, .. }) = head.reopening {
            out.put_optional(after.map(LeaseId::get));
            out.put(u64::from(again));
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
        let again = reader.flag()?;
        // A round that has not begun is not followed by another one: equal states have equal bytes.
        if again && after.is_none() {
            return Err(Malformed);
        }
        head.reopening = Some(Reopening { since_ms, after, again });
    }
    Ok((head, limits))
}
