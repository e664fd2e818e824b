//! Keeps the newest records in memory, for readers of the APIs and of the health listener.

use std::collections::VecDeque;
use std::sync::Arc;

use super::record::{AuditOutcome, AuditRecord};

/// The most records of each kind that are kept.
pub(crate) const RECENT_MAX: usize = 1_000;

/// Kinds of records that do not displace each other: callers without credentials can cause any number of denials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecentKind {
    Act,
    Denial,
}

impl RecentKind {
    pub(super) fn of(record: &AuditRecord<'_>) -> Self {
        match record.outcome() {
            AuditOutcome::Done => Self::Act,
            AuditOutcome::Refused(_) => Self::Denial,
        }
    }
}

/// The newest records of each kind, each with its number in the order of recording.
#[derive(Debug, Default)]
pub(super) struct RecentRecords {
    acts: VecDeque<(u64, Arc<str>)>,
    denials: VecDeque<(u64, Arc<str>)>,
    added: u64,
}

impl RecentRecords {
    pub(super) fn add(&mut self, kind: RecentKind, line: Arc<str>) {
        let list = match kind {
            RecentKind::Act => &mut self.acts,
            RecentKind::Denial => &mut self.denials,
        };
        if list.len() == RECENT_MAX {
            list.pop_front();
        }
        self.added += 1;
        list.push_back((self.added, line));
    }

    /// The newest records of both kinds, oldest first, at most `most`. At least half of them are acts, if there
    /// are so many.
    pub(super) fn newest(&self, most: usize) -> Vec<Arc<str>> {
        let acts_min = self.acts.len().min(most / 2);
        let denials = self.denials.len().saturating_sub(most - acts_min);
        let mut all: Vec<_> = self.acts.iter().chain(self.denials.iter().skip(denials)).collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        all.iter().skip(all.len().saturating_sub(most)).map(|(_, line)| line.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(kinds: impl Iterator<Item = RecentKind>) -> RecentRecords {
        let mut recent = RecentRecords::default();
        for (number, kind) in kinds.enumerate() {
            recent.add(kind, format!("{kind:?} {number}").into());
        }
        recent
    }

    #[test]
    fn a_flood_of_denials_leaves_the_acts_in_place() {
        let flood = std::iter::repeat_n(RecentKind::Denial, 3 * RECENT_MAX);
        let recent = filled([RecentKind::Act; 2].into_iter().chain(flood));
        for most in [100, RECENT_MAX] {
            let all = recent.newest(most);
            assert_eq!(all.len(), most);
            assert_eq!((&*all[0], &*all[1]), ("Act 0", "Act 1"));
        }
    }

    #[test]
    fn records_of_both_kinds_are_in_the_order_in_which_they_came() {
        use RecentKind::{Act, Denial};
        let recent = filled([Denial, Act, Denial, Act].into_iter());
        assert_eq!(recent.newest(3), ["Act 1", "Denial 2", "Act 3"].map(Arc::from));
    }
}
