//! When may a request go through, so that nothing older runs beside it?

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

/// Lets requests through to something that has no transactions: the floor rises first, durably; then one waits until
/// all lower ones have ended.
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
    shared: Arc<Shared>,
    /// Whoever changes the floor or lets somebody in holds it.
    state: Arc<Mutex<State>>,
    wait: Duration,
}

struct State {
    floor: Floor,
    keep: Box<dyn Keep>,
}

#[derive(Default)]
struct Shared {
    inside: StdMutex<Inside>,
    /// Told whenever somebody has ended.
    ended: Notify,
}

/// How many are inside under each token, exclusive and shared.
#[derive(Default)]
struct Inside(BTreeMap<Token, [usize; 2]>);

/// Why somebody was not let in. Nothing was done on its behalf, except that the floor may have risen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Denied {
    /// The fence decided, and the answer is no.
    #[error("refused by the fence")]
    Refused(#[source] Refused),
    /// Those with lower tokens have not ended in time. The floor has risen: nothing lower comes in any more.
    #[error("those that came before have not ended within {0:?}")]
    Busy(Duration),
    /// The floor could not be kept.
    #[error("the floor could not be kept")]
    Keep(#[source] io::Error),
}

/// Somebody who was let in. Dropping it says that the work has ended.
pub struct Entered {
    shared: Arc<Shared>,
    claim: Claim,
}

impl Turnstile {
    /// A turnstile that goes on from the floor that was kept. `wait` bounds how long anybody waits for others.
    pub fn new(mut keep: impl Keep, wait: Duration) -> io::Result<Self> {
        let floor = keep.load()?;
        let state = State { floor, keep: Box::new(keep) };
        Ok(Self { shared: Arc::default(), state: Arc::new(Mutex::new(state)), wait })
    }

    /// Waits for the turn of a claim, until the work of everybody before has ended.
    pub async fn enter(&self, claim: Claim, touch: Touch) -> Result<Entered, Denied> {
        let until = Instant::now() + self.wait;
        let busy = |_| Denied::Busy(self.wait);
        loop {
            let mut ended = pin!(self.shared.ended.notified());
            // From here on no end is missed.
            ended.as_mut().enable();
            let lock = Arc::clone(&self.state).lock_owned();
            let mut state = timeout_at(until, lock).await.map_err(busy)?;
            let clear = !self.shared.inside().has_before(claim);
            // Waiting must not use a token up, but must keep lower ones out.
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

    /// The floor as it is now.
    pub async fn floor(&self) -> Floor {
        self.state.lock().await.floor
    }
}

/// Keeps a floor, then goes by it. On a thread of its own with the state in hand: a caller that goes away meanwhile
/// must not let a later floor be overwritten by this one.
async fn kept(
    mut state: OwnedMutexGuard<State>,
    next: Floor,
) -> Result<OwnedMutexGuard<State>, Denied> {
    let keeping = tokio::task::spawn_blocking(move || {
        state.keep.keep(next)?;
        state.floor = next;
        Ok(state)
    });
    keeping.await.map_err(io::Error::other).and_then(|kept| kept).map_err(Denied::Keep)
}

impl Shared {
    fn inside(&self) -> std::sync::MutexGuard<'_, Inside> {
        // Counting cannot leave it half done.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    /// Whether somebody with a lower token is inside that this claim must not run beside.
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
    /// What was let in.
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
