//! Keeps the locks whose queues may advance, in the order of their names.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use tenure_types::Name;

use super::record::Lock;
use super::slab::{Slab, SlabIndex};

/// Up to this many locks are kept in a sorted vector, which costs no allocation once it has grown. Most commands touch
/// one lock.
const FEW_MAX: usize = 16;

/// A set of locks. Either of its two parts is empty.
#[derive(Default)]
pub(crate) struct TouchedLocks {
    /// Sorted from last to first, so that the first is taken from the end. Without their names: copies of these would
    /// cost more than everything else here.
    few: Vec<SlabIndex>,
    many: BTreeSet<(Name, SlabIndex)>,
}

impl TouchedLocks {
    /// Adds a lock, if it is not in the set already.
    pub(crate) fn insert(&mut self, locks: &Slab<Lock>, lock: SlabIndex) {
        let key = |lock: SlabIndex| (&locks.at(lock).name, lock);
        if !self.many.is_empty() {
            return self.insert_into_many(locks, lock);
        }
        let at = self.few.partition_point(|other| *other != lock && key(*other) > key(lock));
        if self.few.get(at) == Some(&lock) {
            return;
        }
        if self.few.len() < FEW_MAX {
            self.few.insert(at, lock);
        } else {
            self.insert_into_many(locks, lock);
        }
    }

    #[inline(never)]
    fn insert_into_many(&mut self, locks: &Slab<Lock>, lock: SlabIndex) {
        let added = self.few.drain(..).chain([lock]);
        self.many.extend(added.map(|lock| (locks.at(lock).name.clone(), lock)));
    }

    /// Takes the first lock.
    pub(crate) fn pop_first(&mut self) -> Option<SlabIndex> {
        match self.few.pop() {
            None if !self.many.is_empty() => self.pop_of_many(),
            few => few,
        }
    }

    #[inline(never)]
    fn pop_of_many(&mut self) -> Option<SlabIndex> {
        self.many.pop_first().map(|(_, lock)| lock)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use tenure_types::Revision;

    use super::*;
    use crate::state::list::LinkedList;

    #[test]
    fn locks_leave_in_the_order_of_names_and_once_each_however_many_there_are() {
        let few: u32 = FEW_MAX.try_into().unwrap();
        let mut locks = Slab::default();
        let lock = |number| Lock {
            name: Name::from_checked(&alloc::format!("lock-{number}")),
            created: Revision(1),
            modified: Revision(1),
            version: 0,
            slots: None,
            sized: false,
            grants: LinkedList::default(),
            queue: LinkedList::default(),
        };
        let all: Vec<SlabIndex> = (0..101).map(|number| locks.insert(lock(number))).collect();
        for count in [1, few, few + 1, 200] {
            let mut touched = TouchedLocks::default();
            let mut expected = BTreeSet::new();
            for step in 0..count {
                let lock = all[(step as usize * 37) % all.len()];
                touched.insert(&locks, lock);
                touched.insert(&locks, lock);
                expected.insert((locks.at(lock).name.clone(), lock));
                if step % 5 == 4 {
                    let first = expected.pop_first().map(|(_, lock)| lock);
                    assert_eq!(touched.pop_first(), first, "{count} locks, step {step}");
                }
            }
            while let Some((_, lock)) = expected.pop_first() {
                assert_eq!(touched.pop_first(), Some(lock), "{count} locks");
            }
            assert_eq!(touched.pop_first(), None);
        }
    }
}
