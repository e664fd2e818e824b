//! Encodes and decodes requests as they are in the log.
//!
//! The format is `request id · principal · command`. The command comes last and separate, so that its bytes identify a
//! repeated request.

use alloc::vec::Vec;
use tenure_types::{Handle, LeaseId, Limit, PlaceNumber};

use super::access::{get_change, put_change};
use super::acquire::{get_acquire, put_acquire};
use super::{Malformed, Reader, Writer};
use crate::request::{
    Abandon, AskId, AskWait, Command, Expect, Hold, LeaseRef, NewLease, PRIORITY_MAX, Put, Request,
    RequestId, Revoker, Upgrade, Urgency, WriteGuard,
};

/// The number of the command that raises the level.
const RAISE_LEVEL: u8 = 15;

/// Encodes a request.
pub fn encode_request(request: &Request<'_>, out: &mut Vec<u8>) {
    match request.id {
        RequestId::None => out.put_u8(0),
        RequestId::Seq { lease, seq, done } => {
            out.put_u8(1);
            put_lease_ref(out, lease);
            out.put(seq);
            out.put(done);
        }
        RequestId::Key(key) => {
            out.put_u8(2);
            out.put_bytes(key.as_bytes());
        }
    }
    out.put_bytes(request.principal.as_bytes());
    put_command(out, &request.command);
}

/// Decodes a request. The machine validates its values.
pub fn decode_request(bytes: &[u8]) -> Result<Request<'_>, Malformed> {
    decode_with_command(bytes).map(|(request, _)| request)
}

/// Decodes a request, and returns with it the bytes of its command, by which the machine recognises a repetition.
#[inline(always)]
pub(crate) fn decode_with_command(bytes: &[u8]) -> Result<(Request<'_>, &[u8]), Malformed> {
    let mut reader = Reader::new(bytes);
    let (principal, id) = get_head(&mut reader)?;
    let encoded = &bytes[bytes.len() - reader.remaining()..];
    let command = get_command(&mut reader)?;
    reader.end()?;
    Ok((Request { principal, id, command }, encoded))
}

/// The level that a request would raise the cluster to; `None` for any other request. Decodes only as much of the
/// request as that takes.
pub fn raised_level(bytes: &[u8]) -> Option<u16> {
    let mut reader = Reader::new(bytes);
    get_head(&mut reader).ok()?;
    (reader.u8().ok()? == RAISE_LEVEL).then(|| reader.u16().ok())?
}

fn get_head<'a>(reader: &mut Reader<'a>) -> Result<(&'a str, RequestId<'a>), Malformed> {
    let id = match reader.u8()? {
        0 => RequestId::None,
        1 => RequestId::Seq {
            lease: get_lease_ref(reader)?,
            seq: reader.number()?,
            done: reader.number()?,
        },
        2 => RequestId::Key(reader.text()?),
        _ => return Err(Malformed),
    };
    Ok((reader.text()?, id))
}

fn put_command(out: &mut Vec<u8>, command: &Command<'_>) {
    match command {
        Command::GrantLease(lease) => {
            out.put_u8(1);
            put_new_lease(out, lease);
        }
        Command::Renew(leases) => {
            out.put_u8(2);
            out.put(leases.len() as u64);
            leases.iter().for_each(|&lease| put_lease_ref(out, lease));
        }
        Command::Revoke { lease, by } => {
            out.put_u8(3);
            put_lease_ref(out, *lease);
            match by {
                Revoker::Holder => out.put_u8(0),
                Revoker::Other { name, reason, urgency } => {
                    out.put_u8(1);
                    out.put_bytes(reason.as_bytes());
                    put_urgency(out, *urgency);
                    put_who(out, name);
                }
            }
        }
        Command::Acquire(acquire) => {
            out.put_u8(4);
            put_acquire(out, acquire);
        }
        Command::Release(hold) => {
            out.put_u8(5);
            put_hold(out, hold);
        }
        Command::Leave { lease, lock } => {
            out.put_u8(6);
            put_lease_ref(out, *lease);
            out.put_bytes(lock.as_bytes());
        }
        Command::Downgrade(hold) => {
            out.put_u8(7);
            put_hold(out, hold);
        }
        Command::Update { hold, metadata } => {
            out.put_u8(8);
            put_hold(out, hold);
            out.put_bytes(metadata);
        }
        Command::Force { lock, token, by, reason, urgency } => {
            out.put_u8(9);
            out.put_bytes(lock.as_bytes());
            out.put(token.get());
            out.put_bytes(reason.as_bytes());
            put_urgency(out, *urgency);
            put_who(out, by);
        }
        Command::Stopped { lease, created, lock, token } => {
            out.put_u8(10);
            out.put(lease.get());
            out.put(created.0);
            out.put_bytes(lock.as_bytes());
            out.put(token.get());
        }
        Command::Put(put) => {
            out.put_u8(11);
            out.put_bytes(put.key.as_bytes());
            out.put_bytes(put.value);
            match put.lease {
                None => out.put_u8(0),
                Some(lease) => {
                    out.put_u8(1);
                    put_lease_ref(out, lease);
                }
            }
            put_expect(out, &put.expect);
            put_guard(out, put.guard.as_ref());
        }
        Command::Delete { key, expect, guard } => {
            out.put_u8(12);
            out.put_bytes(key.as_bytes());
            put_expect(out, expect);
            put_guard(out, guard.as_ref());
        }
        Command::SetLimits(limits) => {
            out.put_u8(13);
            out.put(limits.len() as u64);
            for (limit, value) in limits {
                out.put_u8(*limit as u8);
                out.put(*value);
            }
        }
        Command::Compact { keep } => {
            out.put_u8(14);
            out.put(keep.0);
        }
        Command::RaiseLevel { level } => {
            out.put_u8(RAISE_LEVEL);
            out.put(u64::from(*level));
        }
        Command::Abandon(abandon) => {
            out.put_u8(16);
            put_abandon(out, abandon);
        }
        Command::SetAccess(change) => {
            out.put_u8(17);
            put_change(out, change);
        }
        Command::Drain { prefix, by, reason } => {
            out.put_u8(18);
            out.put_bytes(prefix.as_bytes());
            out.put_bytes(reason.as_bytes());
            put_who(out, by);
        }
        Command::Undrain { prefix, by } => {
            out.put_u8(19);
            out.put_bytes(prefix.as_bytes());
            put_who(out, by);
        }
        Command::Progress { hold, number } => {
            out.put_u8(20);
            put_hold(out, hold);
            out.put(*number);
        }
        Command::Upgrade(upgrade) => {
            out.put_u8(21);
            put_upgrade(out, upgrade);
        }
        Command::HandOn { hold, to } => {
            out.put_u8(22);
            put_hold(out, hold);
            out.put(to.get());
        }
        Command::Resize { lock, slots, by } => {
            out.put_u8(23);
            out.put_bytes(lock.as_bytes());
            out.put_optional(slots.map(u64::from));
            put_who(out, by);
        }
    }
}

fn get_command<'a>(reader: &mut Reader<'a>) -> Result<Command<'a>, Malformed> {
    match reader.u8()? {
        4 => get_acquire(reader).map(Command::Acquire),
        5 => get_hold(reader).map(Command::Release),
        other => get_rarer_command(other, reader),
    }
}

/// Reads the commands that are not by far the most frequent. Out of line, so that reading those two takes little room
/// in the processor's instruction cache.
#[inline(never)]
fn get_rarer_command<'a>(number: u8, reader: &mut Reader<'a>) -> Result<Command<'a>, Malformed> {
    Ok(match number {
        1 => Command::GrantLease(get_new_lease(reader)?),
        2 => {
            // The shortest lease reference has two bytes.
            let len = reader.len(2)?;
            Command::Renew((0..len).map(|_| get_lease_ref(reader)).collect::<Result<_, _>>()?)
        }
        3 => Command::Revoke {
            lease: get_lease_ref(reader)?,
            by: match reader.u8()? {
                0 => Revoker::Holder,
                1 => {
                    let (reason, urgency) = (reader.text()?, get_urgency(reader)?);
                    Revoker::Other { reason, urgency, name: get_who(reader)? }
                }
                _ => return Err(Malformed),
            },
        },
        6 => Command::Leave { lease: get_lease_ref(reader)?, lock: reader.text()? },
        7 => Command::Downgrade(get_hold(reader)?),
        8 => Command::Update { hold: get_hold(reader)?, metadata: reader.bytes()? },
        9 => {
            let (lock, token) = (reader.text()?, reader.token()?);
            let (reason, urgency) = (reader.text()?, get_urgency(reader)?);
            Command::Force { lock, token, reason, urgency, by: get_who(reader)? }
        }
        10 => Command::Stopped {
            lease: get_lease_id(reader)?,
            created: reader.revision()?,
            lock: reader.text()?,
            token: reader.token()?,
        },
        11 => Command::Put(Put {
            key: reader.text()?,
            value: reader.bytes()?,
            lease: if reader.flag()? { Some(get_lease_ref(reader)?) } else { None },
            expect: get_expect(reader)?,
            guard: get_guard(reader)?,
        }),
        12 => Command::Delete {
            key: reader.text()?,
            expect: get_expect(reader)?,
            guard: get_guard(reader)?,
        },
        13 => {
            let len = reader.len(2)?;
            let limit = |reader: &mut Reader<'a>| {
                let limit = Limit::from_number(reader.u8()?).ok_or(Malformed)?;
                Ok((limit, reader.number()?))
            };
            Command::SetLimits((0..len).map(|_| limit(reader)).collect::<Result<_, _>>()?)
        }
        14 => Command::Compact { keep: reader.revision()? },
        RAISE_LEVEL => Command::RaiseLevel { level: reader.u16()? },
        16 => Command::Abandon(get_abandon(reader)?),
        17 => Command::SetAccess(get_change(reader)?),
        18 => {
            let (prefix, reason) = (reader.text()?, reader.text()?);
            Command::Drain { prefix, reason, by: get_who(reader)? }
        }
        19 => Command::Undrain { prefix: reader.text()?, by: get_who(reader)? },
        20 => Command::Progress { hold: get_hold(reader)?, number: reader.number()? },
        21 => Command::Upgrade(get_upgrade(reader)?),
        22 => Command::HandOn { hold: get_hold(reader)?, to: get_lease_id(reader)? },
        23 => {
            let lock = reader.text()?;
            let slots = if reader.flag()? { Some(reader.u32()?) } else { None };
            Command::Resize { lock, slots, by: get_who(reader)? }
        }
        _ => return Err(Malformed),
    })
}

fn put_abandon(out: &mut Vec<u8>, abandon: &Abandon<'_>) {
    match abandon.ask {
        AskId::None => out.put_u8(0),
        AskId::Seq { lease, seq } => {
            out.put_u8(1);
            put_lease_ref(out, lease);
            out.put(seq);
        }
        AskId::Key(key) => {
            out.put_u8(2);
            out.put_bytes(key.as_bytes());
        }
    }
    put_lease_ref(out, abandon.lease);
    out.put(abandon.place.0);
}

fn get_abandon<'a>(reader: &mut Reader<'a>) -> Result<Abandon<'a>, Malformed> {
    let ask = match reader.u8()? {
        0 => AskId::None,
        1 => AskId::Seq { lease: get_lease_ref(reader)?, seq: reader.number()? },
        2 => AskId::Key(reader.text()?),
        _ => return Err(Malformed),
    };
    Ok(Abandon { ask, lease: get_lease_ref(reader)?, place: PlaceNumber(reader.number()?) })
}

pub(super) fn put_wait(out: &mut Vec<u8>, wait: AskWait) {
    match wait {
        AskWait::No => out.put_u8(0),
        AskWait::Unlimited => out.put_u8(1),
        AskWait::Limit { ms } => {
            out.put_u8(2);
            out.put(ms);
        }
    }
}

pub(super) fn get_wait(reader: &mut Reader<'_>) -> Result<AskWait, Malformed> {
    match reader.u8()? {
        0 => Ok(AskWait::No),
        1 => Ok(AskWait::Unlimited),
        2 => Ok(AskWait::Limit { ms: reader.number()? }),
        _ => Err(Malformed),
    }
}

fn put_upgrade(out: &mut Vec<u8>, upgrade: &Upgrade<'_>) {
    put_lease_ref(out, upgrade.lease);
    out.put_bytes(upgrade.lock.as_bytes());
    put_wait(out, upgrade.wait);
    out.put_u8(u8::from(upgrade.resume) | u8::from(upgrade.independent) << 1);
}

fn get_upgrade<'a>(reader: &mut Reader<'a>) -> Result<Upgrade<'a>, Malformed> {
    let (lease, lock) = (get_lease_ref(reader)?, reader.text()?);
    let (wait, flags) = (get_wait(reader)?, reader.u8()?);
    if flags > 3 {
        return Err(Malformed);
    }
    Ok(Upgrade { lease, lock, wait, resume: flags & 1 == 1, independent: flags & 2 == 2 })
}

/// Reads a priority, which is left out if it is 0.
pub(super) fn get_priority(reader: &mut Reader<'_>) -> Result<u8, Malformed> {
    match reader.u8()? {
        priority @ 1..=PRIORITY_MAX => Ok(priority),
        _ => Err(Malformed),
    }
}

/// Reads a number that is left out if it is 0. A second form of 0 would give equal commands different bytes.
pub(super) fn get_positive(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let number = reader.number()?;
    if number == 0 { Err(Malformed) } else { Ok(number) }
}

pub(super) fn put_lease_ref(out: &mut Vec<u8>, lease: LeaseRef) {
    match lease {
        LeaseRef::Id(id) => {
            out.put_u8(0);
            out.put(id.get());
        }
        LeaseRef::Handle(handle) => {
            out.put_u8(1);
            out.put(u64::from(handle.slot));
            out.put(handle.generation);
        }
    }
}

pub(super) fn get_lease_ref(reader: &mut Reader<'_>) -> Result<LeaseRef, Malformed> {
    match reader.u8()? {
        0 => Ok(LeaseRef::Id(get_lease_id(reader)?)),
        1 => Ok(LeaseRef::Handle(Handle { slot: reader.u32()?, generation: reader.number()? })),
        _ => Err(Malformed),
    }
}

pub(super) fn get_lease_id(reader: &mut Reader<'_>) -> Result<LeaseId, Malformed> {
    LeaseId::new(reader.number()?).ok_or(Malformed)
}

pub(super) fn put_new_lease(out: &mut Vec<u8>, lease: &NewLease<'_>) {
    out.put(lease.id.get());
    out.put(lease.ttl_ms);
    out.put_bytes(lease.client.as_bytes());
    out.put_bytes(lease.metadata);
}

pub(super) fn get_new_lease<'a>(reader: &mut Reader<'a>) -> Result<NewLease<'a>, Malformed> {
    Ok(NewLease {
        id: get_lease_id(reader)?,
        ttl_ms: reader.number()?,
        client: reader.text()?,
        metadata: reader.bytes()?,
    })
}

fn put_hold(out: &mut Vec<u8>, hold: &Hold<'_>) {
    put_lease_ref(out, hold.lease);
    out.put_bytes(hold.lock.as_bytes());
    out.put(hold.token.get());
}

fn get_hold<'a>(reader: &mut Reader<'a>) -> Result<Hold<'a>, Malformed> {
    Ok(Hold { lease: get_lease_ref(reader)?, lock: reader.text()?, token: reader.token()? })
}

fn put_urgency(out: &mut Vec<u8>, urgency: Urgency) {
    out.put_u8(u8::from(urgency == Urgency::Now));
}

fn get_urgency(reader: &mut Reader<'_>) -> Result<Urgency, Malformed> {
    Ok(if reader.flag()? { Urgency::Now } else { Urgency::Cooling })
}

/// The name of the deciding operator comes last, and only if it was given.
fn put_who(out: &mut Vec<u8>, who: &str) {
    if !who.is_empty() {
        out.put_bytes(who.as_bytes());
    }
}

fn get_who<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    if reader.is_empty() {
        return Ok("");
    }
    // An absent name has one form only. With a second form, equal commands could have different bytes.
    reader.text().and_then(|who| if who.is_empty() { Err(Malformed) } else { Ok(who) })
}

fn put_expect(out: &mut Vec<u8>, expect: &Expect<'_>) {
    match expect {
        Expect::Any => out.put_u8(0),
        Expect::Absent => out.put_u8(1),
        Expect::Modified(revision) => {
            out.put_u8(2);
            out.put(revision.0);
        }
        Expect::Value(value) => {
            out.put_u8(3);
            out.put_bytes(value);
        }
    }
}

fn get_expect<'a>(reader: &mut Reader<'a>) -> Result<Expect<'a>, Malformed> {
    match reader.u8()? {
        0 => Ok(Expect::Any),
        1 => Ok(Expect::Absent),
        2 => Ok(Expect::Modified(reader.revision()?)),
        3 => Ok(Expect::Value(reader.bytes()?)),
        _ => Err(Malformed),
    }
}

fn put_guard(out: &mut Vec<u8>, guard: Option<&WriteGuard<'_>>) {
    match guard {
        None => out.put_u8(0),
        Some(guard) => {
            out.put_u8(1);
            out.put_bytes(guard.lock.as_bytes());
            out.put(guard.token.get());
        }
    }
}

fn get_guard<'a>(reader: &mut Reader<'a>) -> Result<Option<WriteGuard<'a>>, Malformed> {
    if !reader.flag()? {
        return Ok(None);
    }
    Ok(Some(WriteGuard { lock: reader.text()?, token: reader.token()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_raises_the_level_is_told_from_all_others() {
        let level_of = |id, command| {
            let mut bytes = Vec::new();
            encode_request(&Request { principal: "ana", id, command }, &mut bytes);
            raised_level(&bytes)
        };
        let key = RequestId::Key("once");
        assert_eq!(level_of(RequestId::None, Command::RaiseLevel { level: 1_000 }), Some(1_000));
        assert_eq!(level_of(key, Command::RaiseLevel { level: 0 }), Some(0));
        let delete = Command::Delete { key: "\x0f\x0f", expect: Expect::Any, guard: None };
        assert_eq!(level_of(key, delete), None);
        assert_eq!(raised_level(&[]), None);
        assert_eq!(raised_level(&[9, 9, 9]), None);
    }
}
