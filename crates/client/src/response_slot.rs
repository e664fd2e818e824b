//! Implements the response slot: delivers what arrives about one request to the task that sent it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_wire::v1;

use crate::lease_state::Moment;

/// A message about a request.
#[derive(Debug)]
pub(crate) enum Response {
    Answer(Box<v1::Answer>),
    Granted(v1::Granted),
    WaitEnded(Box<v1::WaitEnded>),
    /// The session is over. The outcome of the request is not known.
    Gone,
}

/// Keeps the messages about one request, in order. Each request has one slot, and slots are reused.
#[derive(Default)]
pub(crate) struct ResponseSlot {
    inner: Mutex<SlotState>,
}

#[derive(Default)]
struct SlotState {
    sent_us: u64,
    /// The first message is kept apart, because most requests receive only one.
    first: Option<Response>,
    more: VecDeque<Response>,
    waker: Option<Waker>,
    answered: bool,
    gone: bool,
    /// Whether the task was told that the answer is late.
    late: bool,
}

impl ResponseSlot {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets the slot for a request that is sent now.
    pub(crate) fn begin(&self, sent_at: Moment) {
        *self.lock() = SlotState { sent_us: sent_at.micros(), ..SlotState::default() };
    }

    /// Cancels the subscription: drops buffered messages and marks the request answered.
    pub(crate) fn end(&self) {
        let over = SlotState { answered: true, ..SlotState::default() };
        let old = std::mem::replace(&mut *self.lock(), over);
        drop(old);
    }

    /// Stores a message, and returns the waker of the waiting task, if there is one.
    #[must_use]
    pub(crate) fn put(&self, said: Response) -> Option<Waker> {
        let mut inner = self.lock();
        inner.answered |= matches!(said, Response::Answer(_));
        match said {
            Response::Gone => inner.gone = true,
            said if inner.first.is_none() => inner.first = Some(said),
            said => inner.more.push_back(said),
        }
        inner.waker.take()
    }

    /// Puts back the message that was taken last, so that it is next again.
    pub(crate) fn put_back(&self, said: Response) {
        let mut inner = self.lock();
        if let Some(second) = inner.first.replace(said) {
            inner.more.push_front(second);
        }
    }

    /// Returns the next message. Once the session is over and every message before that was taken, always returns
    /// `Gone`.
    pub(crate) async fn next(&self) -> Response {
        poll_fn(|context| self.lock().poll(context)).await
    }

    /// Does the same, but returns `None` once the answer is late. Needs no timer of its own.
    pub(crate) async fn soon(&self) -> Option<Response> {
        poll_fn(|context| {
            let mut inner = self.lock();
            match inner.poll(context) {
                Poll::Pending if inner.late => Poll::Ready(None),
                heard => heard.map(Some),
            }
        })
        .await
    }

    /// Marks the request as late if its answer has been owed for `time`, and returns the waker of the waiting task.
    #[must_use]
    pub(crate) fn late_after(&self, time: Duration, now: Moment) -> Option<Waker> {
        let mut inner = self.lock();
        if inner.answered || inner.late || now.since(inner.sent_at()) < time {
            return None;
        }
        inner.late = true;
        inner.waker.take()
    }

    /// When the request was sent.
    pub(crate) fn sent_at(&self) -> Moment {
        self.lock().sent_at()
    }

    /// Since when an answer is owed, if one is.
    pub(crate) fn owed_since(&self) -> Option<Moment> {
        let inner = self.lock();
        (!inner.answered).then(|| inner.sent_at())
    }
}

impl SlotState {
    fn sent_at(&self) -> Moment {
        Moment::from_micros(self.sent_us)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Response> {
        if let Some(said) = self.first.take() {
            self.first = self.more.pop_front();
            return Poll::Ready(said);
        }
        if self.gone {
            return Poll::Ready(Response::Gone);
        }
        match &mut self.waker {
            Some(known) => known.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const AT: Moment = Moment::from_micros(7_000_000);
    const LATE: Duration = Duration::from_secs(1);

    fn put(slot: &ResponseSlot, said: Response) {
        if let Some(waker) = slot.put(said) {
            waker.wake();
        }
    }

    #[tokio::test]
    async fn everything_is_told_in_order_and_then_that_it_is_over() {
        let slot = Arc::new(ResponseSlot::default());
        slot.begin(AT);
        let reader = tokio::spawn({
            let slot = slot.clone();
            async move { (slot.next().await, slot.next().await, slot.next().await) }
        });
        tokio::task::yield_now().await;
        assert_eq!(slot.owed_since(), Some(AT));
        put(&slot, Response::Answer(Box::default()));
        assert_eq!(slot.owed_since(), None);
        put(&slot, Response::Granted(v1::Granted::default()));
        put(&slot, Response::WaitEnded(Box::default()));
        let told = reader.await.unwrap();
        assert!(
            matches!(told, (Response::Answer(_), Response::Granted(_), Response::WaitEnded(_))),
            "{told:?}"
        );
        put(&slot, Response::Gone);
        assert!(matches!(slot.next().await, Response::Gone));
        assert!(matches!(slot.next().await, Response::Gone), "also who asks again is told");
        slot.begin(AT);
        put(&slot, Response::WaitEnded(Box::default()));
        assert!(
            matches!(slot.next().await, Response::WaitEnded(_)),
            "nothing of the last request is left"
        );
    }

    #[tokio::test]
    async fn a_caller_that_expects_an_answer_soon_is_told_that_it_is_late_and_still_gets_it() {
        let slot = Arc::new(ResponseSlot::default());
        slot.begin(AT);
        let reader = tokio::spawn({
            let slot = slot.clone();
            async move { slot.soon().await }
        });
        tokio::task::yield_now().await;
        assert!(slot.late_after(LATE, AT + LATE / 2).is_none(), "it is not late yet");
        slot.late_after(LATE, AT + LATE).expect("a caller waits").wake();
        assert!(reader.await.unwrap().is_none());
        assert!(slot.soon().await.is_none(), "once late, nothing is expected soon any more");
        put(&slot, Response::Answer(Box::default()));
        assert!(matches!(slot.soon().await, Some(Response::Answer(_))));
    }

    #[tokio::test]
    async fn what_is_put_back_is_heard_first() {
        let slot = ResponseSlot::default();
        put(&slot, Response::Answer(Box::default()));
        put(&slot, Response::Granted(v1::Granted::default()));
        put(&slot, Response::WaitEnded(Box::default()));
        let first = slot.next().await;
        slot.put_back(first);
        let told = (slot.next().await, slot.next().await, slot.next().await);
        assert!(
            matches!(told, (Response::Answer(_), Response::Granted(_), Response::WaitEnded(_))),
            "{told:?}"
        );
    }
}
