//! Checks the `Host` and `Origin` of requests, against web pages that act through a user's browser.
//!
//! A page can make a browser send requests to loopback, also under a name of its own that it resolves to loopback. So
//! the `Host` must be one of ours. An `Origin`, which browsers send with every request that could change something,
//! must be the requested host itself.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;

/// The hosts by which a member is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    names: BTreeSet<String>,
    /// Whether the member listens on every address of the machine, so that any address may be its own. Names are not: a
    /// page can choose where its name points.
    any_address: bool,
}

impl Hosts {
    /// Loopback, the address that the member listens on, its advertised address, and the configured names.
    pub(crate) fn new<'a>(
        listens: SocketAddr,
        advertised: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let advertised = [advertised].into_iter().filter_map(|it| it.parse().ok());
        let advertised = advertised.map(|it: Authority| bare(it.host()));
        let names = names.into_iter().map(bare);
        let own = [listens.ip().to_string()];
        Self {
            names: own.into_iter().chain(advertised).chain(names).collect(),
            any_address: listens.ip().is_unspecified(),
        }
    }

    /// Whether to accept a request.
    pub(super) fn admit(&self, request: &Request) -> bool {
        let Some(asked) = asked(request) else { return false };
        if !self.knows(asked.host()) {
            return false;
        }
        let mut origins = request.headers().get_all(ORIGIN).into_iter();
        origins.all(|origin| origin.to_str().is_ok_and(|origin| is_same(origin, &asked)))
    }

    fn knows(&self, host: &str) -> bool {
        let host = bare(host);
        match host.parse::<IpAddr>() {
            Ok(address) if address.is_loopback() || self.any_address => true,
            Ok(address) => self.names.contains(&address.to_string()),
            Err(_) => host == "localhost" || self.names.contains(&host),
        }
    }
}

/// The requested host: from `Host`, or from the authority before the path.
fn asked(request: &Request) -> Option<Authority> {
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
    asked.filter(|asked| one && !asked.as_str().contains('@'))
}

fn is_same(origin: &str, asked: &Authority) -> bool {
    let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    host.is_some_and(|host| host.eq_ignore_ascii_case(asked.as_str()))
}

/// A host in lower case, without brackets or a final dot.
fn bare(host: &str) -> String {
    let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
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

    fn hosts(listens: &str) -> Hosts {
        Hosts::new(listens.parse().unwrap(), "a.example:7450", ["Locks.example"])
    }

    #[test]
    fn loopback_the_advertised_host_and_given_names_are_ours() {
        let hosts = hosts("10.0.0.1:7450");
        let ours = [
            "127.0.0.1:7450",
            "127.9.9.9",
            "localhost:1",
            "LOCALHOST.",
            "[::1]:7450",
            "10.0.0.1:7450",
            "a.example:7450",
            "locks.EXAMPLE",
        ];
        for host in ours {
            assert!(hosts.admit(&request(host, None)), "{host}");
        }
        let strange =
            ["evil.example", "10.0.0.2:7450", "localhost.evil.example", "x@localhost", ""];
        for host in strange {
            assert!(!hosts.admit(&request(host, None)), "{host}");
        }
    }

    #[test]
    fn one_that_listens_everywhere_takes_any_address_and_no_other_name() {
        let hosts = hosts("0.0.0.0:7450");
        assert!(hosts.admit(&request("10.0.0.2:7450", None)));
        assert!(!hosts.admit(&request("evil.example", None)));
    }

    #[test]
    fn only_a_page_of_the_same_host_and_port_may_act() {
        let hosts = hosts("127.0.0.1:7450");
        let may = |origin| hosts.admit(&request("127.0.0.1:7450", Some(origin)));
        assert!(may("http://127.0.0.1:7450"));
        for origin in
            ["http://127.0.0.1:3000", "http://localhost:7450", "https://evil.example", "null", ""]
        {
            assert!(!may(origin), "{origin}");
        }
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
