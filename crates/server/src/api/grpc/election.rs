//! Implements the gRPC election service.
//!
//! An election is a lock whose metadata is the leader's value.

use futures_util::stream;
use tenure_core::Machine;
use tenure_core::event::{Cause, Event};
use tenure_core::outcome::Answer;
use tenure_core::request::Command;
use tenure_core::view::HolderView;
use tenure_types::{HolderState, Revision, Verb};
use tenure_wire::{Failure, convert, v1};
use tonic::{Request, Response, Status};
use v1::answer::Result as Wire;

use super::call::{GrpcCall, Streamed, to_status};
use super::locks;
use crate::api::{decode, encode, present, query};
use crate::dispatch::{Dispatch, Principal, ReadConsistency, ReadScope, WITHIN};
use crate::watch::{OwnedFilter, Start, WatchOptions, WatchReader, WatchStep};

pub(super) struct ElectionApi {
    pub(super) dispatch: Dispatch,
}

#[tonic::async_trait]
impl v1::election_service_server::ElectionService for ElectionApi {
    type ObserveStream = Streamed<v1::LeaderResponse>;

    async fn campaign(
        &self,
        request: Request<v1::CampaignRequest>,
    ) -> Result<Response<v1::CampaignResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let ask = v1::AcquireRequest {
            lock: it.name,
            lease: it.lease,
            wait_ms: it.wait_ms,
            metadata: it.value,
            election: true,
            ..Default::default()
        };
        let acquire = decode::ask(&ask, "").map_err(to_status)?;
        let outcome = locks::over(call.acquire(acquire, it.wait_ms).await?);
        let acquired = match &outcome.result {
            Ok(Answer::Acquired(acquired)) => acquired,
            Ok(_) => return Err(to_status(Failure::Internal)),
            Err(refusal) => return Err(encode::refused(refusal).into()),
        };
        let token = acquired.grants.as_slice().first().map_or(0, |grant| grant.token.get());
        // The client's name comes from the lease. If the leadership has already ended, the response has no name.
        let name = ask.lock.clone();
        let fresh = ReadConsistency::AtLeast(outcome.revision);
        let shown = move |machine: &Machine| leadership(machine, &name);
        // The principal may not have permission to read. Only the leadership that it has itself is shown.
        let scope = ReadScope::Name(Verb::Elect, ask.lock.clone());
        let shown = self.dispatch.read(&call.who, scope, fresh, call.within(), shown).await;
        let shown = shown.ok().and_then(|(_, leader)| leader).filter(|it| it.token == token);
        let leader = shown.unwrap_or(v1::Leadership {
            name: ask.lock,
            lease: ask.lease,
            token,
            value: ask.metadata,
            ..Default::default()
        });
        Ok(Response::new(v1::CampaignResponse {
            header: Some(self.dispatch.header(outcome.revision)),
            leader: Some(leader),
            lease_created: convert::revision(acquired.lease.created),
        }))
    }

    async fn proclaim(
        &self,
        request: Request<v1::ProclaimRequest>,
    ) -> Result<Response<v1::ProclaimResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let it = v1::UpdateRequest {
            lock: it.name,
            lease: it.lease,
            token: it.token,
            metadata: it.value,
            ..Default::default()
        };
        call.run(decode::update(&it), |header, answer| match answer {
            Wire::Updated(_) => Some(v1::ProclaimResponse { header }),
            _ => None,
        })
        .await
    }

    async fn leader(
        &self,
        request: Request<v1::LeaderRequest>,
    ) -> Result<Response<v1::LeaderResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let name = query::name(&it.name, "name").map_err(query::to_error)?;
        let scope = ReadScope::read(&name);
        let shown = move |machine: &Machine| leadership(machine, &name);
        let fresh = query::fresh(it.stale);
        let read = self.dispatch.read(&call.who, scope, fresh, call.within(), shown).await;
        let (revision, mut leader) = read.map_err(super::call::to_status)?;
        leader.iter_mut().for_each(|it| it.held_ms += present::clock_age_ms(&self.dispatch));
        Ok(Response::new(v1::LeaderResponse {
            header: Some(self.dispatch.header(revision)),
            leader,
        }))
    }

    async fn observe(
        &self,
        request: Request<v1::LeaderRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let name = query::name(&it.name, "name").map_err(query::to_error)?;
        let fresh = query::fresh(it.stale);
        let observer = ElectionStream {
            dispatch: self.dispatch.clone(),
            who: call.who,
            name,
            fresh,
            at: None,
            over: false,
        };
        let seen = stream::unfold(observer, |mut observer| async move {
            let next = observer.next().await?;
            Some((next, observer))
        });
        Ok(Response::new(Box::pin(seen)))
    }

    async fn resign(
        &self,
        request: Request<v1::ResignRequest>,
    ) -> Result<Response<v1::ResignResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let it = v1::ReleaseRequest {
            lock: it.name,
            lease: it.lease,
            token: it.token,
            ..Default::default()
        };
        call.run(decode::release(&it).map(Command::Release), |header, answer| match answer {
            Wire::Released(_) => Some(v1::ResignResponse { header }),
            _ => None,
        })
        .await
    }
}

/// The current leader according to the machine. A holder that is cooling or in its lock-delay does not lead any more.
fn leadership(machine: &Machine, name: &str) -> Option<v1::Leadership> {
    let view = machine.lock(name)?;
    let holds = |holder: &&HolderView| holder.state == HolderState::Held;
    view.holders.iter().find(holds).map(|holder| v1::Leadership {
        name: name.to_owned(),
        lease: convert::lease(holder.lease),
        token: holder.token.get(),
        client: holder.client.as_str().to_owned(),
        value: holder.metadata.to_vec().into(),
        held_ms: holder.held_ms,
    })
}

/// A client that observes an election.
struct ElectionStream {
    dispatch: Dispatch,
    who: Principal,
    name: String,
    fresh: ReadConsistency,
    at: Option<ObservedLeader>,
    over: bool,
}

/// The current leader, and the watch that delivers the next change.
struct ObservedLeader {
    leader: Option<v1::Leadership>,
    watch: WatchReader,
}

impl ElectionStream {
    async fn next(&mut self) -> Option<Result<v1::LeaderResponse, Status>> {
        loop {
            if self.over {
                return None;
            }
            let Some(at) = &mut self.at else {
                return Some(self.read_leader().await);
            };
            match at.watch.next().await {
                WatchStep::Batch(batch) => {
                    let mut leader = at.leader.clone();
                    for event in &batch.events {
                        leader = after(leader, event, &self.name);
                    }
                    if leader != at.leader {
                        at.leader.clone_from(&leader);
                        return Some(Ok(self.response(batch.revision, leader)));
                    }
                }
                WatchStep::Progress(_) => {}
                // Missed changes do not matter: the observer needs the current leader.
                WatchStep::Compacted { .. } | WatchStep::SlowConsumer { .. } => self.at = None,
                WatchStep::Forbidden => {
                    self.over = true;
                    let failure = Failure::PermissionDenied { verb: Verb::Observe.name() };
                    return Some(Err(to_status(failure)));
                }
                WatchStep::Closed => {
                    self.over = true;
                    return Some(Err(to_status(self.dispatch.farewell())));
                }
            }
        }
    }

    /// Reads the current leader, and watches from there on.
    async fn read_leader(&mut self) -> Result<v1::LeaderResponse, Status> {
        let name = self.name.clone();
        let shown = move |machine: &Machine| leadership(machine, &name);
        let scope = ReadScope::Name(Verb::Observe, self.name.clone());
        let read = self.dispatch.read(&self.who, scope, self.fresh, WITHIN, shown).await;
        let (revision, leader) = read.map_err(|failure| {
            self.over = true;
            to_status(failure)
        })?;
        let filter = OwnedFilter::Exact(self.name.clone());
        let start = Start::From(revision.next());
        let watch = self
            .dispatch
            .watch(&self.who, filter, start, WatchOptions::default())
            .map_err(to_status)?;
        self.at = Some(ObservedLeader { leader: leader.clone(), watch });
        Ok(self.response(revision, leader))
    }

    fn response(&self, revision: Revision, leader: Option<v1::Leadership>) -> v1::LeaderResponse {
        v1::LeaderResponse { header: Some(self.dispatch.header(revision)), leader }
    }
}

/// The leader after an event.
fn after(leader: Option<v1::Leadership>, event: &Event, name: &str) -> Option<v1::Leadership> {
    if event.subject != tenure_core::event::Subject::Lock(tenure_types::Name::new(name).ok()?) {
        return leader;
    }
    let token = event.token.map_or(0, tenure_types::Token::get);
    let value = || event.value.as_ref().map(|value| value.to_vec().into()).unwrap_or_default();
    match event.cause {
        Cause::Granted => Some(v1::Leadership {
            name: name.to_owned(),
            lease: event.lease.map_or(0, convert::lease),
            token,
            client: event.client.as_ref().map(|it| it.as_str().to_owned()).unwrap_or_default(),
            value: value(),
            held_ms: 0,
        }),
        Cause::Updated => leader.map(|leader| v1::Leadership { value: value(), ..leader }),
        Cause::Vacant => None,
        Cause::Released
        | Cause::Expired
        | Cause::Revoked
        | Cause::Forced
        | Cause::MaxHold
        | Cause::NoProgress
        | Cause::HandedOn => leader.filter(|leader| leader.token != token),
        _ => leader,
    }
}
