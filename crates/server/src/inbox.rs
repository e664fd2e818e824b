//! Queues events for the event loop: those of members first, then renewals and releases, then the rest.
//!
//! A member that hears its leader late starts an election, and a client whose renewal is late loses its locks. So
//! neither waits behind the commands and reads of other clients. Each turn still takes some events of every kind, and
//! the kinds have bounds of their own: a flood of one kind does not keep the others out.
//!
//! The events of one session keep their order, except that renewals may overtake: a release goes first only if nothing
//! of its session waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_node::{CommandBatch, Input, ReplyTo, SessionId};

use crate::member::{LoopEvent, NotTaken};

/// The most events of members, of this member's own threads and of its disk. A thread that sends more waits.
const MEMBERS_MAX: usize = 7_168;
/// The most events of clients. Clients have at most 16,384 commands and reads in flight; the rest is for the queries
/// that the member makes for itself.
const CLIENTS_MAX: usize = 17_408;
/// The most of these that are neither renewals nor releases: as many as admission lets in, and the member's own.
const REST_MAX: usize = 13_312;
/// The most events that wait for the event loop: about as many as three turns take.
pub(crate) const INBOX_MAX: usize = MEMBERS_MAX + CLIENTS_MAX;

/// The order in which kinds of events are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InboxClass {
    /// What other members, this member's own threads and its disk send.
    Members,
    /// Renewals and releases.
    Keeps,
    /// Everything else.
    Rest,
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
    keeps: VecDeque<LoopEvent>,
    rest: VecDeque<LoopEvent>,
    /// How many batches of each session are among the rest.
    sessions: BTreeMap<SessionId, usize>,
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
        if state.is_empty() && !wait.is_zero() {
            state.is_waited_for = true;
            let waited = self.0.arrived.wait_timeout_while(state, wait, |it| it.is_empty());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.is_waited_for = false;
        }
        let taken = state.take(most);
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
        let left = state.take(usize::MAX);
        drop(state);
        self.0.room.notify_all();
        drop(left);
    }
}

impl InboxState {
    fn is_empty(&self) -> bool {
        self.members.is_empty() && self.keeps.is_empty() && self.rest.is_empty()
    }

    fn has_room(&self, event: &LoopEvent) -> bool {
        let clients = self.keeps.len() + self.rest.len();
        match self.class(event) {
            InboxClass::Members => self.members.len() < MEMBERS_MAX,
            InboxClass::Keeps => clients < CLIENTS_MAX,
            InboxClass::Rest => clients < CLIENTS_MAX && self.rest.len() < REST_MAX,
        }
    }

    fn class(&self, event: &LoopEvent) -> InboxClass {
        match event {
            LoopEvent::Input(Input::Submit(batch)) => {
                // Only renewals may wait for others.
                let is_renewal = batch.linger_us > 0;
                let waits = session(batch).is_some_and(|it| self.sessions.contains_key(&it));
                let keeps = is_renewal || batch.permit.keeps_all() && !waits;
                if keeps { InboxClass::Keeps } else { InboxClass::Rest }
            }
            LoopEvent::Call { batch, .. } => {
                let keeps = batch.keeps();
                if keeps { InboxClass::Keeps } else { InboxClass::Rest }
            }
            LoopEvent::Input(_)
            | LoopEvent::Prepared(_)
            | LoopEvent::Synced(_)
            | LoopEvent::Die(_) => InboxClass::Members,
            LoopEvent::Read { .. }
            | LoopEvent::Admin { .. }
            | LoopEvent::Join { .. }
            | LoopEvent::Look(_)
            | LoopEvent::Freeze { .. }
            | LoopEvent::Leave { .. } => InboxClass::Rest,
        }
    }

    fn push(&mut self, event: LoopEvent) {
        match self.class(&event) {
            InboxClass::Members => self.members.push_back(event),
            InboxClass::Keeps => self.keeps.push_back(event),
            InboxClass::Rest => {
                if let LoopEvent::Input(Input::Submit(batch)) = &event
                    && let Some(session) = session(batch)
                {
                    *self.sessions.entry(session).or_default() += 1;
                }
                self.rest.push_back(event);
            }
        }
    }

    fn take(&mut self, most: usize) -> Vec<LoopEvent> {
        // No kind takes the whole turn from another.
        let share = most / 4;
        let rest_share = self.rest.len().min(share);
        let keeps_share = self.keeps.len().min(share);
        let members = self.members.len().min(most - rest_share - keeps_share);
        let keeps = self.keeps.len().min(most - members - rest_share);
        let rest = self.rest.len().min(most - members - keeps);
        let mut taken = Vec::with_capacity(members + keeps + rest);
        taken.extend(self.members.drain(..members));
        taken.extend(self.keeps.drain(..keeps));
        for event in self.rest.drain(..rest) {
            if let LoopEvent::Input(Input::Submit(batch)) = &event
                && let Some(session) = session(batch)
                && let Some(count) = self.sessions.get_mut(&session)
            {
                *count -= 1;
                if *count == 0 {
                    self.sessions.remove(&session);
                }
            }
            taken.push(event);
        }
        taken
    }
}

/// The session that a batch came from.
fn session(batch: &CommandBatch) -> Option<SessionId> {
    match batch.reply {
        ReplyTo::Session { session, .. } => Some(session),
        ReplyTo::Call(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use tenure_node::{Admission, CallId, Permit, Weight};
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
        assert_eq!(events.take(Duration::ZERO, usize::MAX).len(), 260);
        assert!(events.take(Duration::ZERO, 40).is_empty());
    }

    #[test]
    fn a_release_does_not_overtake_what_its_own_session_asked_before() {
        let admission = Admission::default();
        let release = || admission.admit(Weight::Keeps, 1).unwrap();
        let (inbox, events) = inbox();
        let _ = inbox.try_send(command(1));
        let _ = inbox.try_send(of_session(2, Permit::default()));
        let _ = inbox.try_send(of_session(3, release()));
        assert_eq!(numbers(events.take(Duration::ZERO, 100)), [1, 2, 3]);
        let _ = inbox.try_send(command(4));
        let _ = inbox.try_send(of_session(5, release()));
        assert_eq!(numbers(events.take(Duration::ZERO, 100)), [5, 4]);
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
