//! Performs what a session decides: submits its commands, runs its queries, and encodes its answers.

use std::time::Duration;

use tenure_core::outcome::{Answer, Outcome};
use tenure_node::{CommandBatch, NodeFailure, SessionEnd, SessionMessage, SessionOutput};
use tenure_wire::{Failure, Message as _, convert, v1};
use tokio::time::Instant;

use super::{KeptRequest, SessionHandler, answer, reason};
use crate::api::encode;
use crate::api::{decode, query};
use crate::dispatch::Caller;
use crate::traces::RequestSpan;

/// The most outputs for which a session keeps memory.
const OUTPUTS_KEPT: usize = 64;

impl SessionHandler {
    pub(super) fn take_mail(&mut self, mail: Vec<SessionMessage>) {
        for letter in mail {
            if let SessionMessage::Answers { batch, .. } = &letter {
                self.followed.remove(batch);
            }
            self.session.mail(letter, &mut self.outputs);
        }
    }

    /// Performs the outputs of the session, and sets its alarm.
    pub(super) async fn perform(&mut self, out: &mut v1::SessionResponse) {
        let mut outputs = std::mem::take(&mut self.outputs);
        if !outputs.is_empty() {
            let now_us = self.dispatch.now_us();
            for output in outputs.drain(..) {
                match output {
                    SessionOutput::Answer { id, kept, asked_at_us, outcome } => {
                        self.answer(id, kept, (asked_at_us, now_us), outcome, out);
                    }
                    SessionOutput::Notice { notice, id } => self.notice(notice, id, out),
                    SessionOutput::Submit { batch, commands } => self.submit(batch, commands),
                    SessionOutput::Ask { question, asked_at_us, deadline_us } => {
                        self.ask(question, asked_at_us, deadline_us);
                    }
                    SessionOutput::Attach(leases) => self.mailbox.attach(leases),
                    SessionOutput::Learned(lease) => self.name(lease.handle, lease.id),
                    SessionOutput::TellLeader => {
                        out.leader = Some(self.dispatch.leader_hint().await);
                    }
                    SessionOutput::Leave(places) => {
                        self.dispatch.leave_places(self.who.clone(), places);
                    }
                    SessionOutput::End(end) => out.closing = Some((&self.farewell(end)).into()),
                }
            }
        }
        // A wave of answers should not keep its memory for as long as the session lives.
        if outputs.capacity() <= OUTPUTS_KEPT {
            self.outputs = outputs;
        }
        self.set_alarm();
    }

    fn set_alarm(&mut self) {
        let wake_us = self.session.wake_us();
        if wake_us != self.alarm_us {
            self.alarm_us = wake_us;
            if wake_us < u64::MAX {
                self.alarm.as_mut().reset(Instant::now() + self.dispatch.until(wake_us));
            }
        }
    }

    fn submit(&mut self, batch: u64, commands: CommandBatch<()>) {
        let reply = self.mailbox.reply_to(batch);
        let spans = self.session.kept(batch).filter_map(|kept| kept.span.as_ref());
        let followed = self.dispatch.follow(reply, spans.map(RequestSpan::steps));
        self.followed.extend(followed.map(|followed| (batch, followed)));
        self.mailbox.submit(batch, commands);
    }

    /// Runs a query in a task of its own.
    fn ask(&mut self, request: v1::Request, asked_at_us: u64, deadline_us: u64) {
        let (dispatch, who) = (self.dispatch.clone(), self.who.clone());
        let memory = Caller::present_memory();
        let asked = async move {
            let within = dispatch.until(deadline_us);
            let answer = query::session(&dispatch, &who, &request, within).await;
            let charge = memory.charge(answer.encoded_len());
            (asked_at_us, answer, charge)
        };
        match Caller::current() {
            Some(caller) => self.questions.spawn(caller.run(asked)),
            None => self.questions.spawn(asked),
        };
    }

    fn answer(
        &mut self,
        id: u64,
        kept: KeptRequest,
        (asked_at_us, now_us): (u64, u64),
        outcome: Result<Outcome, NodeFailure>,
        out: &mut v1::SessionResponse,
    ) {
        self.served(kept.class, asked_at_us, now_us);
        let answer = match outcome {
            Ok(outcome) => {
                let named = match &outcome.result {
                    Ok(Answer::Queued(queued)) => Some(&queued.lease),
                    Ok(Answer::Acquired(acquired)) => Some(&acquired.lease),
                    Ok(Answer::LeaseGranted(lease)) => Some(lease),
                    _ => None,
                };
                if let Some(lease) = named {
                    self.name(lease.handle, lease.id);
                }
                out.revision = out.revision.max(convert::revision(outcome.revision));
                let result = encode::answer(&outcome, kept.form);
                answer(id, Some(outcome.revision), result)
            }
            Err(failure) => {
                let waited = Duration::from_micros(now_us.saturating_sub(asked_at_us));
                let failure = self.dispatch.failure(failure, waited);
                answer(id, None, v1::answer::Result::Error(Box::new((&failure).into())))
            }
        };
        if let Some(span) = kept.span {
            span.finish(reason(&answer));
        }
        out.answers.push(answer);
    }

    /// The error with which a session ends.
    pub(super) fn farewell(&self, end: SessionEnd) -> Failure {
        match end {
            SessionEnd::GreetedTwice => decode::invalid("hello", "was said before"),
            SessionEnd::OtherCluster => {
                Failure::OtherCluster { cluster_id: self.cluster().cluster_id }
            }
            SessionEnd::Restored => Failure::Restored,
            SessionEnd::TooManyLeases => decode::invalid("leases", "are too many"),
            SessionEnd::TooManyRequests { bound } => Failure::TooLarge { bound: bound as u64 },
            SessionEnd::Stopping | SessionEnd::Closed => self.dispatch.farewell(),
            SessionEnd::Credentials => {
                self.ended_credentials.clone().unwrap_or_else(|| self.dispatch.farewell())
            }
        }
    }
}
