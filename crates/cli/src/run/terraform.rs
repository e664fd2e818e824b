//! Gives the command what Terraform and OpenTofu need to use a state under the lock of this run.

use std::ffi::OsString;

use tenure::{Error, Guard};
use tenure_gate::store::in_url;

/// Where the states of a store are.
const STATES: &str = "/v1/states/";

/// The variables with the address of a state, and with the ticket that proves the grant to its store.
///
/// The user name is `token-` and the token, for stores that believe numbers; the password is the ticket, for those that
/// do not.
pub(super) async fn variables(
    url: &str,
    lock: &str,
    guard: &Guard,
) -> Result<Vec<(&'static str, OsString)>, Error> {
    let tickets = guard.tickets().await?;
    let mut held = guard.locks().zip(tickets);
    let held = held.find(|(held, _)| held.name == lock);
    let (token, ticket) = held
        .map_or_else(Default::default, |(held, ticket)| (format!("token-{}", held.token), ticket));
    let address = guarded_by(url, lock);
    Ok(vec![
        ("TF_HTTP_ADDRESS", address.clone().into()),
        ("TF_HTTP_LOCK_ADDRESS", address.clone().into()),
        ("TF_HTTP_UNLOCK_ADDRESS", address.into()),
        ("TF_HTTP_USERNAME", token.into()),
        ("TF_HTTP_PASSWORD", ticket.into()),
    ])
}

/// The address of a state that this lock guards.
fn guarded_by(url: &str, lock: &str) -> String {
    let (address, state) = url.split_once(STATES).unwrap_or((url, ""));
    if state == in_url(lock) {
        return format!("{address}{STATES}{state}");
    }
    let more = if url.contains('?') { '&' } else { '?' };
    format!("{url}{more}lock={}", in_url(lock))
}

/// Reads the address of a state.
pub(super) fn url(text: &str) -> Result<String, String> {
    let no = |why: &str| {
        Err(format!("{why}; it is as http://127.0.0.1:8000/v1/states/NAME, where a store listens"))
    };
    let Some((scheme, rest)) = text.split_once("://") else { return no("there is no scheme") };
    if scheme != "http" && scheme != "https" {
        return no("the scheme is neither http nor https");
    }
    let Some((host, state)) = rest.split_once(STATES) else { return no("it names no state") };
    if host.is_empty() || host.contains(['/', '@', '?']) {
        return no("there is no host in it, or something beside the host");
    }
    let (state, query) = state.split_once('?').unwrap_or((state, ""));
    if state.is_empty() {
        return no("it names no state");
    }
    if query.split('&').any(|it| it.starts_with("lock=")) {
        return no("it names a lock, which this run adds");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_names_the_lock_unless_the_state_has_its_name() {
        let state = "http://127.0.0.1:8000/v1/states/prod/net";
        assert_eq!(guarded_by(state, "prod/net"), state);
        assert_eq!(guarded_by(state, "a b&c"), format!("{state}?lock=a%20b%26c"));
        assert_eq!(guarded_by(&format!("{state}?x=1"), "d"), format!("{state}?x=1&lock=d"));
    }

    #[test]
    fn an_address_without_host_or_state_is_refused() {
        assert!(url("https://store.example/v1/states/prod").is_ok());
        for bad in [
            "127.0.0.1:8000/v1/states/prod",
            "ftp://a/v1/states/prod",
            "http://a/v1/data/prod",
            "http://a/v1/states/",
            "http:///v1/states/prod",
            "http://user@a/v1/states/prod",
            "http://a/v1/states/prod?lock=x",
        ] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }
}
