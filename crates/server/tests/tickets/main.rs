//! Tests that a ticket proves its grant to every holder of the cluster's keys, and how long it does.

#[path = "../support/bounded.rs"]
mod bounded;
#[path = "../http/client.rs"]
#[allow(dead_code, reason = "shared with the tests of the HTTP API")]
mod client;
#[path = "../common/mod.rs"]
mod common;
mod languages;
mod lives;

use client::Client;
use common::{Members, wait};
use serde_json::{Value, json};
use tenure_fence::ticket::{KeySet, Resource, Tickets};
use tenure_server::os;

/// A client of one member, with the same name at every member.
fn client(members: &Members, at: usize) -> Client {
    Client::new(members.one(at).clients, "ana")
}

/// A held lock, and what is needed to prove it.
struct Grant {
    lock: &'static str,
    lease: String,
    token: String,
}

impl Grant {
    fn take(client: &Client, lock: &'static str) -> Self {
        let lease = client.lease(60_000);
        let token = client.lock(lock, &lease);
        Self { lock, lease, token }
    }

    fn ask(&self) -> Value {
        json!({"lock": self.lock, "lease": self.lease, "token": self.token})
    }

    /// A ticket signed by the member that the client is connected to.
    fn ticket(&self, client: &Client) -> String {
        // Another member may come to lead meanwhile: then nothing happened, and it is asked again.
        let signed = wait("a member leads", || {
            let reply = client.post("/v1/tickets", &self.ask());
            (reply.value()["error"]["reason"] != "NOT_LEADER").then_some(reply)
        });
        let signed = signed.ok();
        signed["ticket"].as_str().unwrap().to_owned()
    }
}

fn jwks(client: &Client) -> Value {
    client.get("/.well-known/jwks.json").ok()
}

fn set(client: &Client) -> KeySet {
    KeySet::parse(&jwks(client).to_string()).unwrap()
}

#[test]
fn a_ticket_of_any_member_verifies_with_the_keys_that_any_member_serves() {
    let members = Members::found(3);
    let grant = Grant::take(&client(&members, 0), "ledger");
    let tickets: Vec<String> = (0..3).map(|at| grant.ticket(&client(&members, at))).collect();
    assert_eq!(tickets[0], grant.ticket(&client(&members, 0)), "the same grant, the same ticket");
    for at in 0..3 {
        let keys = set(&client(&members, at));
        assert_eq!(keys.len(), 3, "each member has a key of its own");
        let verifier = Tickets::new(keys);
        for text in &tickets {
            let resource = Resource::new("ledger").exclusive().holder("ana");
            let ticket = verifier.check(text, &resource).unwrap();
            assert_eq!(ticket.token.get().to_string(), grant.token);
            assert_eq!(ticket.lease.to_string(), grant.lease);
            assert_eq!(ticket.cluster, members.one(at).cluster);
        }
    }
    // No member gives a ticket to a client that has lost the lock.
    let path = format!("/v1/locks/ledger?lease={}&token={}", grant.lease, grant.token);
    client(&members, 1).delete(&path).ok();
    for at in 0..3 {
        client(&members, at).post("/v1/tickets", &grant.ask()).refused(409, "NOT_HOLDER");
    }
}

#[test]
fn every_mode_is_proven() {
    let members = Members::found(1);
    let client = client(&members, 0);
    let verifier = Tickets::new(set(&client));
    let signed = |lock: &'static str, ask: Value| {
        let held = client.post(&format!("/v1/locks/{lock}"), &ask).ok();
        let lease = ask["lease"].as_str().unwrap().to_owned();
        let token = held["token"].as_str().unwrap().to_owned();
        (Grant { lock, lease, token }.ticket(&client), held["slot"].as_u64())
    };
    let (shared, _) = signed("notes", json!({"lease": client.lease(60_000), "mode": "shared"}));
    assert!(verifier.check(&shared, &Resource::new("notes")).is_ok());
    let refused = verifier.check(&shared, &Resource::new("notes").exclusive()).unwrap_err();
    assert_eq!(refused.reason(), "TICKET_SHARED");
    for slot in 0..2 {
        let ask = json!({"lease": client.lease(60_000), "mode": "slot", "slots": 2});
        let (ticket, given) = signed("workers", ask);
        assert_eq!(given, Some(u64::from(slot)));
        assert!(verifier.check(&ticket, &Resource::new(("workers", slot)).exclusive()).is_ok());
        let other = verifier.check(&ticket, &Resource::new(("workers", 1 - slot))).unwrap_err();
        assert_eq!(other.reason(), "TICKET_OTHER_SLOT");
    }
}

#[test]
fn a_rotated_key_is_believed_for_as_long_as_the_overlap() {
    let members = Members::found(1);
    let client = client(&members, 0);
    let grant = Grant::take(&client, "ledger");
    let verifier = Tickets::new(set(&client));
    let resource = Resource::new("ledger");
    let rotate = |body: Value| client.post("/v1/cluster/keys/rotate", &body).ok();

    let first = grant.ticket(&client);
    rotate(json!({"overlap_ms": 3_600_000}));
    let second = grant.ticket(&client);
    assert_ne!(first, second);
    let unknown = verifier.check(&second, &resource).unwrap_err();
    assert!(unknown.wants_newer_keys(), "{unknown}");
    let shown = jwks(&client)["keys"].as_array().unwrap().clone();
    let left: Vec<bool> = shown.iter().map(|key| key["retires_in_ms"].is_u64()).collect();
    assert_eq!(left, [true, false]);
    verifier.update(set(&client)).unwrap();
    for ticket in [&first, &second] {
        verifier.check(ticket, &resource).unwrap();
    }

    // At once, also for keys that were already retiring.
    rotate(json!({"overlap_ms": 0}));
    assert_eq!(set(&client).len(), 1);
    verifier.update(set(&client)).unwrap();
    for ticket in [&first, &second] {
        assert_eq!(verifier.check(ticket, &resource).unwrap_err().reason(), "TICKET_KEY_RETIRED");
    }
    // After a while, although there are no writes.
    rotate(json!({"overlap_ms": 1_500}));
    assert_eq!(set(&client).len(), 2);
    wait("the key is retired", || (set(&client).len() == 1).then_some(()));
    verifier.update(set(&client)).unwrap();
    verifier.check(&grant.ticket(&client), &resource).unwrap();
    for _ in 0..4 {
        rotate(json!({}));
    }
    client.post("/v1/cluster/keys/rotate", &json!({})).refused(400, "INVALID_FIELD");
}

#[test]
fn an_overlap_lasts_its_whole_time_after_a_while_without_writes() {
    let members = Members::found(1);
    let client = client(&members, 0);
    // There is no lease, so nothing is due and the machine's clock stands still.
    assert_eq!(set(&client).len(), 1);
    let clock_ms = || client.get("/v1/cluster").ok()["clock_ms"].as_u64().unwrap();
    let (stands_at_ms, since_us) = (clock_ms(), os::now_us());
    wait("longer than the overlap", || (os::now_us() - since_us >= 4_000_000).then_some(()));
    assert_eq!(clock_ms(), stands_at_ms, "the machine's clock stands still");
    let rotated_us = os::now_us();
    client.post("/v1/cluster/keys/rotate", &json!({"overlap_ms": 3_000})).ok();
    assert_eq!(set(&client).len(), 2, "the old key is believed at first");
    wait("the old key is retired", || (set(&client).len() == 1).then_some(()));
    let passed_us = os::now_us() - rotated_us;
    assert!(passed_us >= 3_000_000, "{passed_us}");
}

#[test]
fn a_member_keeps_its_key_and_one_that_is_removed_has_it_retired() {
    let mut members = Members::found(3);
    let (leader, follower) = (members.leader(), members.follower());
    let grant = Grant::take(&client(&members, leader), "ledger");
    let before = grant.ticket(&client(&members, follower));
    members.stop(follower);
    members.start_again(follower);
    let after = wait("it serves", || {
        let signed = client(&members, follower).post("/v1/tickets", &grant.ask());
        (signed.status == 200).then(|| signed.ok()["ticket"].as_str().unwrap().to_owned())
    });
    assert_eq!(before, after);
    let id = members.id(follower).to_string();
    let key = |at: usize| {
        let keys = jwks(&client(&members, at))["keys"].as_array().unwrap().clone();
        keys.into_iter().find(|key| key["member_id"] == *id)
    };
    assert!(key(leader).unwrap()["retires_in_ms"].is_null());
    let leader = members.leader();
    client(&members, leader).delete(&format!("/v1/cluster/members/m{follower}")).ok();
    let left_ms =
        wait("its key is on its way out", || key(leader).unwrap()["retires_in_ms"].as_u64());
    // A second more than a day: the entry that retires the key may take that long.
    assert!(left_ms <= 24 * 3_600_000 + 1_000);
    // Its tickets are valid that long.
    let verifier = Tickets::new(set(&client(&members, leader)));
    verifier.check(&before, &Resource::new("ledger")).unwrap();
}
