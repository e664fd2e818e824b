//! Defines the numbers of leases, grants, places, revisions and terms.

use core::fmt;
use core::num::NonZeroU64;

/// The number of bits that count within one epoch in a token or revision.
const COUNTER_BITS: u32 = 48;

/// A lease's number: positive and within 63 bits, so that every language can represent it.
///
/// A number may be reused after its lease ended. The number together with the revision that created the lease
/// identifies it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(NonZeroU64);

impl LeaseId {
    /// Creates a lease id from a number between 1 and `i64::MAX`.
    #[inline]
    pub fn new(number: u64) -> Option<Self> {
        let number = NonZeroU64::new(number)?;
        (number.get() <= i64::MAX as u64).then_some(Self(number))
    }

    /// The number.
    #[inline]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// Where the machine keeps a lease: a slot, and a generation that identifies one lease of that slot.
///
/// Addressing a lease by handle is fast and never mistakes a new lease for an old one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle {
    /// The slot.
    pub slot: u32,
    /// The epoch in which the lease was granted, combined with its number among all leases granted.
    pub generation: u64,
}

/// The number of times the cluster was restored from a backup. It forms the high bits of every token and revision.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(u16);

impl Epoch {
    /// The largest epoch, chosen so that a token fits a signed 64-bit integer.
    pub const MAX: Epoch = Epoch(32_767);

    /// Creates an epoch from a number up to [`Epoch::MAX`].
    #[inline]
    pub fn new(number: u16) -> Option<Self> {
        (number <= Self::MAX.0).then_some(Self(number))
    }

    /// The number.
    pub fn get(self) -> u16 {
        self.0
    }

    /// The generation of the `number`-th lease ever granted, in this epoch. Two incarnations of a cluster never produce
    /// the same one, whichever backup the later one was restored from.
    pub fn generation(self, number: u64) -> u64 {
        u64::from(self.0) << COUNTER_BITS | number & Token::COUNTER_MAX
    }

    /// The first revision of this epoch that keeps the low bits of `revision`.
    pub fn revision(self, revision: Revision) -> Revision {
        Revision(u64::from(self.0) << COUNTER_BITS | revision.0 & Token::COUNTER_MAX)
    }
}

/// The fencing token: a number given to a holder, larger at every grant, in all epochs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// The largest counter within one epoch. It never carries into the epoch.
    pub const COUNTER_MAX: u64 = (1 << COUNTER_BITS) - 1;

    /// Creates the token of the `counter`-th grant of an epoch. There is no token for counter 0, nor for one beyond
    /// [`Token::COUNTER_MAX`].
    #[inline]
    pub fn new(epoch: Epoch, counter: u64) -> Option<Self> {
        if counter == 0 || counter > Self::COUNTER_MAX {
            return None;
        }
        NonZeroU64::new(u64::from(epoch.0) << COUNTER_BITS | counter).map(Self)
    }

    /// Creates a token from a number on the wire. Zero means "no token" everywhere and gives `None`.
    #[inline]
    pub fn from_u64(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// The epoch in which it was granted; `None` if no epoch is that high.
    #[inline]
    pub fn epoch(self) -> Option<Epoch> {
        u16::try_from(self.get() >> COUNTER_BITS).ok().and_then(Epoch::new)
    }

    /// The number, to be compared as an integer.
    #[inline]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// Counts the applied commands that changed something; dates every change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision after this one.
    #[must_use]
    #[inline]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The number of a place in the queues. All queues share one order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PlaceNumber(pub u64);

/// The term of a leader: each term has at most one leader.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Term(pub u64);

macro_rules! show_as_number {
    ($($name:ident => $value:expr),+ $(,)?) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let value: fn(&$name) -> u64 = $value;
                fmt::Display::fmt(&value(self), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let value: fn(&$name) -> u64 = $value;
                write!(f, concat!(stringify!($name), "({})"), value(self))
            }
        }
    )+};
}

show_as_number! {
    LeaseId => |id| id.get(),
    Token => |token| token.get(),
    Revision => |revision| revision.0,
    PlaceNumber => |number| number.0,
    Term => |term| term.0,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_never_a_token_and_never_a_lease() {
        assert_eq!(Token::from_u64(0), None);
        assert_eq!(Token::new(Epoch::default(), 0), None);
        assert_eq!(LeaseId::new(0), None);
        assert_eq!(LeaseId::new(i64::MAX as u64 + 1), None);
    }

    #[test]
    fn a_later_epoch_is_above_every_token_of_an_earlier_one() {
        let last = Token::new(Epoch(3), Token::COUNTER_MAX).unwrap();
        let first = Token::new(Epoch(4), 1).unwrap();
        assert!(first > last);
        assert_eq!((first.epoch(), last.epoch()), (Some(Epoch(4)), Some(Epoch(3))));
        assert_eq!(Token::from_u64(u64::MAX).and_then(Token::epoch), None);
        assert_eq!(Token::new(Epoch(3), Token::COUNTER_MAX + 1), None, "the counter never carries");
    }

    #[test]
    fn the_largest_token_fits_a_signed_integer() {
        let largest = Token::new(Epoch::MAX, Token::COUNTER_MAX).unwrap();
        assert!(i64::try_from(largest.get()).is_ok());
    }
}
