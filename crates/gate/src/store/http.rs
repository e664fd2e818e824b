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

use crate::answer::{Said, json, shown};
use crate::believe::Judge;
use crate::hosts::Hosts;
use crate::reason::{Fence, Reason};

use super::ask::{About, Act, Ask, Done, Limits, Record};
use super::engine::{Broken, Engine};
use super::metrics::{Metrics, TEXT};
use super::write;
use super::writer::Writer;

/// How long the body of a request may take.
const BODY: Duration = Duration::from_secs(30);
/// The maximum number of concurrent reads of values: each may be as long as a value can be.
const READS_MAX: usize = 16;
/// The maximum number of keys in one response.
const LIST_MAX: usize = 1_000;

/// What every handler needs. Cheap to clone.
#[derive(Clone)]
pub(super) struct Shop(Arc<Inner>);

struct Inner {
    engine: Arc<Engine>,
    writer: Writer,
    judge: Judge,
    hosts: Hosts,
    metrics: Arc<Metrics>,
    limits: Limits,
    reads: Semaphore,
}

/// The query of a fenced request: the lock, slot and use of its token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Under {
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
struct Slot {
    slot: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Put {
    bytes: u64,
}

#[derive(Serialize)]
struct Appended {
    at: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Deleted {
    deleted: bool,
}

#[derive(Serialize)]
struct Listed {
    keys: Vec<Key>,
    more: bool,
}

#[derive(Serialize)]
struct Key {
    key: String,
    lock: String,
    slot: Option<u32>,
    token: String,
    bytes: u64,
}

#[derive(Serialize)]
struct Shown<'a> {
    lock: &'a str,
    slot: Option<u32>,
    exclusive: String,
    shared: String,
    used: String,
}

type Answered = Result<Response, Said>;
type Named = Result<Path<String>, PathRejection>;

impl Shop {
    pub(super) fn new(
        engine: Arc<Engine>,
        writer: Writer,
        judge: Judge,
        hosts: Hosts,
        metrics: Arc<Metrics>,
        limits: Limits,
    ) -> Self {
        let reads = Semaphore::new(READS_MAX);
        Self(Arc::new(Inner { engine, writer, judge, hosts, metrics, limits, reads }))
    }

    /// Reads the whole body, if it is not too long and arrives in time.
    pub(super) async fn body(&self, body: Body) -> Result<Bytes, Said> {
        whole(body, self.0.limits.body_bytes_max).await
    }

    /// Returns what a token text proves, and for this client if the request names one.
    pub(super) async fn claim(
        &self,
        text: &str,
        at: LockSlot<'_>,
        client: Option<&str>,
    ) -> Result<Claim, Said> {
        self.0.judge.claim(text, at, client).await
    }

    pub(super) async fn ask(&self, ask: Ask) -> Result<Done, Said> {
        self.0.writer.ask(ask).await
    }

    /// Reads durable data, on a thread that may block on the disk.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Engine) -> Result<T, Broken> + Send + 'static,
    ) -> Result<T, Said> {
        let unread = |error: &dyn std::fmt::Display| {
            Said::new(Reason::Internal, format!("cannot read: {error}"))
        };
        let _place = self.0.reads.acquire().await.map_err(|error| unread(&error))?;
        let engine = Arc::clone(&self.0.engine);
        let read = tokio::task::spawn_blocking(move || read(&engine)).await;
        read.map_err(|error| unread(&error))?.map_err(|error| unread(&error))
    }
}

/// The routes of the API.
pub(super) fn routes(shop: Shop) -> Router {
    Router::new()
        .route("/write", post(write::write))
        .route("/v1/data", get(list))
        .route("/v1/data/{*key}", get(show).put(put).post(append).delete(delete))
        .route("/v1/floors/{*lock}", get(floor).put(raise))
        .route("/healthz", get(async || "ok\n"))
        .route("/metrics", get(metrics))
        .fallback(async || Said::new(Reason::UnknownOperation, "there is no such path"))
        .method_not_allowed_fallback(async || {
            Said::new(Reason::UnknownVerb, "the path does not take this verb")
        })
        .with_state(shop.clone())
        .layer(middleware::from_fn_with_state(shop, enter))
}

/// The filter that every request passes first.
async fn enter(State(shop): State<Shop>, request: Request, next: Next) -> Response {
    let (began, call) = (Instant::now(), call(request.method(), request.uri().path()));
    let response = if shop.0.hosts.admit(request.headers()) {
        next.run(request).await
    } else {
        Said::new(
            Reason::HostNotAllowed,
            "the host name or origin of the request is not one of ours",
        )
        .into_response()
    };
    shop.0.metrics.served(call, began.elapsed(), &response);
    response
}

/// Maps a request to one of few names, so that clients cannot make the metrics grow.
fn call(method: &Method, path: &str) -> &'static str {
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

async fn put(State(shop): State<Shop>, key: Named, request: Request) -> Answered {
    let (key, under, claim) =
        fenced(&shop, key, request.method(), request.uri(), request.headers()).await?;
    let value = shop.body(request.into_body()).await?;
    answered(shop.ask(under.ask(claim, Act::Put { key, value })).await?)
}

async fn append(State(shop): State<Shop>, key: Named, request: Request) -> Answered {
    let (key, under, claim) =
        fenced(&shop, key, request.method(), request.uri(), request.headers()).await?;
    let value = shop.body(request.into_body()).await?;
    let at = under.at;
    answered(shop.ask(under.ask(claim, Act::Append { key, value, at })).await?)
}

async fn delete(State(shop): State<Shop>, key: Named, request: Request) -> Answered {
    let (key, under, claim) =
        fenced(&shop, key, request.method(), request.uri(), request.headers()).await?;
    answered(shop.ask(under.ask(claim, Act::Delete { key })).await?)
}

/// Reads a value. With a token, nothing older can write after the read; without one, it is a plain read.
async fn show(State(shop): State<Shop>, key: Named, request: Request) -> Answered {
    if request.headers().contains_key(FENCING_TOKEN) {
        let (key, under, claim) =
            fenced(&shop, key, request.method(), request.uri(), request.headers()).await?;
        return answered(shop.ask(under.ask(claim, Act::Read { key })).await?);
    }
    let key = name(key)?;
    answered(Done::Read(shop.read(move |engine| engine.read(&key)).await?))
}

async fn list(State(shop): State<Shop>, uri: Uri) -> Answered {
    let Page { prefix, after, limit } = query(&uri)?;
    let most = limit.unwrap_or(LIST_MAX);
    if !(1..=LIST_MAX).contains(&most) {
        return Err(Said::new(Reason::InvalidField, format!("limit is from 1 to {LIST_MAX}")));
    }
    let read = shop.read(move |engine| engine.list(&prefix, after.as_deref(), most)).await?;
    let keys = read.0.into_iter().map(Key::from).collect();
    Ok(object(&Listed { keys, more: read.1 }))
}

async fn floor(State(shop): State<Shop>, lock: Named, uri: Uri) -> Answered {
    let (lock, Slot { slot }) = (name(lock)?, query(&uri)?);
    let asked = lock.clone();
    let floor = shop.read(move |engine| engine.floor(LockSlot { lock: &asked, slot })).await?;
    let LockSlot { lock, slot } = LockSlot { lock: &lock, slot };
    let Floor { exclusive, shared, used, .. } = floor;
    let (exclusive, shared, used) = (shown(exclusive), shown(shared), shown(used));
    Ok(with_floor(object(&Shown { lock, slot, exclusive, shared, used }), floor))
}

/// Implements fence-on-acquire: once this has been answered, nothing older is accepted.
async fn raise(State(shop): State<Shop>, lock: Named, request: Request) -> Answered {
    let (lock, Slot { slot }) = (name(lock)?, query(request.uri())?);
    let at = LockSlot { lock: &lock, slot };
    let claim = shop.claim(token(request.headers())?, at, None).await?;
    answered(shop.ask(Ask { lock, slot, claim, act: Act::Raise }).await?)
}

async fn metrics(State(shop): State<Shop>) -> Answered {
    let totals = shop.read(Engine::totals).await?;
    let text = shop.0.metrics.show(totals, shop.0.writer.waiting());
    let kind = HeaderValue::from_static(TEXT);
    Ok(([(CONTENT_TYPE, kind)], text).into_response())
}

impl Under {
    fn ask(self, claim: Claim, act: Act) -> Ask {
        let claim = if self.once { claim.once() } else { claim };
        Ask { lock: self.lock, slot: self.slot, claim, act }
    }
}

impl From<About> for Key {
    fn from(about: About) -> Self {
        let About { key, lock, slot, token, bytes, .. } = about;
        Self { key, lock, slot, token: token.to_string(), bytes }
    }
}

/// Parses key, lock and claim of a fenced request.
async fn fenced(
    shop: &Shop,
    key: Named,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(String, Under, Claim), Said> {
    let (key, under) = (name(key)?, query::<Under>(uri)?);
    let at = LockSlot { lock: &under.lock, slot: under.slot };
    at.check().map_err(|invalid| Said::new(Reason::InvalidName, format!("lock: {invalid}")))?;
    if under.at.is_some() && method != Method::POST {
        return Err(Said::new(Reason::InvalidField, "at is for appending"));
    }
    let claim = shop.claim(token(headers)?, at, None).await?;
    Ok((key, under, claim))
}

async fn whole(body: Body, most: usize) -> Result<Bytes, Said> {
    let whole = timeout(BODY, Limited::new(body, most).collect()).await;
    let late = |_| Said::new(Reason::TooSlow, format!("the body took longer than {BODY:?}"));
    match whole.map_err(late)? {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => {
            Err(Said::new(Reason::TooLarge, format!("a body has at most {most} bytes")))
        }
        Err(error) => Err(Said::new(Reason::Malformed, format!("the body broke off: {error}"))),
    }
}

/// Returns the one token of a request.
fn token(headers: &HeaderMap) -> Result<&str, Said> {
    let mut given = headers.get_all(FENCING_TOKEN).iter();
    let required = || {
        Said::new(
            Fence::TokenRequired,
            "a header Fencing-Token with the token of the lock is needed",
        )
    };
    let text = given.next().ok_or_else(required)?.to_str();
    // With two tokens, the wrong one might be trusted.
    let one = given.next().is_none();
    text.ok().filter(|_| one).ok_or_else(|| Said::unproven(&Unproven::Malformed))
}

/// Returns the name in a path.
fn name(named: Named) -> Result<String, Said> {
    let Path(name) = named.map_err(|error| Said::new(Reason::InvalidName, error.body_text()))?;
    LockSlot::from(name.as_str())
        .check()
        .map_err(|invalid| Said::new(Reason::InvalidName, invalid.to_string()))?;
    Ok(name)
}

fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Said> {
    let query = Query::try_from_uri(uri)
        .map_err(|error| Said::new(Reason::InvalidField, error.body_text()))?;
    Ok(query.0)
}

fn answered(done: Done) -> Answered {
    Ok(match done {
        Done::Put { bytes } => object(&Put { bytes }),
        Done::Appended { at, bytes } => object(&Appended { at, bytes }),
        Done::Deleted(deleted) => object(&Deleted { deleted }),
        Done::Raised(floor) => with_floor(StatusCode::NO_CONTENT.into_response(), floor),
        Done::Read(None) => return Err(Said::new(Reason::KeyNotFound, "there is no such key")),
        Done::Read(Some(Record { about, value })) => {
            let mut response = json(StatusCode::OK, value);
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
            headers.insert(FENCING_TOKEN, HeaderValue::from(about.token));
            response
        }
    })
}

fn object(body: &impl Serialize) -> Response {
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
        let said = whole(Body::new(Never), 1_000).await.unwrap_err();
        assert_eq!(said.row, Reason::TooSlow.row());
    }
}
