//! Encodes and decodes the drained prefixes in the head of a snapshot.

use alloc::boxed::Box;
use alloc::vec::Vec;
use tenure_types::Name;

use super::record::get_time;
use crate::codec::{Malformed, Reader, Writer};
use crate::state::drain::{DRAINS_MAX, Drain, Drains};

pub(super) fn put_drains(out: &mut Vec<u8>, drains: &Drains) {
    out.put(drains.len() as u64);
    for (prefix, drain) in drains.iter() {
        out.put_bytes(prefix.as_bytes());
        out.put(drain.created.0);
        out.put(drain.since_ms);
        for name in [&drain.by, &drain.principal] {
            out.put_bytes(name.as_ref().map_or(b"", |name| name.as_bytes()));
        }
        out.put_bytes(drain.reason.as_bytes());
    }
}

pub(super) fn get_drains(reader: &mut Reader<'_>) -> Result<Drains, Malformed> {
    let len = reader.len(6)?;
    if len > DRAINS_MAX {
        return Err(Malformed);
    }
    let mut drains = Drains::default();
    let mut last = None;
    for _ in 0..len {
        let prefix = reader.text()?;
        // Equal states have equal bytes, so there is one order. The empty prefix is that of every name.
        if last >= Some(prefix) || !prefix.is_empty() && Name::check(prefix).is_err() {
            return Err(Malformed);
        }
        last = Some(prefix);
        let drain = Drain {
            created: reader.revision()?,
            since_ms: get_time(reader)?,
            by: reader.optional_name()?,
            principal: reader.optional_name()?,
            reason: Box::from(reader.text()?),
        };
        drains.insert(prefix, drain);
    }
    Ok(drains)
}
