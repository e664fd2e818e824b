//! Stores records densely under small slot numbers, and copies them without a pause.
//!
//! The choice of the next free slot is part of the state: every member and every replay chooses alike.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// Records per chunk. A write copies one chunk while a frozen copy shares it.
const CHUNK: usize = 256;

/// The position of a record in its slab.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SlabIndex(NonZeroU32);

impl SlabIndex {
    /// The first slot.
    pub(crate) const FIRST: Self = Self(NonZeroU32::MIN);

    /// Returns the slot with this number, counted from 0.
    pub(crate) fn from_index(index: usize) -> Option<Self> {
        let index = u32::try_from(index).ok()?.checked_add(1)?;
        NonZeroU32::new(index).map(Self)
    }

    /// Its number, counted from 0.
    pub(crate) fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    /// Its chunk, and its position there. The first position of the first chunk stays vacant, because a slot is stored
    /// as its number plus one, and is looked up far too often to subtract that one.
    #[inline]
    fn position(self) -> (usize, usize) {
        let position = self.0.get() as usize;
        (position / CHUNK, position % CHUNK)
    }

    /// The slot at this position, counted over all chunks.
    fn from_position(position: usize) -> Option<Self> {
        u32::try_from(position).ok().and_then(NonZeroU32::new).map(Self)
    }

    /// Its number as handles show it.
    pub(crate) fn number(self) -> u32 {
        self.0.get() - 1
    }

    /// The slot that a handle names.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        number.checked_add(1).and_then(NonZeroU32::new).map(Self)
    }
}

#[derive(Clone)]
enum SlabEntry<T> {
    Vacant { next: Option<SlabIndex> },
    Full(T),
}

type Block<T> = Box<[SlabEntry<T>; CHUNK]>;

/// A block of these entries, made on the heap: on the stack it would take up to 40 KiB.
fn filled<T>(entries: impl Iterator<Item = SlabEntry<T>>) -> Block<T> {
    let entries: Vec<SlabEntry<T>> = entries.collect();
    entries.try_into().unwrap_or_else(|_| unreachable!("a chunk has this length"))
}

#[cold]
#[inline(never)]
fn not_full() -> ! {
    unreachable!("a linked slot is full")
}

/// Records of one kind, addressed by slots.
///
/// The code that finds a record is inlined some hundred times in the most frequent commands. It must stay short, or
/// they do not fit into the processor's instruction cache (docs/internals/speed.md). So there is one list of blocks
/// without variants, a slot is a position without arithmetic, and everything rare is out of line.
pub(crate) struct Slab<T> {
    /// The blocks of the chunks that no frozen copy shares, so that a write to them costs no atomic operation.
    own: Vec<Option<Block<T>>>,
    /// The blocks of the other chunks. It is as long as `own`, and has a block where `own` has none.
    shared: Vec<Option<Arc<Block<T>>>>,
    /// The number of slots ever used; the next new slot has this index.
    used: usize,
    /// The number of records.
    len: usize,
    /// The vacant slot to use next; the other vacant slots are linked behind it.
    free: Option<SlabIndex>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { own: Vec::new(), shared: Vec::new(), used: 0, len: 0, free: None }
    }
}

impl<T> Slab<T> {
    /// How many records there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The record in a slot that is known to be full.
    #[inline]
    pub(crate) fn at(&self, slot: SlabIndex) -> &T {
        match self.entry(slot) {
            Some(SlabEntry::Full(record)) => record,
            Some(SlabEntry::Vacant { .. }) | None => not_full(),
        }
    }

    /// The record in a slot, if it is full.
    pub(crate) fn get(&self, slot: SlabIndex) -> Option<&T> {
        match self.entry(slot)? {
            SlabEntry::Full(record) => Some(record),
            SlabEntry::Vacant { .. } => None,
        }
    }

    #[inline]
    fn entry(&self, slot: SlabIndex) -> Option<&SlabEntry<T>> {
        let (chunk, at) = slot.position();
        match self.own.get(chunk) {
            Some(Some(block)) => Some(&block[at]),
            Some(None) | None => self.shared_entry(slot),
        }
    }

    #[cold]
    #[inline(never)]
    fn shared_entry(&self, slot: SlabIndex) -> Option<&SlabEntry<T>> {
        let (chunk, at) = slot.position();
        self.shared.get(chunk)?.as_ref().map(|block| &block[at])
    }

    /// All records with their slots, in the order of slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SlabIndex, &T)> {
        let blocks = self.own.iter().zip(&self.shared);
        let entries = blocks.flat_map(|(own, shared)| match (own, shared) {
            (Some(block), _) => &block[..],
            (None, Some(block)) => &block[..],
            (None, None) => &[],
        });
        entries.enumerate().filter_map(|(position, entry)| match entry {
            SlabEntry::Full(record) => Some((SlabIndex::from_position(position)?, record)),
            SlabEntry::Vacant { .. } => None,
        })
    }

    /// The vacant slots below [`Slab::used`], in the order in which they will be used.
    pub(crate) fn vacant(&self) -> impl Iterator<Item = SlabIndex> {
        let mut next = self.free;
        core::iter::from_fn(move || {
            let slot = next?;
            next = match self.entry(slot) {
                Some(SlabEntry::Vacant { next }) => *next,
                Some(SlabEntry::Full(_)) | None => unreachable!("the free list links vacant slots"),
            };
            Some(slot)
        })
    }

    /// The number of slots ever used.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Bytes that the records take, including the vacant slots among them.
    pub(crate) fn heap_bytes(&self) -> usize {
        let pointers = size_of::<Option<Block<T>>>() + size_of::<Option<Arc<Block<T>>>>();
        self.own.len() * (CHUNK * size_of::<SlabEntry<T>>() + pointers)
    }
}

impl<T: Clone> Slab<T> {
    /// The record in a slot that is known to be full, mutably.
    #[inline]
    pub(crate) fn at_mut(&mut self, slot: SlabIndex) -> &mut T {
        match self.entry_mut(slot) {
            SlabEntry::Full(record) => record,
            SlabEntry::Vacant { .. } => not_full(),
        }
    }

    /// Inserts a record and returns its slot.
    pub(crate) fn insert(&mut self, record: T) -> SlabIndex {
        let slot = self.free.unwrap_or_else(|| self.grow());
        let entry = self.entry_mut(slot);
        let SlabEntry::Vacant { next } = *entry else { unreachable!("the free slot is vacant") };
        *entry = SlabEntry::Full(record);
        self.free = next;
        self.len += 1;
        slot
    }

    /// Removes the record from a slot that is known to be full.
    pub(crate) fn remove(&mut self, slot: SlabIndex) -> T {
        let vacant = SlabEntry::Vacant { next: self.free };
        match core::mem::replace(self.entry_mut(slot), vacant) {
            SlabEntry::Full(record) => {
                self.free = Some(slot);
                self.len -= 1;
                record
            }
            SlabEntry::Vacant { .. } => not_full(),
        }
    }

    /// Drops the record in a slot that is known to be full. Costs less than moving it out with [`Slab::remove`].
    pub(crate) fn free(&mut self, slot: SlabIndex) {
        let next = self.free;
        let entry = self.entry_mut(slot);
        assert!(matches!(entry, SlabEntry::Full(_)), "a linked slot is full");
        *entry = SlabEntry::Vacant { next };
        self.free = Some(slot);
        self.len -= 1;
    }

    /// Copies everything as it is now, at the cost of one step per chunk.
    pub(crate) fn freeze(&mut self) -> Self {
        for (own, shared) in self.own.iter_mut().zip(&mut self.shared) {
            if let Some(block) = own.take() {
                *shared = Some(Arc::new(block));
            }
        }
        Self {
            own: self.own.iter().map(|_| None).collect(),
            shared: self.shared.clone(),
            used: self.used,
            len: self.len,
            free: self.free,
        }
    }

    /// Inserts a record at a given slot, when a snapshot is read. Returns `false` if the slot is taken or out of order.
    pub(crate) fn place(&mut self, slot: SlabIndex, record: T) -> bool {
        // Slots come in ascending order, so every slot between the previous one and this one is vacant.
        if slot.index() < self.used {
            return false;
        }
        while self.used < slot.index() {
            self.grow_one();
        }
        let new = self.grow_one();
        *self.entry_mut(new) = SlabEntry::Full(record);
        self.len += 1;
        true
    }

    /// Links the vacant slots of a snapshot in order. Returns `false` unless these are exactly all of them.
    pub(crate) fn order_vacant(&mut self, used: usize, order: &[SlabIndex]) -> bool {
        if used < self.used || used - self.len != order.len() {
            return false;
        }
        while self.used < used {
            self.grow_one();
        }
        let mut next = None;
        for &slot in order.iter().rev() {
            if slot.index() >= used || self.get(slot).is_some() {
                return false;
            }
            *self.entry_mut(slot) = SlabEntry::Vacant { next };
            next = Some(slot);
        }
        self.free = next;
        // A slot named twice would make a cycle or a short list.
        self.vacant().take(order.len() + 1).count() == order.len()
    }

    #[inline]
    fn entry_mut(&mut self, slot: SlabIndex) -> &mut SlabEntry<T> {
        let (chunk, at) = slot.position();
        if !matches!(self.own.get(chunk), Some(Some(_))) {
            return &mut self.make_own(chunk)[at];
        }
        match &mut self.own[chunk] {
            Some(block) => &mut block[at],
            None => unreachable!("any other chunk was made our own above"),
        }
    }

    /// Copies a chunk that a frozen copy shares.
    #[cold]
    #[inline(never)]
    fn make_own(&mut self, chunk: usize) -> &mut Block<T> {
        let block = self.shared[chunk].take().expect("a chunk is our own or shared");
        // If the frozen copy is gone already, the chunk is taken back without copying.
        let copy = |shared: Arc<Block<T>>| filled(shared.iter().cloned());
        self.own[chunk].insert(Arc::try_unwrap(block).unwrap_or_else(copy))
    }

    fn grow(&mut self) -> SlabIndex {
        let slot = self.grow_one();
        self.free = Some(slot);
        slot
    }

    fn grow_one(&mut self) -> SlabIndex {
        let slot =
            SlabIndex::from_index(self.used).expect("fewer than 2^32 records, by the limits");
        if slot.position().0 == self.own.len() {
            let block = filled((0..CHUNK).map(|_| SlabEntry::Vacant { next: None }));
            self.own.push(Some(block));
            self.shared.push(None);
        }
        self.used += 1;
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_freed_last_is_used_next() {
        let mut slab = Slab::default();
        let slots: Vec<SlabIndex> = (0..5).map(|n| slab.insert(n)).collect();
        slab.remove(slots[1]);
        slab.remove(slots[3]);
        assert_eq!(slab.insert(7), slots[3]);
        assert_eq!(slab.insert(8), slots[1]);
        assert_eq!(slab.insert(9).index(), 5);
    }

    #[test]
    fn a_frozen_copy_keeps_what_is_changed_afterwards() {
        let mut slab = Slab::default();
        let slots: Vec<SlabIndex> = (0..1_000).map(|n| slab.insert(n)).collect();
        let frozen = slab.freeze();
        *slab.at_mut(slots[500]) = 0;
        slab.remove(slots[2]);
        assert_eq!((*frozen.at(slots[500]), *frozen.at(slots[2])), (500, 2));
        assert_eq!(frozen.len(), 1_000);
        drop(frozen);
        *slab.at_mut(slots[700]) = 1;
        assert_eq!(slab.iter().count(), 999);
    }

    #[test]
    fn vacant_slots_named_twice_or_not_at_all_are_noticed() {
        let mut slab = Slab::default();
        assert!(slab.place(SlabIndex::from_index(3).unwrap(), 'x'));
        let slot = |index| SlabIndex::from_index(index).unwrap();
        assert!(!slab.order_vacant(5, &[slot(0), slot(1), slot(2)]));
        assert!(!slab.order_vacant(4, &[slot(0), slot(1), slot(1)]));
        assert!(!slab.order_vacant(4, &[slot(0), slot(1), slot(3)]));
        assert!(slab.order_vacant(4, &[slot(2), slot(0), slot(1)]));
        assert_eq!(slab.insert('y'), slot(2));
    }
}
