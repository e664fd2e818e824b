//! Gathers the commands of a session that are submitted together, encoded one after the other.
//!
//! A batch has one deadline, so commands are gathered together only if theirs are about the same: none is proposed
//! after its own.

use bytes::Bytes;
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Request};

use super::PendingAnswer;
use crate::admission::Permit;
use crate::io::CommandBatch;

/// How far from the first deadline of a batch the others may be. A command may expire up to twice this much before its
/// own deadline.
const APART_US: u64 = 10_000;

/// Commands that will be one batch each, in the order in which they came.
pub(super) struct GatheredBatches<T>(Vec<GatheredRequests<T>>);

impl<T> Default for GatheredBatches<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> GatheredBatches<T> {
    /// The batch that a command with this deadline goes into.
    pub(super) fn with_deadline(&mut self, deadline_us: u64) -> &mut GatheredRequests<T> {
        let fits = |last: &GatheredRequests<T>| {
            last.deadline_us.is_none_or(|first| first.abs_diff(deadline_us) <= APART_US)
        };
        if !self.0.last().is_some_and(fits) {
            self.0.push(GatheredRequests::default());
        }
        self.0.last_mut().expect("one was pushed if there was none")
    }

    /// Takes all of them.
    pub(super) fn take(&mut self) -> impl Iterator<Item = GatheredRequests<T>> + use<T> {
        std::mem::take(&mut self.0).into_iter()
    }
}

/// Commands that will be one batch.
pub(super) struct GatheredRequests<T> {
    /// The deadline of the first.
    deadline_us: Option<u64>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    pending: Vec<PendingAnswer<T>>,
    permit: Permit,
}

impl<T> Default for GatheredRequests<T> {
    fn default() -> Self {
        let (bytes, ends, pending) = (Vec::new(), Vec::new(), Vec::new());
        Self { deadline_us: None, bytes, ends, pending, permit: Permit::default() }
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
        let pending = pending();
        self.deadline_us.get_or_insert(pending.deadline_us);
        self.pending.push(pending);
        Ok(())
    }

    /// The batch of all commands and what waits for its answers; none if there is no command.
    pub(super) fn into_batch(
        self,
        asked_at_us: u64,
        linger_us: u64,
    ) -> Option<(CommandBatch<()>, Vec<PendingAnswer<T>>)> {
        let Self { bytes, ends, pending, permit, .. } = self;
        let deadline_us = pending.iter().map(|it| it.deadline_us).min()?;
        let (bytes, mut start) = (Bytes::from(bytes), 0);
        let slice = |end: usize| bytes.slice(std::mem::replace(&mut start, end)..end);
        let requests = ends.into_iter().map(slice).collect();
        let commands =
            CommandBatch { requests, linger_us, asked_at_us, deadline_us, reply: (), permit };
        Some((commands, pending))
    }
}
