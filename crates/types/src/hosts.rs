//! Decides whether a request was sent to this server's own host, and not by a web page of another one.
//!
//! A page can make a browser send requests to loopback, also under a host name of its own that resolves there.
//! Therefore the `Host` must be one of the server's own, and an `Origin`, which browsers send with every request that
//! could change something, must be that same host and port. The member and the fenced store share this rule; each
//! extracts the headers from its own requests.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use core::net::IpAddr;

/// The hosts under which a server may be addressed: loopback, `localhost`, and its own names and addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnHosts {
    names: BTreeSet<String>,
    any_address: bool,
    /// Other origins whose pages may send requests.
    origins: BTreeSet<String>,
}

impl OwnHosts {
    /// Takes the names and addresses of the server, without ports.
    pub fn new(names: impl IntoIterator<Item: AsRef<str>>) -> Self {
        let names = names.into_iter().map(|name| bare(name.as_ref())).collect();
        Self { names, any_address: false, origins: BTreeSet::new() }
    }

    /// Also accepts every address as a host, for a server that listens on all addresses of its machine. Names are not
    /// accepted in this way: a page chooses where its own name resolves to.
    #[must_use]
    pub fn with_any_address(self) -> Self {
        Self { any_address: true, ..self }
    }

    /// Also accepts requests of pages of these origins, such as `https://app.example`.
    #[must_use]
    pub fn with_origins(self, origins: impl IntoIterator<Item: AsRef<str>>) -> Self {
        let origins = origins.into_iter().map(|it| it.as_ref().to_ascii_lowercase()).collect();
        Self { origins, ..self }
    }

    /// Whether an origin is one of those that were given.
    pub fn allows_origin(&self, origin: &[u8]) -> bool {
        core::str::from_utf8(origin)
            .is_ok_and(|origin| self.origins.contains(&origin.to_ascii_lowercase()))
    }

    /// Whether to admit a request to `authority`, a host with or without a port, with these values of `Origin`.
    pub fn admit<'a>(&self, authority: &str, origins: impl IntoIterator<Item = &'a [u8]>) -> bool {
        self.knows(host(authority))
            && origins
                .into_iter()
                .all(|origin| is_same_origin(origin, authority) || self.allows_origin(origin))
    }

    fn knows(&self, host: &str) -> bool {
        let host = bare(host);
        match host.parse::<IpAddr>() {
            Ok(address) if address.is_loopback() || self.any_address => true,
            Ok(_) => self.names.contains(&host),
            Err(_) => host == "localhost" || self.names.contains(&host),
        }
    }
}

/// The host of an authority, without its port. An authority with user information (`user@host`) is returned whole,
/// which is the host of no server.
fn host(authority: &str) -> &str {
    if authority.contains('@') {
        return authority;
    }
    let end = match authority.starts_with('[') {
        true => authority.find(']').map(|at| at + 1),
        false => authority.find(':'),
    };
    &authority[..end.unwrap_or(authority.len())]
}

fn is_same_origin(origin: &[u8], authority: &str) -> bool {
    let host = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    host.is_some_and(|host| host.eq_ignore_ascii_case(authority.as_bytes()))
}

/// A host in lower case, without brackets and trailing dot; an address in its shortest form.
fn bare(host: &str) -> String {
    let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    let host = host.strip_suffix('.').unwrap_or(host);
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => host.to_owned().to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> OwnHosts {
        OwnHosts::new(["10.0.0.1", "2001:DB8:0::1", "a.example", "Locks.example"])
    }

    #[test]
    fn loopback_and_given_names_and_addresses_are_ours() {
        let ours = [
            "127.0.0.1:7450",
            "127.9.9.9",
            "localhost:1",
            "LOCALHOST.",
            "LOCALHOST.:1",
            "[::1]:7450",
            "[0:0::1]",
            "10.0.0.1:7450",
            "[2001:db8::1]:7450",
            "a.example:7450",
            "locks.EXAMPLE",
        ];
        for authority in ours {
            assert!(own().admit(authority, []), "{authority}");
        }
        let foreign = [
            "evil.example",
            "10.0.0.2:7450",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "x@localhost",
            "localhost@evil.example",
            "[::1",
            "",
            ":80",
        ];
        for authority in foreign {
            assert!(!own().admit(authority, []), "{authority}");
        }
    }

    #[test]
    fn a_server_on_all_addresses_accepts_any_address_and_no_other_name() {
        let hosts = own().with_any_address();
        assert!(hosts.admit("10.0.0.2:7450", []));
        assert!(hosts.admit("[2001:db8::2]", []));
        assert!(hosts.admit("a.example", []));
        assert!(!hosts.admit("evil.example", []));
    }

    #[test]
    fn only_a_page_of_the_same_host_and_port_may_act() {
        let may = |origins: &[&str]| {
            own().admit("127.0.0.1:7450", origins.iter().map(|origin| origin.as_bytes()))
        };
        assert!(may(&["http://127.0.0.1:7450"]));
        assert!(may(&["https://127.0.0.1:7450"]));
        for origin in
            ["http://127.0.0.1:3000", "http://localhost:7450", "https://evil.example", "null", ""]
        {
            assert!(!may(&[origin]), "{origin}");
            assert!(!may(&["http://127.0.0.1:7450", origin]), "{origin}");
        }
    }

    #[test]
    fn a_page_of_an_allowed_origin_may_act_and_no_other() {
        let hosts = own().with_origins(["https://App.example", "http://localhost:3000"]);
        let may = |origin: &str| hosts.admit("a.example:7450", [origin.as_bytes()]);
        assert!(may("https://app.example"));
        assert!(may("http://localhost:3000"));
        for origin in
            ["http://app.example", "https://app.example:8443", "https://x.app.example", "null", ""]
        {
            assert!(!may(origin), "{origin}");
        }
        assert!(!hosts.admit("evil.example", [&b"https://app.example"[..]]), "the host counts too");
    }
}
