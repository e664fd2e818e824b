//! Turns errors, losses and durations into the words of the driver protocol.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::{Error, Lost, Refusal};

/// An error as the driver protocol has it.
pub(super) fn failure(error: &Error) -> Value {
    let message = error.to_string();
    match error {
        Error::Refused(refusal) => {
            json!({ "kind": "refused", "reason": refusal.reason(), "effect": "none", "message": message })
        }
        Error::Failed { reason, .. } => {
            json!({ "kind": "refused", "reason": reason, "effect": "none", "message": message })
        }
        Error::Lost(lost) => loss(lost),
        Error::Fence(_) => json!({ "kind": "fence", "effect": "none", "message": message }),
        Error::Unavailable | Error::Unreachable { .. } => {
            json!({ "kind": "unavailable", "effect": "none", "message": message })
        }
        Error::LeaseTiming(_) | Error::Setup(_) => {
            json!({ "kind": "invalid", "effect": "none", "message": message })
        }
        Error::Closed => json!({ "kind": "closed", "effect": "none", "message": message }),
        Error::Compacted { .. } => {
            json!({ "kind": "refused", "reason": "COMPACTED", "effect": "none", "message": message })
        }
        _ => json!({ "kind": "unknown", "effect": "unknown", "message": message }),
    }
}

/// An error of a call that had a limit of its own: the end of that time is reported as such.
pub(super) fn failure_within(error: &Error, limited: bool) -> Value {
    let effect = match error {
        Error::Refused(Refusal::WaitTimeout) | Error::Unavailable | Error::Unreachable { .. } => {
            "none"
        }
        Error::Unknown { .. } => "unknown",
        _ => return failure(error),
    };
    if !limited {
        return failure(error);
    }
    json!({ "kind": "timeout", "effect": effect, "message": error.to_string() })
}

/// A loss as an error.
pub(super) fn loss(lost: &Lost) -> Value {
    let mut fields = cause(lost);
    fields["kind"] = json!("lost");
    fields["message"] = json!(lost.to_string());
    fields
}

/// The cause of a loss, and who caused it.
pub(super) fn cause(lost: &Lost) -> Value {
    let mut fields = json!({ "cause": lost.word() });
    if let Some(by) = lost.by() {
        fields["by"] = json!(by);
    }
    if let Some(reason) = lost.reason() {
        fields["reason"] = json!(reason);
    }
    fields
}

/// A duration in milliseconds.
pub(super) fn time(command: &Value, field: &str) -> Option<Duration> {
    command[field].as_u64().map(Duration::from_millis)
}
