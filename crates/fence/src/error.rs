//! Defines the errors of a fence, and what the caller may conclude from each.

use std::error::Error as StdError;

use tenure_types::InvalidName;

use crate::floors::Floors;
use crate::rule::Refused;

/// Why a fence did not do what was asked. `B` is the error of the store behind it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error<B: StdError + 'static> {
    /// The fence refused the claim. Nothing was changed.
    #[error("refused by the fence")]
    Refused(#[source] Refused),
    /// The name is not a valid lock name. Nothing was changed.
    #[error("no lock has this name")]
    Name(#[source] InvalidName),
    /// The stored floor cannot be parsed. Nothing was changed, and the fence accepts nothing until an operator has
    /// repaired it.
    #[error("the highest token seen cannot be read: {0}")]
    Unreadable(String),
    /// The place already keeps the maximum number of floors. Nothing was changed.
    #[error("there are {} floors here already", Floors::ENTRIES_MAX)]
    Full,
    /// The store failed. Unless its error says otherwise, the write may have happened: floor and data both, or neither.
    #[error("the store behind the fence failed")]
    Store(#[source] B),
}

impl<B: StdError + 'static> Error<B> {
    /// Returns the refusal, if the error is one.
    ///
    /// ```
    /// use tenure_fence::{Claim, Error, Floor, Token, Touch};
    ///
    /// let token = |number| Claim::new(Token::from_u64(number).unwrap());
    /// let floor = Floor::default().admit(token(2), Touch::Raise).unwrap();
    /// let error: Error<std::io::Error> = floor.admit(token(1), Touch::Write).unwrap_err().into();
    /// assert_eq!(error.refused().unwrap().to_string(), "token 1 is stale: the highest token seen is 2");
    /// ```
    pub fn refused(&self) -> Option<Refused> {
        match self {
            Self::Refused(refused) => Some(*refused),
            _ => None,
        }
    }
}

impl<B: StdError + 'static> From<Refused> for Error<B> {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl<B: StdError + 'static> From<InvalidName> for Error<B> {
    fn from(name: InvalidName) -> Self {
        Self::Name(name)
    }
}
