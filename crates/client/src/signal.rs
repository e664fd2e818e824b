//! Signals the loss of a grant to everything that relies on it, once and permanently.

use std::pin::pin;
use std::sync::OnceLock;

use tokio::sync::Notify;

use crate::lease_state::Lost;

/// A signal that fires once.
#[derive(Default)]
pub(crate) struct Signal {
    lost: OnceLock<Lost>,
    bell: Notify,
}

impl Signal {
    /// Fires the signal. Only the first loss counts.
    pub(crate) fn fire(&self, lost: impl Into<Lost>) {
        if self.lost.set(lost.into()).is_ok() {
            self.bell.notify_waiters();
        }
    }

    pub(crate) fn fired(&self) -> Option<&Lost> {
        self.lost.get()
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
