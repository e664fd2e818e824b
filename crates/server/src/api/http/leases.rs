//! Grants, renews, shows and revokes leases over HTTP.

use axum::extract::State;
use serde::Deserialize;
use tenure_core::Machine;
use tenure_core::outcome::{Answer, Renewal};
use tenure_core::request::{Command, LeaseRef, Revoker, Urgency};
use tenure_types::{LeaseId, Refusal};
use tenure_wire::json::Decimal;
use tenure_wire::json::lease::{
    GrantLease, LeaseGranted, LeaseRenewed, LeaseRevoked, LeaseShown, Leases, LeasesRenewed,
    RenewLeases,
};
use tenure_wire::{Failure, convert, v1};
use utoipa::IntoParams;

use super::Http;
use super::answer::{HttpError, HttpResult, json};
use super::call::{self, HttpCall, request_id, within};
use super::duration::DurationParameter;
use super::page::page;
use crate::api::{decode, encode, list as lists, query};
use crate::dispatch::{ReadScope, WITHIN};

const AT: &str = "/v1/leases/";
/// How many leases a search reads at once, and how often at most.
const SEARCHED_PAGE: u32 = 1_000;
const SEARCHED_PAGES_MAX: usize = 20;
/// The name of a client that gives none.
const CLIENT: &str = "http";

/// How long to wait for the outcome.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TimeoutParameter {
    /// How long to wait for the outcome: 1ms to 5m, else 10 s.
    #[param(
        value_type = Option<String>, example = "10s",
        pattern = r"^([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?(us|ms|s|m|h|d))+)$"
    )]
    pub(super) timeout: Option<DurationParameter>,
}

/// Grants a lease.
#[utoipa::path(
    post, path = "/v1/leases", tag = "leases", operation_id = "grant_lease", request_body = GrantLease,
    params(TimeoutParameter, ("Idempotency-Key" = Option<String>, Header, description = "The request id.")),
    responses((status = 200, description = "The lease is granted.", body = LeaseGranted)),
)]
pub(super) async fn grant(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let key = call.id()?;
    let mut new: v1::NewLease = call.json::<GrantLease>().await?.try_into()?;
    if let Some(key) = &key {
        decode::number_lease(&mut new, http.who().name(), key);
    }
    let command = Command::GrantLease(decode::new_lease(&new, CLIENT)?);
    let (header, answer) = http.run(request_id(key.as_ref()), command, within).await?;
    let Answer::LeaseGranted(grant) = answer else { return Err(unexpected()) };
    json(&LeaseGranted { header: Some(header), ..encode::lease(&grant).into() })
}

/// Which leases to show.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LeaseListParameters {
    /// How many at most, up to 1000; else 100.
    #[param(minimum = 1)]
    limit: Option<u32>,
    /// Continue after this id.
    #[param(value_type = Option<String>, pattern = "^(0|[1-9][0-9]{0,19})$")]
    after: Option<Decimal>,
    /// Only leases of clients whose names begin with this text. A bounded number of leases is read, so a page may
    /// have fewer leases than `limit` and still have a `next`.
    client: Option<String>,
    /// `true`: the member may answer from its own state, which can be old.
    stale: Option<bool>,
}

/// Lists leases, in the order of their ids.
#[utoipa::path(
    get, path = "/v1/leases", tag = "leases", operation_id = "list_leases", params(LeaseListParameters),
    responses((status = 200, description = "A page of leases.", body = Leases)),
)]
pub(super) async fn list(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let query: LeaseListParameters = call.query()?;
    let after = query.after.filter(|after| after.0 > 0).map(call::lease).transpose()?;
    let limit = page(query.limit)?;
    if let Some(client) = query.client.filter(|client| !client.is_empty()) {
        return search(&http, &client, query::page(limit), after, query.stale.unwrap_or(false))
            .await;
    }
    let request = v1::ListLeasesRequest {
        limit,
        after: after.map_or(0, convert::lease),
        stale: query.stale.unwrap_or(false),
    };
    let found = lists::leases(&http.dispatch, &http.who(), &request, WITHIN).await?;
    let leases = found.leases.into_iter().map(LeaseShown::from).collect();
    let next = u64::try_from(found.next).ok().filter(|next| *next > 0).map(Decimal);
    json(&Leases { leases, next, header: found.header.unwrap_or_default().into() })
}

/// Lists leases of clients whose names begin with a text.
async fn search(
    http: &Http,
    client: &str,
    limit: usize,
    after: Option<LeaseId>,
    stale: bool,
) -> HttpResult {
    let mut request = v1::ListLeasesRequest {
        limit: SEARCHED_PAGE,
        after: after.map_or(0, convert::lease),
        stale,
    };
    let mut leases: Vec<LeaseShown> = Vec::new();
    for page in 1.. {
        let found = lists::leases(&http.dispatch, &http.who(), &request, WITHIN).await?;
        let (read, header) = (found.leases, found.header.unwrap_or_default());
        let last = |lease: &LeaseShown| Some(lease.lease);
        for lease in read.into_iter().filter(|lease| lease.client.starts_with(client)) {
            leases.push(lease.into());
            if leases.len() == limit {
                let next = leases.last().and_then(last);
                return json(&Leases { leases, next, header: header.into() });
            }
        }
        // What is read after the first page is as new as the first.
        (request.after, request.stale) = (found.next, true);
        if found.next == 0 || page == SEARCHED_PAGES_MAX {
            let next = u64::try_from(found.next).ok().filter(|next| *next > 0).map(Decimal);
            return json(&Leases { leases, next, header: header.into() });
        }
    }
    Err(unexpected())
}

/// Whether old state will do.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LeaseParameters {
    /// `true`: the member may answer from its own state, which can be old.
    stale: Option<bool>,
}

/// Shows a lease and what is bound to it.
#[utoipa::path(
    get, path = "/v1/leases/{lease}", tag = "leases", operation_id = "show_lease",
    params(("lease" = String, Path, description = "The lease's id."), LeaseParameters),
    responses((status = 200, description = "The lease.", body = LeaseShown)),
)]
pub(super) async fn show(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let query: LeaseParameters = call.query()?;
    let lease = LeaseRef::Id(call.lease(AT, "")?);
    let fresh = query::fresh(query.stale.unwrap_or(false));
    let who = http.who();
    let ask = move |machine: &Machine| {
        machine.lease_seen_by(who.name(), lease).as_ref().map(encode::lease_view)
    };
    let (header, view) = http.read(ReadScope::Known, fresh, WITHIN, ask).await?;
    let view = view.ok_or(&Refusal::LeaseNotFound)?;
    json(&LeaseShown { header: Some(header), ..view.into() })
}

/// Renews a lease: it counts its ttl anew.
#[utoipa::path(
    post, path = "/v1/leases/{lease}/renew", tag = "leases", operation_id = "renew_lease",
    params(("lease" = String, Path, description = "The lease's id."), TimeoutParameter),
    responses((status = 200, description = "The lease lives on.", body = LeaseRenewed)),
)]
pub(super) async fn renew(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let lease = call.lease(AT, "/renew")?;
    call.nothing().await?;
    let command = Command::Renew(vec![LeaseRef::Id(lease)]);
    let (header, answer) = http.run(request_id(None), command, within).await?;
    let Answer::Renewed(renewals) = answer else { return Err(unexpected()) };
    let renewal = renewals.into_iter().next().flatten().ok_or(&Refusal::LeaseNotFound)?;
    json(&LeaseRenewed { header: Some(header), ..renewed(lease, Some(renewal)) })
}

/// Renews several leases with one command. One that has ended is told by its `ttl_ms` of 0.
#[utoipa::path(
    post, path = "/v1/leases/renew", tag = "leases",
    operation_id = "renew_leases", request_body = RenewLeases, params(TimeoutParameter),
    responses((status = 200, description = "How long each lives from now.", body = LeasesRenewed)),
)]
pub(super) async fn renew_all(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let named = call.json::<RenewLeases>().await?.leases;
    if named.is_empty() {
        return Err(decode::invalid("leases", "must name a lease").into());
    }
    let leases = named.into_iter().map(call::lease).collect::<Result<Vec<_>, _>>()?;
    let command = Command::Renew(leases.iter().copied().map(LeaseRef::Id).collect());
    let (header, answer) = http.run(request_id(None), command, within).await?;
    let Answer::Renewed(renewals) = answer else { return Err(unexpected()) };
    let leases = leases.into_iter().zip(renewals);
    let leases = leases.map(|(lease, renewal)| renewed(lease, renewal)).collect();
    json(&LeasesRenewed { leases, header })
}

fn renewed(lease: LeaseId, renewal: Option<Renewal>) -> LeaseRenewed {
    LeaseRenewed {
        lease: Decimal(lease.get()),
        ttl_ms: renewal.map_or(0, |renewal| renewal.ttl_ms),
        changed: Decimal(renewal.map_or(0, |renewal| renewal.changed.0)),
        header: None,
    }
}

/// On whose word a lease ends.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RevokeParameters {
    /// Revoked by another caller, and why: the locks are revoking until their holder confirms or the lease would have
    /// ended. Without it, it is the client's own word that its work has stopped.
    reason: Option<String>,
    /// With `reason`: who, for the record and for the holder.
    by: Option<String>,
    /// With `reason`: at once, without letting the holder stop first. Only a fence protects the resource then.
    now: Option<bool>,
    /// How long to wait for the outcome: 1ms to 5m, else 10 s.
    #[param(
        value_type = Option<String>, example = "10s",
        pattern = r"^([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?(us|ms|s|m|h|d))+)$"
    )]
    pub(super) timeout: Option<DurationParameter>,
}

/// Ends a lease and everything bound to it.
#[utoipa::path(
    delete, path = "/v1/leases/{lease}", tag = "leases", operation_id = "revoke_lease",
    params(
        ("lease" = String, Path, description = "The lease's id."), RevokeParameters,
        ("Idempotency-Key" = Option<String>, Header, description = "The request id."),
    ),
    responses((status = 200, description = "The lease has ended.", body = LeaseRevoked)),
)]
pub(super) async fn revoke(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let query: RevokeParameters = call.query()?;
    let within = within(query.timeout)?;
    let lease = call.lease(AT, "")?;
    let key = call.id()?;
    call.nothing().await?;
    let name = query.by.as_deref().unwrap_or_default();
    let by = match (&query.reason, query.now.unwrap_or(false)) {
        (None, _) if query.by.is_some() => {
            return Err(decode::invalid("by", "needs a `reason`").into());
        }
        (None, false) => Revoker::Holder,
        (None, true) => return Err(decode::invalid("now", "needs a `reason`").into()),
        (Some(reason), false) => Revoker::Other { name, reason, urgency: Urgency::Cooling },
        (Some(reason), true) => Revoker::Other { name, reason, urgency: Urgency::Now },
    };
    let command = Command::Revoke { lease: LeaseRef::Id(lease), by };
    let (header, _) = http.run(request_id(key.as_ref()), command, within).await?;
    json(&LeaseRevoked { lease: Decimal(lease.get()), header })
}

/// The error for an answer that does not belong to the command: a defect of ours.
pub(super) fn unexpected() -> HttpError {
    Failure::Internal.into()
}
