//! Implements the gRPC session service.

use std::pin::Pin;

use futures_util::{Stream, StreamExt, stream};
use tenure_wire::{Failure, status, v1};
use tonic::{Request, Response, Status, Streaming};

use super::call::to_status;
use crate::api::session::SessionHandler;
use crate::dispatch::{Caller, Dispatch};
use crate::metrics::Api;

pub(super) struct SessionApi {
    pub(super) dispatch: Dispatch,
}

#[tonic::async_trait]
impl v1::session_service_server::SessionService for SessionApi {
    type OpenStream = Pin<Box<dyn Stream<Item = Result<v1::SessionResponse, Status>> + Send>>;

    async fn open(
        &self,
        request: Request<Streaming<v1::SessionRequest>>,
    ) -> Result<Response<Self::OpenStream>, Status> {
        let identity = Caller::current().and_then(|caller| caller.identity().cloned());
        let identity = identity.ok_or_else(|| to_status(Failure::Unauthenticated))?;
        let handler = SessionHandler::new(self.dispatch.clone(), identity, Api::Session)
            .map_err(to_status)?;
        let unread = |status| status::error_from(&super::plain(status)).map(Box::new);
        let from = request.into_inner().map(move |it| it.map_err(unread));
        let both = (handler, from);
        // Polling for the next response drives the session: there is no other task and no queue in between.
        let answers = stream::unfold(both, |(mut handler, mut from)| async move {
            let next = handler.next(&mut from).await?;
            Some((Ok(next), (handler, from)))
        });
        Ok(Response::new(Box::pin(answers)))
    }
}
