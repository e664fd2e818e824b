//! Writes a member's log as the server does: each sync is a job that runs while the event loop writes, rolls and
//! compacts.

use anyhow::{Context, Result};
use tenure_raft::{Persist, Space};
use tenure_store::{Free, Gauge, Log, Preparation, Reserve, SyncReport, WriteError};

use tenure_store::sim::{SimDisk, StartedSync};

use super::S;
use super::node::SEGMENT_BYTES;

/// The size of the reserve for a full disk.
pub(super) const RESERVE_BYTES: u64 = SEGMENT_BYTES as u64;
/// The interval at which the member looks at its disk.
const LOOK_US: u64 = S;

/// The log, and the reserve for a full disk.
pub(super) struct SimLogWriter {
    pub(super) log: Log,
    reserve: Reserve,
    gauge: Gauge,
    pub(super) space: Space,
    looked_at_us: Option<u64>,
    /// Whether something was written that no sync covers yet.
    unsynced: bool,
    /// The number of the last write.
    newest: u64,
    under_way: Option<UnderWay>,
    pub(super) started: Option<StartedSync>,
    pub(super) report: Option<SyncReport>,
    pub(super) preparation: Option<Preparation>,
    preparing: bool,
    /// The last durable index.
    pub(super) durable: u64,
    /// The last index that even a damaged log proves: a durable record marks it as durable.
    pub(super) proven: u64,
    /// The last index that the newest write marks as durable.
    said: u64,
    /// How often the log was rolled over while a sync was under way.
    pub(super) rolled_under_sync: u64,
    /// How often the log was compacted while a sync was under way.
    pub(super) compacted_under_sync: u64,
}

/// A sync that has not ended.
struct UnderWay {
    number: u64,
    last: u64,
    said: u64,
}

/// The result of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrote {
    Done,
    /// The process must stop.
    Stop,
}

/// The result of an attempt to begin a sync.
pub(super) enum Syncing {
    /// There is nothing to sync, or a sync is under way.
    Nothing,
    /// Everything up to this write is durable.
    Durable(u64),
    /// There is a job to run.
    Job,
}

impl SimLogWriter {
    pub(super) fn new(log: Log, reserve: Reserve, proven: u64) -> Self {
        let durable = log.last_index();
        Self {
            log,
            reserve,
            gauge: Gauge::new(SEGMENT_BYTES, RESERVE_BYTES),
            space: Space::Enough,
            looked_at_us: None,
            unsynced: false,
            newest: 0,
            under_way: None,
            started: None,
            rolled_under_sync: 0,
            compacted_under_sync: 0,
            report: None,
            preparation: None,
            preparing: false,
            durable,
            proven: proven.min(durable),
            said: 0,
        }
    }

    /// Writes what a turn wants kept; a batch that the log refuses is a bug of ours. A full disk is given the reserve
    /// back once. If that does not help, the member stops.
    pub(super) fn write(&mut self, persist: &Persist) -> Result<Wrote> {
        let batch = &persist.batch();
        let mut written = self.log.write(batch);
        if matches!(written, Err(WriteError::NoSpace)) && self.give_reserve() {
            written = self.log.write(batch);
        }
        let written = match written {
            Ok(written) => written,
            Err(WriteError::NoSpace | WriteError::Fatal(_)) => return Ok(Wrote::Stop),
            Err(error) => return Err(error).context("S12"),
        };
        self.preparing &= !written.rolled;
        self.rolled_under_sync += u64::from(written.rolled && self.under_way.is_some());
        let kept = [
            persist.entries.first().map(|entry| entry.index - 1),
            persist.snapshot.map(|at| at.index),
        ];
        for kept in kept.into_iter().flatten() {
            // The write replaces what comes after `kept`, and the replacement is not durable yet.
            self.durable = self.durable.min(kept);
            self.proven = self.proven.min(kept);
            if let Some(under_way) = &mut self.under_way {
                under_way.last = under_way.last.min(kept);
            }
        }
        self.said = self.durable;
        self.unsynced = true;
        self.newest = persist.number;
        Ok(Wrote::Done)
    }

    pub(super) fn compact_to(&mut self, index: u64) -> Result<Wrote> {
        let mut compacted = self.log.compact_to(index);
        if matches!(compacted, Err(WriteError::NoSpace)) && self.give_reserve() {
            compacted = self.log.compact_to(index);
        }
        self.compacted_under_sync += u64::from(compacted.is_ok() && self.under_way.is_some());
        match compacted {
            Ok(()) => Ok(Wrote::Done),
            Err(WriteError::NoSpace | WriteError::Fatal(_)) => Ok(Wrote::Stop),
            Err(error) => Err(error).context("S12"),
        }
    }

    /// Begins a sync of what was written. One at a time, so that writes become durable in order.
    pub(super) fn begin(&mut self, disk: &SimDisk) -> Result<Syncing, tenure_store::Fatal> {
        if !self.unsynced || self.under_way.is_some() {
            return Ok(Syncing::Nothing);
        }
        self.unsynced = false;
        let (number, last, said) = (self.newest, self.log.last_index(), self.said);
        self.under_way = Some(UnderWay { number, last, said });
        self.started = self.log.begin_sync()?.map(|job| disk.start_sync(job));
        if self.started.is_some() {
            return Ok(Syncing::Job);
        }
        Ok(self.settle().map_or(Syncing::Nothing, Syncing::Durable))
    }

    /// Takes in the result of a sync, and returns the write up to which everything is durable.
    pub(super) fn finish(
        &mut self,
        report: SyncReport,
    ) -> Result<Option<u64>, tenure_store::Fatal> {
        self.log.finish_sync(report)?;
        Ok(self.settle())
    }

    fn settle(&mut self) -> Option<u64> {
        let UnderWay { number, last, said } = self.under_way.take()?;
        self.durable = self.durable.max(last);
        self.proven = self.proven.max(said.min(self.durable));
        Some(number)
    }

    /// Looks at the disk once in a while; tells whether there is room, if that has changed.
    pub(super) fn look(&mut self, now_us: u64) -> Option<Space> {
        if self.looked_at_us.is_some_and(|at_us| now_us < at_us + LOOK_US) {
            return None;
        }
        self.looked_at_us = Some(now_us);
        // A reserve that cannot be taken now is taken later.
        let _ = self.reserve.restore();
        let room = self.log.room().ok()?;
        let free = Free { bytes: room.on_disk, reserve_held: self.reserve.is_held() };
        let space = if self.gauge.look(free) { Space::Short } else { Space::Enough };
        (std::mem::replace(&mut self.space, space) != space).then_some(space)
    }

    /// Schedules the preparation of the next segment, unless it is ready or being made. Returns whether there is work.
    pub(super) fn prepare(&mut self) -> bool {
        if self.preparing {
            return false;
        }
        self.preparation = self.log.preparation();
        self.preparing = self.preparation.is_some();
        self.preparing
    }

    /// Makes the next segment and takes it into use.
    pub(super) fn prepared(&mut self) -> Wrote {
        let Some(prepared) = self.preparation.take().and_then(|work| work.run().ok()) else {
            // The log makes its own segment when it needs one.
            return Wrote::Done;
        };
        self.preparing = false;
        match self.log.adopt(prepared) {
            Ok(()) | Err(WriteError::NoSpace) => Wrote::Done,
            Err(_) => Wrote::Stop,
        }
    }

    fn give_reserve(&mut self) -> bool {
        self.gauge.refuse();
        self.looked_at_us = None;
        self.reserve.is_held() && self.reserve.release().is_ok()
    }
}
