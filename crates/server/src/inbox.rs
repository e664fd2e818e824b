//! Queues events for the event loop: those of members first, then renewals and releases, then the rest, each in turns
//! by source.
//!
//! A member that hears its leader late starts an election, and a client whose renewal is late loses its locks. So
//! neither waits behind the commands and reads of other clients. Each turn still takes some events of every kind, and
//! the kinds have bounds of their own: a flood of one kind does not keep the others out.
//!
//! What clients ask for waits in two [`FairQueue`]s, which serve their sources in turns: a source that floods the member
//! with renewals delays its own. A [`Window`] bounds how much of the rest is under way, so that what cannot be done at
//! once waits here and not where the order is that of arrival.
//!
//! The events of one connection keep their order, except that renewals may overtake: a release goes first only if
//! nothing of its connection waits, and nothing that came after a release goes ahead of it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tenure_node::{
    COMMAND_COST, FairQueue, Input, PAGE_COST, Permit, Served, Source, Window, WindowPart,
};

use crate::member::{LoopEvent, NotTaken};
use crate::os;

/// The most events of members, of this member's own threads and of its disk. A thread that sends more waits.
const MEMBERS_MAX: usize = 7_168;
/// The most events of clients. Clients have at most 16,384 commands and reads in flight; the rest is for the queries
/// that the member makes for itself.
const CLIENTS_MAX: usize = 17_408;
/// The most of these that are neither renewals nor releases: as many as admission lets in, and the member's own.
const REST_MAX: usize = 13_312;
/// The most events that wait for the event loop: about as many as three turns take.
pub(crate) const INBOX_MAX: usize = MEMBERS_MAX + CLIENTS_MAX;
/// How long nothing of what is under way may end before the window is opened. Commands that wait for a leader do not
/// end, and those behind them have deadlines of their own.
const STALLED: Duration = Duration::from_millis(100);
/// The cost of what one turn takes then: four pages. A turn must not last as long as an election timeout.
const STALLED_COST: u64 = 4 * PAGE_COST;

/// The order in which kinds of events are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InboxClass {
    /// What other members, this member's own threads and its disk send.
    Members,
    /// Renewals and releases, and what operators ask of the member itself, with its source and its cost.
    Keeps(Source, u64),
    /// Everything else, with its source and its cost.
    Rest(Source, u64),
}

/// The turn of a read in the queue: where it comes from and what it costs.
#[derive(Default)]
pub(crate) struct ReadTurn {
    source: Source,
    walks: bool,
    /// The cost of earlier answers.
    owed: u64,
    /// Held until the read is answered.
    _under_way: Option<WindowPart>,
    /// Held until the caller has taken the answer: pages are large, and those that are not taken yet are in no
    /// connection's budget of memory.
    answered: Option<PageInWindow>,
}

/// The part of the window that a page has, once it is under way.
pub(crate) type PageInWindow = Arc<OnceLock<WindowPart>>;

impl ReadTurn {
    /// A read of one record.
    pub(crate) fn record(permit: &Permit) -> Self {
        Self { source: permit.source(), owed: permit.take_owed(), ..Self::default() }
    }

    /// A read that walks over many records.
    pub(crate) fn page(permit: &Permit) -> Self {
        let answered = Some(PageInWindow::default());
        Self { walks: true, answered, ..Self::record(permit) }
    }

    /// What the caller keeps until it has taken the answer.
    pub(crate) fn answered(&self) -> Option<PageInWindow> {
        self.answered.clone()
    }

    fn begin(&mut self, part: WindowPart) {
        match &self.answered {
            Some(answered) => drop(answered.set(part)),
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

#[derive(Default)]
struct InboxShared {
    state: Mutex<InboxState>,
    arrived: Condvar,
    room: Condvar,
}

#[derive(Default)]
struct InboxState {
    members: VecDeque<LoopEvent>,
    keeps: FairQueue<LoopEvent>,
    rest: FairQueue<LoopEvent>,
    /// What of the rest was taken and is not answered yet.
    window: Window,
    /// The time since which nothing has ended while the window is closed, and how often something had ended then.
    closed: Option<(u64, u64)>,
    /// Whether the event loop waits for an event.
    is_waited_for: bool,
    /// How many threads wait for room.
    senders_waiting: usize,
    is_over: bool,
}

/// A new inbox.
pub(crate) fn inbox() -> (Inbox, InboxEvents) {
    let shared = Arc::<InboxShared>::default();
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
            self.arrived.notify_one();
        }
    }
}

impl Inbox {
    /// Puts an event into the inbox, and waits for room. If the event loop has ended, the event is dropped.
    pub(crate) fn send(&self, event: LoopEvent) -> Result<(), NotTaken> {
        let mut state = self.0.lock();
        while !state.is_over && !state.has_room(&event) {
            state.senders_waiting += 1;
            state = self.0.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.senders_waiting -= 1;
        }
        if state.is_over {
            return Err(NotTaken::Ended(Box::new(event)));
        }
        self.0.put(state, event);
        Ok(())
    }

    /// Lets the event loop look again whether the window is open. What ends in its own turns needs no call.
    pub(crate) fn wake(&self) {
        let mut state = self.0.lock();
        if std::mem::take(&mut state.is_waited_for) {
            drop(state);
            self.0.arrived.notify_one();
        }
    }

    /// The number of sources that have something queued, and of events that are queued for their turn.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.rest.sources(), state.rest.len())
    }

    /// Puts an event into the inbox if there is room.
    pub(crate) fn try_send(&self, event: LoopEvent) -> Result<(), NotTaken> {
        let state = self.0.lock();
        match () {
            () if state.is_over => Err(NotTaken::Ended(Box::new(event))),
            () if !state.has_room(&event) => Err(NotTaken::Full(Box::new(event))),
            () => {
                self.0.put(state, event);
                Ok(())
            }
        }
    }
}

impl InboxEvents {
    /// Waits for an event and takes what is there, at most so many events.
    pub(crate) fn take(&self, wait: Duration, most: usize) -> Vec<LoopEvent> {
        let mut state = self.0.lock();
        let mut is_open = state.is_open();
        if !state.has_some(is_open) && !wait.is_zero() {
            // What is under way ends in turns of the event loop, which need an event of a member or of the disk.
            let wait = if state.rest.is_empty() { wait } else { wait.min(STALLED) };
            let waited = self.0.arrived.wait_timeout_while(state, wait, |it| {
                // Set each time: an event that cannot be taken yet has cleared it.
                is_open = it.is_open();
                it.is_waited_for = !it.has_some(is_open);
                it.is_waited_for
            });
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.is_waited_for = false;
            is_open = state.is_open();
        }
        let taken = state.take(most, is_open);
        self.taken(state, taken)
    }

    /// Takes everything, whatever is under way.
    pub(crate) fn take_all(&self) -> Vec<LoopEvent> {
        let mut state = self.0.lock();
        let taken = state.take_all();
        self.taken(state, taken)
    }

    fn taken(&self, state: MutexGuard<'_, InboxState>, taken: Vec<LoopEvent>) -> Vec<LoopEvent> {
        let wake = state.senders_waiting > 0 && !taken.is_empty();
        drop(state);
        if wake {
            self.0.room.notify_all();
        }
        taken
    }
}

impl Drop for InboxEvents {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_over = true;
        // Dropped with their reply channels, so that callers learn of the end.
        let left = state.take_all();
        drop(state);
        self.0.room.notify_all();
        drop(left);
    }
}

impl InboxState {
    /// Whether an event can be taken.
    fn has_some(&self, is_open: bool) -> bool {
        !self.members.is_empty() || !self.keeps.is_empty() || is_open && !self.rest.is_empty()
    }

    /// Whether more of the rest may be taken: what is under way leaves room, or does not move.
    fn is_open(&mut self) -> bool {
        if self.rest.is_empty() || self.window.is_open(self.rest.is_shared()) {
            self.closed = None;
            return true;
        }
        let ended = self.window.ended();
        match self.closed {
            Some((since_us, before)) if before == ended => {
                os::now_us().saturating_sub(since_us) >= os::micros(STALLED)
            }
            _ => {
                self.closed = Some((os::now_us(), ended));
                false
            }
        }
    }

    fn has_room(&self, event: &LoopEvent) -> bool {
        let clients = self.keeps.len() + self.rest.len();
        match self.class(event) {
            InboxClass::Members => self.members.len() < MEMBERS_MAX,
            InboxClass::Keeps(..) => clients < CLIENTS_MAX,
            InboxClass::Rest(..) => clients < CLIENTS_MAX && self.rest.len() < REST_MAX,
        }
    }

    fn class(&self, event: &LoopEvent) -> InboxClass {
        match event {
            LoopEvent::Input(Input::Submit(batch)) => {
                // Only renewals may wait for others.
                let is_renewal = batch.linger_us > 0;
                let (source, cost) = (batch.permit.source(), cost(&batch.requests));
                if is_renewal || batch.permit.keeps_all() && !self.rest.waits(source) {
                    return InboxClass::Keeps(source, cost);
                }
                InboxClass::Rest(source, cost)
            }
            LoopEvent::Call { batch, .. } if batch.keeps() => {
                InboxClass::Keeps(batch.source(), batch.cost())
            }
            LoopEvent::Call { batch, .. } => InboxClass::Rest(batch.source(), batch.cost()),
            LoopEvent::Input(_)
            | LoopEvent::Prepared(_)
            | LoopEvent::Synced(_)
            | LoopEvent::Die(_) => InboxClass::Members,
            LoopEvent::Admin { .. }
            | LoopEvent::Join { .. }
            | LoopEvent::Freeze { .. }
            | LoopEvent::Leave { .. } => InboxClass::Keeps(Source::default(), COMMAND_COST),
            LoopEvent::Read { turn, .. } => InboxClass::Rest(turn.source, turn.cost()),
            LoopEvent::Look { source, .. } => InboxClass::Rest(*source, COMMAND_COST),
        }
    }

    fn push(&mut self, event: LoopEvent) {
        match self.class(&event) {
            InboxClass::Members => self.members.push_back(event),
            InboxClass::Keeps(source, cost) => self.keeps.push(source, cost, event),
            InboxClass::Rest(source, cost) => {
                let owed = owed(&event);
                if owed > 0 {
                    self.rest.charge(source, owed);
                }
                self.rest.push(source, cost, event);
            }
        }
    }

    fn take(&mut self, most: usize, is_open: bool) -> Vec<LoopEvent> {
        // No kind takes the whole turn from another.
        let share = most / 4;
        let rest = if is_open { self.rest.len() } else { 0 };
        let rest_share = rest.min(share);
        let keeps_share = self.keeps.len().min(share);
        let members = self.members.len().min(most - rest_share - keeps_share);
        let keeps = self.keeps.len().min(most - members - rest_share);
        let rest = rest.min(most - members - keeps);
        let mut taken = Vec::with_capacity(members + keeps + rest);
        taken.extend(self.members.drain(..members));
        taken.extend(std::iter::from_fn(|| self.keeps.pop()).take(keeps).map(|it| it.value));
        let is_stalled = self.closed.is_some();
        let mut cost_left = if is_stalled { STALLED_COST } else { u64::MAX };
        for _ in 0..rest {
            if cost_left == 0 || !is_stalled && !self.window.is_open(self.rest.is_shared()) {
                break;
            }
            let Some(Served { source, cost, value }) = self.rest.pop() else { break };
            cost_left = cost_left.saturating_sub(cost);
            let event = self.begin(value, cost);
            if !self.keeps.is_empty() && self.keeps.waits(source) {
                // A release of its connection did not fit into this turn: it goes first.
                self.keeps.push(source, cost, event);
            } else {
                taken.push(event);
            }
        }
        taken
    }

    fn take_all(&mut self) -> Vec<LoopEvent> {
        let mut taken: Vec<_> = self.members.drain(..).collect();
        taken.extend(std::iter::from_fn(|| self.keeps.pop()).map(|served| served.value));
        taken.extend(std::iter::from_fn(|| self.rest.pop()).map(|served| served.value));
        taken
    }

    /// Counts an event as under way until it is answered.
    fn begin(&self, mut event: LoopEvent, cost: u64) -> LoopEvent {
        match &mut event {
            LoopEvent::Input(Input::Submit(batch)) => batch.permit.begin(self.window.begin(cost)),
            LoopEvent::Call { batch, .. } => batch.begin(self.window.begin(cost)),
            LoopEvent::Read { turn, .. } => turn.begin(self.window.begin(cost)),
            _ => {}
        }
        event
    }
}

/// The cost of earlier answers, which an event pays for its source.
fn owed(event: &LoopEvent) -> u64 {
    match event {
        LoopEvent::Input(Input::Submit(batch)) => batch.permit.take_owed(),
        LoopEvent::Call { batch, .. } => batch.take_owed(),
        LoopEvent::Read { turn, .. } => turn.owed,
        _ => 0,
    }
}

/// What commands cost.
pub(crate) fn cost(requests: &[bytes::Bytes]) -> u64 {
    requests.iter().map(|request| COMMAND_COST + request.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tenure_node::{
        Admission, CallId, CommandBatch, ConnectionShare, Fresh, Principal, ReplyTo, SessionId,
        SourceShare, Weight,
    };
    use tenure_raft::MemberId;

    use super::*;

    fn batch(number: u64, reply: ReplyTo, linger_us: u64, permit: Permit) -> LoopEvent {
        LoopEvent::Input(Input::Submit(CommandBatch {
            requests: Vec::new(),
            linger_us,
            asked_at_us: number,
            deadline_us: 0,
            reply,
            permit,
        }))
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
        let taken = numbers(events.take(Duration::ZERO, 8_192));
        assert_eq!(taken[..5], [0, 100_001, 100_002, 1, 2]);
        assert_eq!(taken.len(), 8_192);
    }

    #[test]
    fn every_kind_gets_a_part_of_a_turn() {
        let (inbox, events) = inbox();
        for number in 1..=100 {
            let _ = inbox.try_send(command(number));
            let _ = inbox.try_send(renewal(1_000 + number));
            let _ = inbox.try_send(of_member());
        }
        let taken = numbers(events.take(Duration::ZERO, 40));
        let count = |is: fn(u64) -> bool| taken.iter().filter(|it| is(**it)).count();
        assert_eq!([count(|it| it == 0), count(|it| it > 1_000)], [20, 10]);
        assert_eq!(events.take_all().len(), 260);
        assert!(events.take(Duration::ZERO, 40).is_empty());
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
        assert_eq!(numbers(events.take(Duration::ZERO, 100)), [1, 2, 3]);
        let _ = inbox.try_send(command(4));
        let _ = inbox.try_send(of_session(5, release()));
        assert_eq!(numbers(events.take(Duration::ZERO, 100)), [5, 4]);
    }

    /// A command of a connection.
    fn of_connection(number: u64, admission: &Admission, share: &ConnectionShare) -> LoopEvent {
        let permit = admission.admit_from(Weight::Asks, 100, Some(share)).unwrap();
        let reply = ReplyTo::Session { session: SessionId(7), batch: number };
        let LoopEvent::Input(Input::Submit(mut batch)) = batch(number, reply, 0, permit) else {
            unreachable!("a batch is submitted")
        };
        batch.requests.push(Bytes::from_static(&[0; 100]));
        LoopEvent::Input(Input::Submit(batch))
    }

    #[test]
    fn thousands_of_commands_of_one_source_delay_another_by_its_share() {
        let (admission, (inbox, events)) = (Admission::default(), inbox());
        let greedy = ConnectionShare::new(1, SourceShare::new(1));
        for number in 1..=4_000 {
            assert!(inbox.try_send(of_connection(number, &admission, &greedy)).is_ok());
        }
        let under_way = events.take(Duration::ZERO, 8_192);
        assert!(under_way.len() < 2_000, "{} are under way", under_way.len());
        let honest = ConnectionShare::new(2, SourceShare::new(2));
        assert!(inbox.try_send(of_connection(100_000, &admission, &honest)).is_ok());
        // No more than what was under way goes ahead of it, and a few of those that waited before it.
        assert!(events.take(Duration::ZERO, 8_192).is_empty(), "the window is closed");
        drop(under_way);
        let next = numbers(events.take(Duration::ZERO, 8_192));
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
            batch.requests.push(Bytes::from_static(&[0; 100]));
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
        let taken = numbers(events.take(Duration::ZERO, 64));
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
            taken.extend(numbers(events.take(Duration::ZERO, 8)));
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
        let mut under_way = events.take(Duration::ZERO, 8_192);
        // There is no leader: nothing ends. Each wait is for the time after which the window is opened.
        while under_way.len() < 4_000 {
            under_way.extend(events.take(STALLED, 8_192));
        }
        assert_eq!(numbers(under_way), (1..=4_000).collect::<Vec<_>>());
    }

    /// A read that walks over many records.
    fn page(source: Source) -> LoopEvent {
        LoopEvent::Read {
            question: Box::new(|_| ()),
            principal: Principal::anyone(),
            fresh: Fresh::Stale,
            deadline_us: 0,
            turn: ReadTurn { source, walks: true, ..ReadTurn::default() },
        }
    }

    #[test]
    fn a_turn_takes_few_pages_also_while_nothing_ends() {
        let (inbox, events) = inbox();
        (0..100).for_each(|_| assert!(inbox.try_send(page(Source::default())).is_ok()));
        let mut under_way = events.take(Duration::ZERO, 8_192);
        while under_way.len() < 100 {
            let next = events.take(STALLED, 8_192);
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
        let _under_way = events.take(Duration::ZERO, 8_192);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| events.take(Duration::from_secs(60), 8_192));
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
            assert_eq!(events.take(Duration::from_secs(60), 1).len(), 1);
            assert!(sender.join().unwrap());
            let sender = scope.spawn(|| inbox.send(of_member()).is_err());
            drop(events);
            assert!(sender.join().unwrap());
        });
    }
}
