//! Writes the content of states to files, each of them whole or not at all.
//!
//! A file is written under a name that is never read, synced, renamed, and its directory synced. A row of the engine
//! then names it. A file that no row names is left from a crash, or belongs to a version that is no longer kept; the
//! next start removes it. The names are numbers, so no name of a client reaches the file system.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The directory, beside the engine's file.
const DIR: &str = "states";
/// The ending of a file that is being written.
const PARTIAL: &str = "partial";

/// The files. One process uses them, which the lock of the engine's file ensures.
pub(super) struct StateFiles {
    dir: PathBuf,
    next: AtomicU64,
}

impl StateFiles {
    /// Opens the directory, and removes every file that is not among `named`.
    pub(super) fn open(data: &Path, named: &BTreeSet<u64>) -> io::Result<Self> {
        let dir = data.join(DIR);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if !number.is_some_and(|number| named.contains(&number)) {
                fs::remove_file(entry.path())?;
            }
        }
        sync(&dir)?;
        sync(data)?;
        let next = AtomicU64::new(named.last().map_or(1, |last| last + 1));
        Ok(Self { dir, next })
    }

    /// Writes a new file. Once this returns, the file and its name are durable.
    pub(super) fn write(&self, content: &[u8]) -> io::Result<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path(number);
        let partial = path.with_extension(PARTIAL);
        let written = || {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&partial, &path)?;
            sync(&self.dir)
        };
        written().inspect_err(|_| {
            // The next start removes what cannot be removed now.
            let _ = fs::remove_file(&partial);
            let _ = fs::remove_file(&path);
        })?;
        Ok(number)
    }

    pub(super) fn read(&self, number: u64) -> io::Result<Vec<u8>> {
        fs::read(self.path(number))
    }

    /// Removes files that no row names any more.
    pub(super) fn remove(&self, numbers: &[u64]) {
        for number in numbers {
            // The next start removes what cannot be removed now.
            let _ = fs::remove_file(self.path(*number));
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(number.to_string())
    }
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crash_left_is_removed_and_never_read() {
        let data = tempfile::tempdir().unwrap();
        let files = StateFiles::open(data.path(), &BTreeSet::new()).unwrap();
        let (kept, orphan) = (files.write(b"kept").unwrap(), files.write(b"orphan").unwrap());
        let dir = data.path().join(DIR);
        fs::write(dir.join("9.partial"), b"half").unwrap();
        let files = StateFiles::open(data.path(), &[kept].into()).unwrap();
        let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(left, [kept.to_string().as_str()]);
        assert_eq!(files.read(kept).unwrap(), b"kept");
        assert!(files.read(orphan).is_err());
        assert_eq!(files.read(files.write(b"next").unwrap()).unwrap(), b"next");
    }

    #[test]
    fn a_write_that_fails_leaves_no_file() {
        let data = tempfile::tempdir().unwrap();
        let files = StateFiles::open(data.path(), &BTreeSet::new()).unwrap();
        // A directory in the place of the file: it cannot be renamed to.
        fs::create_dir_all(data.path().join(DIR).join("1").join("x")).unwrap();
        assert!(files.write(b"new").is_err());
        assert!(!data.path().join(DIR).join("1.partial").exists());
    }
}
