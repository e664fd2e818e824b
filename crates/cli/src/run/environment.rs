//! Builds the variables that the command finds in its environment.

use std::collections::BTreeSet;
use std::ffi::OsString;

use serde_json::{Map, Value};
use tenure::Guard;

use crate::connection_args::{ConnectionTarget, CredentialArgs};

/// The variable with every lock of this run and of the runs around it, as a JSON object of their tokens.
pub(super) const LOCKS: &str = "TENURE_LOCKS";
/// The variable with the lease of this run.
pub(super) const LEASE: &str = "TENURE_LEASE";

/// The variables of a command under this guard: what it holds, and how to reach the cluster.
pub(super) fn variables(
    first: &str,
    guard: &Guard,
    place: &ConnectionTarget,
) -> Vec<(&'static str, OsString)> {
    let mut locks = held_around();
    let mut token = None;
    let mut slots = Vec::new();
    let mut seen = BTreeSet::new();
    for lock in guard.locks() {
        // Of several slots of a semaphore, the first counts. What is held around this guard has other names.
        if seen.insert(&lock.name) {
            locks.insert(lock.name.clone(), lock.token.to_string().into());
        }
        if lock.name == first {
            token.get_or_insert(lock.token);
            slots.extend(lock.slot.map(|slot| slot.to_string()));
        }
    }
    let token = token.unwrap_or(guard.token()).to_string();
    let mut variables = vec![
        ("TENURE_LOCK", first.into()),
        ("TENURE_TOKEN", token.into()),
        (LOCKS, Value::Object(locks).to_string().into()),
        (LEASE, guard.lease().to_string().into()),
        ("TENURE_ADDR", place.addresses.join(",").into()),
    ];
    if !slots.is_empty() {
        variables.push(("TENURE_SLOTS", slots.join(",").into()));
    }
    // Pass the flags on as variables, so that the command can use the cluster itself.
    if let Some(tls) = &place.tls {
        variables.push(("TENURE_CA", tls.ca.clone().into_os_string()));
        if let Some((cert, key)) = &tls.own {
            variables.push(("TENURE_CERT", cert.clone().into_os_string()));
            variables.push(("TENURE_KEY", key.clone().into_os_string()));
        }
    }
    match &place.credentials {
        // The command inherits the variable.
        None | Some(CredentialArgs::ApiKey(_)) => {}
        // An empty variable counts as none: the command uses the same credentials as this process.
        Some(CredentialArgs::ApiKeyFile(path)) => variables.extend([
            ("TENURE_API_KEY", "".into()),
            ("TENURE_API_KEY_FILE", path.clone().into_os_string()),
            ("TENURE_TOKEN_FILE", "".into()),
        ]),
        Some(CredentialArgs::TokenFile(path)) => variables.extend([
            ("TENURE_API_KEY", "".into()),
            ("TENURE_API_KEY_FILE", "".into()),
            ("TENURE_TOKEN_FILE", path.clone().into_os_string()),
        ]),
    }
    variables
}

/// The locks of the runs around this one, with their tokens.
pub(super) fn held_around() -> Map<String, Value> {
    let said = std::env::var(LOCKS).unwrap_or_default();
    serde_json::from_str(&said).unwrap_or_default()
}
