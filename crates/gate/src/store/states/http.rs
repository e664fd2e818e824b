//! Implements the calls of the HTTP backend of Terraform and OpenTofu, and those that list and restore versions.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use tokio::sync::Semaphore;

use crate::answer::{ErrorAnswer, json};
use crate::reason::Reason;
use crate::store::http::{HttpResult, NamedKey, name, object, query, whole};

use super::access::{StateAccess, StateUse};
use super::cluster::{KeptFor, LockRefused};
use super::forms::{
    DeletedAnswer, ForeignHolder, StateAnswer, StateParameters, StatesAnswer, StatesParameters,
    VersionAnswer, VersionsAnswer, WrittenAnswer,
};
use super::ledger::{NewVersion, StateAsk, StateRefusal, Unlocked, Written};
use super::row::{HeldBy, HeldState, LockInfo, StateRow};
use super::transfer::{Sum, TRANSFER, TRANSFERS_MAX, place, sent, wall_clock};
use super::{StateError, States, claim_of, document, lookup};

/// The longest info of a lock. Terraform's has some hundred bytes.
const INFO_BYTES_MAX: usize = 16 * 1024;
/// The longest id of a lock. Terraform draws a UUID.
const ID_BYTES_MAX: usize = 256;
/// How long a short body may take.
const BODY: Duration = Duration::from_secs(30);
/// The maximum number of states in one response.
const LIST_MAX: usize = 1_000;
/// The id of a holder that did not lock the state here, and cannot be unlocked here.
const ELSEWHERE: &str = "held-in-the-cluster";
/// The number of the version in an answer.
const VERSION: HeaderName = HeaderName::from_static("tenure-version");
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// What every handler needs. Cheap to clone.
#[derive(Clone)]
pub(in crate::store) struct StatesApi(Arc<ApiState>);

struct ApiState {
    states: Arc<States>,
    access: StateAccess,
    uploads: Arc<Semaphore>,
    downloads: Arc<Semaphore>,
}

impl StatesApi {
    pub(in crate::store) fn new(states: Arc<States>, access: StateAccess) -> Self {
        let [uploads, downloads] = [(); 2].map(|()| Arc::new(Semaphore::new(TRANSFERS_MAX)));
        Self(Arc::new(ApiState { states, access, uploads, downloads }))
    }
}

/// The routes of states.
pub(in crate::store) fn routes(api: StatesApi) -> Router {
    Router::new()
        .route("/v1/states", get(list))
        .route("/v1/states/{*name}", any(state))
        .with_state(api)
}

/// Maps a request to one of few names, so that clients cannot make the metrics grow.
pub(in crate::store) fn call(method: &Method, path: &str) -> Option<&'static str> {
    if path == "/v1/states" {
        return Some("states");
    }
    path.starts_with("/v1/states/").then(|| match method.as_str() {
        "GET" => "state_get",
        "POST" | "PUT" => "state_write",
        "DELETE" => "state_delete",
        "LOCK" => "state_lock",
        "UNLOCK" => "state_unlock",
        _ => "other",
    })
}

async fn state(State(api): State<StatesApi>, named: NamedKey, request: Request) -> Response {
    // A client that hangs up must not leave a state locked whose lock at the cluster no task keeps.
    let served = tokio::spawn(async move { serve(&api, named, request).await }).await;
    let failed = |error| Err(ErrorAnswer::new(Reason::Internal, format!("{error}")));
    served.unwrap_or_else(failed).unwrap_or_else(|said| {
        let unknown = said.row == Reason::Unauthenticated.row();
        let mut response = said.into_response();
        if unknown {
            let asked = HeaderValue::from_static("Basic realm=\"tenure\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, asked);
        }
        response
    })
}

async fn serve(api: &StatesApi, named: NamedKey, request: Request) -> HttpResult {
    let (name, parameters) = (name(named)?, query::<StateParameters>(request.uri())?);
    let lock = parameters.lock.clone().unwrap_or_else(|| name.clone());
    tenure_fence::LockSlot::from(lock.as_str())
        .check()
        .map_err(|invalid| ErrorAnswer::new(Reason::InvalidName, format!("lock: {invalid}")))?;
    let (wanted, verb) = match request.method().as_str() {
        "GET" => (StateUse::Read, StateCall::Get),
        "POST" | "PUT" => (StateUse::Write, StateCall::Write),
        "DELETE" => (StateUse::Write, StateCall::Delete),
        "LOCK" => (StateUse::Write, StateCall::Lock),
        "UNLOCK" => (StateUse::Write, StateCall::Unlock),
        _ => {
            let message = "a state takes GET, POST, DELETE, LOCK and UNLOCK";
            return Err(ErrorAnswer::new(Reason::UnknownVerb, message));
        }
    };
    let claim = api.0.access.check(request.headers(), &lock, wanted).await?;
    let ask = StateAsk { name, lock, claim };
    match verb {
        StateCall::Get => api.get(ask, &parameters).await,
        StateCall::Write => api.write(ask, parameters, request).await,
        StateCall::Delete => api.delete(ask, parameters.id).await,
        StateCall::Lock => api.lock(ask, request).await,
        StateCall::Unlock => api.unlock(ask, request).await,
    }
}

/// What is done with a state.
#[derive(Clone, Copy)]
enum StateCall {
    Get,
    Write,
    Delete,
    Lock,
    Unlock,
}

async fn list(State(api): State<StatesApi>, headers: HeaderMap, uri: Uri) -> HttpResult {
    api.0.access.check_list(&headers)?;
    let StatesParameters { prefix, after, limit } = query(&uri)?;
    let most = limit.unwrap_or(LIST_MAX);
    if !(1..=LIST_MAX).contains(&most) {
        let message = format!("limit is from 1 to {LIST_MAX}");
        return Err(ErrorAnswer::new(Reason::InvalidField, message));
    }
    let read = move |engine: &_| lookup::list(engine, &prefix, after.as_deref(), most);
    let (found, more) = api.0.states.read(read).await?;
    let states = found.into_iter().map(StateAnswer::from).collect();
    Ok(object(&StatesAnswer { states, more }))
}

impl StatesApi {
    async fn get(&self, ask: StateAsk, parameters: &StateParameters) -> HttpResult {
        if ask.claim.is_some() {
            let asked = ask.clone();
            self.0
                .states
                .blocking(move |states| {
                    let may = lookup::may_read(&states.engine, &asked);
                    may.map_err(StateError::Engine)?.map_err(StateError::Refused)
                })
                .await?;
        }
        if parameters.versions {
            let of = ask.name.clone();
            let found = self.0.states.read(move |engine| lookup::versions(engine, &of)).await?;
            let versions = found.into_iter().map(VersionAnswer::from).collect();
            return Ok(object(&VersionsAnswer { versions }));
        }
        let place = place(&self.0.downloads).await?;
        let (number, content) = self.content(&ask.name, parameters.version).await?;
        let sum = Sum::of(&content).header();
        let mut response = json(StatusCode::OK, sent(content, place));
        let headers = response.headers_mut();
        headers.insert(VERSION, HeaderValue::from(number));
        headers.insert(CONTENT_MD5, HeaderValue::from_str(&sum).expect("base64 is visible text"));
        Ok(response)
    }

    /// Reads the content of a version, and compares it with its sum.
    async fn content(&self, name: &str, version: Option<u64>) -> Result<(u64, Bytes), ErrorAnswer> {
        let of = name.to_owned();
        let read = self.0.states.blocking(move |states| {
            let found =
                lookup::version(&states.engine, &of, version).map_err(StateError::Engine)?;
            let Some((number, row, file)) =
                found.and_then(|(number, row)| row.file.map(|file| (number, row, file)))
            else {
                return Err(StateError::Refused(StateRefusal::NotFound));
            };
            let content = match states.files.read(file) {
                // The version was removed after its row was read.
                Err(error)
                    if error.kind() == std::io::ErrorKind::NotFound
                        && lookup::version(&states.engine, &of, Some(number))
                            .map_err(StateError::Engine)?
                            .is_none() =>
                {
                    return Err(StateError::Refused(StateRefusal::NotFound));
                }
                read => read.map_err(|error| StateError::Disk(error.to_string()))?,
            };
            if Sum::of(&content).hex() != row.md5 {
                return Err(StateError::Disk(format!(
                    "version {number} has another MD5 sum than when it was written"
                )));
            }
            Ok((number, Bytes::from(content)))
        });
        Ok(read.await?)
    }

    async fn write(
        &self,
        ask: StateAsk,
        parameters: StateParameters,
        request: Request,
    ) -> HttpResult {
        let states = &self.0.states;
        let _place = place(&self.0.uploads).await?;
        let content = match parameters.restore {
            None => self.upload(request).await?,
            Some(number) => self.old(&ask.name, number).await?,
        };
        if parameters.id.is_none() && ask.claim.is_none() && states.cluster().is_some() {
            return Err(StateRefusal::TokenRequired { lock: ask.lock }.into());
        }
        let (id, at_unix_ms) = (parameters.id, wall_clock());
        let written = states.blocking(move |states| {
            let head = document::read(&content).map_err(StateError::Malformed)?;
            // What is refused anyway costs no write.
            let may = lookup::may_write(&states.engine, &ask, id.as_deref(), &head);
            may.map_err(StateError::Engine)?.map_err(StateError::Refused)?;
            let file = states.write_file(&content)?;
            let (bytes, md5) = (content.len() as u64, Sum::of(&content).hex());
            let new = NewVersion { file, bytes, md5, head, at_unix_ms };
            let done = super::ledger::change(&states.engine, |turn| {
                turn.write(&ask, id.as_deref(), &new, &states.limits)
            });
            match done.map_err(StateError::Engine)? {
                Ok(Written { version, serial, unused }) => {
                    states.files.remove(&unused);
                    Ok(WrittenAnswer { version, serial })
                }
                Err(no) => {
                    states.files.remove(&[file]);
                    Err(StateError::Refused(no))
                }
            }
        });
        Ok(object(&written.await?))
    }

    /// Reads the state in a body.
    async fn upload(&self, request: Request) -> Result<Bytes, ErrorAnswer> {
        let most = self.0.states.limits.bytes_max;
        let (head, body) = request.into_parts();
        let said =
            head.headers.get(CONTENT_LENGTH).and_then(|said| said.to_str().ok()?.parse().ok());
        if said.is_some_and(|said: usize| said > most) {
            return Err(ErrorAnswer::new(
                Reason::TooLarge,
                format!("a state has at most {most} bytes"),
            ));
        }
        let sum = head.headers.get(CONTENT_MD5).cloned();
        let content = whole(body, most, TRANSFER).await?;
        if let Some(sum) = sum
            && sum.as_bytes() != Sum::of(&content).header().as_bytes()
        {
            let message = "the body does not have the sum that Content-MD5 says";
            return Err(ErrorAnswer::new(Reason::DigestMismatch, message));
        }
        Ok(content)
    }

    /// Reads an old version, with the serial that follows the newest one: a writer that has read the newest version
    /// must not overwrite what was restored.
    async fn old(&self, name: &str, number: u64) -> Result<Bytes, ErrorAnswer> {
        let (_, content) = self.content(name, Some(number)).await?;
        let of = name.to_owned();
        let newest = self.0.states.read(move |engine| lookup::version(engine, &of, None)).await?;
        let serial = newest.map_or(0, |(_, newest)| newest.serial).saturating_add(1);
        document::with_serial(&content, serial)
            .map_err(|why| ErrorAnswer::new(Reason::Malformed, why))
    }

    async fn delete(&self, ask: StateAsk, id: Option<String>) -> HttpResult {
        let states = &self.0.states;
        if id.is_none() && ask.claim.is_none() && states.cluster().is_some() {
            return Err(StateRefusal::TokenRequired { lock: ask.lock }.into());
        }
        let at = wall_clock();
        let done =
            states.change(move |turn, limits| turn.delete(&ask, id.as_deref(), at, limits)).await;
        let deleted = match done {
            Ok(unused) => {
                states.files.remove(&unused);
                true
            }
            // A repetition, or there was never one.
            Err(StateError::Refused(StateRefusal::NotFound)) => false,
            Err(error) => return Err(error.into()),
        };
        Ok(object(&DeletedAnswer { deleted }))
    }

    async fn lock(&self, mut ask: StateAsk, request: Request) -> HttpResult {
        let (info, text) =
            lock_info(request).await?.ok_or_else(|| no_info("a lock needs an info"))?;
        if info.id == ELSEWHERE {
            return Err(no_info("this ID stands for holders that are no clients of the store"));
        }
        let states = &self.0.states;
        let (mut by, mut hold) = (HeldBy::Store, None);
        if ask.claim.is_some() {
            by = HeldBy::Client;
        } else if let Some(cluster) = states.cluster() {
            let of = ask.name.clone();
            let row = states.read(move |engine| lookup::row(engine, &of)).await?;
            if let Some(answer) = already(row.as_ref(), &ask, &info.id) {
                return answer;
            }
            let note = note(&ask.name, &info);
            match cluster.acquire(&ask.lock, &note).await {
                Ok(held) => {
                    ask.claim = Some(claim_of(&*held));
                    (by, hold) = (HeldBy::Cluster, Some(held));
                }
                Err(no) => return self.not_granted(&ask, &info.id, no).await,
            }
        }
        let (mine, id) = (ask.clone(), info.id.clone());
        let done =
            states.change(move |turn, limits| turn.lock(&mine, &id, &text, by, limits)).await;
        match (done, hold) {
            (Ok(()), Some(hold)) => {
                let StateAsk { name, lock, .. } = ask;
                let of = KeptFor { name, lock, id: info.id, who: info.who };
                states.keepers.keep(states, of, Some(hold));
            }
            (Ok(()), None) => {}
            (Err(error), hold) => {
                if let Some(hold) = hold {
                    hold.release().await;
                }
                return locked(error);
            }
        }
        Ok(json(StatusCode::OK, "{}"))
    }

    /// Answers a request whose lock was not granted by the cluster.
    async fn not_granted(&self, ask: &StateAsk, id: &str, no: LockRefused) -> HttpResult {
        // The holder may be this store, for this client or another one.
        let of = ask.name.clone();
        let row = self.0.states.read(move |engine| lookup::row(engine, &of)).await?;
        match (row.and_then(|row| row.held), no) {
            (Some(held), _) if held.id == id => Ok(json(StatusCode::OK, "{}")),
            (Some(held), LockRefused::Held { .. }) => {
                locked(StateError::Refused(StateRefusal::Locked(held)))
            }
            (None, LockRefused::Held { client, words }) => {
                let info = ForeignHolder {
                    id: ELSEWHERE,
                    operation: "",
                    info: &words,
                    who: &client,
                    version: "",
                    created: "0001-01-01T00:00:00Z",
                    path: &ask.name,
                };
                let body = serde_json::to_vec(&info).expect("texts are always JSON");
                let said = ErrorAnswer::new(Reason::StateLocked, words.clone());
                Ok(said.with(StatusCode::LOCKED, body.into()))
            }
            (_, LockRefused::Failed(why)) => Err(ErrorAnswer::new(Reason::ClusterUnavailable, why)),
        }
    }

    async fn unlock(&self, ask: StateAsk, request: Request) -> HttpResult {
        let info = lock_info(request).await?.map(|(info, _)| info);
        if info.as_ref().is_some_and(|info| info.id == ELSEWHERE) {
            let message = "the lock is held in the cluster and not by a client of this store: \
                           look at it with `tenure explain`, release it with `tenure force`";
            return Err(ErrorAnswer::new(Reason::StateLocked, message));
        }
        let (name, id) = (ask.name.clone(), info.map(|info| info.id));
        let forced = id.is_none();
        let states = &self.0.states;
        match states.change(move |turn, _| turn.unlock(&ask, id.as_deref())).await {
            Ok(Unlocked::Released(HeldState { id, by, .. })) => {
                if forced {
                    states.tell(&format!(
                        "state `{name}` was unlocked without an id; {id:?} held it"
                    ));
                }
                if by == HeldBy::Cluster {
                    states.keepers.release(&name, &id).await;
                }
                Ok(json(StatusCode::OK, "{}"))
            }
            Ok(Unlocked::NotHeld) => Ok(json(StatusCode::OK, "{}")),
            Err(error) => locked(error),
        }
    }
}

/// Answers a lock request without the cluster, if the row decides it.
fn already(row: Option<&StateRow>, ask: &StateAsk, id: &str) -> Option<HttpResult> {
    let row = row?;
    if row.lock != ask.lock {
        return Some(Err(StateRefusal::OtherLock { lock: row.lock.clone() }.into()));
    }
    match row.held.as_ref()? {
        held if held.id == id => Some(Ok(json(StatusCode::OK, "{}"))),
        // The cluster knows whether that client still holds it.
        held if held.by == HeldBy::Client => None,
        held => Some(locked(StateError::Refused(StateRefusal::Locked(held.clone())))),
    }
}

/// Answers a lock or unlock that was refused: with the info of the holder, if there is one.
fn locked(error: StateError) -> HttpResult {
    match error {
        StateError::Refused(StateRefusal::Locked(held)) => {
            let body = Body::from(held.info.clone());
            Ok(ErrorAnswer::from(StateRefusal::Locked(held)).with(StatusCode::LOCKED, body))
        }
        other => Err(other.into()),
    }
}

/// Reads the info of a lock. `None` if the body is empty: `force-unlock` of Terraform 1.11 sends none.
async fn lock_info(request: Request) -> Result<Option<(LockInfo, String)>, ErrorAnswer> {
    let body = whole(request.into_body(), INFO_BYTES_MAX, BODY).await?;
    if body.is_empty() {
        return Ok(None);
    }
    let info: LockInfo =
        serde_json::from_slice(&body).map_err(|error| no_info(&error.to_string()))?;
    if !(1..=ID_BYTES_MAX).contains(&info.id.len()) {
        return Err(no_info(&format!("an ID has 1 to {ID_BYTES_MAX} bytes")));
    }
    let text = String::from_utf8(body.into()).map_err(|error| no_info(&error.to_string()))?;
    Ok(Some((info, text)))
}

/// What the cluster shows with the lock: at most 256 characters.
fn note(name: &str, LockInfo { operation, who, .. }: &LockInfo) -> String {
    format!("state {name}: {operation} by {who}").chars().take(256).collect()
}

fn no_info(why: &str) -> ErrorAnswer {
    ErrorAnswer::new(Reason::Malformed, format!("the info of the lock: {why}"))
}
