//! Implements the gRPC maintenance service: backup, compaction, hash, limits and level.

use std::io::{self, Write};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::Command;
use tenure_types::Limit;
use tenure_wire::{Failure, convert, v1};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};
use xxhash_rust::xxh3::Xxh3;

use super::call::{GrpcCall, Streamed, to_status};
use crate::api::{audit, decode, encode};
use crate::backup::{self, Backup, TakeError};
use crate::dispatch::Dispatch;

/// The bytes of a backup in one message, and the most messages in flight.
const CHUNK_BYTES: usize = 256 * 1024;
const CHUNKS: usize = 4;
/// A backup keeps a copy of everything that changes meanwhile, and a member takes one at a time. So a reader that takes
/// nothing for this long loses it, and so does one that is slower than this on the whole.
const READER: Duration = Duration::from_secs(30);
const READER_BYTES_PER_SECOND: u64 = 512 * 1024;
/// The retry delay while another backup is in progress.
const BUSY_RETRY_MS: u64 = 1_000;

pub(super) struct MaintenanceApi {
    pub(super) dispatch: Dispatch,
}

#[tonic::async_trait]
impl v1::maintenance_service_server::MaintenanceService for MaintenanceApi {
    type BackupStream = Streamed<v1::BackupResponse>;

    async fn backup(
        &self,
        request: Request<v1::BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        let (call, _) = GrpcCall::new(&self.dispatch, request)?;
        // A backup has everything in it.
        self.dispatch.may_operate(&call.who).map_err(to_status)?;
        let (member, within) = (self.dispatch.member().clone(), call.within());
        let who = call.who.clone();
        let take = move || backup::take_for(&member, within, who.known());
        let taking = self.dispatch.runtime().spawn_blocking(take);
        let backup = match taking.await {
            Ok(Ok(backup)) => backup,
            Ok(Err(TakeError::Busy)) => {
                return Err(to_status(Failure::Overloaded { retry_after_ms: BUSY_RETRY_MS }));
            }
            Ok(Err(_)) => return Err(to_status(Failure::NoQuorum)),
            Err(_) => return Err(to_status(Failure::Internal)),
        };
        self.dispatch.member().audit().recorded_durably().await;
        let (to, pieces) = mpsc::channel(CHUNKS);
        let dispatch = self.dispatch.clone();
        self.dispatch.runtime().spawn_blocking(move || send(&dispatch, &backup, to));
        let pieces =
            stream::unfold(
                pieces,
                |mut pieces| async move { Some((pieces.recv().await?, pieces)) },
            );
        Ok(Response::new(Box::pin(pieces)))
    }

    async fn compact(
        &self,
        request: Request<v1::CompactRequest>,
    ) -> Result<Response<v1::CompactResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let keep = convert::revision_from(it.keep);
        let keep = keep.ok_or_else(|| to_status(decode::invalid("keep", "is negative")))?;
        let (header, answer) = settled(&call, Command::Compact { keep }).await?;
        let Answer::Compacted { floor } = answer else { return Err(to_status(Failure::Internal)) };
        let floor = convert::revision(floor);
        Ok(Response::new(v1::CompactResponse { header, floor }))
    }

    async fn hash(
        &self,
        request: Request<v1::HashRequest>,
    ) -> Result<Response<v1::HashResponse>, Status> {
        let (call, _) = GrpcCall::new(&self.dispatch, request)?;
        self.dispatch.may_operate(&call.who).map_err(to_status)?;
        let seen = self.dispatch.inspect(|replica| {
            let machine = replica.machine();
            let applied = replica.status().applied.index;
            (machine.revision(), machine.rolling_hash(), applied)
        });
        let (revision, hash, applied) = call.own_view(seen).await?;
        let hash = Bytes::copy_from_slice(&hash.to_be_bytes());
        let header = Some(self.dispatch.header(revision));
        Ok(Response::new(v1::HashResponse { header, hash, applied }))
    }

    async fn set_limits(
        &self,
        request: Request<v1::SetLimitsRequest>,
    ) -> Result<Response<v1::SetLimitsResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        if it.limits.is_empty() {
            return Err(to_status(decode::invalid("limits", "is empty")));
        }
        let limit = |it: &v1::LimitValue| {
            let limit = Limit::from_name(&it.limit);
            let unknown =
                || to_status(decode::invalid("limits", &format!("has no `{}`", it.limit)));
            Ok((limit.ok_or_else(unknown)?, it.value))
        };
        let limits = it.limits.iter().map(limit).collect::<Result<Vec<_>, Status>>()?;
        let (header, _) = settled(&call, Command::SetLimits(limits)).await?;
        Ok(Response::new(v1::SetLimitsResponse { header }))
    }

    async fn raise_level(
        &self,
        request: Request<v1::RaiseLevelRequest>,
    ) -> Result<Response<v1::RaiseLevelResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let level = u16::try_from(it.level);
        let level =
            level.map_err(|_| to_status(decode::invalid("level", "is no feature level")))?;
        let (header, _) = settled(&call, Command::RaiseLevel { level }).await?;
        Ok(Response::new(v1::RaiseLevelResponse { header }))
    }

    async fn audit(
        &self,
        request: Request<v1::AuditRequest>,
    ) -> Result<Response<v1::AuditResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let last = audit::last((it.last > 0).then_some(it.last)).map_err(to_status)?;
        let recent = audit::recent(&self.dispatch, &call.who, last);
        let (revision, records) = call.own_view(recent).await?;
        let header = Some(self.dispatch.header(revision));
        Ok(Response::new(v1::AuditResponse { header, records }))
    }
}

/// Runs a command that sessions do not have.
async fn settled(
    call: &GrpcCall,
    command: Command<'_>,
) -> Result<(Option<v1::Header>, Answer), Status> {
    let Outcome { revision, result } = call.outcome(command).await?;
    let answer = result.map_err(|refusal| Status::from(encode::refused(&refusal)))?;
    Ok((Some(call.dispatch.header(revision)), answer))
}

type Piece = Result<v1::BackupResponse, Status>;

/// Sends a backup piece by piece; runs on a blocking thread.
fn send(dispatch: &Dispatch, backup: &Backup, to: mpsc::Sender<Piece>) {
    let head = backup.head();
    let first = v1::BackupResponse {
        header: Some(dispatch.header(head.revision)),
        epoch: head.lineage.epoch.get().into(),
        total_bytes: Some(backup.bytes()),
        ..Default::default()
    };
    let rate = DownloadRate { began_us: dispatch.now_us(), bytes: 0 };
    let mut pieces = Pieces { dispatch, to, buffer: BytesMut::new(), hash: Xxh3::new(), rate };
    let sent = pieces.send(first).and_then(|()| backup.write(&mut pieces));
    // A reader that goes away is not an error; one that is cut off misses the checksum.
    let _ = sent.and_then(|()| pieces.finish());
}

struct Pieces<'a> {
    dispatch: &'a Dispatch,
    to: mpsc::Sender<Piece>,
    buffer: BytesMut,
    hash: Xxh3,
    rate: DownloadRate,
}

/// How fast the reader of a backup is.
struct DownloadRate {
    began_us: u64,
    /// The bytes that it has taken.
    bytes: u64,
}

impl DownloadRate {
    /// How long the reader may take for the next piece.
    fn left(&self, now_us: u64) -> Duration {
        let taken = Duration::from_micros(now_us.saturating_sub(self.began_us));
        let earned =
            Duration::from_millis(self.bytes.saturating_mul(1_000) / READER_BYTES_PER_SECOND);
        READER.saturating_add(earned).saturating_sub(taken).min(READER)
    }
}

impl Pieces<'_> {
    fn send(&mut self, piece: v1::BackupResponse) -> io::Result<()> {
        let (bytes, left) = (piece.chunk.len() as u64, self.rate.left(self.dispatch.now_us()));
        let sending = async { tokio::time::timeout(left, self.to.send(Ok(piece))).await };
        match self.dispatch.runtime().block_on(sending) {
            Ok(Ok(())) => {
                self.rate.bytes += bytes;
                Ok(())
            }
            Ok(Err(_)) | Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn send_chunk(&mut self) -> io::Result<()> {
        let chunk = self.buffer.split().freeze();
        self.hash.update(&chunk);
        self.send(v1::BackupResponse { chunk, ..Default::default() })
    }

    fn finish(mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.send_chunk()?;
        }
        let checksum = Bytes::copy_from_slice(&self.hash.digest128().to_be_bytes());
        self.send(v1::BackupResponse { checksum, ..Default::default() })
    }
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == CHUNK_BYTES {
            self.send_chunk()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_of_a_backup_that_is_slow_on_the_whole_loses_it() {
        let second_us = 1_000_000;
        let mut rate = DownloadRate { began_us: 5, bytes: 0 };
        assert_eq!(rate.left(5), READER);
        // One that takes a piece just before it would lose it: soon nothing is left.
        let (mut now_us, mut pieces) = (5, 0);
        while !rate.left(now_us).is_zero() {
            now_us += 29 * second_us;
            rate.bytes += CHUNK_BYTES as u64;
            pieces += 1;
        }
        assert!(pieces <= 2, "{pieces} pieces");
        // One that keeps the rate may take as long as it needs.
        let mut rate = DownloadRate { began_us: 0, bytes: 0 };
        for second in 0..10_000 {
            assert_eq!(rate.left(second * second_us), READER);
            rate.bytes += READER_BYTES_PER_SECOND;
        }
    }
}
