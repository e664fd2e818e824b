//! How does a session run over gRPC?

use std::pin::Pin;

use futures_util::{Stream, StreamExt, stream};
use tenure_wire::{status, v1};
use tonic::{Request, Response, Status, Streaming};

use crate::door::principal;
use crate::door::session::Talk;
use crate::edge::Edge;
use crate::meter::Door;

pub(super) struct Sessions {
    pub(super) edge: Edge,
}

#[tonic::async_trait]
impl v1::session_service_server::SessionService for Sessions {
    type OpenStream = Pin<Box<dyn Stream<Item = Result<v1::SessionResponse, Status>> + Send>>;

    async fn open(
        &self,
        request: Request<Streaming<v1::SessionRequest>>,
    ) -> Result<Response<Self::OpenStream>, Status> {
        let talk = Talk::new(self.edge.clone(), principal(), Door::Session);
        let unread = |status| status::error_from(&super::plain(status)).map(Box::new);
        let from = request.into_inner().map(move |it| it.map_err(unread));
        let both = (talk, from);
        // Whoever wants the next answer makes the session go on: no other task, no queue between.
        let answers = stream::unfold(both, |(mut talk, mut from)| async move {
            let next = talk.next(&mut from).await?;
            Some((Ok(next), (talk, from)))
        });
        Ok(Response::new(Box::pin(answers)))
    }
}
