//! Lets a simulator or a test damage the content of a simulated disk, or make the disk fail.

use std::ops::Range;

use super::{
    SimDisk,
    content::Content,
    fault::{DiskFault, Outage, UnreadableRange},
    machine::{SimDiskState, SimFileNode},
};

impl SimDisk {
    /// Puts a durable file in place, with its directory.
    pub fn plant(&self, name: &str, bytes: &[u8]) {
        let mut inner = self.lock();
        if let Some((dir, _)) = name.rsplit_once('/') {
            inner.names.insert(dir.into(), SimFileNode::Dir);
            inner.durable_names.insert(dir.into(), SimFileNode::Dir);
        }
        let inode = inner.new_inode();
        inner.files.insert(inode, Content::durable(bytes));
        inner.names.insert(name.into(), SimFileNode::File(inode));
        inner.durable_names.insert(name.into(), SimFileNode::File(inode));
    }

    /// Removes a file for good, without any process noticing.
    pub fn erase(&self, name: &str) {
        let mut inner = self.lock();
        inner.names.remove(name);
        inner.durable_names.remove(name);
    }

    /// Flips one bit for good. Returns whether that byte exists.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) -> bool {
        let mut inner = self.lock();
        let Some(SimFileNode::File(inode)) = inner.names.get(name).copied() else { return false };
        let flipped =
            inner.files.get_mut(&inode).is_some_and(|content| content.flip(offset, bit % 8));
        if flipped {
            inner.count(DiskFault::BitFlip, 1);
        }
        flipped
    }

    /// Flips a random bit of a file and returns the offset of its byte.
    pub fn flip_random_bit(&self, name: &str) -> Option<u64> {
        let size = self.contents(name)?.len() as u64;
        let (offset, bit) = {
            let mut inner = self.lock();
            (inner.rng.below(size.max(1)), inner.rng.below(8))
        };
        self.flip_bit(name, offset, u8::try_from(bit).unwrap_or(0)).then_some(offset)
    }

    /// Flips a random bit of a file that a process is using, and returns the offset of its byte.
    pub fn damage_while_running(&self, name: &str) -> Option<u64> {
        let mut inner = self.lock();
        let inode = inner.inode(name)?;
        inner.damage(inode, None, DiskFault::DamageWhileRunning)
    }

    /// Flips a random bit in the newest durable write to a directory, and returns its file and offset. For a log that
    /// is the newest batch that was synced: a log writes each batch in one write.
    pub fn damage_newest_batch(&self, dir: &str) -> Option<(String, u64)> {
        let (name, range) = self.newest_batch(dir)?;
        let mut inner = self.lock();
        let inode = inner.inode(&name)?;
        let offset = inner.damage(inode, Some(range), DiskFault::DamagedNewestBatch)?;
        Some((name, offset))
    }

    /// The file and the bytes of the newest durable write to a directory.
    pub fn newest_batch(&self, dir: &str) -> Option<(String, Range<u64>)> {
        let inner = self.lock();
        let newest = inner.names.iter().filter_map(|(name, node)| {
            let SimFileNode::File(inode) = node else { return None };
            let (stamp, range) = inner.files.get(inode)?.newest_durable_write()?;
            (super::parent(name) == dir).then_some((stamp, name, range))
        });
        newest.max_by_key(|(stamp, ..)| *stamp).map(|(_, name, range)| (name.clone(), range))
    }

    /// Restores the sector at this offset to its content before the last durable change. Returns whether it had
    /// changed.
    pub fn make_stale(&self, name: &str, offset: u64) -> bool {
        let mut inner = self.lock();
        let Some(inode) = inner.inode(name) else { return false };
        let stale = inner.files.get_mut(&inode).is_some_and(|content| content.make_stale(offset));
        inner.count(DiskFault::StaleSector, u64::from(stale));
        stale
    }

    /// The offsets of the sectors of a file that [`SimDisk::make_stale`] can restore.
    pub fn changed_sectors(&self, name: &str) -> Vec<u64> {
        let inner = self.lock();
        let inode = inner.inode(name);
        let content = inode.and_then(|inode| inner.files.get(&inode));
        content.map_or_else(Vec::new, Content::changed_sectors)
    }

    /// Makes reads that touch these bytes of a file fail. Returns whether the file exists.
    pub fn make_unreadable(&self, name: &str, range: Range<u64>, how: UnreadableRange) -> bool {
        let mut inner = self.lock();
        let Some(inode) = inner.inode(name) else { return false };
        inner.unreadable.push((inode, range, how));
        true
    }

    /// Makes everything readable again.
    pub fn make_readable(&self) {
        self.lock().unreadable.clear();
    }

    /// Makes the whole disk fail in this way, or ends the outage. A restart does not end it.
    pub fn set_outage(&self, outage: Option<Outage>) {
        self.lock().outage = outage;
    }

    /// Makes syncs of files and directories report success without making anything durable, or work again. The first
    /// sync that works again makes everything durable that was written until then.
    pub fn set_lying_syncs(&self, lying: bool) {
        self.lock().lying = lying;
    }

    /// Ends lying syncs, and takes back every plan of a fault that the process would not see.
    pub fn tell_the_truth(&self) {
        let mut inner = self.lock();
        inner.lying = false;
        let unseen = [DiskFault::MisdirectedWrite, DiskFault::StaleSector, DiskFault::LyingSync];
        inner.planned.retain(|fault| !unseen.contains(fault));
    }
}

impl SimDiskState {
    fn inode(&self, name: &str) -> Option<u64> {
        match self.names.get(name)? {
            SimFileNode::File(inode) => Some(*inode),
            SimFileNode::Dir => None,
        }
    }
}
