//! What did not succeed, and what may the caller conclude?

use std::fmt;
use std::time::Duration;

use tenure_types::{Refusal, Revision};
use tenure_wire::{refusal::refusal_from, v1};

use crate::client::Tried;
use crate::life::{Lost, PaceError};

/// Why an operation did not succeed, and what the caller may conclude.
///
/// ```
/// use tenure::{Error, Refusal};
/// fn advice(error: &Error) -> &str {
///     match error {
///         Error::Refused(Refusal::Held(_)) => "somebody else has it",
///         Error::Refused(_) => "the answer is no",
///         Error::Unavailable => "nothing happened, try later",
///         Error::Unknown { .. } => "it may have happened",
///         Error::Lost(_) => "the work was stopped",
///         _ => "something else",
///     }
/// }
/// assert_eq!(advice(&Error::Unavailable), "nothing happened, try later");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cluster decided, and the answer is no. Nothing was done.
    #[error("refused by the cluster")]
    Refused(#[source] Refusal),
    /// No member took the request. It had no effect.
    #[error("no member took the request; nothing happened")]
    Unavailable,
    /// Nobody could be connected to. Nothing happened.
    #[error("no member answered within {waited:.1?}")]
    Unreachable {
        /// How long was tried.
        waited: Duration,
        /// Which addresses were tried, and what came of it.
        tried: Vec<Tried>,
    },
    /// The request was sent and its outcome is not known. It may have taken effect.
    #[error("no outcome of request {request} within {waited:.1?}; it may have happened")]
    Unknown {
        /// The id under which it can be asked for again.
        request: RequestId,
        /// How long was waited.
        waited: Duration,
    },
    /// What was relied on is lost; the work under it was, or has to be, stopped.
    #[error("lost: {0}")]
    Lost(Lost),
    /// The lock was granted, and the fence at the resource did not let its holder in. It was given back, or ends with
    /// its lease.
    #[error("the fence at the resource said no")]
    Fence(#[source] crate::fence::FenceError),
    /// The history does not reach back as far as a watch wanted.
    #[error("the history begins at revision {floor}")]
    Compacted {
        /// The oldest revision that is kept.
        floor: Revision,
    },
    /// Something other than a rule said no: credentials, quotas, a request that cannot be. Nothing was done, but
    /// nobody knows what `STRANGE_ANSWER` stands for: the member answered something else than was asked.
    #[error("{message} ({reason})")]
    Failed {
        /// The stable word for programs.
        reason: String,
        /// The sentence for people.
        message: String,
    },
    /// The times of a lease do not fit each other.
    #[error("the times of the lease do not fit")]
    Pace(#[from] PaceError),
    /// The client cannot be set up: an address that is none, no thread, no timer.
    #[error("the client cannot be set up: {0}")]
    Setup(String),
}

/// The id under which a request is known to the cluster.
///
/// ```
/// # use tenure::RequestId;
/// assert_eq!(RequestId::from("job-7".to_owned()).to_string(), "job-7");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RequestId(String);

impl From<String> for RequestId {
    fn from(id: String) -> Self {
        Self(id)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an error on the wire means for whoever sent the request.
pub(crate) enum Meaning {
    /// It did not happen and may be sent again.
    Again { after: Duration },
    /// It may have happened.
    Doubt,
    /// It did not happen and will not.
    No(Error),
}

impl Meaning {
    pub(crate) fn of(error: v1::Error) -> Self {
        if error.effect() == v1::Effect::Unknown {
            return Self::Doubt;
        }
        // Of what could be tried later, this is what passes by itself and soon.
        const PASSING: &[&str] = &[
            "NOT_LEADER",
            "NO_LEADER",
            "NO_QUORUM",
            "DEADLINE",
            "OVERLOADED",
            "SHUTTING_DOWN",
            "CORRUPT",
            "REQUEST_WINDOW",
            "TOO_MANY_HOPS",
        ];
        if PASSING.contains(&error.reason.as_str()) {
            return Self::Again { after: Duration::from_millis(error.retry_after_ms) };
        }
        Self::No(match refusal_from(&error) {
            Some(refusal) => Error::Refused(refusal),
            None => Error::Failed { reason: error.reason, message: error.message },
        })
    }
}

/// An answer that does not belong to its question.
pub(crate) fn strange() -> Error {
    Error::Failed {
        reason: "STRANGE_ANSWER".to_owned(),
        message: "the member answered something else than was asked".to_owned(),
    }
}
