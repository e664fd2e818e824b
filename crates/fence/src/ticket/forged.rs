//! Why does a ticket prove nothing?

use tenure_types::Epoch;

use super::TICKET_BYTES_MAX;
use crate::claim::Incarnation;
use crate::reason::TicketReason;

/// Why a ticket was refused. Each case has a reason of its own.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Forged {
    /// It is longer than any ticket.
    #[error("a ticket has at most {TICKET_BYTES_MAX} bytes")]
    TooLong,
    /// It is no ticket at all.
    #[error("this is no ticket: {0}")]
    NotATicket(&'static str),
    /// It says to be signed in another way, or not at all. Only EdDSA is taken, whatever a ticket asks for.
    #[error("a ticket is signed with EdDSA, not with `{said}`")]
    Algorithm {
        /// What it says.
        said: String,
    },
    /// The signature is missing.
    #[error("the signature was taken off")]
    Unsigned,
    /// Nobody with this key is known.
    #[error("no member signs with key `{key}`")]
    UnknownKey {
        /// Which.
        key: String,
    },
    /// The key was taken back: rotated, or its member removed.
    #[error("key `{key}` was retired")]
    RetiredKey {
        /// Which.
        key: String,
    },
    /// The signature is not the key's, or something was changed since.
    #[error("the signature is not good for what it stands under")]
    BadSignature,
    /// Another cluster gave it.
    #[error("cluster {said} gave it, not {known}")]
    OtherCluster {
        /// Whose it is.
        said: String,
        /// Whose keys are known here.
        known: String,
    },
    /// The cluster was restored since.
    #[error("it is of epoch {}, and the cluster was restored at epoch {}", .said.get(), .known.get())]
    OldEpoch {
        /// When it was given.
        said: Epoch,
        /// Which epoch the keys are of.
        known: Epoch,
    },
    /// The cluster was restored, and the keys here are those of before.
    #[error("it is of epoch {}, and the keys here are of epoch {}", .said.get(), .known.get())]
    NewerEpoch {
        /// When it was given.
        said: Epoch,
        /// Which epoch the keys are of.
        known: Epoch,
    },
    /// Two restores of one backup are at work, and this is the other one's.
    #[error("incarnation {said} gave it, not {known}")]
    OtherIncarnation {
        /// Whose it is.
        said: Incarnation,
        /// Whose keys are known here.
        known: Incarnation,
    },
    /// It is for another lock.
    #[error("it is for lock `{said}`, not `{wanted}`")]
    OtherLock {
        /// What it is for.
        said: String,
        /// What protects the resource.
        wanted: String,
    },
    /// It is for another slot of the lock, or for none, or for one where there are none.
    #[error("it is for {}, not {}", slot(*.said), slot(*.wanted))]
    OtherSlot {
        /// What it is for.
        said: Option<u32>,
        /// What protects the resource.
        wanted: Option<u32>,
    },
    /// The lock is held shared, and the resource is for whoever is alone.
    #[error("the lock is held shared, not exclusively")]
    Shared,
    /// Somebody else holds the lock.
    #[error("`{said}` holds the lock, not `{wanted}`")]
    OtherHolder {
        /// Who.
        said: String,
        /// Who came.
        wanted: String,
    },
}

impl Forged {
    /// The reason as one word, for programs.
    ///
    /// ```
    /// assert_eq!(tenure_fence::ticket::Forged::Unsigned.reason(), "TICKET_UNSIGNED");
    /// ```
    pub fn reason(&self) -> &'static str {
        self.why().row().reason
    }

    /// The reason, with its row of the table.
    ///
    /// ```
    /// use tenure_fence::{reason::TicketReason, ticket::Forged};
    ///
    /// assert_eq!(Forged::Shared.why(), TicketReason::Shared);
    /// ```
    pub fn why(&self) -> TicketReason {
        match self {
            Self::TooLong => TicketReason::TooLong,
            Self::NotATicket(_) => TicketReason::NotATicket,
            Self::Algorithm { .. } => TicketReason::Algorithm,
            Self::Unsigned => TicketReason::Unsigned,
            Self::UnknownKey { .. } => TicketReason::KeyUnknown,
            Self::RetiredKey { .. } => TicketReason::KeyRetired,
            Self::BadSignature => TicketReason::Signature,
            Self::OtherCluster { .. } => TicketReason::OtherCluster,
            Self::OldEpoch { .. } => TicketReason::OldEpoch,
            Self::NewerEpoch { .. } => TicketReason::NewerEpoch,
            Self::OtherIncarnation { .. } => TicketReason::OtherIncarnation,
            Self::OtherLock { .. } => TicketReason::OtherLock,
            Self::OtherSlot { .. } => TicketReason::OtherSlot,
            Self::Shared => TicketReason::Shared,
            Self::OtherHolder { .. } => TicketReason::OtherHolder,
        }
    }

    /// Whether newer keys may change the answer: read `/.well-known/jwks.json` again, but not for every such ticket.
    ///
    /// ```
    /// use tenure_fence::ticket::Forged;
    ///
    /// assert!(Forged::UnknownKey { key: "new".into() }.wants_newer_keys());
    /// assert!(!Forged::BadSignature.wants_newer_keys());
    /// ```
    pub fn wants_newer_keys(&self) -> bool {
        matches!(self, Self::UnknownKey { .. } | Self::NewerEpoch { .. })
    }
}

fn slot(slot: Option<u32>) -> String {
    slot.map_or("the lock as a whole".to_owned(), |slot| format!("slot {slot}"))
}
