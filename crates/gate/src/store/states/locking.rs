//! Implements `LOCK` and `UNLOCK`: the row of the state, and the lock at the cluster, change together.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use http::StatusCode;
use tokio::time::timeout;

use crate::answer::{ErrorAnswer, json};
use crate::reason::Reason;
use crate::store::http::{HttpResult, whole};

use super::cluster::{KeptFor, LockRefused, StateCluster, acquire};
use super::forms::ForeignHolder;
use super::http::StatesApi;
use super::ledger::{StateLockRequest, StateRefusal, Unlocked};
use super::row::{HeldBy, HeldState, LockInfo, StateRow};
use super::{StateError, claim_of, lookup};

/// The longest info of a lock. Terraform's has some hundred bytes.
const INFO_BYTES_MAX: usize = 16 * 1024;
/// The longest id of a lock. Terraform draws a UUID.
const ID_BYTES_MAX: usize = 256;
/// How much of what a client says about itself the cluster shows with the lock. A note may have 4,096 bytes there.
const NOTE_CHARS_MAX: usize = 256;
/// How long a short body may take.
const BODY: Duration = Duration::from_secs(30);
/// How long a request to lock a state waits for those before it, each of which may wait for the cluster.
const LOCK_WAIT: Duration = Duration::from_secs(30);
/// How long a request to unlock a state waits for those before it, until it goes ahead of them.
const UNLOCK_WAIT: Duration = Duration::from_secs(2);
/// The id of a holder that did not lock the state here, and cannot be unlocked here.
const ELSEWHERE: &str = "held-in-the-cluster";

impl StatesApi {
    pub(super) async fn lock(&self, ask: StateLockRequest, request: Request) -> HttpResult {
        let (info, text) =
            lock_info(request).await?.ok_or_else(|| no_info("a lock needs an info"))?;
        if info.id == ELSEWHERE {
            return Err(no_info("this ID stands for holders that are no clients of the store"));
        }
        let by = match (ask.claim, self.states().cluster()) {
            (None, Some(cluster)) => return self.lock_at(cluster, ask, info, text).await,
            (None, None) => HeldBy::Store,
            (Some(_), _) => HeldBy::Client,
        };
        let id = info.id;
        let lock = self
            .states()
            .change(move |transaction, limits| transaction.lock(&ask, &id, &text, by, limits));
        lock.await.map_or_else(locked, |()| Ok(json(StatusCode::OK, "{}")))
    }

    /// Locks a state with a lock that the store holds at the cluster.
    async fn lock_at(
        &self,
        cluster: &Arc<dyn StateCluster>,
        mut ask: StateLockRequest,
        info: LockInfo,
        text: String,
    ) -> HttpResult {
        let states = self.states();
        let alone = timeout(LOCK_WAIT, states.mutexes.of(&ask.name).lock_owned()).await;
        let _alone = alone.map_err(|_| {
            let message = "other requests for this state still wait for the cluster";
            ErrorAnswer::new(Reason::ClusterUnavailable, message)
        })?;
        let of = ask.name.clone();
        let row = states.read(move |engine| lookup::row(engine, &of)).await?;
        if let Some(answer) = already(row.as_ref(), &ask, &info.id) {
            return answer;
        }
        let note = note(&ask.name, &info);
        let hold = match acquire(cluster, &ask.lock, &note).await {
            Ok(hold) => hold,
            Err(no) => return self.not_granted(&ask, &info.id, no).await,
        };
        ask.claim = Some(claim_of(&*hold));
        let (mine, id) = (ask.clone(), info.id.clone());
        let lock = states.change(move |transaction, limits| {
            transaction.lock(&mine, &id, &text, HeldBy::Cluster, limits)
        });
        if let Err(error) = lock.await {
            hold.release().await;
            return locked(error);
        }
        let StateLockRequest { name, lock, .. } = ask;
        states.lock_tasks.start(states, KeptFor { name, lock, id: info.id, note }, Some(hold));
        Ok(json(StatusCode::OK, "{}"))
    }

    /// Answers a request whose lock was not granted by the cluster.
    async fn not_granted(&self, ask: &StateLockRequest, id: &str, no: LockRefused) -> HttpResult {
        // The holder may be this store, for this client or another one.
        let of = ask.name.clone();
        let row = self.states().read(move |engine| lookup::row(engine, &of)).await?;
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

    pub(super) async fn unlock(&self, ask: StateLockRequest, request: Request) -> HttpResult {
        let info = lock_info(request).await?.map(|(info, _)| info);
        if info.as_ref().is_some_and(|info| info.id == ELSEWHERE) {
            let message = "the lock is held in the cluster and not by a client of this store: \
                           look at it with `tenure explain`, release it with `tenure force`";
            return Err(ErrorAnswer::new(Reason::StateLocked, message));
        }
        let (name, id) = (ask.name.clone(), info.map(|info| info.id));
        let (states, forced) = (self.states(), id.is_none());
        // A LOCK that waits for the cluster has not written its row. So what it waits for does not concern this
        // request, which goes ahead after a short time.
        let mut mutex = pin!(states.mutexes.of(&name).lock_owned());
        let early = timeout(UNLOCK_WAIT, &mut mutex).await.ok();
        match states.change(move |transaction, _| transaction.unlock(&ask, id.as_deref())).await {
            Ok(Unlocked::Released(HeldState { id, by, .. })) => {
                if forced {
                    states.tell(&format!(
                        "state `{name}` was unlocked without an id; {id:?} held it"
                    ));
                }
                if by == HeldBy::Cluster {
                    // A LOCK that has just written this row starts the task that keeps the lock, then unlocks the
                    // mutex.
                    let _alone = match early {
                        Some(alone) => alone,
                        None => mutex.await,
                    };
                    states.lock_tasks.release(&name, &id).await;
                }
                Ok(json(StatusCode::OK, "{}"))
            }
            Ok(Unlocked::NotHeld) => Ok(json(StatusCode::OK, "{}")),
            Err(error) => locked(error),
        }
    }
}

/// Answers a lock request without the cluster, if the row decides it.
fn already(row: Option<&StateRow>, ask: &StateLockRequest, id: &str) -> Option<HttpResult> {
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

/// What the cluster shows with the lock.
pub(super) fn note(name: &str, LockInfo { operation, who, .. }: &LockInfo) -> String {
    format!("state {name}: {operation} by {who}").chars().take(NOTE_CHARS_MAX).collect()
}

fn no_info(why: &str) -> ErrorAnswer {
    ErrorAnswer::new(Reason::Malformed, format!("the info of the lock: {why}"))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Mutex;
    use std::task::Poll;

    use tenure_fence::Token;
    use tenure_fence::http::BareTokens;
    use tokio::time::sleep;

    use super::super::cluster::{StateFuture, StateHold};
    use super::super::{StateAccess, StateParts, States};
    use super::*;
    use crate::store::engine::Engine;
    use crate::trust::TokenVerifier;

    /// A cluster with one lock, which is held or free.
    #[derive(Clone, Default)]
    struct OneLock(Arc<Mutex<bool>>);

    impl OneLock {
        fn is_held(&self) -> bool {
            *self.0.lock().unwrap()
        }
    }

    impl StateCluster for OneLock {
        fn acquire<'a>(
            &'a self,
            _: &'a str,
            _: &'a str,
        ) -> StateFuture<'a, Result<Box<dyn StateHold>, LockRefused>> {
            *self.0.lock().unwrap() = true;
            let hold = Box::new(self.clone()) as Box<dyn StateHold>;
            Box::pin(async move { Ok(hold) })
        }
    }

    impl StateHold for OneLock {
        fn token(&self) -> Token {
            Token::from_u64(100).unwrap()
        }

        fn lost(&self) -> StateFuture<'_, ()> {
            Box::pin(std::future::pending())
        }

        fn release(self: Box<Self>) -> StateFuture<'static, ()> {
            Box::pin(async move { *self.0.lock().unwrap() = false })
        }
    }

    fn api(data: &std::path::Path, cluster: &OneLock) -> StatesApi {
        let parts = StateParts {
            engine: Arc::new(Engine::open(data).unwrap()),
            limits: super::super::StateLimits::default(),
            cluster: Some(Arc::new(cluster.clone())),
            tell: Arc::new(|_| ()),
            end: Arc::default(),
        };
        let (states, _) = States::open(data, parts).unwrap();
        let judge = TokenVerifier::Verify { verify: Arc::new(BareTokens), believes_numbers: true };
        StatesApi::new(states, StateAccess { readers: None, writers: None, judge })
    }

    #[tokio::test(start_paused = true)]
    async fn an_unlock_right_after_the_row_was_written_leaves_no_lock_at_the_cluster() {
        let (dir, cluster) = (tempfile::tempdir().unwrap(), OneLock::default());
        let api = api(dir.path(), &cluster);
        let ask = || StateLockRequest { name: "s".to_owned(), lock: "s".to_owned(), claim: None };
        let request = |body: &'static str| Request::new(Body::from(body));
        let is_locked = || {
            let row = lookup::row(&api.states().engine, "s").unwrap();
            row.is_some_and(|row| row.held.is_some())
        };
        // The LOCK goes on until its row is about to be written, and then gets no time for a while.
        let mut lock = pin!(api.lock(ask(), request(r#"{"ID":"one"}"#)));
        poll_fn(|context| {
            if cluster.is_held() {
                return Poll::Ready(());
            }
            assert!(lock.as_mut().poll(context).is_pending());
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        while !is_locked() {
            sleep(Duration::from_millis(1)).await;
        }
        let mut unlock = pin!(api.unlock(ask(), request("")));
        // The UNLOCK commits, and has the time to release what it finds.
        let early = timeout(UNLOCK_WAIT * 2, &mut unlock).await;
        assert!(!is_locked());
        assert_eq!(lock.await.unwrap().status(), StatusCode::OK);
        match early {
            Ok(unlocked) => assert_eq!(unlocked.unwrap().status(), StatusCode::OK),
            Err(_) => assert_eq!(unlock.await.unwrap().status(), StatusCode::OK),
        }
        sleep(Duration::from_secs(1)).await;
        assert!(!cluster.is_held(), "no client has the state, and no request can release its lock");
    }
}
