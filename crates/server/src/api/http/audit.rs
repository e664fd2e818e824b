//! Shows the newest records of this member's audit log over HTTP.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_wire::Failure;
use tenure_wire::json::Header;
use utoipa::{IntoParams, ToSchema};

use super::Http;
use super::answer::{HttpResult, json};
use super::call::HttpCall;
use crate::api::audit;

/// How many records to show.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditParameters {
    /// The number of newest records, up to 1000; 100 if absent.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    last: Option<String>,
}

/// Records of the audit log of the member that answers.
#[derive(Serialize, ToSchema)]
pub(super) struct AuditRecords {
    /// As in the audit file, oldest first. If they have more than 2 MiB together, the oldest are left out.
    #[schema(value_type = Vec<Object>)]
    records: Vec<Value>,
    /// The member that answered, and when.
    header: Header,
}

/// Shows the newest records of the audit log of the member that is asked. No quorum is needed for it.
#[utoipa::path(
    get, path = "/v1/audit", tag = "cluster", operation_id = "show_audit", params(AuditParameters),
    responses((status = 200, description = "The newest records.", body = AuditRecords)),
)]
pub(super) async fn show(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let number = call.query::<AuditParameters>()?.last.map(|text| text.parse::<u32>());
    let last = audit::last(number.transpose().map_err(|_| audit::wrong_last())?)?;
    let (revision, lines) = audit::recent(&http.dispatch, &http.who(), last).await?;
    let records = lines.iter().map(|line| serde_json::from_str(line));
    let records = records.collect::<Result<_, _>>().map_err(|_| Failure::Internal)?;
    json(&AuditRecords { records, header: http.header(revision) })
}
