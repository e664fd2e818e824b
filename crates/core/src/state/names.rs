//! Finds a lock by its name, fast, and lists all locks in the order of their names.
//!
//! Finding is done for every command, listing now and then. So names are found through a hash table
//! that is never iterated, and put in order later. A bounded number of names is not in order yet: a
//! new name beyond that puts older ones in order, and a list puts the rest in order, so that
//! neither takes long however many locks there are. Both are derived; no answer and no byte of the
//! state depends on them.

use alloc::collections::{BTreeMap, VecDeque};
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

/// So many names may be out of order. A lock that comes and goes with few others stays among them
/// and costs no place in the order.
const FRESH_MAX: usize = 1_024;

/// So many older names are put in order for each new one while there are too many: more than one, so
/// that their number falls again.
const SETTLED_PER_NAME: usize = 2;

#[derive(Default)]
struct Order {
    /// The locks that are in order: every lock whose slot is not fresh, and no other.
    sorted: BTreeMap<Name, Slot>,
    /// Slots that got a new name since they were last looked at; each stands here once. The lock in
    /// one may be gone again, or be another one by now. The oldest are put in order first: most locks
    /// that come and go are gone by then.
    fresh: VecDeque<Slot>,
    is_fresh: Vec<bool>,
    /// How many names were put in order or taken out of it.
    #[cfg(test)]
    steps: usize,
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
        self.insert_unordered(locks, slot);
        let order = self.order.get_mut();
        order.note(slot);
        if order.fresh.len() > FRESH_MAX {
            order.settle(locks, SETTLED_PER_NAME);
        }
    }

    /// Puts all locks in order at once, when a whole state was read.
    pub(crate) fn settle_all(&mut self, locks: &Slab<Lock>) {
        let mut names: Vec<(Name, Slot)> =
            locks.iter().map(|(slot, lock)| (lock.name.clone(), slot)).collect();
        names.sort_unstable();
        *self.order.get_mut() = Order { sorted: names.into_iter().collect(), ..Order::default() };
    }

    /// Adds the lock in a slot without a place in the order; [`Names::settle_all`] must follow.
    pub(crate) fn insert_unordered(&mut self, locks: &Slab<Lock>, slot: Slot) {
        let hash = self.hash(locks.at(slot).name.as_bytes());
        let seed = self.seed;
        self.table.insert_unique(hash, slot, |slot| {
            xxh3_64_with_seed(locks.at(*slot).name.as_bytes(), seed)
        });
    }

    /// Takes out the lock that was in a slot.
    pub(crate) fn remove(&mut self, name: &Name, slot: Slot) {
        let hash = self.hash(name.as_bytes());
        let entry = self.table.find_entry(hash, |other| *other == slot);
        entry.expect("a lock that exists is in the table").remove();
        self.order.get_mut().remove(name, slot);
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
        // No more than may be out of order.
        self.settle(locks, usize::MAX);
        let order = self.order.borrow();
        let range = order.sorted.range::<[u8], _>((start, Bound::Unbounded));
        range
            .take_while(|(name, _)| name.as_bytes().starts_with(prefix))
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

    /// The lock in a slot is gone. If its name is not in order yet, it never will be.
    fn remove(&mut self, name: &Name, slot: Slot) {
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
    use crate::state::list::List;

    fn lock(name: &str) -> Lock {
        Lock {
            name: Name::new(name).unwrap(),
            created: Revision(1),
            modified: Revision(1),
            version: 0,
            slots: None,
            grants: List::default(),
            queue: List::default(),
        }
    }

    /// Locks, and the most steps that one call took.
    #[derive(Default)]
    struct Counted {
        locks: Slab<Lock>,
        names: Names,
        worst: usize,
    }

    impl Counted {
        fn insert(&mut self, name: &str) -> Slot {
            let slot = self.locks.insert(lock(name));
            self.names.insert(&self.locks, slot);
            self.look();
            slot
        }

        fn remove(&mut self, slot: Slot) {
            let gone = self.locks.remove(slot);
            self.names.remove(&gone.name, slot);
            self.look();
        }

        fn list(&mut self, after: &str, max: usize) -> Vec<String> {
            let start = Bound::Excluded(after.as_bytes());
            let found = self.names.list(&self.locks, start, b"", max);
            self.look();
            found.iter().map(|slot| String::from(self.locks.at(*slot).name.as_str())).collect()
        }

        fn look(&mut self) {
            let steps = core::mem::take(&mut self.names.order.get_mut().steps);
            self.worst = self.worst.max(steps);
        }
    }

    #[test]
    fn with_very_many_names_no_call_takes_many_steps() {
        const MANY: usize = 200_000;
        let mut counted = Counted::default();
        // Out of order, so that every name goes somewhere else.
        let name = |at: usize| format!("lock/{:06}", at * 7_919 % MANY);
        let slots: Vec<Slot> = (0..MANY).map(|at| counted.insert(&name(at))).collect();
        assert_eq!(counted.list("", 3), ["lock/000000", "lock/000001", "lock/000002"]);
        assert_eq!(counted.list("lock/199998", 3), ["lock/199999"]);
        // Nearly all go, and a list passes over none of those that are gone.
        for (at, slot) in slots.iter().enumerate() {
            if !at.is_multiple_of(1_000) {
                counted.remove(*slot);
            }
        }
        let mut left: Vec<String> = (0..MANY).step_by(1_000).map(name).collect();
        left.sort_unstable();
        assert_eq!(counted.list("", MANY), left);
        assert!(counted.worst <= FRESH_MAX + SETTLED_PER_NAME, "{} steps", counted.worst);
    }

    #[test]
    fn a_list_is_what_sorting_gives_whatever_came_and_went() {
        let mut counted = Counted::default();
        let mut there: Vec<(String, Slot)> = Vec::new();
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
