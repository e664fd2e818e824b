//! Encodes and decodes outcomes, which members remember, hash and forward.

use alloc::boxed::Box;
use alloc::vec::Vec;
use tenure_types::{
    Draining, Handle, Held, Holder, HolderState, Limit, PlaceNumber, Quota, QuotaSource, Refusal,
    RingLink, SupersededBy, Verb,
};

use super::access::{get_quota_setter, put_quota_setter};
use super::request::get_lease_id;
use super::{Malformed, Reader, Writer};
use crate::level::{LEVEL_REPAIRED_SHARES, LEVEL_SHARES};
use crate::outcome::{
    Acquired, Answer, Grants, KeyWritten, LeaseGrant, LockGrant, Outcome, Queued, Renewal,
};

/// Encodes an outcome, to be sent to the member that forwarded the command, in the form that members of all levels
/// read.
pub fn encode_outcome(outcome: &Outcome, out: &mut Vec<u8>) {
    put_outcome(out, outcome, LEVEL_SHARES);
}

/// Decodes an outcome that [`encode_outcome`] wrote.
pub fn decode_outcome(bytes: &[u8]) -> Result<Outcome, Malformed> {
    let mut reader = Reader::new(bytes);
    let outcome = get_outcome(&mut reader)?;
    reader.end()?;
    Ok(outcome)
}

pub(crate) fn put_outcome(out: &mut Vec<u8>, outcome: &Outcome, level: u16) {
    out.put(outcome.revision.0);
    match &outcome.result {
        Ok(answer) => {
            out.put_u8(0);
            put_answer(out, answer, level);
        }
        Err(refusal) => {
            out.put_u8(1);
            put_refusal(out, refusal);
        }
    }
}

pub(crate) fn get_outcome(reader: &mut Reader<'_>) -> Result<Outcome, Malformed> {
    let revision = reader.revision()?;
    let result = match reader.u8()? {
        0 => Ok(get_answer(reader)?),
        1 => Err(get_refusal(reader)?),
        _ => return Err(Malformed),
    };
    Ok(Outcome { revision, result })
}

fn put_answer(out: &mut Vec<u8>, answer: &Answer, level: u16) {
    match answer {
        Answer::Acquired(acquired) => {
            out.put_u8(4);
            put_lease(out, &acquired.lease);
            out.put(acquired.place.0);
            put_grants(out, &acquired.grants, level);
        }
        Answer::Queued(queued) => {
            out.put_u8(5);
            put_lease(out, &queued.lease);
            out.put(queued.place.0);
            out.put(queued.ahead);
        }
        Answer::Released => out.put_u8(7),
        other => put_rarer_answer(out, other, level),
    }
}

/// Writes the answers that are not by far the most frequent. Out of line, so that writing those takes little room in
/// the processor's instruction cache.
#[inline(never)]
fn put_rarer_answer(out: &mut Vec<u8>, answer: &Answer, level: u16) {
    match answer {
        Answer::Acquired(_) | Answer::Queued(_) | Answer::Released => {
            unreachable!("the caller writes these")
        }
        Answer::LeaseGranted(lease) => {
            out.put_u8(1);
            put_lease(out, lease);
        }
        Answer::Renewed(renewals) => {
            out.put_u8(2);
            out.put(renewals.len() as u64);
            for renewal in renewals {
                match renewal {
                    None => out.put_u8(0),
                    Some(renewal) => {
                        out.put_u8(1);
                        out.put(renewal.ttl_ms);
                        out.put(renewal.changed.0);
                    }
                }
            }
        }
        Answer::Revoked => out.put_u8(3),
        Answer::Ended => out.put_u8(6),
        Answer::Left => out.put_u8(8),
        Answer::AlreadyHeld(grants) => {
            out.put_u8(9);
            put_grants(out, grants, level);
        }
        Answer::Downgraded { token } => {
            out.put_u8(10);
            out.put(token.get());
        }
        Answer::Updated { version } => {
            out.put_u8(11);
            out.put(*version);
        }
        Answer::Forced { left_ms } => {
            out.put_u8(12);
            out.put(*left_ms);
        }
        Answer::Stopped => out.put_u8(13),
        Answer::Put(written) => {
            out.put_u8(14);
            out.put(written.version);
            out.put(written.created.0);
        }
        Answer::Deleted { existed } => {
            out.put_u8(15);
            out.put_u8(u8::from(*existed));
        }
        Answer::LimitsSet => out.put_u8(16),
        Answer::Compacted { floor } => {
            out.put_u8(17);
            out.put(floor.0);
        }
        Answer::LevelRaised => out.put_u8(18),
        Answer::Abandoned { released } => {
            out.put_u8(19);
            out.put_u8(u8::from(*released));
        }
        Answer::AccessSet => out.put_u8(20),
        Answer::Drained => out.put_u8(21),
        Answer::Undrained { existed } => {
            out.put_u8(22);
            out.put_u8(u8::from(*existed));
        }
        Answer::Progressed { left_ms } => {
            out.put_u8(23);
            out.put_optional(*left_ms);
        }
        Answer::HandedOn { token } => {
            out.put_u8(24);
            out.put(token.get());
        }
        Answer::Resized => out.put_u8(25),
    }
}

fn get_answer(reader: &mut Reader<'_>) -> Result<Answer, Malformed> {
    Ok(match reader.u8()? {
        1 => Answer::LeaseGranted(get_lease(reader)?),
        2 => {
            let len = reader.len(1)?;
            let renewal = |reader: &mut Reader<'_>| {
                if !reader.flag()? {
                    return Ok(None);
                }
                Ok(Some(Renewal { ttl_ms: reader.number()?, changed: reader.revision()? }))
            };
            Answer::Renewed((0..len).map(|_| renewal(reader)).collect::<Result<_, _>>()?)
        }
        3 => Answer::Revoked,
        4 => Answer::Acquired(Acquired {
            lease: get_lease(reader)?,
            place: PlaceNumber(reader.number()?),
            grants: get_grants(reader)?,
        }),
        5 => Answer::Queued(Queued {
            lease: get_lease(reader)?,
            place: PlaceNumber(reader.number()?),
            ahead: reader.number()?,
        }),
        6 => Answer::Ended,
        7 => Answer::Released,
        8 => Answer::Left,
        9 => Answer::AlreadyHeld(get_grants(reader)?),
        10 => Answer::Downgraded { token: reader.token()? },
        11 => Answer::Updated { version: reader.number()? },
        12 => Answer::Forced { left_ms: reader.number()? },
        13 => Answer::Stopped,
        14 => Answer::Put(KeyWritten { version: reader.number()?, created: reader.revision()? }),
        15 => Answer::Deleted { existed: reader.flag()? },
        16 => Answer::LimitsSet,
        17 => Answer::Compacted { floor: reader.revision()? },
        18 => Answer::LevelRaised,
        19 => Answer::Abandoned { released: reader.flag()? },
        20 => Answer::AccessSet,
        21 => Answer::Drained,
        22 => Answer::Undrained { existed: reader.flag()? },
        23 => Answer::Progressed { left_ms: reader.optional()? },
        24 => Answer::HandedOn { token: reader.token()? },
        25 => Answer::Resized,
        _ => return Err(Malformed),
    })
}

fn put_lease(out: &mut Vec<u8>, lease: &LeaseGrant) {
    out.put(lease.id.get());
    out.put(lease.created.0);
    out.put(u64::from(lease.handle.slot));
    out.put(lease.handle.generation);
    out.put(lease.ttl_ms);
}

fn get_lease(reader: &mut Reader<'_>) -> Result<LeaseGrant, Malformed> {
    Ok(LeaseGrant {
        id: get_lease_id(reader)?,
        created: reader.revision()?,
        handle: Handle { slot: reader.u32()?, generation: reader.number()? },
        ttl_ms: reader.number()?,
    })
}

/// From a level on, the name of a lock is written once for all its slots: an empty name stands for the one before it. A
/// request may take 1,024 slots of a lock whose name has 512 bytes.
fn put_grants(out: &mut Vec<u8>, grants: &Grants, level: u16) {
    let grants = grants.as_slice();
    out.put(grants.len() as u64);
    let mut before = None;
    for grant in grants {
        if level >= LEVEL_REPAIRED_SHARES && before == Some(&grant.lock) {
            out.put_bytes(b"");
        } else {
            out.put_name(&grant.lock);
        }
        before = Some(&grant.lock);
        out.put(grant.token.get());
        out.put_optional(grant.slot.map(u64::from));
    }
}

fn get_grants(reader: &mut Reader<'_>) -> Result<Grants, Malformed> {
    let len = reader.len(3)?;
    let mut before = None;
    let mut grant = |reader: &mut Reader<'_>| {
        let lock = reader.optional_name()?.or_else(|| before.clone()).ok_or(Malformed)?;
        before = Some(lock.clone());
        Ok(LockGrant { lock, token: reader.token()?, slot: get_slot(reader)? })
    };
    (0..len).map(|_| grant(reader)).collect()
}

fn get_slot(reader: &mut Reader<'_>) -> Result<Option<u32>, Malformed> {
    reader.optional()?.map(u32::try_from).transpose().map_err(|_| Malformed)
}

fn put_refusal(out: &mut Vec<u8>, refusal: &Refusal) {
    match refusal {
        Refusal::NotLeader => out.put_u8(1),
        Refusal::Malformed => out.put_u8(2),
        Refusal::InvalidLevel { from, to } => {
            out.put_u8(4);
            out.put(u64::from(*from));
            out.put(u64::from(*to));
        }
        Refusal::InvalidName => out.put_u8(5),
        Refusal::Limit { limit, bound, asked } => {
            out.put_u8(6);
            out.put_u8(*limit as u8);
            out.put(*bound);
            out.put(*asked);
        }
        Refusal::InvalidLimit { limit, asked } => {
            out.put_u8(7);
            out.put_u8(*limit as u8);
            out.put(*asked);
        }
        Refusal::TooManyInCommand { max } => {
            out.put_u8(8);
            out.put(*max);
        }
        Refusal::LeaseNotFound => out.put_u8(9),
        Refusal::LeaseExists { lease } => {
            out.put_u8(10);
            out.put(lease.get());
        }
        Refusal::Held(held) => {
            out.put_u8(11);
            out.put_name(&held.lock);
            put_holder(out, held.holder.as_ref());
            out.put(held.ahead);
        }
        Refusal::WaitTimeout => out.put_u8(12),
        Refusal::Overlap { lock } => {
            out.put_u8(13);
            out.put_name(lock);
        }
        Refusal::Duplicate { lock } => {
            out.put_u8(14);
            out.put_name(lock);
        }
        Refusal::OtherKind { lock, slots } => {
            out.put_u8(15);
            out.put_name(lock);
            out.put_optional(slots.map(u64::from));
        }
        Refusal::Deadlock { ring } => {
            out.put_u8(16);
            out.put(ring.len() as u64);
            for link in ring {
                out.put(link.lease.get());
                out.put_name(&link.client);
                out.put_name(&link.lock);
            }
        }
        Refusal::NotHolder { lock } => {
            out.put_u8(17);
            out.put_name(lock);
        }
        Refusal::NotWaiting { lock } => {
            out.put_u8(18);
            out.put_name(lock);
        }
        Refusal::NotExclusive { lock } => {
            out.put_u8(19);
            out.put_name(lock);
        }
        Refusal::TokenOutdated { lock, holder } => {
            out.put_u8(20);
            out.put_name(lock);
            put_holder(out, holder.as_deref());
        }
        Refusal::NotCooling { lock } => {
            out.put_u8(21);
            out.put_name(lock);
        }
        Refusal::MaxHoldTooShort { ttl_ms } => {
            out.put_u8(22);
            out.put(*ttl_ms);
        }
        Refusal::CompareFailed { modified } => {
            out.put_u8(23);
            out.put_optional(modified.map(|modified| modified.0));
        }
        Refusal::GuardFailed { lock } => {
            out.put_u8(24);
            out.put_name(lock);
        }
        Refusal::RequestStale => out.put_u8(25),
        Refusal::RequestConflict => out.put_u8(26),
        Refusal::RequestWindow { window } => {
            out.put_u8(27);
            out.put(*window);
        }
        Refusal::TokensExhausted => out.put_u8(28),
        Refusal::Quiet { left_ms } => {
            out.put_u8(29);
            out.put(*left_ms);
        }
        Refusal::FutureRevision { asked, newest } => {
            out.put_u8(30);
            out.put(asked.0);
            out.put(newest.0);
        }
        Refusal::Forbidden { verb } => {
            out.put_u8(31);
            out.put_u8(*verb as u8);
        }
        // Answered from level 15 on.
        Refusal::PriorityForbidden { asked, most } => {
            out.put_u8(54);
            out.put_u8(*asked);
            out.put_u8(*most);
        }
        Refusal::Quota { quota, set_by, bound, asked, setter } => {
            out.put_u8(if setter.is_some() { 49 } else { 32 });
            out.put_u8(*quota as u8);
            out.put_u8(u8::from(*set_by == QuotaSource::Principal));
            out.put(*bound);
            out.put(*asked);
            // Answered from level 5 on.
            if let Some(setter) = setter {
                put_quota_setter(out, setter);
            }
        }
        Refusal::AccessFull { max } => {
            out.put_u8(33);
            out.put(*max);
        }
        Refusal::PrincipalNotFound => out.put_u8(34),
        // Answered from level 4 on.
        Refusal::AccessChanged => out.put_u8(48),
        // Answered from level 7 on.
        Refusal::Draining(draining) => {
            out.put_u8(50);
            out.put_name(&draining.lock);
            out.put_bytes(draining.prefix.as_bytes());
            out.put_bytes(draining.by.as_ref().map_or(b"", |by| by.as_bytes()));
            out.put_bytes(draining.reason.as_bytes());
        }
        Refusal::Superseded(by) => {
            out.put_u8(52);
            out.put_name(&by.client);
            out.put(by.lease.get());
        }
        Refusal::DrainsFull { max } => {
            out.put_u8(51);
            out.put(*max);
        }
        // Answered from level 13 on.
        Refusal::PoolEmpty { pool } => {
            out.put_u8(53);
            out.put_name(pool);
        }
    }
}

fn get_refusal(reader: &mut Reader<'_>) -> Result<Refusal, Malformed> {
    Ok(match reader.u8()? {
        1 => Refusal::NotLeader,
        2 => Refusal::Malformed,
        // 3 is reserved for a command that needs a higher level than the cluster is at.
        4 => Refusal::InvalidLevel { from: reader.u16()?, to: reader.u16()? },
        5 => Refusal::InvalidName,
        6 => Refusal::Limit {
            limit: get_limit(reader)?,
            bound: reader.number()?,
            asked: reader.number()?,
        },
        7 => Refusal::InvalidLimit { limit: get_limit(reader)?, asked: reader.number()? },
        8 => Refusal::TooManyInCommand { max: reader.number()? },
        9 => Refusal::LeaseNotFound,
        10 => Refusal::LeaseExists { lease: get_lease_id(reader)? },
        11 => Refusal::Held(Box::new(Held {
            lock: reader.name()?,
            holder: get_holder(reader)?,
            ahead: reader.number()?,
        })),
        12 => Refusal::WaitTimeout,
        13 => Refusal::Overlap { lock: reader.name()? },
        14 => Refusal::Duplicate { lock: reader.name()? },
        15 => Refusal::OtherKind { lock: reader.name()?, slots: get_slot(reader)? },
        16 => {
            let len = reader.len(3)?;
            let link = |reader: &mut Reader<'_>| {
                Ok(RingLink {
                    lease: get_lease_id(reader)?,
                    client: reader.name()?,
                    lock: reader.name()?,
                })
            };
            Refusal::Deadlock { ring: (0..len).map(|_| link(reader)).collect::<Result<_, _>>()? }
        }
        17 => Refusal::NotHolder { lock: reader.name()? },
        18 => Refusal::NotWaiting { lock: reader.name()? },
        19 => Refusal::NotExclusive { lock: reader.name()? },
        20 => Refusal::TokenOutdated {
            lock: reader.name()?,
            holder: get_holder(reader)?.map(Box::new),
        },
        21 => Refusal::NotCooling { lock: reader.name()? },
        22 => Refusal::MaxHoldTooShort { ttl_ms: reader.number()? },
        23 => Refusal::CompareFailed { modified: reader.optional()?.map(tenure_types::Revision) },
        24 => Refusal::GuardFailed { lock: reader.name()? },
        25 => Refusal::RequestStale,
        26 => Refusal::RequestConflict,
        27 => Refusal::RequestWindow { window: reader.number()? },
        28 => Refusal::TokensExhausted,
        29 => Refusal::Quiet { left_ms: reader.number()? },
        30 => Refusal::FutureRevision { asked: reader.revision()?, newest: reader.revision()? },
        31 => Refusal::Forbidden { verb: Verb::from_number(reader.u8()?).ok_or(Malformed)? },
        54 => Refusal::PriorityForbidden { asked: reader.u8()?, most: reader.u8()? },
        number @ (32 | 49) => Refusal::Quota {
            quota: Quota::from_number(reader.u8()?).ok_or(Malformed)?,
            set_by: if reader.flag()? { QuotaSource::Principal } else { QuotaSource::Default },
            bound: reader.number()?,
            asked: reader.number()?,
            setter: if number == 49 { Some(Box::new(get_quota_setter(reader)?)) } else { None },
        },
        33 => Refusal::AccessFull { max: reader.number()? },
        34 => Refusal::PrincipalNotFound,
        48 => Refusal::AccessChanged,
        50 => Refusal::Draining(Box::new(Draining {
            lock: reader.name()?,
            prefix: Box::from(reader.text()?),
            by: reader.optional_name()?,
            reason: Box::from(reader.text()?),
        })),
        51 => Refusal::DrainsFull { max: reader.number()? },
        53 => Refusal::PoolEmpty { pool: reader.name()? },
        52 => Refusal::Superseded(Box::new(SupersededBy {
            client: reader.name()?,
            lease: get_lease_id(reader)?,
        })),
        _ => return Err(Malformed),
    })
}

fn put_holder(out: &mut Vec<u8>, holder: Option<&Holder>) {
    let Some(holder) = holder else { return out.put_u8(0) };
    out.put_u8(1);
    out.put(holder.lease.get());
    out.put_name(&holder.client);
    out.put(holder.token.get());
    out.put(holder.held_ms);
    match holder.state {
        HolderState::Held => out.put_u8(0),
        HolderState::Cooling { left_ms } => {
            out.put_u8(1);
            out.put(left_ms);
        }
        HolderState::Delayed { left_ms } => {
            out.put_u8(2);
            out.put(left_ms);
        }
        HolderState::Resting { left_ms } => {
            out.put_u8(3);
            out.put(left_ms);
        }
    }
}

fn get_holder(reader: &mut Reader<'_>) -> Result<Option<Holder>, Malformed> {
    if !reader.flag()? {
        return Ok(None);
    }
    Ok(Some(Holder {
        lease: get_lease_id(reader)?,
        client: reader.name()?,
        token: reader.token()?,
        held_ms: reader.number()?,
        state: match reader.u8()? {
            0 => HolderState::Held,
            1 => HolderState::Cooling { left_ms: reader.number()? },
            2 => HolderState::Delayed { left_ms: reader.number()? },
            3 => HolderState::Resting { left_ms: reader.number()? },
            _ => return Err(Malformed),
        },
    }))
}

fn get_limit(reader: &mut Reader<'_>) -> Result<Limit, Malformed> {
    Limit::from_number(reader.u8()?).ok_or(Malformed)
}
