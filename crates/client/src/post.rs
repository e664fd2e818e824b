//! How does what is heard about a request reach whoever asked?

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

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

/// Where what is heard about one request is put, in order. There is one for every request, and they are used again.
#[derive(Default)]
pub(crate) struct Post {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    asked_us: u64,
    /// Most requests are told one thing.
    first: Option<Said>,
    more: VecDeque<Said>,
    waker: Option<Waker>,
    answered: bool,
    gone: bool,
    /// Whether it was said that no answer came soon.
    late: bool,
}

impl Post {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins anew, for a request that is asked now.
    pub(crate) fn begin(&self, asked: Moment) {
        *self.lock() = Inner { asked_us: asked.micros(), ..Inner::default() };
    }

    /// Nobody listens any more: nothing is kept for him, and nothing is owed to him.
    pub(crate) fn end(&self) {
        let over = Inner { answered: true, ..Inner::default() };
        let old = std::mem::replace(&mut *self.lock(), over);
        drop(old);
    }

    /// Puts something in; whoever waits for it is to be woken.
    #[must_use]
    pub(crate) fn put(&self, said: Said) -> Option<Waker> {
        let mut inner = self.lock();
        inner.answered |= matches!(said, Said::Answer(_));
        match said {
            Said::Gone => inner.gone = true,
            said if inner.first.is_none() => inner.first = Some(said),
            said => inner.more.push_back(said),
        }
        inner.waker.take()
    }

    /// Puts back what was taken last: it is heard next again.
    pub(crate) fn put_back(&self, said: Said) {
        let mut inner = self.lock();
        if let Some(second) = inner.first.replace(said) {
            inner.more.push_front(second);
        }
    }

    /// What is heard next; for ever that the session is over, once it is and everything before was told.
    pub(crate) async fn next(&self) -> Said {
        poll_fn(|context| self.lock().poll(context)).await
    }

    /// The same for as long as an answer may be expected soon: nothing, once one has been owed for longer. Needs no
    /// timer of its own.
    pub(crate) async fn soon(&self) -> Option<Said> {
        poll_fn(|context| {
            let mut inner = self.lock();
            match inner.poll(context) {
                Poll::Pending if inner.late => Poll::Ready(None),
                heard => heard.map(Some),
            }
        })
        .await
    }

    /// If an answer has been owed for so long now, whoever expects it soon is told; he is to be woken.
    #[must_use]
    pub(crate) fn late_after(&self, time: Duration, now: Moment) -> Option<Waker> {
        let mut inner = self.lock();
        if inner.answered || inner.late || now.since(inner.asked()) < time {
            return None;
        }
        inner.late = true;
        inner.waker.take()
    }

    /// When it was asked.
    pub(crate) fn asked(&self) -> Moment {
        self.lock().asked()
    }

    /// Since when an answer is owed, if it is.
    pub(crate) fn owed_since(&self) -> Option<Moment> {
        let inner = self.lock();
        (!inner.answered).then(|| inner.asked())
    }
}

impl Inner {
    fn asked(&self) -> Moment {
        Moment::from_micros(self.asked_us)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Said> {
        if let Some(said) = self.first.take() {
            self.first = self.more.pop_front();
            return Poll::Ready(said);
        }
        if self.gone {
            return Poll::Ready(Said::Gone);
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

    fn put(post: &Post, said: Said) {
        if let Some(waker) = post.put(said) {
            waker.wake();
        }
    }

    #[tokio::test]
    async fn everything_is_told_in_order_and_then_that_it_is_over() {
        let post = Arc::new(Post::default());
        post.begin(AT);
        let reader = tokio::spawn({
            let post = post.clone();
            async move { (post.next().await, post.next().await, post.next().await) }
        });
        tokio::task::yield_now().await;
        assert_eq!(post.owed_since(), Some(AT));
        put(&post, Said::Answer(Box::default()));
        assert_eq!(post.owed_since(), None);
        put(&post, Said::Granted(v1::Granted::default()));
        put(&post, Said::WaitEnded);
        let told = reader.await.unwrap();
        assert!(matches!(told, (Said::Answer(_), Said::Granted(_), Said::WaitEnded)), "{told:?}");
        put(&post, Said::Gone);
        assert!(matches!(post.next().await, Said::Gone));
        assert!(matches!(post.next().await, Said::Gone), "also who asks again is told");
        post.begin(AT);
        put(&post, Said::WaitEnded);
        assert!(
            matches!(post.next().await, Said::WaitEnded),
            "nothing of the last request is left"
        );
    }

    #[tokio::test]
    async fn whoever_expects_an_answer_soon_is_told_that_it_is_late_and_still_hears_it() {
        let post = Arc::new(Post::default());
        post.begin(AT);
        let reader = tokio::spawn({
            let post = post.clone();
            async move { post.soon().await }
        });
        tokio::task::yield_now().await;
        assert!(post.late_after(LATE, AT + LATE / 2).is_none(), "it is not late yet");
        post.late_after(LATE, AT + LATE).expect("somebody waits").wake();
        assert!(reader.await.unwrap().is_none());
        assert!(post.soon().await.is_none(), "once late, nothing is expected soon any more");
        put(&post, Said::Answer(Box::default()));
        assert!(matches!(post.soon().await, Some(Said::Answer(_))));
    }

    #[tokio::test]
    async fn what_is_put_back_is_heard_first() {
        let post = Post::default();
        put(&post, Said::Answer(Box::default()));
        put(&post, Said::Granted(v1::Granted::default()));
        put(&post, Said::WaitEnded);
        let first = post.next().await;
        post.put_back(first);
        let told = (post.next().await, post.next().await, post.next().await);
        assert!(matches!(told, (Said::Answer(_), Said::Granted(_), Said::WaitEnded)), "{told:?}");
    }
}
