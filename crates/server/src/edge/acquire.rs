//! Waits for a lock on behalf of a caller that has no session.
//!
//! A task of its own asks and waits. If the caller goes away, or its time is over, before it was told of a grant or a
//! place, the task takes its ask back ([`Command::Abandon`]). The log decides what that means: the caller may have
//! repeated its ask and been told of the same grant through another task.

use std::time::Duration;

use bytes::Bytes;
use tenure_core::outcome::{Acquired, Answer, Notice, Outcome, Queued};
use tenure_core::request::{Abandon, Acquire, AskId, Command, LeaseRef, RequestId};
use tenure_node::{Outcomes, Permit};
use tenure_types::{Handle, PlaceNumber, Refusal, Revision};
use tokio::sync::oneshot;

use super::outbox::Mail;
use super::{Edge, Failure, LAST_WORD, Principal, Session, WITHIN, encode};

/// How long a caller without a stream waits for its turn, and what happens then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    /// At most so long, by this member's clock.
    pub(crate) wait: Duration,
    /// How long it may take to learn whether it has to wait at all.
    pub(crate) within: Duration,
    /// Whether the place is kept when the time is over or the caller goes away.
    pub(crate) keep: bool,
}

/// An ask on its way.
struct Asking {
    edge: Edge,
    who: Principal,
    /// The idempotency key that the ask has.
    key: Option<String>,
    turn: Turn,
    session: Session,
}

impl Edge {
    /// Acquires locks, waiting for the turn: the outcome is `Acquired`, a refusal, or `Queued` if the
    /// place is to be kept.
    pub(crate) async fn acquire(
        &self,
        who: &Principal,
        id: RequestId<'_>,
        acquire: Acquire<'_>,
        turn: Turn,
    ) -> Result<Outcome, Failure> {
        let key = match id {
            RequestId::Key(key) => Some(key.to_owned()),
            RequestId::None | RequestId::Seq { .. } => None,
        };
        let (request, permit) = self.admitted(who, id, Command::Acquire(acquire))?;
        let session = self.session();
        let asking = Asking { edge: self.clone(), who: who.clone(), key, turn, session };
        let (done, outcome) = oneshot::channel();
        self.runtime().spawn(asking.run(request, permit, done));
        let waited_ms = super::millis(turn.within);
        outcome.await.unwrap_or(Err(Failure::UnknownOutcome { waited_ms }))
    }
}

type Done = oneshot::Sender<Result<Outcome, Failure>>;

impl Asking {
    async fn run(self, request: Bytes, permit: Permit, mut done: Done) {
        let within = self.turn.within;
        self.session.submit(1, vec![request], 0, self.edge.deadline_us(within), permit);
        let mut early = Vec::new();
        let answer = tokio::time::timeout(within + LAST_WORD, self.answer(&mut early)).await;
        let answer = answer.unwrap_or(Err(tenure_node::Failure::Unknown));
        let outcome = match answer {
            Err(failure) => Err(self.edge.failure(failure, within)),
            Ok(Outcome { result: Ok(Answer::Queued(queued)), revision }) => {
                self.queued(queued, revision, early, &mut done).await
            }
            Ok(outcome) => Ok(outcome),
        };
        if let Err(Ok(Outcome { result: Ok(Answer::Acquired(acquired)), .. })) = done.send(outcome)
            && !self.turn.keep
        {
            // If this fails too, the lease's end gives the lock back.
            let _ = self.abandon(acquired.lease.handle, acquired.place).await;
        }
    }

    /// The answer to the ask; notices that come with it are kept.
    async fn answer(&self, early: &mut Vec<Mail>) -> Result<Outcome, tenure_node::Failure> {
        loop {
            let mut mail = self.session.mail().await.into_iter();
            while let Some(letter) = mail.next() {
                match letter {
                    Mail::Answers { outcomes, .. } => {
                        early.extend(mail);
                        return first(outcomes);
                    }
                    Mail::Closed => return Err(tenure_node::Failure::Unknown),
                    Mail::Notice(_) => early.push(letter),
                }
            }
        }
    }

    async fn queued(
        &self,
        queued: Queued,
        revision: Revision,
        early: Vec<Mail>,
        done: &mut Done,
    ) -> Result<Outcome, Failure> {
        let wait = self.turn.wait;
        tokio::select! {
            outcome = self.turn_comes(&queued, early) => return outcome,
            () = tokio::time::sleep(wait) => {}
            () = done.closed() => {}
        };
        if self.turn.keep {
            return Ok(Outcome { revision, result: Ok(Answer::Queued(queued)) });
        }
        let abandoned = self.abandon(queued.lease.handle, queued.place).await?;
        let refusal = match abandoned.result {
            Err(Refusal::LeaseNotFound) => Refusal::LeaseNotFound,
            _ => Refusal::WaitTimeout,
        };
        Ok(Outcome { revision: abandoned.revision, result: Err(refusal) })
    }

    async fn turn_comes(&self, queued: &Queued, early: Vec<Mail>) -> Result<Outcome, Failure> {
        let mut mail = early;
        loop {
            for letter in mail {
                let notice = match letter {
                    Mail::Notice(notice) => notice,
                    Mail::Answers { .. } => continue,
                    Mail::Closed => {
                        let waited_ms = super::millis(self.turn.wait);
                        return Err(Failure::UnknownOutcome { waited_ms });
                    }
                };
                if let Some((revision, result)) = concerns(notice, queued) {
                    return Ok(Outcome { revision, result });
                }
            }
            mail = self.session.mail().await;
        }
    }

    /// Takes the ask back, once: no caller was told of its answer.
    async fn abandon(&self, lease: Handle, place: PlaceNumber) -> Result<Outcome, Failure> {
        let ask = self.key.as_deref().map_or(AskId::None, AskId::Key);
        let abandon = Abandon { ask, lease: LeaseRef::Handle(lease), place };
        let request = encode(&self.who, RequestId::None, Command::Abandon(abandon));
        self.edge.run(request, Permit::default(), 0, WITHIN).await
    }
}

/// What a notice means for this place; nothing if it is about another one.
fn concerns(notice: Notice, queued: &Queued) -> Option<(Revision, Result<Answer, Refusal>)> {
    match notice {
        Notice::Granted { place, revision, grants, .. } if place == queued.place => {
            let acquired = Acquired { lease: queued.lease, place, grants };
            Some((revision, Ok(Answer::Acquired(acquired))))
        }
        Notice::WaitEnded { place, revision, .. } if place == queued.place => {
            Some((revision, Err(Refusal::WaitTimeout)))
        }
        Notice::LeaseEnded { revision, .. } => Some((revision, Err(Refusal::LeaseNotFound))),
        _ => None,
    }
}

fn first(outcomes: Outcomes) -> Result<Outcome, tenure_node::Failure> {
    outcomes.into_iter().next().unwrap_or(Err(tenure_node::Failure::Unknown))
}
