//! Changes who holds a lock and how: upgrades a shared hold, and gives a hold to a client that waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_types::{LeaseId, Token};
use tenure_wire::{convert, v1};
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::clock;
use crate::error::{Error, strange};
use crate::guard::Guard;
use crate::wait;

/// A change that was not made, and the guard, which is as it was.
///
/// ```no_run
/// # async fn example(reader: tenure::Guard) -> Result<(), tenure::Error> {
/// use std::time::Duration;
/// match reader.upgrade(Duration::from_secs(5)).await {
///     Ok(writer) => writer.release().await,
///     Err(tenure::StillHeld { guard: Some(reader), .. }) => reader.release().await,
///     Err(still) => Err(still.error),
/// }
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct StillHeld {
    /// The guard; `None` if it is not certain how the lock is held. Then the client gives back what there is.
    pub guard: Option<Guard>,
    /// Why the change was not made.
    pub error: Error,
}

impl StillHeld {
    fn new(guard: Guard, error: Error) -> Self {
        let certain = matches!(
            error,
            Error::Refused(_) | Error::Unavailable | Error::Failed { .. } | Error::Lost(_)
        );
        Self { guard: certain.then_some(guard), error }
    }
}

impl fmt::Display for StillHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl std::error::Error for StillHeld {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}

impl From<StillHeld> for Error {
    fn from(still: StillHeld) -> Self {
        still.error
    }
}

impl Guard {
    /// Turns a shared hold into an exclusive one, under a new token, once there is no other holder. The lock stays held
    /// all the time: shared while this waits, before all others in the queue, and shared still if the wait is over
    /// first. If another holder waits for the same already, this one is refused with
    /// [`Refusal::Deadlock`](crate::Refusal::Deadlock): release the lock then, so that the other one can go on. Needs
    /// feature level 10.
    ///
    /// A hold that is exclusive already stays as it is. If the returned future is dropped, the lock is given back.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let reader = client.lock("index").shared().await?;
    /// let writer = reader.upgrade(std::time::Duration::from_secs(30)).await?;
    /// # writer.release().await }
    /// ```
    pub async fn upgrade(mut self, wait: Duration) -> Result<Self, StillHeld> {
        if let Err(error) = self.only_one() {
            return Err(StillHeld::new(self, error));
        }
        let (held, lock) = (self.held().clone(), self.locks[0].clone());
        match wait::upgrade(&held, &lock, wait).await {
            Ok((locks, at)) => {
                let granted = locks.into_iter().find(|it| it.name == lock.name);
                if let Some(new) = granted.filter(|new| new.token != lock.token) {
                    self.locks[0].token = new.token;
                    held.regranted(lock.token, new.token, at);
                }
                Ok(self)
            }
            Err(error) => Err(StillHeld::new(self, error)),
        }
    }

    /// Gives the hold to the client of another lease, which must wait for this lock alone, in the same mode. It gets
    /// the lock at once, ahead of all others, under the token that this returns; the lock is never free in between. The
    /// caller must have stopped its work. Needs feature level 10.
    ///
    /// If that lease does not wait, this is refused with [`Refusal::NotWaiting`](crate::Refusal::NotWaiting), and the
    /// lock is held as before.
    ///
    /// ```no_run
    /// # async fn stop_work() {}
    /// # async fn example(guard: tenure::Guard, successor: tenure::LeaseId) -> Result<(), tenure::Error> {
    /// stop_work().await;
    /// guard.hand_on(successor).await?;
    /// # Ok(()) }
    /// ```
    pub async fn hand_on(mut self, to: LeaseId) -> Result<Token, StillHeld> {
        if let Err(error) = self.only_one().and_then(|()| self.check()) {
            return Err(StillHeld::new(self, error));
        }
        let (held, lock) = (self.held().clone(), self.locks[0].clone());
        let command = Command::HandOn(v1::HandOnRequest {
            lock: lock.name,
            lease_slot: held.handle.slot,
            lease_generation: held.handle.generation,
            token: lock.token.get(),
            to: convert::lease(to),
            ..Default::default()
        });
        let token = match held.numbered(command).await {
            Ok(Answer::HandedOn(it)) => Token::from_u64(it.token),
            Ok(_) => None,
            Err(error) => return Err(StillHeld::new(self, error)),
        };
        let now = clock::read();
        held.with_at(now, |state| state.given_back(lock.token, now));
        held.unlisten(lock.token);
        // There is nothing to release any more, except a lease that existed for this lock alone.
        self.locks.clear();
        token.ok_or_else(|| StillHeld { guard: None, error: strange() })
    }

    /// Checks that this is the only guard of its grant and that it stands for one lock.
    fn only_one(&self) -> Result<(), Error> {
        let failed = |reason: &str, message: &str| {
            Err(Error::Failed { reason: reason.to_owned(), message: message.to_owned() })
        };
        if self.inner.as_ref().is_some_and(|inner| Arc::strong_count(inner) > 1) {
            return failed("GUARD_SHARED", "there are other guards of the same hold");
        }
        if self.locks.len() != 1 {
            return failed("SEVERAL_LOCKS", "the guard stands for several locks");
        }
        Ok(())
    }
}
