//! Opens a member's data directory, creates it if needed, and locks it against other processes.
//!
//! ```text
//! identity.toml   cluster, member, format        log/         segments
//! in-use          locked by the one process      snapshots/
//! reserve         given back when the disk is full
//! tickets/        the key that signs, 0600
//! ```

use std::{
    fmt, fs,
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{FlockOperation, flock};

use crate::{Disk, RealDisk};

const IN_USE: &str = "in-use";

/// A pid has at most a few digits; a longer text is not a pid.
const PID_BYTES_MAX: u64 = 20;

/// The data directory of one member, locked against other processes until it is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    disk: Arc<RealDisk>,
    // Held for its lock, which the system releases however the process ends.
    _lock: fs::File,
}

/// Something about a data directory that an operator may want to change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Other users of this machine can read or change the data.
    Open {
        /// The data directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Other users of this machine can rename or replace the whole directory.
    ParentWritable {
        /// The parent of the data directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// Another process has locked the directory.
    #[error("data directory {path:?} is in use{}", by(.pid))]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// The id of that process, if its lock file holds a readable one.
        pid: Option<u32>,
    },
    /// The path exists and is not a directory.
    #[error("data directory {path:?} is not a directory")]
    NotADirectory {
        /// The path given.
        path: PathBuf,
    },
    /// The file system is mounted read-only.
    #[error("data directory {path:?} is on a read-only file system")]
    ReadOnly {
        /// The data directory.
        path: PathBuf,
    },
    /// This process lacks the permission.
    #[error("no permission to use data directory {path:?}")]
    Permission {
        /// The data directory.
        path: PathBuf,
    },
    /// The disk is full.
    #[error("no space left for data directory {path:?}")]
    NoSpace {
        /// The data directory.
        path: PathBuf,
    },
    /// Another operation failed.
    #[error("cannot {doing} data directory {path:?}")]
    Io {
        /// The operation that failed, for the message.
        doing: &'static str,
        /// The data directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

impl DataDir {
    /// Locks the directory. Creates it first if it is absent, readable by its owner alone.
    pub fn open_or_create(path: impl Into<PathBuf>) -> Result<(Self, Vec<Warning>), DataDirError> {
        let path = path.into();
        create(&path).map_err(|error| explain(&path, "create", error))?;
        let found = fs::metadata(&path).map_err(|error| explain(&path, "inspect", error))?;
        if !found.is_dir() {
            return Err(DataDirError::NotADirectory { path });
        }
        let lock = lock(&path)?;
        let warnings = warnings(&path, found.mode());
        let disk = Arc::new(RealDisk::new(&path));
        Ok((Self { path, disk, _lock: lock }, warnings))
    }

    /// Locks a directory that no process uses, until the result is dropped, without changing anything in it.
    pub fn keep_out(path: &Path) -> Result<Option<fs::File>, DataDirError> {
        let found = fs::metadata(path).map_err(|error| explain(path, "inspect", error))?;
        if !found.is_dir() {
            return Err(DataDirError::NotADirectory { path: path.to_owned() });
        }
        match fs::File::open(path.join(IN_USE)) {
            // No process has ever used the directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(explain(path, "lock", error)),
            Ok(mut file) => take_lock(path, &mut file).map(|()| Some(file)),
        }
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The disk that the log, snapshots, reserve and identity of this directory are on.
    pub fn disk(&self) -> Arc<dyn Disk> {
        self.disk.clone()
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { path, mode } => {
                write!(to, "data directory {path:?} has mode {mode:04o}, others can reach it")
            }
            Self::ParentWritable { path, mode } => {
                write!(
                    to,
                    "directory {path:?} has mode {mode:04o}, others can replace what is in it"
                )
            }
        }
    }
}

fn by(pid: &Option<u32>) -> String {
    pid.map_or(String::new(), |pid| format!(" by process {pid}"))
}

fn create(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        // Without this, the whole directory could be gone after a power loss.
        Ok(()) => fs::File::open(parent(path))?.sync_all(),
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn explain(path: &Path, doing: &'static str, source: io::Error) -> DataDirError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => DataDirError::ReadOnly { path },
        io::ErrorKind::PermissionDenied => DataDirError::Permission { path },
        io::ErrorKind::NotADirectory => DataDirError::NotADirectory { path },
        io::ErrorKind::StorageFull => DataDirError::NoSpace { path },
        _ => DataDirError::Io { doing, path, source },
    }
}

fn lock(path: &Path) -> Result<fs::File, DataDirError> {
    let failed = |error| explain(path, "lock", error);
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path.join(IN_USE))
        .map_err(failed)?;
    take_lock(path, &mut file)?;
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
    match written {
        // A full disk must not keep a member from starting: the member frees space once it runs.
        Err(error) if error.kind() != io::ErrorKind::StorageFull => Err(failed(error)),
        _ => Ok(file),
    }
}

fn take_lock(path: &Path, file: &mut fs::File) -> Result<(), DataDirError> {
    match flock(&*file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut text = String::new();
            // Another process certainly has the lock; reading its pid is best effort.
            let _ = file.take(PID_BYTES_MAX).read_to_string(&mut text);
            let pid = text.trim().parse().ok();
            Err(DataDirError::InUse { path: path.to_owned(), pid })
        }
        Err(error) => Err(explain(path, "lock", error.into())),
    }
}

fn warnings(path: &Path, mode: u32) -> Vec<Warning> {
    const OTHERS: u32 = 0o077;
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let mut warnings = Vec::new();
    let mode = mode & 0o7777;
    if mode & OTHERS != 0 {
        warnings.push(Warning::Open { path: path.to_owned(), mode });
    }
    let parent = fs::canonicalize(path).ok().and_then(|path| path.parent().map(Path::to_owned));
    if let Some(above) = parent
        && let Ok(found) = fs::metadata(&above)
        && found.mode() & OTHERS_WRITE != 0
        && found.mode() & STICKY == 0
    {
        warnings.push(Warning::ParentWritable { path: above, mode: found.mode() & 0o7777 });
    }
    warnings
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_new_directory_is_for_its_owner_alone_and_for_one_process() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("data");
        let (dir, warnings) = DataDir::open_or_create(&path).unwrap();
        assert_eq!(warnings, []);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);

        let error = DataDir::open_or_create(&path).unwrap_err();
        let pid = std::process::id();
        assert_eq!(
            error.to_string(),
            format!("data directory {path:?} is in use by process {pid}")
        );
        let kept_out = DataDir::keep_out(&path);
        assert!(matches!(kept_out, Err(DataDirError::InUse { .. })), "{kept_out:?}");
        drop(dir);
        assert!(DataDir::open_or_create(&path).is_ok(), "the lock ends with its holder");

        let kept_out = DataDir::keep_out(&path).unwrap();
        assert!(kept_out.is_some() && DataDir::open_or_create(&path).is_err());
        drop(kept_out);
        let unused = above.path().join("unused");
        fs::create_dir(&unused).unwrap();
        assert!(DataDir::keep_out(&unused).unwrap().is_none());
        assert_eq!(fs::read_dir(&unused).unwrap().count(), 0, "nothing is changed");
        assert!(DataDir::keep_out(&above.path().join("absent")).is_err());
    }

    #[test]
    fn loose_permissions_are_reported_and_do_not_stop_the_member() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("data");
        drop(DataDir::open_or_create(&path).unwrap());
        set_mode(&path, 0o755);
        set_mode(above.path(), 0o777);
        let (_dir, warnings) = DataDir::open_or_create(&path).unwrap();
        assert_eq!(
            warnings[0].to_string(),
            format!("data directory {path:?} has mode 0755, others can reach it")
        );
        assert!(matches!(&warnings[1], Warning::ParentWritable { mode: 0o777, .. }));
        set_mode(above.path(), 0o1777);
        let warnings = super::warnings(&path, 0o700);
        assert_eq!(warnings, [], "a sticky parent protects what is in it");
    }

    #[test]
    fn what_stands_in_the_way_is_named() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("file");
        fs::write(&path, "").unwrap();
        let error = DataDir::open_or_create(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("data directory {path:?} is not a directory"));
        let path = path.join("below");
        let error = DataDir::open_or_create(&path).unwrap_err();
        assert!(matches!(error, DataDirError::NotADirectory { .. }), "{error}");
        let explained =
            |kind: io::ErrorKind| explain(Path::new("/d"), "lock", kind.into()).to_string();
        assert_eq!(
            explained(io::ErrorKind::ReadOnlyFilesystem),
            "data directory \"/d\" is on a read-only file system"
        );
        assert_eq!(
            explained(io::ErrorKind::PermissionDenied),
            "no permission to use data directory \"/d\""
        );
        assert_eq!(
            explained(io::ErrorKind::StorageFull),
            "no space left for data directory \"/d\""
        );
    }
}
