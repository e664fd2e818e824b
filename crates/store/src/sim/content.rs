//! Keeps the content of one simulated file: as a process sees it, as it has lasted, and every version in between.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    ops::Range,
};

use super::{SECTOR_BYTES, fault::Rng};

type Sector = [u8; SECTOR_BYTES];

pub(super) const SECTOR: u64 = SECTOR_BYTES as u64;

/// A file's bytes as a process sees them, as they have lasted, and every version in between.
/// Sectors that are absent hold zeros. Each write has a stamp, larger than those before it.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    seen: BTreeMap<u64, Sector>,
    seen_size: u64,
    durable: BTreeMap<u64, Sector>,
    durable_size: u64,
    /// The content of each durable sector before its last change that lasted.
    before: BTreeMap<u64, Sector>,
    /// Versions written since the last sync, oldest first, each with its stamp.
    pending: BTreeMap<u64, Vec<(u64, Sector)>>,
    /// Sizes that the file has grown to since the last sync that succeeded or failed.
    sizes: Vec<(u64, u64)>,
    /// Writes since the last sync that contained something other than zeros.
    writes: Vec<(u64, Range<u64>)>,
    /// The newest of those writes that lasted.
    newest: Option<(u64, Range<u64>)>,
}

pub(super) struct Loss {
    pub(super) sectors_lost: u64,
    pub(super) sectors_kept: u64,
}

impl Content {
    pub(super) fn durable(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        content.write(0, bytes, 0);
        content.sync(u64::MAX);
        content
    }

    pub(super) fn size(&self) -> u64 {
        self.seen_size
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.seen_size).unwrap_or(0)];
        self.copy(0, &mut bytes);
        bytes
    }

    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset.saturating_add(buffer.len() as u64) > self.seen_size {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.copy(offset, buffer);
        Ok(())
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8], stamp: u64) {
        let end = offset + bytes.len() as u64;
        self.grow(end, stamp);
        for (number, inside, part) in parts(offset, bytes) {
            let sector = self.seen.entry(number).or_insert([0; SECTOR_BYTES]);
            sector[inside..inside + part.len()].copy_from_slice(part);
            self.pending.entry(number).or_default().push((stamp, *sector));
        }
        if bytes.iter().any(|byte| *byte != 0) {
            self.writes.push((stamp, offset..end));
        }
    }

    pub(super) fn grow(&mut self, size: u64, stamp: u64) {
        if size > self.seen_size {
            self.seen_size = size;
            self.sizes.push((stamp, size));
        }
    }

    /// Makes everything last that was written up to this stamp. Returns whether anything is left.
    pub(super) fn sync(&mut self, through: u64) -> bool {
        let Self { pending, durable, before, .. } = self;
        pending.retain(|number, versions| {
            let lasting = versions.partition_point(|(stamp, _)| *stamp <= through);
            if lasting > 0 {
                let (_, last) = versions[lasting - 1];
                let old = durable.insert(*number, last).unwrap_or([0; SECTOR_BYTES]);
                if old != last {
                    before.insert(*number, old);
                }
                versions.drain(..lasting);
            }
            !versions.is_empty()
        });
        let lasting = self.sizes.partition_point(|(stamp, _)| *stamp <= through);
        if let Some((_, size)) = self.sizes.drain(..lasting).next_back() {
            self.durable_size = size;
        }
        let lasting = self.writes.partition_point(|(stamp, _)| *stamp <= through);
        if let Some(newest) = self.writes.drain(..lasting).next_back() {
            self.newest = Some(newest);
        }
        self.is_pending()
    }

    /// Whether something was written that has not lasted yet.
    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty() || !self.sizes.is_empty()
    }

    /// Models a failed sync: what was pending stays readable, will never last, and no later call reports it.
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
        self.sizes.clear();
        self.writes.clear();
    }

    /// Drops one of the sectors that the next sync would make last. Returns whether there was one.
    pub(super) fn forget_one(&mut self, rng: &mut Rng) -> bool {
        let changes = |(number, versions): (&u64, &Vec<(u64, Sector)>)| {
            let old = self.durable.get(number).copied().unwrap_or([0; SECTOR_BYTES]);
            versions.last().is_some_and(|(_, last)| *last != old).then_some(*number)
        };
        let changed: Vec<u64> = self.pending.iter().filter_map(changes).collect();
        let at = usize::try_from(rng.below(changed.len() as u64)).unwrap_or(0);
        let Some(number) = changed.get(at) else { return false };
        self.pending.remove(number);
        true
    }

    pub(super) fn lose_power(&mut self, all: bool, rng: &mut Rng) -> Loss {
        let mut loss = Loss { sectors_lost: 0, sectors_kept: 0 };
        for (number, versions) in std::mem::take(&mut self.pending) {
            let kept = if all { 0 } else { rng.below(versions.len() as u64 + 1) };
            let kept = usize::try_from(kept).unwrap_or(0);
            if kept < versions.len() {
                loss.sectors_lost += 1;
            } else {
                loss.sectors_kept += 1;
            }
            if kept > 0 {
                self.durable.insert(number, versions[kept - 1].1);
            }
        }
        if !std::mem::take(&mut self.sizes).is_empty() && !all {
            let grown = self.seen_size.saturating_sub(self.durable_size);
            self.durable_size += match rng.below(3) {
                0 => 0,
                1 => grown,
                _ => rng.below(grown + 1),
            };
        }
        self.writes.clear();
        self.durable.retain(|number, _| number * SECTOR < self.durable_size);
        self.seen = self.durable.clone();
        self.seen_size = self.durable_size;
        loss
    }

    pub(super) fn flip(&mut self, offset: u64, bit: u8) -> bool {
        if offset >= self.seen_size {
            return false;
        }
        let (number, inside) = place(offset);
        for sectors in [&mut self.seen, &mut self.durable] {
            sectors.entry(number).or_insert([0; SECTOR_BYTES])[inside] ^= 1 << bit;
        }
        true
    }

    /// Changes bytes on the disk without the process noticing. Returns whether they changed anything.
    pub(super) fn overwrite(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let mut changed = false;
        for (number, inside, part) in parts(offset, bytes) {
            for sectors in [&mut self.seen, &mut self.durable] {
                let sector = sectors.entry(number).or_insert([0; SECTOR_BYTES]);
                let range = &mut sector[inside..inside + part.len()];
                changed |= *range != *part;
                range.copy_from_slice(part);
            }
        }
        changed
    }

    /// Restores the sector at this offset to its content before the last change. Returns whether it had changed.
    pub(super) fn make_stale(&mut self, offset: u64) -> bool {
        let (number, _) = place(offset);
        let Some(old) = self.before.remove(&number) else { return false };
        self.seen.insert(number, old);
        self.durable.insert(number, old);
        self.pending.remove(&number);
        true
    }

    /// The offsets of the sectors in which a change has lasted, in order.
    pub(super) fn changed_sectors(&self) -> Vec<u64> {
        self.before.keys().map(|number| number * SECTOR).collect()
    }

    /// The newest write that lasted, and its stamp.
    pub(super) fn newest_durable_write(&self) -> Option<(u64, Range<u64>)> {
        self.newest.clone()
    }

    fn copy(&self, offset: u64, buffer: &mut [u8]) {
        buffer.fill(0);
        let mut done = 0;
        while done < buffer.len() {
            let (number, inside) = place(offset + done as u64);
            let step = (SECTOR_BYTES - inside).min(buffer.len() - done);
            if let Some(sector) = self.seen.get(&number) {
                buffer[done..done + step].copy_from_slice(&sector[inside..inside + step]);
            }
            done += step;
        }
    }
}

/// The number of the sector that contains an offset, and the offset inside it.
fn place(offset: u64) -> (u64, usize) {
    (offset / SECTOR, usize::try_from(offset % SECTOR).unwrap_or(0))
}

/// Splits bytes at sector boundaries: the number of each sector, the offset of the part in it, and the part.
fn parts(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, usize, &[u8])> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < bytes.len()).then(|| {
            let (number, inside) = place(offset + done as u64);
            let step = (SECTOR_BYTES - inside).min(bytes.len() - done);
            let part = &bytes[done..done + step];
            done += step;
            (number, inside, part)
        })
    })
}
