//! Simulates a disk in memory that fails in every way that the store must survive.
//!
//! [`SimDisk`] keeps files in memory and remembers, for each 512-byte sector, which content has lasted and which was
//! only written. When the power fails, each unsynced sector keeps any one of the versions it has had. Each unsynced
//! create, rename or remove happens or not, independently of the others. A failed sync behaves like the worst kernels:
//! the pages stay readable, count as clean, and are gone after the next power loss.
//!
//! The seed and the calls determine everything, so a run can be repeated exactly.

mod content;
mod damage;
mod fault;
mod machine;
mod started;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use content::Content;
pub use fault::{DiskFault, FaultRates, Outage, Rng, UnreadableRange};
pub use started::StartedSync;

use crate::disk::{Disk, File};
use machine::{DirectoryChange, SimDiskState, SimFileNode, io_error, no_power, no_space, parent};

/// The unit that a disk writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// What survives from one run of the process to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// The process died and the machine did not: everything written is still there.
    ProcessKilled,
    /// The power failed and nothing unsynced lasted.
    PowerLostAll,
    /// The power failed; each unsynced sector and directory change lasted or not, by chance.
    PowerLostSome,
}

/// A simulated disk. Clones share it; [`SimDisk::fork`] copies it.
#[derive(Debug, Clone)]
pub struct SimDisk {
    inner: Arc<Mutex<SimDiskState>>,
}

#[derive(Debug)]
struct SimFile {
    inner: Arc<Mutex<SimDiskState>>,
    inode: u64,
    boot: u64,
}

impl SimDisk {
    /// An empty disk without limits or faults.
    pub fn new(seed: u64) -> Self {
        Self { inner: Arc::new(Mutex::new(SimDiskState::new(seed))) }
    }

    /// A separate disk in the same condition, which draws its chances from another seed and counts its faults from
    /// zero.
    pub fn fork(&self, seed: u64) -> Self {
        let mut copy = self.lock().clone();
        copy.rng = Rng::new(seed);
        copy.counts.clear();
        Self { inner: Arc::new(Mutex::new(copy)) }
    }

    /// Limits the total size of all files.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity = bytes;
    }

    /// The total size of all files.
    pub fn used_bytes(&self) -> u64 {
        self.lock().used()
    }

    /// Sets how often each fault happens on its own.
    pub fn set_rates(&self, rates: FaultRates) {
        self.lock().rates = rates;
    }

    /// Makes the next operation that can suffer this fault suffer it.
    pub fn plan(&self, fault: DiskFault) {
        self.lock().planned.push(fault);
    }

    /// The number of operations that change the disk, without those refused by an outage or while the power is off.
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
    pub fn counts(&self) -> BTreeMap<DiskFault, u64> {
        self.lock().counts.clone()
    }

    /// The names of all files, in order.
    pub fn files(&self) -> Vec<String> {
        let inner = self.lock();
        let file = |(name, node): (&String, &SimFileNode)| {
            (*node != SimFileNode::Dir).then(|| name.clone())
        };
        inner.names.iter().filter_map(file).collect()
    }

    /// The content of a file as a process sees it.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let inner = self.lock();
        let SimFileNode::File(inode) = *inner.names.get(name)? else { return None };
        inner.files.get(&inode).map(Content::bytes)
    }

    fn lock(&self) -> MutexGuard<'_, SimDiskState> {
        lock(&self.inner)
    }

    fn file(&self, inode: u64, boot: u64) -> Arc<dyn File> {
        Arc::new(SimFile { inner: self.inner.clone(), inode, boot })
    }
}

/// A panic in a test that holds the lock must not be hidden by a second panic.
fn lock(inner: &Mutex<SimDiskState>) -> MutexGuard<'_, SimDiskState> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk for SimDisk {
    fn make_dir(&self, dir: &str) -> io::Result<()> {
        let mut inner = self.lock();
        if inner.names.contains_key(dir) {
            return Ok(());
        }
        let boot = inner.boot;
        inner.change(DirectoryChange::Set(dir.into(), SimFileNode::Dir), boot)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut inner = self.lock();
        if inner.is_off {
            return Err(no_power());
        }
        inner.check_outage(false)?;
        if !dir.is_empty() && inner.names.get(dir) != Some(&SimFileNode::Dir) {
            return Err(ErrorKind::NotFound.into());
        }
        let inside = |(name, node): (&String, &SimFileNode)| {
            (parent(name) == dir && *node != SimFileNode::Dir)
                .then(|| name.rsplit_once('/').map_or(name.clone(), |(_, last)| last.into()))
        };
        Ok(inner.names.iter().filter_map(inside).collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut inner = self.lock();
        if inner.is_off {
            return Err(no_power());
        }
        inner.check_outage(false)?;
        let Some(SimFileNode::File(inode)) = inner.names.get(name).copied() else {
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
        inner.change(DirectoryChange::Set(name.into(), SimFileNode::File(inode)), boot)?;
        Ok(self.file(inode, boot))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.lock();
        let boot = inner.boot;
        let Some(node) = inner.names.get(from).copied() else {
            return Err(if inner.is_off { no_power() } else { ErrorKind::NotFound.into() });
        };
        inner.change(DirectoryChange::Rename(from.into(), to.into(), node), boot)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.lock();
        let boot = inner.boot;
        if !inner.names.contains_key(name) {
            return Err(if inner.is_off { no_power() } else { ErrorKind::NotFound.into() });
        }
        inner.change(DirectoryChange::Remove(name.into()), boot)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut inner = self.lock();
        let boot = inner.boot;
        if inner.begin(boot)? {
            return Err(no_power());
        }
        if inner.lying {
            let lied = inner.changes.iter().any(|change| change.is_in(dir));
            inner.count(DiskFault::LyingSync, u64::from(lied));
            return Ok(());
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
        lock(&self.inner).read(self.inode, self.boot, offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        lock(&self.inner).write(self.inode, self.boot, offset, bytes)
    }

    fn fill_with_zeros(&self, size: u64) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        let cut = inner.begin(self.boot)?;
        if inner.suffers(DiskFault::WriteError) {
            return Err(io_error());
        }
        let growth = size.saturating_sub(inner.content(self.inode)?.size());
        if growth > inner.free() {
            inner.count(DiskFault::NoSpace, 1);
            return Err(no_space());
        }
        let stamp = inner.next_stamp();
        inner.content(self.inode)?.grow(size, stamp);
        if cut { Err(no_power()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<Duration> {
        lock(&self.inner).sync(self.inode, self.boot)
    }
}
