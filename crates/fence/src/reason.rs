//! Defines the reason code, HTTP status and advice of each refusal of a fence.
//!
//! These are the tables of this package. Everything that answers over HTTP takes its reason codes from an enum made
//! here, so every code in use has a row in a table. `docs/reference/errors.md` is generated from them.

/// One row of the table: a reason.
///
/// ```
/// use tenure_fence::reason::Reason;
///
/// let row = Reason::StaleToken.row();
/// assert_eq!((row.reason, row.status), ("STALE_TOKEN", 412));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The stable reason code, for programs.
    pub reason: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What the caller may conclude.
    pub effect: Effect,
    /// What the reason means.
    pub meaning: &'static str,
    /// What to do next.
    pub advice: &'static str,
}

/// What the caller may conclude from a response that is not success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// The request had no effect and will have none.
    None,
    /// The request may have taken effect, or still may.
    Unknown,
}

impl Effect {
    /// Returns the stable word for it.
    ///
    /// ```
    /// assert_eq!(tenure_fence::reason::Effect::None.word(), "none");
    /// ```
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Unknown => "unknown",
        }
    }
}

/// Defines an enum of reasons and its table. For the packages of Tenure that answer over HTTP.
#[doc(hidden)]
#[macro_export]
macro_rules! reasons {
    ($(#[$about:meta])* $name:ident
     $($variant:ident $word:literal $status:literal $effect:ident, $meaning:literal, $advice:literal;)+) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = concat!("`", $word, "`: ", $meaning, ".")] $variant),+
        }

        impl $name {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the reason's row of the table.
            pub const fn row(self) -> &'static $crate::reason::Row {
                match self {
                    $(Self::$variant => &$crate::reason::Row {
                        reason: $word,
                        status: $status,
                        effect: $crate::reason::Effect::$effect,
                        meaning: $meaning,
                        advice: $advice,
                    }),+
                }
            }
        }

        impl From<$name> for &'static $crate::reason::Row {
            fn from(reason: $name) -> Self {
                reason.row()
            }
        }
    };
}

reasons! {
    /// Why a request is not admitted: used by the HTTP layer, the proxy and the store.
    Reason
    TokenRequired "TOKEN_REQUIRED" 428 None,
        "there is no token, and what is guarded needs one",
        "send the token of the lock in the header Fencing-Token";
    NotAToken "NOT_A_TOKEN" 400 None,
        "the value is not a token that a cluster issues, or there are two",
        "send the token as it was granted, in decimal digits";
    StaleToken "STALE_TOKEN" 412 None,
        "a later holder has been here; the highest token seen is in the body and in the header Fencing-Floor",
        "stop the work; the lock is not yours";
    TokenUsed "TOKEN_USED" 412 None,
        "a token that may write once has written, or a later one has",
        "nothing: this token has written, or a later one has";
    ForgedToken "FORGED_TOKEN" 403 None,
        "the token is not proven; where tickets are demanded, a reason of theirs says why",
        "ask the cluster for a ticket of this lock";
    OtherIncarnation "OTHER_INCARNATION" 403 None,
        "the epoch was seen under another incarnation: two restores of one backup are at work",
        "look which of two restores of one backup is the right one";
    FenceBusy "FENCE_BUSY" 503 None,
        "requests with lower tokens have not ended in time; the highest token seen has risen, nothing else was done",
        "send it again; if it stays so, look at the requests that do not end";
    FenceFailed "FENCE_FAILED" 503 None,
        "the highest token seen cannot be stored, so no request is let through",
        "look at the disk of the fence, then send it again";
}

reasons! {
    /// Why a ticket proves nothing. The response is `FORGED_TOKEN`, with this reason in the message, and at the store
    /// also in the header `Tenure-Ticket`.
    TicketReason
    NotATicket "NOT_A_TICKET" 403 None,
        "it is something else; a bare number is no ticket either",
        "ask the cluster for a ticket of this lock";
    TooLong "TICKET_TOO_LONG" 403 None,
        "it is longer than any ticket",
        "send the ticket as it was signed";
    Algorithm "TICKET_ALGORITHM" 403 None,
        "it asks to be verified in another way than EdDSA",
        "send the ticket as it was signed";
    Unsigned "TICKET_UNSIGNED" 403 None,
        "the ticket has no signature",
        "send the ticket as it was signed";
    Signature "TICKET_SIGNATURE" 403 None,
        "something was changed, or another key signed",
        "send the ticket as it was signed";
    KeyUnknown "TICKET_KEY_UNKNOWN" 403 None,
        "no member is known to sign with this key",
        "look whether --keys names this cluster, and a member that is reached";
    KeyRetired "TICKET_KEY_RETIRED" 403 None,
        "the key was rotated away, or its member removed",
        "ask for a new ticket";
    OtherCluster "TICKET_OTHER_CLUSTER" 403 None,
        "another cluster gave it",
        "ask the cluster whose keys are known here";
    OldEpoch "TICKET_OLD_EPOCH" 403 None,
        "the cluster was restored from a backup since",
        "stop the work, forget the lease and begin anew";
    NewerEpoch "TICKET_NEWER_EPOCH" 403 None,
        "the cluster was restored from a backup, and the keys here are those of before",
        "look whether --keys names a member of the restored cluster";
    OtherIncarnation "TICKET_OTHER_INCARNATION" 403 None,
        "two restores of one backup are at work, and this is the other one's",
        "look which of two restores of one backup is the right one";
    OtherLock "TICKET_OTHER_LOCK" 403 None,
        "it is for another lock",
        "send the ticket of the lock that guards this";
    OtherSlot "TICKET_OTHER_SLOT" 403 None,
        "it is for another slot of the lock, or for none, or for one where there are none",
        "send the ticket of the slot that guards this";
    Shared "TICKET_SHARED" 403 None,
        "the lock is held shared, and this needs an exclusive holder",
        "take the lock exclusively";
    OtherHolder "TICKET_OTHER_HOLDER" 403 None,
        "another client holds the lock than the one that is named",
        "name the client that took the lock";
    OtherPrincipal "TICKET_OTHER_PRINCIPAL" 403 None,
        "the lease belongs to another principal than the one required here, or to none",
        "take the lock as the principal that may write here";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_word_stands_once() {
        let rows = Reason::ALL.iter().map(|it| it.row());
        let rows: Vec<_> = rows.chain(TicketReason::ALL.iter().map(|it| it.row())).collect();
        let words: BTreeSet<_> = rows.iter().map(|row| row.reason).collect();
        assert_eq!(words.len(), rows.len());
        assert!(rows.iter().all(|row| (400..600).contains(&row.status)));
    }
}
