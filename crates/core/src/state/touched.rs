//! Keeps the locks whose queues may advance, in the order of their names.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use tenure_types::Name;

use super::slab::SlabIndex;

/// Up to this many locks are kept in a sorted vector, which costs no allocation once it has grown. Most commands touch
/// one lock.
const FEW_MAX: usize = 16;

/// A set of locks. Either of its two parts is empty.
#[derive(Default)]
pub(crate) struct TouchedLocks {
    /// Sorted from last to first, so that the first is taken from the end.
    few: Vec<(Name, SlabIndex)>,
    many: BTreeSet<(Name, SlabIndex)>,
}

impl TouchedLocks {
    /// Adds a lock, if it is not in the set already.
    pub(crate) fn insert(&mut self, name: &Name, lock: SlabIndex) {
        if !self.many.is_empty() {
            self.many.insert((name.clone(), lock));
            return;
        }
        let after = |(other, slot): &(Name, SlabIndex)| (other, *slot) > (name, lock);
        let at = self.few.partition_point(after);
        if self.few.get(at).is_some_and(|(other, slot)| other == name && *slot == lock) {
            return;
        }
        if self.few.len() < FEW_MAX {
            self.few.insert(at, (name.clone(), lock));
        } else {
            self.many.extend(self.few.drain(..));
            self.many.insert((name.clone(), lock));
        }
    }

    /// Takes the first lock.
    pub(crate) fn pop_first(&mut self) -> Option<SlabIndex> {
        let first = self.few.pop().or_else(|| self.many.pop_first());
        first.map(|(_, lock)| lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_leave_in_the_order_of_names_and_once_each_however_many_there_are() {
        let few: u32 = FEW_MAX.try_into().unwrap();
        for count in [1, few, few + 1, 200] {
            let mut touched = TouchedLocks::default();
            let mut expected = BTreeSet::new();
            for step in 0..count {
                let number = (step * 37) % 101 + 1;
                let name = Name::from_checked(&alloc::format!("lock-{number}"));
                let lock = SlabIndex::from_number(number).unwrap();
                touched.insert(&name, lock);
                touched.insert(&name, lock);
                expected.insert((name, lock));
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
