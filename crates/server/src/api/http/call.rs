//! Parses HTTP requests: names in paths, queries, headers and bodies.
//!
//! Nothing is guessed: a parameter that is unknown, repeated or of the wrong type is refused, and the error names it.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Query, Request};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use tenure_core::request::{LeaseRef, RequestId};
use tenure_types::{LeaseId, Token};
use tenure_wire::Failure;
use tenure_wire::json::{Decimal, strict};

use super::answer::HttpError;
use super::duration::DurationParameter;
use crate::api::{MESSAGE_BYTES_MAX, decode};
use crate::dispatch::WITHIN;

/// The longest JSON body: metadata of the greatest length, escaped, and every lock of an acquire.
const JSON_BYTES_MAX: usize = 512 * 1024;
/// The time from the end of the headers to the end of the body.
const BODY: Duration = Duration::from_secs(10);
/// A caller may wait for an outcome this long.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(300);

/// The header by which a repeated request is recognised.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// One request.
pub(super) struct HttpCall {
    pub(super) parts: Parts,
    body: Body,
}

impl<S: Send + Sync> FromRequest<S> for HttpCall {
    type Rejection = std::convert::Infallible;

    async fn from_request(request: Request, _: &S) -> Result<Self, Self::Rejection> {
        Ok(request.into())
    }
}

impl From<Request> for HttpCall {
    fn from(request: Request) -> Self {
        let (parts, body) = request.into_parts();
        Self { parts, body }
    }
}

impl HttpCall {
    /// The name that follows `before` in the path.
    pub(super) fn name(&self, before: &str) -> Result<String, HttpError> {
        decoded(self.parts.uri.path().strip_prefix(before).unwrap_or_default())
    }

    /// The lease whose id follows `before` in the path and is followed by `after`.
    pub(super) fn lease(&self, before: &str, after: &str) -> Result<LeaseId, HttpError> {
        let name = self.name(before)?;
        let id = Decimal::parse(name.strip_suffix(after).unwrap_or(&name));
        Ok(lease(id.ok_or_else(|| decode::invalid("lease", "is no lease id"))?)?)
    }

    /// Parses the query.
    pub(super) fn query<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        decoded(self.parts.uri.query().unwrap_or_default())?;
        match Query::<T>::try_from_uri(&self.parts.uri) {
            Ok(Query(query)) => Ok(query),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let what = format!("query: {}", cause.unwrap_or_else(|| error.to_string()));
                Err(Failure::Malformed { what }.into())
            }
        }
    }

    /// The idempotency key, by which the machine recognises a repeated request.
    pub(super) fn id(&self) -> Result<Option<String>, HttpError> {
        let mut keys = self.parts.headers.get_all(IDEMPOTENCY_KEY).into_iter();
        let Some(key) = keys.next() else { return Ok(None) };
        match (key.to_str(), keys.next()) {
            (Ok(key), None) if !key.is_empty() => Ok(Some(key.to_owned())),
            _ => Err(decode::invalid("Idempotency-Key", "must be one word of ASCII").into()),
        }
    }

    /// Reads the body as JSON.
    pub(super) async fn json<T: DeserializeOwned>(self) -> Result<T, HttpError> {
        if !self.is_json() {
            return Err(Failure::UnsupportedMedia { expected: "application/json" }.into());
        }
        let bytes = self.read(JSON_BYTES_MAX).await?;
        strict::from_slice(&bytes)
            .map_err(|error| Failure::Malformed { what: format!("body: {error}") }.into())
    }

    /// Reads the body unchanged.
    pub(super) async fn bytes(self) -> Result<Bytes, HttpError> {
        self.read(MESSAGE_BYTES_MAX).await
    }

    /// Checks that there is no body.
    pub(super) async fn nothing(self) -> Result<(), HttpError> {
        if self.read(JSON_BYTES_MAX).await?.is_empty() {
            return Ok(());
        }
        Err(Failure::Malformed { what: "body: this takes none".to_owned() }.into())
    }

    fn is_json(&self) -> bool {
        let mut kinds = self.parts.headers.get_all(CONTENT_TYPE).into_iter();
        let kind = kinds.next().and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let word = kind.split(';').next().unwrap_or_default().trim();
        word.eq_ignore_ascii_case("application/json") && kinds.next().is_none()
    }

    async fn read(self, bytes_max: usize) -> Result<Bytes, HttpError> {
        let mut codings = self.parts.headers.get_all(CONTENT_ENCODING).into_iter();
        if !codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(Failure::UnsupportedMedia { expected: "plain" }.into());
        }
        let body = Limited::new(self.body, bytes_max).collect();
        match tokio::time::timeout(BODY, body).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                Err(Failure::TooLarge { bound: bytes_max as u64 }.into())
            }
            Ok(Err(error)) => Err(Failure::Malformed { what: format!("body: {error}") }.into()),
            Err(_) => Err(Failure::TooSlow.into()),
        }
    }
}

/// The id by which a repeated request is recognised.
pub(super) fn request_id(key: Option<&String>) -> RequestId<'_> {
    key.map_or(RequestId::None, |key| RequestId::Key(key))
}

/// How long a caller waits for an outcome.
pub(super) fn within(timeout: Option<DurationParameter>) -> Result<Duration, HttpError> {
    match timeout {
        None => Ok(WITHIN),
        Some(DurationParameter(time)) if time >= TIMEOUT_MIN && time <= TIMEOUT_MAX => Ok(time),
        Some(_) => Err(decode::invalid("timeout", "must be from 1ms to 5m").into()),
    }
}

pub(super) fn lease(Decimal(number): Decimal) -> Result<LeaseId, Failure> {
    LeaseId::new(number)
        .filter(|_| i64::try_from(number).is_ok())
        .ok_or_else(|| decode::invalid("lease", "is no lease id"))
}

pub(super) fn lease_ref(number: Decimal) -> Result<LeaseRef, Failure> {
    lease(number).map(LeaseRef::Id)
}

pub(super) fn token(Decimal(number): Decimal) -> Result<Token, Failure> {
    decode::token(number)
}

/// Decodes the `%XX` of a path or query. Refuses what is malformed; the library would keep it as it is.
fn decoded(text: &str) -> Result<String, HttpError> {
    let malformed = |what: &str| Failure::Malformed { what: format!("path or query: {what}") };
    let mut escapes = text.split('%').skip(1).map(str::as_bytes);
    if !escapes.all(|it| it.len() >= 2 && it[..2].iter().all(u8::is_ascii_hexdigit)) {
        return Err(malformed("a `%` without two hexadecimal digits").into());
    }
    let text = percent_decode_str(text).decode_utf8().map_err(|_| malformed("no UTF-8"))?;
    Ok(text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_decoded_strictly() {
        assert_eq!(decoded("a/b%20c%C3%BC%2f").unwrap(), "a/b cü/");
        assert_eq!(decoded("%2541").unwrap(), "%41");
        for bad in ["%", "%2", "%zz", "a%", "%ff", "%+1", "%%41", "%ü"] {
            assert!(decoded(bad).is_err(), "{bad}");
        }
    }
}
