//! Finds a lock by name through a hash table, and lists all locks in the order of their names.
//!
//! Every command looks up names, while lists are rare. So lookups use a hash table that is never iterated, and names
//! are sorted only for a list. Sorting a million names takes longer than an event loop may stand still, so a caller
//! sorts them in bounded steps ([`LockNames::settle`]) before it lists. Both structures are derived;
//! no answer and no byte of the state depends on them.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Bound;

use hashbrown::HashTable;
use tenure_types::Name;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::record::Lock;
use super::slab::{Slab, SlabIndex};

/// The names of all locks.
#[derive(Default)]
pub(crate) struct LockNames {
    table: HashTable<SlabIndex>,
    /// Prevents clients from choosing names that collide in the table.
    seed: u64,
    order: RefCell<NameOrder>,
}

#[derive(Default)]
struct NameOrder {
    /// The sorted locks: every lock whose slot is not fresh, and no other.
    sorted: BTreeMap<Name, SlabIndex>,
    /// Slots that got a new name since they were last sorted, each of them once. The lock in a slot may be gone by now,
    /// or be another one. The oldest slots are sorted first, because most short-lived locks are gone by then.
    fresh: VecDeque<SlabIndex>,
    is_fresh: Vec<bool>,
    /// How many names were inserted into or removed from the order.
    #[cfg(test)]
    steps: usize,
}

impl LockNames {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The slot of the lock with this name.
    #[inline]
    pub(crate) fn find(&self, locks: &Slab<Lock>, name: &[u8]) -> Option<SlabIndex> {
        self.table.find(self.hash(name), |slot| locks.at(*slot).name.as_bytes() == name).copied()
    }

    /// Adds the lock in a slot. Its name must not be present yet.
    pub(crate) fn insert(&mut self, locks: &Slab<Lock>, slot: SlabIndex) {
        self.insert_unordered(locks, slot);
        self.order.get_mut().note(slot);
    }

    /// Sorts all locks at once, after a whole state was read.
    pub(crate) fn settle_all(&mut self, locks: &Slab<Lock>) {
        let mut names: Vec<(Name, SlabIndex)> =
            locks.iter().map(|(slot, lock)| (lock.name.clone(), slot)).collect();
        names.sort_unstable();
        *self.order.get_mut() =
            NameOrder { sorted: names.into_iter().collect(), ..NameOrder::default() };
    }

    /// Adds the lock in a slot without sorting it; [`LockNames::settle_all`] must follow.
    pub(crate) fn insert_unordered(&mut self, locks: &Slab<Lock>, slot: SlabIndex) {
        let hash = self.hash(locks.at(slot).name.as_bytes());
        let seed = self.seed;
        self.table.insert_unique(hash, slot, |slot| {
            xxh3_64_with_seed(locks.at(*slot).name.as_bytes(), seed)
        });
    }

    /// Removes the lock that was in a slot.
    pub(crate) fn remove(&mut self, name: &Name, slot: SlabIndex) {
        let hash = self.hash(name.as_bytes());
        let entry = self.table.find_entry(hash, |other| *other == slot);
        entry.expect("a lock that exists is in the table").remove();
        self.order.get_mut().remove(name, slot);
    }

    /// Sorts up to `max` names; returns `true` when all are sorted.
    pub(crate) fn settle(&self, locks: &Slab<Lock>, max: usize) -> bool {
        self.order.borrow_mut().settle(locks, max)
    }

    /// The locks whose names come after `start` and begin with `prefix`, in the order of names. All names must be
    /// sorted.
    pub(crate) fn list(&self, start: Bound<&[u8]>, prefix: &[u8], max: usize) -> Vec<SlabIndex> {
        let order = self.order.borrow();
        assert!(order.fresh.is_empty(), "names are sorted before they are listed");
        let range = order.sorted.range::<[u8], _>((start, Bound::Unbounded));
        range
            .take_while(|(name, _)| name.as_bytes().starts_with(prefix))
            .take(max)
            .map(|(_, slot)| *slot)
            .collect()
    }

    /// Removes all names.
    pub(crate) fn clear(&mut self) {
        self.table.clear();
        self.order = RefCell::default();
    }

    /// Rebuilds the table with another hash seed.
    pub(crate) fn reseed(&mut self, locks: &Slab<Lock>, seed: u64) {
        self.seed = seed;
        self.table.clear();
        for (slot, lock) in locks.iter() {
            let hash = xxh3_64_with_seed(lock.name.as_bytes(), seed);
            self.table.insert_unique(hash, slot, |slot| {
                xxh3_64_with_seed(locks.at(*slot).name.as_bytes(), seed)
            });
        }
    }

    #[inline]
    fn hash(&self, name: &[u8]) -> u64 {
        xxh3_64_with_seed(name, self.seed)
    }
}

impl NameOrder {
    fn note(&mut self, slot: SlabIndex) {
        let index = slot.index();
        if self.is_fresh.len() <= index {
            self.is_fresh.resize(index + 1, false);
        }
        if !self.is_fresh[index] {
            self.is_fresh[index] = true;
            self.fresh.push_back(slot);
        }
    }

    fn settle(&mut self, locks: &Slab<Lock>, max: usize) -> bool {
        for _ in 0..max {
            let Some(slot) = self.fresh.pop_front() else { break };
            self.is_fresh[slot.index()] = false;
            if let Some(lock) = locks.get(slot) {
                self.sorted.insert(lock.name.clone(), slot);
            }
            self.count();
        }
        self.fresh.is_empty()
    }

    /// Removes the lock in a slot. If its name is not sorted yet, it will not be sorted later.
    fn remove(&mut self, name: &Name, slot: SlabIndex) {
        if !self.is_fresh.get(slot.index()).copied().unwrap_or(false) {
            self.sorted.remove(name);
            self.count();
        }
    }

    #[cfg(not(test))]
    fn count(&self) {}

    #[cfg(test)]
    fn count(&mut self) {
        self.steps += 1;
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use tenure_types::Revision;

    use super::*;
    use crate::state::list::LinkedList;

    fn lock(name: &str) -> Lock {
        Lock {
            name: Name::new(name).unwrap(),
            created: Revision(1),
            modified: Revision(1),
            version: 0,
            slots: None,
            sized: false,
            grants: LinkedList::default(),
            queue: LinkedList::default(),
        }
    }

    /// The most names that a call sorts.
    const STEP: usize = 1_000;

    /// A set of locks, and the most steps that one call took.
    #[derive(Default)]
    struct CountedLocks {
        locks: Slab<Lock>,
        names: LockNames,
        worst: usize,
    }

    impl CountedLocks {
        fn insert(&mut self, name: &str) -> SlabIndex {
            let slot = self.locks.insert(lock(name));
            self.names.insert(&self.locks, slot);
            self.count_steps();
            slot
        }

        fn remove(&mut self, slot: SlabIndex) {
            let gone = self.locks.remove(slot);
            self.names.remove(&gone.name, slot);
            self.count_steps();
        }

        /// Sorts in steps, then lists.
        fn list(&mut self, after: &str, max: usize) -> Vec<String> {
            while !self.names.settle(&self.locks, STEP) {
                self.count_steps();
            }
            self.count_steps();
            let start = Bound::Excluded(after.as_bytes());
            let found = self.names.list(start, b"", max);
            self.count_steps();
            found.iter().map(|slot| String::from(self.locks.at(*slot).name.as_str())).collect()
        }

        fn count_steps(&mut self) {
            let steps = core::mem::take(&mut self.names.order.get_mut().steps);
            self.worst = self.worst.max(steps);
        }
    }

    #[test]
    fn with_very_many_names_no_call_takes_many_steps() {
        const MANY: usize = 200_000;
        let mut counted = CountedLocks::default();
        // In scattered order, so that every name is inserted at another position.
        let name = |at: usize| format!("lock/{:06}", at * 7_919 % MANY);
        let slots: Vec<SlabIndex> = (0..MANY).map(|at| counted.insert(&name(at))).collect();
        assert_eq!(counted.list("", 3), ["lock/000000", "lock/000001", "lock/000002"]);
        assert_eq!(counted.list("lock/199998", 3), ["lock/199999"]);
        // Remove nearly all. A list must not step over the removed ones.
        for (at, slot) in slots.iter().enumerate() {
            if !at.is_multiple_of(1_000) {
                counted.remove(*slot);
            }
        }
        let mut left: Vec<String> = (0..MANY).step_by(1_000).map(name).collect();
        left.sort_unstable();
        assert_eq!(counted.list("", MANY), left);
        assert!(counted.worst <= STEP, "{} steps", counted.worst);
    }

    #[test]
    fn a_list_is_what_sorting_gives_whatever_came_and_went() {
        let mut counted = CountedLocks::default();
        let mut there: Vec<(String, SlabIndex)> = Vec::new();
        let mut random: usize = 7;
        for step in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let pick = random >> 33;
            if pick.is_multiple_of(3) && !there.is_empty() {
                let (_, slot) = there.swap_remove(pick % there.len());
                counted.remove(slot);
            } else {
                let name = format!("{}", pick % 5_000);
                if there.iter().all(|(other, _)| *other != name) {
                    let slot = counted.insert(&name);
                    there.push((name, slot));
                }
            }
            if step % 500 == 0 {
                let mut wanted: Vec<String> = there.iter().map(|it| it.0.clone()).collect();
                wanted.sort_unstable();
                assert_eq!(counted.list("", usize::MAX), wanted);
            }
        }
    }
}
