//! Encodes and decodes acquire requests as they are in the log.

use alloc::vec::Vec;

use super::request::{
    get_lease_ref, get_new_lease, get_positive, get_priority, get_wait, put_lease_ref,
    put_new_lease, put_wait,
};
use super::{Malformed, Reader, Writer};
use crate::request::{Acquire, Ask, AskLease, Asks, Purpose};

pub(super) fn put_acquire(out: &mut Vec<u8>, acquire: &Acquire<'_>) {
    match &acquire.lease {
        AskLease::Existing(lease) => {
            out.put_u8(0);
            put_lease_ref(out, *lease);
        }
        AskLease::New(lease) => {
            out.put_u8(1);
            put_new_lease(out, lease);
        }
    }
    // A pool is a request for any of no locks, and comes last.
    let pool = acquire.pool().is_some();
    let locks = if pool { &[] } else { acquire.locks.as_slice() };
    out.put(locks.len() as u64);
    locks.iter().for_each(|ask| put_ask(out, ask));
    put_wait(out, acquire.wait);
    out.put_bytes(acquire.metadata);
    out.put(acquire.lock_delay_ms);
    out.put_optional(acquire.max_hold_ms);
    let election = acquire.purpose == Purpose::Election;
    let min_hold = acquire.min_hold_ms > 0;
    let supersede = acquire.supersede.is_some();
    out.put_u8(
        u8::from(election)
            | u8::from(acquire.independent) << 1
            | u8::from(min_hold) << 2
            | u8::from(supersede) << 3
            | u8::from(acquire.resume) << 4
            | u8::from(acquire.priority > 0) << 5
            | u8::from(acquire.progress_within_ms > 0) << 6
            | u8::from(acquire.any || pool) << 7,
    );
    if min_hold {
        out.put(acquire.min_hold_ms);
    }
    if let Some(group) = acquire.supersede {
        out.put_bytes(group.as_bytes());
    }
    if acquire.priority > 0 {
        out.put_u8(acquire.priority);
    }
    if acquire.progress_within_ms > 0 {
        out.put(acquire.progress_within_ms);
    }
    if let Asks::Pool(ask) = &acquire.locks {
        put_ask(out, ask);
    }
}

fn put_ask(out: &mut Vec<u8>, ask: &Ask<'_>) {
    out.put_bytes(ask.lock.as_bytes());
    out.put_mode(ask.mode);
}

fn get_ask<'a>(reader: &mut Reader<'a>) -> Result<Ask<'a>, Malformed> {
    Ok(Ask { lock: reader.text()?, mode: reader.mode()? })
}

pub(super) fn get_acquire<'a>(reader: &mut Reader<'a>) -> Result<Acquire<'a>, Malformed> {
    let lease = match reader.u8()? {
        0 => AskLease::Existing(get_lease_ref(reader)?),
        1 => AskLease::New(get_new_lease(reader)?),
        _ => return Err(Malformed),
    };
    let locks = match reader.len(2)? {
        1 => Asks::One(get_ask(reader)?),
        len => Asks::Many((0..len).map(|_| get_ask(reader)).collect::<Result<_, _>>()?),
    };
    let wait = get_wait(reader)?;
    let metadata = reader.bytes()?;
    let lock_delay_ms = reader.number()?;
    let max_hold_ms = reader.optional()?;
    let flags = reader.u8()?;
    let purpose = if flags & 1 == 1 { Purpose::Election } else { Purpose::Lock };
    let independent = flags & 2 == 2;
    let min_hold_ms = if flags & 4 == 4 { get_positive(reader)? } else { 0 };
    let supersede = if flags & 8 == 8 { Some(reader.text()?) } else { None };
    let priority = if flags & 32 == 32 { get_priority(reader)? } else { 0 };
    let progress_within_ms = if flags & 64 == 64 { get_positive(reader)? } else { 0 };
    let any = flags & 128 == 128;
    let is_pool = any && locks.as_slice().is_empty();
    let locks = if is_pool { Asks::Pool(get_ask(reader)?) } else { locks };
    Ok(Acquire {
        lease,
        locks,
        any: any && !is_pool,
        wait,
        metadata,
        lock_delay_ms,
        max_hold_ms,
        min_hold_ms,
        progress_within_ms,
        supersede,
        resume: flags & 16 == 16,
        priority,
        purpose,
        independent,
    })
}
