//! Answers requests of a session that have no outcome when their time is over.

use super::{PendingAnswer, Session, SessionOutput};
use crate::failure::NodeFailure;

/// Requests without a deadline of their own have this one.
const DEADLINE_US: u64 = 10_000_000;
/// The longest deadline: only a wait for a lock may take longer.
const DEADLINE_MAX_US: u64 = 600_000_000;
/// Added to a caller's deadline, so that a definite "not applied" arrives before the outcome is reported as unknown.
pub const GIVE_UP_GRACE_US: u64 = 150_000;

/// How long a request may take whose client allows this; 0 if it does not say.
pub fn session_within_us(deadline_ms: u32) -> u64 {
    match deadline_ms {
        0 => DEADLINE_US,
        ms => (u64::from(ms) * 1_000).min(DEADLINE_MAX_US),
    }
}

impl<T> PendingAnswer<T> {
    fn given_up_at_us(&self) -> u64 {
        self.deadline_us.saturating_add(GIVE_UP_GRACE_US)
    }
}

impl<T, Q> Session<T, Q> {
    /// Wakes the session when the first of these requests is to be given up.
    pub(super) fn watch_deadlines(&mut self, pending: &[PendingAnswer<T>]) {
        let soonest_us = pending.iter().map(PendingAnswer::given_up_at_us).min();
        self.give_up_at_us = self.give_up_at_us.min(soonest_us.unwrap_or(u64::MAX));
    }

    /// Answers the requests whose time is over as unknown. Their later outcomes are dropped.
    pub fn turn(&mut self, now_us: u64, outputs: &mut Vec<SessionOutput<T, Q>>) {
        if self.over || now_us < self.give_up_at_us {
            return;
        }
        let mut soonest_us = u64::MAX;
        for pending in self.batches.values_mut().flatten() {
            let at_us = pending.given_up_at_us();
            if at_us > now_us {
                if pending.kept.is_some() {
                    soonest_us = soonest_us.min(at_us);
                }
                continue;
            }
            let Some(kept) = pending.kept.take() else { continue };
            self.in_flight -= 1;
            let (id, asked_at_us) = (pending.id, pending.asked_at_us);
            let mut outcome = Err(NodeFailure::Unknown);
            if mutant!("given_up_as_without_effect") {
                outcome = Err(NodeFailure::Expired);
            }
            outputs.push(SessionOutput::Answer { id, kept, asked_at_us, outcome });
        }
        self.give_up_at_us = soonest_us;
    }
}
