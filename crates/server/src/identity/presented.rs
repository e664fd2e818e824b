//! Takes the credentials of a caller from the headers of its request and from its connection.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tenure_wire::Failure;

use super::api_key::{PREFIX, PresentedKey};
use super::console::ConsoleSessionId;

/// The longest bearer: longer than tokens of any issuer that fit into the headers.
const BEARER_BYTES_MAX: usize = 16 * 1024;

/// The verified end-entity certificate of a client, in DER.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PeerCertificate(Arc<[u8]>);

impl PeerCertificate {
    pub(crate) fn new(der: &[u8]) -> Self {
        Self(der.into())
    }

    pub(crate) fn der(&self) -> &[u8] {
        &self.0
    }
}

/// Everything that a caller presented. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Presented {
    pub(crate) bearer: Option<Bearer>,
    pub(crate) certificate: Option<PeerCertificate>,
    /// The session of the console that stands for them. They hold no longer than it.
    pub(crate) session: Option<ConsoleSessionId>,
}

/// A bearer credential.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Bearer {
    ApiKey(PresentedKey),
    /// A token of an issuer, not verified yet.
    Token(Arc<str>),
}

impl Presented {
    /// The credentials of a request that came over a connection with this certificate.
    pub(crate) fn of_request(
        headers: &HeaderMap,
        certificate: Option<PeerCertificate>,
    ) -> Result<Self, Failure> {
        let mut values = headers.get_all(AUTHORIZATION).into_iter();
        let bearer = match (values.next(), values.next()) {
            (None, _) => None,
            (Some(value), None) => {
                let text = value.to_str().map_err(|_| rejected("the header cannot be read"))?;
                Some(Bearer::parse(text)?)
            }
            (Some(_), Some(_)) => return Err(rejected("there are two authorization headers")),
        };
        Ok(Self { bearer, certificate, session: None })
    }

    /// The same with the value of an authorization header that came in a message.
    pub(crate) fn with_authorization(mut self, value: &str) -> Result<Self, Failure> {
        self.bearer = Some(Bearer::parse(value)?);
        Ok(self)
    }
}

impl Bearer {
    /// Parses the value of an authorization header: `Bearer <API key or token>`.
    fn parse(value: &str) -> Result<Self, Failure> {
        let (scheme, text) = value.split_once(' ').unwrap_or((value, ""));
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(rejected("the authorization is not of the scheme `Bearer`"));
        }
        let text = text.trim_start_matches(' ');
        if text.starts_with(PREFIX) {
            let key = PresentedKey::parse(text);
            return key.map(Self::ApiKey).ok_or_else(|| rejected("the API key is malformed"));
        }
        // The characters of a bearer token in RFC 6750.
        let token = |it: u8| it.is_ascii_alphanumeric() || b"-._~+/=".contains(&it);
        if text.is_empty() || text.len() > BEARER_BYTES_MAX || !text.bytes().all(token) {
            return Err(rejected("the bearer token is malformed"));
        }
        Ok(Self::Token(text.into()))
    }
}

/// The failure for credentials that are not accepted.
pub(crate) fn rejected(problem: &'static str) -> Failure {
    Failure::CredentialsRejected { problem }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(values: &[&str]) -> Result<Presented, Failure> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        Presented::of_request(&headers, None)
    }

    #[test]
    fn a_bearer_is_an_api_key_or_a_token() {
        let key = format!("Bearer tenure_{}_{}", "01".repeat(8), "ab".repeat(32));
        let presented = of(&[&key]).unwrap();
        assert!(
            matches!(presented.bearer, Some(Bearer::ApiKey(it)) if &*it.id == "0101010101010101")
        );
        let presented = of(&["bearer  a.b-c._~+/="]).unwrap();
        assert!(matches!(presented.bearer, Some(Bearer::Token(it)) if &*it == "a.b-c._~+/="));
        assert!(of(&[]).unwrap().bearer.is_none());
    }

    #[test]
    fn other_schemes_two_headers_and_malformed_values_are_refused() {
        let cases: [&[&str]; 8] = [
            &["Basic YTpi"],
            &["Bearer"],
            &["Bearer "],
            &["Bearer a b"],
            &["Bearer tenure_x"],
            &[""],
            &["Bearer a", "Bearer a"],
            &["tenure_0101010101010101_00"],
        ];
        for case in cases {
            let Err(failure) = of(case) else { panic!("{case:?} is accepted") };
            assert_eq!(failure.reason(), "UNAUTHENTICATED", "{case:?}");
        }
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, HeaderValue::from_bytes(b"Bearer \xff").unwrap());
        assert!(Presented::of_request(&headers, None).is_err());
    }
}
