//! Builds the JSON responses to requests that the store or the proxy does not serve.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use tenure_fence::http::{FENCING_FLOOR, Unproven};
use tenure_fence::ticket::Forged;
use tenure_fence::{Refused, Token};

use crate::reason::{Fence, Row};

pub use tenure_fence::http::TENURE_REASON as REASON;

/// The header that tells why a ticket was refused, with one word for each kind of forgery.
pub const TICKET: HeaderName = HeaderName::from_static("tenure-ticket");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NEVER_KEPT: HeaderValue = HeaderValue::from_static("no-store");

/// A response other than success.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ErrorAnswer {
    pub(crate) row: &'static Row,
    pub(crate) message: String,
    /// The smallest token that would have been accepted.
    pub(crate) floor: Option<u64>,
    /// The length of the value, if the value was refused for its length.
    pub(crate) bytes: Option<u64>,
    /// What is wrong with the ticket, if the ticket was refused.
    pub(crate) ticket: Option<&'static str>,
}

/// The reason of a response, attached to it for the metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerReason(pub(crate) &'static str);

#[derive(Serialize)]
struct Whole {
    error: ErrorFields,
}

#[derive(Serialize)]
struct ErrorFields {
    reason: &'static str,
    message: String,
    effect: &'static str,
    next: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    floor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<&'static str>,
}

impl ErrorAnswer {
    pub(crate) fn new(reason: impl Into<&'static Row>, message: impl Into<String>) -> Self {
        Self { row: reason.into(), message: message.into(), floor: None, bytes: None, ticket: None }
    }

    pub(crate) fn unproven(unproven: &Unproven) -> Self {
        let reason = match unproven {
            Unproven::Forged(_) => Fence::ForgedToken,
            _ => Fence::NotAToken,
        };
        Self::new(reason, unproven.to_string())
    }

    pub(crate) fn forged(forged: &Forged) -> Self {
        let message = format!("the token is not proven: {forged}");
        Self { ticket: Some(forged.reason()), ..Self::new(Fence::ForgedToken, message) }
    }

    /// The status of the reason's row.
    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.row.status).expect("the table has statuses")
    }

    /// The body, in the form that the table of errors describes.
    fn body(&self) -> Body {
        let Self { row, message, floor, bytes, ticket } = self;
        let error = ErrorFields {
            reason: row.reason,
            message: message.clone(),
            effect: row.effect.word(),
            next: row.advice,
            floor: floor.map(|floor| floor.to_string()),
            bytes: *bytes,
            ticket: *ticket,
        };
        Body::from(serde_json::to_vec(&Whole { error }).expect("texts and numbers are always JSON"))
    }

    /// Builds the same response with another status and body.
    pub(crate) fn with(&self, status: StatusCode, body: Body) -> Response {
        let mut response = json(status, body);
        let headers = response.headers_mut();
        headers.insert(REASON, HeaderValue::from_static(self.row.reason));
        if let Some(floor) = self.floor {
            headers.insert(FENCING_FLOOR, HeaderValue::from(floor));
        }
        if let Some(ticket) = self.ticket {
            headers.insert(TICKET, HeaderValue::from_static(ticket));
        }
        if self.status() == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response.extensions_mut().insert(AnswerReason(self.row.reason));
        response
    }
}

impl From<Refused> for ErrorAnswer {
    fn from(refused: Refused) -> Self {
        Self { floor: refused.floor(), ..Self::new(refused.reason(), refused.to_string()) }
    }
}

impl IntoResponse for ErrorAnswer {
    fn into_response(self) -> Response {
        self.with(self.status(), self.body())
    }
}

/// Builds a response in JSON.
pub(crate) fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response.headers_mut().insert(CACHE_CONTROL, NEVER_KEPT);
    response
}

/// Writes a token as text, and no token as `0`. The HTTP layer of the fence writes floors in the same way.
pub(crate) fn shown(token: Option<Token>) -> String {
    token.map_or("0".to_owned(), |token| token.get().to_string())
}
