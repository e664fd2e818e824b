//! Writes the content of states to files, each of them whole or not at all.
//!
//! A file is written under a name that is never read, synced, renamed, and its directory synced. A row of the engine
//! then names it. A file that no row names is left from a crash, or belongs to a version that is no longer kept. It may
//! also mean that the engine's file is an older one than it was. So the next start moves such a file aside, and deletes
//! none. The names are numbers, so no name of a client reaches the file system.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The directory, beside the engine's file.
const DIR: &str = "states";
/// The directory below it for files that no row names.
const UNNAMED: &str = "unnamed";
/// The ending of a file that is being written.
const PARTIAL: &str = "partial";

/// The files. One process uses them, which the lock of the engine's file ensures.
pub(super) struct StateFiles {
    dir: PathBuf,
    next: AtomicU64,
}

/// What was found when the directory was opened.
pub(super) enum FoundFiles {
    Files {
        files: StateFiles,
        /// How many files were moved aside, and where they are.
        moved: Option<(usize, PathBuf)>,
    },
    /// There are so many files, and the engine's file knows of none: it is not the one that they were written with.
    Orphans { dir: PathBuf, files: usize },
}

impl StateFiles {
    /// Opens the directory. Removes files that were not written to their end, and moves those aside that are not among
    /// `named`. If `is_used` is false, the engine has never recorded that there are files.
    pub(super) fn open(
        data: &Path,
        named: &BTreeSet<u64>,
        is_used: bool,
    ) -> io::Result<FoundFiles> {
        let dir = data.join(DIR);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let unnamed: Vec<u64> =
            numbers(&dir)?.into_iter().filter(|number| !named.contains(number)).collect();
        if named.is_empty() && !is_used && !unnamed.is_empty() {
            return Ok(FoundFiles::Orphans { dir, files: unnamed.len() });
        }
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == PARTIAL) {
                fs::remove_file(path)?;
            }
        }
        let aside = dir.join(UNNAMED);
        let before = if aside.exists() { numbers(&aside)? } else { BTreeSet::new() };
        // A number is not used again: a file that is moved aside must not replace an earlier one.
        let last = named.iter().chain(&unnamed).chain(&before).max();
        let next = AtomicU64::new(last.map_or(1, |last| last.saturating_add(1)));
        if !unnamed.is_empty() {
            DirBuilder::new().recursive(true).mode(0o700).create(&aside)?;
            for number in &unnamed {
                let name = number.to_string();
                fs::rename(dir.join(&name), aside.join(&name))?;
            }
            sync(&aside)?;
        }
        sync(&dir)?;
        sync(data)?;
        let moved = (!unnamed.is_empty()).then_some((unnamed.len(), aside));
        Ok(FoundFiles::Files { files: Self { dir, next }, moved })
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
            // The next start removes or moves what cannot be removed now.
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
            // The next start moves what cannot be removed now.
            let _ = fs::remove_file(self.path(*number));
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(number.to_string())
    }
}

/// The files in a directory whose names are numbers.
fn numbers(dir: &Path) -> io::Result<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.parse::<u64>().ok());
        // Names such as `07` were not written here.
        let number = number.filter(|number| name == number.to_string().as_str());
        if entry.file_type()?.is_file() {
            found.extend(number);
        }
    }
    Ok(found)
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(data: &Path, named: &[u64]) -> (StateFiles, usize) {
        match StateFiles::open(data, &named.iter().copied().collect(), true).unwrap() {
            FoundFiles::Files { files, moved } => (files, moved.map_or(0, |(moved, _)| moved)),
            FoundFiles::Orphans { .. } => panic!("the files are known"),
        }
    }

    #[test]
    fn what_a_crash_left_is_moved_aside_and_never_read() {
        let data = tempfile::tempdir().unwrap();
        let (files, _) = opened(data.path(), &[]);
        let (kept, orphan) = (files.write(b"kept").unwrap(), files.write(b"orphan").unwrap());
        let dir = data.path().join(DIR);
        fs::write(dir.join("9.partial"), b"half").unwrap();
        fs::write(dir.join("notes"), b"of the operator").unwrap();
        let (files, moved) = opened(data.path(), &[kept]);
        assert_eq!(moved, 1);
        assert_eq!(numbers(&dir).unwrap(), [kept].into());
        assert!(!dir.join("9.partial").exists() && dir.join("notes").exists());
        assert_eq!(fs::read(dir.join(UNNAMED).join(orphan.to_string())).unwrap(), b"orphan");
        assert_eq!(files.read(kept).unwrap(), b"kept");
        assert!(files.read(orphan).is_err());
        // A later crash leaves a file with another number, so the first one stays where it is.
        let next = files.write(b"next").unwrap();
        assert_eq!(files.read(next).unwrap(), b"next");
        assert!(next > orphan);
        opened(data.path(), &[kept]);
        assert_eq!(numbers(&dir.join(UNNAMED)).unwrap(), [orphan, next].into());
    }

    #[test]
    fn files_of_an_engine_that_knows_none_are_left_alone() {
        let data = tempfile::tempdir().unwrap();
        let (files, _) = opened(data.path(), &[]);
        let number = files.write(b"state").unwrap();
        let opened = StateFiles::open(data.path(), &BTreeSet::new(), false).unwrap();
        assert!(matches!(opened, FoundFiles::Orphans { files: 1, .. }));
        assert_eq!(files.read(number).unwrap(), b"state");
    }

    #[test]
    fn a_write_that_fails_leaves_no_file() {
        let data = tempfile::tempdir().unwrap();
        let (files, _) = opened(data.path(), &[]);
        // A directory in the place of the file: it cannot be renamed to.
        fs::create_dir_all(data.path().join(DIR).join("1").join("x")).unwrap();
        assert!(files.write(b"new").is_err());
        assert!(!data.path().join(DIR).join("1.partial").exists());
    }
}
