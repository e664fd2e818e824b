//! Admits requests so that no request with an older token runs beside them.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use tenure_types::Token;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard};
use tokio::time::{Instant, timeout_at};

use crate::claim::{Claim, Mode};
use crate::rule::{Floor, Refused, Touch};

use super::keep::Keep;

/// Admits requests to a resource without transactions. It raises the floor first, durably, and then waits until all
/// requests with lower tokens have ended.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let dir = tempfile::tempdir().unwrap();
/// use tenure_fence::http::{FloorFile, Turnstile};
/// use tenure_fence::{Claim, Token, Touch};
///
/// let floor = FloorFile::open(dir.path().join("fence"), "ledger").unwrap();
/// let turnstile = Turnstile::new(floor, std::time::Duration::from_secs(5)).unwrap();
/// let entered = turnstile.enter(Claim::new(Token::from_u64(7).unwrap()), Touch::Write).await.unwrap();
/// // … the work …
/// drop(entered);
/// assert!(turnstile.enter(Claim::new(Token::from_u64(6).unwrap()), Touch::Write).await.is_err());
/// # });
/// ```
#[derive(Clone)]
pub struct Turnstile {
    shared: Arc<TurnstileShared>,
    /// Held while the floor changes or a request is admitted.
    state: Arc<Mutex<TurnstileState>>,
    wait: Duration,
}

struct TurnstileState {
    floor: Floor,
    keep: Box<dyn Keep>,
}

#[derive(Default)]
struct TurnstileShared {
    inside: StdMutex<RequestsInside>,
    /// Notified whenever a request has ended.
    ended: Notify,
}

/// How many requests run under each token, exclusive and shared.
#[derive(Default)]
struct RequestsInside(BTreeMap<Token, [usize; 2]>);

/// Why a request was not admitted. Nothing was done on its behalf, except that the floor may have risen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Denied {
    /// The fence refused the claim.
    #[error("refused by the fence")]
    Refused(#[source] Refused),
    /// Requests with lower tokens have not ended in time. The floor has risen, so nothing lower is admitted any more.
    #[error("earlier requests have not ended within {0:?}")]
    Busy(Duration),
    /// The floor could not be stored.
    #[error("the highest token seen could not be stored")]
    Keep(#[source] io::Error),
}

/// An admitted request. Dropping it declares that the work has ended.
pub struct Entered {
    shared: Arc<TurnstileShared>,
    claim: Claim,
}

impl Turnstile {
    /// Creates a turnstile that continues from the stored floor. `wait` bounds how long a request waits for others.
    pub fn new(mut keep: impl Keep, wait: Duration) -> io::Result<Self> {
        let floor = keep.load()?;
        let state = TurnstileState { floor, keep: Box::new(keep) };
        Ok(Self { shared: Arc::default(), state: Arc::new(Mutex::new(state)), wait })
    }

    /// Admits a claim, once all work with lower tokens that it must not run beside has ended.
    pub async fn enter(&self, claim: Claim, touch: Touch) -> Result<Entered, Denied> {
        let until = Instant::now() + self.wait;
        let busy = |_| Denied::Busy(self.wait);
        loop {
            let mut ended = pin!(self.shared.ended.notified());
            // Subscribed: from here on no end is missed.
            ended.as_mut().enable();
            let lock = Arc::clone(&self.state).lock_owned();
            let mut state = timeout_at(until, lock).await.map_err(busy)?;
            let clear = !self.shared.inside().has_before(claim);
            // A request that still has to wait must not use its token up, but must keep lower ones out.
            let touch = if clear { touch } else { Touch::Raise };
            let next = state.floor.admit(claim, touch).map_err(Denied::Refused)?;
            if next != state.floor {
                state = kept(state, next).await?;
            }
            if clear {
                self.shared.inside().add(claim);
                return Ok(Entered { shared: Arc::clone(&self.shared), claim });
            }
            drop(state);
            timeout_at(until, ended).await.map_err(busy)?;
        }
    }

    /// Raises the floor, right after the lock was acquired, and waits until nothing older runs.
    pub async fn raise(&self, claim: Claim) -> Result<(), Denied> {
        self.enter(claim, Touch::Raise).await.map(drop)
    }

    /// Returns the current floor.
    pub async fn floor(&self) -> Floor {
        self.state.lock().await.floor
    }
}

/// Stores a floor, then puts it into effect. It runs on a blocking thread that owns the state: if the caller goes away
/// meanwhile, this floor must not overwrite a later one.
async fn kept(
    mut state: OwnedMutexGuard<TurnstileState>,
    next: Floor,
) -> Result<OwnedMutexGuard<TurnstileState>, Denied> {
    let keeping = tokio::task::spawn_blocking(move || {
        state.keep.keep(next)?;
        state.floor = next;
        Ok(state)
    });
    keeping.await.map_err(io::Error::other).and_then(|kept| kept).map_err(Denied::Keep)
}

impl TurnstileShared {
    fn inside(&self) -> std::sync::MutexGuard<'_, RequestsInside> {
        // The counters cannot be left half changed, so a poisoned lock is safe to use.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestsInside {
    /// Whether a request with a lower token runs that this claim must not run beside.
    fn has_before(&self, claim: Claim) -> bool {
        let mut before = self.0.range(..claim.token);
        match claim.mode {
            Mode::Exclusive => before.next().is_some(),
            Mode::Shared => before.any(|(_, [exclusive, _])| *exclusive > 0),
        }
    }

    fn add(&mut self, claim: Claim) {
        self.0.entry(claim.token).or_default()[column(claim.mode)] += 1;
    }

    fn remove(&mut self, claim: Claim) {
        if let Some(count) = self.0.get_mut(&claim.token) {
            count[column(claim.mode)] -= 1;
            if *count == [0, 0] {
                self.0.remove(&claim.token);
            }
        }
    }
}

fn column(mode: Mode) -> usize {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared => 1,
    }
}

impl Entered {
    /// Returns the admitted claim.
    pub fn claim(&self) -> Claim {
        self.claim
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.shared.inside().remove(self.claim);
        self.shared.ended.notify_waiters();
    }
}

impl std::fmt::Debug for Turnstile {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Turnstile").field("wait", &self.wait).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Entered {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Entered").field("claim", &self.claim).finish_non_exhaustive()
    }
}
