//! What is one member made of, and how does it live on its disk?

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use tenure_core::{Frozen, Machine};
use tenure_raft::{Config, Input, MemberId, Membership, Output, Persist, Replica, Space};
use tenure_store::sim::{Restart, SimDisk};
use tenure_store::{
    Cut, Free, Gauge, Log, Options, Point, Reserve, SnapshotId, Snapshots, WriteError,
};

use super::S;
use super::oracle::{Stalled, first_state};
use super::rollback::{GoingBack, OldDisk};

/// Small segments, so that rolling over happens in every run.
pub(super) const SEGMENT_BYTES: u32 = 32 * 1024;
/// What a member keeps for the day its disk is full.
const RESERVE_BYTES: u64 = SEGMENT_BYTES as u64;
/// How often it looks at its disk.
const LOOK_US: u64 = S;

/// Said of a log that was cut where it was known to be durable.
pub(super) const CUT_SHORT: &str = "the log was cut in the middle, after";

/// One member: its disk, its clock, and the process if it runs.
pub(super) struct Node {
    pub(super) id: MemberId,
    pub(super) disk: SimDisk,
    pub(super) process: Option<Process>,
    pub(super) boot: u64,
    pub(super) rate_ppm: i64,
    offset_us: u64,
    /// The loop does not run before this.
    pub(super) paused_until_us: u64,
    pub(super) turn_at_us: Option<u64>,
    pub(super) stalled: Stalled,
    /// It will never run again.
    pub(super) dead: bool,
    /// Its log was damaged behind its back.
    pub(super) damaged: bool,
    /// What even a damaged log proves: durable before the last sync, and so marked by what that made
    /// durable.
    proven: u64,
    /// What its disk was like some time ago.
    pub(super) old_disk: Option<OldDisk>,
    /// Its disk is about to be put back.
    pub(super) going_back: Option<GoingBack>,
    /// Its newest batch was damaged: it may have lost what it acknowledged.
    pub(super) may_forget: bool,
    /// It was started from an old disk, and must notice by then.
    pub(super) must_stop: Option<u64>,
}

/// A running process.
pub(super) struct Process {
    pub(super) replica: Replica,
    pub(super) log: Log,
    pub(super) snapshots: Snapshots,
    pub(super) inbox: Vec<Input>,
    pub(super) outputs: Vec<Output>,
    /// Not written yet, for lack of space.
    pub(super) batches: VecDeque<Persist>,
    pub(super) reserve: Reserve,
    pub(super) gauge: Gauge,
    pub(super) space: Space,
    looked_at_us: Option<u64>,
    /// It will try again by itself.
    pub(super) retrying: bool,
    pub(super) compact_to: Option<u64>,
    pub(super) written: u64,
    pub(super) synced: u64,
    pub(super) syncing: bool,
    /// The last index that is durable.
    pub(super) durable: u64,
    /// The last index that was durable before the last sync.
    pub(super) proven: u64,
    pub(super) saving: Option<(Point, Vec<u8>, Box<Frozen>)>,
    /// Applied up to here, as far as the oracle has seen.
    pub(super) seen: Point,
}

/// How writing went.
pub(super) enum Wrote {
    Done,
    NoSpace,
    /// The process must stop.
    Fatal,
}

impl Node {
    pub(super) fn new(id: MemberId, seed: u64, rate_ppm: i64, offset_us: u64) -> Self {
        Self {
            id,
            disk: SimDisk::new(seed),
            process: None,
            boot: 0,
            rate_ppm,
            offset_us,
            paused_until_us: 0,
            turn_at_us: None,
            stalled: Stalled::default(),
            dead: false,
            damaged: false,
            proven: 0,
            old_disk: None,
            going_back: None,
            may_forget: false,
            must_stop: None,
        }
    }

    /// The member's monotonic clock.
    pub(super) fn local_us(&self, now_us: u64) -> u64 {
        let now = i128::from(now_us);
        let local = now + now * i128::from(self.rate_ppm) / 1_000_000;
        self.offset_us + u64::try_from(local).unwrap_or(0)
    }

    /// The moment at which that clock shows this.
    pub(super) fn real_us(&self, local_us: u64) -> u64 {
        let local = i128::from(local_us.saturating_sub(self.offset_us));
        let real = local * 1_000_000 / i128::from(1_000_000 + self.rate_ppm);
        u64::try_from(real).unwrap_or(0) + 2
    }

    /// Lays down the first state of the cluster.
    pub(super) fn found(&self, members: &Membership) -> Result<()> {
        let (mut log, snapshots, _) = self.open(0)?;
        tenure_raft::found(&mut log, &snapshots, &first_state(), members)?;
        Ok(())
    }

    /// Starts the process.
    pub(super) fn start(
        &mut self,
        config: Config,
        given: BTreeSet<MemberId>,
        entropy: u64,
    ) -> Result<()> {
        let (mut log, snapshots, cut) = self.open(entropy)?;
        let mut boot = tenure_raft::load(&mut log, &snapshots, first_state())?;
        boot.cut = cut;
        boot.given = given;
        let seen = boot.applied;
        let replica = Replica::new(config, boot, entropy)?;
        let durable = log.last_index();
        let reserve = Reserve::open(Arc::new(self.disk.clone()), RESERVE_BYTES)?;
        self.process = Some(Process {
            replica,
            log,
            snapshots,
            inbox: Vec::new(),
            outputs: Vec::new(),
            batches: VecDeque::new(),
            reserve,
            gauge: Gauge::new(SEGMENT_BYTES, RESERVE_BYTES),
            space: Space::Enough,
            looked_at_us: None,
            retrying: false,
            compact_to: None,
            written: 0,
            synced: 0,
            syncing: false,
            durable,
            proven: self.proven.min(durable),
            saving: None,
            seen,
        });
        self.boot += 1;
        self.turn_at_us = None;
        Ok(())
    }

    /// Ends the process, and does to the disk what follows from that.
    pub(super) fn crash(&mut self, how: Restart) {
        if let Some(process) = self.process.take() {
            self.proven = process.proven;
        }
        self.boot += 1;
        self.disk.restart(how);
    }

    pub(super) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    fn open(&self, salt: u64) -> Result<(Log, Snapshots, Option<Cut>)> {
        let options = Options { segment_bytes: SEGMENT_BYTES, salt, ..Options::default() };
        let (log, recovered) = Log::open(Arc::new(self.disk.clone()), options)?;
        if self.damaged && recovered.cut.is_some() {
            let (last, proven) = (recovered.last.index, self.proven);
            if last < proven && self.must_stop.is_none() {
                bail!("{CUT_SHORT} {last}, {proven} was durable");
            }
            if !self.may_forget {
                bail!("a damaged log was cut");
            }
        }
        Ok((log, Snapshots::open(Arc::new(self.disk.clone()))?, recovered.cut))
    }
}

impl Process {
    /// Writes what waits; a batch that the log refuses is a bug of ours.
    pub(super) fn write(&mut self) -> Result<Wrote> {
        while let Some(persist) = self.batches.front() {
            match self.log.write(&persist.batch()) {
                Ok(_) => {}
                Err(WriteError::NoSpace) => {
                    self.gauge.refuse();
                    self.looked_at_us = None;
                    if self.reserve.is_held() && self.reserve.release().is_ok() {
                        continue;
                    }
                    return Ok(Wrote::NoSpace);
                }
                Err(WriteError::Fatal(_)) => return Ok(Wrote::Fatal),
                Err(error) => return Err(error).context("S12"),
            }
            if let Some(first) = persist.entries.first() {
                self.durable = self.durable.min(first.index - 1);
                self.proven = self.proven.min(self.durable);
            }
            if let Some(point) = persist.snapshot {
                self.durable = self.durable.min(point.index);
                self.proven = self.proven.min(self.durable);
            }
            self.written = persist.number;
            self.batches.pop_front();
        }
        if let Some(to) = self.compact_to.take() {
            match self.log.compact_to(to) {
                Ok(()) | Err(WriteError::NoSpace) => {}
                Err(WriteError::Fatal(_)) => return Ok(Wrote::Fatal),
                Err(error) => return Err(error).context("S12"),
            }
        }
        Ok(Wrote::Done)
    }

    /// Looks at the disk once in a while, and tells the replica if there is room or not.
    pub(super) fn look(&mut self, now_us: u64) {
        if self.looked_at_us.is_some_and(|at_us| now_us < at_us + LOOK_US) {
            return;
        }
        self.looked_at_us = Some(now_us);
        // A reserve that cannot be taken now is taken later.
        let _ = self.reserve.restore();
        let Ok(room) = self.log.room() else { return };
        let free = Free { bytes: room.on_disk, reserve_held: self.reserve.is_held() };
        let space = if self.gauge.look(free) { Space::Short } else { Space::Enough };
        if std::mem::replace(&mut self.space, space) != space {
            self.replica.handle(Input::Space(space));
        }
    }

    /// Writes the snapshot that was asked for.
    pub(super) fn save(&mut self) -> Option<(Point, Vec<u8>, Result<()>)> {
        let (point, meta, frozen) = self.saving.take()?;
        let mut bytes = Vec::new();
        frozen.write(&mut |part| bytes.extend_from_slice(part));
        let saved = (|| {
            let mut writer = self.snapshots.write(point, &meta)?;
            writer.append(&bytes)?;
            writer.finish()?;
            Ok(())
        })();
        Some((point, bytes, saved))
    }

    /// The bytes of the snapshot at a point, if it is still there.
    pub(super) fn file(&self, point: Point) -> Option<(SnapshotId, Bytes)> {
        let id = self.snapshots.complete().ok()?.into_iter().find(|id| id.point == point)?;
        let raw = self.snapshots.raw(id).ok()?;
        let bytes = raw.read_at(0, usize::try_from(id.bytes).ok()?).ok()?;
        Some((id, bytes))
    }

    /// Takes a snapshot from another member, so that it is durable here.
    pub(super) fn receive(&self, id: SnapshotId, file: &[u8]) -> Result<(Machine, Membership)> {
        let mut receiver = self.snapshots.receive(id)?;
        let have = receiver.have();
        let rest = usize::try_from(have).ok().and_then(|have| file.get(have..));
        receiver.append(have, rest.unwrap_or_default())?;
        let id = receiver.finish()?;
        Ok(tenure_raft::read(&self.snapshots, id, tenure_core::LEVEL_MAX)?)
    }
}
