//! Implements the gRPC lock service: unary locks, leases, keep-alives and watches.

use std::collections::VecDeque;

use futures_util::{FutureExt, StreamExt, stream};
use tenure_core::Machine;
use tenure_core::outcome::{Acquired, Answer, Outcome};
use tenure_core::request::{Command, LeaseRef, Revoker};
use tenure_types::{LeaseId, RENEW_MAX, Refusal, Revision};
use tenure_wire::{Failure, convert, v1};
use tonic::{Request, Response, Status, Streaming};
use v1::answer::Result as Wire;

use super::call::{GrpcCall, Streamed, to_status};
use super::{locks, watch};
use crate::api::encode::AnswerForm;
use crate::api::{decode, encode, present};
use crate::dispatch::{Dispatch, ReadConsistency, ReadScope};

/// The name of a client that says none.
const UNNAMED: &str = "unnamed";

pub(super) struct LockApi {
    pub(super) dispatch: Dispatch,
}

/// The result of an acquire: the grant, or the refusal with its reason, the queue length and the holder.
enum LockAttempt {
    Yes(v1::Header, Acquired),
    No { header: v1::Header, reason: &'static str, position: u64, holder: Option<v1::Holder> },
}

/// Builds either response: both have the same fields.
macro_rules! taken {
    ($response:ident, $taken:expr, $key:expr) => {
        match $taken {
            LockAttempt::Yes(header, acquired) => {
                let grant = acquired.grants.as_slice().first();
                v1::$response {
                    header: Some(header),
                    key: $key,
                    fencing_token: grant.map_or(0, |grant| grant.token.get()),
                    acquired: true,
                    slot: grant.and_then(|grant| grant.slot),
                    lease_create_revision: convert::revision(acquired.lease.created),
                    ..Default::default()
                }
            }
            LockAttempt::No { header, reason, position, holder } => v1::$response {
                header: Some(header),
                key: $key,
                position,
                holder,
                reason: reason.to_owned(),
                ..Default::default()
            },
        }
    };
}

impl LockApi {
    async fn take(&self, call: &GrpcCall, ask: &v1::AcquireRequest) -> Result<LockAttempt, Status> {
        let acquire = decode::ask(ask, "").map_err(to_status)?;
        let outcome = locks::over(call.acquire(acquire, ask.wait_ms).await?);
        let header = self.dispatch.header(outcome.revision);
        match outcome.result {
            Ok(Answer::Acquired(acquired)) => Ok(LockAttempt::Yes(header, acquired)),
            Ok(_) => Err(to_status(Failure::Internal)),
            Err(refusal) => {
                let reason = refusal.reason();
                match refusal {
                    Refusal::Held(held) => {
                        let holder = held.holder.as_ref().map(Into::into);
                        Ok(LockAttempt::No { header, reason, position: held.ahead, holder })
                    }
                    Refusal::WaitTimeout => {
                        let (position, holder) =
                            self.in_the_way(call, &ask.lock, outcome.revision).await;
                        Ok(LockAttempt::No { header, reason, position, holder })
                    }
                    refusal => Err(encode::refused(&refusal).into()),
                }
            }
        }
    }

    /// The number of waiters and the holder of a lock after a wait that timed out. Empty if the read fails or is not
    /// permitted.
    async fn in_the_way(
        &self,
        call: &GrpcCall,
        lock: &str,
        since: Revision,
    ) -> (u64, Option<v1::Holder>) {
        let lock = lock.to_owned();
        let (scope, fresh) = (ReadScope::read(&lock), ReadConsistency::AtLeast(since));
        let ask = move |machine: &Machine| machine.lock(&lock);
        let read = self.dispatch.read(&call.who, scope, fresh, call.within(), ask).await;
        let Ok((_, Some(view))) = read else { return (0, None) };
        let holder = view.holders.first().map(|holder| {
            let (state, left_ms) = convert::holder_state(holder.state);
            v1::Holder {
                client: holder.client.as_str().to_owned(),
                token: holder.token.get(),
                held_ms: holder.held_ms + present::clock_age_ms(&self.dispatch),
                lease: convert::lease(holder.lease),
                state: state.into(),
                left_ms,
            }
        });
        (view.waiting, holder)
    }
}

#[tonic::async_trait]
impl v1::lock_service_server::LockService for LockApi {
    type LeaseKeepAliveStream = Streamed<v1::LeaseKeepAliveResponse>;
    type WatchStream = Streamed<v1::WatchResponse>;

    async fn lock(
        &self,
        request: Request<v1::LockRequest>,
    ) -> Result<Response<v1::LockResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let wait_ms = it.timeout_ms.map(u64::try_from).transpose();
        let wait_ms =
            wait_ms.map_err(|_| to_status(decode::invalid("timeout_ms", "is negative")))?;
        let ask = v1::AcquireRequest {
            lock: it.name,
            lease: it.lease_id,
            mode: it.mode,
            slots: it.slots,
            wait_ms,
            metadata: it.metadata,
            ..Default::default()
        };
        let taken = self.take(&call, &ask).await?;
        Ok(Response::new(taken!(LockResponse, taken, ask.lock)))
    }

    async fn try_lock(
        &self,
        request: Request<v1::TryLockRequest>,
    ) -> Result<Response<v1::TryLockResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let ask = v1::AcquireRequest {
            lock: it.name,
            lease: it.lease_id,
            mode: it.mode,
            slots: it.slots,
            wait_ms: Some(0),
            metadata: it.metadata,
            ..Default::default()
        };
        let taken = self.take(&call, &ask).await?;
        Ok(Response::new(taken!(TryLockResponse, taken, ask.lock)))
    }

    async fn unlock(
        &self,
        request: Request<v1::UnlockRequest>,
    ) -> Result<Response<v1::UnlockResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let it = v1::ReleaseRequest {
            lock: it.name,
            lease: it.lease_id,
            token: it.token,
            ..Default::default()
        };
        call.run(decode::release(&it).map(Command::Release), |header, answer| match answer {
            Wire::Released(_) => Some(v1::UnlockResponse { header }),
            _ => None,
        })
        .await
    }

    async fn lease_grant(
        &self,
        request: Request<v1::LeaseGrantRequest>,
    ) -> Result<Response<v1::LeaseGrantResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let ttl_ms = u64::try_from(it.ttl).ok().and_then(|ttl| ttl.checked_mul(1_000));
        let ttl_ms =
            ttl_ms.ok_or_else(|| to_status(decode::invalid("ttl", "is no number of seconds")))?;
        let mut new =
            v1::NewLease { ttl_ms, lease: it.id, client: it.client_id, metadata: it.metadata };
        call.number(&mut new);
        let grant = decode::new_lease(&new, UNNAMED).map(Command::GrantLease);
        let outcome = call.outcome(grant.map_err(to_status)?).await?;
        call.reply(
            &outcome,
            AnswerForm { lease: true, locks: false },
            |header, answer| match answer {
                Wire::LeaseGranted(lease) => Some(v1::LeaseGrantResponse {
                    header,
                    id: lease.lease,
                    ttl: it.ttl,
                    create_revision: lease.created,
                }),
                _ => None,
            },
        )
    }

    async fn lease_revoke(
        &self,
        request: Request<v1::LeaseRevokeRequest>,
    ) -> Result<Response<v1::LeaseRevokeResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let lease = decode::lease_ref(0, 0, it.id);
        let revoke = lease.map(|lease| Command::Revoke { lease, by: Revoker::Holder });
        call.run(revoke, |header, answer| match answer {
            Wire::Revoked(_) => Some(v1::LeaseRevokeResponse { header }),
            _ => None,
        })
        .await
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<v1::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let (call, from) = GrpcCall::new(&self.dispatch, request)?;
        let renewing = Renewing { call, from, ready: VecDeque::new(), end: None };
        let answers = stream::unfold(renewing, |mut renewing| async move {
            let next = renewing.next().await?;
            Some((next, renewing))
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn watch(
        &self,
        request: Request<Streaming<v1::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Ok(Response::new(watch::serve(&self.dispatch, request.into_inner())))
    }
}

/// A stream of renewals: one command renews all that have arrived meanwhile.
struct Renewing {
    call: GrpcCall,
    from: Streaming<v1::LeaseKeepAliveRequest>,
    ready: VecDeque<v1::LeaseKeepAliveResponse>,
    /// The end of the stream, sent once everything is answered.
    end: Option<Option<Status>>,
}

impl Renewing {
    async fn next(&mut self) -> Option<Result<v1::LeaseKeepAliveResponse, Status>> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(Ok(ready));
            }
            if let Some(end) = &mut self.end {
                return end.take().map(Err);
            }
            let first = self.from.next().await;
            let mut ids = Vec::new();
            self.gather(first, &mut ids);
            while self.end.is_none() && ids.len() < RENEW_MAX {
                let Some(more) = self.from.next().now_or_never() else { break };
                self.gather(more, &mut ids);
            }
            if let Err(status) = self.renew(&ids).await {
                self.end = Some(Some(status));
            }
        }
    }

    fn gather(
        &mut self,
        message: Option<Result<v1::LeaseKeepAliveRequest, Status>>,
        ids: &mut Vec<i64>,
    ) {
        match message {
            Some(Ok(request)) => ids.push(request.id),
            Some(Err(status)) => self.end = Some(Some(super::plain(status))),
            None => self.end = Some(None),
        }
    }

    async fn renew(&mut self, ids: &[i64]) -> Result<(), Status> {
        // A number that is no lease id is answered like an ended lease, so that the other renewals go on.
        let leases: Vec<Option<LeaseId>> = ids.iter().map(|id| convert::lease_from(*id)).collect();
        let named: Vec<LeaseRef> = leases.iter().flatten().copied().map(LeaseRef::Id).collect();
        let (revision, renewals) = if named.is_empty() {
            (Revision(0), Vec::new())
        } else {
            let Outcome { revision, result } = self.call.outcome(Command::Renew(named)).await?;
            match result {
                Ok(Answer::Renewed(renewals)) => (revision, renewals),
                Ok(_) => return Err(to_status(Failure::Internal)),
                Err(refusal) => return Err(encode::refused(&refusal).into()),
            }
        };
        let mut renewals = renewals.into_iter();
        for (id, lease) in ids.iter().zip(leases) {
            let renewal = lease.and_then(|_| renewals.next().flatten());
            let ttl_ms = renewal.map_or(0, |renewal| renewal.ttl_ms);
            self.ready.push_back(v1::LeaseKeepAliveResponse {
                header: Some(self.call.dispatch.header(revision)),
                id: *id,
                ttl: i64::try_from(ttl_ms / 1_000).unwrap_or(i64::MAX),
                changed: renewal.map_or(0, |renewal| convert::revision(renewal.changed)),
                ttl_ms,
            });
        }
        Ok(())
    }
}
