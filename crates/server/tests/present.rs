//! Tests that the durations of holds and waits are current, although the clock of an idle cluster moves once a second.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenure_server::os;

use crate::alone::{Alone, settings};
use crate::client::Client;

/// Shorter than the time between two checkpoints, so that the machine's clock moves once at most.
const OBSERVED_US: u64 = 900_000;

/// The different values that a question is answered with meanwhile.
fn values(ask: impl Fn() -> Value) -> BTreeSet<u64> {
    let until_us = os::now_us() + OBSERVED_US;
    let mut values = BTreeSet::new();
    while os::now_us() < until_us {
        values.insert(ask().as_u64().expect("a duration"));
    }
    values
}

#[test]
fn holds_and_waits_are_shown_as_long_as_they_last() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let alone = Alone::run(dir, settings);
    let client = Client::new(alone.running.clients, "ana");
    for lease in ["1", "2"] {
        client.json("POST", "/v1/leases", &[], &json!({"lease": lease, "ttl_ms": 600_000})).ok();
    }
    client.json("POST", "/v1/locks/deploy", &[], &json!({"lease": "1"})).ok();
    let queued = client.json("POST", "/v1/locks/deploy?keep=true", &[], &json!({"lease": "2"}));
    assert_eq!(queued.status, 202, "{}", queued.value());
    let get = |path: &str| client.get(path).ok();
    let holder = |shown: &Value| shown["holders"][0]["held_ms"].clone();
    let shown: [(&str, &dyn Fn() -> Value); 5] = [
        ("locks", &|| holder(&get("/v1/locks")["locks"][0])),
        ("lock", &|| holder(&get("/v1/locks/deploy")["lock"])),
        ("explain", &|| holder(&get("/v1/locks/deploy?view=explain")["lock"])),
        ("waits", &|| get("/v1/locks/deploy?view=explain")["ahead"][0]["waiting_ms"].clone()),
        ("queue", &|| get("/v1/locks/deploy?view=queue")["waiters"][0]["waiting_ms"].clone()),
    ];
    for (what, ask) in shown {
        let values = values(ask);
        assert!(values.len() >= 4, "{what}: {values:?}");
    }
}
