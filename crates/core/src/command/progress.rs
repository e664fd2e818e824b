//! Executes `Progress`, and takes a lock away whose holder did not report a larger number in the time that it promised.

use alloc::format;
use alloc::vec::Vec;
use tenure_types::Refusal;

use super::TakeAwayDetails;
use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::Answer;
use crate::request::{Hold, Urgency};
use crate::state::due::{CLOCK_MAX, DueKind};
use crate::state::record::{Grant, GrantState, IN_LEASE, ProgressState};
use crate::state::slab::SlabIndex;
use crate::view::ProgressView;

impl Machine {
    /// Takes a report. Like a renewal it emits no event: a holder may report often.
    pub(super) fn progress(&mut self, hold: &Hold<'_>, number: u64) -> Result<Answer, Refusal> {
        let held = self.held(hold)?;
        let Some(promise) = self.grants.at(held).options.progress() else {
            return Ok(Answer::Progressed { left_ms: None });
        };
        let number = if mutant!("any_report_counts_as_progress") {
            promise.number.saturating_add(1)
        } else {
            number
        };
        if number > promise.number {
            for grant in self.grants_beside(held) {
                self.note_progress(grant, number);
            }
        }
        let due_ms = self.progress_deadline(self.grants.at(held));
        Ok(Answer::Progressed { left_ms: due_ms.map(|it| it.saturating_sub(self.clock_ms)) })
    }

    /// The grants in force that came with this one: one promise was made for all of them.
    fn grants_beside(&self, held: SlabIndex) -> Vec<SlabIndex> {
        let place = self.grants.at(held).place;
        let Some(lease) = self.lease_of(held) else { return Vec::new() };
        let grants = self.leases.at(lease).grants;
        grants
            .iter::<IN_LEASE, _>(&self.grants)
            .filter(|(_, grant)| grant.place == place)
            .map(|(slot, _)| slot)
            .collect()
    }

    fn note_progress(&mut self, slot: SlabIndex, number: u64) {
        let grant = self.grants.at(slot);
        let (token, old_ms) = (grant.token.get(), self.progress_deadline(grant));
        let (Some(promise), Some(old_ms)) = (grant.options.progress(), old_ms) else { return };
        self.due.remove(old_ms, DueKind::Progress, token);
        let moved = ProgressState { number, moved_ms: self.clock_ms, ..promise };
        let grant = self.grants.at_mut(slot);
        grant.options = grant.options.with_progress(moved);
        let due_ms = self.deadline(promise.within_ms.get());
        self.due.insert(due_ms, DueKind::Progress, token, Some(slot));
    }

    /// Asks a holder to stop whose number has not grown in time, as if its lock were taken away by an operator.
    pub(super) fn progress_due(&mut self, slot: SlabIndex) {
        let Some(promise) = self.grants.at(slot).options.progress() else { return };
        #[cfg(mutants)]
        if mutant!("no_progress_is_not_noticed") {
            return self.note_progress(slot, promise.number.max(1));
        }
        let reason =
            format!("the number stayed at {} for {} ms", promise.number, promise.within_ms);
        let said = TakeAwayDetails { reason: &reason, ..TakeAwayDetails::default() };
        self.take_away(slot, Cause::NoProgress, said, Urgency::Cooling);
    }

    /// When a held grant is taken away unless its holder reports a larger number.
    pub(crate) fn progress_deadline(&self, grant: &Grant) -> Option<u64> {
        let GrantState::Held(_) = grant.state else { return None };
        let promise = grant.options.progress()?;
        let within_ms = self.promised_ms(promise.within_ms.get());
        Some(moved_ms(grant, promise).saturating_add(within_ms).min(CLOCK_MAX))
    }

    /// How far the holder has come, and when it must have come further.
    pub(crate) fn progress_view(&self, grant: &Grant) -> Option<ProgressView> {
        let due_ms = self.progress_deadline(grant)?;
        let promise = grant.options.progress()?;
        Some(ProgressView {
            number: promise.number,
            within_ms: promise.within_ms.get(),
            still_ms: self.clock_ms.saturating_sub(moved_ms(grant, promise)),
            left_ms: due_ms.saturating_sub(self.clock_ms),
        })
    }
}

/// The clock when the number last grew; before the first report, the clock at the grant.
fn moved_ms(grant: &Grant, promise: ProgressState) -> u64 {
    if promise.number == 0 { grant.since_ms } else { promise.moved_ms }
}
