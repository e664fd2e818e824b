//! Links records of a slab into intrusive lists.

use super::slab::{Slab, SlabIndex};

/// The neighbours of a record in one list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ListLink {
    pub(crate) before: Option<SlabIndex>,
    pub(crate) after: Option<SlabIndex>,
}

/// The ends and the length of a list. Removing any record takes constant time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LinkedList {
    pub(crate) first: Option<SlabIndex>,
    pub(crate) last: Option<SlabIndex>,
    pub(crate) len: u32,
}

/// A record that can be linked into list number `L`.
pub(crate) trait Linked<const L: usize> {
    fn link(&self) -> &ListLink;
    fn link_mut(&mut self) -> &mut ListLink;
}

impl LinkedList {
    /// Appends a record.
    pub(crate) fn push<const L: usize, T: Linked<L> + Clone>(
        &mut self,
        slab: &mut Slab<T>,
        slot: SlabIndex,
    ) {
        *slab.at_mut(slot).link_mut() = ListLink { before: self.last, after: None };
        match self.last {
            Some(last) => slab.at_mut(last).link_mut().after = Some(slot),
            None => self.first = Some(slot),
        }
        self.last = Some(slot);
        self.len += 1;
    }

    /// Inserts a record after another one, or at the front.
    pub(crate) fn insert_after<const L: usize, T: Linked<L> + Clone>(
        &mut self,
        slab: &mut Slab<T>,
        before: Option<SlabIndex>,
        slot: SlabIndex,
    ) {
        let behind = match before {
            Some(before) => &mut slab.at_mut(before).link_mut().after,
            None => &mut self.first,
        };
        let after = behind.replace(slot);
        *slab.at_mut(slot).link_mut() = ListLink { before, after };
        match after {
            Some(after) => slab.at_mut(after).link_mut().before = Some(slot),
            None => self.last = Some(slot),
        }
        self.len += 1;
    }

    /// Removes a record.
    pub(crate) fn remove<const L: usize, T: Linked<L> + Clone>(
        &mut self,
        slab: &mut Slab<T>,
        slot: SlabIndex,
    ) {
        let ListLink { before, after } = *slab.at(slot).link();
        match before {
            Some(before) => slab.at_mut(before).link_mut().after = after,
            None => self.first = after,
        }
        match after {
            Some(after) => slab.at_mut(after).link_mut().before = before,
            None => self.last = before,
        }
        self.len -= 1;
    }

    /// The records, first to last.
    pub(crate) fn iter<'a, const L: usize, T: Linked<L>>(
        &self,
        slab: &'a Slab<T>,
    ) -> impl Iterator<Item = (SlabIndex, &'a T)> + use<'a, L, T> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            let slot = next?;
            let record = slab.at(slot);
            next = record.link().after;
            #[cfg(test)]
            steps::count();
            Some((slot, record))
        })
    }
}

/// Counts the steps of all iterations on this thread, to show that a command does not walk a long list.
#[cfg(test)]
pub(crate) mod steps {
    extern crate std;

    use core::cell::Cell;

    std::thread_local! {
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count() {
        STEPS.set(STEPS.get() + 1);
    }

    /// The steps since the last call.
    pub(crate) fn take() -> usize {
        STEPS.take()
    }
}
