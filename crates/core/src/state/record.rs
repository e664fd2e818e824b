//! Defines the records of leases, locks, grants, places, keys and remembered requests.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::num::{NonZeroU32, NonZeroU64};
use tenure_types::{LeaseId, Mode, Name, PlaceNumber, Revision, Token};

use super::due::DueKind;
use super::list::{Linked, LinkedList, ListLink};
use super::owner::OwnerId;
use super::slab::SlabIndex;
use crate::outcome::Outcome;
use crate::request::{LEVEL_ABANDON, Purpose};

/// A client's standing in the cluster, for a time.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    pub(crate) created: Revision,
    /// Together with the slot, a name that is never reused.
    pub(crate) generation: u64,
    pub(crate) ttl_ms: u32,
    /// The lease is live while this is ahead of the clock.
    pub(crate) deadline_ms: u64,
    pub(crate) client: Name,
    /// The principal that created it; `None` if it was created without one.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) metadata: Option<Box<Box<[u8]>>>,
    /// The revision of the newest loss of a lock that the holder did not ask for.
    pub(crate) changed: Revision,
    /// Grants that the lease holds.
    pub(crate) grants: LinkedList,
    /// Places in queues, in the order of their numbers.
    pub(crate) places: LinkedList,
    /// How many locks these places wait for.
    pub(crate) waits: u32,
    /// Keys that end with the lease.
    pub(crate) keys: LinkedList,
    /// The number up to which the client has an answer to every request or will never repeat it.
    pub(crate) done: u64,
    /// Remembered requests, in the order of their numbers.
    pub(crate) requests: LinkedList,
}

/// A named right to act. It exists while it has a grant, a queue or a number of slots that an operator set.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) name: Name,
    pub(crate) created: Revision,
    pub(crate) modified: Revision,
    pub(crate) version: u64,
    /// How many slots a semaphore has.
    pub(crate) slots: Option<NonZeroU32>,
    /// Whether an operator set that number. It holds then, whatever number a request names.
    pub(crate) sized: bool,
    /// Grants in force, in the order of slots or, without slots, of tokens.
    pub(crate) grants: LinkedList,
    /// Waits, in the order of their ranks.
    pub(crate) queue: LinkedList,
}

/// The options that the grants of one acquire request share. Most requests use the defaults, which take no memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct GrantOptions(Option<Arc<OptionValues>>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct OptionValues {
    metadata: Box<[u8]>,
    times: GrantTimes,
    progress: Option<Box<ProgressState>>,
    purpose: Purpose,
}

/// The times that bound a hold and what follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct GrantTimes {
    /// How long the lock stays unavailable after an end that the holder did not ask for.
    pub(crate) lock_delay_ms: u64,
    /// The longest time that the lock may be held.
    pub(crate) max_hold_ms: Option<NonZeroU64>,
    /// The least time from the grant to the next grant; 0 for none.
    pub(crate) min_hold_ms: u64,
}

/// A promise that a number grows, and how far it has grown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProgressState {
    /// Within how much time a larger number must be reported.
    pub(crate) within_ms: NonZeroU64,
    /// The largest number reported; 0 before the first.
    pub(crate) number: u64,
    /// The clock when that number was reported; 0 before the first.
    pub(crate) moved_ms: u64,
}

impl ProgressState {
    /// A promise under which nothing was reported yet.
    pub(crate) fn promised(within_ms: u64) -> Option<Self> {
        NonZeroU64::new(within_ms).map(|within_ms| Self { within_ms, number: 0, moved_ms: 0 })
    }
}

impl GrantOptions {
    pub(crate) fn new(
        metadata: &[u8],
        times: GrantTimes,
        progress: Option<ProgressState>,
        purpose: Purpose,
    ) -> Self {
        let plain = metadata.is_empty()
            && times == GrantTimes::default()
            && progress.is_none()
            && purpose == Purpose::Lock;
        if plain {
            return Self(None);
        }
        let metadata = Box::from(metadata);
        let progress = progress.map(Box::new);
        Self(Some(Arc::new(OptionValues { metadata, times, progress, purpose })))
    }

    pub(crate) fn with_metadata(&self, metadata: &[u8]) -> Self {
        Self::new(metadata, self.times(), self.progress(), self.purpose())
    }

    pub(crate) fn with_progress(&self, progress: ProgressState) -> Self {
        Self::new(self.metadata(), self.times(), Some(progress), self.purpose())
    }

    pub(crate) fn with_min_hold(&self, min_hold_ms: u64) -> Self {
        let times = GrantTimes { min_hold_ms, ..self.times() };
        Self::new(self.metadata(), times, self.progress(), self.purpose())
    }

    pub(crate) fn progress(&self) -> Option<ProgressState> {
        self.0.as_ref().and_then(|special| special.progress.as_deref().copied())
    }

    fn times(&self) -> GrantTimes {
        self.0.as_ref().map_or(GrantTimes::default(), |special| special.times)
    }

    pub(crate) fn metadata(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |special| &special.metadata)
    }

    pub(crate) fn lock_delay_ms(&self) -> u64 {
        self.times().lock_delay_ms
    }

    pub(crate) fn max_hold_ms(&self) -> Option<u64> {
        self.times().max_hold_ms.map(NonZeroU64::get)
    }

    pub(crate) fn min_hold_ms(&self) -> u64 {
        self.times().min_hold_ms
    }

    pub(crate) fn purpose(&self) -> Purpose {
        self.0.as_ref().map_or(Purpose::Lock, |special| special.purpose)
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.0.is_none()
    }
}

/// One lock granted to one lease, kept until it no longer keeps other leases out.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) lock: SlabIndex,
    pub(crate) token: Token,
    /// The place that was granted; the grants of one acquire request share it.
    pub(crate) place: PlaceNumber,
    /// The clock at the grant.
    pub(crate) since_ms: u64,
    pub(crate) state: GrantState,
    pub(crate) options: GrantOptions,
    pub(crate) mode: GrantMode,
    pub(crate) asks: AskCount,
    pub(crate) in_lock: ListLink,
    pub(crate) in_lease: ListLink,
}

/// How many acquire requests rely on a place, its grants or a remembered request; abandoned requests are subtracted. A
/// request from a level that did not count yet stays uncounted for ever, and so does one whose count overflows: its
/// holder releases it, or it ends with its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AskCount(pub(crate) u32);

impl AskCount {
    pub(crate) const UNCOUNTED: AskCount = AskCount(0);

    /// The count after the first request, at this level.
    pub(crate) fn first(level: u16) -> Self {
        if level >= LEVEL_ABANDON { AskCount(1) } else { Self::UNCOUNTED }
    }

    /// The count after one more request.
    pub(crate) fn more(self) -> Self {
        match self {
            Self::UNCOUNTED => Self::UNCOUNTED,
            AskCount(asks) => AskCount(asks.wrapping_add(1)),
        }
    }

    /// The count after one request less; `None` if it was the last.
    pub(crate) fn less(self) -> Option<Self> {
        match self {
            Self::UNCOUNTED => Some(Self::UNCOUNTED),
            AskCount(1) => None,
            AskCount(asks) => Some(AskCount(asks - 1)),
        }
    }
}

/// The mode in which a grant is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GrantMode {
    Exclusive,
    Shared,
    Slot(u32),
}

impl GrantMode {
    pub(crate) fn slot(self) -> Option<u32> {
        match self {
            GrantMode::Slot(slot) => Some(slot),
            GrantMode::Exclusive | GrantMode::Shared => None,
        }
    }

    /// The mode that was requested.
    pub(crate) fn asked(self, slots: Option<NonZeroU32>) -> Mode {
        match self {
            GrantMode::Exclusive => Mode::Exclusive,
            GrantMode::Shared => Mode::Shared,
            GrantMode::Slot(_) => Mode::slot(slots.map_or(0, NonZeroU32::get)),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum GrantState {
    /// Held by this lease.
    Held(SlabIndex),
    /// Given back, taken away or expired; it keeps other leases out for a while.
    Over(Box<EndedGrant>),
}

/// What remains of a holder whose grant still keeps other leases out.
#[derive(Clone, Debug)]
pub(crate) struct EndedGrant {
    pub(crate) phase: GrantPhase,
    pub(crate) until_ms: u64,
    pub(crate) lease: LeaseId,
    pub(crate) created: Revision,
    pub(crate) client: Name,
    /// The owner of the lease.
    pub(crate) owner: Option<OwnerId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GrantPhase {
    Cooling,
    Delayed,
    /// No lease has it any more, but its min hold since the grant is not over.
    Resting,
}

impl GrantPhase {
    /// The kind of the deadline that ends the phase.
    pub(crate) fn due(self) -> DueKind {
        match self {
            GrantPhase::Cooling => DueKind::Cooling,
            GrantPhase::Delayed => DueKind::LockDelay,
            GrantPhase::Resting => DueKind::MinHold,
        }
    }
}

/// A waiting acquire request with all its locks.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) number: PlaceNumber,
    pub(crate) lease: SlabIndex,
    /// The first wait; the others are linked behind it in the order of their locks' names.
    pub(crate) first: SlabIndex,
    /// The revision at which the request joined the queue.
    pub(crate) created: Revision,
    /// The clock when the request joined the queue.
    pub(crate) since_ms: u64,
    /// When the wait limit passes. A limit is at least 1 ms, so the deadline is never 0.
    pub(crate) until_ms: Option<NonZeroU64>,
    pub(crate) options: GrantOptions,
    /// The group whose older waiters it has replaced, and whose next request replaces it.
    pub(crate) group: Option<Box<Name>>,
    pub(crate) independent: bool,
    /// Whether its lease holds the only lock of the place shared, and waits until it is the only holder.
    pub(crate) upgrade: bool,
    /// Whether one of its locks is enough.
    pub(crate) any: bool,
    /// The prefix of the pool of which it waits for any slot.
    pub(crate) pool: Option<Box<Name>>,
    pub(crate) priority: u8,
    pub(crate) asks: AskCount,
    pub(crate) in_lease: ListLink,
}

/// A place in the queue of one lock.
#[derive(Clone, Debug)]
pub(crate) struct WaitRecord {
    pub(crate) place: SlabIndex,
    pub(crate) lock: SlabIndex,
    pub(crate) mode: Mode,
    /// The next lock of the same place.
    pub(crate) next: Option<SlabIndex>,
    pub(crate) in_queue: ListLink,
}

/// A small fenced value.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: Name,
    pub(crate) value: Box<[u8]>,
    pub(crate) created: Revision,
    pub(crate) modified: Revision,
    pub(crate) version: u64,
    /// The principal that last wrote it; `None` if it was written without one.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) lease: Option<SlabIndex>,
    pub(crate) in_lease: ListLink,
}

/// A remembered request that the client of a lease numbered.
#[derive(Clone, Debug)]
pub(crate) struct SeqRequest {
    pub(crate) lease: SlabIndex,
    pub(crate) seq: u64,
    pub(crate) hash: u64,
    pub(crate) answer: Remembered,
    pub(crate) in_lease: ListLink,
}

/// A remembered request that came with an idempotency key.
#[derive(Clone, Debug)]
pub(crate) struct KeyRequest {
    /// Empty for an anonymous caller, so not a [`Name`].
    pub(crate) principal: Box<str>,
    pub(crate) key: Name,
    /// The lease that owns the record, if an anonymous caller named one.
    pub(crate) lease: Option<LeaseId>,
    pub(crate) hash: u64,
    /// The clock when the request was applied.
    pub(crate) since_ms: u64,
    pub(crate) answer: Remembered,
    pub(crate) in_order: ListLink,
}

/// The answer to a repeated request.
#[derive(Clone, Debug)]
pub(crate) enum Remembered {
    /// The present state of a place.
    Ask(AskRecord),
    /// What is held now of what was held when the lease wanted to leave the queue. It names the place and not the
    /// locks, because there may be a thousand grants.
    Held(HeldRecord),
    /// The outcome of the first execution.
    Outcome(Box<Outcome>),
}

/// A remembered acquire request that was granted or queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AskRecord {
    pub(crate) lease: LeaseId,
    /// The revision that created the lease.
    pub(crate) created: Revision,
    pub(crate) place: PlaceNumber,
    /// How many acquire requests came with this request id.
    pub(crate) asks: AskCount,
}

/// A remembered request to leave a queue that came too late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeldRecord {
    pub(crate) lease: LeaseId,
    /// The revision that created the lease.
    pub(crate) created: Revision,
    /// The place whose grants it held.
    pub(crate) place: PlaceNumber,
}

impl Remembered {
    /// The acquire request, if the record is of one that was granted or queued.
    pub(crate) fn ask(&self) -> Option<AskRecord> {
        match self {
            Remembered::Ask(ask) => Some(*ask),
            Remembered::Held(_) | Remembered::Outcome(_) => None,
        }
    }
}

macro_rules! linked {
    ($($record:ident $list:literal $field:ident,)+) => {$(
        impl Linked<$list> for $record {
            fn link(&self) -> &ListLink {
                &self.$field
            }
            fn link_mut(&mut self) -> &mut ListLink {
                &mut self.$field
            }
        }
    )+};
}

/// The list of a lock's grants.
pub(crate) const IN_LOCK: usize = 0;
/// The list that links a record of any kind to its lease.
pub(crate) const IN_LEASE: usize = 1;
/// The list of the waits in a lock's queue.
pub(crate) const IN_QUEUE: usize = 2;
/// The list of idempotency keys, oldest first.
pub(crate) const IN_ORDER: usize = 3;

linked! {
    Grant 0 in_lock,
    Grant 1 in_lease,
    Place 1 in_lease,
    Key 1 in_lease,
    SeqRequest 1 in_lease,
    WaitRecord 2 in_queue,
    KeyRequest 3 in_order,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_that_cannot_be_counted_any_more_are_never_taken_for_the_last() {
        assert_eq!(AskCount::first(1), AskCount::UNCOUNTED);
        assert_eq!(AskCount::first(1).more().less(), Some(AskCount::UNCOUNTED));
        assert_eq!(AskCount::first(2).less(), None);
        assert_eq!(AskCount::first(2).more().less(), Some(AskCount(1)));
        assert_eq!(AskCount(u32::MAX).more(), AskCount::UNCOUNTED);
    }

    #[test]
    fn records_stay_within_their_budget() {
        // A held lock is a lock, a grant and an index entry of some 60 bytes. A waiter is a place and a wait. A lease
        // is its record and two index entries of some 60 bytes together.
        assert!(size_of::<Lock>() + size_of::<Grant>() <= 190);
        assert!(size_of::<Place>() + size_of::<WaitRecord>() <= 150);
        assert!(size_of::<Lease>() <= 190);
        // Options beside the defaults are shared by the grants of one request.
        assert!(size_of::<OptionValues>() <= 56);
    }
}
