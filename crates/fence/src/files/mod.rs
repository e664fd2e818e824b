//! Fences a directory of files: refuses writes with stale tokens.
//!
//! Data and floor are published together, by renaming one symbolic link:
//!
//! ```text
//! DIR/current            -> versions/00000000000000000012      what readers read
//!     versions/…12/floor    the floors that belong to this data
//!     versions/…12/data  -> ../../data/00000000000000000012    DIR/current/data/… are the files
//!     drafts/               data that writers are preparing
//!     guard                 locked from the check of the floor until the link is renamed
//! ```
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let token = tenure_fence::Token::from_u64(7).unwrap();
//! let fence = tenure_fence::files::FileFence::open(dir.path())?;
//! fence.write("ledger", token, |draft| std::fs::write(draft.path().join("balance"), "7"))?;  // refused if stale
//! assert_eq!(std::fs::read_to_string(fence.data()?.unwrap().join("balance"))?, "7");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Every step is synced before the next one. After a crash at any moment the link shows one whole version, and every
//! acknowledged write is in it or in a later one. The fence does not stop a process that writes into `data` directly.
//! The lock on `guard` is advisory and local, so the directory belongs on a file system of one machine.

mod disk;
mod draft;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::claim::{Claim, LockSlot};
use crate::floors::Floors;
use crate::rule::{Floor, Touch};

use self::disk::{names, sync_dir, write_synced};
pub use self::draft::Draft;

/// The number of published versions to keep: the current one, and the previous one, which a process may still be
/// reading.
const VERSIONS_KEPT: u64 = 2;

/// Why the fence did not write, or may not have.
pub type Error = crate::Error<Failure>;

/// A failure of the files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The draft was made from data that another writer replaced in the meantime, under the same token or as a shared
    /// holder. Nothing was changed; repeat the write.
    #[error("the data that the draft was made from has been replaced")]
    Changed,
    /// The caller's own function failed. Nothing was changed.
    #[error("the draft could not be written")]
    Draft(#[source] io::Error),
    /// The disk failed. The write may have happened.
    #[error("{what}")]
    Disk {
        /// The failed operation and its path.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

/// A directory that refuses writes with stale tokens.
#[derive(Clone, Debug)]
pub struct FileFence {
    dir: PathBuf,
}

/// The version that the link shows.
struct CurrentData {
    /// The version number; 0 before the first one.
    version: u64,
    floors: Floors,
    data: Option<PathBuf>,
}

impl FileFence {
    /// Opens the fence of a directory, and creates the directory if it does not exist.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, Error> {
        let fence = Self { dir: dir.into() };
        for part in ["drafts", "data", "versions"] {
            let path = fence.dir.join(part);
            std::fs::create_dir_all(&path).map_err(disk("make", &path))?;
        }
        fence.guard()?;
        sync_dir(&fence.dir)?;
        Ok(fence)
    }

    /// Replaces the data with what `write` puts into the draft, or returns why not.
    ///
    /// The fence holds no lock while the draft is written, so a slow or frozen writer blocks no other. It checks the
    /// floor before, to save the effort, and again when it publishes the draft; the second check decides.
    pub fn write<'a>(
        &self,
        at: impl Into<LockSlot<'a>>,
        claim: impl Into<Claim>,
        write: impl FnOnce(&Draft) -> io::Result<()>,
    ) -> Result<(), Error> {
        let (at, claim) = (at.into(), claim.into());
        let mut before = self.current()?;
        before.floors.admit(at, claim, Touch::Write)?;
        let draft = Draft::make(&self.dir, &self.guard()?, before.data)?;
        write(&draft).map_err(|error| Error::Store(Failure::Draft(error)))?;
        draft.sync()?;

        let _guard = self.guard()?;
        let mut current = self.current()?;
        current.floors.admit(at, claim, Touch::Write)?;
        if draft.was_made_from_previous() && current.version != before.version {
            return Err(Error::Store(Failure::Changed));
        }
        let next = current.version + 1;
        let data = self.data_path(next);
        // A writer that was killed may have left this directory.
        disk::remove_if_there(&data)?;
        draft.publish(&data)?;
        self.publish(next, &current.floors, Some(&data))
    }

    /// Raises the floor and leaves the data as it is. Call it right after the lock was acquired: from then on the fence
    /// accepts nothing older.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let (token, older) = (tenure_fence::Token::from_u64(7).unwrap(), tenure_fence::Token::from_u64(6).unwrap());
    /// let fence = tenure_fence::files::FileFence::open(dir.path())?;
    /// fence.raise("ledger", token)?;
    /// assert!(fence.write("ledger", older, |_| Ok(())).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn raise<'a>(
        &self,
        at: impl Into<LockSlot<'a>>,
        claim: impl Into<Claim>,
    ) -> Result<(), Error> {
        let _guard = self.guard()?;
        let mut current = self.current()?;
        current.floors.admit(at.into(), claim.into(), Touch::Raise)?;
        self.publish(current.version + 1, &current.floors, current.data.as_deref())
    }

    /// Returns the directory with the current data, or `None` before the first write. The directory is never changed,
    /// and stays until two more versions have been published.
    pub fn data(&self) -> Result<Option<PathBuf>, Error> {
        Ok(self.current()?.data)
    }

    /// Returns the floor of a lock and slot.
    pub fn floor<'a>(&self, at: impl Into<LockSlot<'a>>) -> Result<Floor, Error> {
        Ok(self.current()?.floors.get(at.into()))
    }

    /// Waits until no other writer is between its check of the floor and the rename of the link.
    fn guard(&self) -> Result<File, Error> {
        let path = self.dir.join("guard");
        let file =
            File::options().create(true).append(true).open(&path).map_err(disk("open", &path))?;
        file.lock().map_err(disk("lock", &path))?;
        Ok(file)
    }

    /// Creates a version of floors and data, and points the link to it. The caller holds the guard.
    fn publish(&self, version: u64, floors: &Floors, data: Option<&Path>) -> Result<(), Error> {
        let versions = self.dir.join("versions");
        let name = version_name(version);
        let made = versions.join(&name);
        disk::remove_if_there(&made)?;
        std::fs::create_dir(&made).map_err(disk("make", &made))?;
        if let Some(data) = data.and_then(Path::file_name) {
            disk::link(&Path::new("../../data").join(data), &made.join("data"))?;
        }
        write_synced(&made.join("floor"), &floors.to_text())?;
        sync_dir(&made)?;
        sync_dir(&versions)?;

        let (next, current) = (self.dir.join("next"), self.dir.join("current"));
        disk::remove_if_there(&next)?;
        disk::link(&Path::new("versions").join(&name), &next)?;
        std::fs::rename(&next, &current).map_err(disk("rename", &next))?;
        sync_dir(&self.dir)?;
        // The write is done. Files that cannot be removed now are tried again after the next write.
        let _ = self.tidy(version);
        Ok(())
    }

    /// Removes old versions, data that no version refers to, and drafts of writers that are gone.
    fn tidy(&self, newest: u64) -> Result<(), Error> {
        let oldest = version_name((newest + 1).saturating_sub(VERSIONS_KEPT));
        let (versions, data) = (self.dir.join("versions"), self.dir.join("data"));
        for name in names(&versions)?.into_iter().filter(|name| *name < oldest) {
            disk::remove_if_there(&versions.join(name))?;
        }
        let mut shown = Vec::new();
        for name in names(&versions)? {
            let link = std::fs::read_link(versions.join(name).join("data"));
            shown.extend(
                link.ok().and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned())),
            );
        }
        for name in names(&data)?.into_iter().filter(|name| !shown.contains(name)) {
            disk::remove_if_there(&data.join(name))?;
        }
        draft::remove_abandoned(&self.dir)
    }

    fn current(&self) -> Result<CurrentData, Error> {
        // A version may be removed between the read of the link and the read of its files; then there is a newer one.
        loop {
            let link = self.dir.join("current");
            let Some(target) = disk::read_link(&link)? else {
                return Ok(CurrentData { version: 0, floors: Floors::default(), data: None });
            };
            let unreadable = |what: &str| Error::Unreadable(format!("{}: {what}", link.display()));
            let name = target.file_name().and_then(|name| name.to_str());
            let version = name.and_then(|name| name.parse().ok()).filter(|it| *it > 0);
            let version: u64 = version.ok_or_else(|| unreadable(&target.to_string_lossy()))?;
            let made = self.dir.join("versions").join(version_name(version));
            let text = match std::fs::read_to_string(made.join("floor")) {
                Ok(text) => Some(text),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(disk("read", &made)(error)),
            };
            let data = disk::read_link(&made.join("data"))?;
            // A missing file was removed only if the link has moved on: the version that the link shows is never
            // removed.
            if (text.is_none() || data.is_none()) && disk::read_link(&link)? != Some(target) {
                continue;
            }
            let text = text.ok_or_else(|| unreadable("the version that it shows has no floor"))?;
            let floors = Floors::parse(&text).ok_or_else(|| unreadable(&text))?;
            let data = data.and_then(|it| Some(self.dir.join("data").join(it.file_name()?)));
            return Ok(CurrentData { version, floors, data });
        }
    }

    fn data_path(&self, version: u64) -> PathBuf {
        self.dir.join("data").join(version_name(version))
    }
}

fn version_name(version: u64) -> String {
    format!("{version:020}")
}

fn disk(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let what = format!("cannot {what} {}", path.display());
    move |source| Error::Store(Failure::Disk { what, source })
}
