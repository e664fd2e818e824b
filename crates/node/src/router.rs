//! Routes answers and notices to the sessions that wait for them.
//!
//! Deliveries arrive in the order in which things happened. The answer that names a lease also attaches the lease to
//! the session, so no later notice about that lease can miss the session.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::outcome::{Acquired, Answer, Notice, Outcome, Queued};
use tenure_types::Handle;

use crate::failure::NodeFailure;
use crate::io::{Outcomes, SessionId};

/// The most bytes of a reason sent with a loss; the history has all of it. One revision can end thousands of leases.
const REASON_MAX: usize = 256;
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
}

/// Maps leases to the sessions that want their notices.
#[derive(Default)]
pub struct Router {
    /// Sessions and the leases that they are attached to.
    sessions: BTreeMap<SessionId, BTreeSet<Handle>>,
    leases: BTreeMap<Handle, Vec<SessionId>>,
    added: usize,
}

impl Router {
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

    /// Ends every session, because notices were lost. Names them, so that their clients can be sent away.
    pub fn close_all(&mut self) -> Vec<SessionId> {
        self.leases.clear();
        std::mem::take(&mut self.sessions).into_keys().collect()
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
        deliver: &mut impl FnMut(SessionId, SessionMessage),
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
            deliver(to, SessionMessage::Answers { batch, outcomes });
        }
    }

    /// Routes a notice to every session that wants to hear of its lease.
    pub fn notify(
        &mut self,
        mut notice: Notice,
        deliver: &mut impl FnMut(SessionId, SessionMessage),
    ) {
        shorten(&mut notice);
        let (lease, last) = match &notice {
            Notice::Granted { lease, .. }
            | Notice::Lost { lease, .. }
            | Notice::WaitEnded { lease, .. } => (*lease, false),
            Notice::LeaseEnded { lease, .. } => (*lease, true),
        };
        let Some(listening) = self.leases.get(&lease) else { return };
        match &listening[..] {
            [one] => deliver(*one, SessionMessage::Notice(notice)),
            several => {
                for to in several {
                    deliver(*to, SessionMessage::Notice(notice.clone()));
                }
            }
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
        if self.added < SWEEP_MIN.max(self.leases.len() / 2) {
            return None;
        }
        self.added = 0;
        Some(self.leases.keys().copied().collect())
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
        Notice::LeaseEnded { lease, revision: Revision(1), cause: Cause::Revoked, word }
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
        router.notify(ended(lease, "x"), &mut |session, _| told.push(session.0));
        router.notify(ended(lease, "x"), &mut |session, _| told.push(session.0));
        assert_eq!(told, [1, 3]);
        assert_eq!(router.attached(), 0);
    }
}
