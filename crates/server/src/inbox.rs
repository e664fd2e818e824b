//! Carries events from many threads to the event loop, in the order that [`InboxQueue`] decides.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use tenure_node::{
    COMMAND_COST, InboxClass, InboxQueue, Input, PAGE_COST, Permit, RestLimit, STALLED_US, Served,
    Source, Window, WindowPart, commands_cost,
};

use crate::member::{LoopEvent, TrySubmitError};
use crate::os;

/// How long nothing of what is under way may end before the window is opened.
const STALLED: Duration = Duration::from_micros(STALLED_US);

/// The turn of a read in the queue: where it comes from and what it costs.
#[derive(Default)]
pub(crate) struct ReadTurn {
    source: Source,
    walks: bool,
    /// The cost of earlier answers.
    owed: u64,
    /// Held until the read is answered.
    _under_way: Option<WindowPart>,
    /// The same for a page.
    page: Option<UnansweredPage>,
}

/// The part of the window that a page has, once it is under way. The caller keeps it until it has taken the answer:
/// pages are large, and those that are not taken yet are in no connection's budget of memory.
pub(crate) type PageInWindow = Arc<OnceLock<WindowPart>>;

/// A page that is not answered until this is dropped.
#[derive(Default)]
struct UnansweredPage(PageInWindow);

impl Drop for UnansweredPage {
    fn drop(&mut self) {
        if let Some(part) = self.0.get() {
            part.answer();
        }
    }
}

impl ReadTurn {
    /// A read of one record.
    pub(crate) fn record(permit: &Permit) -> Self {
        Self { source: permit.source(), owed: permit.take_owed(), ..Self::default() }
    }

    /// A read that walks over many records.
    pub(crate) fn page(permit: &Permit) -> Self {
        let page = Some(UnansweredPage::default());
        Self { walks: true, page, ..Self::record(permit) }
    }

    /// What the caller keeps until it has taken the answer.
    pub(crate) fn answered(&self) -> Option<PageInWindow> {
        self.page.as_ref().map(|page| page.0.clone())
    }

    fn begin(&mut self, part: WindowPart) {
        match &self.page {
            Some(page) => drop(page.0.set(part)),
            None => self._under_way = Some(part),
        }
    }

    fn cost(&self) -> u64 {
        if self.walks { PAGE_COST } else { COMMAND_COST }
    }
}

/// The sending half. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Inbox(Arc<InboxShared>);

/// The receiving half, of which there is one.
pub(crate) struct InboxEvents(Arc<InboxShared>);

struct InboxShared {
    state: Mutex<InboxState>,
    /// Readable once an event has arrived for which the event loop waits.
    arrived: OwnedFd,
    room: Condvar,
}

#[derive(Default)]
struct InboxState {
    queue: InboxQueue<LoopEvent>,
    /// Whether the event loop waits for an event.
    is_waited_for: bool,
    /// How many threads wait for room.
    senders_waiting: usize,
    is_over: bool,
}

/// A new inbox.
pub(crate) fn inbox() -> (Inbox, InboxEvents) {
    let arrived = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .expect("a process that may not open one more file cannot serve clients");
    let shared = Arc::new(InboxShared { state: Mutex::default(), arrived, room: Condvar::new() });
    (Inbox(shared.clone()), InboxEvents(shared))
}

impl InboxShared {
    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, mut state: MutexGuard<'_, InboxState>, event: LoopEvent) {
        state.push(event);
        let wake = std::mem::take(&mut state.is_waited_for);
        drop(state);
        if wake {
            self.wake();
        }
    }

    /// Ends the wait of the event loop.
    fn wake(&self) {
        // Fails only if the counter is full, and then the event loop wakes up too.
        let _ = rustix::io::write(&self.arrived, &1_u64.to_ne_bytes());
    }
}

impl Inbox {
    /// Puts an event into the inbox, and waits for room. If the event loop has ended, the event is dropped.
    pub(crate) fn send(&self, event: LoopEvent) -> Result<(), TrySubmitError> {
        let mut state = self.0.lock();
        while !state.is_over && !state.has_room(&event) {
            state.senders_waiting += 1;
            state = self.0.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.senders_waiting -= 1;
        }
        if state.is_over {
            return Err(TrySubmitError::Ended(Box::new(event)));
        }
        self.0.put(state, event);
        Ok(())
    }

    /// Wakes the event loop so that it checks again whether the window is open. Work that ends in the loop's own turns
    /// needs no call.
    pub(crate) fn wake(&self) {
        let mut state = self.0.lock();
        if std::mem::take(&mut state.is_waited_for) {
            drop(state);
            self.0.wake();
        }
    }

    /// The number of sources that have something queued, and of events that are queued for their turn.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let state = self.0.lock();
        state.queue.waiting()
    }

    /// Puts an event into the inbox if there is room.
    pub(crate) fn try_send(&self, event: LoopEvent) -> Result<(), TrySubmitError> {
        let state = self.0.lock();
        match () {
            () if state.is_over => Err(TrySubmitError::Ended(Box::new(event))),
            () if !state.has_room(&event) => Err(TrySubmitError::Full(Box::new(event))),
            () => {
                self.0.put(state, event);
                Ok(())
            }
        }
    }
}

impl InboxEvents {
    /// Takes what is there, at most so many events. Adds them to `taken`.
    pub(crate) fn take(&self, most: usize, taken: &mut Vec<LoopEvent>) {
        let mut state = self.0.lock();
        let limit = state.rest_limit();
        let before = taken.len();
        state.queue.take(most, limit, begin, taken);
        self.left(state, taken.len() > before);
    }

    /// Waits until there is an event to take or one of these descriptors is ready, at most for this time. Marks in
    /// `fds` which of them are ready.
    pub(crate) fn wait<'a>(&'a self, time: Duration, fds: &mut Vec<PollFd<'a>>) {
        let others = fds.len();
        fds.push(PollFd::new(&self.0.arrived, PollFlags::IN));
        let until_us = os::now_us().saturating_add(os::micros(time));
        let mut left = time;
        loop {
            let sleep = if left.is_zero() { None } else { self.announce_wait(left) };
            if sleep.is_none() && others == 0 {
                break;
            }
            let is_ready = is_one_ready(fds, others, sleep.unwrap_or(Duration::ZERO));
            if sleep.is_none() || self.end_wait() || is_ready {
                break;
            }
            left = os::until(until_us);
            if left.is_zero() {
                break;
            }
        }
        fds.truncate(others);
    }

    /// Announces that the event loop is going to wait, and returns for how long. Returns nothing if there is an event
    /// to take.
    fn announce_wait(&self, wait: Duration) -> Option<Duration> {
        let mut state = self.0.lock();
        let limit = state.rest_limit();
        if state.queue.has_some(limit) {
            return None;
        }
        state.is_waited_for = true;
        // What is under way ends in turns of the event loop, which need an event of a member or of the disk.
        Some(if state.queue.waiting().1 == 0 { wait } else { wait.min(STALLED) })
    }

    /// Ends the announced wait, and returns whether there is an event to take.
    fn end_wait(&self) -> bool {
        let mut state = self.0.lock();
        if !std::mem::take(&mut state.is_waited_for) {
            // The sender that has cleared it makes the descriptor readable. If that comes later than this, the next
            // wait ends at once, for nothing.
            let _ = rustix::io::read(&self.0.arrived, &mut [0; 8]);
        }
        let limit = state.rest_limit();
        state.queue.has_some(limit)
    }

    /// Takes everything, whatever is under way.
    pub(crate) fn take_all(&self) -> Vec<LoopEvent> {
        let mut state = self.0.lock();
        let taken = state.queue.take_all();
        self.left(state, !taken.is_empty());
        taken
    }

    /// Leaves the inbox to others, and wakes those that wait for room if some events were taken.
    fn left(&self, state: MutexGuard<'_, InboxState>, has_taken: bool) {
        let wake = state.senders_waiting > 0 && has_taken;
        drop(state);
        if wake {
            self.0.room.notify_all();
        }
    }
}

impl Drop for InboxEvents {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_over = true;
        // Dropped with their reply channels, so that callers learn of the end.
        let left = state.queue.take_all();
        drop(state);
        self.0.room.notify_all();
        drop(left);
    }
}

impl InboxState {
    fn rest_limit(&mut self) -> RestLimit {
        self.queue.rest_limit(os::now_us)
    }

    fn has_room(&self, event: &LoopEvent) -> bool {
        self.queue.has_room(self.class(event))
    }

    fn class(&self, event: &LoopEvent) -> InboxClass {
        let rest = |source, cost| InboxClass::Rest { source, cost };
        let keeps = |source, cost| InboxClass::Keeps { source, cost };
        match event {
            LoopEvent::Input(Input::Submit(batch)) => self.queue.class_of(batch),
            LoopEvent::Call { batch, .. } => {
                let (source, cost) = (batch.permit.source(), commands_cost(&batch.requests));
                if batch.keeps() { keeps(source, cost) } else { rest(source, cost) }
            }
            LoopEvent::Input(_)
            | LoopEvent::Prepared(_)
            | LoopEvent::Synced(_)
            | LoopEvent::Incoming(_)
            | LoopEvent::Die(_) => InboxClass::Members,
            LoopEvent::Admin { .. }
            | LoopEvent::Join { .. }
            | LoopEvent::Freeze { .. }
            | LoopEvent::Leave { .. } => keeps(Source::default(), COMMAND_COST),
            LoopEvent::Read(read) => rest(read.turn.source, read.turn.cost()),
            LoopEvent::Inspect { source, .. } => rest(*source, COMMAND_COST),
        }
    }

    fn push(&mut self, event: LoopEvent) {
        let class = self.class(&event);
        let owed = match class {
            InboxClass::Rest { .. } => owed(&event),
            _ => 0,
        };
        self.queue.push(class, owed, event);
    }
}

/// Waits for descriptors, and returns whether one of the first `count` is ready.
fn is_one_ready(fds: &mut [PollFd<'_>], count: usize, time: Duration) -> bool {
    let time = Timespec::try_from(time).ok();
    // An error, such as a signal, ends the wait early.
    poll(fds, time.as_ref()).is_ok() && fds[..count].iter().any(|fd| !fd.revents().is_empty())
}

/// Counts an event as under way until it is answered.
fn begin(served: &mut Served<LoopEvent>, window: &Window) {
    let cost = served.cost;
    match &mut served.value {
        LoopEvent::Input(Input::Submit(batch)) => batch.permit.begin(window.begin(cost)),
        LoopEvent::Call { batch, .. } => batch.permit.begin(window.begin(cost)),
        LoopEvent::Read(read) => read.turn.begin(window.begin(cost)),
        _ => {}
    }
}

/// The cost of earlier answers, which an event pays for its source.
fn owed(event: &LoopEvent) -> u64 {
    match event {
        LoopEvent::Input(Input::Submit(batch)) => batch.permit.take_owed(),
        LoopEvent::Call { batch, .. } => batch.permit.take_owed(),
        LoopEvent::Read(read) => read.turn.owed,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tenure_node::{
        Admission, CallId, CommandBatch, ConnectionShare, MEMBERS_MAX, Principal, REST_MAX,
        ReadConsistency, ReplyTo, SessionId, SourceShare, Weight,
    };
    use tenure_raft::MemberId;

    use super::*;
    use crate::member::ReadCall;

    fn take(events: &InboxEvents, most: usize) -> Vec<LoopEvent> {
        take_within(events, Duration::ZERO, most)
    }

    fn take_within(events: &InboxEvents, wait: Duration, most: usize) -> Vec<LoopEvent> {
        let mut taken = Vec::new();
        events.wait(wait, &mut Vec::new());
        events.take(most, &mut taken);
        taken
    }

    fn batch(number: u64, reply: ReplyTo, linger_us: u64, permit: Permit) -> LoopEvent {
        LoopEvent::Input(Input::Submit(Box::new(CommandBatch {
            requests: [].into(),
            linger_us,
            asked_at_us: number,
            deadline_us: 0,
            reply,
            permit,
        })))
    }

    fn command(number: u64) -> LoopEvent {
        batch(number, ReplyTo::Call(CallId(number)), 0, Permit::default())
    }

    fn of_session(number: u64, permit: Permit) -> LoopEvent {
        batch(number, ReplyTo::Session { session: SessionId(7), batch: number }, 0, permit)
    }

    fn renewal(number: u64) -> LoopEvent {
        batch(number, ReplyTo::Call(CallId(number)), 1, Permit::default())
    }

    fn of_member() -> LoopEvent {
        LoopEvent::Input(Input::Unreachable { member: MemberId::new(1).unwrap() })
    }

    /// The numbers of batches; 0 for an event of a member.
    fn numbers(events: Vec<LoopEvent>) -> Vec<u64> {
        let number = |event: &LoopEvent| match event {
            LoopEvent::Input(Input::Submit(batch)) => batch.asked_at_us,
            _ => 0,
        };
        events.iter().map(number).collect()
    }

    #[test]
    fn an_inbox_full_of_commands_delays_neither_a_members_message_nor_a_renewal() {
        let (inbox, events) = inbox();
        let mut number = 0;
        loop {
            number += 1;
            if inbox.try_send(command(number)).is_err() {
                break;
            }
        }
        assert_eq!(number, REST_MAX as u64 + 1);
        assert!(inbox.try_send(renewal(100_001)).is_ok());
        assert!(inbox.try_send(of_member()).is_ok(), "and a link does not wait for room");
        assert!(inbox.try_send(renewal(100_002)).is_ok());
        let taken = numbers(take(&events, 8_192));
        assert_eq!(taken[..5], [0, 100_001, 100_002, 1, 2]);
        assert_eq!(taken.len(), 8_192);
    }

    #[test]
    fn every_kind_gets_a_part_of_a_turn() {
        let (admission, (inbox, events)) = (Admission::default(), inbox());
        let share = ConnectionShare::new(1, SourceShare::new(1));
        for number in 1..=100 {
            let _ = inbox.try_send(of_connection(number, &admission, &share));
            let _ = inbox.try_send(renewal(1_000 + number));
            let _ = inbox.try_send(of_member());
        }
        let taken = numbers(take(&events, 40));
        let count = |is: fn(u64) -> bool| taken.iter().filter(|it| is(**it)).count();
        assert_eq!([count(|it| it == 0), count(|it| it > 1_000)], [20, 10]);
        assert_eq!(events.take_all().len(), 260);
        assert!(take(&events, 40).is_empty());
    }

    #[test]
    fn a_release_does_not_overtake_what_its_own_session_asked_before() {
        let admission = Admission::default();
        let share = ConnectionShare::new(1, SourceShare::new(1));
        let release = || admission.admit_from(Weight::Keeps, 1, Some(&share)).unwrap();
        let acquire = || admission.admit_from(Weight::Asks, 1, Some(&share)).unwrap();
        let (inbox, events) = inbox();
        let _ = inbox.try_send(command(1));
        let _ = inbox.try_send(of_session(2, acquire()));
        let _ = inbox.try_send(of_session(3, release()));
        assert_eq!(numbers(take(&events, 100)), [1, 2, 3]);
        let _ = inbox.try_send(command(4));
        let _ = inbox.try_send(of_session(5, release()));
        assert_eq!(numbers(take(&events, 100)), [5, 4]);
    }

    /// A command of a connection.
    fn of_connection(number: u64, admission: &Admission, share: &ConnectionShare) -> LoopEvent {
        let permit = admission.admit_from(Weight::Asks, 100, Some(share)).unwrap();
        let reply = ReplyTo::Session { session: SessionId(7), batch: number };
        let LoopEvent::Input(Input::Submit(mut batch)) = batch(number, reply, 0, permit) else {
            unreachable!("a batch is submitted")
        };
        batch.requests = [Bytes::from_static(&[0; 100])].into();
        LoopEvent::Input(Input::Submit(batch))
    }

    #[test]
    fn thousands_of_commands_of_one_source_delay_another_by_its_share() {
        let (admission, (inbox, events)) = (Admission::default(), inbox());
        let greedy = ConnectionShare::new(1, SourceShare::new(1));
        for number in 1..=4_000 {
            assert!(inbox.try_send(of_connection(number, &admission, &greedy)).is_ok());
        }
        let under_way = take(&events, 8_192);
        assert!(under_way.len() < 2_000, "{} are under way", under_way.len());
        let honest = ConnectionShare::new(2, SourceShare::new(2));
        assert!(inbox.try_send(of_connection(100_000, &admission, &honest)).is_ok());
        // No more than what was under way goes ahead of it, and a few of those that waited before it.
        assert!(take(&events, 8_192).is_empty(), "the window is closed");
        drop(under_way);
        let next = numbers(take(&events, 8_192));
        let ahead = next.iter().position(|number| *number == 100_000).unwrap();
        assert!(ahead < 16, "{ahead} were taken before it");
        assert!(next.len() < 500, "{} are under way while several sources send", next.len());
    }

    #[test]
    fn thousands_of_renewals_of_one_source_delay_only_its_own() {
        let (admission, (inbox, events)) = (Admission::default(), inbox());
        let renewal = |number: u64, share: &ConnectionShare| {
            let permit = admission.admit_from(Weight::Keeps, 100, Some(share)).unwrap();
            let LoopEvent::Input(Input::Submit(mut batch)) =
                batch(number, ReplyTo::Call(CallId(number)), 1, permit)
            else {
                unreachable!("a batch is submitted")
            };
            batch.requests = [Bytes::from_static(&[0; 100])].into();
            LoopEvent::Input(Input::Submit(batch))
        };
        let greedy = SourceShare::new(1);
        // As many as admission lets one source have.
        for connection in 1..=4 {
            let share = ConnectionShare::new(connection, greedy.clone());
            for number in 1..=250 {
                assert!(inbox.try_send(renewal(connection * 1_000 + number, &share)).is_ok());
            }
        }
        let honest = ConnectionShare::new(9, SourceShare::new(2));
        assert!(inbox.try_send(renewal(100_000, &honest)).is_ok());
        let taken = numbers(take(&events, 64));
        let ahead = taken.iter().position(|number| *number == 100_000);
        assert!(ahead.is_some_and(|ahead| ahead < 16), "{taken:?}");
    }

    #[test]
    fn what_follows_a_release_stays_behind_it_when_a_turn_is_too_short_for_all_releases() {
        let admission = Admission::default();
        let share = ConnectionShare::new(1, SourceShare::new(1));
        let permit = |weight| admission.admit_from(weight, 1, Some(&share)).unwrap();
        let (inbox, events) = inbox();
        for number in 1..=20 {
            let _ = inbox.try_send(of_session(number, permit(Weight::Keeps)));
        }
        for number in 21..=40 {
            let _ = inbox.try_send(of_session(number, permit(Weight::Asks)));
        }
        let mut taken = Vec::new();
        while taken.len() < 40 {
            taken.extend(numbers(take(&events, 8)));
        }
        assert_eq!(taken, (1..=40).collect::<Vec<_>>());
    }

    #[test]
    fn commands_that_do_not_end_do_not_block_those_behind_them() {
        let (admission, (inbox, events)) = (Admission::default(), inbox());
        let share = ConnectionShare::new(1, SourceShare::new(1));
        for number in 1..=4_000 {
            assert!(inbox.try_send(of_connection(number, &admission, &share)).is_ok());
        }
        let mut under_way = take(&events, 8_192);
        // There is no leader: nothing ends. Each wait is for the time after which the window is opened.
        while under_way.len() < 4_000 {
            under_way.extend(take_within(&events, STALLED, 8_192));
        }
        assert_eq!(numbers(under_way), (1..=4_000).collect::<Vec<_>>());
    }

    /// A read that walks over many records.
    fn page(source: Source) -> LoopEvent {
        LoopEvent::Read(Box::new(ReadCall {
            question: Box::new(|_| ()),
            principal: Principal::anyone(),
            fresh: ReadConsistency::Stale,
            deadline_us: 0,
            turn: ReadTurn { source, walks: true, ..ReadTurn::default() },
        }))
    }

    #[test]
    fn a_turn_takes_few_pages_also_while_nothing_ends() {
        let (inbox, events) = inbox();
        (0..100).for_each(|_| assert!(inbox.try_send(page(Source::default())).is_ok()));
        let mut under_way = take(&events, 8_192);
        while under_way.len() < 100 {
            let next = take_within(&events, STALLED, 8_192);
            assert!(next.len() <= 4, "{} pages in one turn", next.len());
            under_way.extend(next);
        }
    }

    #[test]
    fn an_event_that_cannot_be_taken_yet_does_not_hide_the_next_one() {
        let (admission, (inbox, events)) = (Admission::default(), inbox());
        let share = ConnectionShare::new(1, SourceShare::new(1));
        for number in 1..=4_000 {
            assert!(inbox.try_send(of_connection(number, &admission, &share)).is_ok());
        }
        let _under_way = take(&events, 8_192);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| take_within(&events, Duration::from_secs(60), 8_192));
            while !inbox.0.lock().is_waited_for {
                std::thread::yield_now();
            }
            assert!(inbox.try_send(of_connection(4_001, &admission, &share)).is_ok());
            // Until the loop waits again; then a message of a member must wake it.
            while !inbox.0.lock().is_waited_for {
                std::thread::yield_now();
            }
            assert!(inbox.try_send(of_member()).is_ok());
            assert_eq!(numbers(waiting.join().unwrap()), [0]);
        });
    }

    #[test]
    fn a_sender_waits_for_room_and_learns_of_the_end() {
        let (inbox, events) = inbox();
        (0..MEMBERS_MAX).for_each(|_| assert!(inbox.try_send(of_member()).is_ok()));
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| inbox.send(of_member()).is_ok());
            assert_eq!(take_within(&events, Duration::from_secs(60), 1).len(), 1);
            assert!(sender.join().unwrap());
            let sender = scope.spawn(|| inbox.send(of_member()).is_err());
            drop(events);
            assert!(sender.join().unwrap());
        });
    }
}
