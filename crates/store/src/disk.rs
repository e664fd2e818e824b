//! Defines the operations that the store needs from a disk.
//!
//! Every byte this crate reads or writes goes through [`Disk`] and [`File`]. [`RealDisk`] is the one that ships;
//! `sim::SimDisk` (feature `sim`) loses, tears and spoils what a real disk may lose, tear and spoil. The code above
//! cannot tell them apart.
//!
//! Names are relative to the data directory, with `/` between directory and file.
//!
//! [`RealDisk`]: crate::RealDisk

use std::{fmt, io, sync::Arc, time::Duration};

/// A directory tree whose changes last only once they are synced.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Makes a directory, or does nothing if it is there. Lasts after `sync_dir` of its parent.
    fn make_dir(&self, dir: &str) -> io::Result<()>;

    /// The names of the files in a directory, without the directory, in no particular order.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// Opens a file that exists, for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Creates a file that must not exist. Its name lasts after `sync_dir`.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Renames a file and replaces any file that had the new name. Lasts after `sync_dir`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Lasts after `sync_dir`.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes every earlier create, rename and remove in this directory last.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;

    /// The number of bytes that this process can still allocate.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// One open file, read and written at offsets.
pub trait File: fmt::Debug + Send + Sync {
    /// The length in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Fills the whole buffer from this offset, or fails.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes every byte at this offset. After an error, any of them may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Grows an empty file to `size` bytes of zeros with every block allocated, so that writing
    /// inside it later neither needs space nor changes its metadata.
    fn fill_with_zeros(&self, size: u64) -> io::Result<()>;

    /// Makes every earlier write to this file last, and returns how long that took.
    ///
    /// After an error nothing is known about what lasted, and a second call proves nothing: the
    /// kernel may have forgotten the pages that failed.
    fn sync(&self) -> io::Result<Duration>;
}

/// Whether an error means that the disk, or this process's share of it, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Overwrites a range with zeros in bounded steps.
pub(crate) fn write_zeros(file: &dyn File, offset: u64, bytes: u64) -> io::Result<()> {
    /// Large enough to keep system calls rare, small enough for a constant buffer.
    const STEP: usize = 64 * 1024;
    static ZEROS: [u8; STEP] = [0; STEP];
    let mut done = 0;
    while done < bytes {
        let step = usize::try_from(bytes - done).unwrap_or(STEP).min(STEP);
        file.write_at(offset + done, &ZEROS[..step])?;
        done += step as u64;
    }
    Ok(())
}

/// Replaces a small file so that a crash leaves the old content or the new, never a mixture.
pub(crate) fn replace(disk: &dyn Disk, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = format!("{name}.tmp");
    match disk.remove(&temporary) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let file = disk.create(&temporary)?;
    file.write_at(0, bytes)?;
    file.sync()?;
    disk.rename(&temporary, name)?;
    disk.sync_dir(name.rsplit_once('/').map_or("", |(dir, _)| dir))
}
