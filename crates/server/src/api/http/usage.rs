//! Shows over HTTP how much principals use of their quotas.

use axum::extract::State;
use serde::Serialize;
use tenure_core::Machine;
use tenure_types::{Quota, Verb};
use tenure_wire::json::Header;
use utoipa::ToSchema;

use super::Http;
use super::access::PageParameters;
use super::answer::{HttpResult, json};
use super::call::HttpCall;
use super::page::page;
use crate::api::query;
use crate::dispatch::{ReadConsistency, ReadScope, WITHIN};

/// The usage of principals.
#[derive(Serialize, ToSchema)]
struct UsageShown {
    /// The principals, in the order of their names.
    principals: Vec<PrincipalUse>,
    /// Go on after this name, if there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// The member that answers, and its revision.
    header: Header,
}

/// What one principal uses, and what it may.
#[derive(Serialize, ToSchema)]
struct PrincipalUse {
    principal: String,
    /// What its leases and keys use.
    used: QuotaNumbers,
    /// Its quotas, or the default ones; without a number there is no bound.
    bounds: QuotaNumbers,
}

/// The quotas that the cluster counts. What each member counts for itself is in its metrics.
#[derive(Serialize, ToSchema)]
struct QuotaNumbers {
    leases: Option<u64>,
    locks: Option<u64>,
    places: Option<u64>,
    keys: Option<u64>,
    bytes: Option<u64>,
}

impl QuotaNumbers {
    fn of(number: impl Fn(Quota) -> Option<u64>) -> Self {
        Self {
            leases: number(Quota::Leases),
            locks: number(Quota::Locks),
            places: number(Quota::Places),
            keys: number(Quota::Keys),
            bytes: number(Quota::Bytes),
        }
    }
}

/// Shows how much principals use of their quotas.
#[utoipa::path(
    get, path = "/v1/access/usage", tag = "access", operation_id = "show_usage", params(PageParameters),
    responses((status = 200, description = "A page of principals.", body = UsageShown)),
)]
pub(super) async fn show(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let PageParameters { limit, after } = call.query()?;
    let (max, after) = (query::page(page(limit)?), after.unwrap_or_default());
    let ask = move |machine: &Machine| {
        let access = machine.access();
        let rest = access.principals().map(|(name, _)| name.as_str());
        let rest = rest.filter(|name| *name > after.as_str()).take(max + 1);
        let one = |name: &str| PrincipalUse {
            principal: name.to_owned(),
            used: QuotaNumbers::of(|quota| Some(machine.used(name, quota))),
            bounds: QuotaNumbers::of(|quota| access.quota(name, quota).map(|(bound, _)| bound)),
        };
        rest.map(one).collect::<Vec<_>>()
    };
    let scope = ReadScope::Name(Verb::Administer, String::new());
    let (header, mut principals) =
        http.read(scope, ReadConsistency::Linearizable, WITHIN, ask).await?;
    let more = principals.len() > max;
    principals.truncate(max);
    let next = principals.last().filter(|_| more).map(|last| last.principal.clone());
    json(&UsageShown { principals, next, header })
}
