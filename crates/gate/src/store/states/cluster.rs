//! Holds the locks of states at a cluster, for clients that cannot keep a lease alive themselves.
//!
//! Terraform locks a state, works for minutes, and sends nothing meanwhile. So the store keeps a lease for it until it
//! unlocks the state. If the store loses the lease or is started again, it acquires the lock again for the same client.
//! Until then that client's writes are judged by the token that it has: they are accepted as long as no later holder of
//! the lock was seen.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_fence::{Claim, Token};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::answer::ErrorAnswer;

use super::States;

/// How long the cluster may take to answer a request for a lock.
const ACQUIRE: Duration = Duration::from_secs(20);
/// How many different problems are reported while one lock is acquired again.
const TOLD_MAX: usize = 8;
/// The pause between two attempts to acquire a lock again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long an unlock waits until the cluster knows.
const RELEASE: Duration = Duration::from_secs(5);

/// A future that a trait returns.
pub type StateFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A cluster whose locks guard states.
pub trait StateCluster: Send + Sync {
    /// Acquires a lock without waiting for it. The note is shown with the lock.
    fn acquire<'a>(
        &'a self,
        lock: &'a str,
        note: &'a str,
    ) -> StateFuture<'a, Result<Box<dyn StateHold>, LockRefused>>;
}

/// A lock that the store holds at the cluster.
///
/// Dropping it must not release the lock: a store that stops drops it while the work of its client goes on. The lock
/// then ends with its lease, and the store acquires it again when it is back.
pub trait StateHold: Send + Sync {
    /// The token of the grant.
    fn token(&self) -> Token;
    /// Returns once the lock is lost.
    fn lost(&self) -> StateFuture<'_, ()>;
    /// Releases the lock, or reports that the work has stopped, if the lock is lost.
    fn release(self: Box<Self>) -> StateFuture<'static, ()>;
}

/// Why a lock was not granted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockRefused {
    /// Another client holds it.
    Held {
        /// Its name; empty if it is not known.
        client: String,
        /// A sentence about it.
        words: String,
    },
    /// The cluster refused, or did not answer.
    Failed(String),
}

/// The locks that the store keeps, by state and id. Each has a task that owns it.
#[derive(Default)]
pub(super) struct LockTasks(Mutex<LockTaskMap>);

type LockTaskMap = BTreeMap<(String, String), LockTask>;

struct LockTask {
    release: oneshot::Sender<()>,
    done: JoinHandle<()>,
}

/// The state and the holder for which a lock is kept.
#[derive(Clone)]
pub(super) struct KeptFor {
    pub(super) name: String,
    pub(super) lock: String,
    pub(super) id: String,
    /// What the cluster shows with the lock.
    pub(super) note: String,
}

impl LockTasks {
    /// Keeps a lock until it is released. Without a hold, acquires it first.
    pub(super) fn start(
        &self,
        states: &Arc<States>,
        of: KeptFor,
        hold: Option<Box<dyn StateHold>>,
    ) {
        let (release, released) = oneshot::channel();
        let key = (of.name.clone(), of.id.clone());
        let done = tokio::spawn(keep(Arc::clone(states), of, hold, released));
        let mut tasks = self.lock();
        // Remove tasks that have ended by themselves.
        tasks.retain(|_, task| !task.done.is_finished());
        // Dropping an earlier task for the same client ends it.
        tasks.insert(key, LockTask { release, done });
    }

    /// Releases the lock of a state, and waits until the cluster knows, for a short time.
    pub(super) async fn release(&self, name: &str, id: &str) {
        let task = self.lock().remove(&(name.to_owned(), id.to_owned()));
        let Some(LockTask { release, done }) = task else { return };
        if release.send(()).is_ok() {
            // A lock that is not released in time is released by the task, or ends with its lease.
            let _ = timeout(RELEASE, done).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, LockTaskMap> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps one lock: acquires it again when it is lost, until it is released or another client holds the state.
async fn keep(
    states: Arc<States>,
    of: KeptFor,
    mut hold: Option<Box<dyn StateHold>>,
    mut released: oneshot::Receiver<()>,
) {
    loop {
        let held = match hold.take() {
            Some(held) => held,
            None => match regain(&states, &of, &mut released).await {
                Some(held) => held,
                None => return,
            },
        };
        let is_lost = tokio::select! {
            () = held.lost() => true,
            _ = &mut released => false,
        };
        held.release().await;
        if !is_lost {
            return;
        }
        let KeptFor { name, lock, .. } = &of;
        states.tell(&format!("lock `{lock}` of state `{name}` is lost; acquiring it again"));
    }
}

/// Acquires the lock again. Returns `None` if it is to be released, or the state is no longer held for this client.
async fn regain(
    states: &Arc<States>,
    of: &KeptFor,
    released: &mut oneshot::Receiver<()>,
) -> Option<Box<dyn StateHold>> {
    let KeptFor { name, lock, id, note } = of;
    let mut told = BTreeSet::new();
    loop {
        let acquired = tokio::select! {
            _ = &mut *released => return None,
            acquired = acquire(states.cluster()?, lock, note) => acquired,
        };
        // From here on nothing is given up before the lock is in the row, or released.
        let (kind, problem) = match acquired {
            Ok(held) => {
                let (claim, of, by) = (Claim::new(held.token()), name.clone(), id.clone());
                match states.change(move |transaction, _| transaction.regain(&of, &by, claim)).await
                {
                    Ok(true) => {
                        states.tell(&format!("lock `{lock}` of state `{name}` is held again"));
                        return Some(held);
                    }
                    Ok(false) => {
                        held.release().await;
                        states.tell(&format!("state `{name}` is no longer locked under id {id:?}"));
                        return None;
                    }
                    Err(error) => {
                        held.release().await;
                        let said = ErrorAnswer::from(error).message;
                        (said.clone(), said)
                    }
                }
            }
            // The words differ each time: they say for how long.
            Err(LockRefused::Held { words, .. }) => ("held".to_owned(), words),
            Err(LockRefused::Failed(why)) => (why.clone(), why),
        };
        if told.len() < TOLD_MAX && told.insert(kind) {
            states.tell(&format!(
                "lock `{lock}` of state `{name}` cannot be acquired again yet: {problem}"
            ));
        }
        tokio::select! {
            _ = &mut *released => return None,
            () = sleep(AGAIN) => {}
        }
    }
}

/// Acquires a lock, in bounded time.
pub(super) async fn acquire(
    cluster: &Arc<dyn StateCluster>,
    lock: &str,
    note: &str,
) -> Result<Box<dyn StateHold>, LockRefused> {
    let late = |_| Err(LockRefused::Failed(format!("no answer within {ACQUIRE:?}")));
    timeout(ACQUIRE, cluster.acquire(lock, note)).await.unwrap_or_else(late)
}
