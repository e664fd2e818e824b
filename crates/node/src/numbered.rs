//! Keeps values by numbers that their owner draws in growing order.

use std::collections::{BTreeMap, VecDeque};

/// The most numbers that the window spans: as many as commands may be in flight. A value that stays longer than this
/// many later ones moves to a map.
const WINDOW: u64 = 16_384;

/// Values by number. A value is found by its distance from the oldest one, which is cheaper than a search. Nearly all
/// values are added in the order of their numbers and removed in about the same order.
#[derive(Debug)]
pub struct Numbered<T> {
    /// The number of the first slot.
    first: u64,
    /// The first and the last slot are never empty.
    slots: VecDeque<Option<T>>,
    /// Values whose numbers are below those of the window.
    early: BTreeMap<u64, T>,
    len: usize,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { first: 0, slots: VecDeque::new(), early: BTreeMap::new(), len: 0 }
    }
}

impl<T> Numbered<T> {
    /// Adds a value, in place of the one that had this number.
    pub fn insert(&mut self, number: u64, value: T) {
        if self.slots.is_empty() {
            self.first = number;
        }
        while number.saturating_sub(self.first) >= WINDOW {
            self.shift(number);
        }
        let Some(at) = self.slot(number) else {
            self.len += usize::from(self.early.insert(number, value).is_none());
            return;
        };
        while self.slots.len() < at {
            self.slots.push_back(None);
        }
        if let Some(slot) = self.slots.get_mut(at) {
            self.len += usize::from(slot.replace(value).is_none());
        } else {
            self.slots.push_back(Some(value));
            self.len += 1;
        }
    }

    /// The value with this number.
    pub fn get(&self, number: u64) -> Option<&T> {
        match self.slot(number) {
            Some(at) => self.slots.get(at)?.as_ref(),
            None => self.early.get(&number),
        }
    }

    /// The value with this number, to change it.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        match self.slot(number) {
            Some(at) => self.slots.get_mut(at)?.as_mut(),
            None => self.early.get_mut(&number),
        }
    }

    /// Removes and returns the value with this number.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let value = match self.slot(number) {
            Some(at) => self.slots.get_mut(at)?.take()?,
            None => self.early.remove(&number)?,
        };
        self.len -= 1;
        while let Some(None) = self.slots.front() {
            self.slots.pop_front();
            self.first = self.first.saturating_add(1);
        }
        while let Some(None) = self.slots.back() {
            self.slots.pop_back();
        }
        Some(value)
    }

    /// All values, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let early = self.early.iter().map(|(number, value)| (*number, value));
        let window = (self.first..).zip(&self.slots);
        early.chain(window.filter_map(|(number, slot)| Some((number, slot.as_ref()?))))
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The position of a number in the window; none if it is below.
    fn slot(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }

    /// Takes the first slot out of the window, to make room for a number.
    fn shift(&mut self, number: u64) {
        if let Some(Some(value)) = self.slots.pop_front() {
            self.early.insert(self.first, value);
        }
        self.first = if self.slots.is_empty() { number } else { self.first + 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws numbers with gaps, removes in any order, and compares with a plain map.
    #[test]
    fn it_holds_what_a_map_holds() {
        let (mut numbered, mut map) = (Numbered::default(), BTreeMap::new());
        let (mut random, mut newest) = (7u64, 0u64);
        for step in 0..20_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let draw = random >> 33;
            if draw % 5 < 3 {
                // Now and then a gap that leaves the window behind.
                newest += if draw.is_multiple_of(1_000) { WINDOW } else { draw % 7 + 1 };
                numbered.insert(newest, step);
                map.insert(newest, step);
            } else if let Some(number) = map.keys().nth((draw as usize) % map.len().max(1)).copied()
            {
                assert_eq!(numbered.remove(number), map.remove(&number));
                assert_eq!(numbered.remove(number), None);
            }
            assert_eq!(numbered.get(newest), map.get(&newest));
            assert_eq!((numbered.len(), numbered.is_empty()), (map.len(), map.is_empty()));
            if step.is_multiple_of(1_000) {
                assert!(numbered.iter().eq(map.iter().map(|(number, value)| (*number, value))));
            }
        }
        assert!(!numbered.early.is_empty(), "some values stayed longer than the window spans");
    }

    #[test]
    fn one_old_value_does_not_keep_the_slots_of_later_ones() {
        let mut numbered = Numbered::default();
        numbered.insert(1, 1);
        for number in 2..10 * WINDOW {
            numbered.insert(number, number);
            assert_eq!(numbered.remove(number), Some(number));
        }
        assert!(numbered.slots.capacity() as u64 <= WINDOW);
        assert_eq!(numbered.get(1), Some(&1));
        numbered.insert(u64::MAX, 2);
        *numbered.get_mut(1).unwrap() = 3;
        assert_eq!(numbered.remove(1), Some(3));
        assert_eq!(numbered.remove(u64::MAX), Some(2));
        assert!(numbered.is_empty());
    }

    #[test]
    fn a_number_below_the_window_is_kept_too() {
        let mut numbered = Numbered::default();
        numbered.insert(9, 'b');
        numbered.insert(4, 'a');
        numbered.insert(9, 'c');
        assert_eq!(numbered.iter().collect::<Vec<_>>(), [(4, &'a'), (9, &'c')]);
        assert_eq!(numbered.len(), 2);
    }
}
