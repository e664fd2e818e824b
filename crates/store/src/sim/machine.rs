//! Executes the operations of a simulated disk with their faults, and the effects of a restart.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, ErrorKind},
    ops::Range,
    time::Duration,
};

use super::{
    Restart,
    content::{Content, SECTOR},
    fault::{DiskFault, FaultRates, Outage, Rng, UnreadableRange},
};

/// The durations of an ordinary sync and of a slow one.
const SYNC_TOOK: Duration = Duration::from_micros(150);
const SLOW_SYNC_TOOK: Duration = Duration::from_millis(800);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SimFileNode {
    Dir,
    File(u64),
}

/// A change to a directory that has not been synced.
#[derive(Debug, Clone)]
pub(super) enum DirectoryChange {
    Set(String, SimFileNode),
    Rename(String, String, SimFileNode),
    Remove(String),
}

#[derive(Debug, Clone)]
pub(super) struct SimDiskState {
    pub(super) rng: Rng,
    pub(super) rates: FaultRates,
    pub(super) planned: Vec<DiskFault>,
    pub(super) counts: BTreeMap<DiskFault, u64>,
    pub(super) capacity: Option<u64>,
    /// The names that a process sees.
    pub(super) names: BTreeMap<String, SimFileNode>,
    /// The names that would remain after losing everything unsynced.
    pub(super) durable_names: BTreeMap<String, SimFileNode>,
    pub(super) changes: Vec<DirectoryChange>,
    pub(super) files: BTreeMap<u64, Content>,
    pub(super) next_inode: u64,
    pub(super) boot: u64,
    pub(super) operations: u64,
    pub(super) power_off_at: Option<u64>,
    pub(super) is_off: bool,
    /// A counter that grows with every write.
    pub(super) stamp: u64,
    pub(super) outage: Option<Outage>,
    /// Whether syncs report success and do nothing.
    pub(super) lying: bool,
    /// Ranges of files, by inode, that cannot be read.
    pub(super) unreadable: Vec<(u64, Range<u64>, UnreadableRange)>,
    /// The stamp at which the next sync began: it covers only writes up to it.
    pub(super) sync_began: Option<u64>,
}

pub(super) fn no_power() -> io::Error {
    io::Error::other("the power is off")
}

pub(super) fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(dir, _)| dir)
}

impl SimDiskState {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            rates: FaultRates::default(),
            planned: Vec::new(),
            counts: BTreeMap::new(),
            capacity: None,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            changes: Vec::new(),
            files: BTreeMap::new(),
            next_inode: 1,
            boot: 0,
            operations: 0,
            power_off_at: None,
            is_off: false,
            stamp: 0,
            outage: None,
            lying: false,
            unreadable: Vec::new(),
            sync_began: None,
        }
    }

    pub(super) fn count(&mut self, fault: DiskFault, times: u64) {
        if times > 0 {
            *self.counts.entry(fault).or_default() += times;
        }
    }

    pub(super) fn new_inode(&mut self) -> u64 {
        self.next_inode += 1;
        self.next_inode
    }

    pub(super) fn next_stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    /// Whether this fault happens now, as planned or by chance. Counts it.
    pub(super) fn suffers(&mut self, fault: DiskFault) -> bool {
        let suffers = self.draws(fault);
        self.count(fault, u64::from(suffers));
        suffers
    }

    /// Whether this fault is tried now. The caller counts it if it has an effect.
    fn draws(&mut self, fault: DiskFault) -> bool {
        if let Some(at) = self.planned.iter().position(|planned| *planned == fault) {
            self.planned.remove(at);
            return true;
        }
        self.rng.chance(self.rates.of(fault))
    }

    /// Returns the error of an outage that affects this operation.
    pub(super) fn check_outage(&mut self, changes: bool) -> io::Result<()> {
        let (fault, error) = match self.outage {
            Some(Outage::ReadOnly) if changes => (
                DiskFault::ReadOnly,
                io::Error::from_raw_os_error(rustix::io::Errno::ROFS.raw_os_error()),
            ),
            Some(Outage::Device) => (DiskFault::DeviceError, io_error()),
            _ => return Ok(()),
        };
        self.count(fault, 1);
        Err(error)
    }

    /// Counts one operation and returns whether the power fails during it.
    pub(super) fn begin(&mut self, boot: u64) -> io::Result<bool> {
        if self.is_off || boot != self.boot {
            return Err(no_power());
        }
        self.check_outage(true)?;
        self.rot();
        let cut = self.power_off_at == Some(self.operations);
        self.operations += 1;
        if cut {
            self.is_off = true;
            self.count(DiskFault::PowerLoss, 1);
        }
        Ok(cut)
    }

    pub(super) fn content(&mut self, inode: u64) -> io::Result<&mut Content> {
        self.files.get_mut(&inode).ok_or_else(|| ErrorKind::NotFound.into())
    }

    pub(super) fn used(&self) -> u64 {
        let size = |node: &SimFileNode| match node {
            SimFileNode::File(inode) => self.files.get(inode).map_or(0, Content::size),
            SimFileNode::Dir => 0,
        };
        self.names.values().map(size).sum()
    }

    pub(super) fn free(&self) -> u64 {
        self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used()))
    }

    pub(super) fn change(&mut self, change: DirectoryChange, boot: u64) -> io::Result<()> {
        let cut = self.begin(boot)?;
        change.apply(&mut self.names);
        self.changes.push(change);
        if cut { Err(no_power()) } else { Ok(()) }
    }

    pub(super) fn write(
        &mut self,
        inode: u64,
        boot: u64,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        let cut = self.begin(boot)?;
        let stamp = self.next_stamp();
        if self.suffers(DiskFault::WriteError) {
            let some = self.rng.below(bytes.len() as u64 + 1);
            let some = usize::try_from(some).unwrap_or(0);
            self.content(inode)?.write(offset, &bytes[..some], stamp);
            return Err(io_error());
        }
        let size = self.content(inode)?.size();
        let growth = (offset + bytes.len() as u64).saturating_sub(size);
        let mut fits = bytes.len() as u64 - growth.saturating_sub(self.free());
        let mut full = growth > self.free();
        if full {
            self.count(DiskFault::NoSpace, 1);
        } else if self.suffers(DiskFault::NoSpace) {
            // A copy-on-write file system can run out of space inside a file that is fully allocated.
            full = true;
            fits = bytes.len() as u64 / 2;
        }
        let fits = usize::try_from(fits).unwrap_or(0);
        let misdirected = !cut && !full && self.draws(DiskFault::MisdirectedWrite);
        if misdirected && self.misdirect(inode, offset, bytes) {
            self.count(DiskFault::MisdirectedWrite, 1);
            self.content(inode)?.grow(offset + bytes.len() as u64, stamp);
            return Ok(());
        }
        self.content(inode)?.write(offset, &bytes[..fits], stamp);
        match (cut, full) {
            (true, _) => Err(no_power()),
            (false, true) => Err(no_space()),
            (false, false) => Ok(()),
        }
    }

    pub(super) fn sync(&mut self, inode: u64, boot: u64) -> io::Result<Duration> {
        let through = self.sync_began.take().unwrap_or(u64::MAX);
        if self.begin(boot)? {
            return Err(no_power());
        }
        if self.suffers(DiskFault::SyncError) {
            self.content(inode)?.forget_pending();
            return Err(io_error());
        }
        if self.lying || self.draws(DiskFault::LyingSync) {
            let lied = self.content(inode)?.is_pending();
            self.count(DiskFault::LyingSync, u64::from(lied));
            return Ok(SYNC_TOOK);
        }
        if self.draws(DiskFault::StaleSector) {
            let mut rng = Rng::new(self.rng.next());
            let stale = self.content(inode)?.forget_one(&mut rng);
            self.count(DiskFault::StaleSector, u64::from(stale));
        }
        let left = self.content(inode)?.sync(through);
        self.count(DiskFault::OverlappingSync, u64::from(left));
        Ok(if self.suffers(DiskFault::SlowSync) { SLOW_SYNC_TOOK } else { SYNC_TOOK })
    }

    pub(super) fn read(
        &mut self,
        inode: u64,
        boot: u64,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        if self.is_off || boot != self.boot {
            return Err(no_power());
        }
        self.check_outage(false)?;
        self.rot();
        let end = offset.saturating_add(buffer.len() as u64);
        let meets = |(of, range, _): &(u64, Range<u64>, UnreadableRange)| {
            *of == inode && range.start < end && offset < range.end
        };
        if let Some(at) = self.unreadable.iter().position(meets) {
            if self.unreadable[at].2 == UnreadableRange::Once {
                self.unreadable.remove(at);
            }
            self.count(DiskFault::ReadError, 1);
            return Err(io_error());
        }
        if self.suffers(DiskFault::ReadError) {
            return Err(io_error());
        }
        self.content(inode)?.read(offset, buffer)
    }

    /// Writes bytes at a wrong place: at the same offset inside a sector, in this file or another. Returns whether
    /// there was such a place and it changed.
    fn misdirect(&mut self, inode: u64, offset: u64, bytes: &[u8]) -> bool {
        let others: Vec<u64> = self.files.keys().copied().filter(|other| *other != inode).collect();
        let elsewhere = !others.is_empty() && self.rng.below(3) == 0;
        let target = if elsewhere {
            let at = usize::try_from(self.rng.below(others.len() as u64)).unwrap_or(0);
            others[at]
        } else {
            inode
        };
        let inside = offset % SECTOR;
        let size = self.files.get(&target).map_or(0, Content::size);
        let Some(room) = size.checked_sub(inside + bytes.len() as u64) else { return false };
        let to = self.rng.below(room / SECTOR + 1) * SECTOR + inside;
        (target, to) != (inode, offset)
            && self.files.get_mut(&target).is_some_and(|content| content.overwrite(to, bytes))
    }

    /// Flips a bit of an existing file, if that fault happens now.
    fn rot(&mut self) {
        if !self.draws(DiskFault::DamageWhileRunning) {
            return;
        }
        let inodes: Vec<u64> = self.inodes().collect();
        let at = usize::try_from(self.rng.below(inodes.len() as u64)).unwrap_or(0);
        let Some(inode) = inodes.get(at).copied() else { return };
        self.damage(inode, None, DiskFault::DamageWhileRunning);
    }

    /// Flips a random bit of a file, inside a range if one is given, and returns the offset of its byte.
    pub(super) fn damage(
        &mut self,
        inode: u64,
        range: Option<Range<u64>>,
        fault: DiskFault,
    ) -> Option<u64> {
        let size = self.files.get(&inode).map_or(0, Content::size);
        let range = range.unwrap_or(0..size);
        let offset = range.start + self.rng.below(range.end.saturating_sub(range.start));
        let bit = u8::try_from(self.rng.below(8)).unwrap_or(0);
        let flipped = self.files.get_mut(&inode).is_some_and(|content| content.flip(offset, bit));
        self.count(fault, u64::from(flipped));
        flipped.then_some(offset)
    }

    fn inodes(&self) -> impl Iterator<Item = u64> + '_ {
        self.names.values().filter_map(|node| match node {
            SimFileNode::File(inode) => Some(*inode),
            SimFileNode::Dir => None,
        })
    }

    pub(super) fn restart(&mut self, how: Restart) {
        self.boot += 1;
        self.sync_began = None;
        self.is_off = false;
        self.power_off_at = None;
        if how == Restart::ProcessKilled {
            return;
        }
        let all_lost = how == Restart::PowerLostAll;
        for change in std::mem::take(&mut self.changes) {
            if !all_lost && self.rng.below(2) == 0 {
                change.apply(&mut self.durable_names);
            } else {
                self.count(DiskFault::LostDirectoryChange, 1);
            }
        }
        let dirs: BTreeSet<String> = self
            .durable_names
            .iter()
            .filter(|(_, node)| **node == SimFileNode::Dir)
            .map(|(name, _)| name.clone())
            .collect();
        self.durable_names.retain(|name, _| parent(name).is_empty() || dirs.contains(parent(name)));
        self.names = self.durable_names.clone();
        let mut rng = Rng::new(self.rng.next());
        let (mut lost, mut torn) = (0, 0);
        for content in self.files.values_mut() {
            let loss = content.lose_power(all_lost, &mut rng);
            lost += loss.sectors_lost;
            torn += u64::from(loss.sectors_lost > 0 && loss.sectors_kept > 0);
        }
        self.count(DiskFault::LostWrite, lost);
        self.count(DiskFault::TornWrite, torn);
        let named: BTreeSet<u64> = self.inodes().collect();
        self.files.retain(|inode, _| named.contains(inode));
    }
}

pub(super) fn no_space() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error())
}

impl DirectoryChange {
    pub(super) fn apply(&self, names: &mut BTreeMap<String, SimFileNode>) {
        match self {
            Self::Set(name, node) => {
                names.insert(name.clone(), *node);
            }
            Self::Rename(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }

    pub(super) fn is_in(&self, dir: &str) -> bool {
        match self {
            Self::Set(name, _) | Self::Remove(name) => parent(name) == dir,
            Self::Rename(from, to, _) => parent(from) == dir || parent(to) == dir,
        }
    }
}

pub(super) fn io_error() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())
}
