//! Sets how many slots a semaphore has over HTTP.

use axum::extract::State;
use serde::Deserialize;
use tenure_wire::json::lock::{NewSize, Resized};
use tenure_wire::v1;
use utoipa::IntoParams;

use super::Http;
use super::answer::{HttpResult, json};
use super::call::{HttpCall, request_id, within};
use super::duration::DurationParameter;
use super::leases::TimeoutParameter;
use crate::api::decode;

/// The caller, and how long it waits.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct UnsetParameters {
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

/// Sets how many slots a semaphore has, also while it is used. More slots are granted at once, in the order of the
/// queue. With fewer, holders keep theirs, and none is granted until enough are given back.
#[utoipa::path(
    put, path = "/v1/semaphores/{lock}", tag = "locks", operation_id = "resize", request_body = NewSize,
    params(
        ("lock" = String, Path, description = "The name; it may contain slashes."), TimeoutParameter,
        ("Idempotency-Key" = Option<String>, Header, description = "The request id."),
    ),
    responses((status = 200, description = "The number of slots is set.", body = Resized)),
)]
pub(super) async fn resize(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let lock = call.name("/v1/semaphores/")?;
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let key = call.id()?;
    let NewSize { slots, by } = call.json::<NewSize>().await?;
    if slots == 0 {
        return Err(decode::invalid("slots", "is at least 1").into());
    }
    let resize = v1::ResizeRequest { lock: lock.clone(), slots, by };
    let (header, _) = http.run(request_id(key.as_ref()), decode::resize(&resize), within).await?;
    json(&Resized { lock, slots: Some(slots), header })
}

/// Leaves the number of slots to the requests again: to the first one after the semaphore was not used.
#[utoipa::path(
    delete, path = "/v1/semaphores/{lock}", tag = "locks", operation_id = "unset_size",
    params(
        ("lock" = String, Path, description = "The name; it may contain slashes."), UnsetParameters,
        ("Idempotency-Key" = Option<String>, Header, description = "The request id."),
    ),
    responses((status = 200, description = "The number of slots is left to the requests.", body = Resized)),
)]
pub(super) async fn unset(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let lock = call.name("/v1/semaphores/")?;
    let UnsetParameters { by, timeout } = call.query()?;
    let within = within(timeout)?;
    let key = call.id()?;
    call.nothing().await?;
    let resize = v1::ResizeRequest { lock: lock.clone(), slots: 0, by };
    let (header, _) = http.run(request_id(key.as_ref()), decode::resize(&resize), within).await?;
    json(&Resized { lock, slots: None, header })
}
