//! Calls the states of a running store, for the command line.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Response, StatusCode, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::answer::REASON;
use crate::call::{self, CallError, OutgoingCall};
use crate::key_source::KeySourceTls;

/// How long one call may take.
const TIMEOUT: Duration = Duration::from_secs(180);
/// The longest answer: more than the longest state.
const BYTES_MAX: usize = 256 * 1024 * 1024;

/// The characters of a name that are escaped in a URL.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What authenticates a caller.
#[derive(Clone)]
pub enum StateCredentials {
    /// A key of the store's readers or writers.
    Key(String),
    /// User name and password as Terraform sends them.
    Basic {
        /// The user name.
        user: String,
        /// The password.
        password: String,
    },
}

impl std::fmt::Debug for StateCredentials {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Neither a key nor a password belongs into a message.
        to.write_str(match self {
            Self::Key(_) => "Key",
            Self::Basic { .. } => "Basic",
        })
    }
}

/// An answer of the store.
#[derive(Clone, Debug)]
pub struct StateReply {
    /// The status of HTTP.
    pub status: u16,
    /// The reason code; empty if the call was successful.
    pub reason: String,
    /// The body.
    pub body: Bytes,
}

impl StateReply {
    /// Whether the call was successful.
    pub fn is_success(&self) -> bool {
        StatusCode::from_u16(self.status).is_ok_and(|status| status.is_success())
    }
}

/// Why there is no answer of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateUnanswered {
    /// A sentence about it.
    pub why: String,
    /// Whether the request was sent, so that the store may have carried it out.
    pub may_have_happened: bool,
}

/// A running store, and how to reach it.
#[derive(Clone, Debug)]
pub struct StateClient {
    store: String,
    tls: Option<KeySourceTls>,
    authorization: Option<String>,
}

impl StateClient {
    /// Reads the URL of a store: `http://host:port` or `https://host:port`.
    pub fn new(
        store: &str,
        tls: Option<KeySourceTls>,
        credentials: Option<StateCredentials>,
    ) -> Result<Self, String> {
        let wrong = |why: &str| format!("{store}: {why}");
        let uri: Uri = store.parse().map_err(|_| wrong("this is no URL"))?;
        if uri.authority().is_none_or(|to| to.as_str().contains('@')) || uri.path() != "/" {
            return Err(wrong("the URL of a store is http://host:port or https://host:port"));
        }
        let tls = match (uri.scheme_str(), tls) {
            (Some("http"), _) => None,
            (Some("https"), Some(tls)) => Some(tls),
            (Some("https"), None) => {
                return Err(wrong(
                    "name the authority that signed the store's certificate with --tls-ca",
                ));
            }
            _ => return Err(wrong("the URL of a store begins with http:// or https://")),
        };
        let authorization = credentials.map(|credentials| match credentials {
            StateCredentials::Key(key) => format!("Bearer {key}"),
            StateCredentials::Basic { user, password } => {
                format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
            }
        });
        let store = store.trim_end_matches('/').to_owned();
        Ok(Self { store, tls, authorization })
    }

    /// Sends one call and waits for its answer. `of` is the path below `/v1/states`, with the query.
    pub fn call(
        &self,
        verb: &str,
        of: &str,
        body: impl Into<Bytes>,
    ) -> Result<StateReply, StateUnanswered> {
        let answered = self.send(verb, of, body.into());
        let response = answered.map_err(|CallError { why, sent }| StateUnanswered {
            why: format!("{}: {why}", self.store),
            may_have_happened: sent,
        })?;
        let reason = response.headers().get(REASON).and_then(|reason| reason.to_str().ok());
        let reason = reason.unwrap_or_default().to_owned();
        Ok(StateReply { status: response.status().as_u16(), reason, body: response.into_body() })
    }

    fn send(&self, verb: &str, of: &str, body: Bytes) -> Result<Response<Bytes>, CallError> {
        let text = format!("{}/v1/states{of}", self.store);
        let uri: Uri = text.parse().map_err(|_| format!("{text}: this is no URL"))?;
        let method = Method::from_bytes(verb.as_bytes()).map_err(|error| error.to_string())?;
        let mut headers = vec![(CONTENT_TYPE, "application/json".to_owned())];
        headers.extend(self.authorization.iter().map(|text| (AUTHORIZATION, text.clone())));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
        let call =
            OutgoingCall { method, headers: &headers, body, most: BYTES_MAX, within: TIMEOUT };
        runtime.block_on(call::call(&uri, self.tls.as_ref(), call))
    }
}

/// Writes a name so that it can be a part of a URL. Slashes stay.
pub fn in_url(name: &str) -> String {
    utf8_percent_encode(name, ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_by_its_url_alone() {
        assert!(StateClient::new("http://127.0.0.1:8000", None, None).is_ok());
        assert!(StateClient::new("http://a:1/", None, None).is_ok());
        for bad in ["127.0.0.1:8000", "http://u@a:1", "http://a/v1", "ftp://a", "https://a:1", ""] {
            assert!(StateClient::new(bad, None, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_written_for_urls() {
        assert_eq!(in_url("prod/net-1"), "prod/net-1");
        assert_eq!(in_url("a b&c?ü%"), "a%20b%26c%3F%C3%BC%25");
    }
}
