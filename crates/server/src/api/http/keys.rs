//! Reads and writes keys over HTTP.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use tenure_core::outcome::Answer;
use tenure_core::request::{Command, Expect, Put, WriteGuard};
use tenure_types::Revision;
use tenure_wire::json::Decimal;
use tenure_wire::json::key::{KeyDeleted, KeyPut, KeyShown, Keys};
use tenure_wire::{Failure, v1};
use utoipa::IntoParams;

use super::Http;
use super::answer::{HttpError, HttpResult, json};
use super::call::{HttpCall, lease_ref, request_id, token, within};
use super::duration::DurationParameter;
use super::leases::unexpected;
use super::page::{NamePage, more, page};
use crate::api::{decode, list as lists, query};
use crate::dispatch::{ReadScope, WITHIN};

const AT: &str = "/v1/keys/";
/// The header with the revision of the state that was read.
const REVISION: HeaderName = HeaderName::from_static("tenure-revision");

/// Lists keys, in the order of their names.
#[utoipa::path(
    get, path = "/v1/keys", tag = "keys", operation_id = "list_keys", params(NamePage),
    responses((status = 200, description = "A page of keys.", body = Keys)),
)]
pub(super) async fn list(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let query: NamePage = call.query()?;
    let request = v1::ListKeysRequest {
        prefix: query.prefix.unwrap_or_default(),
        limit: page(query.limit)?,
        after: query.after.unwrap_or_default(),
        stale: query.stale.unwrap_or(false),
    };
    let found = lists::keys(&http.dispatch, &http.who(), &request, WITHIN).await?;
    let keys = found.kvs.into_iter().map(KeyShown::from).collect();
    json(&Keys { keys, next: more(found.next), header: found.header.unwrap_or_default().into() })
}

/// Whether old state will do.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ReadParameters {
    /// `true`: the member may answer from its own state, which can be old.
    stale: Option<bool>,
}

/// Reads a key: its bytes, and as `ETag` the revision that last wrote it.
///
/// `Tenure-Revision` is the revision of the state that was read, also for a key that does not exist. With `stale=true`
/// it says how old the answer is.
#[utoipa::path(
    get, path = "/v1/keys/{key}", tag = "keys", operation_id = "show_key",
    params(("key" = String, Path, description = "The key; slashes are welcome."), ReadParameters),
    responses((status = 200, description = "The value.", body = Vec<u8>,
        content_type = "application/octet-stream", headers(
            ("ETag" = String, description = "The revision that last wrote the key."),
            ("Tenure-Revision" = String, description = "The revision of the state that was read."),
        ))),
)]
pub(super) async fn show(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let query: ReadParameters = call.query()?;
    let key = call.name(AT)?;
    let of = key.clone();
    let fresh = query::fresh(query.stale.unwrap_or(false));
    let scope = ReadScope::read(&key);
    let (header, view) = http.read(scope, fresh, WITHIN, move |machine| machine.key(&of)).await?;
    let Some(view) = view else {
        let mut response = HttpError::from(Failure::KeyNotFound { key }).into_response();
        response.headers_mut().insert(REVISION, HeaderValue::from(header.revision.0));
        return Ok(response);
    };
    let mut response = Response::new(Body::from(view.value.into_vec()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REVISION, HeaderValue::from(header.revision.0));
    mark(headers, view.modified.0);
    Ok(response)
}

/// What a key that is written depends on.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WriteParameters {
    /// The lease that the key ends with.
    #[param(value_type = Option<String>, pattern = "^(0|[1-9][0-9]{0,19})$")]
    lease: Option<Decimal>,
    /// Only while this lock is held, under `token`.
    lock: Option<String>,
    /// The token of that lock.
    #[param(value_type = Option<String>, pattern = "^(0|[1-9][0-9]{0,19})$")]
    token: Option<Decimal>,
    /// How long to wait for the outcome: 1ms to 5m, else 10 s.
    #[param(
        value_type = Option<String>, example = "10s",
        pattern = r"^([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?(us|ms|s|m|h|d))+)$"
    )]
    timeout: Option<DurationParameter>,
}

/// Writes a key: the body as it is.
#[utoipa::path(
    put, path = "/v1/keys/{key}", tag = "keys", operation_id = "put_key",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    params(
        ("key" = String, Path, description = "The key; slashes are welcome."), WriteParameters,
        ("If-Match" = Option<String>, Header, description = "Only if this revision last wrote it."),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if it does not exist."),
        ("Idempotency-Key" = Option<String>, Header, description = "The request id."),
    ),
    responses((status = 200, description = "The key is written.", body = KeyPut,
        headers(("ETag" = String, description = "Its revision.")))),
)]
pub(super) async fn put(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let query: WriteParameters = call.query()?;
    let within = within(query.timeout)?;
    let (key, id, expect) = (call.name(AT)?, call.id()?, expect(&call.parts.headers)?);
    let value = call.bytes().await?;
    let put = Put {
        key: &key,
        value: &value,
        lease: query.lease.map(lease_ref).transpose()?,
        expect,
        guard: guard(query.lock.as_deref(), query.token)?,
    };
    let (header, answer) = http.run(request_id(id.as_ref()), Command::Put(put), within).await?;
    let Answer::Put(written) = answer else { return Err(unexpected()) };
    let revision = header.revision.0;
    let created = Decimal(written.created.0);
    let mut response =
        json(&KeyPut { key, version: written.version, created, header: Some(header) })?;
    mark(response.headers_mut(), revision);
    Ok(response)
}

/// What the deletion of a key depends on.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeleteParameters {
    /// Only while this lock is held, under `token`.
    lock: Option<String>,
    /// The token of that lock.
    #[param(value_type = Option<String>, pattern = "^(0|[1-9][0-9]{0,19})$")]
    token: Option<Decimal>,
    /// How long to wait for the outcome: 1ms to 5m, else 10 s.
    #[param(
        value_type = Option<String>, example = "10s",
        pattern = r"^([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?(us|ms|s|m|h|d))+)$"
    )]
    timeout: Option<DurationParameter>,
}

/// Deletes a key; one that does not exist is no error.
#[utoipa::path(
    delete, path = "/v1/keys/{key}", tag = "keys", operation_id = "delete_key",
    params(
        ("key" = String, Path, description = "The key; slashes are welcome."), DeleteParameters,
        ("If-Match" = Option<String>, Header, description = "Only if this revision last wrote it."),
        ("Idempotency-Key" = Option<String>, Header, description = "The request id."),
    ),
    responses((status = 200, description = "The key does not exist any more.", body = KeyDeleted)),
)]
pub(super) async fn delete(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let query: DeleteParameters = call.query()?;
    let within = within(query.timeout)?;
    let (key, id, expect) = (call.name(AT)?, call.id()?, expect(&call.parts.headers)?);
    call.nothing().await?;
    let guard = guard(query.lock.as_deref(), query.token)?;
    let command = Command::Delete { key: &key, expect, guard };
    let (header, answer) = http.run(request_id(id.as_ref()), command, within).await?;
    let Answer::Deleted { existed } = answer else { return Err(unexpected()) };
    json(&KeyDeleted { key, existed, header: Some(header) })
}

fn guard(lock: Option<&str>, number: Option<Decimal>) -> Result<Option<WriteGuard<'_>>, HttpError> {
    match (lock, number) {
        (None, None) => Ok(None),
        (Some(lock), Some(number)) => Ok(Some(WriteGuard { lock, token: token(number)? })),
        (Some(_), None) => Err(decode::invalid("token", "is missing beside `lock`").into()),
        (None, Some(_)) => Err(decode::invalid("lock", "is missing beside `token`").into()),
    }
}

fn mark(headers: &mut HeaderMap, revision: u64) {
    if let Ok(mark) = HeaderValue::from_str(&format!("\"{revision}\"")) {
        headers.insert(ETAG, mark);
    }
}

/// The condition on the key: `If-Match: "8850"`, or `If-None-Match: *` for one that must not exist.
fn expect(headers: &HeaderMap) -> Result<Expect<'static>, HttpError> {
    match (one(headers, IF_MATCH)?, one(headers, IF_NONE_MATCH)?) {
        (None, None) => Ok(Expect::Any),
        (None, Some("*")) => Ok(Expect::Absent),
        (None, Some(_)) => Err(decode::invalid("If-None-Match", "can only be `*`").into()),
        (Some(mark), None) => {
            let bare = mark.strip_prefix('"').and_then(|mark| mark.strip_suffix('"'));
            let revision = Decimal::parse(bare.unwrap_or(mark));
            let revision = revision.filter(|revision| i64::try_from(revision.0).is_ok());
            let revision = revision.ok_or_else(|| {
                decode::invalid("If-Match", "must be one revision, such as \"8850\"")
            })?;
            Ok(Expect::Modified(Revision(revision.0)))
        }
        (Some(_), Some(_)) => Err(decode::invalid("If-Match", "excludes `If-None-Match`").into()),
    }
}

fn one(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, HttpError> {
    let mut values = headers.get_all(&name).into_iter();
    match (values.next().map(HeaderValue::to_str), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value.trim())),
        _ => Err(Failure::Malformed { what: format!("header: {name}") }.into()),
    }
}
