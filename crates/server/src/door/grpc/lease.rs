//! How are leases looked at and ended with single calls?

use tenure_wire::v1;
use tonic::{Request, Response, Status};
use v1::answer::Result as Wire;

use super::call::Call;
use crate::door::{ask, decode, list};
use crate::edge::Edge;

pub(super) struct Leases {
    pub(super) edge: Edge,
}

#[tonic::async_trait]
impl v1::lease_service_server::LeaseService for Leases {
    async fn get(
        &self,
        request: Request<v1::GetLeaseRequest>,
    ) -> Result<Response<v1::GetLeaseResponse>, Status> {
        let (call, it) = Call::new(&self.edge, request)?;
        Ok(Response::new(ask::lease(&self.edge, &call.who, &it, call.within()).await?))
    }

    async fn list(
        &self,
        request: Request<v1::ListLeasesRequest>,
    ) -> Result<Response<v1::ListLeasesResponse>, Status> {
        let (call, it) = Call::new(&self.edge, request)?;
        Ok(Response::new(list::leases(&self.edge, &call.who, &it, call.within()).await?))
    }

    async fn revoke(
        &self,
        request: Request<v1::RevokeRequest>,
    ) -> Result<Response<v1::RevokeResponse>, Status> {
        let (call, it) = Call::new(&self.edge, request)?;
        call.run(decode::revoke(&it), |header, answer| match answer {
            Wire::Revoked(_) => Some(v1::RevokeResponse { header }),
            _ => None,
        })
        .await
    }
}
