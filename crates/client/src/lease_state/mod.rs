//! Decides how long a lease is surely ours, and when the work under it must stop.
//!
//! Sans-IO: clock readings and answers go in; what to send, and until when the lease counts as held, come out. The
//! client drives it, and so do schedules of delays, stalls and suspends in the tests.
//!
//! The rule: time counts from the clock reading *before the first send* of the newest acknowledged renewal. The cluster
//! began its ttl at that moment or later. The client stops one window after that reading, and the window is shorter
//! than the ttl by at least what the clocks may differ, so the client stops first (T4). A loss is final: no later
//! answer revives it.

mod lease;
mod lost;
#[cfg(test)]
mod machine;
mod moment;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod schedules;
mod timing;
#[cfg(test)]
mod vectors;

pub(crate) use lease::{AckEffect, EndMessage, GrantLoss, LeaseState, PendingGrant};
pub use lost::Lost;
pub(crate) use moment::ClockReading;
pub use moment::Moment;
pub use timing::{LeaseTiming, LeaseTimingError};

use std::fmt;
use std::time::Duration;

/// Whether a lease, and what it holds, may still be relied on.
///
/// ```
/// # use tenure::Standing;
/// let standing = Standing::Doubtful;
/// assert_ne!(standing, Standing::Valid);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Standing {
    /// A renewal was acknowledged recently.
    Valid,
    /// The lease is still held, but renewals have not been acknowledged for longer than they should take.
    Doubtful,
    /// The lease is over, permanently.
    Lost(Cause),
}

/// Why a lease or a lock was lost.
///
/// ```
/// # use tenure::Cause;
/// assert_eq!(Cause::Forced.to_string(), "taken away by force");
/// assert_eq!(Cause::MaxHold.word(), "max_hold");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The cluster ended the lease because it was not renewed in time.
    Expired,
    /// Another client revoked the lease.
    Revoked,
    /// An operator or another client took the lock away.
    Forced,
    /// The lock was held for its maximum hold time.
    MaxHold,
    /// The holder did not report a larger number in the time that it promised with
    /// [`progress_within`](crate::LockAsk::progress_within).
    NoProgress,
    /// The cluster no longer has the lease or the grant, and this client does not know why.
    /// [`Guard::why_lost`](crate::Guard::why_lost) asks the cluster.
    Gone,
    /// No member acknowledged a renewal in time.
    Unreachable {
        /// The time since the newest acknowledged renewal was sent.
        silent: Duration,
    },
    /// The members refused the client's credentials, so no renewal was acknowledged in time.
    CredentialsRefused {
        /// The time since the newest acknowledged renewal was sent.
        silent: Duration,
    },
    /// This process, or its runtime, did not run in time.
    Stalled {
        /// How late the process was.
        late: Duration,
    },
    /// The machine was suspended.
    Suspended {
        /// How long the machine was suspended.
        slept: Duration,
    },
    /// The holder released the lock.
    Released,
}

impl Cause {
    /// Returns the stable word for programs and logs.
    ///
    /// ```
    /// assert_eq!(tenure::Cause::Expired.word(), "expired");
    /// ```
    pub fn word(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Forced => "forced",
            Self::MaxHold => "max_hold",
            Self::NoProgress => "no_progress",
            Self::Gone => "gone",
            Self::Unreachable { .. } => "cluster_unreachable",
            Self::CredentialsRefused { .. } => "credentials_refused",
            Self::Stalled { .. } => "local_stall",
            Self::Suspended { .. } => "suspended",
            Self::Released => "released",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("the lease was not renewed in time"),
            Self::Revoked => f.write_str("the lease was revoked by another caller"),
            Self::Forced => f.write_str("taken away by force"),
            Self::MaxHold => f.write_str("held as long as max_hold allows"),
            Self::NoProgress => f.write_str("no progress in the promised time"),
            Self::Gone => f.write_str("the cluster does not have it any more"),
            Self::Unreachable { silent } => {
                write!(f, "cluster unreachable for {:.1}s", silent.as_secs_f64())
            }
            Self::CredentialsRefused { silent } => {
                write!(
                    f,
                    "the credentials are refused; not renewed for {:.1}s",
                    silent.as_secs_f64()
                )
            }
            Self::Stalled { late } => {
                write!(f, "this process did not run for {:.1}s", late.as_secs_f64())
            }
            Self::Suspended { slept } => {
                write!(f, "this machine slept for {:.1}s", slept.as_secs_f64())
            }
            Self::Released => f.write_str("given back by its holder"),
        }
    }
}
