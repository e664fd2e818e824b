//! Implements [`Disk`] with the files of this machine.

use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use crate::disk::{Disk, File, write_zeros};

/// The files below one directory of this machine.
#[derive(Debug)]
pub struct RealDisk {
    root: PathBuf,
}

#[derive(Debug)]
struct RealFile(fs::File);

impl RealDisk {
    /// A disk whose names are relative to `root`, which must exist.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.root.clone() } else { self.root.join(Path::new(name)) }
    }
}

impl Disk for RealDisk {
    fn make_dir(&self, dir: &str) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(self.path(dir)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for found in fs::read_dir(self.path(dir))? {
            let found = found?;
            // A name that is not UTF-8 is not one of ours, and neither is a directory.
            if let (Ok(name), false) =
                (found.file_name().into_string(), found.file_type()?.is_dir())
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(self.path(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        let file =
            options.read(true).write(true).create_new(true).mode(0o600).open(self.path(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        fs::File::open(self.path(dir))?.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let found = statvfs(&self.root)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

impl File for RealFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn fill_with_zeros(&self, size: u64) -> io::Result<()> {
        // Allocate the whole range first: a full disk then fails before anything is written, and the blocks lie
        // together. Some file systems cannot allocate; the zeros below suffice.
        match fallocate(&self.0, FallocateFlags::empty(), 0, size) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        // Allocated blocks that were never written cost a metadata update at their first sync.
        write_zeros(self, 0, size)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "reported to those who watch the disk, decides nothing"
    )]
    fn sync(&self) -> io::Result<Duration> {
        let began = Instant::now();
        self.0.sync_data()?;
        Ok(began.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_disk_does_what_the_traits_promise() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(dir.path());
        disk.make_dir("log").unwrap();
        disk.make_dir("log").unwrap();
        let file = disk.create("log/a").unwrap();
        assert_eq!(disk.create("log/a").unwrap_err().kind(), ErrorKind::AlreadyExists);
        file.fill_with_zeros(10_000).unwrap();
        file.write_at(5, b"hello").unwrap();
        file.sync().unwrap();
        disk.rename("log/a", "log/b").unwrap();
        disk.sync_dir("log").unwrap();
        disk.sync_dir("").unwrap();

        assert_eq!(disk.list("log").unwrap(), ["b"]);
        let file = disk.open("log/b").unwrap();
        assert_eq!(file.size().unwrap(), 10_000);
        let mut read = [9; 7];
        file.read_at(4, &mut read).unwrap();
        assert_eq!(&read, b"\0hello\0");
        assert!(file.read_at(9_999, &mut read).is_err(), "a short read is an error");
        assert!(disk.free_bytes().unwrap() > 0);
        disk.remove("log/b").unwrap();
        assert_eq!(disk.open("log/b").unwrap_err().kind(), ErrorKind::NotFound);
    }
}
