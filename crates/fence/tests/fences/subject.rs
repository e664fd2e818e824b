//! Defines what the trials need of a fence.

use std::error::Error as StdError;

use tenure_fence::{Claim, Error, Floor, LockSlot, Refused, Token};

/// Data behind a fence, under a name of its own. Anything but a refusal is a panic.
pub(crate) trait Subject: Sync {
    fn write(&self, at: LockSlot<'_>, claim: Claim, value: &str) -> Result<(), Said>;
    fn raise(&self, at: LockSlot<'_>, claim: Claim) -> Result<(), Said>;
    fn floor(&self, at: LockSlot<'_>) -> Floor;
    fn read(&self) -> Option<String>;
    /// The same write, past the fence.
    fn write_unfenced(&self, value: &str);
}

/// A refusal, with what every fence can report about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    Stale { floor: u64 },
    Used,
    OtherIncarnation,
    Impossible,
}

impl From<Refused> for Said {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Stale { floor, .. } => Said::Stale { floor: floor.get() },
            Refused::Used { .. } => Said::Used,
            Refused::OtherIncarnation { .. } => Said::OtherIncarnation,
            Refused::Impossible { .. } => Said::Impossible,
            other => panic!("unknown refusal: {other:?}"),
        }
    }
}

/// Returns the refusal, or panics on any other error.
pub(crate) fn said<T, B: StdError + 'static>(result: Result<T, Error<B>>) -> Result<T, Said> {
    result.map_err(|error| match error.refused() {
        Some(refused) => refused.into(),
        None => panic!("not refused, but failed: {error:?}"),
    })
}

pub(crate) fn token(number: u64) -> Token {
    Token::from_u64(number).unwrap()
}

pub(crate) fn claim(number: u64) -> Claim {
    Claim::new(token(number))
}
