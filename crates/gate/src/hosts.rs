//! Rejects requests that a web page makes a browser send.
//!
//! A store may be addressed by any address, because it may listen on all of them. The rule is `OwnHosts`.

use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use tenure_types::OwnHosts;

/// The host names of a store, in addition to its addresses.
#[derive(Clone, Debug)]
pub(crate) struct Hosts(OwnHosts);

impl Hosts {
    pub(crate) fn new(names: &[String]) -> Self {
        Self(OwnHosts::new(names).with_any_address())
    }

    /// Whether the request has one `Host`, which is ours. The service behind a proxy judges origins itself.
    pub(crate) fn admit_host(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).into_iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let asked = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        asked.is_some_and(|asked| self.0.admit(asked.as_str(), std::iter::empty()))
    }

    /// Whether a request is admitted: it has one `Host`, which is ours, and no `Origin` of another host.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).into_iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let asked = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        let origins = headers.get_all(ORIGIN).into_iter().map(http::HeaderValue::as_bytes);
        asked.is_some_and(|asked| self.0.admit(asked.as_str(), origins))
    }
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
    fn one_host_that_is_any_address_or_a_given_name_is_ours() {
        for host in ["10.0.0.2", "[::1]:8000", "data.EXAMPLE:8000"] {
            assert!(may(&[host], None), "{host}");
        }
        for host in ["evil.example", "x@localhost", "localhost:1:2", "local host", ""] {
            assert!(!may(&[host], None), "{host}");
        }
        assert!(!may(&[], None));
        assert!(!may(&["localhost", "localhost"], None));
    }

    #[test]
    fn the_origin_counts() {
        assert!(may(&["127.0.0.1:8000"], Some("http://127.0.0.1:8000")));
        assert!(!may(&["127.0.0.1:8000"], Some("http://127.0.0.1:3000")));
    }
}
