//! How does what a turn wants kept reach the disk?

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_raft::{Persist, Space};
use tenure_store::{
    Fatal, Free, Gauge, Log, Preparation, Prepared, Reserve, Snapshots, Synced, WriteError,
};

use crate::figures::{Meters, Sizes, Syncs};
use crate::member::Event;
use crate::say;

/// How often the disk is looked at, besides when a write finds it full.
const LOOK_US: u64 = 1_000_000;
/// Syncs that take longer than this are worth a word.
const SLOW: Duration = Duration::from_millis(500);

/// The log, and the space that is left for the day the disk is full.
pub(crate) struct Pen {
    log: Log,
    reserve: Arc<Mutex<Reserve>>,
    /// Written and not yet durable.
    unsynced: bool,
    /// Durable, and not yet marked as such.
    unmarked: bool,
    preparing: bool,
    gauge: Gauge,
    space: Space,
    looked_at_us: Option<u64>,
    syncs: Syncs,
    meters: Arc<Meters>,
}

impl Pen {
    pub(crate) fn new(log: Log, reserve: Reserve, segment_bytes: u32) -> Self {
        let gauge = Gauge::new(segment_bytes, reserve.bytes());
        Self {
            log,
            reserve: Arc::new(Mutex::new(reserve)),
            unsynced: false,
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
        // If the last preparation failed, a new segment is a new chance.
        self.preparing &= !written.rolled;
        Ok(())
    }

    /// Makes everything written durable, and tells whether there was anything. On an error the
    /// process must stop at once.
    pub(crate) fn sync(&mut self) -> Result<bool, Fatal> {
        let unsynced = std::mem::take(&mut self.unsynced);
        if unsynced {
            let synced = self.log.sync()?;
            self.note_sync(&synced);
        }
        Ok(unsynced)
    }

    fn note_sync(&mut self, synced: &Synced) {
        self.unmarked = true;
        self.syncs.add(synced.took);
        self.meters.synced(synced.took);
        if synced.took >= SLOW {
            let took_ms = synced.took.as_millis();
            say::warn("disk is slow", &[("sync_ms", &took_ms)]);
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
                say::warn("cannot tell how much space is free", &[("cause", &error)]);
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
            Space::Short => say::warn(
                "disk is nearly full",
                &[("free_bytes", &free_bytes), ("effect", &"nothing may grow, the rest goes on")],
            ),
            Space::Enough => {
                say::info("disk has room again", &[("free_bytes", &free_bytes)]);
                // A segment that found no room may find it now.
                self.preparing = false;
                self.prepare(inbox);
            }
        }
        Some(space)
    }

    /// Whether a mark would tell a later start more than the log does.
    pub(crate) fn is_unmarked(&self) -> bool {
        self.unmarked
    }

    /// Writes down how far the log is durable.
    pub(crate) fn mark(&mut self) -> Result<(), WriteError> {
        self.unmarked = false;
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
        say::warn("disk is full, the reserve is given back", &[]);
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
        Err(error) => say::warn("cannot prepare a segment", &[("cause", &error)]),
    }
    restore(reserve);
}

/// Takes the reserve again if there is room.
fn restore(reserve: &Mutex<Reserve>) {
    let mut reserve = reserve.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = reserve.restore() {
        say::warn("cannot hold space in reserve", &[("cause", &error)]);
    }
}

/// Starts a thread with a name, and tells whether it could. If not, `work` is dropped unused.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    if let Err(error) = &started {
        say::error("cannot start a thread", &[("thread", &name), ("cause", error)]);
    }
    started.is_ok()
}
