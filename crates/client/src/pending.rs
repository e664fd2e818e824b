//! Tracks the pending requests of one session: what to send, and which task receives each response.
//!
//! One mutex guards both directions: a request reserves its response slot and enters the outgoing queue in one step.
//! Slots and their buffers are reused.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_wire::v1;
use tokio_stream::Stream;
use v1::request::Command;

use crate::clock;
use crate::lease_state::Moment;
use crate::response_slot::{Response, ResponseSlot};

/// The maximum number of requests in one message.
const TOGETHER_MAX: usize = 64;
/// The size from which nothing more is added to a message. Even with the largest request on top, every member accepts
/// it.
const TOGETHER_BYTES: usize = 256 * 1024;
/// The maximum number of queued requests, and of their payload bytes: as many as a member accepts before it reports
/// that it is busy. A queue that reaches the bound means that the other end does not read; the caller then retries
/// until its deadline.
const OUTGOING_MAX: usize = 16 * 1024;
const OUTGOING_BYTES: usize = 16 * 1024 * 1024;
/// The low bits of a request id are its slot, so that a session can have many unanswered or queued requests. The other
/// bits distinguish the request from earlier ones in the same slot.
const PLACE_BITS: u32 = 20;
const PLACES_MAX: usize = 1 << PLACE_BITS;

/// All pending requests of one session.
#[derive(Default)]
pub(crate) struct PendingRequests {
    inner: Mutex<PendingState>,
}

#[derive(Default)]
struct PendingState {
    /// Whether the session no longer accepts requests.
    closed: bool,
    places: Vec<PendingEntry>,
    free: Vec<usize>,
    /// The requests to be sent, and their payload bytes.
    outgoing: Vec<v1::Request>,
    bytes: usize,
    /// The waker of the sending half, while it has nothing to send.
    sender: Option<Waker>,
    /// How many tasks received a response since the last message left. They are expected to send again.
    told: usize,
}

struct PendingEntry {
    /// The id of the request that has the slot, or had it last.
    id: u64,
    taken: bool,
    slot: Arc<ResponseSlot>,
}

/// A request that was sent or queued, and its responses. Dropping it cancels the subscription.
pub(crate) struct RequestHandle {
    id: u64,
    pending: Arc<PendingRequests>,
    slot: Arc<ResponseSlot>,
}

impl PendingRequests {
    fn lock(&self) -> MutexGuard<'_, PendingState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a request for sending and assigns its id. Returns `None` if the session is closed or the queue is full.
    pub(crate) fn ask(self: &Arc<Self>, mut request: v1::Request) -> Option<RequestHandle> {
        let now = clock::boot();
        let (id, slot, sender) = {
            let mut inner = self.lock();
            if inner.closed || inner.is_full() {
                return None;
            }
            let (id, slot) = inner.place(now)?;
            request.id = id;
            inner.bytes += weight(&request);
            inner.outgoing.push(request);
            (id, slot, inner.sender.take())
        };
        if let Some(sender) = sender {
            sender.wake();
        }
        Some(RequestHandle { id, pending: self.clone(), slot })
    }

    /// Delivers a message to all requests it concerns. The caller lends `wakers` so that the buffer is reused.
    pub(crate) fn tell(&self, message: &mut v1::SessionResponse, wakers: &mut Vec<Waker>) {
        {
            let mut inner = self.lock();
            for answer in message.answers.drain(..) {
                wakers.extend(inner.tell(answer.id, Response::Answer(Box::new(answer))));
            }
            for granted in message.grants.drain(..) {
                wakers.extend(inner.tell(granted.id, Response::Granted(granted)));
            }
            for ended in message.waits_ended.drain(..) {
                wakers.extend(inner.tell(ended.id, Response::WaitEnded(Box::new(ended))));
            }
            inner.told += wakers.len();
        }
        wakers.drain(..).for_each(Waker::wake);
    }

    /// Marks every request that has waited `time` for its answer as late, and wakes its task.
    pub(crate) fn late_after(&self, time: Duration, wakers: &mut Vec<Waker>) {
        let now = clock::boot();
        wakers.extend(self.lock().slots().filter_map(|slot| slot.late_after(time, now)));
        wakers.drain(..).for_each(Waker::wake);
    }

    /// Whether any request has waited `time` for its answer.
    pub(crate) fn owe_for(&self, time: Duration) -> bool {
        let now = clock::boot();
        let owed =
            |slot: &Arc<ResponseSlot>| slot.owed_since().is_some_and(|at| now.since(at) >= time);
        self.lock().slots().any(owed)
    }

    /// Closes the session: accepts no more requests and tells every pending one that the session is over.
    pub(crate) fn close(&self) {
        let mut wakers: Vec<Waker> = {
            let mut inner = self.lock();
            inner.closed = true;
            let told: Vec<Waker> = inner.slots().filter_map(|it| it.put(Response::Gone)).collect();
            told.into_iter().chain(inner.sender.take()).collect()
        };
        wakers.drain(..).for_each(Waker::wake);
    }
}

impl PendingState {
    fn slots(&self) -> impl Iterator<Item = &Arc<ResponseSlot>> {
        self.places.iter().filter(|it| it.taken).map(|it| &it.slot)
    }

    /// Whether the outgoing queue is at its bound. Cancelled requests count too, because they stay in the queue.
    fn is_full(&self) -> bool {
        self.outgoing.len() >= OUTGOING_MAX || self.bytes >= OUTGOING_BYTES
    }

    /// Reserves a response slot for a new request.
    fn place(&mut self, asked: Moment) -> Option<(u64, Arc<ResponseSlot>)> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.places.len() < PLACES_MAX => {
                let id = self.places.len() as u64;
                self.places.push(PendingEntry { id, taken: false, slot: Arc::default() });
                self.places.len() - 1
            }
            None => return None,
        };
        let place = &mut self.places[at];
        // A slot is reused 2^44 times before an id repeats.
        place.id = place.id.wrapping_add(1 << PLACE_BITS);
        place.taken = true;
        place.slot.begin(asked);
        Some((place.id, place.slot.clone()))
    }

    fn find(&mut self, id: u64) -> Option<(usize, &mut PendingEntry)> {
        let at = usize::try_from(id % PLACES_MAX as u64).ok()?;
        let place = self.places.get_mut(at)?;
        (place.taken && place.id == id).then_some((at, place))
    }

    fn tell(&mut self, id: u64, said: Response) -> Option<Waker> {
        self.find(id).and_then(|(_, place)| place.slot.put(said))
    }

    fn leave(&mut self, id: u64) {
        if let Some((at, place)) = self.find(id) {
            place.taken = false;
            self.free.push(at);
        }
    }

    /// Takes the requests that go into one message.
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

impl RequestHandle {
    /// Returns the next response.
    pub(crate) async fn next(&mut self) -> Response {
        self.slot.next().await
    }

    /// Returns the next response, or `None` once it is late.
    pub(crate) async fn soon(&mut self) -> Option<Response> {
        self.slot.soon().await
    }

    /// Puts back the response that was returned last.
    pub(crate) fn put_back(&mut self, said: Response) {
        self.slot.put_back(said);
    }

    /// How long ago the request was queued.
    pub(crate) fn ago(&self) -> Duration {
        clock::boot().since(self.slot.sent_at())
    }
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        self.slot.end();
        self.pending.lock().leave(self.id);
    }
}

/// The sending half of a session: the hello, then requests. Requests that wait at the same time share a message.
pub(crate) struct OutgoingMessages {
    hello: Option<v1::Hello>,
    pending: Arc<PendingRequests>,
    /// How many requests waited when this task last yielded to the others.
    seen: usize,
}

impl OutgoingMessages {
    pub(crate) fn new(hello: v1::Hello, pending: Arc<PendingRequests>) -> Self {
        Self { hello: Some(hello), pending, seen: 0 }
    }
}

impl Stream for OutgoingMessages {
    type Item = v1::SessionRequest;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some(hello) = this.hello.take() {
            let said = v1::SessionRequest { hello: Some(hello), requests: Vec::new() };
            return Poll::Ready(Some(said));
        }
        let mut inner = this.pending.lock();
        let there = inner.outgoing.len();
        if there == 0 {
            this.seen = 0;
            if inner.closed {
                return Poll::Ready(None);
            }
            inner.sender = Some(context.waker().clone());
            return Poll::Pending;
        }
        // Tasks that received responses together usually send again together. Yield to them first, until all of them
        // have sent, or until a yield brings no further request.
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

impl Drop for OutgoingMessages {
    fn drop(&mut self) {
        // Nothing is sent any more. Responses that already arrived are still delivered.
        self.pending.lock().closed = true;
    }
}

/// The payload bytes of a request: the fields whose size is not small by nature.
fn weight(request: &v1::Request) -> usize {
    match &request.command {
        Some(Command::Put(it)) => it.value.len(),
        Some(Command::Acquire(it)) => it.metadata.len(),
        Some(Command::Update(it)) => it.metadata.len(),
        Some(Command::Renew(it)) => it.slots.len() * 16,
        Some(Command::Drain(it)) => it.reason.len(),
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

    /// Creates a session's pending requests, and its sending half after the hello.
    fn session() -> (Arc<PendingRequests>, OutgoingMessages) {
        let pending = Arc::<PendingRequests>::default();
        let mut outgoing = OutgoingMessages::new(v1::Hello::default(), pending.clone());
        assert!(matches!(poll(&mut outgoing), Poll::Ready(Some(said)) if said.hello.is_some()));
        (pending, outgoing)
    }

    fn poll(outgoing: &mut OutgoingMessages) -> Poll<Option<v1::SessionRequest>> {
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(outgoing).poll_next(&mut context)
    }

    /// Returns the sizes of the messages that leave until nothing is left to send.
    fn sent(outgoing: &mut OutgoingMessages) -> Vec<usize> {
        let mut sizes = Vec::new();
        loop {
            match poll(outgoing) {
                Poll::Ready(Some(said)) => sizes.push(said.requests.len()),
                Poll::Ready(None) => return sizes,
                Poll::Pending if outgoing.pending.lock().outgoing.is_empty() => return sizes,
                Poll::Pending => {}
            }
        }
    }

    #[tokio::test]
    async fn requests_answered_together_are_repeated_in_one_message_without_waiting_for_others() {
        let (pending, mut outgoing) = session();
        let mut asked: Vec<RequestHandle> =
            (0..3).map(|_| pending.ask(request()).unwrap()).collect();
        assert_eq!(sent(&mut outgoing), [3]);
        let waiting = asked.iter_mut().map(|it| Box::pin(it.next()));
        let mut waiting: Vec<_> = waiting.collect();
        for it in &mut waiting {
            assert!(it.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        drop(waiting);
        pending.tell(&mut answers(asked.iter().map(|it| it.id)), &mut Vec::new());
        let first = pending.ask(request());
        assert!(poll(&mut outgoing).is_pending(), "two more are expected");
        let others = [pending.ask(request()), pending.ask(request())];
        assert!(matches!(poll(&mut outgoing), Poll::Ready(Some(said)) if said.requests.len() == 3));
        drop((first, others));
    }

    #[tokio::test]
    async fn a_late_answer_is_not_given_to_the_request_that_reuses_the_place() {
        let (pending, _outgoing) = session();
        let old = pending.ask(request()).unwrap();
        let id = old.id;
        drop(old);
        let mut new = pending.ask(request()).unwrap();
        assert_eq!(pending.lock().places.len(), 1, "the place is used again");
        pending.tell(&mut answers([id, new.id]), &mut Vec::new());
        assert!(matches!(new.next().await, Response::Answer(answer) if answer.id == new.id));
        pending.close();
        assert!(matches!(new.next().await, Response::Gone), "the other answer was not for it");
        assert!(pending.ask(request()).is_none(), "nothing can be asked any more");
    }

    #[test]
    fn a_request_that_was_just_dropped_is_owed_no_answer() {
        let (pending, _outgoing) = session();
        let asked = pending.ask(request()).unwrap();
        assert!(pending.owe_for(Duration::ZERO));
        // Between the two steps of dropping the request, when the session may look at the slot.
        asked.slot.end();
        assert!(!pending.owe_for(Duration::ZERO) && !pending.owe_for(Duration::from_secs(1)));
    }

    #[test]
    fn unsent_requests_are_bounded_also_if_no_caller_waits_for_them() {
        let (pending, mut outgoing) = session();
        let kept = (0..2 * OUTGOING_MAX).filter(|_| pending.ask(request()).is_some()).count();
        assert_eq!(kept, OUTGOING_MAX);
        assert_eq!(pending.lock().places.len(), 1, "a refused request takes no place");
        assert_eq!(sent(&mut outgoing).iter().sum::<usize>(), OUTGOING_MAX);
        let large = OUTGOING_BYTES / 4;
        let kept = (0..8).filter(|_| pending.ask(put(large)).is_some()).count();
        assert_eq!(kept, 4);
        assert!(poll(&mut outgoing).is_pending() && matches!(poll(&mut outgoing), Poll::Ready(_)));
        assert!(pending.ask(request()).is_some(), "there is room again");
    }

    #[test]
    fn a_message_has_a_bound_in_requests_and_in_bytes_and_the_rest_goes_after_it() {
        let (pending, mut outgoing) = session();
        let many: Vec<_> = (0..TOGETHER_MAX + 5).map(|_| pending.ask(request())).collect();
        assert_eq!(sent(&mut outgoing), [TOGETHER_MAX, 5]);
        let large: Vec<_> = (0..3).map(|_| pending.ask(put(TOGETHER_BYTES - 1))).collect();
        assert_eq!(sent(&mut outgoing), [2, 1]);
        let last = pending.ask(request());
        drop((many, large, last));
        pending.close();
        assert_eq!(sent(&mut outgoing), [1], "what was asked before the end is still sent");
        assert!(matches!(poll(&mut outgoing), Poll::Ready(None)));
    }
}
