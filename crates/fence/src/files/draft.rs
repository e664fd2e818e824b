//! Implements drafts: private directories for data that is not published yet.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::disk::{names, remove_if_there, sync_dir, sync_tree};
use super::{Error, disk};

/// A directory private to one writer, which becomes the data when it is published.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    previous: Option<PathBuf>,
    read_previous: Cell<bool>,
    /// Locked for as long as the draft exists, so that no other process removes the draft as abandoned.
    lock: File,
}

impl Draft {
    /// Makes an empty draft. The caller must hold the guard; otherwise another process could remove the draft as
    /// abandoned before it is locked.
    pub(super) fn make(
        dir: &Path,
        _guard: &File,
        previous: Option<PathBuf>,
    ) -> Result<Self, Error> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let path = loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = dir.join("drafts").join(format!("{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => break path,
                // The name was used by a process with the same id: an earlier one, or one in another container.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(disk("make", &path)(error)),
            }
        };
        let lock = File::open(&path).map_err(disk("open", &path))?;
        lock.lock().map_err(disk("lock", &path))?;
        Ok(Self { path, previous, read_previous: Cell::new(false), lock })
    }

    /// Returns the directory to write into.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the data that this draft will replace, for writers that change it rather than write it anew. The caller
    /// must not write to it. After this call, the draft is only published if that data has not been replaced since.
    pub fn previous(&self) -> Option<&Path> {
        self.read_previous.set(true);
        self.previous.as_deref()
    }

    pub(super) fn was_made_from_previous(&self) -> bool {
        self.read_previous.get()
    }

    pub(super) fn sync(&self) -> Result<(), Error> {
        sync_tree(&self.path)
    }

    /// Moves the draft to its final place.
    pub(super) fn publish(self, to: &Path) -> Result<(), Error> {
        std::fs::rename(&self.path, to).map_err(disk("rename", &self.path))?;
        sync_dir(to.parent().expect("data has a directory"))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // A published draft was renamed, so nothing is left at its path. A draft that was not published is removed
        // here; if that fails, a later write removes it as abandoned.
        let _ = std::fs::remove_dir_all(&self.path);
        let _ = self.lock.unlock();
    }
}

/// Removes the drafts that no process has locked. The caller holds the guard.
pub(super) fn remove_abandoned(dir: &Path) -> Result<(), Error> {
    let drafts = dir.join("drafts");
    for name in names(&drafts)? {
        let path = drafts.join(name);
        let Ok(draft) = File::open(&path) else { continue };
        if draft.try_lock().is_ok() {
            remove_if_there(&path)?;
        }
    }
    Ok(())
}
