//! Signs tickets and serves the keys that verify them, over HTTP.

use axum::extract::State;
use tenure_wire::json::ticket::{AskTicket, KeyRotated, KeySet, RotateKey, TicketSigned};

use super::Http;
use super::answer::{HttpResult, json};
use super::call::{HttpCall, lease_ref, token, within};
use super::leases::TimeoutParameter;
use super::limits::NoParameters;
use crate::dispatch::{Signed, WITHIN};

/// Signs a ticket for a lock that is held. The member that is asked signs, with a key of its own.
#[utoipa::path(
    post, path = "/v1/tickets", tag = "locks",
    operation_id = "sign_ticket", request_body = AskTicket, params(TimeoutParameter),
    responses((status = 200, description = "The ticket.", body = TicketSigned)),
)]
pub(super) async fn sign(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let AskTicket { lock, lease, token: number } = call.json().await?;
    let (lease, token) = (lease_ref(lease)?, token(number)?);
    let signed = http.dispatch.ticket(&http.who(), lease, &lock, token, within).await?;
    let Signed { ticket, key, revision } = signed;
    json(&TicketSigned { lock, ticket, key, header: http.header(revision) })
}

/// Shows the public keys that verify tickets, as a JSON Web Key Set. Any member answers for all.
#[utoipa::path(
    get, path = "/.well-known/jwks.json", tag = "locks", operation_id = "list_ticket_keys",
    responses((status = 200, description = "The keys.", body = KeySet)),
)]
pub(super) async fn keys(State(http): State<Http>, call: HttpCall) -> HttpResult {
    call.query::<NoParameters>()?;
    json(&KeySet::from(http.dispatch.ticket_keys(WITHIN).await?))
}

/// Gives the member that is asked a new key, and retires the one it had.
#[utoipa::path(
    post, path = "/v1/cluster/keys/rotate", tag = "cluster",
    operation_id = "rotate_ticket_keys", request_body = RotateKey, params(TimeoutParameter),
    responses((status = 200, description = "The new key.", body = KeyRotated)),
)]
pub(super) async fn rotate(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let RotateKey { overlap_ms } = call.json().await?;
    let (revision, key) = http.dispatch.rotate_key(&http.who(), overlap_ms, within).await?;
    json(&KeyRotated { key, header: http.header(revision) })
}
