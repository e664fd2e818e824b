//! Routes answers and notices to the sessions that wait for them.
//!
//! Deliveries arrive in the order in which things happened. The answer that names a lease also attaches the lease to
//! the session, so no later notice about that lease can miss the session.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::Machine;
use tenure_core::outcome::{Acquired, Answer, Notice, Outcome, Queued};
use tenure_core::request::LeaseRef;
use tenure_types::Handle;

use crate::failure::NodeFailure;
use crate::io::{Outcomes, SessionId};

/// The most bytes of a reason sent with a loss; the history has all of it. One revision can end thousands of leases.
const REASON_MAX: usize = 256;
/// The number of unread messages in a mailbox beyond which its session counts as not reading and is closed.
const MAIL_MAX: usize = 65_536;
/// The least number of leases added since the last sweep before the next sweep drops routes of ended leases.
const SWEEP_MIN: usize = 1_024;

/// A message to a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionMessage {
    /// What became of the commands of one batch, in order.
    Answers {
        /// The session's number for the batch.
        batch: u64,
        /// Each command's outcome.
        outcomes: Outcomes,
    },
    /// Something happened to one of its leases.
    Notice(Notice),
    /// The session did not read, notices were lost, or the member ends. No message follows.
    Closed,
}

/// Maps leases to the sessions that want their notices.
///
/// Every function that delivers a message is given `deliver`, which puts it into the mailbox of a session and returns
/// how many messages wait there. A session with more than the bound does not read: it is closed.
pub struct Router {
    /// The most messages that may wait in a mailbox.
    mail_max: usize,
    /// The least number of leases added between two sweeps.
    sweep_min: usize,
    /// Sessions and the leases that they are attached to.
    sessions: BTreeMap<SessionId, BTreeSet<Handle>>,
    leases: BTreeMap<Handle, Vec<SessionId>>,
    added: usize,
}

impl Default for Router {
    fn default() -> Self {
        Self::new(MAIL_MAX)
    }
}

impl Router {
    /// A router that closes a session in whose mailbox more than this many messages wait.
    pub fn new(mail_max: usize) -> Self {
        let (sessions, leases) = (BTreeMap::new(), BTreeMap::new());
        Self { mail_max, sweep_min: SWEEP_MIN, sessions, leases, added: 0 }
    }

    /// The same, with at least so many leases added between two sweeps.
    pub fn sweeping_after(self, sweep_min: usize) -> Self {
        Self { sweep_min, ..self }
    }

    /// Begins a session.
    pub fn open(&mut self, session: SessionId) {
        self.sessions.insert(session, BTreeSet::new());
    }

    /// Ends a session. Its leases live on.
    pub fn close(&mut self, session: SessionId) {
        for lease in self.sessions.remove(&session).into_iter().flatten() {
            if let Some(listening) = self.leases.get_mut(&lease) {
                listening.retain(|other| *other != session);
                if listening.is_empty() {
                    self.leases.remove(&lease);
                }
            }
        }
    }

    /// Ends every session, because notices were lost or the member ends.
    pub fn close_all(&mut self, deliver: &mut impl FnMut(SessionId, SessionMessage) -> usize) {
        self.leases.clear();
        for session in std::mem::take(&mut self.sessions).into_keys() {
            deliver(session, SessionMessage::Closed);
        }
    }

    /// Ends a session whose mailbox has this many messages, if they are too many.
    fn close_unread(
        &mut self,
        session: SessionId,
        waiting: usize,
        deliver: &mut impl FnMut(SessionId, SessionMessage) -> usize,
    ) {
        if waiting > self.mail_max && !mutant!("unread_session_kept") {
            self.close(session);
            deliver(session, SessionMessage::Closed);
        }
    }

    /// Attaches a session to this lease: from now on the session gets its notices.
    pub fn attach(&mut self, session: SessionId, lease: Handle) {
        let Some(attached) = self.sessions.get_mut(&session) else { return };
        if mutant!("notice_lost_on_reconnect") && self.leases.contains_key(&lease) {
            return;
        }
        let listening = self.leases.entry(lease).or_default();
        if !listening.contains(&session) {
            listening.push(session);
            attached.insert(lease);
            self.added += 1;
        }
    }

    /// Routes the results of a batch.
    pub fn answer(
        &mut self,
        session: SessionId,
        batch: u64,
        outcomes: Outcomes,
        deliver: &mut impl FnMut(SessionId, SessionMessage) -> usize,
    ) {
        for outcome in &outcomes {
            if let Some(lease) = lease_of(outcome) {
                self.attach(session, lease);
            }
        }
        let mut to = session;
        if mutant!("answer_routed_to_an_older_session")
            && let Some((older, _)) = self.sessions.range(..session).next_back()
        {
            to = *older;
        }
        if self.sessions.contains_key(&to) {
            let waiting = deliver(to, SessionMessage::Answers { batch, outcomes });
            self.close_unread(to, waiting, deliver);
        }
    }

    /// Routes a notice to every session that wants to hear of its lease.
    pub fn notify(
        &mut self,
        mut notice: Notice,
        deliver: &mut impl FnMut(SessionId, SessionMessage) -> usize,
    ) {
        shorten(&mut notice);
        let (lease, last) = match &notice {
            Notice::Granted { lease, .. }
            | Notice::Lost { lease, .. }
            | Notice::WaitEnded { lease, .. } => (*lease, false),
            Notice::LeaseEnded { lease, .. } => (*lease, true),
        };
        let Some(listening) = self.leases.get(&lease) else { return };
        let mut unread = Vec::new();
        let mut put = |to: SessionId, notice| {
            let waiting = deliver(to, SessionMessage::Notice(notice));
            if waiting > self.mail_max {
                unread.push((to, waiting));
            }
        };
        match &listening[..] {
            [one] => put(*one, notice),
            several => several.iter().for_each(|to| put(*to, notice.clone())),
        }
        for (session, waiting) in unread {
            self.close_unread(session, waiting, deliver);
        }
        if last {
            self.forget(lease);
        }
    }

    /// Drops the routes of a lease that has ended.
    pub fn forget(&mut self, lease: Handle) {
        for session in self.leases.remove(&lease).into_iter().flatten() {
            if let Some(attached) = self.sessions.get_mut(&session) {
                attached.remove(&lease);
            }
        }
    }

    /// The leases to look at, if so many were added that some may have ended without a notice, as those do that
    /// their own clients revoke. [`Router::forget`] those that are gone.
    pub fn sweep(&mut self) -> Option<Vec<Handle>> {
        if self.added < self.sweep_min.max(self.leases.len() / 2) {
            return None;
        }
        self.added = 0;
        Some(self.leases.keys().copied().collect())
    }

    /// Those of the leases of a sweep that are gone. Not those that this member has not seen yet: an answer of the
    /// leader may be ahead of its log.
    pub fn gone(machine: &Machine, leases: Vec<Handle>) -> Vec<Handle> {
        let is_gone = |lease: &Handle| {
            if mutant!("sweep_forgets_unseen_leases") {
                return !machine.has_lease(LeaseRef::Handle(*lease));
            }
            machine.has_forgotten(*lease)
        };
        leases.into_iter().filter(is_gone).collect()
    }

    /// The open sessions.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.keys().copied()
    }

    /// The number of leases that some session is attached to.
    pub fn attached(&self) -> usize {
        self.leases.len()
    }
}

/// Cuts a long reason to what a message about thousands of leases has room for.
fn shorten(notice: &mut Notice) {
    let (Notice::Lost { word: Some(word), .. } | Notice::LeaseEnded { word: Some(word), .. }) =
        notice
    else {
        return;
    };
    if let Some(reason) = &mut word.reason
        && reason.len() > REASON_MAX
    {
        let most = REASON_MAX - "…".len();
        let end = (0..=most).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
        *reason = format!("{}…", &reason[..end]).into();
    }
}

fn lease_of(outcome: &Result<Outcome, NodeFailure>) -> Option<Handle> {
    match outcome.as_ref().ok()?.result.as_ref().ok()? {
        Answer::LeaseGranted(lease)
        | Answer::Acquired(Acquired { lease, .. })
        | Answer::Queued(Queued { lease, .. }) => Some(lease.handle),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::event::Cause;
    use tenure_core::outcome::TakenBy;
    use tenure_types::Revision;

    use super::*;

    fn ended(lease: Handle, reason: &str) -> Notice {
        let word = Some(Box::new(TakenBy { by: None, reason: Some(reason.into()) }));
        Notice::LeaseEnded { lease, revision: Revision(1), cause: Some(Cause::Revoked), word }
    }

    #[test]
    fn a_long_reason_is_told_in_part() {
        let told = |reason: &str| {
            let mut notice = ended(Handle { slot: 1, generation: 1 }, reason);
            shorten(&mut notice);
            let Notice::LeaseEnded { word: Some(word), .. } = notice else { unreachable!() };
            word.reason.unwrap().into_string()
        };
        assert_eq!(told("stuck"), "stuck");
        let long = told(&"é".repeat(4_000));
        assert!(long.len() <= REASON_MAX && long.ends_with("é…"), "{long}");
    }

    #[test]
    fn every_attached_session_hears_a_notice_until_the_lease_ends() {
        let (mut router, lease) = (Router::default(), Handle { slot: 1, generation: 1 });
        let mut told = Vec::new();
        for number in [1, 2, 3] {
            router.open(SessionId(number));
            router.attach(SessionId(number), lease);
        }
        router.close(SessionId(2));
        let mut put = |session: SessionId, _| {
            told.push(session.0);
            1
        };
        router.notify(ended(lease, "x"), &mut put);
        router.notify(ended(lease, "x"), &mut put);
        assert_eq!(told, [1, 3]);
        assert_eq!(router.attached(), 0);
    }

    #[test]
    fn a_session_that_does_not_read_is_closed_and_the_others_go_on() {
        let (mut router, lease) = (Router::new(2), Handle { slot: 1, generation: 1 });
        let mut mailboxes: BTreeMap<SessionId, Vec<SessionMessage>> = BTreeMap::new();
        for number in [1, 2] {
            router.open(SessionId(number));
            router.attach(SessionId(number), lease);
        }
        let lost = || Notice::WaitEnded {
            lease,
            place: tenure_types::PlaceNumber(1),
            revision: Revision(1),
            refusal: None,
        };
        for _ in 0..4 {
            router.notify(lost(), &mut |session, mail| {
                let mailbox = mailboxes.entry(session).or_default();
                mailbox.push(mail);
                if session == SessionId(2) { 0 } else { mailbox.len() }
            });
        }
        let of = |session| &mailboxes[&SessionId(session)];
        assert_eq!(of(1).len(), 4, "three notices, and the end");
        assert_eq!(of(1).last(), Some(&SessionMessage::Closed));
        assert_eq!(of(2).len(), 4);
        assert!(router.sessions().eq([SessionId(2)]));
    }
}
