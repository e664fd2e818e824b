//! Implements the gRPC ticket service.

use tenure_wire::v1;
use tonic::{Request, Response, Status};

use super::call::{GrpcCall, to_status};
use crate::api::decode;
use crate::dispatch::Dispatch;

pub(super) struct TicketApi {
    pub(super) dispatch: Dispatch,
}

#[tonic::async_trait]
impl v1::ticket_service_server::TicketService for TicketApi {
    async fn sign(
        &self,
        request: Request<v1::SignTicketRequest>,
    ) -> Result<Response<v1::SignTicketResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let lease = decode::lease_ref(it.lease_slot, it.lease_generation, it.lease);
        let (lease, token) =
            (lease.map_err(to_status)?, decode::token(it.token).map_err(to_status)?);
        let signed = self.dispatch.ticket(&call.who, lease, &it.lock, token, call.within()).await?;
        Ok(Response::new(v1::SignTicketResponse {
            header: Some(self.dispatch.header(signed.revision)),
            ticket: signed.ticket,
            key: signed.key,
        }))
    }

    async fn keys(
        &self,
        request: Request<v1::TicketKeysRequest>,
    ) -> Result<Response<v1::TicketKeysResponse>, Status> {
        let (call, _) = GrpcCall::new(&self.dispatch, request)?;
        Ok(Response::new(self.dispatch.ticket_keys(call.within()).await?))
    }

    async fn rotate_key(
        &self,
        request: Request<v1::RotateTicketKeyRequest>,
    ) -> Result<Response<v1::RotateTicketKeyResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let (revision, key) =
            self.dispatch.rotate_key(&call.who, it.overlap_ms, call.within()).await?;
        let header = Some(self.dispatch.header(revision));
        Ok(Response::new(v1::RotateTicketKeyResponse { header, key }))
    }
}
