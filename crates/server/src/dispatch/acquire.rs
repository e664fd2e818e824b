//! Waits for a lock on behalf of a caller that has no session.
//!
//! Each acquire runs in its own task, which outlives the caller. [`PendingAcquire`] decides when the caller gets which
//! reply and when the acquire is abandoned. The task feeds it inputs and performs its outputs.

use std::time::Duration;

use bytes::Bytes;
use tenure_core::outcome::Outcome;
use tenure_core::request::{Command, RequestId};
use tenure_node::{
    AcquireInput, AcquireOutput, AcquireTerms, Outcomes, PendingAcquire, Permit, SessionMessage,
    Weight,
};
use tokio::sync::oneshot;

use super::{ClientSession, Dispatch, Failure, Principal};
use crate::traces::{self, FollowedBatch};

/// The numbers of the two batches that an acquire may submit.
const ASK: u64 = 1;
const ABANDON: u64 = 2;

/// A reply on its way to the caller. If the caller is gone, the reply is dropped together with its receipt, which tells
/// the task that the caller was not told.
struct Reply {
    outcome: Result<Outcome, Failure>,
    receipt: oneshot::Sender<()>,
}

/// The task of one acquire.
struct PendingAcquireTask {
    dispatch: Dispatch,
    session: ClientSession,
    pending: PendingAcquire,
    begun_us: u64,
    /// The channel to the caller; none once the caller has its reply or is gone.
    caller: Option<oneshot::Sender<Reply>>,
    /// Records the steps of a traced acquire.
    _followed: Option<FollowedBatch>,
}

impl Dispatch {
    /// Acquires locks, or upgrades a hold, and waits in their queues. The outcome is `Acquired`, a refusal, or `Queued`
    /// if the terms say to keep the place in the queue.
    pub(crate) async fn acquire(
        &self,
        who: &Principal,
        id: RequestId<'_>,
        ask: Command<'_>,
        terms: AcquireTerms,
    ) -> Result<Outcome, Failure> {
        let (request, permit) = self.admitted(who, id, ask)?;
        let (caller, reply) = oneshot::channel();
        let (session, begun_us) = (self.session(), self.now_us());
        let pending = PendingAcquire::new(who.clone(), id, terms, begun_us);
        let followed = self.follow(session.reply_to(ASK), traces::present());
        let (dispatch, caller) = (self.clone(), Some(caller));
        let asking = PendingAcquireTask {
            dispatch,
            session,
            pending,
            begun_us,
            caller,
            _followed: followed,
        };
        self.runtime().spawn(asking.run(request, permit));
        let Ok(Reply { outcome, receipt }) = reply.await else {
            return Err(Failure::UnknownOutcome { waited_ms: terms.within_us / 1_000 });
        };
        let _ = receipt.send(());
        outcome
    }
}

impl PendingAcquireTask {
    async fn run(mut self, request: Bytes, permit: Permit) {
        self.session.submit_one(ASK, request, self.pending.deadline_us(), permit);
        while !self.pending.is_over() {
            for input in self.inputs().await {
                let output = self.pending.handle(self.dispatch.now_us(), input);
                self.perform(output).await;
            }
            let output = self.pending.turn(self.dispatch.now_us());
            self.perform(output).await;
        }
    }

    /// Waits for input, at the longest until the acquire has to be woken.
    async fn inputs(&mut self) -> Vec<AcquireInput> {
        let (dispatch, wake_us) = (&self.dispatch, self.pending.wake_us());
        let gone = async {
            match &mut self.caller {
                Some(caller) => caller.closed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            mail = self.session.mail() => mail.into_iter().map(input).collect(),
            () = tokio::time::sleep(dispatch.until(wake_us)) => Vec::new(),
            () = gone => {
                self.caller = None;
                vec![AcquireInput::CallerGone]
            }
        }
    }

    async fn perform(&mut self, mut output: Option<AcquireOutput>) {
        while let Some(next) = output {
            output = match next {
                AcquireOutput::Reply(reply) => {
                    let told = self.reply(reply).await;
                    let input = if told { AcquireInput::Told } else { AcquireInput::NotTold };
                    self.pending.handle(self.dispatch.now_us(), input)
                }
                AcquireOutput::Abandon { request, deadline_us } => {
                    // An abandon may use the reserve of the budget, as all commands that give up something. It is sent
                    // even if the budget has no room: otherwise the place would stay until its lease ends.
                    let admission = self.dispatch.member().admission();
                    let permit = admission.admit(Weight::Keeps, request.len() as u64);
                    let permit = permit.unwrap_or_default();
                    self.session.submit_one(ABANDON, request, deadline_us, permit);
                    None
                }
            };
        }
    }

    /// Sends the caller its reply and returns whether the caller took it.
    async fn reply(&mut self, reply: Result<Outcome, tenure_node::NodeFailure>) -> bool {
        let waited = Duration::from_micros(self.dispatch.now_us().saturating_sub(self.begun_us));
        let outcome = reply.map_err(|failure| self.dispatch.failure(failure, waited));
        let Some(caller) = self.caller.take() else { return false };
        let (receipt, taken) = oneshot::channel();
        caller.send(Reply { outcome, receipt }).is_ok() && taken.await.is_ok()
    }
}

/// Converts a message of the session's mailbox to an input of the acquire.
fn input(mail: SessionMessage) -> AcquireInput {
    match mail {
        SessionMessage::Answers { batch: ABANDON, outcomes } => {
            AcquireInput::Abandoned(first(outcomes))
        }
        SessionMessage::Answers { outcomes, .. } => AcquireInput::Answered(first(outcomes)),
        SessionMessage::Notice(notice) => AcquireInput::Notice(notice),
        SessionMessage::Closed => AcquireInput::Closed,
    }
}

fn first(outcomes: Outcomes) -> Result<Outcome, tenure_node::NodeFailure> {
    outcomes.into_iter().next().unwrap_or(Err(tenure_node::NodeFailure::Unknown))
}
