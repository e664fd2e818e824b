//! Executes `Drain` and `Undrain`: closes a prefix to new grants, and opens it again.

use alloc::boxed::Box;
use alloc::vec::Vec;
use tenure_types::{Draining, Name, Refusal};

use super::TakeAwayDetails;
use crate::codec::{EventRef, SubjectRef};
use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::Answer;
use crate::request::{LEVEL_REOPENING, LEVEL_REPAIRED_SHARES};
use crate::state::drain::{DRAINS_MAX, Drain};
use crate::state::slab::SlabIndex;

impl Machine {
    /// Closes a prefix. If it is closed already, the name and the reason are replaced and the beginning stays.
    pub(super) fn drain(
        &mut self,
        prefix: &str,
        said: TakeAwayDetails<'_>,
    ) -> Result<Answer, Refusal> {
        self.check_prefix(prefix)?;
        self.check_said(said)?;
        let old = self.drains.get(prefix);
        if old.is_none() && self.drains.len() >= DRAINS_MAX {
            return Err(Refusal::DrainsFull { max: DRAINS_MAX as u64 });
        }
        let drain = Drain {
            created: old.map_or_else(|| self.coming_revision(), |old| old.created),
            since_ms: old.map_or(self.clock_ms, |old| old.since_ms),
            by: Name::new(said.by).ok(),
            principal: Name::new(said.principal).ok(),
            reason: Box::from(said.reason),
        };
        if old == Some(&drain) {
            return Ok(Answer::Drained);
        }
        let old_bytes = old.map_or(0, |old| old.weight(prefix));
        self.state_bytes = self.state_bytes - old_bytes + drain.weight(prefix);
        self.drains.insert(prefix, drain);
        self.emit_drain(Cause::Drained, prefix, said);
        Ok(Answer::Drained)
    }

    /// Opens a prefix. The queues below it advance in order, except where another drained prefix covers them; from
    /// [`LEVEL_REOPENING`] on, a bounded number in each entry, whatever number of prefixes it opens.
    pub(super) fn undrain(
        &mut self,
        prefix: &str,
        said: TakeAwayDetails<'_>,
    ) -> Result<Answer, Refusal> {
        // A prefix that was closed while longer names were allowed can still be opened.
        let known =
            self.level >= LEVEL_REPAIRED_SHARES && !mutant!("closed_prefix_of_a_long_name_stays");
        if known && !prefix.is_empty() {
            self.check_known_name(prefix)?;
        } else {
            self.check_prefix(prefix)?;
        }
        self.check_said(said)?;
        let Some(drain) = self.drains.remove(prefix) else {
            return Ok(Answer::Undrained { existed: false });
        };
        self.state_bytes -= drain.weight(prefix);
        self.emit_drain(Cause::Undrained, prefix, said);
        let waited_for = self.places.len() > 0 && !mutant!("undrain_forgets_waiters");
        if waited_for && self.level >= LEVEL_REOPENING {
            self.begin_reopening();
            self.reopen();
        } else if waited_for {
            self.touch_queues_below(prefix);
        }
        Ok(Answer::Undrained { existed: true })
    }

    /// Lets every queue below a prefix advance when the command ends.
    fn touch_queues_below(&mut self, prefix: &str) {
        let below =
            |lock: SlabIndex| self.locks.at(lock).name.as_bytes().starts_with(prefix.as_bytes());
        // The first wait of each queue stands for its lock.
        let first = self.waits.iter().filter(|(_, wait)| wait.in_queue.before.is_none());
        let locks: Vec<SlabIndex> =
            first.map(|(_, wait)| wait.lock).filter(|&lock| below(lock)).collect();
        locks.into_iter().for_each(|lock| self.touch(lock));
    }

    /// Whether a lock is below a drained prefix, and so is not granted.
    pub(crate) fn is_drained(&self, lock: SlabIndex) -> bool {
        !self.drains.is_empty() && self.is_below_drained(lock)
    }

    #[cold]
    #[inline(never)]
    fn is_below_drained(&self, lock: SlabIndex) -> bool {
        self.drains.covering(&self.locks.at(lock).name).is_some()
    }

    /// The refusal of a request that does not wait for a lock below a drained prefix.
    #[inline]
    pub(super) fn draining(&self, lock: &str) -> Option<Refusal> {
        if self.drains.is_empty() { None } else { self.draining_among(lock) }
    }

    #[cold]
    #[inline(never)]
    fn draining_among(&self, lock: &str) -> Option<Refusal> {
        let (prefix, drain) = self.drains.covering(lock)?;
        Some(Refusal::Draining(Box::new(Draining {
            lock: super::name(lock),
            prefix: Box::from(prefix),
            by: drain.by.clone().or_else(|| drain.principal.clone()),
            reason: drain.reason.clone(),
        })))
    }

    /// Refuses a prefix that is not a valid name. The empty prefix is allowed and covers every lock.
    fn check_prefix(&self, prefix: &str) -> Result<(), Refusal> {
        if prefix.is_empty() { Ok(()) } else { self.check_name(prefix) }
    }

    fn emit_drain(&mut self, cause: Cause, prefix: &str, said: TakeAwayDetails<'_>) {
        let text = |text: &'_ str| !text.is_empty();
        self.emit(&EventRef {
            by: text(said.by).then_some(said.by.as_bytes()),
            reason: text(said.reason).then_some(said.reason),
            principal: text(said.principal).then_some(said.principal.as_bytes()),
            value: Some(prefix.as_bytes()),
            ..EventRef::new(cause, SubjectRef::Settings)
        });
    }
}
