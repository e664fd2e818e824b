//! Builds the HTTP responses of the fence.

use std::fmt::Write as _;

use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use crate::claim::{LockSlot, Mode};
use crate::reason::Reason;
use crate::rule::Floor;

use super::body::FencedBody;
use super::turnstile::Denied;
use super::verify::Unproven;

/// The header in which a request carries its token.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");

/// The header in which a refusal carries the floor: the smallest token that would have been accepted.
pub const FENCING_FLOOR: HeaderName = HeaderName::from_static("fencing-floor");

/// The header in which every refusal repeats its reason, for clients that do not read bodies.
pub const TENURE_REASON: HeaderName = HeaderName::from_static("tenure-reason");

/// A refusal before it has a body.
pub(super) struct RefusalDraft {
    reason: Reason,
    message: String,
    floor: Option<u64>,
}

impl RefusalDraft {
    pub(super) fn required() -> Self {
        let message = "a header Fencing-Token with the token of the lock is needed".to_owned();
        Self { reason: Reason::TokenRequired, message, floor: None }
    }

    pub(super) fn unproven(unproven: &Unproven) -> Self {
        let reason = match unproven {
            Unproven::Malformed => Reason::NotAToken,
            Unproven::Forged(_) => Reason::ForgedToken,
        };
        Self { reason, message: unproven.to_string(), floor: None }
    }

    pub(super) fn denied(denied: &Denied) -> Self {
        match denied {
            Denied::Refused(refused) => {
                let message = refused.to_string();
                Self { reason: refused.reason(), message, floor: refused.floor() }
            }
            Denied::Busy(_) => Self::unavailable(Reason::FenceBusy, denied),
            Denied::Keep(_) => Self::unavailable(Reason::FenceFailed, denied),
        }
    }

    fn unavailable(reason: Reason, denied: &Denied) -> Self {
        Self { reason, message: denied.to_string(), floor: None }
    }

    pub(super) fn response<B>(&self, at: LockSlot<'_>) -> Response<FencedBody<B>> {
        let row = self.reason.row();
        let mut text = format!(
            r#"{{"error":{{"reason":"{}","message":{},"effect":"{}","next":{},"lock":{}"#,
            row.reason,
            quoted(&self.message),
            row.effect.word(),
            quoted(row.advice),
            quoted(at.lock)
        );
        if let Some(slot) = at.slot {
            let _ = write!(text, r#","slot":{slot}"#);
        }
        if let Some(floor) = self.floor {
            let _ = write!(text, r#","floor":"{floor}""#);
        }
        text.push_str("}}");
        let status = StatusCode::from_u16(row.status).expect("the table has statuses");
        let mut response = json(status, text);
        response.headers_mut().insert(TENURE_REASON, HeaderValue::from_static(row.reason));
        if let Some(floor) = self.floor {
            response.headers_mut().insert(FENCING_FLOOR, HeaderValue::from(floor));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Builds the response to a query of the floor.
pub(super) fn floor<B>(at: LockSlot<'_>, floor: Floor) -> Response<FencedBody<B>> {
    let [x, s, u] = floor.numbers();
    let slot = at.slot.map_or("null".to_owned(), |slot| slot.to_string());
    let lock = quoted(at.lock);
    let text =
        format!(r#"{{"lock":{lock},"slot":{slot},"exclusive":"{x}","shared":"{s}","used":"{u}"}}"#);
    with_floor(json(StatusCode::OK, text), floor)
}

/// Builds the response to a raise of the floor.
pub(super) fn raised<B>(floor: Floor) -> Response<FencedBody<B>> {
    let mut response = Response::new(FencedBody::of_text(String::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    with_floor(response, floor)
}

fn with_floor<B>(mut response: Response<B>, floor: Floor) -> Response<B> {
    if let Some(floor) = floor.lowest(Mode::Exclusive) {
        response.headers_mut().insert(FENCING_FLOOR, HeaderValue::from(floor.get()));
    }
    response
}

fn json<B>(status: StatusCode, text: String) -> Response<FencedBody<B>> {
    let mut response = Response::new(FencedBody::of_text(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Quotes a text as a JSON string.
fn quoted(text: &str) -> String {
    let mut to = String::with_capacity(text.len() + 2);
    to.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => to.extend(['\\', char]),
            control if control.is_control() => {
                let _ = write!(to, "\\u{:04x}", u32::from(control));
            }
            other => to.push(other),
        }
    }
    to.push('"');
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted() {
        assert_eq!(quoted("a\"b\\c\n\u{7f}é"), "\"a\\\"b\\\\c\\u000a\\u007fé\"");
    }
}
