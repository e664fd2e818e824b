//! Remembers in the data directory that identity is enabled.
//!
//! A member that starts has the access rules of its last snapshot, and applies the rest of its log only when it knows
//! what is committed. If identity was enabled in between, callers without credentials could read old states until then.
//! The marker closes this gap.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The file, in the data directory.
const FILE: &str = "identity-enabled";

/// The marker of a member. Without a disk it is none, and holds nothing.
#[derive(Default)]
pub(super) struct IdentityMarker {
    file: OnceLock<PathBuf>,
    /// Whether the marker file exists.
    written: AtomicBool,
    /// Whether identity was enabled when the member last ran, and the member has not applied its log since.
    held: AtomicBool,
}

impl IdentityMarker {
    /// Looks for the marker in the data directory.
    pub(super) fn open(&self, data: &Path) -> io::Result<()> {
        let file = data.join(FILE);
        let exists = file.try_exists()?;
        self.written.store(exists, Ordering::Release);
        self.held.store(exists, Ordering::Release);
        let _ = self.file.set(file);
        Ok(())
    }

    /// Whether identity counts as enabled whatever the rules say.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Makes the marker agree with the rules, which have changed. Only the event loop calls it.
    pub(super) fn follow(&self, enabled: bool) {
        let Some(file) = self.file.get() else { return };
        let written = self.written.load(Ordering::Acquire);
        if written == enabled || !enabled && self.is_held() {
            return;
        }
        let changed = if enabled {
            File::create(file).and_then(|it| it.sync_all())
        } else {
            fs::remove_file(file)
        };
        let changed = changed.and_then(|()| match file.parent() {
            Some(dir) => File::open(dir)?.sync_all(),
            None => Ok(()),
        });
        match changed {
            Ok(()) => self.written.store(enabled, Ordering::Release),
            Err(error) => {
                tracing::error!(cause = %error, enabled, "cannot record on disk whether identity is enabled");
            }
        }
    }

    /// Believes the rules alone from now on: the member has applied all that was in its log at the start.
    pub(super) fn release(&self, enabled: bool) {
        if self.held.swap(false, Ordering::AcqRel) {
            self.follow(enabled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_counts_as_enabled_until_the_log_is_applied() {
        let dir = tempfile::tempdir().unwrap();
        let open = || {
            let marker = IdentityMarker::default();
            marker.open(dir.path()).unwrap();
            marker
        };
        let first = open();
        first.follow(false);
        assert!(!first.is_held());
        first.follow(true);
        assert!(!first.is_held(), "the rules say it");
        assert!(open().is_held());

        let again = open();
        again.follow(false);
        assert!(again.is_held() && open().is_held(), "an old state does not remove it");
        again.release(false);
        assert!(!again.is_held() && !open().is_held());
    }
}
