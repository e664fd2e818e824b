//! Implements the gRPC key service.

use tenure_core::request::Command;
use tenure_wire::v1;
use tonic::{Request, Response, Status};
use v1::answer::Result as Wire;

use super::call::GrpcCall;
use crate::api::{decode, list, query};
use crate::dispatch::Dispatch;

pub(super) struct KeysApi {
    pub(super) dispatch: Dispatch,
}

#[tonic::async_trait]
impl v1::key_service_server::KeyService for KeysApi {
    async fn put(
        &self,
        request: Request<v1::PutRequest>,
    ) -> Result<Response<v1::PutResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        call.run(decode::put(&it).map(Command::Put), |header, answer| match answer {
            Wire::Put(it) => Some(v1::PutResponse { header, ..it }),
            _ => None,
        })
        .await
    }

    async fn get(
        &self,
        request: Request<v1::GetKeyRequest>,
    ) -> Result<Response<v1::GetKeyResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        Ok(Response::new(query::key(&self.dispatch, &call.who, &it, call.within()).await?))
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::DeleteResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        call.run(decode::delete(&it), |header, answer| match answer {
            Wire::Deleted(it) => Some(v1::DeleteResponse { header, ..it }),
            _ => None,
        })
        .await
    }

    async fn list(
        &self,
        request: Request<v1::ListKeysRequest>,
    ) -> Result<Response<v1::ListKeysResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        Ok(Response::new(list::keys(&self.dispatch, &call.who, &it, call.within()).await?))
    }
}
