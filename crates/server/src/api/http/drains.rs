//! Closes prefixes to new grants, opens them again and lists them over HTTP.

use axum::extract::State;
use serde::Deserialize;
use tenure_core::outcome::Answer;
use tenure_wire::json::lock::{Drain, Drained, Drains, Undrained};
use tenure_wire::v1;
use utoipa::IntoParams;

use super::Http;
use super::answer::{HttpResult, json};
use super::call::{HttpCall, request_id, within};
use super::duration::DurationParameter;
use super::leases::{TimeoutParameter, unexpected};
use crate::api::{decode, drains};

/// The prefix to open.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct UndrainParameters {
    /// The prefix, exactly as in the request that closed it; empty for all locks.
    prefix: String,
    /// The name of the operator, for the history.
    #[serde(default)]
    by: String,
    /// How long to wait for the outcome: 1ms to 5m, else 10 s.
    #[param(
        value_type = Option<String>, example = "10s",
        pattern = r"^([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?(us|ms|s|m|h|d))+)$"
    )]
    timeout: Option<DurationParameter>,
}

/// Which prefixes to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DrainsParameters {
    /// Only this drained prefix.
    prefix: Option<String>,
    /// `true`: the member may answer from its own state, which can be old.
    #[serde(default)]
    stale: bool,
    /// How long to wait for the outcome: 1ms to 5m, else 10 s.
    #[param(
        value_type = Option<String>, example = "10s",
        pattern = r"^([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?(us|ms|s|m|h|d))+)$"
    )]
    timeout: Option<DurationParameter>,
}

/// Lists the drained prefixes that concern the caller, with how many holders are left below each.
#[utoipa::path(
    get, path = "/v1/drains", tag = "locks", operation_id = "list_drains", params(DrainsParameters),
    responses((status = 200, description = "The drained prefixes.", body = Drains)),
)]
pub(super) async fn list(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let query: DrainsParameters = call.query()?;
    let within = within(query.timeout)?;
    let ask = v1::ListDrainsRequest { prefix: query.prefix, stale: query.stale };
    let listed = drains::list(&http.dispatch, &http.who(), &ask, within).await?;
    json(&Drains::from(listed))
}

/// Closes a prefix: no lock below it is granted until it is opened.
#[utoipa::path(
    post, path = "/v1/drains", tag = "locks", operation_id = "drain", request_body = Drain,
    params(TimeoutParameter, ("Idempotency-Key" = Option<String>, Header, description = "The request id.")),
    responses((status = 200, description = "The prefix is closed.", body = Drained)),
)]
pub(super) async fn drain(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let key = call.id()?;
    let drain = call.json::<Drain>().await?;
    let prefix = drain.prefix.clone();
    let drain: v1::DrainRequest = drain.into();
    let (header, _) = http.run(request_id(key.as_ref()), decode::drain(&drain)?, within).await?;
    json(&Drained { prefix, header })
}

/// Opens a prefix that was closed; its queues go on in order.
#[utoipa::path(
    delete, path = "/v1/drains", tag = "locks", operation_id = "undrain",
    params(UndrainParameters, ("Idempotency-Key" = Option<String>, Header, description = "The request id.")),
    responses((status = 200, description = "The prefix is open.", body = Undrained)),
)]
pub(super) async fn undrain(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let UndrainParameters { prefix, by, timeout } = call.query()?;
    let within = within(timeout)?;
    let key = call.id()?;
    call.nothing().await?;
    let undrain = v1::UndrainRequest { prefix: Some(prefix.clone()), by };
    let (header, answer) =
        http.run(request_id(key.as_ref()), decode::undrain(&undrain)?, within).await?;
    let Answer::Undrained { existed } = answer else { return Err(unexpected()) };
    json(&Undrained { prefix, existed, header })
}
