//! Which gRPC services are there?

mod session;

use axum::Router;
use tenure_wire::v1::session_service_server::SessionServiceServer;
use tonic::service::Routes;

use super::MESSAGE_BYTES_MAX;
use crate::edge::Edge;

/// Every service, as routes of the one port.
pub(super) fn routes(edge: &Edge) -> Router {
    let session = SessionServiceServer::new(session::Sessions { edge: edge.clone() })
        .max_decoding_message_size(MESSAGE_BYTES_MAX);
    Routes::new(session).into_axum_router()
}
