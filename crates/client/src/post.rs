//! How does what is heard about a request reach whoever asked?

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use tenure_wire::v1;

use crate::life::Moment;

/// What is heard about a request.
#[derive(Debug)]
pub(crate) enum Said {
    Answer(Box<v1::Answer>),
    Granted(v1::Granted),
    WaitEnded,
    /// The session is over. What became of the request is not known.
    Gone,
}

/// Where what is heard about one request is put, in order. There is one for every request, so it is small.
pub(crate) struct Post {
    asked: Moment,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Most requests are told one thing.
    first: Option<Said>,
    more: VecDeque<Said>,
    waker: Option<Waker>,
    answered: bool,
    gone: bool,
}

impl Post {
    pub(crate) fn new(asked: Moment) -> Self {
        Self { asked, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, said: Said) {
        let waker = {
            let mut inner = self.lock();
            inner.answered |= matches!(said, Said::Answer(_));
            match said {
                Said::Gone => inner.gone = true,
                said if inner.first.is_none() => inner.first = Some(said),
                said => inner.more.push_back(said),
            }
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// What is heard next; for ever that the session is over, once it is and everything before was told.
    pub(crate) async fn next(&self) -> Said {
        poll_fn(|context| {
            let mut inner = self.lock();
            if let Some(said) = inner.first.take() {
                inner.first = inner.more.pop_front();
                return Poll::Ready(said);
            }
            if inner.gone {
                return Poll::Ready(Said::Gone);
            }
            inner.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Since when an answer is owed, if it is.
    pub(crate) fn owed_since(&self) -> Option<Moment> {
        (!self.lock().answered).then_some(self.asked)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn everything_is_told_in_order_and_then_that_it_is_over() {
        let post = Arc::new(Post::new(Moment::from_micros(7)));
        let reader = tokio::spawn({
            let post = post.clone();
            async move { (post.next().await, post.next().await, post.next().await) }
        });
        tokio::task::yield_now().await;
        assert_eq!(post.owed_since(), Some(Moment::from_micros(7)));
        post.put(Said::Answer(Box::default()));
        assert_eq!(post.owed_since(), None);
        post.put(Said::Granted(v1::Granted::default()));
        post.put(Said::WaitEnded);
        let told = reader.await.unwrap();
        assert!(matches!(told, (Said::Answer(_), Said::Granted(_), Said::WaitEnded)), "{told:?}");
        post.put(Said::Gone);
        assert!(matches!(post.next().await, Said::Gone));
        assert!(matches!(post.next().await, Said::Gone), "also who asks again is told");
    }
}
