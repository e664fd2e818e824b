//! Implements the HTTP API of the store.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tenure_fence::http::{FENCING_FLOOR, FENCING_TOKEN, Unproven};
use tenure_fence::{Claim, Floor, LockSlot, Mode};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::answer::{ErrorAnswer, json, shown};
use crate::hosts::Hosts;
use crate::readers::Readers;
use crate::reason::{Fence, Reason};
use crate::trust::TokenVerifier;

use super::engine::{Engine, EngineError};
use super::metrics::{StoreMetrics, TEXT};
use super::request::{KeyInfo, KeyRecord, StoreAction, StoreLimits, StoreOutcome, StoreRequest};
use super::states::{self, StatesApi};
use super::write;
use super::writer::StoreWriter;

/// How long the body of a request may take.
pub(super) const BODY: Duration = Duration::from_secs(30);
/// The maximum number of concurrent reads of values: each may be as long as a value can be.
const READS_MAX: usize = 16;
/// The maximum number of keys in one response.
const LIST_MAX: usize = 1_000;

/// What every handler needs. Cheap to clone.
#[derive(Clone)]
pub(super) struct StoreApi(Arc<StoreApiState>);

/// Which requests are admitted, before anything else about them is looked at.
pub(super) struct Admitted {
    pub(super) hosts: Hosts,
    /// Without a list, every client may read.
    pub(super) readers: Option<Readers>,
}

struct StoreApiState {
    engine: Arc<Engine>,
    writer: StoreWriter,
    judge: TokenVerifier,
    admitted: Admitted,
    metrics: Arc<StoreMetrics>,
    limits: StoreLimits,
    reads: Semaphore,
}

/// The query of a fenced request: the lock, slot and use of its token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FenceParameters {
    lock: String,
    slot: Option<u32>,
    #[serde(default)]
    once: bool,
    /// For an append: how many bytes the value must have.
    at: Option<u64>,
}

/// The query of a request whose path names the lock.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SlotParameters {
    slot: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListParameters {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct PutParameters {
    bytes: u64,
}

#[derive(Serialize)]
struct AppendAnswer {
    at: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct DeleteAnswer {
    deleted: bool,
}

#[derive(Serialize)]
struct ListAnswer {
    keys: Vec<StoredKeyAnswer>,
    more: bool,
}

#[derive(Serialize)]
struct StoredKeyAnswer {
    key: String,
    lock: String,
    slot: Option<u32>,
    token: String,
    bytes: u64,
}

#[derive(Serialize)]
struct ValueAnswer<'a> {
    lock: &'a str,
    slot: Option<u32>,
    exclusive: String,
    shared: String,
    used: String,
}

pub(super) type HttpResult = Result<Response, ErrorAnswer>;
pub(super) type NamedKey = Result<Path<String>, PathRejection>;

impl StoreApi {
    pub(super) fn new(
        engine: Arc<Engine>,
        writer: StoreWriter,
        judge: TokenVerifier,
        admitted: Admitted,
        metrics: Arc<StoreMetrics>,
        limits: StoreLimits,
    ) -> Self {
        let reads = Semaphore::new(READS_MAX);
        Self(Arc::new(StoreApiState { engine, writer, judge, admitted, metrics, limits, reads }))
    }

    /// Reads the whole body, if it is not too long and arrives in time.
    pub(super) async fn body(&self, body: Body) -> Result<Bytes, ErrorAnswer> {
        whole(body, self.0.limits.body_bytes_max, BODY).await
    }

    /// Returns what a token text proves, and for this client if the request names one.
    pub(super) async fn claim(
        &self,
        text: &str,
        at: LockSlot<'_>,
        client: Option<&str>,
    ) -> Result<Claim, ErrorAnswer> {
        self.0.judge.claim(text, at, client).await
    }

    pub(super) async fn ask(&self, ask: StoreRequest) -> Result<StoreOutcome, ErrorAnswer> {
        self.0.writer.ask(ask).await
    }

    /// Reads durable data, on a thread that may block on the disk.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Engine) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, ErrorAnswer> {
        let unread = |error: &dyn std::fmt::Display| {
            ErrorAnswer::new(Reason::Internal, format!("cannot read: {error}"))
        };
        let _place = self.0.reads.acquire().await.map_err(|error| unread(&error))?;
        let engine = Arc::clone(&self.0.engine);
        let read = tokio::task::spawn_blocking(move || read(&engine)).await;
        read.map_err(|error| unread(&error))?.map_err(|error| unread(&error))
    }
}

/// The routes of the API.
pub(super) fn routes(shop: StoreApi, states: StatesApi) -> Router {
    Router::new()
        .route("/write", post(write::write))
        .route("/v1/data", get(list))
        .route("/v1/data/{*key}", get(show).put(put).post(append).delete(delete))
        .route("/v1/floors/{*lock}", get(floor).put(raise))
        .route("/healthz", get(async || "ok\n"))
        .route("/metrics", get(metrics))
        .fallback(async || ErrorAnswer::new(Reason::UnknownOperation, "there is no such path"))
        .method_not_allowed_fallback(async || {
            ErrorAnswer::new(Reason::UnknownVerb, "the path does not take this verb")
        })
        .with_state(shop.clone())
        .merge(states::routes(states))
        .layer(middleware::from_fn_with_state(shop, enter))
}

/// The filter that every request passes first.
async fn enter(State(shop): State<StoreApi>, request: Request, next: Next) -> Response {
    let (began, call) = (Instant::now(), call(request.method(), request.uri().path()));
    let response = match shop.0.admitted.admit(&request) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    };
    shop.0.metrics.served(call, began.elapsed(), &response);
    response
}

impl Admitted {
    fn admit(&self, request: &Request) -> Result<(), ErrorAnswer> {
        if !self.hosts.admit(request.headers()) {
            let message = "the host name or origin of the request is not one of ours";
            return Err(ErrorAnswer::new(Reason::HostNotAllowed, message));
        }
        let path = request.uri().path();
        // States have keys of their own, and the password of basic authentication.
        if path == "/v1/states" || path.starts_with("/v1/states/") {
            return Ok(());
        }
        // A read with a token is a read as well: where bare tokens are believed, it proves nothing.
        let reads = !matches!(*request.method(), Method::PUT | Method::POST | Method::DELETE)
            && path != "/healthz";
        match &self.readers {
            Some(readers) if reads && !readers.admit(request.headers()) => {
                let message = "a header Authorization: Bearer with a reader's token is needed";
                Err(ErrorAnswer::new(Reason::Unauthenticated, message))
            }
            _ => Ok(()),
        }
    }
}

/// Maps a request to one of few names, so that clients cannot make the metrics grow.
fn call(method: &Method, path: &str) -> &'static str {
    if let Some(call) = states::call(method, path) {
        return call;
    }
    let below = |dir: &str| path.starts_with(dir);
    match method.as_str() {
        "POST" if path == "/write" => "write",
        "GET" if path == "/v1/data" => "list",
        "GET" if below("/v1/data/") => "get",
        "PUT" if below("/v1/data/") => "put",
        "POST" if below("/v1/data/") => "append",
        "DELETE" if below("/v1/data/") => "delete",
        "GET" if below("/v1/floors/") => "floor",
        "PUT" if below("/v1/floors/") => "raise",
        _ => "other",
    }
}

async fn put(State(shop): State<StoreApi>, key: NamedKey, request: Request) -> HttpResult {
    let (key, under, claim) =
        fenced(&shop, key, request.method(), request.uri(), request.headers()).await?;
    let value = shop.body(request.into_body()).await?;
    answered(shop.ask(under.ask(claim, StoreAction::Put { key, value })).await?)
}

async fn append(State(shop): State<StoreApi>, key: NamedKey, request: Request) -> HttpResult {
    let (key, under, claim) =
        fenced(&shop, key, request.method(), request.uri(), request.headers()).await?;
    let value = shop.body(request.into_body()).await?;
    let at = under.at;
    answered(shop.ask(under.ask(claim, StoreAction::Append { key, value, at })).await?)
}

async fn delete(State(shop): State<StoreApi>, key: NamedKey, request: Request) -> HttpResult {
    let (key, under, claim) =
        fenced(&shop, key, request.method(), request.uri(), request.headers()).await?;
    answered(shop.ask(under.ask(claim, StoreAction::Delete { key })).await?)
}

/// Reads a value. With a token, nothing older can write after the read; without one, it is a plain read.
async fn show(State(shop): State<StoreApi>, key: NamedKey, request: Request) -> HttpResult {
    if request.headers().contains_key(FENCING_TOKEN) {
        let (key, under, claim) =
            fenced(&shop, key, request.method(), request.uri(), request.headers()).await?;
        return answered(shop.ask(under.ask(claim, StoreAction::Read { key })).await?);
    }
    let key = name(key)?;
    answered(StoreOutcome::Read(shop.read(move |engine| engine.read(&key)).await?))
}

async fn list(State(shop): State<StoreApi>, uri: Uri) -> HttpResult {
    let ListParameters { prefix, after, limit } = query(&uri)?;
    let most = limit.unwrap_or(LIST_MAX);
    if !(1..=LIST_MAX).contains(&most) {
        return Err(ErrorAnswer::new(
            Reason::InvalidField,
            format!("limit is from 1 to {LIST_MAX}"),
        ));
    }
    let read = shop.read(move |engine| engine.list(&prefix, after.as_deref(), most)).await?;
    let keys = read.0.into_iter().map(StoredKeyAnswer::from).collect();
    Ok(object(&ListAnswer { keys, more: read.1 }))
}

async fn floor(State(shop): State<StoreApi>, lock: NamedKey, uri: Uri) -> HttpResult {
    let (lock, SlotParameters { slot }) = (name(lock)?, query(&uri)?);
    let asked = lock.clone();
    let floor = shop.read(move |engine| engine.floor(LockSlot { lock: &asked, slot })).await?;
    let LockSlot { lock, slot } = LockSlot { lock: &lock, slot };
    let Floor { exclusive, shared, used, .. } = floor;
    let (exclusive, shared, used) = (shown(exclusive), shown(shared), shown(used));
    Ok(with_floor(object(&ValueAnswer { lock, slot, exclusive, shared, used }), floor))
}

/// Implements fence-on-acquire: once this has been answered, nothing older is accepted.
async fn raise(State(shop): State<StoreApi>, lock: NamedKey, request: Request) -> HttpResult {
    let (lock, SlotParameters { slot }) = (name(lock)?, query(request.uri())?);
    let at = LockSlot { lock: &lock, slot };
    let claim = shop.claim(token(request.headers())?, at, None).await?;
    answered(shop.ask(StoreRequest { lock, slot, claim, act: StoreAction::Raise }).await?)
}

async fn metrics(State(shop): State<StoreApi>) -> HttpResult {
    let totals = shop.read(Engine::totals).await?;
    let text = shop.0.metrics.show(totals, shop.0.writer.waiting());
    let kind = HeaderValue::from_static(TEXT);
    Ok(([(CONTENT_TYPE, kind)], text).into_response())
}

impl FenceParameters {
    fn ask(self, claim: Claim, act: StoreAction) -> StoreRequest {
        let claim = if self.once { claim.once() } else { claim };
        StoreRequest { lock: self.lock, slot: self.slot, claim, act }
    }
}

impl From<KeyInfo> for StoredKeyAnswer {
    fn from(about: KeyInfo) -> Self {
        let KeyInfo { key, lock, slot, token, bytes, .. } = about;
        Self { key, lock, slot, token: token.to_string(), bytes }
    }
}

/// Parses key, lock and claim of a fenced request.
async fn fenced(
    shop: &StoreApi,
    key: NamedKey,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(String, FenceParameters, Claim), ErrorAnswer> {
    let (key, under) = (name(key)?, query::<FenceParameters>(uri)?);
    let at = LockSlot { lock: &under.lock, slot: under.slot };
    at.check()
        .map_err(|invalid| ErrorAnswer::new(Reason::InvalidName, format!("lock: {invalid}")))?;
    if under.at.is_some() && method != Method::POST {
        return Err(ErrorAnswer::new(Reason::InvalidField, "at is for appending"));
    }
    let claim = shop.claim(token(headers)?, at, None).await?;
    Ok((key, under, claim))
}

/// Reads a whole body, of at most so many bytes and within this time.
pub(super) async fn whole(body: Body, most: usize, within: Duration) -> Result<Bytes, ErrorAnswer> {
    let whole = timeout(within, Limited::new(body, most).collect()).await;
    let late =
        |_| ErrorAnswer::new(Reason::TooSlow, format!("the body took longer than {within:?}"));
    match whole.map_err(late)? {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => {
            Err(ErrorAnswer::new(Reason::TooLarge, format!("a body has at most {most} bytes")))
        }
        Err(error) => {
            Err(ErrorAnswer::new(Reason::Malformed, format!("the body broke off: {error}")))
        }
    }
}

/// Returns the one token of a request.
fn token(headers: &HeaderMap) -> Result<&str, ErrorAnswer> {
    let mut given = headers.get_all(FENCING_TOKEN).iter();
    let required = || {
        ErrorAnswer::new(
            Fence::TokenRequired,
            "a header Fencing-Token with the token of the lock is needed",
        )
    };
    let text = given.next().ok_or_else(required)?.to_str();
    // With two tokens, the wrong one might be trusted.
    let one = given.next().is_none();
    text.ok().filter(|_| one).ok_or_else(|| ErrorAnswer::unproven(&Unproven::Malformed))
}

/// Returns the name in a path.
pub(super) fn name(named: NamedKey) -> Result<String, ErrorAnswer> {
    let Path(name) =
        named.map_err(|error| ErrorAnswer::new(Reason::InvalidName, error.body_text()))?;
    LockSlot::from(name.as_str())
        .check()
        .map_err(|invalid| ErrorAnswer::new(Reason::InvalidName, invalid.to_string()))?;
    Ok(name)
}

pub(super) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, ErrorAnswer> {
    let query = Query::try_from_uri(uri)
        .map_err(|error| ErrorAnswer::new(Reason::InvalidField, error.body_text()))?;
    Ok(query.0)
}

fn answered(done: StoreOutcome) -> HttpResult {
    Ok(match done {
        StoreOutcome::Put { bytes } => object(&PutParameters { bytes }),
        StoreOutcome::Appended { at, bytes } => object(&AppendAnswer { at, bytes }),
        StoreOutcome::Deleted(deleted) => object(&DeleteAnswer { deleted }),
        StoreOutcome::Raised(floor) => with_floor(StatusCode::NO_CONTENT.into_response(), floor),
        StoreOutcome::Read(None) => {
            return Err(ErrorAnswer::new(Reason::KeyNotFound, "there is no such key"));
        }
        StoreOutcome::Read(Some(KeyRecord { about, value })) => {
            let mut response = json(StatusCode::OK, value);
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
            headers.insert(FENCING_TOKEN, HeaderValue::from(about.token));
            response
        }
    })
}

pub(super) fn object(body: &impl Serialize) -> Response {
    json(StatusCode::OK, serde_json::to_vec(body).expect("texts and numbers are always JSON"))
}

fn with_floor(mut response: Response, floor: Floor) -> Response {
    if let Some(floor) = floor.lowest(Mode::Exclusive) {
        response.headers_mut().insert(FENCING_FLOOR, HeaderValue::from(floor.get()));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;

    use super::*;

    /// A body that sends nothing and never ends.
    struct Never;

    impl http_body::Body for Never {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let said = whole(Body::new(Never), 1_000, BODY).await.unwrap_err();
        assert_eq!(said.row, Reason::TooSlow.row());
    }
}
