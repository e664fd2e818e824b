//! Implements the gRPC lease service: queries and revocation.

use tenure_wire::v1;
use tonic::{Request, Response, Status};
use v1::answer::Result as Wire;

use super::call::GrpcCall;
use crate::api::{decode, list, query};
use crate::dispatch::Dispatch;

pub(super) struct LeasesApi {
    pub(super) dispatch: Dispatch,
}

#[tonic::async_trait]
impl v1::lease_service_server::LeaseService for LeasesApi {
    async fn get(
        &self,
        request: Request<v1::GetLeaseRequest>,
    ) -> Result<Response<v1::GetLeaseResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        Ok(Response::new(query::lease(&self.dispatch, &call.who, &it, call.within()).await?))
    }

    async fn list(
        &self,
        request: Request<v1::ListLeasesRequest>,
    ) -> Result<Response<v1::ListLeasesResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        Ok(Response::new(list::leases(&self.dispatch, &call.who, &it, call.within()).await?))
    }

    async fn revoke(
        &self,
        request: Request<v1::RevokeRequest>,
    ) -> Result<Response<v1::RevokeResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        call.run(decode::revoke(&it), |header, answer| match answer {
            Wire::Revoked(_) => Some(v1::RevokeResponse { header }),
            _ => None,
        })
        .await
    }
}
