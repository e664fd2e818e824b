//! Decides which tokens may write.
//!
//! This is the one rule, as a pure function. Every fence either calls it, or restates it in the language of its store.
//! Tests run both side by side and compare them.

use tenure_types::{Epoch, Token};

use crate::claim::{Claim, Incarnation, Mode, Times};
use crate::reason::Reason;

/// What a resource remembers of one lock and slot.
///
/// `exclusive` and `shared` are two numbers because shared holders do not fence each other. `used` is for
/// [`Times::Once`]: raising the floor right after the acquire must not use the token up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Floor {
    /// The largest token accepted from an exclusive holder.
    pub exclusive: Option<Token>,
    /// The largest token accepted from a shared holder.
    pub shared: Option<Token>,
    /// The largest token that has written.
    pub used: Option<Token>,
    /// The life of the cluster that granted the tokens of the newest epoch seen, where that was proven.
    pub incarnation: Option<Incarnation>,
}

/// What is done with an accepted token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Touch {
    /// Data changes.
    Write,
    /// Only the floor rises, so that nothing older is accepted from now on.
    Raise,
}

/// Why a token was refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A later holder of the lock has already been here.
    #[error("token {token} is stale: the highest token seen is {floor}")]
    Stale {
        /// The refused token.
        token: Token,
        /// The smallest token that would have been accepted.
        floor: Token,
    },
    /// A token that may write once has written, or a later one has.
    #[error(
        "token {token} is refused: each token may write once, and token {used} has written already"
    )]
    Used {
        /// The refused token.
        token: Token,
        /// The largest token that has written.
        used: Token,
    },
    /// The same epoch was seen under another incarnation: two restores of one backup are running.
    #[error("epoch {} belongs to incarnation {known}, not {said}", .epoch.get())]
    OtherIncarnation {
        /// The epoch of the token.
        epoch: Epoch,
        /// The incarnation of this epoch that the resource knows.
        known: Incarnation,
        /// The incarnation that the claim carries.
        said: Incarnation,
    },
    /// No cluster ever grants this number.
    #[error("{token} is not a token that a cluster issues")]
    Impossible {
        /// The refused number.
        token: Token,
    },
}

impl Refused {
    /// Returns the reason, as every fence over HTTP reports it.
    ///
    /// ```
    /// use tenure_fence::{Refused, Token, reason::Reason};
    ///
    /// let token = Token::from_u64(7).unwrap();
    /// assert_eq!(Refused::Stale { token, floor: token }.reason(), Reason::StaleToken);
    /// ```
    pub fn reason(&self) -> Reason {
        match self {
            Self::Stale { .. } => Reason::StaleToken,
            Self::Used { .. } => Reason::TokenUsed,
            Self::OtherIncarnation { .. } => Reason::OtherIncarnation,
            Self::Impossible { .. } => Reason::NotAToken,
        }
    }

    /// Returns the smallest token that would have been accepted, where a larger one would have been.
    ///
    /// ```
    /// use tenure_fence::{Refused, Token};
    ///
    /// let used = Token::from_u64(7).unwrap();
    /// assert_eq!(Refused::Used { token: used, used }.floor(), Some(8));
    /// ```
    pub fn floor(&self) -> Option<u64> {
        match self {
            Self::Stale { floor, .. } => Some(floor.get()),
            // One more than the token that has written.
            Self::Used { used, .. } => Some(used.get() + 1),
            Self::OtherIncarnation { .. } | Self::Impossible { .. } => None,
        }
    }
}

impl Floor {
    /// Returns the floor after this claim, or why it is refused.
    ///
    /// The caller must make the returned floor and the write durable together, before it answers.
    pub fn admit(self, claim: Claim, touch: Touch) -> Result<Floor, Refused> {
        let Claim { token, mode, times, incarnation } = claim;
        let Some(epoch) = token.epoch().filter(|epoch| token >= first_of(*epoch)) else {
            return Err(Refused::Impossible { token });
        };
        if let Some(floor) = self.lowest(mode)
            && is_lower(token, floor)
        {
            return Err(Refused::Stale { token, floor });
        }
        let same_epoch = self.epoch() == Some(epoch) && !mutant!("incarnation_ignored");
        if let (true, Some(known), Some(said)) = (same_epoch, self.incarnation, incarnation)
            && known != said
        {
            return Err(Refused::OtherIncarnation { epoch, known, said });
        }
        if let (Touch::Write, Times::Once, Some(used)) = (touch, times, self.used)
            && (token < used || token == used && !mutant!("once_accepts_equal"))
        {
            return Err(Refused::Used { token, used });
        }
        Ok(self.raised(claim, touch, epoch))
    }

    /// Returns the smallest token that is accepted in this mode, or `None` before any token has been seen.
    pub fn lowest(self, mode: Mode) -> Option<Token> {
        match mode {
            Mode::Exclusive if mutant!("exclusive_ignores_shared") => self.exclusive,
            Mode::Exclusive => self.exclusive.max(self.shared),
            Mode::Shared if mutant!("shared_fences_shared") => self.exclusive.max(self.shared),
            Mode::Shared if mutant!("old_epoch_shared") => self.exclusive,
            // A restore ends every lease, so no shared holder of an earlier epoch is left.
            Mode::Shared => self.exclusive.max(self.epoch().map(first_of)),
        }
    }

    /// Returns the newest epoch that has been seen.
    pub fn epoch(self) -> Option<Epoch> {
        self.exclusive.max(self.shared).and_then(Token::epoch)
    }

    fn raised(self, claim: Claim, touch: Touch, epoch: Epoch) -> Floor {
        let token = Some(claim.token);
        let mut next = self;
        match claim.mode {
            _ if mutant!("floor_not_raised") => {}
            Mode::Exclusive => next.exclusive = token,
            Mode::Shared if mutant!("shared_falls") => next.shared = token,
            Mode::Shared => next.shared = self.shared.max(token),
        }
        if touch == Touch::Write || mutant!("raise_uses_up") {
            next.used = self.used.max(token);
        }
        let keeps = self.epoch() == Some(epoch) || mutant!("incarnation_outlives_epoch");
        next.incarnation = claim.incarnation.or(self.incarnation.filter(|_| keeps));
        next
    }
}

fn is_lower(token: Token, floor: Token) -> bool {
    if mutant!("lower_accepted") {
        return token.get() + 1 < floor.get();
    }
    if mutant!("equal_refused") {
        return token <= floor;
    }
    if mutant!("compared_as_doubles") {
        #[expect(clippy::cast_precision_loss, reason = "that is the planted bug")]
        return (token.get() as f64) < floor.get() as f64;
    }
    if mutant!("compared_as_unpadded_text") {
        return token.to_string() < floor.to_string();
    }
    token < floor
}

/// The first token that an epoch can grant.
fn first_of(epoch: Epoch) -> Token {
    Token::new(epoch, 1).expect("every epoch has a first token")
}
