//! Shows and sets limits over HTTP.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tenure_core::request::Command;
use tenure_types::Limit;
use tenure_wire::Failure;
use tenure_wire::json::Header;
use tenure_wire::json::cluster::LimitValue;
use utoipa::ToSchema;

use super::Http;
use super::answer::{HttpResult, json};
use super::call::{HttpCall, request_id, within};
use super::leases::TimeoutParameter;
use crate::api::decode;
use crate::dispatch::{ReadConsistency, ReadScope, WITHIN};

/// The limits in force.
#[derive(Serialize, ToSchema)]
pub(super) struct Limits {
    /// Every limit, by name.
    limits: Vec<LimitValue>,
    /// The member that answered, and when.
    header: Header,
}

/// Limits to be set, all or none; the others stay as they are.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetLimits {
    /// The limits to set, with their new values.
    limits: Vec<LimitValue>,
}

/// Shows the limits in force.
#[utoipa::path(
    get, path = "/v1/limits", tag = "cluster", operation_id = "show_limits",
    responses((status = 200, description = "The limits.", body = Limits)),
)]
pub(super) async fn show(State(http): State<Http>, call: HttpCall) -> HttpResult {
    call.query::<NoParameters>()?;
    let (header, limits) =
        http.read(ReadScope::Known, ReadConsistency::Linearizable, WITHIN, values).await?;
    json(&Limits { limits, header })
}

/// Sets limits.
#[utoipa::path(
    patch, path = "/v1/limits", tag = "cluster", operation_id = "set_limits", request_body = SetLimits,
    params(TimeoutParameter, ("Idempotency-Key" = Option<String>, Header, description = "The request id.")),
    responses((status = 200, description = "The limits as they are now.", body = Limits)),
)]
pub(super) async fn set(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let key = call.id()?;
    let body: SetLimits = call.json().await?;
    if body.limits.is_empty() {
        return Err(decode::invalid("limits", "is empty").into());
    }
    let known = |it: LimitValue| match Limit::from_name(&it.limit) {
        Some(limit) => Ok((limit, it.value)),
        None => {
            let problem = format!("knows no `{}`", it.limit);
            Err(Failure::InvalidField { field: "limits", problem })
        }
    };
    let limits = body.limits.into_iter().map(known).collect::<Result<_, _>>()?;
    let command = Command::SetLimits(limits);
    http.run(request_id(key.as_ref()), command, within).await?;
    let (header, limits) =
        http.read(ReadScope::Known, ReadConsistency::Linearizable, WITHIN, values).await?;
    json(&Limits { limits, header })
}

/// No parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParameters {}

pub(super) fn values(machine: &tenure_core::Machine) -> Vec<LimitValue> {
    let value = |limit: Limit| LimitValue {
        limit: limit.name().to_owned(),
        value: machine.limits().get(limit),
    };
    Limit::all().map(value).collect()
}
