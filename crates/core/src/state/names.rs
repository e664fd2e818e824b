//! How is a lock found by its name, fast, and how are all locks listed in order?
//!
//! Finding is done for every command, listing now and then. So names are found through a hash table
//! that is never iterated, and put in order later: by whoever lists, or by a member that has nothing
//! else to do. Both are derived; no answer and no byte of the state depends on them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Bound;

use hashbrown::HashTable;
use tenure_types::Name;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::record::Lock;
use super::slab::{Slab, Slot};

/// The names of all locks.
#[derive(Default)]
pub(crate) struct Names {
    table: HashTable<Slot>,
    /// Keeps those who choose names from choosing where they go in the table.
    seed: u64,
    order: RefCell<Order>,
}

#[derive(Default)]
struct Order {
    /// In order, as far as they were put in order. A name here may be gone, or in another slot by
    /// now: whoever reads asks the record.
    sorted: BTreeMap<Name, Slot>,
    /// Slots that got a new name since; each stands here once.
    fresh: Vec<Slot>,
    is_fresh: Vec<bool>,
}

impl Names {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The slot of the lock with this name.
    #[inline]
    pub(crate) fn find(&self, locks: &Slab<Lock>, name: &[u8]) -> Option<Slot> {
        self.table.find(self.hash(name), |slot| locks.at(*slot).name.as_bytes() == name).copied()
    }

    /// Adds the lock in a slot, whose name is not there yet.
    pub(crate) fn insert(&mut self, locks: &Slab<Lock>, slot: Slot) {
        let hash = self.hash(locks.at(slot).name.as_bytes());
        let seed = self.seed;
        self.table.insert_unique(hash, slot, |slot| {
            xxh3_64_with_seed(locks.at(*slot).name.as_bytes(), seed)
        });
        self.order.get_mut().note(slot);
    }

    /// Takes out the lock that was in a slot.
    pub(crate) fn remove(&mut self, name: &Name, slot: Slot) {
        let hash = self.hash(name.as_bytes());
        let entry = self.table.find_entry(hash, |other| *other == slot);
        entry.expect("a lock that exists is in the table").remove();
    }

    /// Puts up to `max` names in order; `true` when all are.
    pub(crate) fn settle(&self, locks: &Slab<Lock>, max: usize) -> bool {
        self.order.borrow_mut().settle(locks, max)
    }

    /// The locks whose names come after `start` and begin with `prefix`, in the order of names.
    pub(crate) fn list(
        &self,
        locks: &Slab<Lock>,
        start: Bound<&[u8]>,
        prefix: &[u8],
        max: usize,
    ) -> Vec<Slot> {
        self.settle(locks, usize::MAX);
        let order = self.order.borrow();
        let range = order.sorted.range::<[u8], _>((start, Bound::Unbounded));
        range
            .take_while(|(name, _)| name.as_bytes().starts_with(prefix))
            .filter(|(name, slot)| locks.get(**slot).is_some_and(|lock| lock.name == **name))
            .take(max)
            .map(|(_, slot)| *slot)
            .collect()
    }

    /// Forgets all names.
    pub(crate) fn clear(&mut self) {
        self.table.clear();
        self.order = RefCell::default();
    }

    /// Finds names by another hash from now on.
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

impl Order {
    fn note(&mut self, slot: Slot) {
        let index = slot.index();
        if self.is_fresh.len() <= index {
            self.is_fresh.resize(index + 1, false);
        }
        if !self.is_fresh[index] {
            self.is_fresh[index] = true;
            self.fresh.push(slot);
        }
    }

    fn settle(&mut self, locks: &Slab<Lock>, max: usize) -> bool {
        if max >= self.fresh.len() && self.fresh.len() > self.sorted.len() / 8 {
            self.merge(locks);
        }
        for _ in 0..max {
            let Some(slot) = self.fresh.pop() else { break };
            self.is_fresh[slot.index()] = false;
            if let Some(lock) = locks.get(slot) {
                self.sorted.insert(lock.name.clone(), slot);
            }
        }
        // Names that are gone are let be until they outnumber those that are there.
        if self.sorted.len() > 2 * locks.len() + 64 {
            self.sorted
                .retain(|name, slot| locks.get(*slot).is_some_and(|lock| lock.name == *name));
        }
        self.fresh.is_empty()
    }

    /// Puts all fresh names in order at once: for many of them faster than one by one, and the map
    /// is built without gaps.
    fn merge(&mut self, locks: &Slab<Lock>) {
        let fresh = self.fresh.drain(..).filter_map(|slot| {
            self.is_fresh[slot.index()] = false;
            locks.get(slot).map(|lock| (lock.name.clone(), slot))
        });
        let mut fresh: BTreeMap<Name, Slot> = fresh.collect();
        self.sorted.append(&mut fresh);
    }
}
