//! Defines the client's errors, and what the caller may conclude from each.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_types::{Refusal, Revision};
use tenure_wire::reason::Retry;
use tenure_wire::{refusal::refusal_from, v1};

use crate::client::Tried;
use crate::lease_state::{LeaseTimingError, Lost};

/// Why an operation did not succeed, and what the caller may conclude.
///
/// ```
/// use tenure::{Error, Refusal};
/// fn advice(error: &Error) -> &str {
///     match error {
///         Error::Refused(Refusal::Held(_)) => "another client has it",
///         Error::Refused(_) => "the answer is no",
///         Error::Unavailable => "nothing happened, try later",
///         Error::Unknown { .. } => "it may have happened",
///         Error::Lost(_) => "the work was stopped",
///         _ => "something else",
///     }
/// }
/// assert_eq!(advice(&Error::Unavailable), "nothing happened, try later");
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cluster decided, and the answer is no. Nothing was done.
    #[error("{}", shown(.0))]
    Refused(#[source] Refusal),
    /// No member took the request. It had no effect.
    #[error("no member took the request; nothing happened")]
    Unavailable,
    /// The client could not connect to any member. Nothing happened.
    #[error("no member answered within {waited:.1?}{}", outcomes(.tried))]
    Unreachable {
        /// How long the client tried.
        waited: Duration,
        /// The addresses that were tried, with their outcomes.
        tried: Vec<Tried>,
    },
    /// The request was sent, and its outcome is not known. It may have taken effect.
    #[error("no outcome{} within {waited:.1?}; it may have happened", of(.request))]
    Unknown {
        /// The id under which the request can be repeated, if it can: see [`Key::again`](crate::Key::again).
        request: Option<RequestId>,
        /// How long the client waited.
        waited: Duration,
    },
    /// The lease or lock is lost. The work under it was stopped, or the caller has to stop it. From a request that
    /// waited: its lease was lost, nothing is held, and its place in the queue is given up.
    #[error("lost: {0}")]
    Lost(#[source] Lost),
    /// The lock was granted, and the fence at the resource did not accept its token. The client released the lock, or
    /// the lock ends with its lease.
    #[error("the fence at the resource refused the token: {0}")]
    Fence(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// The history does not reach back to the revision that a watch asked for.
    #[error("the oldest retained revision is {floor}")]
    Compacted {
        /// The oldest revision that is kept.
        floor: Revision,
    },
    /// The request was rejected for a reason other than a rule of the lock service: credentials, quotas, an invalid
    /// request. Nothing was done, with one exception: `STRANGE_ANSWER` means that the member sent an answer of the
    /// wrong type, so the effect is not known.
    #[error("{message} ({reason})")]
    Failed {
        /// The stable reason code, for programs.
        reason: String,
        /// The message, for people.
        message: String,
    },
    /// The times of a lease do not fit each other.
    #[error("{0}")]
    LeaseTiming(#[from] LeaseTimingError),
    /// The client cannot be set up: an invalid address, no thread, no timer.
    #[error("the client cannot be set up: {0}")]
    Setup(String),
    /// The client was closed and takes no more requests for locks. Nothing happened.
    #[error("the client is closed")]
    Closed,
    /// The client was to close, and guards still exist at the end of the time.
    #[error("still held: {}", locks.join(", "))]
    StillHeld {
        /// The locks of these guards.
        locks: Vec<String>,
    },
}

impl Error {
    /// Whether nothing happened, and the same request may succeed if it is repeated later. For a request whose outcome
    /// is [unknown](Error::Unknown) this is `false`: it may have happened.
    ///
    /// ```
    /// use tenure::{Error, Refusal};
    /// assert!(Error::Unavailable.is_retryable());
    /// assert!(Error::Refused(Refusal::WaitTimeout).is_retryable());
    /// assert!(!Error::Refused(Refusal::InvalidName).is_retryable());
    /// ```
    pub fn is_retryable(&self) -> bool {
        let later = |reason: &str| {
            let row = tenure_wire::reason::row(reason);
            row.is_some_and(|row| matches!(row.retry, Retry::AtOnce | Retry::Later))
        };
        match self {
            Self::Unavailable | Self::Unreachable { .. } => true,
            Self::Refused(Refusal::Held(_) | Refusal::WaitTimeout) => true,
            Self::Refused(refusal) => later(refusal.reason()),
            Self::Failed { reason, .. } => later(reason),
            _ => false,
        }
    }
}

/// The sentence of a refusal, with the holder if there is one.
fn shown(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Held(held) => held.to_string(),
        other => other.to_string(),
    }
}

/// The outcome at every address, for the end of the message.
fn outcomes(tried: &[Tried]) -> String {
    let each: Vec<_> = tried.iter().map(|it| format!("{} {}", it.address, it.outcome)).collect();
    if each.is_empty() { String::new() } else { format!(": {}", each.join(", ")) }
}

fn of(request: &Option<RequestId>) -> String {
    request.as_ref().map_or_else(String::new, |request| format!(" of request {request}"))
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

/// What a wire error means for the sender of the request.
pub(crate) enum Meaning {
    /// The request had no effect and may be sent again.
    Again {
        /// How long to wait before that, at least.
        after: Duration,
        /// The error if it is not sent again, where the refusal says why: an operator has to know of a quota.
        error: Option<Error>,
    },
    /// The request may have taken effect.
    Doubt,
    /// The request had no effect, and repeating it will not help.
    No(Error),
}

impl Meaning {
    pub(crate) fn of(error: v1::Error) -> Self {
        if error.effect() == v1::Effect::Unknown {
            return Self::Doubt;
        }
        // Of all reasons that allow a retry, these go away soon and without intervention.
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
        // A quota that is counted by time says when there is room again; others are full until their user frees some.
        let is_full_for_now = error.reason == "QUOTA" && error.retry_after_ms > 0;
        if is_full_for_now || PASSING.contains(&error.reason.as_str()) {
            let after = Duration::from_millis(error.retry_after_ms);
            let says_why = is_full_for_now || error.reason == "OVERLOADED";
            let v1::Error { reason, message, .. } = error;
            let error = says_why.then_some(Error::Failed { reason, message });
            return Self::Again { after, error };
        }
        Self::No(match refusal_from(&error) {
            Some(refusal) => Error::Refused(refusal),
            None => Error::Failed { reason: error.reason, message: error.message },
        })
    }
}

/// The error for an answer whose type does not match its request.
pub(crate) fn strange() -> Error {
    Error::Failed {
        reason: "STRANGE_ANSWER".to_owned(),
        message: "the member answered something else than was asked".to_owned(),
    }
}
