//! Says why a command, read or admin request has no outcome, and whether it may have had an effect.
//!
//! There are three kinds of "no" end to end. A [`Refusal`](tenure_types::Refusal) is an outcome: the machine
//! decided. A [`NodeFailure`] comes from the member that was asked. A [`Stop`](tenure_raft::Stop) ends the member.

use tenure_raft::{MemberId, RejectReason};
use tenure_types::Verb;

/// Why there is no outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NodeFailure {
    /// No member leads, or no quorum confirmed the leader, while the caller waited.
    #[error("no leader was found in time")]
    NoLeader,
    /// Another member leads, and the request did not reach it in time.
    #[error("another member leads")]
    NotLeader {
        /// The leader, as far as this member knows.
        leader: MemberId,
    },
    /// The leader did not accept the request.
    #[error("{0}")]
    Rejected(RejectReason),
    /// The caller's deadline passed before the command was proposed.
    #[error("the deadline passed before anything was done")]
    Expired,
    /// The member's budget for requests in flight is used up.
    #[error("too many requests are in flight")]
    Overloaded,
    /// The log does not take a command of this size.
    #[error("a command has at most {bound} bytes")]
    TooLarge {
        /// The largest size.
        bound: u64,
    },
    /// The caller may not do this.
    #[error("not permitted")]
    Forbidden {
        /// The verb that it lacks. A member of an older version does not say.
        verb: Option<Verb>,
    },
    /// The caller may not use this priority.
    #[error("a priority of at most {most} is permitted, not {asked}")]
    PriorityForbidden {
        /// The priority of the request.
        asked: u8,
        /// The greatest one that the caller may use for all locks of the request.
        most: u8,
    },
    /// The member is stopping, or has stopped.
    #[error("the member is stopping")]
    Stopping,
    /// The request was passed on and not answered. It may have had an effect, or may have one later.
    #[error("no answer, it may have happened")]
    Unknown,
}

/// What a caller may conclude from a [`NodeFailure`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The request had no effect and never will.
    None,
    /// The request may have had an effect.
    Unknown,
}

impl NodeFailure {
    /// The conclusion that the caller may draw.
    pub fn effect(self) -> Effect {
        match self {
            NodeFailure::Unknown => Effect::Unknown,
            NodeFailure::NoLeader
            | NodeFailure::NotLeader { .. }
            | NodeFailure::Rejected(_)
            | NodeFailure::Expired
            | NodeFailure::Overloaded
            | NodeFailure::TooLarge { .. }
            | NodeFailure::Forbidden { .. }
            | NodeFailure::PriorityForbidden { .. }
            | NodeFailure::Stopping => Effect::None,
        }
    }

    /// Whether the request certainly had no effect, and only because this member did not lead, so that another attempt
    /// may succeed.
    pub(crate) fn is_for_want_of_a_leader(self) -> bool {
        match self {
            NodeFailure::NoLeader | NodeFailure::NotLeader { .. } => true,
            NodeFailure::Rejected(reason) => match reason {
                RejectReason::NotLeader { .. }
                | RejectReason::Transferring
                | RejectReason::Replaced => true,
                RejectReason::Busy
                | RejectReason::Expired
                | RejectReason::DiskFull
                | RejectReason::ChangeUnderWay
                | RejectReason::Impossible
                | RejectReason::Retired
                | RejectReason::NotCaughtUp { .. }
                | RejectReason::LevelNotKnown { .. } => false,
            },
            NodeFailure::Expired
            | NodeFailure::Overloaded
            | NodeFailure::TooLarge { .. }
            | NodeFailure::Forbidden { .. }
            | NodeFailure::PriorityForbidden { .. }
            | NodeFailure::Stopping
            | NodeFailure::Unknown => false,
        }
    }
}
