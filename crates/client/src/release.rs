//! Releases the locks of a guard, and continues in the background if the caller does not wait.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tenure_types::Token;
use tenure_wire::v1;
use tracing::Instrument;
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::clock;
use crate::error::Error;
use crate::guard::{Guard, GuardState};
use crate::held_lease::HeldLease;
use crate::lease_state::{Cause, ClockReading, Lost};
use crate::local_queue::LocalPermits;
use crate::response_slot::Response;
use crate::shared::{ClientShared, SentRequest};

impl Guard {
    /// Releases the lock and waits until the cluster has acknowledged it. The caller must have stopped its work. While
    /// other guards of the same grant exist, only this guard ends and the lock stays held.
    ///
    /// If the lock is lost, this returns [`Error::Lost`] at once, and the client tells the cluster in the background
    /// that the work has stopped. [`Client::close`](crate::Client::close) waits for that.
    ///
    /// ```no_run
    /// # async fn example(guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// guard.release().await
    /// # }
    /// ```
    pub async fn release(mut self) -> Result<(), Error> {
        let now = clock::read();
        if let Err(lost) = self.checked_at(now) {
            // Dropping the guard tells the cluster.
            return Err(Error::Lost(lost));
        }
        let inner = self.inner.take().expect("a guard is released once");
        match Arc::into_inner(inner) {
            Some(last) if !last.own && self.locks.len() == 1 => {
                let token = self.locks[0].token;
                let span = tracing::debug_span!("release", ?token);
                if span.is_disabled() {
                    last.release(token, now).await
                } else {
                    Box::pin(last.release(token, now).instrument(span)).await
                }
            }
            Some(last) => {
                let tokens = self.tokens();
                let span = tracing::debug_span!("release", ?tokens);
                last.finishing(tokens, span).await
            }
            None => Ok(()),
        }
    }

    fn tokens(&self) -> Vec<Token> {
        self.locks.iter().map(|lock| lock.token).collect()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take().and_then(Arc::into_inner) {
            drop(inner.finishing(self.tokens(), tracing::Span::none()));
        }
    }
}

type UnfinishedLocks = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// The final requests of a guard. If the caller stops waiting, they continue in the background.
struct Finishing {
    requests: Option<UnfinishedLocks>,
    /// What to send instead if the runtime ends first.
    last: Vec<Command>,
    shared: Arc<ClientShared>,
}

impl Future for Finishing {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(requests) = &mut self.requests else { return Poll::Pending };
        let done = requests.as_mut().poll(context);
        if done.is_ready() {
            self.requests = None;
        }
        done
    }
}

impl Drop for Finishing {
    fn drop(&mut self) {
        if let Some(requests) = self.requests.take() {
            self.shared.clean_up(std::mem::take(&mut self.last), async move {
                match requests.await {
                    // The guard has reported a loss already.
                    Ok(()) | Err(Error::Lost(_)) => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot release a lock; its lease runs out");
                    }
                }
            });
        }
    }
}

/// The release of one lock. If the caller stops waiting, it continues in the background.
struct Releasing {
    held: Arc<HeldLease>,
    token: Token,
    /// The lock's name, until the release is done.
    lock: Option<String>,
    permits: LocalPermits,
    asked: Option<SentRequest>,
}

impl Releasing {
    /// The fast path: waits for an immediate answer without a timer. Returns whether the release is done.
    async fn soon(&mut self) -> bool {
        let Some(lock) = &self.lock else { return true };
        self.asked = self.held.shared.ask_now(self.held.release_request(lock.clone(), self.token));
        let Some((_, on)) = &mut self.asked else { return false };
        let Some(said) = on.soon().await else { return false };
        if let Response::Answer(answer) = &said
            && let Some(Answer::Released(_)) = &answer.result
        {
            self.held.shared.earn();
            self.lock = None;
            self.held.unlisten(self.token);
            return true;
        }
        on.put_back(said);
        false
    }

    /// The slow path: continues the release until it is answered.
    fn finish(&mut self) -> Option<Finishing> {
        let lock = self.lock.take()?;
        let (held, token, asked) = (self.held.clone(), self.token, self.asked.take());
        let (permits, shared) = (std::mem::take(&mut self.permits), held.shared.clone());
        let last = vec![held.release_request(lock.clone(), token)];
        let requests: UnfinishedLocks = Box::pin(async move {
            let done = held.release_asked(lock, token, asked).await;
            held.unlisten(token);
            drop(permits);
            done
        });
        Some(Finishing { requests: Some(requests), last, shared })
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        drop(self.finish());
    }
}

impl GuardState {
    /// Releases a single lock, whose work has stopped and whose lease continues.
    async fn release(self, token: Token, now: ClockReading) -> Result<(), Error> {
        let lock = self.held.with_at(now, |state| state.given_back(token, now));
        let Some(lock) = lock else {
            // The lock was lost just now: there is more to tell the cluster, in the background.
            let lost = self.held.with_at(now, |state| state.check_grant(token, now)).err();
            drop(self.finishing(vec![token], tracing::Span::none()));
            return Err(Error::Lost(lost.unwrap_or_else(|| Lost::from(Cause::Gone))));
        };
        let Self { held, own: _, permits } = self;
        let mut releasing = Releasing { held, token, lock: Some(lock), permits, asked: None };
        if releasing.soon().await {
            return Ok(());
        }
        match releasing.finish() {
            Some(requests) => requests.await,
            None => Ok(()),
        }
    }

    /// Returns the final requests of the guard. Dropping them runs them in the background.
    fn finishing(self, tokens: Vec<Token>, span: tracing::Span) -> Finishing {
        let shared = self.held.shared.clone();
        let last = self.held.end_commands(&tokens, self.own);
        let requests: UnfinishedLocks =
            Box::pin(async move { self.finish(&tokens).await }.instrument(span));
        Finishing { requests: Some(requests), last, shared }
    }

    /// Tells the cluster that the work has stopped, in the way that fits the lease.
    async fn finish(self, tokens: &[Token]) -> Result<(), Error> {
        let Self { held, own, permits } = self;
        let now = clock::read();
        // If the lease is the guard's own and no lock was taken away, one revoke ends everything.
        let whole =
            own && tokens.iter().all(|it| held.with(|state| state.check_grant(*it, now)).is_ok());
        let done = if whole {
            held.with(|state| tokens.iter().for_each(|token| state.stopped(*token)));
            // Before the lease ends: a release is no loss, and nothing is told to stop because of it.
            tokens.iter().for_each(|token| held.unlisten(*token));
            Box::pin(held.revoke()).await
        } else {
            held.farewell(tokens).await
        };
        drop(permits);
        done
    }
}
