//! Executes `SetLimits`, `Compact` and `RaiseLevel`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use tenure_types::{Limit, Refusal, Revision};

use super::SETTINGS_MAX;
use crate::codec::{EventRef, SubjectRef};
use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::Answer;
use crate::request::{LEVEL_FAIR_RECORDS, LEVEL_REOPENING, LEVEL_REPAIRED_SHARES};

/// How many of the newest revisions a compaction keeps, whatever its caller asks. The audit log of a member follows the
/// history: an act must not be erased before the members have read it, nor the compaction itself.
const COMPACTION_KEEPS: u64 = 1_000;

impl Machine {
    pub(super) fn set_limits(
        &mut self,
        principal: &str,
        limits: &[(Limit, u64)],
    ) -> Result<Answer, Refusal> {
        if limits.len() > SETTINGS_MAX {
            return Err(Refusal::TooManyInCommand { max: SETTINGS_MAX as u64 });
        }
        let mut new = self.limits.clone();
        for &(limit, asked) in limits {
            if !new.set(limit, asked) {
                return Err(Refusal::InvalidLimit { limit, asked });
            }
        }
        if new.get(Limit::TtlMinMs) > new.get(Limit::TtlMaxMs) {
            let ttl = |limit: &Limit| matches!(limit, Limit::TtlMinMs | Limit::TtlMaxMs);
            let last = limits.iter().rfind(|(limit, _)| ttl(limit));
            let &(limit, asked) = last.expect("one of them was set, or they would be in order");
            return Err(Refusal::InvalidLimit { limit, asked });
        }
        if !limits.is_empty() {
            self.limits = new;
            let told: Vec<String> =
                limits.iter().map(|(limit, value)| format!("{}={value}", limit.name())).collect();
            self.emit_settings(Cause::LimitsSet, principal, &told.join(" "));
        }
        Ok(Answer::LimitsSet)
    }

    pub(super) fn compact(&mut self, principal: &str, keep: Revision) -> Result<Answer, Refusal> {
        if keep > self.revision.next() {
            return Err(Refusal::FutureRevision { asked: keep, newest: self.revision });
        }
        let keep = if mutant!("compaction_off_by_one") { keep.next() } else { keep };
        let is_recorded = self.level >= LEVEL_FAIR_RECORDS;
        let bound = match is_recorded && !mutant!("compaction_keeps_nothing") {
            true => Revision(self.revision.next().0.saturating_sub(COMPACTION_KEEPS)),
            false => keep,
        };
        self.history.compact(keep.min(bound));
        let floor = self.history.floor();
        if is_recorded && !mutant!("compaction_is_not_recorded") {
            self.emit_settings(Cause::HistoryCompacted, principal, &floor.0.to_string());
        }
        Ok(Answer::Compacted { floor })
    }

    pub(super) fn raise_level(&mut self, principal: &str, level: u16) -> Result<Answer, Refusal> {
        let from = self.level;
        // Every build must give the same answer here, so it cannot depend on the levels that this build knows.
        if level < from {
            return Err(Refusal::InvalidLevel { from, to: from });
        }
        if level > self.level_known {
            // Other members may know the level and continue. The caller must stop this machine.
            self.outgrown = Some(level);
            return Err(Refusal::InvalidLevel { from, to: self.level_known });
        }
        if level > self.level {
            self.level = level;
            let recounted = [LEVEL_REPAIRED_SHARES, LEVEL_FAIR_RECORDS];
            if recounted.iter().any(|it| from < *it && level >= *it) {
                self.recount_owners();
            }
            self.emit_settings(Cause::LevelRaised, principal, &level.to_string());
        }
        Ok(Answer::LevelRaised)
    }

    fn emit_settings(&mut self, cause: Cause, principal: &str, value: &str) {
        let recorded = self.recorded(principal);
        let has_value = self.level >= LEVEL_REOPENING;
        self.emit(&EventRef {
            value: has_value.then_some(value.as_bytes()),
            principal: (!recorded.is_empty()).then_some(recorded.as_bytes()),
            ..EventRef::new(cause, SubjectRef::Settings)
        });
    }
}
