//! Encodes and decodes the options of grants and places.

use alloc::vec::Vec;
use core::num::NonZeroU64;

use super::record::get_time;
use crate::codec::request::get_positive;
use crate::codec::{Malformed, Reader, Writer};
use crate::request::{LEVEL_MIN_HOLD, LEVEL_PROGRESS, Purpose};
use crate::state::record::{GrantOptions, GrantTimes, ProgressState};

pub(super) fn put_options(out: &mut Vec<u8>, options: &GrantOptions) {
    if options.is_plain() {
        return out.put_u8(0);
    }
    out.put_u8(1);
    out.put_bytes(options.metadata());
    out.put(options.lock_delay_ms());
    out.put_optional(options.max_hold_ms());
    let (election, min_hold_ms) = (options.purpose() == Purpose::Election, options.min_hold_ms());
    let progress = options.progress();
    // Only a request of a level that has min holds, or promises of progress, can have brought one.
    out.put_u8(
        u8::from(election) | u8::from(min_hold_ms > 0) << 1 | u8::from(progress.is_some()) << 2,
    );
    if min_hold_ms > 0 {
        out.put(min_hold_ms);
    }
    if let Some(progress) = progress {
        put_progress(out, progress);
    }
}

pub(super) fn get_options(reader: &mut Reader<'_>, level: u16) -> Result<GrantOptions, Malformed> {
    if !reader.flag()? {
        return Ok(GrantOptions::default());
    }
    let metadata = reader.bytes()?;
    let lock_delay_ms = reader.number()?;
    let max_hold_ms = match reader.optional()? {
        None => None,
        Some(ms) => Some(NonZeroU64::new(ms).ok_or(Malformed)?),
    };
    let flags = reader.u8()?;
    let known = match level {
        LEVEL_PROGRESS.. => 7,
        LEVEL_MIN_HOLD.. => 3,
        _ => 1,
    };
    if flags > known {
        return Err(Malformed);
    }
    let purpose = if flags & 1 == 1 { Purpose::Election } else { Purpose::Lock };
    let min_hold_ms = if flags & 2 == 2 { get_positive(reader)? } else { 0 };
    let times = GrantTimes { lock_delay_ms, max_hold_ms, min_hold_ms };
    let progress = if flags & 4 == 4 { Some(get_progress(reader)?) } else { None };
    let options = GrantOptions::new(metadata, times, progress, purpose);
    // Default options have one form only, so that equal states have equal bytes.
    if options.is_plain() { Err(Malformed) } else { Ok(options) }
}

fn put_progress(out: &mut Vec<u8>, progress: ProgressState) {
    out.put(progress.within_ms.get());
    let reported = !mutant!("progress_not_in_snapshot");
    out.put(if reported { progress.number } else { 0 });
    out.put(if reported { progress.moved_ms } else { 0 });
}

fn get_progress(reader: &mut Reader<'_>) -> Result<ProgressState, Malformed> {
    let within_ms = NonZeroU64::new(reader.number()?).ok_or(Malformed)?;
    let progress =
        ProgressState { within_ms, number: reader.number()?, moved_ms: get_time(reader)? };
    // A number that was not reported has no time.
    if progress.number == 0 && progress.moved_ms > 0 { Err(Malformed) } else { Ok(progress) }
}
