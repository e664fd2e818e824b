//! Defines the errors of locks over other stores, and what the caller may conclude from each.

use std::time::Duration;

use tenure::{Cause, LeaseTimingError};

use crate::backend::StoreError;

/// Why the lock was not acquired, or is no longer held.
///
/// ```
/// use tenure_backends::Error;
/// fn advice(error: &Error) -> &str {
///     match error {
///         Error::Held { .. } => "another client has it",
///         Error::Unavailable { .. } => "try later",
///         Error::Lost { .. } => "the work was stopped",
///         _ => "something else",
///     }
/// }
/// # let lock = "deploy".to_owned();
/// assert_eq!(advice(&Error::Held { lock, waited: None }), "another client has it");
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another client has the lock.
    #[error("lock `{lock}` is held by another client")]
    Held {
        /// The lock's name.
        lock: String,
        /// How long the client waited, if it did.
        waited: Option<Duration>,
    },
    /// The store did not answer. Nothing is held; a key that may have been put is deleted in the background, or
    /// expires.
    #[error("the store did not answer for {waited:.1?}")]
    Unavailable {
        /// How long the store did not answer.
        waited: Duration,
        /// The store's last error.
        #[source]
        source: StoreError,
    },
    /// The lock is lost. The work under it was stopped, or the caller has to stop it.
    #[error("lost: {cause}")]
    Lost {
        /// The cause of the loss.
        cause: Cause,
    },
    /// Another error of the Tenure client: a refusal, credentials, a closed client.
    #[error("{0}")]
    Tenure(#[source] tenure::Error),
    /// The ttl is out of range, or the window or the time to stop does not fit it.
    #[error("{0}")]
    LeaseTiming(#[from] LeaseTimingError),
    /// The locks cannot be set up: an address or a certificate is not usable, or there is no Tokio runtime, thread or
    /// timer.
    #[error("cannot be set up: {0}")]
    Setup(String),
}
