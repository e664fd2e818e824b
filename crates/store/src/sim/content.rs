//! What would one simulated file hold if the power failed now?

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
};

use super::{SECTOR_BYTES, fault::Rng};

type Sector = [u8; SECTOR_BYTES];

const SECTOR: u64 = SECTOR_BYTES as u64;

/// A file's bytes as a process sees them, as they have lasted, and every version in between.
/// Sectors that are absent hold zeros.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    seen: BTreeMap<u64, Sector>,
    seen_size: u64,
    durable: BTreeMap<u64, Sector>,
    durable_size: u64,
    /// Versions written since the last sync, oldest first.
    pending: BTreeMap<u64, Vec<Sector>>,
    /// Whether the size has grown since the last sync that succeeded or failed.
    size_pending: bool,
}

pub(super) struct Loss {
    pub(super) sectors_lost: u64,
    pub(super) sectors_kept: u64,
}

impl Content {
    pub(super) fn durable(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        content.write(0, bytes);
        content.sync();
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

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.grow(offset + bytes.len() as u64);
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (number, inside) = place(at);
            let step = (SECTOR_BYTES - inside).min(bytes.len() - done);
            let sector = self.seen.entry(number).or_insert([0; SECTOR_BYTES]);
            sector[inside..inside + step].copy_from_slice(&bytes[done..done + step]);
            self.pending.entry(number).or_default().push(*sector);
            done += step;
        }
    }

    pub(super) fn grow(&mut self, size: u64) {
        if size > self.seen_size {
            self.seen_size = size;
            self.size_pending = true;
        }
    }

    pub(super) fn sync(&mut self) {
        for (number, mut versions) in std::mem::take(&mut self.pending) {
            if let Some(last) = versions.pop() {
                self.durable.insert(number, last);
            }
        }
        if std::mem::take(&mut self.size_pending) {
            self.durable_size = self.seen_size;
        }
    }

    /// A sync failed: what was pending is still readable, will never last, and nobody is told.
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
        self.size_pending = false;
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
                self.durable.insert(number, versions[kept - 1]);
            }
        }
        if std::mem::take(&mut self.size_pending) && !all {
            let grown = self.seen_size.saturating_sub(self.durable_size);
            self.durable_size += match rng.below(3) {
                0 => 0,
                1 => grown,
                _ => rng.below(grown + 1),
            };
        }
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

/// The sector an offset lies in, and where inside it.
fn place(offset: u64) -> (u64, usize) {
    (offset / SECTOR, usize::try_from(offset % SECTOR).unwrap_or(0))
}
