//! When is a lease surely still ours, and when must the work stop?
//!
//! Sans-IO: readings of the clock and what was heard go in; what to send, and until when the lease counts as
//! held, come out. The client drives it, and so do schedules of delays, stalls and suspends in the tests.
//!
//! The rule: time counts from the clock read *before the first send* of the newest renewal that was
//! acknowledged. The cluster began its ttl at that moment or later, so whoever stops a window after it, shorter than
//! the ttl by what clocks may differ, stops first (T4). A loss is final: no later answer revives it.

mod lease;
mod lost;
#[cfg(test)]
mod machine;
mod moment;
mod pace;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod schedules;

pub(crate) use lease::{Asking, Farewell, Heard, Life};
pub use lost::Lost;
pub use moment::Moment;
pub(crate) use moment::Reading;
pub use pace::{Pace, PaceError};

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
pub enum Standing {
    /// A renewal was acknowledged recently.
    Valid,
    /// Still held, but renewals have not been acknowledged for longer than they should.
    Doubtful,
    /// Over, for ever.
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
    /// Somebody else revoked the lease.
    Revoked,
    /// Somebody took the lock away.
    Forced,
    /// The lock was held as long as it may be.
    MaxHold,
    /// The cluster does not have it any more; how it went was not told.
    /// [`Guard::why_lost`](crate::Guard::why_lost) asks.
    Gone,
    /// No member acknowledged a renewal for so long.
    Unreachable {
        /// Since the newest acknowledged renewal was sent.
        silent: Duration,
    },
    /// This process, or its runtime, did not run for so long.
    Stalled {
        /// How late it was.
        late: Duration,
    },
    /// The machine slept.
    Suspended {
        /// For how long.
        slept: Duration,
    },
    /// The holder gave it back.
    Released,
}

impl Cause {
    /// The stable word for programs and logs.
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
            Self::Gone => "gone",
            Self::Unreachable { .. } => "cluster_unreachable",
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
            Self::Revoked => f.write_str("the lease was revoked by somebody else"),
            Self::Forced => f.write_str("taken away by force"),
            Self::MaxHold => f.write_str("held as long as it may be"),
            Self::Gone => f.write_str("the cluster does not have it any more"),
            Self::Unreachable { silent } => {
                write!(f, "cluster unreachable for {:.1}s", silent.as_secs_f64())
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
