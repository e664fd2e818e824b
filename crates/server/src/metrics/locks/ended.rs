//! Counts and times the holds that have ended.

use tenure_core::Recorded;
use tenure_core::event::Cause;

use super::{TimedHolds, cells, hold_key};
use crate::node_metrics::LOSSES;

impl TimedHolds {
    /// A hold has ended, by its holder or not.
    pub(super) fn ended(&mut self, name: &str, event: &Recorded<'_>, at_us: u64) {
        let is_release = !LOSSES.contains(&event.cause());
        self.totals.released += u64::from(is_release);
        self.totals.lost += u64::from(!is_release);
        let key = hold_key(name, event);
        let Some(since_us) = self.holds.remove(&key) else { return };
        let held_us = at_us.saturating_sub(since_us);
        cells(&mut self.prefixes, &self.shown, name).holds.observe(held_us);
        if is_release {
            self.remember(key.1, held_us);
        }
    }
}

/// Whether this is the cause of the end of a hold, by its holder or not.
pub(super) fn is_end(cause: Cause) -> bool {
    matches!(cause, Cause::Released | Cause::HandedOn) || LOSSES.contains(&cause)
}
