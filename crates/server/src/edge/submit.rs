//! How does a command get to whoever leads, and its answer back, whatever happens to leaders meanwhile?
//!
//! A batch goes to this member's own loop if it leads, over a link if another one does, and waits
//! within its deadline while nobody does. What certainly did not happen is tried again until the
//! deadline; what may have happened is tried again only if trying twice does no harm.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_core::codec::decode_request;
use tenure_core::request::{Command, RequestId};
use tenure_raft::{MemberId, Why};
use tokio::sync::oneshot;

use super::outbox::{Delivery, Fates, Key};
use super::{Edge, Inner};
use crate::member::{Event, Submission, Undone};
use crate::os;

/// Before something that failed for want of a leader is tried again, unless a leader shows up first.
const PAUSE: Duration = Duration::from_millis(10);

/// Commands that belong together, on their way.
pub(crate) struct Batch {
    pub(crate) requests: Vec<Bytes>,
    pub(crate) patience_us: u64,
    /// When its sender gives up, by [`os::now_us`].
    pub(crate) deadline_us: u64,
    pub(crate) reply: Reply,
}

/// Who is told what became of a batch.
pub(crate) enum Reply {
    Session { session: Key, batch: u64 },
    Call(oneshot::Sender<Fates>),
}

/// A batch and what is known of it.
struct Trip {
    batch: Batch,
    bytes: u64,
    /// What became of each command, as far as it is known.
    fates: Vec<Option<Result<tenure_core::outcome::Outcome, Undone>>>,
    /// The commands of the present attempt, by number; nothing means all of them.
    part: Option<Vec<usize>>,
}

impl Edge {
    /// Sends a batch on its way. Its reply comes in any case, unless the member ends.
    pub(crate) fn submit(&self, batch: Batch) {
        let bytes = batch.requests.iter().map(|request| request.len() as u64).sum();
        self.inner.load.add(batch.requests.len() as u64, bytes);
        let trip = Trip { batch, bytes, fates: Vec::new(), part: None };
        match trip.without_too_large(self.inner.member.command_bytes_max()) {
            trip if trip.is_over() => {
                trip.finish(&self.inner);
                self.inner.member.outbox().ring();
            }
            trip => attempt(&self.inner, trip),
        }
    }
}

impl Trip {
    /// Leaves out what no log would take: proposed, it would be refused by every member that has to
    /// write it or to read it from a link.
    fn without_too_large(mut self, bound: usize) -> Self {
        let fits = |request: &Bytes| request.len() <= bound;
        if self.batch.requests.iter().all(fits) {
            return self;
        }
        let too_large = Undone::TooLarge { bound: bound as u64 };
        let requests = &self.batch.requests;
        let fate = |request| if fits(request) { None } else { Some(Err(too_large)) };
        self.fates = requests.iter().map(fate).collect();
        let left = requests.iter().enumerate().filter(|(_, request)| fits(request));
        self.part = Some(left.map(|(at, _)| at).collect());
        self
    }

    fn is_over(&self) -> bool {
        self.part.as_ref().is_some_and(Vec::is_empty)
    }

    fn requests(&self) -> Vec<Bytes> {
        match &self.part {
            None => self.batch.requests.clone(),
            Some(part) => part.iter().map(|at| self.batch.requests[*at].clone()).collect(),
        }
    }

    /// Notes what became of this attempt; tells whether anything is left to try.
    fn note(&mut self, fates: Fates) -> bool {
        let late = os::now_us() >= self.batch.deadline_us;
        let requests = &self.batch.requests;
        let again = |at: usize, fate: &Result<_, Undone>| {
            !late && matches!(fate, Err(undone) if may_repeat(*undone, &requests[at]))
        };
        if self.part.is_none() {
            let left: Vec<usize> = fates
                .iter()
                .enumerate()
                .filter_map(|(at, fate)| again(at, fate).then_some(at))
                .collect();
            self.fates = fates.into_iter().map(Some).collect();
            self.part = Some(left);
        } else {
            let part = self.part.take().unwrap_or_default();
            let mut left = Vec::new();
            for (at, fate) in part.into_iter().zip(fates) {
                if again(at, &fate) {
                    left.push(at);
                }
                // Once it may have happened, not having happened the second time proves nothing.
                let doubt = self.fates[at] == Some(Err(Undone::Unknown));
                self.fates[at] =
                    Some(if doubt && fate.is_err() { Err(Undone::Unknown) } else { fate });
            }
            self.part = Some(left);
        }
        self.part.as_ref().is_some_and(|left| !left.is_empty())
    }

    fn finish(self, inner: &Inner) {
        inner.load.sub(self.batch.requests.len() as u64, self.bytes);
        let fates = self.fates.into_iter().map(|fate| fate.unwrap_or(Err(Undone::Unknown)));
        let fates = fates.collect();
        match self.batch.reply {
            Reply::Session { session, batch } => {
                inner.member.outbox().put(Delivery::Answers { session, batch, fates });
            }
            Reply::Call(done) => {
                // Nobody there any more: what was done is done.
                let _ = done.send(fates);
            }
        }
    }
}

/// Whether a command without a good answer may be sent again.
fn may_repeat(undone: Undone, request: &[u8]) -> bool {
    match undone {
        Undone::NotDone(Why::NotLeader { .. } | Why::Transferring | Why::Replaced) => true,
        Undone::NotDone(_) | Undone::TooLarge { .. } => false,
        Undone::Unknown => decode_request(request).is_ok_and(|request| {
            request.id != RequestId::None
                || matches!(request.command, Command::Renew(_) | Command::GrantLease(_))
        }),
    }
}

fn attempt(inner: &Arc<Inner>, trip: Trip) {
    let leader = inner.member.lead().borrow().by;
    match leader {
        None => later(inner, trip),
        Some(id) if id == inner.member.id() => here(inner, trip),
        Some(id) => there(inner, trip, id),
    }
}

/// Gives the commands to this member's loop.
fn here(inner: &Arc<Inner>, trip: Trip) {
    let requests = trip.requests();
    let patience_us = trip.batch.patience_us;
    let number = requests.len();
    let kept = inner.clone();
    let done = Box::new(move |fates| settle(&kept, trip, fates));
    let event = Event::Submit(Submission::new(requests, patience_us, done));
    if let Err(not_taken) = inner.member.try_tell(event)
        && let Event::Submit(submission) = not_taken.back()
    {
        // The inbox is full, or the member has ended. Either way nothing was done.
        (submission.done)(vec![Err(Undone::NotDone(Why::Busy)); number]);
        inner.member.outbox().ring();
    }
}

/// Sends the commands to the leader.
fn there(inner: &Arc<Inner>, trip: Trip, leader: MemberId) {
    let requests = trip.requests();
    let patience_us = trip.batch.patience_us;
    let kept = inner.clone();
    let done = move |fates| {
        settle(&kept, trip, fates);
        kept.member.outbox().ring();
    };
    inner.net.forward(leader, &requests, patience_us, Box::new(done));
}

/// Waits for a leader, or for the deadline.
fn later(inner: &Arc<Inner>, mut trip: Trip) {
    let inner = inner.clone();
    let runtime = inner.runtime.clone();
    runtime.spawn(async move {
        let mut lead = inner.member.lead();
        let deadline_us = trip.batch.deadline_us;
        let led = async {
            while lead.borrow_and_update().by.is_none() {
                if lead.changed().await.is_err() {
                    break;
                }
            }
        };
        if tokio::time::timeout(os::until(deadline_us), led).await.is_ok() {
            return attempt(&inner, trip);
        }
        let number = trip.requests().len();
        trip.note(vec![Err(Undone::NotDone(Why::NotLeader { leader: None })); number]);
        trip.finish(&inner);
        inner.member.outbox().ring();
    });
}

fn settle(inner: &Arc<Inner>, mut trip: Trip, fates: Fates) {
    if !trip.note(fates) || inner.member.over().is() {
        return trip.finish(inner);
    }
    let inner = inner.clone();
    let runtime = inner.runtime.clone();
    runtime.spawn(async move {
        let mut lead = inner.member.lead();
        lead.mark_unchanged();
        let _ = tokio::time::timeout(PAUSE, lead.changed()).await;
        attempt(&inner, trip);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::codec::encode_request;
    use tenure_core::outcome::{Answer, Outcome};
    use tenure_core::request::{LeaseRef, Request};
    use tenure_types::{LeaseId, Revision};

    fn trip(commands: Vec<Command<'_>>, left: Duration) -> Trip {
        let (done, _) = oneshot::channel();
        let encode = |command| {
            let mut bytes = Vec::new();
            let request = Request { principal: "", id: RequestId::None, command };
            encode_request(&request, &mut bytes);
            bytes.into()
        };
        let deadline_us = os::now_us() + u64::try_from(left.as_micros()).unwrap();
        let requests = commands.into_iter().map(encode).collect();
        let batch = Batch { requests, patience_us: 0, deadline_us, reply: Reply::Call(done) };
        Trip { batch, bytes: 0, fates: Vec::new(), part: None }
    }

    fn renew() -> Command<'static> {
        Command::Renew(vec![LeaseRef::Id(LeaseId::new(1).unwrap())])
    }

    fn delete() -> Command<'static> {
        Command::Delete { key: "k", expect: tenure_core::request::Expect::Any, guard: None }
    }

    const NOT_DONE: Undone = Undone::NotDone(Why::Replaced);

    #[test]
    fn only_what_did_not_happen_or_may_happen_twice_is_tried_again() {
        let mut trip = trip(vec![renew(), delete(), delete()], Duration::from_secs(60));
        let unknown = Err(Undone::Unknown);
        assert!(trip.note(vec![unknown.clone(), unknown.clone(), Err(NOT_DONE)]));
        assert_eq!(trip.part, Some(vec![0, 2]), "a delete that may have happened is not repeated");
    }

    #[test]
    fn doubt_stays_when_the_repetition_is_not_done() {
        let mut trip = trip(vec![renew()], Duration::from_secs(60));
        assert!(trip.note(vec![Err(Undone::Unknown)]));
        assert!(!trip.note(vec![Err(Undone::NotDone(Why::Busy))]));
        assert_eq!(trip.fates, vec![Some(Err(Undone::Unknown))]);
    }

    #[test]
    fn an_answer_ends_doubt() {
        let mut trip = trip(vec![renew()], Duration::from_secs(60));
        let answered =
            Ok(Outcome { revision: Revision(7), result: Ok(Answer::Renewed(vec![None])) });
        assert!(trip.note(vec![Err(Undone::Unknown)]));
        assert!(!trip.note(vec![answered.clone()]));
        assert_eq!(trip.fates, vec![Some(answered)]);
    }

    #[test]
    fn what_is_too_large_is_left_out_and_the_others_go_on() {
        let small = renew();
        let value = [0; 100];
        let put = tenure_core::request::Put {
            key: "k",
            value: &value,
            lease: None,
            expect: tenure_core::request::Expect::Any,
            guard: None,
        };
        let mut trip = trip(vec![Command::Put(put), small], Duration::from_secs(60));
        trip = trip.without_too_large(100);
        assert!(!trip.is_over());
        assert_eq!(trip.requests().len(), 1);
        let answered =
            Ok(Outcome { revision: Revision(7), result: Ok(Answer::Renewed(vec![None])) });
        assert!(!trip.note(vec![answered.clone()]));
        let too_large = Err(Undone::TooLarge { bound: 100 });
        assert_eq!(trip.fates, vec![Some(too_large), Some(answered)]);
        assert!(trip.without_too_large(1).is_over());
    }

    #[test]
    fn nothing_is_tried_after_the_deadline() {
        let mut trip = trip(vec![delete()], Duration::ZERO);
        assert!(!trip.note(vec![Err(NOT_DONE)]));
    }
}
