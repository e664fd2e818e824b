//! Makes files and directories durable, and removes them.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::{Error, disk};

/// Makes the names in a directory durable.
pub(super) fn sync_dir(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(disk("sync", path))
}

/// Makes a directory and everything below it durable.
pub(super) fn sync_tree(path: &Path) -> Result<(), Error> {
    for entry in std::fs::read_dir(path).map_err(disk("read", path))? {
        let entry = entry.map_err(disk("read", path))?;
        let kind = entry.file_type().map_err(disk("read", path))?;
        let path = entry.path();
        if kind.is_dir() {
            sync_tree(&path)?;
        } else if kind.is_file() {
            File::open(&path).and_then(|file| file.sync_all()).map_err(disk("sync", &path))?;
        }
    }
    sync_dir(path)
}

pub(super) fn write_synced(path: &Path, text: &str) -> Result<(), Error> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(disk("write", path))
}

pub(super) fn link(target: &Path, path: &Path) -> Result<(), Error> {
    std::os::unix::fs::symlink(target, path).map_err(disk("link", path))
}

/// Returns the target of a symbolic link, or `None` if there is no link.
pub(super) fn read_link(path: &Path) -> Result<Option<PathBuf>, Error> {
    match std::fs::read_link(path) {
        Ok(target) => Ok(Some(target)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(disk("read the link", path)(error)),
    }
}

/// Returns the names in a directory.
pub(super) fn names(path: &Path) -> Result<Vec<String>, Error> {
    let entries = std::fs::read_dir(path).map_err(disk("read", path))?;
    let name = |entry: io::Result<std::fs::DirEntry>| {
        let entry = entry.map_err(disk("read", path))?;
        Ok(entry.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}

/// Removes a file, a link or a whole directory.
pub(super) fn remove_if_there(path: &Path) -> Result<(), Error> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(disk("remove", path)(error)),
        _ => Ok(()),
    }
}
