//! How does what a turn wants kept reach the disk?

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_raft::{Persist, Space};
use tenure_store::{
    Fatal, Free, Gauge, Log, Preparation, Prepared, Reserve, Snapshots, SyncReport, Synced,
    WriteError,
};

use crate::figures::{Meters, Sizes, Syncs};
use crate::member::Event;
use crate::writer::Writer;

/// How often the disk is looked at, besides when a write finds it full.
const LOOK_US: u64 = 1_000_000;
/// A leader does not wait in its loop for a disk whose syncs take longer than this,
const SLOWISH: Duration = Duration::from_millis(2);
/// nor for so many syncs after one that did.
const SLOW_FOR: u32 = 256;
/// Syncs that take longer than this are worth a word.
const SLOW: Duration = Duration::from_millis(500);

/// The log, and the space that is left for the day the disk is full.
pub(crate) struct Pen {
    log: Log,
    reserve: Arc<Mutex<Reserve>>,
    /// Written and not yet handed to a sync.
    unsynced: bool,
    /// The number of the last write.
    newest: u64,
    writer: Writer,
    /// The writer makes everything up to this write durable.
    under_way: Option<u64>,
    /// So many syncs more count as slow ones.
    slow_left: u32,
    /// Written after the last mark.
    unmarked: bool,
    preparing: bool,
    gauge: Gauge,
    space: Space,
    looked_at_us: Option<u64>,
    syncs: Syncs,
    meters: Arc<Meters>,
}

/// Where a sync is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Where {
    /// In the loop, which waits.
    Here,
    /// On the writer's thread, while the loop goes on.
    Aside,
}

impl Pen {
    pub(crate) fn new(log: Log, reserve: Reserve, segment_bytes: u32) -> Self {
        let gauge = Gauge::new(segment_bytes, reserve.bytes());
        Self {
            log,
            reserve: Arc::new(Mutex::new(reserve)),
            unsynced: false,
            newest: 0,
            writer: Writer::default(),
            under_way: None,
            slow_left: 0,
            unmarked: false,
            preparing: false,
            gauge,
            space: Space::Enough,
            looked_at_us: None,
            syncs: Syncs::default(),
            meters: Arc::default(),
        }
    }

    /// What it measures goes here from now on.
    pub(crate) fn measure(&mut self, meters: Arc<Meters>) {
        self.meters = meters;
    }

    /// Writes what a turn wants kept. It is durable after [`Pen::sync`].
    pub(crate) fn write(&mut self, persist: &Persist) -> Result<(), WriteError> {
        let batch = &persist.batch();
        let written = match self.log.write(batch) {
            Err(WriteError::NoSpace) => {
                self.give_reserve()?;
                self.log.write(batch)?
            }
            written => written?,
        };
        self.unsynced = true;
        self.unmarked = true;
        self.newest = persist.number;
        // If the last preparation failed, a new segment is a new chance.
        self.preparing &= !written.rolled;
        Ok(())
    }

    /// Makes what was written durable, and tells up to which write it is, if that is so at once. With
    /// [`Where::Aside`] it may be so later; see [`Pen::finish`]. On an error the process must stop
    /// at once.
    pub(crate) fn sync(
        &mut self,
        wanted: Where,
        inbox: &SyncSender<Event>,
    ) -> Result<Option<u64>, Fatal> {
        // One at a time, so that writes become durable in order.
        if !self.unsynced || self.under_way.is_some() {
            return Ok(None);
        }
        self.unsynced = false;
        // Nothing to do, if a new segment was begun: the old one was synced.
        let Some(job) = self.log.begin_sync()? else { return Ok(Some(self.newest)) };
        let job = match wanted {
            Where::Aside => match self.writer.hand(job, inbox) {
                Ok(()) => {
                    self.under_way = Some(self.newest);
                    return Ok(None);
                }
                Err(job) => job,
            },
            Where::Here => job,
        };
        let synced = self.log.finish_sync(job.run())?;
        self.note_sync(&synced);
        Ok(Some(self.newest))
    }

    /// Takes note of what the writer did; tells up to which write everything is durable.
    pub(crate) fn finish(&mut self, report: SyncReport) -> Result<Option<u64>, Fatal> {
        let synced = self.log.finish_sync(report)?;
        self.note_sync(&synced);
        Ok(self.under_way.take())
    }

    /// Whether the disk has been slow of late, so that a loop with others to serve should not wait
    /// for it.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow_left > 0
    }

    fn note_sync(&mut self, synced: &Synced) {
        self.slow_left = self.slow_left.saturating_sub(1);
        if synced.took > SLOWISH {
            self.slow_left = SLOW_FOR;
        }
        self.syncs.add(synced.took);
        self.meters.synced(synced.took);
        if synced.took >= SLOW {
            let took_ms = synced.took.as_millis();
            tracing::warn!(sync_ms = took_ms, "disk is slow");
        }
    }

    /// Looks at the disk once in a while; tells whether there is room, if that has changed.
    pub(crate) fn look(
        &mut self,
        now_us: u64,
        snapshots: &Snapshots,
        inbox: &SyncSender<Event>,
    ) -> Option<Space> {
        if self.looked_at_us.is_some_and(|at_us| now_us < at_us.saturating_add(LOOK_US)) {
            return None;
        }
        // While the reserve is being taken, part of it is neither free nor held.
        let reserve = self.reserve.clone();
        let reserve = reserve.try_lock().ok()?;
        let reserve_held = reserve.is_held();
        self.looked_at_us = Some(now_us);
        let free_bytes = match self.log.room() {
            Ok(room) => room.on_disk,
            Err(error) => {
                tracing::warn!(cause = %error, "cannot tell how much space is free");
                return None;
            }
        };
        let log_bytes = self.log.bytes();
        let held = if reserve_held { reserve.bytes() } else { 0 };
        // A directory that cannot be listed is said where it matters.
        let data_bytes = log_bytes + held + snapshots.bytes().unwrap_or(0);
        let sizes = Sizes { disk_free_bytes: free_bytes, data_bytes, log_bytes };
        self.meters.look(sizes, &self.syncs);
        let restores = reserve.is_due(free_bytes);
        drop(reserve);
        let short = self.gauge.look(Free { bytes: free_bytes, reserve_held });
        self.meters.short(short);
        if restores {
            let reserve = self.reserve.clone();
            spawn("tenure-reserve", move || restore(&reserve));
        }
        let space = if short { Space::Short } else { Space::Enough };
        if std::mem::replace(&mut self.space, space) == space {
            return None;
        }
        match space {
            Space::Short => {
                let effect = "nothing may grow, the rest goes on";
                tracing::warn!(free_bytes, effect, "disk is nearly full");
            }
            Space::Enough => {
                tracing::info!(free_bytes, "disk has room again");
                // A segment that found no room may find it now.
                self.preparing = false;
                self.prepare(inbox);
            }
        }
        Some(space)
    }

    /// Whether everything is durable, and a mark would tell a later start more than the log does.
    pub(crate) fn is_unmarked(&self) -> bool {
        self.unmarked && !self.unsynced && self.under_way.is_none()
    }

    /// Writes down how far the log is durable; the next sync makes that last.
    pub(crate) fn mark(&mut self) -> Result<(), WriteError> {
        self.unmarked = false;
        match self.log.write_mark() {
            Ok(marked) => {
                self.unsynced |= marked;
                Ok(())
            }
            // It protects against later damage; a full disk is no reason to do without the member.
            Err(WriteError::NoSpace) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes everything durable and says so in the log, now.
    pub(crate) fn close(&mut self) -> Result<(), WriteError> {
        match self.log.mark() {
            // It protects against later damage; a full disk is no reason to do without the member.
            Err(WriteError::NoSpace) => Ok(()),
            marked => marked,
        }
    }

    pub(crate) fn compact_to(&mut self, index: u64) -> Result<(), WriteError> {
        match self.log.compact_to(index) {
            Err(WriteError::NoSpace) => {
                self.give_reserve()?;
                self.log.compact_to(index)
            }
            compacted => compacted,
        }
    }

    /// Has the next segment made on another thread, unless it is ready or being made.
    pub(crate) fn prepare(&mut self, inbox: &SyncSender<Event>) {
        if self.preparing {
            return;
        }
        let Some(preparation) = self.log.preparation() else { return };
        self.preparing = true;
        let inbox = inbox.clone();
        let reserve = self.reserve.clone();
        spawn("tenure-segment", move || prepare(preparation, &reserve, &inbox));
    }

    pub(crate) fn adopt(&mut self, prepared: Prepared) -> Result<(), WriteError> {
        self.preparing = false;
        self.log.adopt(prepared)
    }

    pub(crate) fn last_index(&self) -> u64 {
        self.log.last_index()
    }

    fn give_reserve(&mut self) -> Result<(), WriteError> {
        self.gauge.refuse();
        self.looked_at_us = None;
        let mut reserve = self.reserve.lock().unwrap_or_else(PoisonError::into_inner);
        if !reserve.is_held() {
            return Err(WriteError::NoSpace);
        }
        tracing::warn!("disk is full, the reserve is given back");
        reserve.release().map_err(|_| WriteError::NoSpace)
    }
}

/// Makes a segment, then takes the reserve again if there is room.
fn prepare(preparation: Preparation, reserve: &Mutex<Reserve>, inbox: &SyncSender<Event>) {
    match preparation.run() {
        Ok(prepared) => {
            let _ = inbox.send(Event::Prepared(prepared));
        }
        // The log makes its own when it must, and says so if it cannot.
        Err(error) => tracing::warn!(cause = %error, "cannot prepare a segment"),
    }
    restore(reserve);
}

/// Takes the reserve again if there is room.
fn restore(reserve: &Mutex<Reserve>) {
    let mut reserve = reserve.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = reserve.restore() {
        tracing::warn!(cause = %error, "cannot hold space in reserve");
    }
}

/// Starts a thread with a name, and tells whether it could. If not, `work` is dropped unused.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    if let Err(error) = &started {
        tracing::error!(thread = name, cause = %error, "cannot start a thread");
    }
    started.is_ok()
}
