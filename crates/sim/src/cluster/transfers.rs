//! Reads and writes snapshots in chunks, as the server's threads beside the event loop do: N8.

use tenure_node::transfer::{SnapshotUnreadable, TransferRefusal};
use tenure_node::{Input, Output};
use tenure_store::{SnapshotError, SnapshotReceiver};

use super::member::SimProcess;
use super::oracle::ensure;
use super::world::SimCluster;
use crate::invariant::CheckResult;

impl SimCluster {
    /// Does one step of a transfer, and reports it.
    pub(super) fn perform_transfer_step(&mut self, member: usize, output: Output) -> CheckResult {
        let boot = self.sim_members[member].boot;
        let Some(process) = &mut self.sim_members[member].process else { return Ok(()) };
        let input = match output {
            Output::FindSnapshot { to, point } => {
                let complete = process.snapshots.complete().unwrap_or_default();
                let id = complete.into_iter().find(|id| id.point == point);
                Input::SnapshotFound { to, point, id }
            }
            Output::ReadChunk { to, id, offset, len } => {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                let bytes = process.snapshots.raw(id).and_then(|raw| raw.read_at(offset, len));
                let bytes = bytes.map_err(|error| match error {
                    SnapshotError::Corrupt { .. } => SnapshotUnreadable::Damaged,
                    _ => SnapshotUnreadable::Failed,
                });
                if let Ok(bytes) = &bytes {
                    self.faults.count("snapshot_chunk");
                    self.chunks.insert((id, offset), bytes.clone());
                }
                Input::ChunkRead { to, id, offset, bytes }
            }
            Output::OpenTransfer { number, id } => {
                process.incoming = None;
                match process.snapshots.receive(id) {
                    Ok(incoming) => {
                        let have = incoming.have();
                        self.faults.count_by("snapshot_resumed", u64::from(have > 0));
                        process.incoming = Some((number, incoming));
                        Input::ChunkWritten { number, have }
                    }
                    Err(error) => Input::TransferFailed { number, reason: reason(&error) },
                }
            }
            Output::WriteChunk { number, id, offset, bytes } => {
                let Some((open, incoming)) = &mut process.incoming else { return Ok(()) };
                if *open != number {
                    return Ok(());
                }
                if let Some(sent) = self.chunks.get(&(id, offset)) {
                    let len = sent.len().min(bytes.len());
                    ensure(sent[..len] == bytes[..len], "N8", || {
                        format!("{member} takes other bytes at {offset} of {id:?} than were sent")
                    })?;
                }
                match incoming.append(offset, &bytes) {
                    Ok(_) => Input::ChunkWritten { number, have: incoming.have() },
                    Err(error) => {
                        process.incoming = None;
                        Input::TransferFailed { number, reason: reason(&error) }
                    }
                }
            }
            Output::FinishTransfer { number, from, id, step } => {
                let taken = process.incoming.take_if(|(open, _)| *open == number);
                let Some((_, incoming)) = taken else { return Ok(()) };
                match finish(process, incoming, id) {
                    Ok((machine, members)) => {
                        let (step, machine) = (Box::new(step), Box::new(machine));
                        let members = Box::new(members);
                        Input::SnapshotReceived { from, step: *step, machine, members }
                    }
                    Err(error) => {
                        if self.outgrown(member, &error) {
                            return Ok(());
                        }
                        Input::TransferFailed { number, reason: TransferRefusal::Damaged }
                    }
                }
            }
            _ => return Ok(()),
        };
        self.give(member, boot, input);
        Ok(())
    }
}

fn finish(
    process: &SimProcess,
    incoming: SnapshotReceiver,
    id: tenure_store::SnapshotId,
) -> anyhow::Result<(tenure_core::Machine, tenure_raft::Membership)> {
    let complete = process.snapshots.complete().unwrap_or_default().contains(&id);
    let id = if complete { id } else { incoming.finish()? };
    Ok(tenure_raft::read(&process.snapshots, id, process.level)?)
}

fn reason(error: &SnapshotError) -> TransferRefusal {
    match error {
        SnapshotError::Corrupt { .. } => TransferRefusal::Damaged,
        _ => TransferRefusal::Disk,
    }
}
