//! Which word, status and effect belongs to each thing that is refused or goes wrong here?
//!
//! Words that the cluster's own table of errors has too mean the same there, to the status: a test compares them.

use http::StatusCode;

/// What may be concluded from an answer that is not success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It did not happen and will not.
    None,
    /// It may have happened, or may still.
    Unknown,
}

impl Effect {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Unknown => "unknown",
        }
    }
}

/// One reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The stable word for programs.
    pub reason: &'static str,
    /// The HTTP status.
    pub status: StatusCode,
    /// Whether it may have happened.
    pub effect: Effect,
    /// What to do next.
    pub advice: &'static str,
}

macro_rules! rows {
    ($($name:ident $status:ident $effect:ident $advice:literal;)+) => {
        $(pub(crate) const $name: Row = Row {
            reason: stringify!($name),
            status: StatusCode::$status,
            effect: Effect::$effect,
            advice: $advice,
        };)+

        /// Every reason there is.
        pub const TABLE: &[Row] = &[$($name),+];
    };
}

rows! {
    TOKEN_REQUIRED PRECONDITION_REQUIRED None "send the token of the lock in the header Fencing-Token";
    NOT_A_TOKEN BAD_REQUEST None "send the token as it was granted, in decimal digits";
    STALE_TOKEN PRECONDITION_FAILED None "stop the work; the lock is not yours";
    TOKEN_USED PRECONDITION_FAILED None "nothing: this token has written, or a later one has";
    FORGED_TOKEN FORBIDDEN None "ask the cluster for a ticket of this lock";
    OTHER_INCARNATION FORBIDDEN None "look which of two restores of one backup is the right one";
    OTHER_LOCK CONFLICT None "write under the lock that the key belongs to";
    COMPARE_FAILED PRECONDITION_FAILED None "read the key again";
    KEY_NOT_FOUND NOT_FOUND None "nothing: it is not there";
    INVALID_NAME BAD_REQUEST None "use 1 to 512 bytes of UTF-8 without control characters";
    INVALID_FIELD BAD_REQUEST None "correct the field that is named";
    MALFORMED BAD_REQUEST None "correct the body";
    VALUE_TOO_LONG BAD_REQUEST None "use another key, or split the value";
    TOO_LARGE PAYLOAD_TOO_LARGE None "send less at once";
    TOO_SLOW REQUEST_TIMEOUT None "send it faster";
    NO_SPACE INSUFFICIENT_STORAGE None "delete keys, or start the store with a larger --bytes-max";
    OVERLOADED SERVICE_UNAVAILABLE None "send it again after the time given";
    SHUTTING_DOWN SERVICE_UNAVAILABLE None "send it again when the store is back";
    HOST_NOT_ALLOWED FORBIDDEN None "use the address the store listens on";
    UNKNOWN_OPERATION NOT_FOUND None "look at docs/guides/store.md";
    UNKNOWN_VERB METHOD_NOT_ALLOWED None "look at docs/guides/store.md";
    INTERNAL INTERNAL_SERVER_ERROR Unknown "look at the log, then read before you write again";
    UPSTREAM_UNREACHABLE BAD_GATEWAY None "start the service behind the proxy, then send it again";
    UPSTREAM_BROKE_OFF BAD_GATEWAY Unknown "look at the service before you send it again";
    UPSTREAM_TIMEOUT GATEWAY_TIMEOUT Unknown "look at the service before you send it again";
}
