//! Prepares the next segment before the log needs it.
//!
//! Filling a segment with zeros takes as long as writing it. A caller with a spare thread asks the log for the
//! [`Preparation`], runs it there, and hands the result back. If no segment is prepared when the log needs one, the log
//! creates it on the spot.

use std::{io, sync::Arc};

use super::{
    Log,
    segment::{self, DIR, Segment, TEMPORARY_SUFFIX},
};
use crate::{
    WriteError,
    disk::{Disk, is_full},
};

/// The work of creating one segment. It touches no other segment.
#[derive(Debug)]
pub struct Preparation {
    disk: Arc<dyn Disk>,
    temporary: String,
    number: u64,
    salt: u64,
    bytes: u32,
}

/// A created segment, ready for [`Log::adopt`].
#[derive(Debug)]
pub struct PreparedSegment {
    temporary: String,
    segment: Segment,
}

impl Preparation {
    /// Creates the segment and syncs it. An error does no harm: the log creates its own when it needs one.
    pub fn run(self) -> io::Result<PreparedSegment> {
        let Self { disk, temporary, number, salt, bytes } = self;
        let segment = segment::create(&*disk, &temporary, number, salt, bytes)?;
        Ok(PreparedSegment { temporary, segment })
    }
}

impl Log {
    /// The work that makes the next segment ready; `None` if it is ready.
    pub fn preparation(&mut self) -> Option<Preparation> {
        if self.next.is_some() {
            return None;
        }
        let number = self.active().number + 1;
        self.spares_named += 1;
        Some(Preparation {
            disk: self.disk.clone(),
            // Two preparations of one segment must not share a file.
            temporary: format!("{DIR}/{number:016x}-{}{TEMPORARY_SUFFIX}", self.spares_named),
            number,
            salt: mix(self.options.salt, number),
            bytes: self.options.segment_bytes,
        })
    }

    /// Takes a prepared segment as the next one, or removes it if the log no longer needs it.
    pub fn adopt(&mut self, prepared: PreparedSegment) -> Result<(), WriteError> {
        self.check_running()?;
        let PreparedSegment { temporary, segment } = prepared;
        if self.next.is_some() || segment.number != self.active().number + 1 {
            return self
                .disk
                .remove(&temporary)
                .map_err(|source| self.stop("remove a spare segment", source).into());
        }
        self.disk
            .rename(&temporary, &segment::name(segment.number))
            .and_then(|()| self.disk.sync_dir(DIR))
            .map_err(|source| self.stop("name a segment", source))?;
        self.next = Some(segment);
        Ok(())
    }

    /// Creates the next segment now, if it is not ready.
    pub fn prepare_next(&mut self) -> Result<(), WriteError> {
        self.check_running()?;
        let Some(preparation) = self.preparation() else { return Ok(()) };
        match preparation.run() {
            Ok(prepared) => self.adopt(prepared),
            Err(error) if is_full(&error) => Err(WriteError::NoSpace),
            Err(error) => Err(self.stop("make a segment", error).into()),
        }
    }
}

/// Derives the salt of one segment, so that a leaked salt reveals nothing about the next.
pub(super) fn mix(salt: u64, number: u64) -> u64 {
    let mut x = salt ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
