//! What did not succeed, and what may the caller conclude?

use std::time::Duration;

use tenure::{Cause, PaceError};

use crate::backend::StoreError;

/// Why there is no lock, or no lock any more.
///
/// ```
/// use tenure_backends::Error;
/// fn advice(error: &Error) -> &str {
///     match error {
///         Error::Held { .. } => "somebody else has it",
///         Error::Unavailable { .. } => "try later",
///         Error::Lost { .. } => "the work was stopped",
///         _ => "something else",
///     }
/// }
/// # let lock = "deploy".to_owned();
/// assert_eq!(advice(&Error::Held { lock, waited: None }), "somebody else has it");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else has the lock.
    #[error("lock `{lock}` is held by somebody else")]
    Held {
        /// Which.
        lock: String,
        /// How long was waited, if it was.
        waited: Option<Duration>,
    },
    /// The store did not answer. Nothing is held; what was perhaps put is deleted in the background, or runs out.
    #[error("the store did not answer for {waited:.1?}")]
    Unavailable {
        /// For how long.
        waited: Duration,
        /// What it said last.
        #[source]
        source: StoreError,
    },
    /// What was relied on is lost; the work under it was, or has to be, stopped.
    #[error("lost: {cause}")]
    Lost {
        /// Why.
        cause: Cause,
    },
    /// The times of the lock do not fit each other.
    #[error("the times of the lock do not fit")]
    Pace(#[from] PaceError),
    /// There is no Tokio runtime, no thread or no timer.
    #[error("cannot be set up: {0}")]
    Setup(String),
}
