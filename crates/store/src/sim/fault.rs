//! Defines the faults of the simulated disk and draws when they happen.

/// One way in which a disk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskFault {
    /// The power failed during an operation.
    PowerLoss,
    /// A sector that was written and not synced was lost in a power loss.
    LostWrite,
    /// Some sectors of a file lasted and others did not.
    TornWrite,
    /// A create, rename or remove that was not synced was undone.
    LostDirectoryChange,
    /// A bit changed on its own.
    BitFlip,
    /// A write failed after an unknown part of it.
    WriteError,
    /// A sync failed and forgot what it could not write.
    SyncError,
    /// There was no space left.
    NoSpace,
    /// A sync took far longer than usual.
    SlowSync,
    /// A read failed.
    ReadError,
    /// A write landed at another place, in the same file or in another.
    MisdirectedWrite,
    /// A sector holds its content from before a write that a sync reported as durable.
    StaleSector,
    /// A bit of durable data changed while a process used the disk.
    DamageWhileRunning,
    /// The newest write that was durable is damaged.
    DamagedNewestBatch,
    /// A sync reported success and made nothing durable.
    LyingSync,
    /// A sync ended after later writes had begun, and did not make those durable.
    OverlappingSync,
    /// An operation was refused because the file system was mounted read-only.
    ReadOnly,
    /// An operation failed because the whole device failed.
    DeviceError,
}

/// The way in which a whole disk fails, until the simulator ends the outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// The file system was remounted read-only: reads succeed, changes and syncs fail.
    ReadOnly,
    /// Every operation fails, including reads.
    Device,
}

/// The time for which a range of a file cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreadableRange {
    /// The next read of the range fails, later ones succeed.
    Once,
    /// Every read of the range fails.
    Always,
}

/// How often faults happen on their own, from 0.0 (never) to 1.0 (every time).
#[derive(Debug, Clone, Copy, Default)]
pub struct FaultRates {
    /// Chance that a write fails.
    pub write_error: f64,
    /// Chance that a sync fails.
    pub sync_error: f64,
    /// Chance that a write finds no space.
    pub no_space: f64,
    /// Chance that a sync is slow.
    pub slow_sync: f64,
    /// Chance that a read fails.
    pub read_error: f64,
    /// Chance that a write lands at another place.
    pub misdirected_write: f64,
    /// Chance that a sync leaves one sector unchanged and reports success.
    pub stale_sector: f64,
    /// Chance that a read or a change of the disk also flips a bit somewhere.
    pub damage_while_running: f64,
    /// Chance that a sync does nothing and reports success.
    pub lying_sync: f64,
}

/// A small generator whose numbers are determined by its seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl FaultRates {
    pub(super) fn of(&self, fault: DiskFault) -> f64 {
        match fault {
            DiskFault::WriteError => self.write_error,
            DiskFault::SyncError => self.sync_error,
            DiskFault::NoSpace => self.no_space,
            DiskFault::SlowSync => self.slow_sync,
            DiskFault::ReadError => self.read_error,
            DiskFault::MisdirectedWrite => self.misdirected_write,
            DiskFault::StaleSector => self.stale_sector,
            DiskFault::DamageWhileRunning => self.damage_while_running,
            DiskFault::LyingSync => self.lying_sync,
            DiskFault::PowerLoss
            | DiskFault::LostWrite
            | DiskFault::TornWrite
            | DiskFault::LostDirectoryChange
            | DiskFault::BitFlip
            | DiskFault::DamagedNewestBatch
            | DiskFault::OverlappingSync
            | DiskFault::ReadOnly
            | DiskFault::DeviceError => 0.0,
        }
    }
}

impl Rng {
    /// A generator that starts from this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)] // It never ends, so an iterator would only add an Option.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`; zero if `end` is zero.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next() % end }
    }

    /// True with this chance. Draws nothing when the chance is zero, so that a fault that is switched off leaves the
    /// other choices of a run unchanged.
    pub(super) fn chance(&mut self, chance: f64) -> bool {
        chance > 0.0 && ((self.next() >> 11) as f64) < chance * (1_u64 << 53) as f64
    }
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
