//! Answers requests of a session that have no outcome when their time is over.

use tenure_wire::{Failure, v1};
use tokio::time::Instant;

use super::{PendingAnswers, SessionHandler, answer};
use crate::dispatch;

impl PendingAnswers {
    /// When the request is answered as unknown: a little after the deadline, so that a definite "not applied" arrives
    /// first.
    pub(super) fn given_up_at_us(&self) -> u64 {
        self.deadline_us.saturating_add(dispatch::ANSWER_GRACE_US)
    }

    /// The failure for a request without an outcome in time.
    pub(super) fn unknown(&self, now_us: u64) -> Failure {
        Failure::UnknownOutcome { waited_ms: now_us.saturating_sub(self.asked_at_us) / 1_000 }
    }
}

impl SessionHandler {
    /// Wakes the session when the first of these requests is to be given up.
    pub(super) fn set_alarm(&mut self, pending: &[PendingAnswers]) {
        let Some(soonest_us) = pending.iter().map(PendingAnswers::given_up_at_us).min() else {
            return;
        };
        let at = Instant::now() + self.dispatch.until(soonest_us);
        if !self.alarmed || at < self.alarm.deadline() {
            self.alarm.as_mut().reset(at);
            self.alarmed = true;
        }
    }

    /// Answers requests whose time is over as unknown. Their later outcomes are dropped.
    pub(super) fn give_up(&mut self, out: &mut v1::SessionResponse) {
        let now_us = self.dispatch.now_us();
        let mut soonest_us: Option<u64> = None;
        for pending in self.batches.values_mut().flatten().filter(|it| !it.answered) {
            let at = pending.given_up_at_us();
            if at > now_us {
                soonest_us = Some(soonest_us.map_or(at, |it| it.min(at)));
                continue;
            }
            pending.answered = true;
            self.in_flight -= 1;
            let error = v1::answer::Result::Error((&pending.unknown(now_us)).into());
            out.answers.push(answer(pending.id, None, error));
        }
        self.alarmed = soonest_us.is_some();
        if let Some(at) = soonest_us {
            self.alarm.as_mut().reset(Instant::now() + self.dispatch.until(at));
        }
    }
}
