//! Implements the calls of the HTTP backend of Terraform and OpenTofu, and those that list, restore and purge versions.
//!
//! `LOCK` and `UNLOCK` are in [`super::locking`].

use std::sync::Arc;

use axum::Router;
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
use super::forms::{
    DeletedAnswer, PurgedAnswer, StateAnswer, StateParameters, StatesAnswer, StatesParameters,
    VersionAnswer, VersionsAnswer, WrittenAnswer,
};
use super::ledger::{
    NewVersion, RemovedVersions, StateLockRequest, StateRefusal, StateTransaction, Written,
};
use super::transfer::{Sum, TRANSFER, TRANSFERS_MAX, place, sent, wall_clock};
use super::{StateError, States, document, ledger, lookup};

/// The maximum number of states in one response.
const LIST_MAX: usize = 1_000;
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
    // The call runs to its end even if the client hangs up. Otherwise a state could be locked while no task holds its
    // lock at the cluster.
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
    let (wanted, verb, takes): (_, _, &[&str]) = match request.method().as_str() {
        "GET" => (StateUse::Read, StateCall::Get, &["version", "versions"]),
        "POST" | "PUT" => (StateUse::Write, StateCall::Write, &["ID", "restore"]),
        "DELETE" if parameters.keep.is_some() => (StateUse::Write, StateCall::Purge, &["keep"]),
        "DELETE" => (StateUse::Write, StateCall::Delete, &["ID"]),
        "LOCK" => (StateUse::Write, StateCall::Lock, &[]),
        "UNLOCK" => (StateUse::Write, StateCall::Unlock, &[]),
        _ => {
            let message = "a state takes GET, POST, DELETE, LOCK and UNLOCK";
            return Err(ErrorAnswer::new(Reason::UnknownVerb, message));
        }
    };
    // A parameter that would be ignored may be what the client cares about: `DELETE …?version=3` deletes all of it.
    if let Some(unused) = parameters.given().find(|given| !takes.contains(given)) {
        let message = format!("{unused} is not for this verb");
        return Err(ErrorAnswer::new(Reason::InvalidField, message));
    }
    let claim = api.0.access.check(request.headers(), &lock, wanted).await?;
    let ask = StateLockRequest { name, lock, claim };
    match verb {
        StateCall::Get => api.get(ask, &parameters).await,
        StateCall::Write => api.write(ask, parameters, request).await,
        StateCall::Delete => api.delete(ask, parameters.id).await,
        StateCall::Purge => api.purge(ask, parameters.keep).await,
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
    Purge,
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
    pub(super) fn states(&self) -> &Arc<States> {
        &self.0.states
    }

    async fn get(&self, ask: StateLockRequest, parameters: &StateParameters) -> HttpResult {
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
        if parameters.versions == Some(true) {
            if parameters.version.is_some() {
                let message = "version is for reading one, and versions for listing all";
                return Err(ErrorAnswer::new(Reason::InvalidField, message));
            }
            let of = ask.name.clone();
            let found = self.0.states.read(move |engine| lookup::versions(engine, &of)).await?;
            let versions = found.into_iter().map(VersionAnswer::from).collect();
            return Ok(object(&VersionsAnswer { versions }));
        }
        let place = place(&self.0.downloads).await?;
        let of = ask.name;
        let version = parameters.version;
        let read = self.0.states.blocking(move |states| content(states, &of, version));
        let (number, content, sum) = read.await?;
        let mut response = json(StatusCode::OK, sent(content, place));
        let headers = response.headers_mut();
        headers.insert(VERSION, HeaderValue::from(number));
        headers.insert(
            CONTENT_MD5,
            HeaderValue::from_str(&sum.header()).expect("base64 is visible text"),
        );
        Ok(response)
    }

    async fn write(
        &self,
        ask: StateLockRequest,
        parameters: StateParameters,
        request: Request,
    ) -> HttpResult {
        let states = &self.0.states;
        let _place = place(&self.0.uploads).await?;
        let (content, said) = match parameters.restore {
            None => self.upload(request).await?,
            Some(number) => {
                let of = ask.name.clone();
                (states.blocking(move |states| old(states, &of, number)).await?, None)
            }
        };
        if parameters.id.is_none() && ask.claim.is_none() && states.cluster().is_some() {
            return Err(StateRefusal::TokenRequired { lock: ask.lock }.into());
        }
        let (id, at_unix_ms) = (parameters.id, wall_clock());
        let written = states.blocking(move |states| {
            let sum = Sum::of(&content);
            if said.is_some_and(|said| said.as_bytes() != sum.header().as_bytes()) {
                return Err(StateError::OtherSum);
            }
            let head = document::read(&content).map_err(StateError::Malformed)?;
            // What is refused anyway costs no write.
            let may = lookup::may_write(&states.engine, &ask, id.as_deref(), &head);
            may.map_err(StateError::Engine)?.map_err(StateError::Refused)?;
            let file = states.write_file(&content)?;
            let (bytes, md5) = (content.len() as u64, sum.hex());
            let new = NewVersion { file, bytes, md5, head, at_unix_ms };
            let done = ledger::change(&states.engine, |transaction| {
                transaction.write(&ask, id.as_deref(), &new, &states.limits)
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

    /// Reads the state in a body, and the sum that it should have.
    async fn upload(&self, request: Request) -> Result<(Bytes, Option<HeaderValue>), ErrorAnswer> {
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
        Ok((whole(body, most, TRANSFER).await?, sum))
    }

    async fn delete(&self, ask: StateLockRequest, id: Option<String>) -> HttpResult {
        let states = &self.0.states;
        if id.is_none() && ask.claim.is_none() && states.cluster().is_some() {
            return Err(StateRefusal::TokenRequired { lock: ask.lock }.into());
        }
        let at = wall_clock();
        let done = states.blocking(move |states| {
            let delete = |transaction: &mut StateTransaction<'_>| {
                transaction.delete(&ask, id.as_deref(), at, &states.limits)
            };
            let unused = ledger::change(&states.engine, delete).map_err(StateError::Engine)?;
            states.files.remove(&unused.map_err(StateError::Refused)?);
            Ok(())
        });
        let deleted = match done.await {
            Ok(()) => true,
            // A repetition, or there was never one.
            Err(StateError::Refused(StateRefusal::NotFound)) => false,
            Err(error) => return Err(error.into()),
        };
        Ok(object(&DeletedAnswer { deleted }))
    }

    /// Removes old versions. It needs no lock, so that there can be room again while an apply waits for it.
    async fn purge(&self, ask: StateLockRequest, keep: Option<u64>) -> HttpResult {
        let keep = keep.filter(|keep| *keep > 0).ok_or_else(|| {
            ErrorAnswer::new(Reason::InvalidField, "keep is from 1: the newest version stays")
        })?;
        let purged = self.0.states.blocking(move |states| {
            let done = ledger::change(&states.engine, |transaction| transaction.purge(&ask, keep));
            let done = done.map_err(StateError::Engine)?.map_err(StateError::Refused)?;
            let RemovedVersions { versions, bytes, unused } = done;
            states.files.remove(&unused);
            Ok(PurgedAnswer { removed: versions, bytes })
        });
        Ok(object(&purged.await?))
    }
}

/// Reads the content of a version, and compares it with its sum.
fn content(
    states: &States,
    name: &str,
    version: Option<u64>,
) -> Result<(u64, Bytes, Sum), StateError> {
    let find = |number| lookup::version(&states.engine, name, number).map_err(StateError::Engine);
    let found = find(version)?.and_then(|(number, row)| row.file.map(|file| (number, row, file)));
    let Some((number, row, file)) = found else {
        return Err(StateError::Refused(StateRefusal::NotFound));
    };
    let content = match states.files.read(file) {
        // The version was removed after its row was read.
        Err(error)
            if error.kind() == std::io::ErrorKind::NotFound && find(Some(number))?.is_none() =>
        {
            return Err(StateError::Refused(StateRefusal::NotFound));
        }
        read => read.map_err(|error| StateError::Disk(error.to_string()))?,
    };
    let sum = Sum::of(&content);
    if sum.hex() != row.md5 {
        return Err(StateError::Disk(format!(
            "version {number} has another MD5 sum than when it was written"
        )));
    }
    Ok((number, Bytes::from(content), sum))
}

/// Reads an old version, with the serial that follows the newest one: a writer that has read the newest version must
/// not overwrite what was restored.
fn old(states: &States, name: &str, number: u64) -> Result<Bytes, StateError> {
    let (_, content, _) = content(states, name, Some(number))?;
    let newest = lookup::version(&states.engine, name, None).map_err(StateError::Engine)?;
    let serial = newest.map_or(0, |(_, newest)| newest.serial).saturating_add(1);
    document::with_serial(&content, serial).map_err(StateError::Malformed)
}
