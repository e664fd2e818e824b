//! Defines what a writer presents to a fence: its token, mode and use, and the lock and slot it writes under.

use std::fmt;

use tenure_types::{InvalidName, Name, Token};

/// How the lock was held. Only a signed ticket proves it; a fence takes a bare number for exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Mode {
    /// One holder alone. The holder of one slot of a semaphore is alone in that slot.
    #[default]
    Exclusive,
    /// Together with other shared holders.
    Shared,
}

/// How often one token may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Times {
    /// As often as its holder likes: the fence accepts equal tokens.
    #[default]
    Many,
    /// Once: the fence refuses a token that has written, and every lower one.
    Once,
}

/// Identifies one life of a cluster. The cluster draws a new one at every restore from a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// Parses sixteen hexadecimal digits, as members show it.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits.then(|| u64::from_str_radix(text, 16).ok().map(Self)).flatten()
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:016x}", self.0)
    }
}

/// A token and what is known about it. A [`Token`] alone is a claim: exclusive, many times.
///
/// ```
/// use tenure_fence::{Claim, Token};
///
/// let token = Token::from_u64(7).unwrap();
/// assert_eq!(Claim::from(token), Claim::new(token));
/// assert_ne!(Claim::new(token).shared(), Claim::new(token).once());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// The number of the grant.
    pub token: Token,
    /// How the lock was held.
    pub mode: Mode,
    /// How often the token may write here.
    pub times: Times,
    /// The life of the cluster that granted the token, where that is proven.
    pub incarnation: Option<Incarnation>,
}

impl Claim {
    /// Creates the claim of an exclusive holder, for any number of writes.
    pub fn new(token: Token) -> Self {
        Self { token, mode: Mode::Exclusive, times: Times::Many, incarnation: None }
    }

    /// Returns the same claim for a shared holder.
    #[must_use]
    pub fn shared(self) -> Self {
        Self { mode: Mode::Shared, ..self }
    }

    /// Returns the same claim for one write.
    #[must_use]
    pub fn once(self) -> Self {
        Self { times: Times::Once, ..self }
    }

    /// Returns the same claim, granted by this life of the cluster.
    #[must_use]
    pub fn incarnation(self, incarnation: Incarnation) -> Self {
        Self { incarnation: Some(incarnation), ..self }
    }
}

impl From<Token> for Claim {
    fn from(token: Token) -> Self {
        Self::new(token)
    }
}

/// What a floor is kept for: a lock, or one slot of a semaphore.
///
/// ```
/// use tenure_fence::LockSlot;
///
/// assert_eq!(LockSlot::from("ledger").slot, None);
/// assert_eq!(LockSlot::from(("workers", 3)).slot, Some(3));     // or guard.slot() as it is
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockSlot<'a> {
    /// The lock's name.
    pub lock: &'a str,
    /// The slot of a semaphore, counted from 0; `None` if the lock has no slots.
    pub slot: Option<u32>,
}

impl LockSlot<'_> {
    /// Checks that a lock can have this name.
    pub fn check(&self) -> Result<(), InvalidName> {
        Name::check(self.lock)
    }

    /// The slot as a number for a column or a text: -1 if the lock has none.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "redis"))]
    pub(crate) fn number(&self) -> i64 {
        self.slot.map_or(-1, i64::from)
    }
}

impl<'a> From<&'a str> for LockSlot<'a> {
    fn from(lock: &'a str) -> Self {
        Self { lock, slot: None }
    }
}

impl<'a> From<(&'a str, u32)> for LockSlot<'a> {
    fn from((lock, slot): (&'a str, u32)) -> Self {
        Self { lock, slot: Some(slot) }
    }
}

impl<'a> From<(&'a str, Option<u32>)> for LockSlot<'a> {
    fn from((lock, slot): (&'a str, Option<u32>)) -> Self {
        Self { lock, slot }
    }
}

impl fmt::Display for LockSlot<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slot {
            None => write!(to, "`{}`", self.lock),
            Some(slot) => write!(to, "`{}` slot {slot}", self.lock),
        }
    }
}
