//! What does somebody who wants to write say of itself?

use std::fmt;

use tenure_types::{InvalidName, Name, Token};

/// How the lock was held. Only a signed ticket proves it; a bare number is taken for exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Alone. The holder of one slot of a semaphore is alone in that slot.
    #[default]
    Exclusive,
    /// Together with other shared holders.
    Shared,
}

/// How often one token may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Times {
    /// As often as its holder likes: equal tokens are accepted.
    #[default]
    Many,
    /// Once: a token that has written is refused, and so is every lower one.
    Once,
}

/// Which life of a cluster gave the token: drawn anew at every restore from a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// Sixteen hexadecimal digits, as members show it.
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

/// A token and what is said about it. A [`Token`] alone is a claim: exclusive, many times.
///
/// ```
/// use tenure_fence::{Claim, Token};
///
/// let token = Token::from_u64(7).unwrap();
/// assert_eq!(Claim::from(token), Claim::new(token));
/// assert_ne!(Claim::new(token).shared(), Claim::new(token).once());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The number that the grant carried.
    pub token: Token,
    /// How the lock was held.
    pub mode: Mode,
    /// How often the token may write here.
    pub times: Times,
    /// Which life of the cluster gave it, where that is proven.
    pub incarnation: Option<Incarnation>,
}

impl Claim {
    /// An exclusive holder's claim, for as many writes as it likes.
    pub fn new(token: Token) -> Self {
        Self { token, mode: Mode::Exclusive, times: Times::Many, incarnation: None }
    }

    /// The same, of a shared holder.
    #[must_use]
    pub fn shared(self) -> Self {
        Self { mode: Mode::Shared, ..self }
    }

    /// The same, for one write.
    #[must_use]
    pub fn once(self) -> Self {
        Self { times: Times::Once, ..self }
    }

    /// The same, given by this life of the cluster.
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

/// What a floor is kept for: a lock, and for a semaphore which of its slots.
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
    /// Which slot of a semaphore, counted from 0; `None` if the lock has no slots.
    pub slot: Option<u32>,
}

impl LockSlot<'_> {
    /// Whether there can be such a lock.
    pub fn check(&self) -> Result<(), InvalidName> {
        Name::check(self.lock)
    }

    /// The slot in a column or a text: -1 if the lock has none.
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
