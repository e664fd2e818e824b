//! Raises the level of the machine's rules over HTTP.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tenure_core::request::Command;
use tenure_wire::json::Header;
use utoipa::ToSchema;

use super::Http;
use super::answer::{HttpResult, json};
use super::call::{HttpCall, request_id, within};
use super::leases::TimeoutParameter;

/// A feature level to be raised.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RaiseLevel {
    /// The new feature level, which every member must know.
    level: u16,
}

/// The feature level in force.
#[derive(Serialize, ToSchema)]
pub(super) struct LevelRaised {
    /// The feature level from now on.
    level: u16,
    /// The member that answered, and when.
    header: Header,
}

/// Lets every member decide by newer rules. There is no way back.
#[utoipa::path(
    post, path = "/v1/cluster/level", tag = "cluster",
    operation_id = "raise_level", request_body = RaiseLevel, params(TimeoutParameter),
    responses((status = 200, description = "The feature level is raised.", body = LevelRaised)),
)]
pub(super) async fn raise(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let RaiseLevel { level } = call.json().await?;
    let command = Command::RaiseLevel { level };
    let (header, _) = http.run(request_id(None), command, within).await?;
    json(&LevelRaised { level, header })
}
