//! Who has asked on a session, what is still to be sent, and who is told what is heard?
//!
//! One lock guards both directions: an ask finds a place for what is heard about it and puts its request where the
//! session takes it from, in one step. Places and what they hold are used again.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_wire::v1;
use tokio_stream::Stream;
use v1::request::Command;

use crate::clock;
use crate::life::Moment;
use crate::post::{Post, Said};

/// Requests in one message.
const TOGETHER_MAX: usize = 64;
/// What a message weighs that nothing is added to: with the largest request it is still taken by every member.
const TOGETHER_BYTES: usize = 256 * 1024;
/// What may wait to be sent, in requests and in bytes that can be many: as many as a member takes before it is busy.
/// Beyond that its other end does not read, and whoever asks tries again until his time is over.
const OUTGOING_MAX: usize = 16 * 1024;
const OUTGOING_BYTES: usize = 16 * 1024 * 1024;
/// The low bits of a request's id are its place, so that many may be unanswered or queued on one session; the others
/// tell its request from those that had the place before.
const PLACE_BITS: u32 = 20;
const PLACES_MAX: usize = 1 << PLACE_BITS;

/// Everyone who has asked on one session.
#[derive(Default)]
pub(crate) struct Asks {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Whether nothing can be asked any more.
    closed: bool,
    places: Vec<Place>,
    free: Vec<usize>,
    /// What is to be sent, and how much of it can be much.
    outgoing: Vec<v1::Request>,
    bytes: usize,
    /// Who sends it, while he has nothing to send.
    sender: Option<Waker>,
    /// How many were told something since the last message left: they are expected to ask again.
    told: usize,
}

struct Place {
    /// The request that has the place, or had it last.
    id: u64,
    taken: bool,
    post: Arc<Post>,
}

/// A request on its way, and what is heard about it. Dropping it stops listening.
pub(crate) struct Asked {
    id: u64,
    asks: Arc<Asks>,
    post: Arc<Post>,
}

impl Asks {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a request sent; its id is given here. Nothing, if it cannot be sent any more, or not now.
    pub(crate) fn ask(self: &Arc<Self>, mut request: v1::Request) -> Option<Asked> {
        let now = clock::boot();
        let (id, post, sender) = {
            let mut inner = self.lock();
            if inner.closed || inner.is_full() {
                return None;
            }
            let (id, post) = inner.place(now)?;
            request.id = id;
            inner.bytes += weight(&request);
            inner.outgoing.push(request);
            (id, post, inner.sender.take())
        };
        if let Some(sender) = sender {
            sender.wake();
        }
        Some(Asked { id, asks: self.clone(), post })
    }

    /// Tells everyone whom a message concerns. The wakers are only lent, to be used again.
    pub(crate) fn tell(&self, message: &mut v1::SessionResponse, wakers: &mut Vec<Waker>) {
        {
            let mut inner = self.lock();
            for answer in message.answers.drain(..) {
                wakers.extend(inner.tell(answer.id, Said::Answer(Box::new(answer))));
            }
            for granted in message.grants.drain(..) {
                wakers.extend(inner.tell(granted.id, Said::Granted(granted)));
            }
            for ended in message.waits_ended.drain(..) {
                wakers.extend(inner.tell(ended.id, Said::WaitEnded));
            }
            inner.told += wakers.len();
        }
        wakers.drain(..).for_each(Waker::wake);
    }

    /// Whoever has been waiting for an answer for so long no longer expects it soon.
    pub(crate) fn late_after(&self, time: Duration, wakers: &mut Vec<Waker>) {
        let now = clock::boot();
        wakers.extend(self.lock().posts().filter_map(|post| post.late_after(time, now)));
        wakers.drain(..).for_each(Waker::wake);
    }

    /// Whether somebody has been waiting for an answer for so long.
    pub(crate) fn owe_for(&self, time: Duration) -> bool {
        let now = clock::boot();
        let owed = |post: &Arc<Post>| post.owed_since().is_some_and(|at| now.since(at) >= time);
        self.lock().posts().any(owed)
    }

    /// Nothing is asked any more, and nobody will hear anything.
    pub(crate) fn close(&self) {
        let mut wakers: Vec<Waker> = {
            let mut inner = self.lock();
            inner.closed = true;
            let told: Vec<Waker> = inner.posts().filter_map(|it| it.put(Said::Gone)).collect();
            told.into_iter().chain(inner.sender.take()).collect()
        };
        wakers.drain(..).for_each(Waker::wake);
    }
}

impl Inner {
    fn posts(&self) -> impl Iterator<Item = &Arc<Post>> {
        self.places.iter().filter(|it| it.taken).map(|it| &it.post)
    }

    /// Whether as much waits to be sent as may. What nobody waits for any more counts too: it is not looked for.
    fn is_full(&self) -> bool {
        self.outgoing.len() >= OUTGOING_MAX || self.bytes >= OUTGOING_BYTES
    }

    /// A place for what is heard about a new request.
    fn place(&mut self, asked: Moment) -> Option<(u64, Arc<Post>)> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.places.len() < PLACES_MAX => {
                let id = self.places.len() as u64;
                self.places.push(Place { id, taken: false, post: Arc::default() });
                self.places.len() - 1
            }
            None => return None,
        };
        let place = &mut self.places[at];
        // A place is taken 2^44 times before an id comes again.
        place.id = place.id.wrapping_add(1 << PLACE_BITS);
        place.taken = true;
        place.post.begin(asked);
        Some((place.id, place.post.clone()))
    }

    fn find(&mut self, id: u64) -> Option<(usize, &mut Place)> {
        let at = usize::try_from(id % PLACES_MAX as u64).ok()?;
        let place = self.places.get_mut(at)?;
        (place.taken && place.id == id).then_some((at, place))
    }

    fn tell(&mut self, id: u64, said: Said) -> Option<Waker> {
        self.find(id).and_then(|(_, place)| place.post.put(said))
    }

    fn leave(&mut self, id: u64) {
        if let Some((at, place)) = self.find(id) {
            place.taken = false;
            self.free.push(at);
        }
    }

    /// What goes in one message.
    fn take(&mut self) -> Vec<v1::Request> {
        self.told = 0;
        if self.outgoing.len() <= TOGETHER_MAX && self.bytes <= TOGETHER_BYTES {
            self.bytes = 0;
            let next = Vec::with_capacity(self.outgoing.len());
            return std::mem::replace(&mut self.outgoing, next);
        }
        let (mut count, mut bytes) = (0, 0);
        for request in self.outgoing.iter().take(TOGETHER_MAX) {
            if bytes >= TOGETHER_BYTES {
                break;
            }
            bytes += weight(request);
            count += 1;
        }
        self.bytes -= bytes;
        self.outgoing.drain(..count).collect()
    }
}

impl Asked {
    /// What is heard next.
    pub(crate) async fn next(&mut self) -> Said {
        self.post.next().await
    }

    /// What is heard next, as long as it may be expected soon.
    pub(crate) async fn soon(&mut self) -> Option<Said> {
        self.post.soon().await
    }

    /// Puts back what was heard last.
    pub(crate) fn put_back(&mut self, said: Said) {
        self.post.put_back(said);
    }

    /// How long ago it was asked.
    pub(crate) fn ago(&self) -> Duration {
        clock::boot().since(self.post.asked())
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.post.end();
        self.asks.lock().leave(self.id);
    }
}

/// What is said on a session: the greeting, then requests. Those that wait to be sent go in one message.
pub(crate) struct Outgoing {
    hello: Option<v1::Hello>,
    asks: Arc<Asks>,
    /// How many requests there were when the others were last given their turn.
    seen: usize,
}

impl Outgoing {
    pub(crate) fn new(hello: v1::Hello, asks: Arc<Asks>) -> Self {
        Self { hello: Some(hello), asks, seen: 0 }
    }
}

impl Stream for Outgoing {
    type Item = v1::SessionRequest;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some(hello) = this.hello.take() {
            let said = v1::SessionRequest { hello: Some(hello), requests: Vec::new() };
            return Poll::Ready(Some(said));
        }
        let mut inner = this.asks.lock();
        let there = inner.outgoing.len();
        if there == 0 {
            this.seen = 0;
            if inner.closed {
                return Poll::Ready(None);
            }
            inner.sender = Some(context.waker().clone());
            return Poll::Pending;
        }
        // Whoever was told something together asks again together: all of them run before this does, until all have
        // asked, or for as long as that brings more.
        let all = inner.told > 0 && there >= inner.told || there >= TOGETHER_MAX;
        if !all && there > this.seen {
            this.seen = there;
            drop(inner);
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.seen = 0;
        let requests = inner.take();
        Poll::Ready(Some(v1::SessionRequest { hello: None, requests }))
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        // Nobody sends anything any more. What was heard before is still told.
        self.asks.lock().closed = true;
    }
}

/// The bytes of a request that can be many.
fn weight(request: &v1::Request) -> usize {
    match &request.command {
        Some(Command::Put(it)) => it.value.len(),
        Some(Command::Acquire(it)) => it.metadata.len(),
        Some(Command::Update(it)) => it.metadata.len(),
        Some(Command::Renew(it)) => it.slots.len() * 16,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> v1::Request {
        let it = v1::GetLockRequest { lock: "deploy".into(), stale: false };
        v1::Request { command: Some(Command::GetLock(it)), ..Default::default() }
    }

    fn put(bytes: usize) -> v1::Request {
        let it = v1::PutRequest { value: vec![7; bytes].into(), ..Default::default() };
        v1::Request { command: Some(Command::Put(it)), ..Default::default() }
    }

    fn answers(ids: impl IntoIterator<Item = u64>) -> v1::SessionResponse {
        let answer = |id| v1::Answer { id, ..Default::default() };
        v1::SessionResponse { answers: ids.into_iter().map(answer).collect(), ..Default::default() }
    }

    /// The session's asks, and its other half after the greeting.
    fn session() -> (Arc<Asks>, Outgoing) {
        let asks = Arc::<Asks>::default();
        let mut outgoing = Outgoing::new(v1::Hello::default(), asks.clone());
        assert!(matches!(poll(&mut outgoing), Poll::Ready(Some(said)) if said.hello.is_some()));
        (asks, outgoing)
    }

    fn poll(outgoing: &mut Outgoing) -> Poll<Option<v1::SessionRequest>> {
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(outgoing).poll_next(&mut context)
    }

    /// The sizes of the messages that leave until there is nothing to send.
    fn sent(outgoing: &mut Outgoing) -> Vec<usize> {
        let mut sizes = Vec::new();
        loop {
            match poll(outgoing) {
                Poll::Ready(Some(said)) => sizes.push(said.requests.len()),
                Poll::Ready(None) => return sizes,
                Poll::Pending if outgoing.asks.lock().outgoing.is_empty() => return sizes,
                Poll::Pending => {}
            }
        }
    }

    #[tokio::test]
    async fn whoever_was_told_together_asks_again_in_one_message_that_does_not_wait_for_others() {
        let (asks, mut outgoing) = session();
        let mut asked: Vec<Asked> = (0..3).map(|_| asks.ask(request()).unwrap()).collect();
        assert_eq!(sent(&mut outgoing), [3]);
        let waiting = asked.iter_mut().map(|it| Box::pin(it.next()));
        let mut waiting: Vec<_> = waiting.collect();
        for it in &mut waiting {
            assert!(it.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        drop(waiting);
        asks.tell(&mut answers(asked.iter().map(|it| it.id)), &mut Vec::new());
        let first = asks.ask(request());
        assert!(poll(&mut outgoing).is_pending(), "two more are expected");
        let others = [asks.ask(request()), asks.ask(request())];
        assert!(matches!(poll(&mut outgoing), Poll::Ready(Some(said)) if said.requests.len() == 3));
        drop((first, others));
    }

    #[tokio::test]
    async fn what_is_said_too_late_is_not_told_to_whoever_has_the_place_now() {
        let (asks, _outgoing) = session();
        let old = asks.ask(request()).unwrap();
        let id = old.id;
        drop(old);
        let mut new = asks.ask(request()).unwrap();
        assert_eq!(asks.lock().places.len(), 1, "the place is used again");
        asks.tell(&mut answers([id, new.id]), &mut Vec::new());
        assert!(matches!(new.next().await, Said::Answer(answer) if answer.id == new.id));
        asks.close();
        assert!(matches!(new.next().await, Said::Gone), "the other answer was not for it");
        assert!(asks.ask(request()).is_none(), "nothing can be asked any more");
    }

    #[test]
    fn whoever_has_just_let_go_is_owed_nothing() {
        let (asks, _outgoing) = session();
        let asked = asks.ask(request()).unwrap();
        assert!(asks.owe_for(Duration::ZERO));
        // Between the two halves of letting go, when the session may look.
        asked.post.end();
        assert!(!asks.owe_for(Duration::ZERO) && !asks.owe_for(Duration::from_secs(1)));
    }

    #[test]
    fn what_is_not_sent_has_a_bound_also_if_nobody_waits_for_it_any_more() {
        let (asks, mut outgoing) = session();
        let kept = (0..2 * OUTGOING_MAX).filter(|_| asks.ask(request()).is_some()).count();
        assert_eq!(kept, OUTGOING_MAX);
        assert_eq!(asks.lock().places.len(), 1, "whoever is refused takes no place");
        assert_eq!(sent(&mut outgoing).iter().sum::<usize>(), OUTGOING_MAX);
        let large = OUTGOING_BYTES / 4;
        let kept = (0..8).filter(|_| asks.ask(put(large)).is_some()).count();
        assert_eq!(kept, 4);
        assert!(poll(&mut outgoing).is_pending() && matches!(poll(&mut outgoing), Poll::Ready(_)));
        assert!(asks.ask(request()).is_some(), "there is room again");
    }

    #[test]
    fn a_message_has_a_bound_in_requests_and_in_bytes_and_the_rest_goes_after_it() {
        let (asks, mut outgoing) = session();
        let many: Vec<_> = (0..TOGETHER_MAX + 5).map(|_| asks.ask(request())).collect();
        assert_eq!(sent(&mut outgoing), [TOGETHER_MAX, 5]);
        let large: Vec<_> = (0..3).map(|_| asks.ask(put(TOGETHER_BYTES - 1))).collect();
        assert_eq!(sent(&mut outgoing), [2, 1]);
        let last = asks.ask(request());
        drop((many, large, last));
        asks.close();
        assert_eq!(sent(&mut outgoing), [1], "what was asked before the end is still sent");
        assert!(matches!(poll(&mut outgoing), Poll::Ready(None)));
    }
}
