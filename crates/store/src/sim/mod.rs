//! What could a disk do to us?
//!
//! [`SimDisk`] keeps files in memory and remembers, for each 512-byte sector, what has lasted and
//! what was only written. When the power fails, each unsynced sector keeps any one of the versions
//! it has had, and each unsynced create, rename or remove happens or not, on its own. A failed sync
//! behaves like the worst kernels: the pages stay readable, count as clean, and are gone after the
//! next power loss.
//!
//! Everything follows from the seed and the calls made, so a run can be repeated exactly.

mod content;
mod fault;
mod machine;

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use content::Content;
pub use fault::{Fault, FaultRates, Rng};

use crate::disk::{Disk, File};
use machine::{Change, Inner, Node, io_error, no_power, no_space, parent};

/// The unit a disk writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// What survives between one run of the process and the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// The process died and the machine did not: all that was written is still there.
    ProcessKilled,
    /// The power failed and nothing unsynced lasted.
    PowerLostAll,
    /// The power failed; each unsynced sector and directory change lasted or not, by chance.
    PowerLostSome,
}

/// A simulated disk. Clones share it; [`SimDisk::fork`] copies it.
#[derive(Debug, Clone)]
pub struct SimDisk {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct SimFile {
    inner: Arc<Mutex<Inner>>,
    inode: u64,
    boot: u64,
}

impl SimDisk {
    /// An empty disk without limits or faults.
    pub fn new(seed: u64) -> Self {
        Self { inner: Arc::new(Mutex::new(Inner::new(seed))) }
    }

    /// A separate disk in the same condition, whose chances are drawn from another seed and whose
    /// faults are counted from zero.
    pub fn fork(&self, seed: u64) -> Self {
        let mut copy = self.lock().clone();
        copy.rng = Rng::new(seed);
        copy.counts.clear();
        Self { inner: Arc::new(Mutex::new(copy)) }
    }

    /// Limits the bytes all files may have together.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity = bytes;
    }

    /// Bytes that all files have together.
    pub fn used_bytes(&self) -> u64 {
        self.lock().used()
    }

    /// Sets how often each fault happens by itself.
    pub fn set_rates(&self, rates: FaultRates) {
        self.lock().rates = rates;
    }

    /// Makes the next operation that can suffer this fault suffer it.
    pub fn plan(&self, fault: Fault) {
        self.lock().planned.push(fault);
    }

    /// How many operations that change the disk have been asked of it.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Cuts the power during the operation after `more` further ones, or never.
    pub fn power_off_after(&self, more: Option<u64>) {
        let mut inner = self.lock();
        inner.power_off_at = more.map(|more| inner.operations.saturating_add(more));
    }

    /// Whether the power is cut; every operation fails until [`SimDisk::restart`].
    pub fn is_off(&self) -> bool {
        self.lock().is_off
    }

    /// Starts the next run. Files opened before no longer work.
    pub fn restart(&self, how: Restart) {
        self.lock().restart(how);
    }

    /// How often each fault has happened.
    pub fn counts(&self) -> BTreeMap<Fault, u64> {
        self.lock().counts.clone()
    }

    /// The names of all files, in order.
    pub fn files(&self) -> Vec<String> {
        let inner = self.lock();
        let file = |(name, node): (&String, &Node)| (*node != Node::Dir).then(|| name.clone());
        inner.names.iter().filter_map(file).collect()
    }

    /// What a file holds, as a process sees it.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let inner = self.lock();
        let Node::File(inode) = *inner.names.get(name)? else { return None };
        inner.files.get(&inode).map(Content::bytes)
    }

    /// Puts a durable file in place, with its directory: what a stranger may have left there.
    pub fn plant(&self, name: &str, bytes: &[u8]) {
        let mut inner = self.lock();
        if let Some((dir, _)) = name.rsplit_once('/') {
            inner.names.insert(dir.into(), Node::Dir);
            inner.durable_names.insert(dir.into(), Node::Dir);
        }
        let inode = inner.new_inode();
        inner.files.insert(inode, Content::durable(bytes));
        inner.names.insert(name.into(), Node::File(inode));
        inner.durable_names.insert(name.into(), Node::File(inode));
    }

    /// Removes a file for good, behind everyone's back.
    pub fn erase(&self, name: &str) {
        let mut inner = self.lock();
        inner.names.remove(name);
        inner.durable_names.remove(name);
    }

    /// Flips one bit for good. Returns whether that byte exists.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) -> bool {
        let mut inner = self.lock();
        let Some(Node::File(inode)) = inner.names.get(name).copied() else { return false };
        let flipped =
            inner.files.get_mut(&inode).is_some_and(|content| content.flip(offset, bit % 8));
        if flipped {
            inner.count(Fault::BitFlip, 1);
        }
        flipped
    }

    /// Flips a random bit of a file and tells which byte it was in.
    pub fn flip_random_bit(&self, name: &str) -> Option<u64> {
        let size = self.contents(name)?.len() as u64;
        let (offset, bit) = {
            let mut inner = self.lock();
            (inner.rng.below(size.max(1)), inner.rng.below(8))
        };
        self.flip_bit(name, offset, u8::try_from(bit).unwrap_or(0)).then_some(offset)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    fn file(&self, inode: u64, boot: u64) -> Arc<dyn File> {
        Arc::new(SimFile { inner: self.inner.clone(), inode, boot })
    }
}

/// A panic in a test that holds the lock must not hide behind a second one.
fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk for SimDisk {
    fn make_dir(&self, dir: &str) -> io::Result<()> {
        let mut inner = self.lock();
        if inner.names.contains_key(dir) {
            return Ok(());
        }
        let boot = inner.boot;
        inner.change(Change::Set(dir.into(), Node::Dir), boot)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let inner = self.lock();
        if inner.is_off {
            return Err(no_power());
        }
        if !dir.is_empty() && inner.names.get(dir) != Some(&Node::Dir) {
            return Err(ErrorKind::NotFound.into());
        }
        let inside = |(name, node): (&String, &Node)| {
            (parent(name) == dir && *node != Node::Dir)
                .then(|| name.rsplit_once('/').map_or(name.clone(), |(_, last)| last.into()))
        };
        Ok(inner.names.iter().filter_map(inside).collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let inner = self.lock();
        if inner.is_off {
            return Err(no_power());
        }
        let Some(Node::File(inode)) = inner.names.get(name).copied() else {
            return Err(ErrorKind::NotFound.into());
        };
        Ok(self.file(inode, inner.boot))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut inner = self.lock();
        if inner.names.contains_key(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        if !parent(name).is_empty() && !inner.names.contains_key(parent(name)) {
            return Err(ErrorKind::NotFound.into());
        }
        let (inode, boot) = (inner.new_inode(), inner.boot);
        inner.files.insert(inode, Content::default());
        inner.change(Change::Set(name.into(), Node::File(inode)), boot)?;
        Ok(self.file(inode, boot))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.lock();
        let boot = inner.boot;
        let Some(node) = inner.names.get(from).copied() else {
            return Err(if inner.is_off { no_power() } else { ErrorKind::NotFound.into() });
        };
        inner.change(Change::Rename(from.into(), to.into(), node), boot)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.lock();
        let boot = inner.boot;
        if !inner.names.contains_key(name) {
            return Err(if inner.is_off { no_power() } else { ErrorKind::NotFound.into() });
        }
        inner.change(Change::Remove(name.into()), boot)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut inner = self.lock();
        let boot = inner.boot;
        if inner.begin(boot)? {
            return Err(no_power());
        }
        let (mut synced, mut rest) = (Vec::new(), Vec::new());
        for change in std::mem::take(&mut inner.changes) {
            if change.is_in(dir) { synced.push(change) } else { rest.push(change) }
        }
        for change in synced {
            change.apply(&mut inner.durable_names);
        }
        inner.changes = rest;
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let inner = self.lock();
        if inner.is_off { Err(no_power()) } else { Ok(inner.free()) }
    }
}

impl File for SimFile {
    fn size(&self) -> io::Result<u64> {
        Ok(lock(&self.inner).content(self.inode)?.size())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        if inner.is_off || inner.boot != self.boot {
            return Err(no_power());
        }
        inner.content(self.inode)?.read(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        lock(&self.inner).write(self.inode, self.boot, offset, bytes)
    }

    fn fill_with_zeros(&self, size: u64) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        let cut = inner.begin(self.boot)?;
        if inner.suffers(Fault::WriteError) {
            return Err(io_error());
        }
        let growth = size.saturating_sub(inner.content(self.inode)?.size());
        if growth > inner.free() {
            inner.count(Fault::NoSpace, 1);
            return Err(no_space());
        }
        inner.content(self.inode)?.grow(size);
        if cut { Err(no_power()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<Duration> {
        lock(&self.inner).sync(self.inode, self.boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(disk: &SimDisk) -> Arc<dyn File> {
        let file = disk.create("a").unwrap();
        file.write_at(0, &[1; 2048]).unwrap();
        file
    }

    #[test]
    fn a_synced_file_without_a_synced_name_is_lost() {
        let disk = SimDisk::new(1);
        written(&disk).sync().unwrap();
        disk.restart(Restart::PowerLostAll);
        assert!(disk.files().is_empty());
        assert_eq!(disk.counts()[&Fault::LostDirectoryChange], 1);
    }

    #[test]
    fn what_was_synced_survives_and_the_rest_is_torn_at_sectors() {
        let disk = SimDisk::new(2);
        let file = written(&disk);
        file.sync().unwrap();
        disk.sync_dir("").unwrap();
        file.write_at(100, &[2; 1900]).unwrap();
        disk.restart(Restart::PowerLostSome);
        assert!(file.sync().is_err(), "a file of an earlier run no longer works");
        let found = disk.contents("a").unwrap();
        assert_eq!(found[..100], [1; 100]);
        for sector in found[512..1536].chunks(SECTOR_BYTES) {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is whole");
        }
    }

    #[test]
    fn a_failed_sync_leaves_pages_that_look_fine_until_the_power_fails() {
        let disk = SimDisk::new(3);
        let file = written(&disk);
        disk.sync_dir("").unwrap();
        disk.plan(Fault::SyncError);
        assert!(file.sync().is_err());
        assert!(file.sync().is_ok(), "the second sync lies");
        assert_eq!(disk.contents("a").unwrap(), [1; 2048]);
        disk.restart(Restart::PowerLostAll);
        assert!(disk.contents("a").unwrap().is_empty());
    }

    #[test]
    fn a_full_disk_takes_what_fits_and_says_so() {
        let disk = SimDisk::new(4);
        disk.set_capacity(Some(1000));
        let file = disk.create("a").unwrap();
        let error = file.write_at(0, &[1; 2048]).unwrap_err();
        assert!(crate::disk::is_full(&error));
        assert_eq!((file.size().unwrap(), disk.free_bytes().unwrap()), (1000, 0));
        disk.remove("a").unwrap();
        assert_eq!(disk.free_bytes().unwrap(), 1000);
    }

    #[test]
    fn the_same_seed_and_calls_end_in_the_same_bytes() {
        let run = || {
            let disk = SimDisk::new(5);
            disk.set_rates(FaultRates { slow_sync: 0.5, ..FaultRates::default() });
            let file = written(&disk);
            disk.sync_dir("").unwrap();
            let took: Vec<_> = (0..8).map(|_| file.sync().unwrap()).collect();
            file.write_at(0, &[7; 2048]).unwrap();
            disk.restart(Restart::PowerLostSome);
            (took, disk.contents("a"), disk.counts())
        };
        assert_eq!(run(), run());
    }
}
