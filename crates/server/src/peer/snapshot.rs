//! Sends snapshots to other members and receives them.
//!
//! A snapshot travels on a connection of its own: the sender names the snapshot and sends the step that announces it,
//! the receiver says at which offset to continue, and the sender sends the bytes of the file. The sending replica
//! always gets a report of whether it succeeded.

use std::io;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use tenure_core::BadSnapshot;
use tenure_node::{Control, Input, PeerHello};
use tenure_raft::{LoadError, MemberId, Message, SnapshotDelivery, Step, Stop};
use tenure_store::{SnapshotError, SnapshotId, Snapshots};

use super::control;
use super::frame::{self, CHUNK_BYTES, CONTROL_BYTES_MAX};
use super::net::Net;
use super::stream::PeerStream;
use crate::error::chain;
use crate::log_writer::spawn_for;
use crate::member::{End, LoopEvent};
use crate::os;

/// Why a received snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    Store(#[from] SnapshotError),
    #[error(transparent)]
    Outgrown(Stop),
}
/// How long one part of [`CHUNK_BYTES`] may take. A network slower than this cannot carry a cluster.
const CHUNK_US: u64 = 30_000_000;
/// How long the other end may take to verify and read the whole snapshot.
const VERIFY_US: u64 = 60_000_000;

impl Net {
    /// Sends a snapshot on a new thread, one at a time to each member. Returns whether the thread could be started.
    pub(crate) fn send_snapshot(
        self: &Arc<Self>,
        to: MemberId,
        step: Step,
        snapshots: Snapshots,
    ) -> bool {
        let net = self.clone();
        spawn_for(self.member.inbox(), "tenure-snapshot-stream", move || {
            let mine = net.sending().insert(to);
            let sent = if mine {
                let sent = net.send_now(to, step, &snapshots);
                net.sending().remove(&to);
                sent
            } else {
                Err(io::Error::other("another snapshot is on its way"))
            };
            let saved = match sent {
                Ok(id) => {
                    let (index, bytes) = (id.point.index, id.bytes);
                    tracing::info!(%to, index, bytes, "snapshot sent");
                    SnapshotDelivery::Delivered
                }
                Err(error) => {
                    tracing::warn!(%to, cause = %error, "cannot send a snapshot");
                    SnapshotDelivery::Failed
                }
            };
            net.member.tell(LoopEvent::Input(Input::SnapshotSent { to, saved }));
        })
    }

    fn send_now(&self, to: MemberId, step: Step, snapshots: &Snapshots) -> io::Result<SnapshotId> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "the snapshot is not there");
        let wanted = step.snapshot.as_ref().ok_or_else(missing)?.point;
        let complete = snapshots.complete().map_err(io::Error::other)?;
        let id = complete.into_iter().find(|id| id.point == wanted).ok_or_else(missing)?;
        let raw = snapshots.raw(id).map_err(io::Error::other)?;
        let nowhere = || io::Error::new(io::ErrorKind::NotFound, "its address is not known");
        let address = self.address(to).ok_or_else(nowhere)?;
        let mut stream = self.wire.dial(&address, self.name(to).as_deref())?;
        control::write(&mut stream, &Control::Snapshot(self.hello(to), id))?;
        frame::write(&mut stream, &Message::Step(Box::new(step)).encode())?;
        let mut offset = match control::read(&mut stream)? {
            Control::Have(bytes) => bytes,
            Control::Refused(why) => return Err(io::Error::other(why)),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        while offset < id.bytes {
            let chunk = raw.read_at(offset, CHUNK_BYTES).map_err(io::Error::other)?;
            stream.limit(Some(os::now_us() + CHUNK_US))?;
            frame::write(&mut stream, &chunk)?;
            offset += chunk.len() as u64;
        }
        // The other end verifies, syncs and reads the whole before it answers.
        stream.limit(Some(os::now_us() + VERIFY_US))?;
        match control::read(&mut stream)? {
            Control::Done => Ok(id),
            Control::Refused(why) => Err(io::Error::other(why)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Receives a snapshot that another member sends.
    pub(super) fn receive_snapshot(
        &self,
        hello: &PeerHello,
        id: SnapshotId,
        snapshots: &Snapshots,
        stream: &mut PeerStream,
    ) -> io::Result<()> {
        stream.limit(Some(os::now_us() + CHUNK_US))?;
        let announced = frame::read(stream, CONTROL_BYTES_MAX)?;
        let Ok(Message::Step(step)) = Message::decode(&announced) else {
            return control::write(stream, &Control::Refused("no step announces it".into()));
        };
        let Ok(_one) = self.receiving.try_lock() else {
            return control::write(
                stream,
                &Control::Refused("another snapshot is arriving".into()),
            );
        };
        match self.receive_now(hello.from, *step, id, snapshots, stream) {
            Ok(()) => control::write(stream, &Control::Done),
            Err(Unusable::Store(SnapshotError::Fatal(fatal))) => {
                self.member.tell(LoopEvent::Die(End::Disk(chain(&fatal))));
                Err(io::Error::other(fatal))
            }
            Err(Unusable::Outgrown(stop)) => {
                let cause = chain(&stop);
                self.member.tell(LoopEvent::Die(End::Cluster(stop)));
                control::write(stream, &Control::Refused(cause))
            }
            Err(Unusable::Store(error)) => {
                let cause = chain(&error);
                tracing::warn!(from = %hello.from, cause, "cannot receive a snapshot");
                control::write(stream, &Control::Refused(cause))
            }
        }
    }

    fn receive_now(
        &self,
        from: MemberId,
        step: Step,
        id: SnapshotId,
        snapshots: &Snapshots,
        stream: &mut PeerStream,
    ) -> Result<(), Unusable> {
        let mut receiver = snapshots.receive(id)?;
        let io = |source| SnapshotError::Io { doing: "receive", name: "snapshot".into(), source };
        control::write(stream, &Control::Have(receiver.have())).map_err(io)?;
        while receiver.have() < id.bytes {
            stream.limit(Some(os::now_us() + CHUNK_US)).map_err(io)?;
            let chunk: Bytes = frame::read(stream, CHUNK_BYTES).map_err(io)?;
            // Every part but the last must have full size: each has its own time limit, so a sender of tiny parts could
            // block other snapshots for ever.
            let left = id.bytes - receiver.have();
            if (chunk.len() as u64) < left.min(CHUNK_BYTES as u64) {
                let text = format!("a part of {} bytes, {left} are missing", chunk.len());
                return Err(io(io::Error::new(io::ErrorKind::InvalidData, text)).into());
            }
            receiver.append(receiver.have(), &chunk)?;
        }
        stream.limit(Some(os::now_us() + VERIFY_US)).map_err(io)?;
        let id = receiver.finish()?;
        let (mut machine, members) =
            tenure_raft::read(snapshots, id, self.level).map_err(|error| match error {
                LoadError::State { source: BadSnapshot::Level { level, known }, .. } => {
                    Unusable::Outgrown(Stop::Outgrown { level, known })
                }
                error => io(io::Error::other(chain(&error))).into(),
            })?;
        machine.reseed_names(os::random());
        tracing::info!(index = id.point.index, bytes = id.bytes, "snapshot received");
        let (machine, members) = (Box::new(machine), Box::new(members));
        let step = Box::new(step);
        let received = Input::SnapshotReceived { from, step, machine, members };
        self.member.tell(LoopEvent::Input(received));
        Ok(())
    }

    fn sending(&self) -> std::sync::MutexGuard<'_, std::collections::BTreeSet<MemberId>> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
