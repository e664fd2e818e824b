//! Takes reports of progress, and takes away what does not progress.

use tenure_core::event::Cause;
use tenure_core::outcome::Answer;
use tenure_core::request::{Hold, Urgency};
use tenure_core::view::ProgressView;
use tenure_types::{Name, Token};

use super::state::later;
use super::{Grant, HandleOf, Model, Verdict};

/// A promise that a number grows.
#[derive(Clone, Copy)]
pub(super) struct ModelPromise {
    within_ms: u64,
    number: u64,
    /// The time of the grant, or of the report that last raised the number.
    moved_ms: u64,
}

impl ModelPromise {
    pub(super) fn promised(within_ms: u64, clock_ms: u64) -> Option<Self> {
        (within_ms > 0).then_some(Self { within_ms, number: 0, moved_ms: clock_ms })
    }
}

impl Model {
    pub(super) fn report(
        &mut self,
        hold: &Hold<'_>,
        number: u64,
        handle_of: HandleOf<'_>,
    ) -> Verdict {
        let (lock, grant) = self.held_under(hold, handle_of)?;
        let Some(promise) = grant.progress else {
            return Ok(Answer::Progressed { left_ms: None });
        };
        if number > promise.number {
            let moved = ModelPromise { number, moved_ms: self.clock_ms, ..promise };
            for (lock, beside) in self.held_of_place(grant.lease, grant.place) {
                let beside = self.grant_mut(&lock, beside.token).expect("it was just found");
                beside.progress = Some(moved);
            }
        }
        let grant = self.grant(&lock, hold.token).expect("it is still held");
        let due_ms = self.progress_due_ms(grant);
        Ok(Answer::Progressed { left_ms: due_ms.map(|it| it.saturating_sub(self.clock_ms)) })
    }

    /// When a larger number is due.
    pub(super) fn progress_due_ms(&self, grant: &Grant) -> Option<u64> {
        let promise = grant.progress.filter(|_| grant.is_held())?;
        Some(later(promise.moved_ms, self.whole(promise.within_ms)))
    }

    pub(super) fn no_progress(&mut self, lock: &Name, token: Token) {
        let promise = self.grant(lock, token).and_then(|grant| grant.progress);
        let ModelPromise { number, within_ms, .. } = promise.expect("a promise is due");
        let reason = format!("the number stayed at {number} for {within_ms} ms");
        self.take_away(lock, token, Cause::NoProgress, Urgency::Cooling, ("", &reason));
    }

    pub(super) fn view_progress(&self, grant: &Grant) -> Option<ProgressView> {
        let due_ms = self.progress_due_ms(grant)?;
        let promise = grant.progress?;
        Some(ProgressView {
            number: promise.number,
            within_ms: promise.within_ms,
            still_ms: self.clock_ms - promise.moved_ms,
            left_ms: due_ms.saturating_sub(self.clock_ms),
        })
    }
}
