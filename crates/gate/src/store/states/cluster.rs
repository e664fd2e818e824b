//! Holds the locks of states at a cluster, for clients that cannot keep a lease alive themselves.
//!
//! Terraform locks a state, works for minutes, and sends nothing meanwhile. So the store keeps a lease for it until it
//! unlocks the state. If the store loses the lease or is started again, it acquires the lock again for the same client.
//! Until then that client's writes are judged by the token that it has: they are accepted as long as no later holder of
//! the lock was seen.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_fence::{Claim, Token};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::States;

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
pub trait StateHold: Send + Sync {
    /// The token of the grant.
    fn token(&self) -> Token;
    /// Returns once the lock is lost.
    fn lost(&self) -> StateFuture<'_, ()>;
    /// Releases the lock.
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
pub(super) struct Keepers(Mutex<KeeperMap>);

type KeeperMap = BTreeMap<(String, String), Keeper>;

struct Keeper {
    release: oneshot::Sender<()>,
    done: JoinHandle<()>,
}

/// The state and the holder for which a lock is kept.
#[derive(Clone)]
pub(super) struct KeptFor {
    pub(super) name: String,
    pub(super) lock: String,
    pub(super) id: String,
    pub(super) who: String,
}

impl Keepers {
    /// Keeps a lock until it is released. Without a hold, acquires it first.
    pub(super) fn keep(&self, states: &Arc<States>, of: KeptFor, hold: Option<Box<dyn StateHold>>) {
        let (release, released) = oneshot::channel();
        let key = (of.name.clone(), of.id.clone());
        let done = tokio::spawn(keep(Arc::clone(states), of, hold, released));
        let mut keepers = self.lock();
        // Those that have ended by themselves.
        keepers.retain(|_, keeper| !keeper.done.is_finished());
        // Dropping an earlier keeper for the same client ends it.
        keepers.insert(key, Keeper { release, done });
    }

    /// Releases the lock of a state, and waits until the cluster knows, for a short time.
    pub(super) async fn release(&self, name: &str, id: &str) {
        let keeper = self.lock().remove(&(name.to_owned(), id.to_owned()));
        let Some(Keeper { release, done }) = keeper else { return };
        if release.send(()).is_ok() {
            // A lock that is not released in time is released by the task, or ends with its lease.
            let _ = timeout(RELEASE, done).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, KeeperMap> {
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
        let Some(held) = hold.take() else {
            tokio::select! {
                _ = &mut released => return,
                regained = regain(&states, &of) => match regained {
                    Some(held) => hold = Some(held),
                    None => return,
                },
            }
            continue;
        };
        let is_lost = tokio::select! {
            () = held.lost() => true,
            _ = &mut released => false,
        };
        if !is_lost {
            held.release().await;
            return;
        }
        let KeptFor { name, lock, .. } = &of;
        states.tell(&format!("lock `{lock}` of state `{name}` is lost; acquiring it again"));
    }
}

/// Acquires the lock again. Returns `None` if the state is no longer held for this client.
async fn regain(states: &Arc<States>, of: &KeptFor) -> Option<Box<dyn StateHold>> {
    loop {
        if let Some(cluster) = states.cluster()
            && let Ok(held) = cluster.acquire(&of.lock, &of.who).await
        {
            let claim = Claim::new(held.token());
            let (name, id) = (of.name.clone(), of.id.clone());
            let kept = states.change(move |turn, _| turn.regain(&name, &id, claim)).await;
            if matches!(kept, Ok(true)) {
                states.tell(&format!("lock `{}` of state `{}` is held again", of.lock, of.name));
                return Some(held);
            }
            held.release().await;
            if matches!(kept, Ok(false)) {
                return None;
            }
        }
        sleep(AGAIN).await;
    }
}
