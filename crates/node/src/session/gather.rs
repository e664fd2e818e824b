//! Gathers the commands of a session that are submitted together, encoded one after the other.

use bytes::Bytes;
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Request};

use super::PendingAnswer;
use crate::admission::Permit;
use crate::io::CommandBatch;

/// Commands that will be one batch.
pub(super) struct GatheredRequests<T> {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    pending: Vec<PendingAnswer<T>>,
    permit: Permit,
}

impl<T> Default for GatheredRequests<T> {
    fn default() -> Self {
        Self { bytes: Vec::new(), ends: Vec::new(), pending: Vec::new(), permit: Permit::default() }
    }
}

impl<T> GatheredRequests<T> {
    /// Adds a command, if `admit` admits it.
    pub(super) fn add<E>(
        &mut self,
        request: &Request<'_>,
        admit: impl FnOnce(&Command<'_>, usize) -> Result<Permit, E>,
        pending: impl FnOnce() -> PendingAnswer<T>,
    ) -> Result<(), E> {
        let before = self.bytes.len();
        encode_request(request, &mut self.bytes);
        match admit(&request.command, self.bytes.len() - before) {
            Ok(permit) => self.permit.join(permit),
            Err(refused) => {
                self.bytes.truncate(before);
                return Err(refused);
            }
        }
        self.ends.push(self.bytes.len());
        self.pending.push(pending());
        Ok(())
    }

    /// The batch of all commands and what waits for its answers; none if there is no command.
    pub(super) fn into_batch(
        self,
        asked_at_us: u64,
        linger_us: u64,
    ) -> Option<(CommandBatch<()>, Vec<PendingAnswer<T>>)> {
        let Self { bytes, ends, pending, permit } = self;
        let deadline_us = pending.iter().map(|it| it.deadline_us).max()?;
        let (bytes, mut start) = (Bytes::from(bytes), 0);
        let slice = |end: usize| bytes.slice(std::mem::replace(&mut start, end)..end);
        let requests = ends.into_iter().map(slice).collect();
        let commands =
            CommandBatch { requests, linger_us, asked_at_us, deadline_us, reply: (), permit };
        Some((commands, pending))
    }
}
