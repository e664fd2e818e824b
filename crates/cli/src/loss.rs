//! Tells of a loss in the one form that all commands share: what was lost, why and through whom, under which token it
//! was held, and for how long.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::{Cause, Guard, Lost};

use crate::duration::shown;
use crate::output;

/// What was held, and for how long: the line under the message.
pub(crate) fn held_words(guard: &Guard, held: Duration) -> String {
    let tokens: Vec<String> = guard.locks().map(|it| it.token.to_string()).collect();
    let noun = if tokens.len() == 1 { "token" } else { "tokens" };
    format!("for {}, under {noun} {}", shown(held), tokens.join(", "))
}

/// The cause of a loss in words, with the client that took the lock and its reason.
pub(crate) fn cause_words(lost: &Lost, ttl: Duration) -> String {
    let words = output::clean(&lost.to_string());
    match lost.cause() {
        Cause::Unreachable { .. } => format!("{words}, half of ttl {}", shown(ttl)),
        _ => words,
    }
}

/// The same as fields of an error message, whose `reason` is the reason code.
pub(crate) fn error_fields(guard: &Guard, held: Duration, lost: &Lost) -> Value {
    let mut fields = event_fields(guard, held, lost.word(), Some(lost));
    let because = fields.as_object_mut().and_then(|fields| fields.remove("reason"));
    fields["because"] = because.unwrap_or_default();
    fields
}

/// The loss for programs, as an event. `more` has the client that took the lock, and its reason.
pub(crate) fn event_fields(
    guard: &Guard,
    held: Duration,
    cause: &str,
    more: Option<&Lost>,
) -> Value {
    json!({
        "token": guard.token().to_string(),
        "cause": cause,
        "by": more.and_then(Lost::by),
        "reason": more.and_then(Lost::reason),
        "held_ms": u64::try_from(held.as_millis()).unwrap_or(u64::MAX),
    })
}
