//! Builds HTTP responses and error responses.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use tenure_types::Refusal;
use tenure_wire::json::error::ErrorBody;
use tenure_wire::{Failure, v1};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Forbids caching: an old answer of a member is not an answer to the same query now.
const NEVER_KEPT: HeaderValue = HeaderValue::from_static("no-store");

/// The result of a handler.
pub(super) type HttpResult = Result<Response, HttpError>;

/// An error response.
#[derive(Debug)]
pub(super) struct HttpError(Box<v1::Error>);

/// The reason of a refusal, attached to the response for the metrics.
#[derive(Clone, Debug)]
pub(super) struct ReasonExtension(pub(super) String);

impl HttpError {
    /// The same error with other advice, if it has this reason.
    pub(super) fn next(mut self, reason: &str, next: &str) -> Self {
        if self.0.reason == reason {
            next.clone_into(&mut self.0.next);
        }
        self
    }
}

impl From<Failure> for HttpError {
    fn from(failure: Failure) -> Self {
        Self(Box::new((&failure).into()))
    }
}

impl From<&Refusal> for HttpError {
    fn from(refusal: &Refusal) -> Self {
        Self(Box::new(refusal.into()))
    }
}

impl From<v1::Error> for HttpError {
    fn from(error: v1::Error) -> Self {
        Self(Box::new(error))
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let reason = ReasonExtension(self.0.reason.clone());
        let retry_after_ms = self.0.retry_after_ms;
        let (status, body) = ErrorBody::new(*self.0);
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json_with(status, &body);
        if retry_after_ms > 0 {
            let seconds = HeaderValue::from(retry_after_ms.div_ceil(1_000));
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(reason);
        response
    }
}

/// A response with status 200.
pub(super) fn json(body: &impl Serialize) -> HttpResult {
    Ok(json_with(StatusCode::OK, body))
}

pub(super) fn json_with(status: StatusCode, body: &impl Serialize) -> Response {
    let Ok(bytes) = serde_json::to_vec(body) else {
        // The bodies are plain structs with text keys, whose encoding cannot fail.
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response.headers_mut().insert(CACHE_CONTROL, NEVER_KEPT);
    response
}
