//! Decides what becomes of one acquire whose caller has no session: when it is answered, and when it is taken back.
//!
//! A caller without a session sends one ask and waits for one reply. If it goes away, or its time is over, before it
//! was told of a grant or a place, the ask is taken back ([`Command::Abandon`]). The log decides what that means: the
//! caller may have repeated its ask, and another member may have told it of the same grant.
//!
//! A driver submits the ask as a batch of a session of its own, then feeds a [`PendingAcquire`]:
//!
//! ```text
//! submit the ask, with the deadline `deadline_us()`
//! until `is_over()`:
//!     wait for an input, or until `wake_us()`
//!     output = handle(now_us, input), or turn(now_us)
//!     Reply:   pass it to the caller, then handle Told or NotTold
//!     Abandon: submit it in the same session; its answer comes as Abandoned
//! ```

use bytes::Bytes;
use tenure_core::codec::encode_request;
use tenure_core::outcome::{Acquired, Answer, Notice, Outcome, Queued};
use tenure_core::request::{Abandon, AskId, Command, LeaseRef, Request, RequestId};
use tenure_types::{Handle, PlaceNumber, Refusal, Revision};

use crate::failure::NodeFailure;
use crate::forward::ANSWER_GRACE_US;
use crate::principal::Principal;

/// Added to a deadline, so that the node's own answer at that deadline arrives before the outcome counts as unknown.
const ANSWER_US: u64 = ANSWER_GRACE_US + 50_000;
/// How long the cluster may take to decide that an ask is taken back.
const ABANDON_US: u64 = 10_000_000;

/// How long an acquire may take, and what becomes of its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcquireTerms {
    /// How long it may take to learn whether the caller has to wait at all.
    pub within_us: u64,
    /// How long the caller waits for its turn once it has a place.
    pub wait_us: u64,
    /// What becomes of the place when that time is over or the caller is gone.
    pub place: PlaceFate,
}

/// What becomes of a place that its caller does not wait for any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaceFate {
    /// It stays in the queue, and so does a grant that follows from it.
    Kept,
    /// It is given up.
    GivenUp,
}

/// Something that happened to an acquire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AcquireInput {
    /// The ask has its answer.
    Answered(Result<Outcome, NodeFailure>),
    /// The session got a notice of a lease.
    Notice(Notice),
    /// The session was closed: notices may have been lost, and no answer follows.
    Closed,
    /// The caller does not wait for the reply any more.
    CallerGone,
    /// The caller has the reply.
    Told,
    /// The caller was gone before it took the reply.
    NotTold,
    /// The command that takes the ask back has its answer.
    Abandoned(Result<Outcome, NodeFailure>),
}

/// Something that has to happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AcquireOutput {
    /// Give the caller this reply, the only one. Report with [`AcquireInput::Told`] or [`AcquireInput::NotTold`].
    Reply(Result<Outcome, NodeFailure>),
    /// Submit this command. Report with [`AcquireInput::Abandoned`], unless the acquire is over.
    Abandon {
        /// The command, in the form of the log.
        request: Bytes,
        /// When it is given up, by the member's clock.
        deadline_us: u64,
    },
}

/// One acquire on its way.
#[derive(Debug)]
pub struct PendingAcquire {
    principal: Principal,
    /// The idempotency key that the ask has.
    key: Option<String>,
    terms: AcquireTerms,
    deadline_us: u64,
    caller: CallerPresence,
    at: AcquireStage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CallerPresence {
    Waits,
    Gone,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum AcquireStage {
    /// The ask was submitted.
    Asked { until_us: u64 },
    /// The ask has a place, at this revision.
    Queued { queued: Queued, revision: Revision, until_us: u64 },
    /// The reply is on its way to the caller. It tells of this grant, if of any.
    Replied { grant: Option<(Handle, PlaceNumber)> },
    /// The command that takes the ask back was submitted, and the caller waits for what it means.
    Abandoning { until_us: u64 },
    /// Nothing is due any more.
    Over,
}

impl PendingAcquire {
    /// An acquire that this principal submits now under this id.
    pub fn new(principal: Principal, id: RequestId<'_>, terms: AcquireTerms, now_us: u64) -> Self {
        let key = match id {
            RequestId::Key(key) => Some(key.to_owned()),
            RequestId::None | RequestId::Seq { .. } => None,
        };
        let deadline_us = now_us.saturating_add(terms.within_us);
        let at = AcquireStage::Asked { until_us: deadline_us.saturating_add(ANSWER_US) };
        Self { principal, key, terms, deadline_us, caller: CallerPresence::Waits, at }
    }

    /// When the ask itself is given up, by the member's clock: the deadline of its batch.
    pub fn deadline_us(&self) -> u64 {
        self.deadline_us
    }

    /// Whether nothing is due any more: no reply, and nothing to take back.
    pub fn is_over(&self) -> bool {
        self.at == AcquireStage::Over
    }

    /// When the next [`PendingAcquire::turn`] is due if no input comes first.
    pub fn wake_us(&self) -> u64 {
        match self.at {
            AcquireStage::Asked { until_us }
            | AcquireStage::Queued { until_us, .. }
            | AcquireStage::Abandoning { until_us } => until_us,
            AcquireStage::Replied { .. } | AcquireStage::Over => u64::MAX,
        }
    }

    /// Takes an input. An input that the present state does not wait for changes nothing.
    pub fn handle(&mut self, now_us: u64, input: AcquireInput) -> Option<AcquireOutput> {
        match input {
            AcquireInput::Answered(answer) => self.answered(now_us, answer),
            // A session hears of a lease only after the answer that names it, so no notice comes before the answer.
            AcquireInput::Notice(notice) => self.notice(notice),
            AcquireInput::Closed => match self.at {
                AcquireStage::Asked { .. }
                | AcquireStage::Queued { .. }
                | AcquireStage::Abandoning { .. } => self.reply(Err(NodeFailure::Unknown)),
                AcquireStage::Replied { .. } | AcquireStage::Over => None,
            },
            AcquireInput::CallerGone => self.caller_gone(now_us),
            AcquireInput::Told => {
                let AcquireStage::Replied { grant } = self.at else { return None };
                if mutant!("told_grant_taken_back") {
                    self.caller = CallerPresence::Gone;
                    return self.give_up(now_us, grant);
                }
                self.at = AcquireStage::Over;
                None
            }
            AcquireInput::NotTold => {
                let AcquireStage::Replied { grant } = self.at else { return None };
                self.caller = CallerPresence::Gone;
                self.give_up(now_us, grant)
            }
            AcquireInput::Abandoned(answer) => {
                let AcquireStage::Abandoning { .. } = self.at else { return None };
                self.reply(abandoned(answer))
            }
        }
    }

    /// Lets time pass.
    pub fn turn(&mut self, now_us: u64) -> Option<AcquireOutput> {
        if now_us < self.wake_us() {
            return None;
        }
        match &self.at {
            AcquireStage::Asked { .. } | AcquireStage::Abandoning { .. } => {
                self.reply(Err(NodeFailure::Unknown))
            }
            AcquireStage::Queued { .. } => self.waited(now_us),
            AcquireStage::Replied { .. } | AcquireStage::Over => None,
        }
    }

    fn answered(
        &mut self,
        now_us: u64,
        answer: Result<Outcome, NodeFailure>,
    ) -> Option<AcquireOutput> {
        let AcquireStage::Asked { .. } = self.at else { return None };
        let Ok(Outcome { result: Ok(Answer::Queued(queued)), revision }) = answer else {
            if self.caller == CallerPresence::Gone {
                return self.give_up(now_us, grant_of(&answer));
            }
            return self.reply(answer);
        };
        let until_us = now_us.saturating_add(self.terms.wait_us);
        self.at = AcquireStage::Queued { queued, revision, until_us };
        match self.caller {
            CallerPresence::Waits => self.turn(now_us),
            CallerPresence::Gone => self.waited(now_us),
        }
    }

    fn notice(&mut self, notice: Notice) -> Option<AcquireOutput> {
        let AcquireStage::Queued { queued, .. } = &self.at else { return None };
        let (revision, result) = concerns(notice, queued)?;
        self.reply(Ok(Outcome { revision, result }))
    }

    fn caller_gone(&mut self, now_us: u64) -> Option<AcquireOutput> {
        match self.at {
            // Whether there is something to take back is known when the answer is.
            AcquireStage::Asked { .. } => {
                self.caller = CallerPresence::Gone;
                None
            }
            AcquireStage::Queued { .. } => {
                self.caller = CallerPresence::Gone;
                self.waited(now_us)
            }
            AcquireStage::Abandoning { .. } => {
                self.at = AcquireStage::Over;
                None
            }
            // The driver tells whether the reply came before.
            AcquireStage::Replied { .. } | AcquireStage::Over => None,
        }
    }

    /// The caller does not wait for its turn any more.
    fn waited(&mut self, now_us: u64) -> Option<AcquireOutput> {
        let AcquireStage::Queued { queued, revision, .. } = &self.at else { return None };
        match self.terms.place {
            PlaceFate::Kept => {
                let result = Ok(Answer::Queued(queued.clone()));
                self.reply(Ok(Outcome { revision: *revision, result }))
            }
            PlaceFate::GivenUp => self.abandon(now_us, queued.lease.handle, queued.place),
        }
    }

    fn reply(&mut self, reply: Result<Outcome, NodeFailure>) -> Option<AcquireOutput> {
        if self.caller == CallerPresence::Gone {
            self.at = AcquireStage::Over;
            return None;
        }
        self.at = AcquireStage::Replied { grant: grant_of(&reply) };
        Some(AcquireOutput::Reply(reply))
    }

    /// Takes back a grant that no caller was told of.
    fn give_up(
        &mut self,
        now_us: u64,
        grant: Option<(Handle, PlaceNumber)>,
    ) -> Option<AcquireOutput> {
        match (grant, self.terms.place) {
            (Some((lease, place)), PlaceFate::GivenUp) if !mutant!("untold_grant_kept") => {
                self.abandon(now_us, lease, place)
            }
            _ => {
                self.at = AcquireStage::Over;
                None
            }
        }
    }

    /// Takes the ask back, once.
    fn abandon(&mut self, now_us: u64, lease: Handle, place: PlaceNumber) -> Option<AcquireOutput> {
        let deadline_us = now_us.saturating_add(ABANDON_US);
        self.at = match self.caller {
            CallerPresence::Waits => {
                AcquireStage::Abandoning { until_us: deadline_us.saturating_add(ANSWER_US) }
            }
            // No caller waits for the result. If the command has no effect, the end of the lease gives the lock back.
            CallerPresence::Gone => AcquireStage::Over,
        };
        let ask = self.key.as_deref().map_or(AskId::None, AskId::Key);
        let command = Command::Abandon(Abandon { ask, lease: LeaseRef::Handle(lease), place });
        let request = Request { principal: self.principal.name(), id: RequestId::None, command };
        let mut bytes = Vec::new();
        encode_request(&request, &mut bytes);
        Some(AcquireOutput::Abandon { request: bytes.into(), deadline_us })
    }
}

/// Turns the outcome of an `Abandon` into the caller's answer. Unless the machine executed it, the place still stands,
/// so the answer is unknown.
fn abandoned(answer: Result<Outcome, NodeFailure>) -> Result<Outcome, NodeFailure> {
    if mutant!("failed_abandon_is_no_effect") {
        return answer;
    }
    let Ok(Outcome { revision, result }) = answer else { return Err(NodeFailure::Unknown) };
    match result {
        Ok(_) => Ok(Outcome { revision, result: Err(Refusal::WaitTimeout) }),
        // The place ended with its lease.
        Err(Refusal::LeaseNotFound) => Ok(Outcome { revision, result }),
        Err(_) => Err(NodeFailure::Unknown),
    }
}

/// The grant that a reply tells of.
fn grant_of(reply: &Result<Outcome, NodeFailure>) -> Option<(Handle, PlaceNumber)> {
    match reply {
        Ok(Outcome { result: Ok(Answer::Acquired(acquired)), .. }) => {
            Some((acquired.lease.handle, acquired.place))
        }
        _ => None,
    }
}

/// What a notice means for this place; nothing if it is about another one.
fn concerns(notice: Notice, queued: &Queued) -> Option<(Revision, Result<Answer, Refusal>)> {
    match notice {
        Notice::Granted { place, revision, grants, .. } if place == queued.place => {
            let acquired = Acquired { lease: queued.lease, place, grants };
            Some((revision, Ok(Answer::Acquired(acquired))))
        }
        Notice::WaitEnded { place, revision, refusal, .. } if place == queued.place => {
            let refusal = refusal.map_or(Refusal::WaitTimeout, |refusal| *refusal);
            Some((revision, Err(refusal)))
        }
        Notice::LeaseEnded { lease, revision, .. } if lease == queued.lease.handle => {
            Some((revision, Err(Refusal::LeaseNotFound)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
