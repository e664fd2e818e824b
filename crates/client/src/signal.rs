//! Signals the loss of a grant to everything that relies on it, once and permanently.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Notify, watch};

use crate::lease_state::{Lost, Standing};

/// A signal that fires once.
#[derive(Default)]
pub(crate) struct Signal {
    lost: OnceLock<Lost>,
    bell: Notify,
    listeners: Mutex<Listeners>,
}

/// A function to call when the signal fires.
type LossCall = Box<dyn FnOnce(&Lost) + Send>;

/// State that most guards never need; created on demand.
#[derive(Default)]
struct Listeners {
    /// Publishes the standing of the grant, if a caller subscribed to it.
    standing: Option<watch::Sender<Standing>>,
    /// Functions to call when the signal fires.
    calls: Vec<LossCall>,
}

impl Signal {
    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fires the signal. Only the first loss counts; returns whether this is the first.
    pub(crate) fn fire(&self, lost: impl Into<Lost>) -> bool {
        if self.lost.set(lost.into()).is_err() {
            return false;
        }
        self.bell.notify_waiters();
        let Some(lost) = self.lost.get() else { return false };
        let calls = {
            let mut listeners = self.listeners();
            if let Some(standing) = &listeners.standing {
                publish(standing, Standing::Lost(lost.cause()));
            }
            std::mem::take(&mut listeners.calls)
        };
        calls.into_iter().for_each(|call| call(lost));
        true
    }

    pub(crate) fn fired(&self) -> Option<&Lost> {
        self.lost.get()
    }

    /// Calls the function when the signal fires, on the thread that fires it; at once if it has fired.
    pub(crate) fn on_fire(&self, call: LossCall) {
        let mut listeners = self.listeners();
        // The lock is held here and taken by `fire` after the loss is set, so no call is missed.
        match self.fired() {
            Some(lost) => {
                drop(listeners);
                call(lost);
            }
            None => listeners.calls.push(call),
        }
    }

    /// Subscribes to the standing, whose present value is `now`. The caller must prevent changes during this call.
    pub(crate) fn standings(&self, now: Standing) -> watch::Receiver<Standing> {
        let mut listeners = self.listeners();
        listeners.standing.get_or_insert_with(|| watch::Sender::new(now)).subscribe()
    }

    /// Publishes a new standing of the lease, unless the grant is lost already.
    pub(crate) fn stands(&self, standing: Standing) {
        if let Some(sender) = &self.listeners().standing {
            publish(sender, standing);
        }
    }

    /// Ends subscriptions to the standing and drops the functions to call: the grant was released.
    pub(crate) fn close(&self) {
        let over = std::mem::take(&mut *self.listeners());
        drop(over);
    }

    /// Waits until the signal fires, possibly forever.
    pub(crate) async fn wait(&self) -> Lost {
        loop {
            let mut bell = pin!(self.bell.notified());
            // Subscribe before the check, so that a signal in between is not missed.
            bell.as_mut().enable();
            if let Some(lost) = self.fired() {
                return lost.clone();
            }
            bell.await;
        }
    }
}

/// Publishes a standing. A loss is final.
pub(crate) fn publish(sender: &watch::Sender<Standing>, standing: Standing) -> bool {
    sender.send_if_modified(|known| {
        let changed = *known != standing && !matches!(known, Standing::Lost(_));
        if changed {
            *known = standing;
        }
        changed
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::lease_state::Cause;

    #[tokio::test]
    async fn all_who_wait_and_all_who_come_later_hear_the_first_cause() {
        let signal = Arc::new(Signal::default());
        let waiting = (0..3).map(|_| {
            let signal = signal.clone();
            tokio::spawn(async move { signal.wait().await })
        });
        let waiting: Vec<_> = waiting.collect();
        tokio::task::yield_now().await;
        assert_eq!(signal.fired(), None);
        signal.fire(Cause::Forced);
        signal.fire(Cause::Expired);
        for task in waiting {
            assert_eq!(task.await.unwrap(), Cause::Forced);
        }
        assert_eq!(signal.wait().await, Cause::Forced);
    }
}
