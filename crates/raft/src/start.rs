//! Loads the state that a member starts from: a snapshot and the log that continues it.
//!
//! A crash may have come between writing the two. Then the snapshot is right, and the log is made to start after it.

use std::collections::BTreeSet;

use tenure_core::outcome::Effects;
use tenure_core::{BadSnapshot, Machine, SnapshotReader};
use tenure_store::{
    HardState, Log, LogBatch, LogId, ReadError, SnapshotError, SnapshotId, Snapshots, WriteError,
};
use tenure_types::Term;

use crate::codec::Malformed;
use crate::engine::MEMBERS;
use crate::member::Membership;
use crate::replica::Boot;

/// Where every cluster begins: all of its first members have the same snapshot here. A member that joins later has
/// nothing, and so is sent a snapshot before any entry.
pub const FIRST: LogId = LogId { index: 1, term: 1 };

/// Why a member cannot start from its disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The snapshots cannot be used.
    #[error("cannot use the snapshots")]
    Snapshot(#[from] SnapshotError),
    /// The state in a snapshot cannot be decoded.
    #[error("cannot read the state in the snapshot at {index}")]
    State {
        /// The index of the snapshot.
        index: u64,
        /// The defect.
        #[source]
        source: BadSnapshot,
    },
    /// The members in a snapshot cannot be decoded.
    #[error("cannot read the members in the snapshot")]
    Members(#[from] Malformed),
    /// The log cannot be read.
    #[error("cannot read the log")]
    Read(#[from] ReadError),
    /// The log cannot be written.
    #[error("cannot write the log")]
    Write(#[from] WriteError),
}

impl LoadError {
    /// Whether the state is at a level that this build does not know.
    pub fn is_outgrown(&self) -> bool {
        matches!(self, Self::State { source: BadSnapshot::Level { .. }, .. })
    }

    /// Whether durable data is damaged or missing. A disk that fails or is full has lost nothing yet.
    pub fn is_corrupt(&self) -> bool {
        match self {
            Self::Snapshot(error) => error.is_corrupt(),
            Self::State { .. } => !self.is_outgrown(),
            Self::Members(_) => true,
            Self::Read(error) => error.is_corrupt(),
            Self::Write(_) => false,
        }
    }
}

/// Writes the first state of a cluster to an empty disk.
pub fn bootstrap(
    log: &mut Log,
    snapshots: &Snapshots,
    machine: &Machine,
    members: &Membership,
) -> Result<(), LoadError> {
    let mut meta = Vec::new();
    members.encode(&mut meta);
    let mut writer = snapshots.write(FIRST, &meta)?;
    writer.append(&machine.encode())?;
    writer.finish()?;
    begin_after(log, FIRST)
}

/// Reads what a member starts from. A disk without a snapshot is that of a member that joins.
pub fn load(log: &mut Log, snapshots: &Snapshots, joining: Machine) -> Result<Boot, LoadError> {
    let base = log.base();
    snapshots.covering(base)?;
    let mut usable = snapshots.complete()?.into_iter().filter(|id| id.point >= base).peekable();
    while let Some(id) = usable.next() {
        let (machine, members) = match read(snapshots, id, joining.level_known()) {
            // Not damaged, but at an unknown level. An older snapshot would only lead up to it again.
            Err(error) if error.is_outgrown() => return Err(error),
            // The previous snapshot may work, since the log is kept back to there.
            Err(_) if usable.peek().is_some() => continue,
            read => read?,
        };
        if log.last_index() < id.point.index || log.term(id.point.index)? != id.point.term {
            begin_after(log, id.point)?;
        }
        return boot(log, machine, members, id.point);
    }
    boot(log, joining, Membership::default(), LogId::default())
}

/// Applies the whole log to the state that it continues, including the part that is not known to be committed. Returns
/// the state and its last entry. This is for a member that will never reach the others again: everything that was
/// acknowledged with its help is in its log.
pub fn replay(boot: Boot) -> (Machine, LogId) {
    let Boot { mut machine, mut applied, entries, .. } = boot;
    let mut effects = Effects::default();
    for entry in entries.into_iter().filter(|entry| entry.index > boot.applied.index) {
        let is_command = entry.kind != MEMBERS && !entry.payload.is_empty();
        let payload = is_command.then_some(&entry.payload[..]);
        machine.apply(Term(entry.term), payload, &mut effects);
        applied = LogId { index: entry.index, term: entry.term };
    }
    (machine, applied)
}

/// Reads a whole snapshot. Its level must be known.
pub fn read(
    snapshots: &Snapshots,
    id: SnapshotId,
    level_known: u16,
) -> Result<(Machine, Membership), LoadError> {
    let index = id.point.index;
    let bad = |source| LoadError::State { index, source };
    let mut file = snapshots.read(id)?;
    let members = Membership::decode(file.meta())?;
    let mut state = SnapshotReader::knowing(level_known);
    while let Some(chunk) = file.next_chunk()? {
        state.push(&chunk).map_err(bad)?;
    }
    Ok((state.finish().map_err(bad)?, members))
}

/// Makes the log start after a snapshot that it does not reach. Entries beyond were never committed: every committed
/// one is in the snapshot.
fn begin_after(log: &mut Log, point: LogId) -> Result<(), LoadError> {
    let HardState { term, vote, .. } = log.hard_state();
    let vote = vote.filter(|_| term >= point.term);
    let hard_state = Some(HardState { term: term.max(point.term), vote, commit: point.index });
    log.write(&LogBatch { snapshot: Some(point), hard_state, ..LogBatch::default() })?;
    log.sync().map_err(WriteError::from)?;
    Ok(())
}

fn boot(
    log: &Log,
    machine: Machine,
    members: Membership,
    applied: LogId,
) -> Result<Boot, LoadError> {
    let base = log.base();
    let entries = log.entries(base.index + 1, log.last_index() + 1, u64::MAX)?;
    Ok(Boot {
        machine,
        applied,
        members,
        base,
        entries,
        hard_state: log.hard_state(),
        notes: log.notes().to_vec(),
        cut: None,
        given: BTreeSet::new(),
    })
}
