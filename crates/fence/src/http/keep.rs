//! Keeps the floor of an HTTP layer durably, so that it survives a restart.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::claim::LockSlot;
use crate::floors::Floors;
use crate::rule::Floor;

/// Keeps one floor durably. Only one fence may use it at a time.
pub trait Keep: Send + 'static {
    /// Returns the floor that was kept last.
    fn load(&mut self) -> io::Result<Floor>;

    /// Replaces the kept floor. The new one is durable when this returns. On an error, either of the two is kept.
    fn keep(&mut self, floor: Floor) -> io::Result<()>;
}

/// A floor in a file, locked against a second instance.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use tenure_fence::http::FloorFile;
/// let first = FloorFile::open(dir.path().join("fence"), "ledger")?;
/// assert!(FloorFile::open(dir.path().join("fence"), "ledger").is_err());     // one instance per resource
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FloorFile {
    path: PathBuf,
    lock: String,
    slot: Option<u32>,
    /// The lock file. It is not the floor's own file, because that one is replaced at every change.
    _locked: File,
}

impl FloorFile {
    /// Opens the floor of this lock and slot in a file, which is created with the first change.
    pub fn open<'a>(path: impl Into<PathBuf>, at: impl Into<LockSlot<'a>>) -> io::Result<Self> {
        let (path, at) = (path.into(), at.into());
        at.check().map_err(io::Error::other)?;
        let locked = File::options().create(true).append(true).open(beside(&path, "lock"))?;
        locked.try_lock().map_err(|error| {
            let what = format!("another instance guards {}: {error}", path.display());
            io::Error::new(io::ErrorKind::ResourceBusy, what)
        })?;
        Ok(Self { path, lock: at.lock.to_owned(), slot: at.slot, _locked: locked })
    }
}

impl Keep for FloorFile {
    fn load(&mut self) -> io::Result<Floor> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Floor::default()),
            Err(error) => return Err(error),
        };
        let at = LockSlot { lock: &self.lock, slot: self.slot };
        let floor = Floors::parse(&text).map(|floors| floors.get(at));
        // The file must contain nothing else: a file of another lock is not a floor of this one.
        let whole =
            floor.filter(|floor| Floors::one(at, *floor).is_ok_and(|one| one.to_text() == text));
        whole.ok_or_else(|| {
            let what = format!("{} is not the floor of {at}", self.path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })
    }

    fn keep(&mut self, floor: Floor) -> io::Result<()> {
        let at = LockSlot { lock: &self.lock, slot: self.slot };
        let text = Floors::one(at, floor).map_err(io::Error::other)?.to_text();
        let next = beside(&self.path, "next");
        let mut file = File::create(&next)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&next, &self.path)?;
        let dir =
            self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}
