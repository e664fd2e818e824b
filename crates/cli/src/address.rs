//! Checks the addresses of members that a user gives, and says what to type instead of something else.

use crate::connection_args::LOOPBACK;

/// Checks that each is an address, and that there is one.
pub(crate) fn check(addresses: Vec<String>) -> Result<Vec<String>, String> {
    for address in &addresses {
        if let Some(port) = high_port(address) {
            return Err(format!("`{address}` is not an address: port {port} is above 65535"));
        }
        if address.contains(char::is_whitespace) {
            let list: Vec<&str> = address.split_whitespace().collect();
            let list = list.join(",");
            return Err(format!(
                "`{address}` is not an address; put a comma between addresses: {list}"
            ));
        }
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

/// The port of something that would be an address with a lower port.
pub(crate) fn high_port(text: &str) -> Option<&str> {
    let (_, port) = text.rsplit_once(':')?;
    let digits = !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit());
    (digits && port.parse::<u16>().is_err()).then_some(port)
}

/// Whether this is a host and a port.
pub(crate) fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_is_refused_with_the_cause() {
        let refused = |text: &str| check(vec![text.to_owned()]).unwrap_err();
        assert!(refused("127.0.0.1:99999").ends_with(": port 99999 is above 65535"));
        assert!(refused("a:1 b:1").ends_with("; put a comma between addresses: a:1,b:1"));
        assert!(refused("nowhere").ends_with("; try nowhere:7450"));
    }
}
