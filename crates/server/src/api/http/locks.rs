//! Acquires, shows, changes and releases locks over HTTP.

use axum::extract::State;
use serde::Deserialize;
use tenure_core::outcome::Answer;
use tenure_core::request::{Command, Hold};
use tenure_types::Refusal;
use tenure_wire::json::lock::{
    Acquire, Acquired, Explained, Force, Forced, History, LockAnswer, Locks, Patch, Patched, Queue,
    Released,
};
use tenure_wire::json::{Decimal, LockMode, LockShown, bytes_from};
use tenure_wire::{Failure, v1};
use utoipa::openapi::schema::{AnyOfBuilder, Schema};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::Http;
use super::acquire::{WaitParameters, answer};
use super::answer::{HttpError, HttpResult, json};
use super::call::{HttpCall, lease_ref, request_id, token, within};
use super::duration::DurationParameter;
use super::leases::{TimeoutParameter, unexpected};
use super::page::{more, page};
use crate::api::lock_search::{LockSearch, LockState};
use crate::api::{decode, encode, list as lists, present, query};
use crate::dispatch::{ReadConsistency, ReadScope, WITHIN};

const AT: &str = "/v1/locks/";

/// Acquires a lock. Without `wait` it is a try.
#[utoipa::path(
    post, path = "/v1/locks/{lock}", tag = "locks", operation_id = "acquire_lock", request_body = Acquire,
    params(
        ("lock" = String, Path, description = "The lock; slashes are welcome."), WaitParameters,
        ("Idempotency-Key" = Option<String>, Header, description = "The request id."),
    ),
    responses(
        (status = 200, description = "The lock is held.", body = Acquired),
        (status = 202, description = "With `keep=true`: the queue position is kept.", body = Acquired),
    ),
)]
pub(super) async fn acquire(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let waiting: WaitParameters = call.query()?;
    let (lock, key) = (call.name(AT)?, call.id()?);
    let body: Acquire = call.json().await?;
    if body.lock.is_some() || !body.locks.is_empty() || body.pool.is_some() {
        return Err(decode::invalid("lock", "is in the path").into());
    }
    let ask = acquire_request(Acquire { lock: Some(lock.clone()), ..body })?;
    let (header, became) = http.acquire(key.as_ref(), ask, waiting).await?;
    Ok(answer(Some(lock), header, became))
}

/// Acquires several locks, all or none or any one of them, or any slot of a pool.
#[utoipa::path(
    post, path = "/v1/locks", tag = "locks", operation_id = "acquire_locks", request_body = Acquire,
    params(WaitParameters, ("Idempotency-Key" = Option<String>, Header, description = "The request id.")),
    responses(
        (status = 200, description = "The locks are held.", body = Acquired),
        (status = 202, description = "With `keep=true`: the queue positions are kept.", body = Acquired),
    ),
)]
pub(super) async fn acquire_all(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let waiting: WaitParameters = call.query()?;
    let key = call.id()?;
    let body: Acquire = call.json().await?;
    if body.locks.is_empty() == body.pool.is_none() || body.lock.is_some() {
        return Err(decode::invalid("locks", "must name the locks; or `pool` a pool").into());
    }
    let only = if body.locks.len() == 1 { Some(name_of(&body.locks[0])) } else { None };
    let (header, became) = http.acquire(key.as_ref(), acquire_request(body)?, waiting).await?;
    Ok(answer(only, header, became))
}

fn name_of(entry: &tenure_wire::json::lock::LockEntry) -> String {
    use tenure_wire::json::lock::LockEntry;
    match entry {
        LockEntry::Name(lock) => lock.clone(),
        LockEntry::Ask(ask) => ask.lock.clone(),
    }
}

fn acquire_request(body: Acquire) -> Result<v1::AcquireRequest, HttpError> {
    if body.wait_ms.is_some() {
        return Err(decode::invalid("wait_ms", "belongs in the query over HTTP: `?wait=`").into());
    }
    Ok(body.try_into()?)
}

/// Which locks to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LockListParameters {
    /// Only names that begin with this text.
    prefix: Option<String>,
    /// Only names that contain this, whatever the case of its letters.
    contains: Option<String>,
    /// Only locks of which a holder, or one of the first 100 waiters, is a client whose name begins so.
    client: Option<String>,
    /// Only locks in this state.
    #[param(inline)]
    state: Option<LockState>,
    /// Only locks for which the first in the queue has waited at least so many milliseconds.
    waiting_ms: Option<u64>,
    /// Only elections, or none of them.
    election: Option<bool>,
    /// How many at most, up to 1000; else 100. A search reads a bounded number of locks, so a page may have fewer and
    /// still say where to go on.
    #[param(minimum = 1)]
    limit: Option<u32>,
    /// Go on after this name.
    after: Option<String>,
    /// `true`: the member may answer from its own state, which can be old.
    stale: Option<bool>,
}

impl LockListParameters {
    /// What to search for; none if every lock is listed.
    fn wanted(&self) -> Option<LockSearch> {
        let contains = self.contains.as_ref().filter(|part| !part.is_empty());
        let client = self.client.as_ref().filter(|client| !client.is_empty());
        let searches = contains.is_some()
            || client.is_some()
            || self.state.is_some()
            || self.waiting_ms.is_some()
            || self.election.is_some();
        searches.then(|| LockSearch {
            prefix: self.prefix.clone().unwrap_or_default(),
            contains: contains.map(|part| part.to_lowercase()),
            client: client.cloned(),
            state: self.state,
            waiting_ms: self.waiting_ms,
            election: self.election,
        })
    }
}

/// Lists locks that are held or awaited, in the order of their names.
#[utoipa::path(
    get, path = "/v1/locks", tag = "locks", operation_id = "list_locks", params(LockListParameters),
    responses((status = 200, description = "A page of locks.", body = Locks)),
)]
pub(super) async fn list(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let query: LockListParameters = call.query()?;
    if let Some(wanted) = query.wanted() {
        let (after, limit) = (query.after, page(query.limit)?);
        let fresh = query::fresh(query.stale.unwrap_or(false));
        let found = wanted.find(&http.dispatch, &http.who(), after, limit, fresh).await?;
        let locks = found.locks.into_iter().map(LockShown::from).collect();
        return json(&Locks { locks, next: found.next, header: http.header(found.revision) });
    }
    let request = v1::ListLocksRequest {
        prefix: query.prefix.unwrap_or_default(),
        limit: page(query.limit)?,
        after: query.after.unwrap_or_default(),
        stale: query.stale.unwrap_or(false),
    };
    let found = lists::locks(&http.dispatch, &http.who(), &request, WITHIN).await?;
    let locks = found.locks.into_iter().map(LockShown::from).collect();
    json(&Locks { locks, next: more(found.next), header: found.header.unwrap_or_default().into() })
}

/// A view of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum LockViewKind {
    /// The waiters, in the order of the queue.
    Queue,
    /// The holders, the waiters before the caller, what those wait for, and when the lock can be granted to the caller.
    Explain,
    /// The events of the lock.
    History,
}

/// What to show of a lock.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LockParameters {
    /// `queue`, `explain` or `history`; without it, the lock and its holders.
    #[param(inline)]
    view: Option<LockViewKind>,
    /// With a view: how many queue positions or revisions at most, up to 1000; else 100.
    #[param(minimum = 1)]
    limit: Option<u32>,
    /// With `view=queue`: go on after this queue position.
    #[param(value_type = Option<String>, pattern = "^(0|[1-9][0-9]{0,19})$")]
    after: Option<Decimal>,
    /// With `view=explain`: the asker's lease.
    #[param(value_type = Option<String>, pattern = "^(0|[1-9][0-9]{0,19})$")]
    lease: Option<Decimal>,
    /// With `view=history`: from this revision on; else from the oldest that is kept.
    #[param(value_type = Option<String>, pattern = "^(0|[1-9][0-9]{0,19})$")]
    from: Option<Decimal>,
    /// With `view=history`: search the archive of this member too, the newest revisions first. The parameters below
    /// need it.
    archive: Option<bool>,
    /// Not before this time, by the labels of the events: RFC 3339, or milliseconds since 1970.
    #[param(example = "2026-03-02T03:14:00Z")]
    since: Option<String>,
    /// Not after this time.
    #[param(example = "2026-03-02T03:15:00Z")]
    until: Option<String>,
    /// Only events of clients whose names begin with this text.
    client: Option<String>,
    /// Only involuntary ends.
    lost: Option<bool>,
    /// Only revisions before this one.
    #[param(value_type = Option<String>, pattern = "^(0|[1-9][0-9]{0,19})$")]
    before: Option<Decimal>,
    /// All locks whose names begin with this text.
    prefix: Option<bool>,
    /// `true`: the member may answer from its own state, which can be old.
    stale: Option<bool>,
}

impl LockParameters {
    /// The search of the archive that was asked for.
    fn archive(&self) -> Result<Option<v1::ArchiveSearch>, Failure> {
        let parts = [
            ("since", self.since.is_none()),
            ("until", self.until.is_none()),
            ("client", self.client.is_none()),
            ("lost", self.lost.is_none()),
            ("before", self.before.is_none()),
            ("prefix", self.prefix.is_none()),
        ];
        if !self.archive.unwrap_or(false) {
            let needless = parts.into_iter().find(|(_, absent)| !absent);
            return match needless {
                Some((field, _)) => Err(decode::invalid(field, "needs view=history&archive=true")),
                None => Ok(None),
            };
        }
        if self.view != Some(LockViewKind::History) || self.from.is_some() {
            return Err(decode::invalid(
                "archive",
                "needs view=history, and does not go with from",
            ));
        }
        let time = |field, text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => tenure_wire::wall::parse(text)
                .map(Some)
                .ok_or_else(|| decode::invalid(field, "is no time; 2026-03-02T03:14:00Z is one")),
        };
        let before = i64::try_from(self.before.map_or(0, |before| before.0));
        Ok(Some(v1::ArchiveSearch {
            since_unix_ms: time("since", &self.since)?,
            until_unix_ms: time("until", &self.until)?,
            client: self.client.clone().unwrap_or_default(),
            lost: self.lost.unwrap_or(false),
            before: before.map_err(|_| decode::invalid("before", "is no revision"))?,
            prefix: self.prefix.unwrap_or(false),
        }))
    }
}

/// Any of the views: some fit more than one description.
struct LockViewAnswer;

impl PartialSchema for LockViewAnswer {
    fn schema() -> RefOr<Schema> {
        let views = ["LockAnswer", "Queue", "Explained", "History"];
        let any = AnyOfBuilder::new().description(Some("Any of the views."));
        views.into_iter().fold(any, |any, view| any.item(Ref::from_schema_name(view))).into()
    }
}

impl ToSchema for LockViewAnswer {}

/// Shows a lock: its holders, its queue, its history, or all that a waiter wants to know.
#[utoipa::path(
    get, path = "/v1/locks/{lock}", tag = "locks", operation_id = "show_lock",
    params(("lock" = String, Path, description = "The lock; slashes are welcome."), LockParameters),
    responses((status = 200, description = "The lock in the view that was asked for.", body = inline(LockViewAnswer))),
)]
pub(super) async fn show(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let query: LockParameters = call.query()?;
    let lock = call.name(AT)?;
    let fits = [
        ("limit", query.limit.is_none() || query.view.is_some()),
        ("after", query.after.is_none() || query.view == Some(LockViewKind::Queue)),
        ("lease", query.lease.is_none() || query.view == Some(LockViewKind::Explain)),
        ("from", query.from.is_none() || query.view == Some(LockViewKind::History)),
    ];
    if let Some((field, _)) = fits.into_iter().find(|(_, fits)| !fits) {
        return Err(decode::invalid(field, "does not go with this view").into());
    }
    let limit = page(query.limit)?;
    let stale = query.stale.unwrap_or(false);
    let archive = query.archive()?;
    match query.view {
        None => plain(&http, lock, query::fresh(stale)).await,
        Some(LockViewKind::Queue) => {
            let after = query.after.map_or(0, |after| after.0);
            queue(&http, v1::QueueRequest { lock, limit, after, stale }).await
        }
        Some(LockViewKind::Explain) => explain(&http, lock, &query).await,
        Some(LockViewKind::History) => {
            let Ok(from) = i64::try_from(query.from.map_or(0, |from| from.0)) else {
                return Err(decode::invalid("from", "is no revision").into());
            };
            let request = v1::HistoryRequest { lock, from, limit, archive, stale };
            history(&http, request, query::fresh(stale)).await
        }
    }
}

async fn plain(http: &Http, lock: String, fresh: ReadConsistency) -> HttpResult {
    let scope = ReadScope::read(&lock);
    let ask =
        move |machine: &tenure_core::Machine| machine.lock(&lock).as_ref().map(encode::lock_view);
    let (header, mut lock) = http.read(scope, fresh, WITHIN, ask).await?;
    lock.iter_mut().for_each(|it| present::lock(it, present::clock_age_ms(&http.dispatch)));
    json(&LockAnswer { lock: lock.map(LockShown::from), header })
}

async fn queue(http: &Http, request: v1::QueueRequest) -> HttpResult {
    let found = lists::queue(&http.dispatch, &http.who(), &request, WITHIN).await?;
    let waiters = found.waiters.into_iter().map(Into::into).collect();
    let next = (found.next != 0).then_some(Decimal(found.next));
    let header = found.header.unwrap_or_default().into();
    json(&Queue { lock: request.lock, waiters, next, header })
}

async fn explain(http: &Http, lock: String, query: &LockParameters) -> HttpResult {
    if let Some(lease) = query.lease {
        lease_ref(lease)?;
    }
    let request = v1::ExplainRequest {
        lock,
        lease: query.lease.and_then(|lease| i64::try_from(lease.0).ok()).unwrap_or(0),
        limit: query.limit.unwrap_or(0),
        stale: query.stale.unwrap_or(false),
        ..Default::default()
    };
    json(&Explained::from(query::explain(&http.dispatch, &http.who(), &request, WITHIN).await?))
}

async fn history(http: &Http, request: v1::HistoryRequest, fresh: ReadConsistency) -> HttpResult {
    let found = lists::history(&http.dispatch, &http.who(), &request, fresh, WITHIN).await?;
    json(&history_shown(request.lock, found))
}

/// A page of a history as JSON.
pub(super) fn history_shown(lock: String, found: v1::HistoryResponse) -> History {
    let decimal = |revision: i64| Decimal(u64::try_from(revision).unwrap_or_default());
    History {
        lock,
        changes: found.batches.into_iter().map(Into::into).collect(),
        next: decimal(found.next),
        floor: decimal(found.floor),
        before: found.before.map(decimal),
        archive: found.archive.map(Into::into),
        header: found.header.unwrap_or_default().into(),
    }
}

/// Changes a held lock: new metadata, shared instead of exclusive without a gap, a report of progress, or a new holder.
#[utoipa::path(
    patch, path = "/v1/locks/{lock}", tag = "locks", operation_id = "change_lock", request_body = Patch,
    params(
        ("lock" = String, Path, description = "The lock; slashes are welcome."), TimeoutParameter,
        ("Idempotency-Key" = Option<String>, Header, description = "The request id."),
    ),
    responses((status = 200, description = "The lock is changed.", body = Patched)),
)]
pub(super) async fn change(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let (lock, key) = (call.name(AT)?, call.id()?);
    let body: Patch = call.json().await?;
    let hold = Hold { lease: lease_ref(body.lease)?, lock: &lock, token: token(body.token)? };
    let content = body.metadata.is_some() || body.metadata_base64.is_some();
    let metadata = bytes_from("metadata", body.metadata, body.metadata_base64)?;
    let handed = body.hand_on_to.is_some();
    if handed && (body.mode.is_some() || content || body.progress.is_some()) {
        return Err(decode::invalid("hand_on_to", "does not go with another change").into());
    }
    let command = match (body.mode, content) {
        (None, false) if handed => {
            let to = body.hand_on_to.and_then(|to| i64::try_from(to.0).ok());
            let to = to.and_then(tenure_wire::convert::lease_from);
            let to = to.ok_or_else(|| decode::invalid("hand_on_to", "is no lease"))?;
            Command::HandOn { hold, to }
        }
        (None, false) if body.progress.is_some() => {
            Command::Progress { hold, number: body.progress.map_or(0, |number| number.0) }
        }
        (_, _) if body.progress.is_some() => {
            return Err(decode::invalid("progress", "does not go with `mode` or `metadata`").into());
        }
        (None, true) => Command::Update { hold, metadata: &metadata },
        (Some(LockMode::Shared), false) => Command::Downgrade(hold),
        (Some(LockMode::Shared), true) => {
            return Err(decode::invalid("metadata", "does not go with `mode`").into());
        }
        (Some(_), _) => return Err(decode::invalid("mode", "can only become `shared`").into()),
        (None, false) => return Err(decode::invalid("metadata", "is missing").into()),
    };
    let (header, answer) = http.run(request_id(key.as_ref()), command, within).await?;
    let (version, token, left_ms) = match answer {
        Answer::Updated { version } => (Some(version), None, None),
        Answer::Downgraded { token } | Answer::HandedOn { token } => {
            (None, Some(Decimal(token.get())), None)
        }
        Answer::Progressed { left_ms } => (None, None, left_ms),
        _ => return Err(unexpected()),
    };
    json(&Patched { lock, version, token, left_ms, header })
}

/// The grant or queue position to give up.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ReleaseParameters {
    /// The lease that holds, or waits.
    #[param(value_type = String, pattern = "^(0|[1-9][0-9]{0,19})$")]
    lease: Decimal,
    /// The token of the grant; without it, a queue position is given up.
    #[param(value_type = Option<String>, pattern = "^(0|[1-9][0-9]{0,19})$")]
    token: Option<Decimal>,
    /// How long to wait for the outcome: 1ms to 5m, else 10 s.
    #[param(
        value_type = Option<String>, example = "10s",
        pattern = r"^([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?(us|ms|s|m|h|d))+)$"
    )]
    timeout: Option<DurationParameter>,
}

/// Releases a lock or, without `token`, leaves its queue.
#[utoipa::path(
    delete, path = "/v1/locks/{lock}", tag = "locks", operation_id = "release_lock",
    params(
        ("lock" = String, Path, description = "The lock; slashes are welcome."), ReleaseParameters,
        ("Idempotency-Key" = Option<String>, Header, description = "The request id."),
    ),
    responses((status = 200, description = "The lock, or the queue position, is given back.", body = Released)),
)]
pub(super) async fn release(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let query: ReleaseParameters = call.query()?;
    let within = within(query.timeout)?;
    let (lock, key) = (call.name(AT)?, call.id()?);
    call.nothing().await?;
    let lease = lease_ref(query.lease)?;
    let command = match query.token {
        Some(number) => Command::Release(Hold { lease, lock: &lock, token: token(number)? }),
        None => Command::Leave { lease, lock: &lock },
    };
    let (header, answer) = http.run(request_id(key.as_ref()), command, within).await?;
    if let Answer::AlreadyHeld(grants) = answer {
        // The lock was granted first: there is no place to give up, but a lock to release.
        let lock = grants.as_slice().first().map(|grant| grant.lock.clone());
        return Err(lock.map_or_else(unexpected, |lock| (&Refusal::NotWaiting { lock }).into()));
    }
    json(&Released { lock, header })
}

/// Takes a lock away from its holder.
#[utoipa::path(
    post, path = "/v1/force", tag = "locks", operation_id = "force_release", request_body = Force,
    params(TimeoutParameter, ("Idempotency-Key" = Option<String>, Header, description = "The request id.")),
    responses((status = 200, description = "The lock is taken away.", body = Forced)),
)]
pub(super) async fn force(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let key = call.id()?;
    let force: v1::ForceRequest = call.json::<Force>().await?.into();
    let id = request_id(key.as_ref());
    let (header, answer) = http.run(id, decode::force(&force)?, within).await?;
    let Answer::Forced { left_ms } = answer else { return Err(unexpected()) };
    json(&Forced { lock: force.lock, left_ms, header: Some(header) })
}
