//! Runs and observes elections over HTTP.

use axum::extract::State;
use serde::Deserialize;
use tenure_core::Machine;
use tenure_core::event::Cause;
use tenure_core::request::{Command, Hold, Purpose};
use tenure_core::view::HolderView;
use tenure_types::{HolderState, Revision, Verb};
use tenure_wire::json::election::{Campaign, Election, ElectionDone, Leadership, Proclaim};
use tenure_wire::json::lock::Acquired;
use tenure_wire::json::{Decimal, Header, bytes_from, text_or_base64};
use tenure_wire::v1;
use utoipa::{IntoParams, ToSchema};

use super::Http;
use super::acquire::{AcquireResult, WaitParameters, answer};
use super::answer::{HttpResult, json};
use super::call::{HttpCall, lease_ref, request_id, token, within};
use super::duration::DurationParameter;
use super::leases::TimeoutParameter;
use super::stream::{EventStream, ServerSentEvent, line};
use crate::api::{decode, present, query};
use crate::dispatch::{Principal, ReadConsistency, ReadScope, WITHIN};
use crate::watch::{OwnedFilter, Start, WatchOptions, WatchReader, WatchStep};

const AT: &str = "/v1/elections/";

/// Becomes leader. Without `wait` it is a try.
#[utoipa::path(
    post, path = "/v1/elections/{name}", tag = "elections", request_body = Campaign,
    params(
        ("name" = String, Path, description = "The election; slashes are welcome."), WaitParameters,
        ("Idempotency-Key" = Option<String>, Header, description = "The request id."),
    ),
    responses(
        (status = 200, description = "The candidate leads.", body = Election),
        (status = 202, description = "With `keep=true`: the queue position is kept.", body = Acquired),
    ),
)]
pub(super) async fn campaign(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let waiting: WaitParameters = call.query()?;
    let (name, key) = (call.name(AT)?, call.id()?);
    let body: Campaign = call.json().await?;
    let lease = body.lease;
    let campaign = body.to_wire(name.clone(), None)?;
    let ask = v1::AcquireRequest {
        lock: campaign.name,
        lease: campaign.lease,
        metadata: campaign.value.clone(),
        election: true,
        ..Default::default()
    };
    let (header, became) = http.acquire(key.as_ref(), ask, waiting).await?;
    let held = match became {
        AcquireResult::Held(held) => held,
        waits @ AcquireResult::Waits(_) => return Ok(answer(Some(name), header, waits)),
    };
    // The client's name comes from the state. If the leadership has already ended, it is not there any more.
    let (of, granted) = (name.clone(), held.token);
    let at = ReadConsistency::AtLeast(Revision(header.revision.0));
    // The principal may not have permission to read. Only the leadership that it has itself is shown.
    let scope = ReadScope::Name(Verb::Elect, name.clone());
    let found = http.read(scope, at, WITHIN, move |machine| {
        leader(machine, &of).filter(|leader| leader.token.0 == granted)
    });
    let (value, value_base64) = text_or_base64(&campaign.value);
    let unseen = || Leadership {
        client: String::new(),
        token: Decimal(granted),
        lease,
        value,
        value_base64,
        held_ms: 0,
    };
    let leader = found.await.ok().and_then(|(_, leader)| leader).unwrap_or_else(unseen);
    json(&Election { name, leader: Some(leader), header })
}

/// How to look at an election.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ElectionView {
    /// The leader now and whenever it changes, as server-sent events.
    Observe,
}

/// What to show of an election.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ElectionParameters {
    /// `observe` streams the leader now and whenever it changes: `event: leader`, `event: vacant`.
    #[param(inline)]
    view: Option<ElectionView>,
    /// `true`: the member may answer from its own state, which can be old.
    stale: Option<bool>,
}

/// Shows who leads.
#[utoipa::path(
    get, path = "/v1/elections/{name}", tag = "elections", operation_id = "show_election",
    params(("name" = String, Path, description = "The election; slashes are welcome."), ElectionParameters),
    responses((status = 200, description = "Who leads; with `view=observe` a stream of it.", content(
        (Election = "application/json"),
        (ServerSentEvent = "text/event-stream"),
    ))),
)]
pub(super) async fn show(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let query: ElectionParameters = call.query()?;
    let name = call.name(AT)?;
    if query.view == Some(ElectionView::Observe) {
        if query.stale.is_some() {
            return Err(decode::invalid("stale", "does not go with this view").into());
        }
        return observe(http, name).await;
    }
    let of = name.clone();
    let (scope, fresh) = (ReadScope::read(&name), query::fresh(query.stale.unwrap_or(false)));
    let (header, mut leader) =
        http.read(scope, fresh, WITHIN, move |machine| leader(machine, &of)).await?;
    leader.iter_mut().for_each(|it| it.held_ms += present::clock_age_ms(&http.dispatch));
    json(&Election { name, leader, header })
}

async fn observe(http: Http, name: String) -> HttpResult {
    let filter = OwnedFilter::Exact(name.clone());
    let options =
        WatchOptions { progress: Some(super::watch::PROGRESS), ..WatchOptions::default() };
    let who = http.who();
    let mut watch = http.dispatch.watch(&who, filter, Start::Now, options)?;
    let started = super::watch::started(&http.dispatch, &mut watch).await?;
    let at = ReadConsistency::AtLeast(Revision(started.0.saturating_sub(1)));
    let of = name.clone();
    let scope = ReadScope::Name(Verb::Observe, name.clone());
    let leads = move |machine: &Machine| leader(machine, &of);
    let (header, leader) = http.read(scope, at, WITHIN, leads).await?;
    let first = leader_event(&name, leader, header);
    let lines = futures_util::stream::unfold(
        ElectionEvents { http, who, name, watch, over: false },
        |mut it| async {
            let line = it.next().await?;
            Some((line, it))
        },
    );
    Ok(EventStream::new(first, lines).into())
}

struct ElectionEvents {
    http: Http,
    name: String,
    who: Principal,
    watch: WatchReader,
    over: bool,
}

impl ElectionEvents {
    /// The next change of the leader; none if the stream is over.
    async fn next(&mut self) -> Option<bytes::Bytes> {
        while !self.over {
            let batch = match self.watch.next().await {
                WatchStep::Batch(batch) => batch,
                WatchStep::Progress(revision) => return Some(super::watch::progress(revision)),
                WatchStep::Forbidden => {
                    self.over = true;
                    return Some(super::watch::closing(&super::watch::unobservable()));
                }
                // An observer needs the current leader, so it starts again.
                WatchStep::Compacted { .. }
                | WatchStep::SlowConsumer { .. }
                | WatchStep::Closed => return None,
            };
            let vacant = batch.events.iter().any(|event| event.cause == Cause::Vacant);
            if vacant {
                let header = self.http.header(batch.revision);
                return Some(leader_event(&self.name, None, header));
            }
            let led = |cause: Cause| matches!(cause, Cause::Granted | Cause::Updated);
            if !batch.events.iter().any(|event| led(event.cause)) {
                continue;
            }
            let (at, of) = (ReadConsistency::AtLeast(batch.revision), self.name.clone());
            let scope = ReadScope::Name(Verb::Observe, self.name.clone());
            let leads = move |machine: &Machine| leader(machine, &of);
            let read = self.http.dispatch.read(&self.who, scope, at, WITHIN, leads).await;
            // If the leader is gone again, another event follows and reports more.
            if let Ok((revision, Some(leader))) = read {
                let header = self.http.header(revision);
                return Some(leader_event(&self.name, Some(leader), header));
            }
        }
        None
    }
}

fn leader_event(name: &str, leader: Option<Leadership>, header: Header) -> bytes::Bytes {
    let event = if leader.is_some() { "leader" } else { "vacant" };
    let id = header.revision.0;
    line(event, id, &Election { name: name.to_owned(), leader, header })
}

/// Replaces the leader's value.
#[utoipa::path(
    put, path = "/v1/elections/{name}", tag = "elections", request_body = Proclaim,
    params(
        ("name" = String, Path, description = "The election; slashes are welcome."), TimeoutParameter,
        ("Idempotency-Key" = Option<String>, Header, description = "The request id."),
    ),
    responses((status = 200, description = "The value is replaced.", body = ElectionDone)),
)]
pub(super) async fn proclaim(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let (name, key) = (call.name(AT)?, call.id()?);
    let body: Proclaim = call.json().await?;
    let hold = Hold { lease: lease_ref(body.lease)?, lock: &name, token: token(body.token)? };
    let value = bytes_from("value", body.value, body.value_base64)?;
    let command = Command::Update { hold, metadata: &value };
    let (header, _) = http.run(request_id(key.as_ref()), command, within).await?;
    json(&ElectionDone { name, header })
}

/// The leadership to give up.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ResignParameters {
    /// The leader's lease.
    #[param(value_type = String, pattern = "^(0|[1-9][0-9]{0,19})$")]
    lease: Decimal,
    /// The token of its leadership.
    #[param(value_type = String, pattern = "^(0|[1-9][0-9]{0,19})$")]
    token: Decimal,
    /// How long to wait for the outcome: 1ms to 5m, else 10 s.
    #[param(
        value_type = Option<String>, example = "10s",
        pattern = r"^([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?(us|ms|s|m|h|d))+)$"
    )]
    timeout: Option<DurationParameter>,
}

/// Gives leadership back.
#[utoipa::path(
    delete, path = "/v1/elections/{name}", tag = "elections",
    params(
        ("name" = String, Path, description = "The election; slashes are welcome."), ResignParameters,
        ("Idempotency-Key" = Option<String>, Header, description = "The request id."),
    ),
    responses((status = 200, description = "Leadership is given back.", body = ElectionDone)),
)]
pub(super) async fn resign(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let query: ResignParameters = call.query()?;
    let within = within(query.timeout)?;
    let (name, key) = (call.name(AT)?, call.id()?);
    call.nothing().await?;
    let hold = Hold { lease: lease_ref(query.lease)?, lock: &name, token: token(query.token)? };
    let command = Command::Release(hold);
    let (header, _) = http.run(request_id(key.as_ref()), command, within).await?;
    json(&ElectionDone { name, header })
}

/// The current leader according to the machine.
fn leader(machine: &Machine, name: &str) -> Option<Leadership> {
    let leads = |it: &HolderView| it.purpose == Purpose::Election && it.state == HolderState::Held;
    let leader = machine.lock(name)?.holders.into_iter().find(leads)?;
    let (value, value_base64) = text_or_base64(&leader.metadata.to_vec().into());
    Some(Leadership {
        client: leader.client.as_str().to_owned(),
        token: Decimal(leader.token.get()),
        lease: Decimal(leader.lease.get()),
        value,
        value_base64,
        held_ms: leader.held_ms,
    })
}
