//! Sets limits, the level, and how much history is kept.

use tenure_core::event::{Cause, Event, Subject};
use tenure_core::outcome::Answer;
use tenure_types::{Limit, Refusal, Revision};

use super::event::blank;
use super::level::LEVEL_MAX;
use super::{LEVEL_FAIR_RECORDS, LEVEL_REOPENING, Model, Verdict};

/// The most limits that one command may set.
const LIMITS_PER_COMMAND: usize = 32;

/// How many of the newest revisions stay after a compaction.
const KEPT: u64 = 1_000;

impl Model {
    pub(super) fn set_limits(&mut self, limits: &[(Limit, u64)]) -> Verdict {
        if limits.len() > LIMITS_PER_COMMAND {
            return Err(Refusal::TooManyInCommand { max: LIMITS_PER_COMMAND as u64 });
        }
        let mut set = self.limits.clone();
        for &(limit, asked) in limits {
            if !set.set(limit, asked) {
                return Err(Refusal::InvalidLimit { limit, asked });
            }
        }
        if set.get(Limit::TtlMinMs) > set.get(Limit::TtlMaxMs) {
            for &(limit, asked) in limits.iter().rev() {
                if limit == Limit::TtlMinMs || limit == Limit::TtlMaxMs {
                    return Err(Refusal::InvalidLimit { limit, asked });
                }
            }
        }
        if !limits.is_empty() {
            self.limits = set;
            let told = limits.iter().map(|(limit, asked)| format!("{}={asked}", limit.name()));
            self.settings_event(Cause::LimitsSet, told.collect::<Vec<_>>().join(" "));
        }
        Ok(Answer::LimitsSet)
    }

    pub(super) fn compact(&mut self, keep: Revision) -> Verdict {
        if keep > self.revision.next() {
            return Err(Refusal::FutureRevision { asked: keep, newest: self.revision });
        }
        let is_recorded = self.level >= LEVEL_FAIR_RECORDS;
        let newest_kept = (self.revision.0 + 1).saturating_sub(KEPT);
        let keep = if is_recorded { keep.min(Revision(newest_kept)) } else { keep };
        self.history.retain(|batch| batch.revision >= keep);
        self.floor = self.floor.max(keep);
        if is_recorded {
            self.settings_event(Cause::HistoryCompacted, self.floor.0.to_string());
        }
        Ok(Answer::Compacted { floor: self.floor })
    }

    pub(super) fn raise_level(&mut self, level: u16) -> Verdict {
        let from = self.level;
        if level < from {
            return Err(Refusal::InvalidLevel { from, to: from });
        }
        if level > LEVEL_MAX {
            return Err(Refusal::InvalidLevel { from, to: LEVEL_MAX });
        }
        if level > self.level {
            self.level = level;
            self.settings_event(Cause::LevelRaised, level.to_string());
        }
        Ok(Answer::LevelRaised)
    }

    fn settings_event(&mut self, cause: Cause, told: String) {
        let value = (self.level >= LEVEL_REOPENING).then(|| told.into_bytes().into());
        self.events.push(Event { value, ..blank(cause, Subject::Settings) });
    }
}
