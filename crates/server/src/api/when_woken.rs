//! Polls a future that seldom becomes ready only when it was woken, not whenever its task is polled.
//!
//! The task of a connection is polled several times for each request. What ends a connection from outside, such as the
//! end of the member, would be polled as often, and each time take the locks of what it waits for.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// A future that is polled when it was woken.
pub(super) struct WhenWoken<F> {
    future: Pin<Box<F>>,
    signal: Arc<WakeSignal>,
    waker: Waker,
}

struct WakeSignal {
    is_woken: AtomicBool,
    task: AtomicWaker,
}

impl Wake for WakeSignal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl<F: Future> WhenWoken<F> {
    pub(super) fn new(future: F) -> Self {
        let (is_woken, task) = (AtomicBool::new(true), AtomicWaker::new());
        let signal = Arc::new(WakeSignal { is_woken, task });
        Self { future: Box::pin(future), waker: Waker::from(signal.clone()), signal }
    }
}

impl<F: Future> Future for WhenWoken<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, signal, waker } = &mut *self;
        // Before the signal is read: a later wake reaches the task.
        signal.task.register(context.waker());
        if !signal.is_woken.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn it_is_polled_once_at_first_and_once_for_each_wake() {
        let (polls, waker, is_ready) = (Cell::new(0), Cell::new(None), Cell::new(false));
        let mut watched = WhenWoken::new(std::future::poll_fn(|context| {
            polls.set(polls.get() + 1);
            waker.set(Some(context.waker().clone()));
            if is_ready.get() { Poll::Ready(()) } else { Poll::Pending }
        }));
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = || Pin::new(&mut watched).poll(&mut context);
        assert!((0..5).all(|_| poll().is_pending()));
        assert_eq!(polls.get(), 1);
        let wake = || waker.take().unwrap().wake();
        wake();
        assert!(poll().is_pending() && poll().is_pending());
        assert_eq!(polls.get(), 2);
        is_ready.set(true);
        assert!(poll().is_pending());
        wake();
        assert!(poll().is_ready());
    }
}
