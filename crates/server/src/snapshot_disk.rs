//! Reads and writes snapshots for transfers, on two threads beside the event loop.
//!
//! One thread reads the snapshots that are sent. The other writes, verifies and loads those that arrive. Each follows
//! the order of the node's outputs. A whole state may take seconds to verify; heartbeats do not wait for it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tenure_core::BadSnapshot;
use tenure_node::transfer::{SnapshotUnreadable, TransferRefusal};
use tenure_node::{Input, Output};
use tenure_raft::{LoadError, Stop};
use tenure_store::{SnapshotError, SnapshotId, SnapshotReceiver as Incoming, Snapshots};

use crate::error::chain;
use crate::log_writer::spawn_for;
use crate::member::{End, LoopEvent, MemberHandle};
use crate::os;

/// The longest pause between two parts of a snapshot that is written: a disk that hung for longer is no reason to wait
/// as long again.
pub(crate) const SNAPSHOT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Handles of the two threads.
pub(crate) struct SnapshotDisk {
    outgoing: Sender<Output>,
    incoming: Sender<Output>,
}

impl SnapshotDisk {
    /// Starts the threads. They end with this value.
    pub(crate) fn start(
        snapshots: &Snapshots,
        member: &MemberHandle,
        level_known: u16,
    ) -> Option<Self> {
        let ((outgoing, sent), (incoming, arriving)) = (channel(), channel());
        let reader = SnapshotReadThread { snapshots: snapshots.clone(), member: member.clone() };
        let writer = SnapshotWriteThread {
            snapshots: snapshots.clone(),
            member: member.clone(),
            level_known,
            open: None,
            log_syncs: 0,
        };
        let inbox = member.inbox();
        let started = spawn_for(inbox, "tenure-snapshot-out", move || reader.run(&sent))
            && spawn_for(inbox, "tenure-snapshot-in", move || writer.run(&arriving));
        started.then_some(Self { outgoing, incoming })
    }

    /// Performs an output that reads or writes a snapshot; returns any other.
    pub(crate) fn take(&self, output: Output) -> Option<Output> {
        let to = match &output {
            Output::FindSnapshot { .. } | Output::ReadChunk { .. } => &self.outgoing,
            Output::OpenTransfer { .. }
            | Output::WriteChunk { .. }
            | Output::FinishTransfer { .. } => &self.incoming,
            _ => return Some(output),
        };
        // If a thread has ended, the member has ended too.
        let _ = to.send(output);
        None
    }
}

struct SnapshotReadThread {
    snapshots: Snapshots,
    member: MemberHandle,
}

impl SnapshotReadThread {
    fn run(self, outputs: &Receiver<Output>) {
        while let Ok(output) = outputs.recv() {
            match output {
                Output::FindSnapshot { to, point } => {
                    let complete = self.snapshots.complete().unwrap_or_default();
                    let id = complete.into_iter().find(|id| id.point == point);
                    self.tell(Input::SnapshotFound { to, point, id });
                }
                Output::ReadChunk { to, id, offset, len } => {
                    let bytes = self.read(id, offset, len).map_err(|error| {
                        tracing::warn!(%to, index = id.point.index, cause = %chain(&error),
                            "cannot read the snapshot to send");
                        match error {
                            SnapshotError::Corrupt { .. } => SnapshotUnreadable::Damaged,
                            _ => SnapshotUnreadable::Failed,
                        }
                    });
                    self.tell(Input::ChunkRead { to, id, offset, bytes });
                }
                _ => {}
            }
        }
    }

    fn read(&self, id: SnapshotId, offset: u64, len: u64) -> Result<bytes::Bytes, SnapshotError> {
        self.snapshots.raw(id)?.read_at(offset, usize::try_from(len).unwrap_or(usize::MAX))
    }

    fn tell(&self, input: Input) {
        self.member.tell(LoopEvent::Input(input));
    }
}

struct SnapshotWriteThread {
    snapshots: Snapshots,
    member: MemberHandle,
    level_known: u16,
    /// The newest transfer, unless it has failed.
    open: Option<(u64, Incoming)>,
    /// How often the log was synced when the thread last paused.
    log_syncs: u64,
}

impl SnapshotWriteThread {
    fn run(mut self, outputs: &Receiver<Output>) {
        while let Ok(output) = outputs.recv() {
            let (number, done) = match output {
                Output::OpenTransfer { number, id } => (number, self.open(number, id)),
                Output::WriteChunk { number, offset, bytes, .. } => {
                    let Some((open, incoming)) = &mut self.open else { continue };
                    if *open != number {
                        continue;
                    }
                    let synced = incoming.append(offset, &bytes).and_then(|_| incoming.sync_some());
                    let done = synced.map(|busy| {
                        let (log_syncs, paused_at) = (self.member.meters().syncs(), self.log_syncs);
                        if busy > Duration::ZERO {
                            self.log_syncs = log_syncs;
                        }
                        (incoming.have(), pause_after(busy, log_syncs - paused_at))
                    });
                    match done {
                        Ok((have, pause)) => {
                            self.tell(Input::ChunkWritten { number, have });
                            std::thread::sleep(pause);
                            continue;
                        }
                        Err(error) => (number, Err(error)),
                    }
                }
                Output::FinishTransfer { number, from, id, step } => {
                    let Some((_, incoming)) = self.open.take_if(|(open, _)| *open == number) else {
                        continue;
                    };
                    match self.finish(incoming, id) {
                        Ok((machine, members)) => {
                            let (machine, members) = (Box::new(machine), Box::new(members));
                            self.tell(Input::SnapshotReceived { from, step, machine, members });
                        }
                        Err(reason) => self.tell(Input::TransferFailed { number, reason }),
                    }
                    continue;
                }
                _ => continue,
            };
            match done {
                Ok(have) => self.tell(Input::ChunkWritten { number, have }),
                Err(error) => {
                    self.open = None;
                    let reason = self.reason(error);
                    self.tell(Input::TransferFailed { number, reason });
                }
            }
        }
    }

    fn open(&mut self, number: u64, id: SnapshotId) -> Result<u64, SnapshotError> {
        self.open = None;
        self.log_syncs = self.member.meters().syncs();
        let incoming = self.snapshots.receive(id)?;
        let have = incoming.have();
        if have > 0 {
            let (index, bytes) = (id.point.index, id.bytes);
            tracing::info!(index, have, bytes, "receiving the rest of a snapshot");
        }
        self.open = Some((number, incoming));
        Ok(have)
    }

    fn finish(
        &self,
        incoming: Incoming,
        id: SnapshotId,
    ) -> Result<(tenure_core::Machine, tenure_raft::Membership), TransferRefusal> {
        let complete = self.snapshots.complete().unwrap_or_default().contains(&id);
        let id = if complete { Ok(id) } else { incoming.finish() };
        let id = id.map_err(|error| self.reason(error))?;
        let read = tenure_raft::read(&self.snapshots, id, self.level_known);
        let (mut machine, members) = read.map_err(|error| match error {
            LoadError::State { source: BadSnapshot::Level { level, known }, .. } => {
                let stop = Stop::Outgrown { level, known };
                self.member.tell(LoopEvent::Die(End::Cluster(stop)));
                TransferRefusal::Outgrown
            }
            error => {
                tracing::warn!(index = id.point.index, cause = %chain(&error),
                    "cannot read the received snapshot");
                TransferRefusal::Damaged
            }
        })?;
        machine.reseed_names(os::random());
        tracing::info!(index = id.point.index, bytes = id.bytes, "snapshot received");
        Ok((machine, members))
    }

    fn reason(&self, error: SnapshotError) -> TransferRefusal {
        tracing::warn!(cause = %chain(&error), "cannot receive a snapshot");
        match error {
            SnapshotError::Fatal(fatal) => {
                self.member.tell(LoopEvent::Die(End::Disk(chain(&fatal))));
                TransferRefusal::Disk
            }
            SnapshotError::Corrupt { .. } => TransferRefusal::Damaged,
            _ => TransferRefusal::Disk,
        }
    }

    fn tell(&self, input: Input) {
        self.member.tell(LoopEvent::Input(input));
    }
}

/// How long to pause after the disk was busy with a part of a snapshot that arrives: as long, if the log was synced
/// meanwhile. A member that only receives the snapshot does not wait.
fn pause_after(busy: Duration, log_syncs: u64) -> Duration {
    if log_syncs == 0 { Duration::ZERO } else { busy.min(SNAPSHOT_PAUSE_MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_left_alone_only_if_the_log_needs_it() {
        let busy = Duration::from_millis(30);
        assert_eq!(pause_after(busy, 0), Duration::ZERO);
        assert_eq!(pause_after(busy, 1), busy);
        assert_eq!(pause_after(Duration::from_secs(9), 1), SNAPSHOT_PAUSE_MAX);
        assert_eq!(pause_after(Duration::ZERO, 7), Duration::ZERO);
    }
}
