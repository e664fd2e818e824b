//! Rejects requests that a web page makes a browser send.
//!
//! A page can make a browser send requests to loopback, also under a host name of its own that resolves there.
//! Therefore the `Host` must be an address, `localhost` or a configured name, and an `Origin` must be that same host.

use std::collections::BTreeSet;
use std::net::IpAddr;

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};

/// The host names of a store, in addition to its addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts(BTreeSet<String>);

impl Hosts {
    pub(crate) fn new(names: &[String]) -> Self {
        Self(names.iter().map(|name| bare(name)).collect())
    }

    /// Whether a request is admitted.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).into_iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let asked = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        let Some(asked) = asked.filter(|asked| !asked.as_str().contains('@')) else { return false };
        let host = bare(asked.host());
        let ours = host.parse::<IpAddr>().is_ok() || host == "localhost" || self.0.contains(&host);
        ours && headers.get_all(ORIGIN).into_iter().all(|origin| is_same(origin, &asked))
    }
}

fn is_same(origin: &HeaderValue, asked: &Authority) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    host.is_some_and(|host| host.eq_ignore_ascii_case(asked.as_str()))
}

/// A host in lower case, without brackets and trailing dot.
fn bare(host: &str) -> String {
    let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(host: &[&str], origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        for host in host {
            headers.append(HOST, host.parse().unwrap());
        }
        origin.map(|origin| headers.append(ORIGIN, origin.parse().unwrap()));
        Hosts::new(&["Data.example".to_owned()]).admit(&headers)
    }

    #[test]
    fn addresses_localhost_and_given_names_are_ours() {
        for host in
            ["127.0.0.1:8000", "[::1]:8000", "10.0.0.2", "LOCALHOST.:1", "data.EXAMPLE:8000"]
        {
            assert!(may(&[host], None), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "x@localhost", ""] {
            assert!(!may(&[host], None), "{host}");
        }
        assert!(!may(&[], None));
        assert!(!may(&["localhost", "localhost"], None));
    }

    #[test]
    fn only_a_page_of_the_same_host_and_port_may_act() {
        assert!(may(&["127.0.0.1:8000"], Some("http://127.0.0.1:8000")));
        for origin in
            ["http://127.0.0.1:3000", "http://localhost:8000", "https://evil.example", "null"]
        {
            assert!(!may(&["127.0.0.1:8000"], Some(origin)), "{origin}");
        }
    }
}
