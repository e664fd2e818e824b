//! Defines what the trials need of a fence.

use std::error::Error as StdError;

use tenure_fence::{Claim, Error, Floor, LockSlot, Refused, Token};

/// Data behind a fence, under a name of its own. Anything but a refusal is a panic.
pub(crate) trait Subject: Sync {
    fn write(&self, at: LockSlot<'_>, claim: Claim, value: &str) -> Result<(), FenceReply>;
    fn raise(&self, at: LockSlot<'_>, claim: Claim) -> Result<(), FenceReply>;
    fn floor(&self, at: LockSlot<'_>) -> Floor;
    fn read(&self) -> Option<String>;
    /// The same write, past the fence.
    fn write_unfenced(&self, value: &str);
}

/// A refusal, with what every fence can report about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FenceReply {
    Stale { floor: u64 },
    Used,
    OtherIncarnation,
    Impossible,
}

impl From<Refused> for FenceReply {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Stale { floor, .. } => FenceReply::Stale { floor: floor.get() },
            Refused::Used { .. } => FenceReply::Used,
            Refused::OtherIncarnation { .. } => FenceReply::OtherIncarnation,
            Refused::Impossible { .. } => FenceReply::Impossible,
            other => panic!("unknown refusal: {other:?}"),
        }
    }
}

/// Returns the refusal, or panics on any other error.
pub(crate) fn said<T, B: StdError + 'static>(result: Result<T, Error<B>>) -> Result<T, FenceReply> {
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
