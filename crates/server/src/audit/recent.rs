//! Keeps the newest records in memory, for readers of the APIs and of the health listener.

use std::collections::VecDeque;
use std::sync::Arc;

use super::queue::{AuditKind, KINDS};

/// The most records of each kind that are kept. Acts of the history do not displace local ones either: after a start
/// there may be thousands of them.
pub(crate) const RECENT_MAX: usize = 1_000;

/// The newest records of each kind, each with its number in the order of recording.
#[derive(Debug, Default)]
pub(super) struct RecentRecords {
    kinds: [VecDeque<(u64, Arc<str>)>; KINDS],
    added: u64,
}

impl RecentRecords {
    pub(super) fn add(&mut self, kind: AuditKind, line: Arc<str>) {
        let list = &mut self.kinds[kind as usize];
        if list.len() == RECENT_MAX {
            list.pop_front();
        }
        self.added += 1;
        list.push_back((self.added, line));
    }

    /// The newest records of all kinds, oldest first, at most `most`. At least half of them are acts of the history and
    /// a quarter are other acts, if there are so many.
    pub(super) fn newest(&self, most: usize) -> Vec<Arc<str>> {
        let (mut sure, mut others) = (Vec::new(), Vec::new());
        for (list, share) in self.kinds.iter().zip(shares(most)) {
            let (rest, newest) = (list.len().saturating_sub(share), list.iter());
            others.extend(newest.clone().take(rest));
            sure.extend(newest.skip(rest));
        }
        others.sort_unstable_by_key(|(number, _)| *number);
        let room = most - sure.len();
        sure.extend(others.split_off(others.len().saturating_sub(room)));
        sure.sort_unstable_by_key(|(number, _)| *number);
        sure.into_iter().map(|(_, line)| line.clone()).collect()
    }
}

/// How many of the records shown are of each kind, if there are so many.
fn shares(most: usize) -> [usize; KINDS] {
    let mut shares = [0; KINDS];
    shares[AuditKind::Act as usize] = most / 2;
    shares[AuditKind::Local as usize] = most / 4;
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(kinds: impl Iterator<Item = AuditKind>) -> RecentRecords {
        let mut recent = RecentRecords::default();
        for (number, kind) in kinds.enumerate() {
            recent.add(kind, format!("{kind:?} {number}").into());
        }
        recent
    }

    #[test]
    fn a_flood_of_denials_leaves_the_acts_in_place() {
        let flood = std::iter::repeat_n(AuditKind::Denial, 3 * RECENT_MAX);
        let recent = filled([AuditKind::Act; 2].into_iter().chain(flood));
        for most in [100, RECENT_MAX] {
            let all = recent.newest(most);
            assert_eq!(all.len(), most);
            assert_eq!((&*all[0], &*all[1]), ("Act 0", "Act 1"));
        }
    }

    #[test]
    fn the_acts_of_the_history_leave_local_ones_in_place() {
        let history = std::iter::repeat_n(AuditKind::Act, 3 * RECENT_MAX);
        let recent = filled([AuditKind::Local; 2].into_iter().chain(history));
        for most in [100, RECENT_MAX] {
            let all = recent.newest(most);
            assert_eq!(all.len(), most);
            assert_eq!((&*all[0], &*all[1]), ("Local 0", "Local 1"));
        }
        assert_eq!(recent.newest(1), [Arc::from("Act 3001")]);
    }

    #[test]
    fn records_of_all_kinds_are_in_the_order_in_which_they_came() {
        use AuditKind::{Act, Denial, Local};
        let recent = filled([Denial, Act, Local, Denial, Act].into_iter());
        assert_eq!(recent.newest(4), ["Act 1", "Local 2", "Denial 3", "Act 4"].map(Arc::from));
        assert_eq!(recent.newest(9).len(), 5);
    }
}
