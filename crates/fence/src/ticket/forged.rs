//! Defines why a ticket is refused.

use tenure_types::Epoch;

use super::TICKET_BYTES_MAX;
use crate::claim::Incarnation;
use crate::reason::TicketReason;

/// Why a ticket was refused. Each case has a reason of its own.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Forged {
    /// The text is longer than any ticket.
    #[error("a ticket has at most {TICKET_BYTES_MAX} bytes")]
    TooLong,
    /// The text is not a ticket.
    #[error("this is not a ticket: {0}")]
    NotATicket(&'static str),
    /// The ticket names another signature algorithm, or none. Only EdDSA is accepted, whatever a ticket asks for.
    #[error("a ticket is signed with EdDSA, not with `{said}`")]
    Algorithm {
        /// The algorithm that the ticket names.
        said: String,
    },
    /// The signature is missing.
    #[error("the ticket has no signature")]
    Unsigned,
    /// No known key has this id.
    #[error("the ticket is signed with key `{key}`, which is not in the key set")]
    UnknownKey {
        /// The id of the key.
        key: String,
    },
    /// The key was retired: rotated, or its member was removed.
    #[error("key `{key}` was retired")]
    RetiredKey {
        /// The id of the key.
        key: String,
    },
    /// The signature was not made with the key, or the ticket was changed since.
    #[error("the signature does not match the ticket")]
    BadSignature,
    /// Another cluster issued the ticket.
    #[error("the ticket was issued by cluster {said}, not {known}")]
    OtherCluster {
        /// The cluster that the ticket names.
        said: String,
        /// The cluster whose keys are known here.
        known: String,
    },
    /// The cluster was restored since the ticket was issued.
    #[error("the ticket is of epoch {}, and the cluster was restored to epoch {}", .said.get(), .known.get())]
    OldEpoch {
        /// The epoch of the ticket.
        said: Epoch,
        /// The epoch of the keys.
        known: Epoch,
    },
    /// The cluster was restored, and the keys here are from before the restore.
    #[error("the ticket is of epoch {}, and the keys known here are of epoch {}", .said.get(), .known.get())]
    NewerEpoch {
        /// The epoch of the ticket.
        said: Epoch,
        /// The epoch of the keys.
        known: Epoch,
    },
    /// Two restores of one backup are running, and the other one issued the ticket.
    #[error("the ticket was issued by incarnation {said}, not {known}")]
    OtherIncarnation {
        /// The incarnation of the ticket.
        said: Incarnation,
        /// The incarnation of the keys.
        known: Incarnation,
    },
    /// The ticket is for another lock.
    #[error("the ticket is for lock `{said}`, not `{wanted}`")]
    OtherLock {
        /// The lock that the ticket names.
        said: String,
        /// The lock that protects the resource.
        wanted: String,
    },
    /// The ticket is for another slot of the lock, lacks a slot, or has one where the resource has none.
    #[error("the ticket is for {}, not {}", slot(*.said), slot(*.wanted))]
    OtherSlot {
        /// The slot that the ticket names.
        said: Option<u32>,
        /// The slot that protects the resource.
        wanted: Option<u32>,
    },
    /// The lock is held shared, and the resource requires an exclusive holder.
    #[error("the lock is held shared, not exclusively")]
    Shared,
    /// Another client holds the lock.
    #[error("`{said}` holds the lock, not `{wanted}`")]
    OtherHolder {
        /// The holder that the ticket names.
        said: String,
        /// The client that presented the ticket.
        wanted: String,
    },
    /// The lease belongs to another principal, or the ticket names none.
    #[error("the lease belongs to {}, not to `{wanted}`", principal_or_none(.said.as_deref()))]
    OtherPrincipal {
        /// The principal that the ticket names.
        said: Option<String>,
        /// The principal that is required.
        wanted: String,
    },
}

fn principal_or_none(said: Option<&str>) -> String {
    said.map_or("no principal".to_owned(), |said| format!("`{said}`"))
}

impl Forged {
    /// Returns the stable reason code, for programs.
    ///
    /// ```
    /// assert_eq!(tenure_fence::ticket::Forged::Unsigned.reason(), "TICKET_UNSIGNED");
    /// ```
    pub fn reason(&self) -> &'static str {
        self.ticket_reason().row().reason
    }

    /// Returns the reason, which has a row in the table.
    ///
    /// ```
    /// use tenure_fence::{reason::TicketReason, ticket::Forged};
    ///
    /// assert_eq!(Forged::Shared.ticket_reason(), TicketReason::Shared);
    /// ```
    pub fn ticket_reason(&self) -> TicketReason {
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
            Self::OtherPrincipal { .. } => TicketReason::OtherPrincipal,
        }
    }

    /// Whether newer keys may change the answer. If so, read `/.well-known/jwks.json` again, but not for every such
    /// ticket.
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
