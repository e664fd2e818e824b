//! Holds one simulated member: its disk, its clock, and the process if it runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, bail};
use bytes::Bytes;
use tenure_core::{Frozen, Machine};
use tenure_node::directory::{MemberNames, MemberRecord, Preference};
use tenure_node::{
    Admission, Joining, Lineage, MemberIdentity, Node, NodeConfig, Output, Permit, SessionBounds,
    WindowBounds,
};
use tenure_raft::{MemberId, Membership, Replica, ReplicaConfig};
use tenure_store::sim::{Restart, SimDisk};
use tenure_store::{Cut, Log, LogId, LogOptions, Reserve, SnapshotId, SnapshotReceiver, Snapshots};
use tenure_types::Epoch;

use super::inbox::SimInbox;
use super::log_sink::SimLog;
use super::log_writer::{RESERVE_BYTES, SimLogWriter};
use super::oracle::Stalled;
use super::rollback::{GoingBack, OldDisk, WentBack};
use super::session_host::SessionHost;

/// Small segments, so that rolling over happens in every run.
pub(super) const SEGMENT_BYTES: u32 = 32 * 1024;
/// The largest command that a member takes.
pub(super) const COMMAND_BYTES_MAX: usize = 1024;

/// The beginning of the error for a log that was cut where it was known to be durable.
pub(super) const CUT_SHORT: &str = "the log was cut in the middle, after";

/// One member: its disk, its clock, and the process if it runs.
pub(super) struct SimMember {
    pub(super) id: MemberId,
    /// The newest level of the machine's rules that its build knows.
    pub(super) level: u16,
    /// The cluster that it belongs to, or will when it has joined.
    pub(super) lineage: Lineage,
    pub(super) disk: SimDisk,
    pub(super) process: Option<SimProcess>,
    pub(super) boot: u64,
    pub(super) rate_ppm: i64,
    offset_us: u64,
    /// How long its clock stood still because the machine slept.
    pub(super) asleep_us: u64,
    /// The time before which the event loop does not run.
    pub(super) paused_until_us: u64,
    /// The time until which the event loop waits for its disk.
    pub(super) loop_waits_until_us: u64,
    /// The time before which the sync thread does not run.
    pub(super) sync_stalled_until_us: u64,
    /// The time before which the threads that write and read snapshots do not run.
    pub(super) snapshots_stalled_until_us: u64,
    pub(super) turn_at_us: Option<u64>,
    pub(super) stalled: Stalled,
    /// It will never run again.
    pub(super) dead: bool,
    /// Its build does not know the level of the cluster. It runs again after an upgrade.
    pub(super) outgrown: bool,
    /// Whether its log was damaged without the process noticing.
    pub(super) damaged: bool,
    /// The last index that even a damaged log proves: it was durable before the last sync, and that sync made a mark of
    /// it durable.
    proven: u64,
    /// A copy of its disk from some time ago.
    pub(super) old_disk: Option<OldDisk>,
    /// The plan to restore that copy.
    pub(super) going_back: Option<GoingBack>,
    /// Its disk went back, and it has not started since.
    pub(super) went_back: Option<WentBack>,
    /// Its newest batch was damaged: it may have lost what it acknowledged.
    pub(super) may_forget: bool,
    /// The time by which it must stop, if it was started from an old disk.
    pub(super) must_stop: Option<u64>,
    /// What it is called since its last start, and where it lives.
    pub(super) names: MemberNames,
    /// The records that it was given when it joined.
    pub(super) given: Vec<MemberRecord>,
    /// Whether it joins by itself, and no operator adds it.
    pub(super) joins: bool,
    /// It asks to be added, and has not been.
    pub(super) entering: Option<Joining>,
    /// The request to join that it waits for.
    pub(super) asked: Option<u64>,
}

/// Bounds that are small in a run, so that they are met.
#[derive(Clone, Copy)]
pub(super) struct SimBounds {
    /// The part of a snapshot in one message.
    pub(super) chunk_bytes: u64,
    /// Outcomes and notices that may wait for a router.
    pub(super) backlog: usize,
    /// Bytes of log lines that may wait for their sink.
    pub(super) log_bytes: usize,
    /// The cost of commands and reads that may be under way.
    pub(super) window: WindowBounds,
    /// The requests of one source in a second.
    pub(super) rate: u64,
    /// Messages that may wait for a session that does not read.
    pub(super) mail: usize,
    /// Leases that are added between two sweeps of a router.
    pub(super) sweep: usize,
    pub(super) session: SessionBounds,
}

/// A running process.
pub(super) struct SimProcess {
    pub(super) node: Node,
    pub(super) admission: Admission,
    pub(super) host: SessionHost,
    pub(super) log_writer: SimLogWriter,
    pub(super) log: SimLog,
    pub(super) snapshots: Snapshots,
    pub(super) level: u16,
    /// The newest snapshot that arrives in parts, unless it has failed.
    pub(super) incoming: Option<(u64, SnapshotReceiver)>,
    /// The leader, as the node has last said.
    pub(super) lead: Option<MemberId>,
    pub(super) inbox: SimInbox,
    pub(super) outputs: Vec<Output>,
    /// A part of the budget that other clients take.
    pub(super) hog: Option<Permit>,
    pub(super) saving: Option<(LogId, Vec<u8>, Box<Frozen>)>,
    /// The last entry applied, as far as the oracle has seen.
    pub(super) seen: LogId,
}

impl SimMember {
    pub(super) fn new(
        id: MemberId,
        (level, lineage): (u16, Lineage),
        seed: u64,
        rate_ppm: i64,
        offset_us: u64,
    ) -> Self {
        Self {
            id,
            level,
            lineage,
            disk: SimDisk::new(seed),
            process: None,
            boot: 0,
            rate_ppm,
            offset_us,
            asleep_us: 0,
            paused_until_us: 0,
            loop_waits_until_us: 0,
            sync_stalled_until_us: 0,
            snapshots_stalled_until_us: 0,
            turn_at_us: None,
            stalled: Stalled::default(),
            dead: false,
            outgrown: false,
            damaged: false,
            proven: 0,
            old_disk: None,
            going_back: None,
            went_back: None,
            may_forget: false,
            must_stop: None,
            names: names(id),
            given: Vec::new(),
            joins: false,
            entering: None,
            asked: None,
        }
    }

    /// The member's monotonic clock.
    pub(super) fn local_us(&self, now_us: u64) -> u64 {
        let now = i128::from(now_us.saturating_sub(self.asleep_us));
        let local = now + now * i128::from(self.rate_ppm) / 1_000_000;
        self.offset_us + u64::try_from(local).unwrap_or(0)
    }

    /// The simulated time at which that clock shows this value.
    pub(super) fn real_us(&self, local_us: u64) -> u64 {
        let local = i128::from(local_us.saturating_sub(self.offset_us));
        let real = local * 1_000_000 / i128::from(1_000_000 + self.rate_ppm);
        u64::try_from(real).unwrap_or(0) + self.asleep_us + 2
    }

    /// Lays down the first state of the cluster.
    pub(super) fn bootstrap(&self, members: &Membership, first: &Machine) -> Result<()> {
        let (mut log, snapshots, _) = self.open(0)?;
        tenure_raft::bootstrap(&mut log, &snapshots, first, members)?;
        Ok(())
    }

    /// Starts the process.
    pub(super) fn start(
        &mut self,
        config: ReplicaConfig,
        given: BTreeSet<MemberId>,
        sizes: SimBounds,
        entropy: u64,
    ) -> Result<()> {
        let (mut log, snapshots, cut) = self.open(entropy)?;
        let mut boot = tenure_raft::load(&mut log, &snapshots, Machine::new(Epoch::default()))?;
        boot.cut = cut;
        boot.given = given;
        let seen = boot.applied;
        let replica = Replica::new(config, boot, entropy)?;
        let reserve = Reserve::open(Arc::new(self.disk.clone()), RESERVE_BYTES)?;
        let admission = Admission::default();
        let identity = self.identity();
        let config = NodeConfig {
            command_bytes_max: COMMAND_BYTES_MAX,
            admission: admission.clone(),
            identity: Some(identity),
            chunk_bytes: sizes.chunk_bytes,
        };
        self.process = Some(SimProcess {
            node: Node::new(replica, config),
            admission,
            host: SessionHost::new(sizes.backlog, sizes.mail, sizes.sweep),
            log_writer: SimLogWriter::new(log, reserve, self.proven),
            log: SimLog::new(sizes.log_bytes),
            snapshots,
            level: self.level.min(tenure_core::LEVEL_MAX),
            incoming: None,
            lead: None,
            inbox: SimInbox::new(sizes.window),
            outputs: Vec::new(),
            hog: None,
            saving: None,
            seen,
        });
        self.boot += 1;
        self.turn_at_us = None;
        Ok(())
    }

    /// The identity that the member presents to others.
    fn identity(&self) -> MemberIdentity {
        let (record, level_known) = (self.record(), self.level_known());
        let lineage = self.lineage.clone();
        MemberIdentity { record, lineage, level_known, given: self.given.clone() }
    }

    pub(super) fn record(&self) -> MemberRecord {
        MemberRecord { id: self.id, names: self.names.clone() }
    }

    /// Up to which level it knows the rules.
    pub(super) fn level_known(&self) -> u16 {
        self.level.min(tenure_core::LEVEL_MAX)
    }

    /// Ends the process, and applies the consequences to the disk.
    pub(super) fn crash(&mut self, how: Restart) {
        if let Some(process) = self.process.take() {
            self.proven = process.log_writer.proven;
        }
        self.boot += 1;
        self.loop_waits_until_us = 0;
        self.disk.restart(how);
    }

    pub(super) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    fn open(&self, salt: u64) -> Result<(Log, Snapshots, Option<Cut>)> {
        let options = LogOptions { segment_bytes: SEGMENT_BYTES, salt, ..LogOptions::default() };
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

/// The name and the addresses of a member.
pub(super) fn names(id: MemberId) -> MemberNames {
    MemberNames {
        name: format!("m{id}"),
        members: format!("h{id}:1"),
        clients: format!("h{id}:2"),
        preference: Preference::default(),
    }
}

impl SimProcess {
    pub(super) fn replica(&self) -> &Replica {
        self.node.replica()
    }

    /// Writes the requested snapshot.
    pub(super) fn save(&mut self) -> Option<(LogId, Vec<u8>, Result<()>)> {
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
    pub(super) fn file(&self, point: LogId) -> Option<(SnapshotId, Bytes)> {
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
        Ok(tenure_raft::read(&self.snapshots, id, self.level)?)
    }
}
