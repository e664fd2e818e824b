//! Implements the gRPC lock admin service: every operation on locks.

use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::Command;
use tenure_types::Refusal;
use tenure_wire::v1;
use tonic::{Request, Response, Status};
use v1::answer::Result as Wire;

use super::call::{GrpcCall, to_status};
use crate::api::encode::AnswerForm;
use crate::api::{decode, drains, list, query};
use crate::dispatch::Dispatch;

pub(super) struct LocksApi {
    pub(super) dispatch: Dispatch,
}

/// Turns the answer to a repeated acquire that is over into a refusal: repeating the request does not bring the lock
/// back.
pub(super) fn over(outcome: Outcome) -> Outcome {
    match outcome.result {
        Ok(Answer::Ended) => Outcome { result: Err(Refusal::RequestStale), ..outcome },
        _ => outcome,
    }
}

#[tonic::async_trait]
impl v1::lock_admin_service_server::LockAdminService for LocksApi {
    async fn acquire(
        &self,
        request: Request<v1::AcquireRequest>,
    ) -> Result<Response<v1::AcquireResponse>, Status> {
        let (call, mut it) = GrpcCall::new(&self.dispatch, request)?;
        if let Some(new) = &mut it.new_lease {
            call.number(new);
        }
        let ask = decode::ask(&it, "").map_err(to_status)?;
        let form = AnswerForm::of(&it);
        let outcome = over(call.acquire(ask, it.wait_ms).await?);
        call.reply(&outcome, form, |header, answer| match answer {
            Wire::Acquired(it) => Some(v1::AcquireResponse { header, ..it }),
            _ => None,
        })
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        call.run(decode::release(&it).map(Command::Release), |header, answer| match answer {
            Wire::Released(_) => Some(v1::ReleaseResponse { header }),
            _ => None,
        })
        .await
    }

    async fn leave(
        &self,
        request: Request<v1::LeaveRequest>,
    ) -> Result<Response<v1::LeaveResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        call.run(decode::leave(&it), |header, answer| match answer {
            Wire::Left(it) => Some(v1::LeaveResponse { header, ..it }),
            _ => None,
        })
        .await
    }

    async fn downgrade(
        &self,
        request: Request<v1::DowngradeRequest>,
    ) -> Result<Response<v1::DowngradeResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        call.run(decode::downgrade(&it).map(Command::Downgrade), |header, answer| match answer {
            Wire::Downgraded(it) => Some(v1::DowngradeResponse { header, ..it }),
            _ => None,
        })
        .await
    }

    async fn update(
        &self,
        request: Request<v1::UpdateRequest>,
    ) -> Result<Response<v1::UpdateResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        call.run(decode::update(&it), |header, answer| match answer {
            Wire::Updated(it) => Some(v1::UpdateResponse { header, ..it }),
            _ => None,
        })
        .await
    }

    async fn progress(
        &self,
        request: Request<v1::ProgressRequest>,
    ) -> Result<Response<v1::ProgressResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        call.run(decode::progress(&it), |header, answer| match answer {
            Wire::Progressed(it) => Some(v1::ProgressResponse { header, ..it }),
            _ => None,
        })
        .await
    }

    async fn hand_on(
        &self,
        request: Request<v1::HandOnRequest>,
    ) -> Result<Response<v1::HandOnResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        call.run(decode::hand_on(&it), |header, answer| match answer {
            Wire::HandedOn(it) => Some(v1::HandOnResponse { header, ..it }),
            _ => None,
        })
        .await
    }

    async fn force(
        &self,
        request: Request<v1::ForceRequest>,
    ) -> Result<Response<v1::ForceResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        call.run(decode::force(&it), |header, answer| match answer {
            Wire::Forced(it) => Some(v1::ForceResponse { header, ..it }),
            _ => None,
        })
        .await
    }

    async fn drain(
        &self,
        request: Request<v1::DrainRequest>,
    ) -> Result<Response<v1::DrainResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        call.run(decode::drain(&it), |header, answer| match answer {
            Wire::Drained(_) => Some(v1::DrainResponse { header }),
            _ => None,
        })
        .await
    }

    async fn undrain(
        &self,
        request: Request<v1::UndrainRequest>,
    ) -> Result<Response<v1::UndrainResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        call.run(decode::undrain(&it), |header, answer| match answer {
            Wire::Undrained(it) => Some(v1::UndrainResponse { header, ..it }),
            _ => None,
        })
        .await
    }

    async fn resize(
        &self,
        request: Request<v1::ResizeRequest>,
    ) -> Result<Response<v1::ResizeResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        call.run(Ok(decode::resize(&it)), |header, answer| match answer {
            Wire::Resized(_) => Some(v1::ResizeResponse { header }),
            _ => None,
        })
        .await
    }

    async fn list_drains(
        &self,
        request: Request<v1::ListDrainsRequest>,
    ) -> Result<Response<v1::ListDrainsResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let listed = drains::list(&self.dispatch, &call.who, &it, call.within()).await;
        Ok(Response::new(listed.map_err(to_status)?))
    }

    async fn stopped(
        &self,
        request: Request<v1::StoppedRequest>,
    ) -> Result<Response<v1::StoppedResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        call.run(decode::stopped(&it), |header, answer| match answer {
            Wire::Stopped(_) => Some(v1::StoppedResponse { header }),
            _ => None,
        })
        .await
    }

    async fn get(
        &self,
        request: Request<v1::GetLockRequest>,
    ) -> Result<Response<v1::GetLockResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        Ok(Response::new(query::lock(&self.dispatch, &call.who, &it, call.within()).await?))
    }

    async fn list(
        &self,
        request: Request<v1::ListLocksRequest>,
    ) -> Result<Response<v1::ListLocksResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        Ok(Response::new(list::locks(&self.dispatch, &call.who, &it, call.within()).await?))
    }

    async fn queue(
        &self,
        request: Request<v1::QueueRequest>,
    ) -> Result<Response<v1::QueueResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        Ok(Response::new(list::queue(&self.dispatch, &call.who, &it, call.within()).await?))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        Ok(Response::new(query::explain(&self.dispatch, &call.who, &it, call.within()).await?))
    }

    async fn history(
        &self,
        request: Request<v1::HistoryRequest>,
    ) -> Result<Response<v1::HistoryResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        Ok(Response::new(
            list::history(&self.dispatch, &call.who, &it, query::fresh(it.stale), call.within())
                .await?,
        ))
    }
}
