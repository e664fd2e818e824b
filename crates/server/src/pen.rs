//! How does what a turn wants kept reach the disk?

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_raft::Persist;
use tenure_store::{Batch, Entry, Fatal, Log, Options, Preparation, Prepared, Reserve, WriteError};

use crate::member::Event;
use crate::say;

/// The log, and the space that is left for the day the disk is full.
pub(crate) struct Pen {
    log: Log,
    reserve: Arc<Mutex<Reserve>>,
    batch_bytes_max: usize,
    /// Written and not yet durable.
    unsynced: bool,
    /// Durable, and not yet marked as such.
    unmarked: bool,
    preparing: bool,
}

/// What an entry needs on disk besides its payload, with its padding.
const ENTRY_OVERHEAD_BYTES: usize = 48;

impl Pen {
    pub(crate) fn new(log: Log, reserve: Reserve, segment_bytes: u32) -> Self {
        let options = Options { segment_bytes, ..Options::default() };
        // An older segment may be smaller than the setting; the log rolls on when one is full. Room
        // for the hard state and the snapshot point is left.
        let max = usize::try_from(options.batch_bytes_max()).unwrap_or(usize::MAX) - 1024;
        let reserve = Arc::new(Mutex::new(reserve));
        Self {
            log,
            reserve,
            batch_bytes_max: max,
            unsynced: false,
            unmarked: false,
            preparing: false,
        }
    }

    /// Writes what a turn wants kept. It is durable after [`Pen::sync`].
    ///
    /// What does not fit in one batch goes in several. A crash between them leaves a beginning of
    /// the entries, which nobody was told about; the term and vote go with the first.
    pub(crate) fn write(&mut self, persist: &Persist) -> Result<(), WriteError> {
        let whole = persist.batch();
        let parts = split(whole.entries, self.batch_bytes_max);
        let last = parts.len().saturating_sub(1);
        if last == 0 {
            return self.write_batch(&whole);
        }
        for (at, entries) in parts.into_iter().enumerate() {
            let mut hard_state = whole.hard_state;
            if at < last {
                // Only what is in the log can be committed.
                let commit = self.log.hard_state().commit;
                hard_state = hard_state.filter(|_| at == 0).map(|state| {
                    let commit = whole.snapshot.map_or(commit, |point| point.index);
                    tenure_store::HardState { commit, ..state }
                });
            }
            let snapshot = whole.snapshot.filter(|_| at == 0);
            self.write_batch(&Batch { snapshot, entries, hard_state })?;
        }
        Ok(())
    }

    fn write_batch(&mut self, batch: &Batch<'_>) -> Result<(), WriteError> {
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

    /// Makes everything written durable. On an error the process must stop at once.
    pub(crate) fn sync(&mut self) -> Result<(), Fatal> {
        if self.unsynced {
            let synced = self.log.sync()?;
            self.unsynced = false;
            self.unmarked = true;
            if synced.took.as_millis() >= 500 {
                let took_ms = synced.took.as_millis();
                say::warn("disk is slow", &[("sync_ms", &took_ms)]);
            }
        }
        Ok(())
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

/// Parts of at most this many bytes on disk; an entry alone may be larger.
fn split(entries: &[Entry], bytes_max: usize) -> Vec<&[Entry]> {
    let mut parts = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (at, entry) in entries.iter().enumerate() {
        let more = entry.payload.len() + ENTRY_OVERHEAD_BYTES;
        if bytes + more > bytes_max && at > from {
            parts.push(&entries[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += more;
    }
    parts.push(&entries[from..]);
    parts
}

/// Starts a thread with a name, and tells whether it could. If not, `work` is dropped unused.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    if let Err(error) = &started {
        say::error("cannot start a thread", &[("thread", &name), ("cause", error)]);
    }
    started.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_entries_are_split_and_none_is_lost() {
        let entry = |index| Entry { index, term: 1, kind: 0, payload: vec![0; 100].into() };
        let entries: Vec<Entry> = (1..=10).map(entry).collect();
        let parts = split(&entries, 500);
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [3, 3, 3, 1]);
        assert_eq!(split(&entries, 10).len(), 10, "one alone may be larger");
        assert_eq!(split(&[], 10), [&[] as &[Entry]]);
    }
}
