//! How does what a turn wants kept reach the disk?

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_raft::Persist;
use tenure_store::{Fatal, Log, Preparation, Prepared, Reserve, WriteError};

use crate::member::Event;
use crate::say;

/// The log, and the space that is left for the day the disk is full.
pub(crate) struct Pen {
    log: Log,
    reserve: Arc<Mutex<Reserve>>,
    /// Written and not yet durable.
    unsynced: bool,
    /// Durable, and not yet marked as such.
    unmarked: bool,
    preparing: bool,
}

impl Pen {
    pub(crate) fn new(log: Log, reserve: Reserve) -> Self {
        let reserve = Arc::new(Mutex::new(reserve));
        Self { log, reserve, unsynced: false, unmarked: false, preparing: false }
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
            self.unmarked = true;
            if synced.took.as_millis() >= 500 {
                let took_ms = synced.took.as_millis();
                say::warn("disk is slow", &[("sync_ms", &took_ms)]);
            }
        }
        Ok(unsynced)
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
        let mut reserve = self.reserve.lock().unwrap_or_else(PoisonError::into_inner);
        if !reserve.is_held() {
            return Err(WriteError::NoSpace);
        }
        say::warn("disk is full, the reserve is given back", &[]);
        reserve.release().map_err(|_| WriteError::NoSpace)
    }
}

/// Takes the reserve again if there is room, then makes a segment.
fn prepare(preparation: Preparation, reserve: &Mutex<Reserve>, inbox: &SyncSender<Event>) {
    match preparation.run() {
        Ok(prepared) => {
            let _ = inbox.send(Event::Prepared(prepared));
        }
        // The log makes its own when it must, and says so if it cannot.
        Err(error) => say::warn("cannot prepare a segment", &[("cause", &error)]),
    }
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
