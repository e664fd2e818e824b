//! Provides a disk whose syncs take as long as a test wants.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tenure_store::{Disk, File};

/// Syncs a file of such a disk, and returns the reported duration.
pub(crate) type Sync = fn(&dyn File) -> io::Result<Duration>;

/// Wraps a disk and replaces its file syncs.
#[derive(Debug)]
pub(crate) struct SyncedBy(pub(crate) Arc<dyn Disk>, pub(crate) Sync);

#[derive(Debug)]
struct SyncedFile(Arc<dyn File>, Sync);

impl Disk for SyncedBy {
    fn make_dir(&self, dir: &str) -> io::Result<()> {
        self.0.make_dir(dir)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(SyncedFile(self.0.open(name)?, self.1)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(SyncedFile(self.0.create(name)?, self.1)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
}

impl File for SyncedFile {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn fill_with_zeros(&self, size: u64) -> io::Result<()> {
        self.0.fill_with_zeros(size)
    }

    fn sync(&self) -> io::Result<Duration> {
        (self.1)(&*self.0)
    }
}
