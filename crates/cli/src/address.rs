//! Checks the addresses of members that a user gives, and says what to type instead of something else.

use crate::connection_args::LOOPBACK;

/// Checks that each is an address, and that there is one.
pub(crate) fn check(addresses: Vec<String>) -> Result<Vec<String>, String> {
    for address in &addresses {
        if !is_address(address) {
            return Err(format!("`{address}` is not an address; {}", address_advice(address)));
        }
    }
    if addresses.is_empty() {
        return Err(format!("no address is given; try --addr {LOOPBACK}"));
    }
    Ok(addresses)
}

/// What to type instead of something that is not an address.
fn address_advice(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    let host = rest.trim_end_matches('/');
    let host = if is_address(host) { host.to_owned() } else { format!("{host}:7450") };
    match scheme {
        _ if !is_address(&host) => "try host:7450".to_owned(),
        "https" => format!("try {host}, with --tls-ca FILE"),
        _ => format!("try {host}"),
    }
}

/// Whether this is a host and a port.
pub(crate) fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()
    })
}
