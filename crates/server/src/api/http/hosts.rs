//! Rejects requests that a web page makes a browser send.
//!
//! The rule is `OwnHosts`; this file says what a member's own hosts are, and which host a request asks.

use std::net::SocketAddr;
use std::sync::OnceLock;

use axum::extract::Request;
use axum::response::Response;
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, HOST, ORIGIN, VARY};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};
use tenure_types::OwnHosts;

/// The number of admitted hosts that are remembered: as many names as a member usually has.
const REMEMBERED: usize = 4;

/// The hosts under which a member may be addressed.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllowedHosts {
    own: OwnHosts,
    /// The first hosts that requests asked and that were admitted, as they were written. The rules never change, so a
    /// request without an origin that asks one of them needs no parsing.
    admitted: [OnceLock<Box<str>>; REMEMBERED],
}

impl AllowedHosts {
    /// Loopback, the address that the member listens on, the one that it advertises, and configured names.
    pub(crate) fn new<'a>(
        listens: SocketAddr,
        advertised: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let advertised = advertised.parse::<Authority>().ok().map(|it| it.host().to_owned());
        let names = names.into_iter().map(str::to_owned).chain(advertised);
        let own = OwnHosts::new(names.chain([listens.ip().to_string()]));
        let own = if listens.ip().is_unspecified() { own.with_any_address() } else { own };
        Self { own, admitted: Default::default() }
    }

    /// Also admits requests of pages of these origins.
    #[must_use]
    pub(crate) fn with_origins(self, origins: &[String]) -> Self {
        Self { own: self.own.with_origins(origins), admitted: Default::default() }
    }

    /// The origin of the page that sends a request, if it is a foreign one that is allowed. A browser shows the page
    /// the response only if the response names that origin.
    pub(in crate::api) fn foreign_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        self.own.allows_origin(origin.as_bytes()).then(|| origin.clone())
    }

    /// Names the origin of the page in a response.
    pub(in crate::api) fn name_origin(origin: HeaderValue, response: &mut Response) {
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        response.headers_mut().insert(VARY, HeaderValue::from_static("Origin"));
    }

    /// Whether a request is admitted.
    pub(in crate::api) fn admit(&self, request: &Request) -> bool {
        if self.is_remembered(request) {
            return true;
        }
        let Some(asked) = requested_host(request) else { return false };
        let headers = request.headers();
        let origins = headers.get_all(ORIGIN).into_iter().map(HeaderValue::as_bytes);
        let admitted = self.own.admit(asked.as_str(), origins);
        if admitted && !headers.contains_key(ORIGIN) {
            self.remember(asked.as_str());
        }
        admitted
    }

    /// Whether a request asks a host that was admitted before, and in one place only.
    fn is_remembered(&self, request: &Request) -> bool {
        let headers = request.headers();
        let mut hosts = headers.get_all(HOST).into_iter();
        let asked = match (hosts.next(), request.uri().authority()) {
            (Some(host), None) => host.as_bytes(),
            (None, Some(before)) => before.as_str().as_bytes(),
            _ => return false,
        };
        let mut admitted = self.admitted.iter().map_while(OnceLock::get);
        hosts.next().is_none()
            && admitted.any(|host| host.as_bytes() == asked)
            && !headers.contains_key(ORIGIN)
    }

    fn remember(&self, asked: &str) {
        for place in &self.admitted {
            if &**place.get_or_init(|| asked.into()) == asked {
                return;
            }
        }
    }
}

/// The host that a request asks: from `Host`, or from before the path.
fn requested_host(request: &Request) -> Option<Authority> {
    let mut hosts = request.headers().get_all(HOST).into_iter();
    let host = match hosts.next() {
        Some(host) => Some(host.to_str().ok()?.parse::<Authority>().ok()?),
        None => None,
    };
    let one = hosts.next().is_none();
    let asked = match (host, request.uri().authority()) {
        (Some(host), Some(before)) => (host == *before).then_some(host),
        (Some(host), None) => Some(host),
        (None, before) => before.cloned(),
    };
    asked.filter(|_| one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn request(host: &str, origin: Option<&str>) -> Request {
        let request = Request::builder().uri("/v1/locks").header(HOST, host);
        let request = origin.into_iter().fold(request, |request, it| request.header(ORIGIN, it));
        request.body(Body::empty()).unwrap()
    }

    fn hosts(listens: &str) -> AllowedHosts {
        AllowedHosts::new(listens.parse().unwrap(), "a.example:7450", ["Locks.example"])
    }

    #[test]
    fn loopback_the_advertised_host_and_given_names_are_ours() {
        let hosts = hosts("10.0.0.1:7450");
        for host in ["127.9.9.9", "localhost:1", "10.0.0.1:7450", "a.example:7450", "locks.EXAMPLE"]
        {
            assert!(hosts.admit(&request(host, None)), "{host}");
        }
        for host in ["evil.example", "10.0.0.2:7450", "x@localhost", ""] {
            assert!(!hosts.admit(&request(host, None)), "{host}");
        }
    }

    #[test]
    fn a_host_that_was_admitted_once_is_remembered_for_requests_without_an_origin_only() {
        let hosts = hosts("127.0.0.1:7450");
        assert!(!hosts.is_remembered(&request("localhost:7450", None)));
        for _ in 0..2 {
            assert!(hosts.admit(&request("localhost:7450", None)));
            assert!(hosts.is_remembered(&request("localhost:7450", None)));
            assert!(!hosts.admit(&request("localhost:7450", Some("https://evil.example"))));
            assert!(!hosts.admit(&request("evil.example", None)));
            assert!(!hosts.is_remembered(&request("evil.example", None)));
        }
        let before = Request::builder().uri("http://localhost:7450/").body(Body::empty()).unwrap();
        assert!(hosts.is_remembered(&before));
        let both = Request::builder().uri("http://evil.example/").header(HOST, "localhost:7450");
        assert!(!hosts.admit(&both.body(Body::empty()).unwrap()));
        let two = Request::builder().header(HOST, "localhost:7450").header(HOST, "evil.example");
        assert!(!hosts.admit(&two.body(Body::empty()).unwrap()));
        for port in 0..2 * REMEMBERED {
            assert!(hosts.admit(&request(&format!("localhost:{port}"), None)));
        }
    }

    #[test]
    fn one_that_listens_everywhere_takes_any_address_and_no_other_name() {
        let hosts = hosts("0.0.0.0:7450");
        assert!(hosts.admit(&request("10.0.0.2:7450", None)));
        assert!(!hosts.admit(&request("evil.example", None)));
    }

    #[test]
    fn the_origin_counts() {
        let hosts = hosts("127.0.0.1:7450");
        let may = |origin| hosts.admit(&request("127.0.0.1:7450", Some(origin)));
        assert!(may("http://127.0.0.1:7450"));
        assert!(!may("http://127.0.0.1:3000"));
    }

    #[test]
    fn an_allowed_origin_is_admitted_and_named() {
        let hosts = hosts("127.0.0.1:7450").with_origins(&["https://app.example".to_owned()]);
        let page = request("127.0.0.1:7450", Some("https://app.example"));
        assert!(hosts.admit(&page));
        assert_eq!(hosts.foreign_origin(page.headers()).unwrap(), "https://app.example");
        let own = request("127.0.0.1:7450", Some("http://127.0.0.1:7450"));
        assert!(hosts.admit(&own) && hosts.foreign_origin(own.headers()).is_none());
        assert!(!hosts.admit(&request("127.0.0.1:7450", Some("https://evil.example"))));
    }

    #[test]
    fn a_request_without_a_host_or_with_two_is_not_for_us() {
        let hosts = hosts("127.0.0.1:7450");
        let without = Request::builder().uri("/").body(Body::empty()).unwrap();
        assert!(!hosts.admit(&without));
        let two = Request::builder().header(HOST, "localhost").header(HOST, "localhost");
        assert!(!hosts.admit(&two.body(Body::empty()).unwrap()));
        let other = Request::builder().uri("http://evil.example/").header(HOST, "localhost");
        assert!(!hosts.admit(&other.body(Body::empty()).unwrap()));
    }
}
