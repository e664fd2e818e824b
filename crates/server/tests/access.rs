//! Tests the calls that administer access: roles, principals, API keys, certificate rules, issuers, quotas, identity.

use serde_json::{Value, json};
use tenure_server::ServerSettings;
use tenure_wire::v1;
use v1::access_service_client::AccessServiceClient;

use crate::alone::{Alone, settings};
use crate::client::{Client, Reply};

const HASH: &str = "ab";

/// A member, and a client with the key of its local administrator.
fn member() -> (Alone, Client) {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let alone = Alone::run(dir, settings);
    let client = Client::administrator(alone.running.clients, "ana", &alone.data());
    (alone, client)
}

fn put(client: &Client, path: &str, body: &Value) -> Reply {
    client.json("PUT", path, &[], body)
}

fn key(principal: &str) -> Value {
    json!({"principal": principal, "hash": HASH.repeat(32), "name": "ci"})
}

/// A role that permits everything, and a principal that has it.
fn administrator(client: &Client) {
    let verbs = tenure_types::Verb::ALL.map(tenure_types::Verb::name);
    let rules = json!({"rules": [{"verbs": verbs, "prefix": ""}]});
    put(client, "/v1/access/roles/administrator", &rules).ok();
    put(client, "/v1/access/principals/admin", &json!({"roles": ["administrator"]})).ok();
}

#[test]
fn roles_and_principals_are_put_listed_and_deleted() {
    let (_alone, client) = member();
    let rules = json!({"rules": [{"verbs": ["acquire", "read"], "prefix": "teams/a/"}]});
    put(&client, "/v1/access/roles/team-a", &rules).ok();
    let mut listed = client.get("/v1/access/roles").ok();
    assert_eq!(listed["roles"][0]["version"].take().as_str().map(str::len), Some(16));
    listed["roles"][0].as_object_mut().unwrap().remove("version");
    // Verbs come in their own order.
    let verbs = json!(["read", "acquire"]);
    assert_eq!(
        listed["roles"],
        json!([{"role": "team-a", "rules": [{"verbs": verbs, "prefix": "teams/a/"}]}])
    );

    let unknown = put(&client, "/v1/access/principals/a", &json!({"roles": ["team-b"]}));
    assert!(unknown.refused(400, "INVALID_FIELD").to_string().contains("team-b"));
    let quotas = json!({"leases": 10, "bytes": 4096});
    let body = json!({"roles": ["team-a"], "quotas": quotas});
    let principal = put(&client, "/v1/access/principals/teams/a", &body).ok();
    assert_eq!((&principal["enabled"], &principal["quotas"]), (&json!(true), &quotas));
    let disable = json!({"enabled": false});
    let path = "/v1/access/principals/teams/a";
    let principal = client.json("PATCH", path, &[], &disable).ok();
    assert_eq!((&principal["enabled"], &principal["roles"]), (&json!(false), &json!(["team-a"])));
    // A put that does not say keeps it disabled.
    assert_eq!(put(&client, path, &json!({"roles": []})).ok()["enabled"], false);
    assert_eq!(client.get(path).ok()["quotas"], json!({}));

    for name in ["b", "c", "d"] {
        put(&client, &format!("/v1/access/principals/{name}"), &json!({"roles": []})).ok();
    }
    let page = client.get("/v1/access/principals?limit=2").ok();
    assert_eq!((page["principals"].as_array().unwrap().len(), &page["next"]), (2, &json!("c")));
    let page = client.get("/v1/access/principals?limit=2&after=c").ok();
    assert_eq!(
        (&page["principals"][1]["principal"], &page["next"]),
        (&json!("teams/a"), &Value::Null)
    );

    assert_eq!(client.delete("/v1/access/roles/team-a").ok()["deleted"], true);
    assert_eq!(client.delete("/v1/access/roles/team-a").ok()["deleted"], false);
    assert_eq!(client.delete(path).ok()["deleted"], true);
    client.get(path).refused(404, "PRINCIPAL_NOT_FOUND");
}

#[test]
fn what_no_rule_could_mean_is_refused_and_named() {
    let (_alone, client) = member();
    let bad = [
        ("/v1/access/roles/r", json!({"rules": []})),
        ("/v1/access/roles/r", json!({"rules": [{"verbs": [], "prefix": ""}]})),
        ("/v1/access/roles/r", json!({"rules": [{"verbs": ["read"], "prefix": "x".repeat(513)}]})),
        ("/v1/access/principals/tenure/member", json!({"roles": []})),
        ("/v1/access/certificate-rules/r", json!({"pattern": "ana", "principal": "ana"})),
        ("/v1/access/certificate-rules/r", json!({"pattern": "cn:ana", "principal": ""})),
        ("/v1/access/issuers/i", json!({"audience": "tenure"})),
        ("/v1/access/issuers/i", json!({"audience": "tenure", "jwks": "{}"})),
        (
            "/v1/access/issuers/i",
            json!({"audience": "tenure", "jwks_url": "http://far.example/jwks"}),
        ),
        ("/v1/access/keys/0000000000000000", key("ana")),
        ("/v1/access/keys/ABCDEF0123456789", key("ana")),
    ];
    for (path, body) in bad {
        put(&client, path, &body).refused(400, "INVALID_FIELD");
    }
    let verb = json!({"rules": [{"verbs": ["write"], "prefix": ""}]});
    put(&client, "/v1/access/roles/r", &verb).refused(400, "MALFORMED");
    put(&client, "/v1/access/keys/0123456789abcdef", &key("ana"))
        .refused(404, "PRINCIPAL_NOT_FOUND");
    client.get("/v1/access/can?verb=write").refused(400, "INVALID_FIELD");
}

#[test]
fn keys_are_created_rotated_with_an_overlap_and_revoked_and_no_answer_has_a_hash() {
    let (_alone, client) = member();
    administrator(&client);
    let (old, new) = ("0123456789abcdef", "fedcba9876543210");
    let first = put(&client, &format!("/v1/access/keys/{old}"), &key("admin"));
    assert_eq!(first.ok(), json!({"key": old, "principal": "admin", "name": "ci"}));
    // A repetition changes nothing; another secret or principal under the same id is refused.
    put(&client, &format!("/v1/access/keys/{old}"), &key("admin")).ok();
    let other = json!({"principal": "admin", "hash": "cd".repeat(32)});
    put(&client, &format!("/v1/access/keys/{old}"), &other).refused(400, "INVALID_FIELD");

    let rotate = json!({"key": new, "hash": "cd".repeat(32), "overlap_ms": 3_600_000});
    let rotated = client.post(&format!("/v1/access/keys/{old}/rotate"), &rotate).ok();
    assert_eq!((&rotated["key"]["key"], &rotated["key"]["name"]), (&json!(new), &json!("ci")));
    let ends = rotated["old_key"]["expires_ms"].as_u64().unwrap();
    // A repetition does not let the old key live longer.
    let again = client.post(&format!("/v1/access/keys/{old}/rotate"), &rotate).ok();
    assert_eq!(again["old_key"]["expires_ms"].as_u64(), Some(ends));
    let listed = client.get("/v1/access/keys?principal=admin");
    assert_eq!(listed.ok()["keys"].as_array().unwrap().len(), 2);
    for path in ["/v1/access/keys", "/v1/access/principals", "/v1/access"] {
        let text = client.get(path).ok().to_string();
        assert!(!text.contains("hash") && !text.contains(&HASH.repeat(32)), "{text}");
    }
    // Without an overlap the old key is gone at once.
    let newest = "00112233445566ff";
    let rotate = json!({"key": newest, "hash": "ef".repeat(32), "overlap_ms": 0});
    client.post(&format!("/v1/access/keys/{new}/rotate"), &rotate).ok();
    let left = client.get("/v1/access/principals/admin").ok()["keys"].clone();
    let left: Vec<&str> =
        left.as_array().unwrap().iter().map(|it| it["key"].as_str().unwrap()).collect();
    assert_eq!(left, [old, newest]);
    assert_eq!(client.delete(&format!("/v1/access/keys/{old}")).ok()["deleted"], true);
    assert_eq!(client.delete(&format!("/v1/access/keys/{old}")).ok()["deleted"], false);
    client.post(&format!("/v1/access/keys/{old}/rotate"), &rotate).refused(400, "INVALID_FIELD");
}

#[test]
fn a_principal_has_four_keys_and_expired_ones_make_room() {
    let (_alone, client) = member();
    administrator(&client);
    let mut short = key("admin");
    short["expires_in_ms"] = json!(1);
    put(&client, "/v1/access/keys/1111111111111111", &short).ok();
    for digit in ["2", "3", "4", "5"] {
        put(&client, &format!("/v1/access/keys/{}", digit.repeat(16)), &key("admin")).ok();
    }
    put(&client, "/v1/access/keys/6666666666666666", &key("admin")).refused(507, "ACCESS_FULL");
}

#[test]
fn identity_is_enabled_only_if_an_administrator_can_prove_who_it_is() {
    let (_alone, client) = member();
    let enable = json!({"enabled": true});
    let path = "/v1/access/identity";
    put(&client, path, &enable).refused(409, "NO_ADMINISTRATOR");
    administrator(&client);
    let refused = put(&client, path, &enable).refused(409, "NO_ADMINISTRATOR");
    assert!(refused.to_string().contains("tenure auth init"), "{refused}");
    assert_eq!(client.get("/v1/access").ok()["administrable"], false);

    // A rule for the administrator's certificate, or an issuer that can name it, is enough.
    let rule = json!({"pattern": "cn:admin", "principal": "admin"});
    put(&client, "/v1/access/certificate-rules/a", &rule).ok();
    assert_eq!(client.get("/v1/access").ok()["administrable"], true);
    assert_eq!(client.get("/v1/access/certificate-rules").ok()["rules"][0]["pattern"], "cn:admin");
    assert_eq!(client.delete("/v1/access/certificate-rules/a").ok()["deleted"], true);
    let issuer =
        json!({"audience": "tenure", "jwks_url": "https://idp.example/jwks", "prefix": "idp:"});
    let at = "/v1/access/issuers/https%3A%2F%2Fidp.example";
    put(&client, at, &issuer).ok();
    let known = client.get("/v1/access/issuers").ok()["issuers"][0].clone();
    assert_eq!((&known["issuer"], &known["claim"]), (&json!("https://idp.example"), &json!("sub")));
    assert_eq!(client.get("/v1/access").ok()["administrable"], false, "no name begins with idp:");
    assert_eq!(client.delete(at).ok()["deleted"], true);

    put(&client, "/v1/access/keys/0123456789abcdef", &key("admin")).ok();
    let status = client.get("/v1/access").ok();
    assert_eq!((&status["enabled"], &status["keys"]), (&json!(false), &json!(1)));
    put(&client, path, &enable).ok();
}

/// Every call that changes the access rules.
fn changes() -> [(&'static str, &'static str, Value); 15] {
    let rules = json!({"rules": [{"verbs": ["administer"], "prefix": ""}]});
    let rotate = json!({"key": "2".repeat(16), "hash": "cd".repeat(32), "overlap_ms": 0});
    let issuer = json!({"audience": "tenure", "jwks_url": "https://idp.example/jwks"});
    [
        ("PUT", "/v1/access/roles/r", rules),
        ("DELETE", "/v1/access/roles/administrator", Value::Null),
        ("PUT", "/v1/access/principals/eve", json!({"roles": ["administrator"]})),
        ("PATCH", "/v1/access/principals/admin", json!({"enabled": false})),
        ("DELETE", "/v1/access/principals/admin", Value::Null),
        ("PUT", "/v1/access/keys/3333333333333333", key("admin")),
        ("POST", "/v1/access/keys/1111111111111111/rotate", rotate),
        ("DELETE", "/v1/access/keys/1111111111111111", Value::Null),
        (
            "PUT",
            "/v1/access/certificate-rules/c",
            json!({"pattern": "cn:eve", "principal": "admin"}),
        ),
        ("DELETE", "/v1/access/certificate-rules/a", Value::Null),
        ("PUT", "/v1/access/issuers/i", issuer),
        ("DELETE", "/v1/access/issuers/i", Value::Null),
        ("PUT", "/v1/access/quotas", json!({"requests_per_second": 0})),
        ("PUT", "/v1/access/identity", json!({"enabled": true})),
        ("PUT", "/v1/access/identity", json!({"enabled": false})),
    ]
}

#[test]
fn before_identity_is_enabled_only_administrators_change_the_access_rules() {
    let (alone, client) = member();
    administrator(&client);
    let rules = json!({"rules": [{"verbs": ["read", "acquire", "operate"], "prefix": ""}]});
    put(&client, "/v1/access/roles/worker", &rules).ok();
    put(&client, "/v1/access/principals/bob", &json!({"roles": ["worker"]})).ok();
    let secret = "5".repeat(64);
    let hash = ring::digest::digest(&ring::digest::SHA256, secret.as_bytes());
    let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let bearer = |id: char, principal: &str| {
        let id = id.to_string().repeat(16);
        let body = json!({"principal": principal, "hash": hash});
        put(&client, &format!("/v1/access/keys/{id}"), &body).ok();
        format!("Bearer tenure_{id}_{secret}")
    };
    let (admin, bob) = (bearer('1', "admin"), bearer('4', "bob"));
    let rule = json!({"pattern": "cn:admin", "principal": "admin"});
    put(&client, "/v1/access/certificate-rules/a", &rule).ok();
    let shown = || -> Vec<Value> {
        let parts = ["roles", "principals", "keys", "certificate-rules", "issuers"];
        let status = client.get("/v1/access").ok();
        let status = json!([status["enabled"], status["default_quotas"]]);
        let all = parts.iter().map(|part| {
            let mut shown = client.get(&format!("/v1/access/{part}")).ok();
            shown.as_object_mut().unwrap().remove("header");
            shown
        });
        all.chain([status]).collect()
    };
    let before = shown();
    let stranger = Client::new(alone.running.clients, "eve");
    for (verb, path, body) in changes() {
        let ask = |bearer: &str| {
            let headers = [("Authorization", bearer)];
            if body.is_null() {
                return stranger.ask(verb, path, &headers, b"");
            }
            stranger.json(verb, path, &headers, &body)
        };
        ask("").refused(401, "UNAUTHENTICATED");
        let refused = ask(&bob).refused(403, "PERMISSION_DENIED");
        assert!(refused.to_string().contains("`administer`"), "{verb} {path}: {refused}");
        assert_eq!(shown(), before, "{verb} {path} had an effect");
    }
    // Everything else stays open, and an administrator with a role enables identity.
    stranger.lease(60_000);
    let enable = json!({"enabled": true});
    stranger.json("PUT", "/v1/access/identity", &[("Authorization", &admin)], &enable).ok();
    stranger.get("/v1/limits").refused(401, "UNAUTHENTICATED");
    // Identity can be disabled, and the rules stay as safe as they were.
    let disable = json!({"enabled": false});
    put(&client, "/v1/access/identity", &disable).ok();
    put(&stranger, "/v1/access/identity", &enable).refused(401, "UNAUTHENTICATED");
    stranger.get("/v1/limits").ok();
}

#[test]
fn a_cluster_below_level_3_names_the_command_that_raises_it() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ServerSettings { level_known: 2, ..settings(dir.path()) };
    let alone = Alone::run(dir, settings);
    let client = Client::new(alone.running.clients, "ana");
    assert_eq!(client.get("/v1/access").ok()["level"], 2);
    let rules = json!({"rules": [{"verbs": ["read"], "prefix": ""}]});
    let refused = put(&client, "/v1/access/roles/r", &rules).refused(409, "LEVEL_TOO_LOW");
    assert!(refused.to_string().contains("tenure cluster raise-level 15"), "{refused}");
}

#[test]
fn a_cluster_below_level_6_refuses_a_min_hold_and_names_the_command_that_raises_it() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ServerSettings { level_known: 5, ..settings(dir.path()) };
    let alone = Alone::run(dir, settings);
    let client = Client::new(alone.running.clients, "ana");
    let lease = client.lease(60_000);
    let ask = json!({"lease": lease, "min_hold_ms": 1_000});
    let refused = client.post("/v1/locks/hourly", &ask).refused(409, "LEVEL_TOO_LOW");
    assert!(refused.to_string().contains("tenure cluster raise-level 15"), "{refused}");
    client.lock("hourly", &lease);
}

#[test]
fn a_cluster_below_level_8_knows_no_priorities_and_names_the_command_that_raises_it() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ServerSettings { level_known: 7, ..settings(dir.path()) };
    let alone = Alone::run(dir, settings);
    let client = Client::new(alone.running.clients, "ana");
    let lease = client.lease(60_000);
    let ask = json!({"lease": lease, "priority": 1});
    let refused = client.post("/v1/locks/jobs", &ask).refused(409, "LEVEL_TOO_LOW");
    assert!(refused.to_string().contains("tenure cluster raise-level 15"), "{refused}");
    client.lock("jobs", &lease);
}

#[test]
fn a_cluster_below_level_11_grants_one_slot_at_a_time_and_sets_no_size() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ServerSettings { level_known: 10, ..settings(dir.path()) };
    let alone = Alone::run(dir, settings);
    let client = Client::new(alone.running.clients, "ana");
    let lease = client.lease(60_000);
    let ask = json!({"lease": lease, "slots": 4, "take": 2});
    let refused = client.post("/v1/locks/pool", &ask).refused(409, "LEVEL_TOO_LOW");
    assert!(refused.to_string().contains("tenure cluster raise-level 15"), "{refused}");
    let size = json!({"slots": 3});
    client.json("PUT", "/v1/semaphores/pool", &[], &size).refused(409, "LEVEL_TOO_LOW");
}

#[test]
fn a_cluster_below_level_9_takes_no_promise_and_no_report_of_progress() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ServerSettings { level_known: 8, ..settings(dir.path()) };
    let alone = Alone::run(dir, settings);
    let client = Client::new(alone.running.clients, "ana");
    let lease = client.lease(60_000);
    let ask = json!({"lease": lease, "progress_within_ms": 1_000});
    let refused = client.post("/v1/locks/copy", &ask).refused(409, "LEVEL_TOO_LOW");
    assert!(refused.to_string().contains("tenure cluster raise-level 15"), "{refused}");
    let token = client.lock("copy", &lease);
    let report = json!({"lease": lease, "token": token, "progress": "1"});
    client.json("PATCH", "/v1/locks/copy", &[], &report).refused(409, "LEVEL_TOO_LOW");
}

#[test]
fn a_cluster_below_level_10_upgrades_nothing_and_hands_nothing_on() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ServerSettings { level_known: 9, ..settings(dir.path()) };
    let alone = Alone::run(dir, settings);
    let client = Client::new(alone.running.clients, "ana");
    let lease = client.lease(60_000);
    let ask = json!({"lease": lease, "upgrade": true});
    client.post("/v1/locks/data", &ask).refused(409, "LEVEL_TOO_LOW");
    let token = client.lock("data", &lease);
    let given = json!({"lease": lease, "token": token, "hand_on_to": lease});
    client.json("PATCH", "/v1/locks/data", &[], &given).refused(409, "LEVEL_TOO_LOW");
}

#[test]
fn a_cluster_below_level_7_drains_nothing_and_names_the_command_that_raises_it() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ServerSettings { level_known: 6, ..settings(dir.path()) };
    let alone = Alone::run(dir, settings);
    let client = Client::new(alone.running.clients, "ana");
    let drain = json!({"prefix": "db/", "reason": "new disks"});
    let refused = client.post("/v1/drains", &drain).refused(409, "LEVEL_TOO_LOW");
    assert!(refused.to_string().contains("tenure cluster raise-level 15"), "{refused}");
    assert_eq!(client.get("/v1/drains").ok()["drains"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn can_tells_by_which_role_or_what_is_missing() {
    let (alone, client) = member();
    tokio::task::spawn_blocking(move || {
        let rules = json!({"rules": [{"verbs": ["read"], "prefix": ""}, {"verbs": ["acquire"], "prefix": "jobs/"}]});
        put(&client, "/v1/access/roles/worker", &rules).ok();
        put(&client, "/v1/access/principals/alice", &json!({"roles": ["worker"]})).ok();
        put(&client, "/v1/access/principals/bob", &json!({"roles": ["worker"], "enabled": false})).ok();
    })
    .await
    .unwrap();
    let address = format!("http://{}", alone.running.clients);
    let mut access = AccessServiceClient::connect(address).await.unwrap();
    let asked = [
        (
            "alice",
            "acquire",
            "jobs/7",
            true,
            "role `worker` permits `acquire` for names that begin with `jobs/`",
        ),
        ("alice", "acquire", "deploy", false, "only for names that begin with `jobs/`"),
        ("alice", "read", "deploy", true, "role `worker` permits `read` for every name"),
        ("alice", "force", "jobs/7", false, "none of its roles permits `force`: worker"),
        ("bob", "acquire", "jobs/7", false, "`bob` is disabled"),
        ("carol", "acquire", "jobs/7", false, "no principal `carol`"),
        ("", "acquire", "jobs/7", false, "without credentials"),
    ];
    for (principal, verb, name, allowed, why) in asked {
        let [principal, verb, name] = [principal, verb, name].map(str::to_owned);
        let ask = v1::CanRequest { principal, verb, name, priority: 0 };
        let answer = access.can(ask.clone()).await.unwrap().into_inner();
        assert_eq!(answer.allowed, allowed, "{ask:?}: {answer:?}");
        assert!(answer.why.contains(why), "{ask:?}: {answer:?}");
        assert_eq!(
            (answer.role.as_str(), answer.enabled),
            (if allowed { "worker" } else { "" }, false)
        );
    }
}

#[test]
fn two_administrators_do_not_overwrite_each_other_unknowingly() {
    let (_alone, client) = member();
    let rules = |prefix: &str| json!({"rules": [{"verbs": ["read"], "prefix": prefix}]});
    let role = |mut body: Value, version: &str| {
        body["if_version"] = version.into();
        put(&client, "/v1/access/roles/r", &body)
    };
    role(rules("a/"), "none").ok();
    role(rules("b/"), "none").refused(409, "ACCESS_CHANGED");
    let seen = client.get("/v1/access/roles").ok()["roles"][0]["version"].clone();
    let seen = seen.as_str().unwrap();
    role(rules("b/"), seen).ok();
    // The other administrator has seen the role as it was before.
    let refused = role(rules("c/"), seen).refused(409, "ACCESS_CHANGED").to_string();
    assert!(refused.contains("changed it meanwhile"), "{refused}");
    // A call whose answer was lost is repeated.
    role(rules("b/"), seen).ok();
    put(&client, "/v1/access/roles/r", &rules("c/")).ok();

    let path = "/v1/access/principals/p";
    let put_at = |roles: &[&str], version: &str| {
        put(&client, path, &json!({"roles": roles, "if_version": version}))
    };
    let first = put_at(&["r"], "none").ok()["version"].as_str().unwrap().to_owned();
    // An API key makes no other version; being disabled does.
    put(&client, "/v1/access/keys/0123456789abcdef", &key("p")).ok();
    assert_eq!(client.get(path).ok()["version"], first.as_str());
    let off = client.json("PATCH", path, &[], &json!({"enabled": false})).ok();
    assert_ne!(off["version"], first.as_str());
    put_at(&[], &first).refused(409, "ACCESS_CHANGED");
    let now = put_at(&[], off["version"].as_str().unwrap()).ok();
    assert_eq!((&now["enabled"], &now["roles"]), (&json!(false), &json!([])));
}

#[test]
fn enabling_a_principal_keeps_what_another_call_changes_at_the_same_time() {
    let (_alone, client) = member();
    put(&client, "/v1/access/roles/r", &json!({"rules": [{"verbs": ["read"], "prefix": ""}]})).ok();
    let path = "/v1/access/principals/p";
    put(&client, path, &json!({"roles": [], "quotas": {"leases": 0}})).ok();
    let other = client.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let client = other;
            for at in 0..100 {
                client.json("PATCH", path, &[], &json!({"enabled": at % 2 == 0})).ok();
            }
        });
        for leases in 1..=100 {
            put(&client, path, &json!({"roles": ["r"], "quotas": {"leases": leases}})).ok();
            let now = client.get(path).ok();
            assert_eq!(now["quotas"], json!({"leases": leases}), "the other call set it back");
        }
    });
    assert_eq!(client.get(path).ok()["enabled"], false, "the last word of the other");
}

#[test]
fn a_rule_may_permit_priorities_and_check_tells_which() {
    let (_alone, client) = member();
    let rules = json!({"rules": [
        {"verbs": ["acquire", "read"], "prefix": "deploy/", "priority": 3},
        {"verbs": ["read"], "prefix": ""},
    ]});
    put(&client, "/v1/access/roles/deployer", &rules).ok();
    let listed = client.get("/v1/access/roles").ok();
    let rules = &listed["roles"][0]["rules"];
    assert_eq!(
        *rules,
        json!([
            {"verbs": ["read", "acquire"], "prefix": "deploy/", "priority": 3},
            {"verbs": ["read"], "prefix": ""},
        ])
    );
    // Its version tells the priority apart.
    let version = listed["roles"][0]["version"].clone();
    let other = json!({"rules": [
        {"verbs": ["acquire", "read"], "prefix": "deploy/", "priority": 4},
        {"verbs": ["read"], "prefix": ""},
    ]});
    put(&client, "/v1/access/roles/other", &other).ok();
    assert_ne!(client.get("/v1/access/roles").ok()["roles"][1]["version"], version);

    put(&client, "/v1/access/principals/bot", &json!({"roles": ["deployer"]})).ok();
    let can = |query: &str| client.get(&format!("/v1/access/can?principal=bot&{query}")).ok();
    let plain = can("verb=acquire&name=deploy/web");
    assert_eq!((&plain["allowed"], &plain["priority_max"]), (&json!(true), &json!(3)));
    let within = can("verb=acquire&name=deploy/web&priority=3");
    assert_eq!((&within["allowed"], &within["role"]), (&json!(true), &json!("deployer")));
    let beyond = can("verb=acquire&name=deploy/web&priority=4");
    let why = "its roles permit `acquire` with priorities up to 3 for this name, not 4";
    assert_eq!((&beyond["allowed"], &beyond["why"]), (&json!(false), &json!(why)));
    assert_eq!(can("verb=acquire&name=other&priority=1")["allowed"], false);
    let absurd = client.get("/v1/access/can?principal=bot&verb=read&name=x&priority=1");
    absurd.refused(400, "INVALID_FIELD");

    for (verbs, priority) in [(json!(["acquire"]), 10), (json!(["read", "force"]), 1)] {
        let rules = json!({"rules": [{"verbs": verbs, "prefix": "", "priority": priority}]});
        put(&client, "/v1/access/roles/wrong", &rules).refused(400, "INVALID_FIELD");
    }
}

#[test]
fn a_cluster_below_level_15_has_no_rules_that_permit_priorities() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ServerSettings { level_known: 14, ..settings(dir.path()) };
    let alone = Alone::run(dir, settings);
    let client = Client::administrator(alone.running.clients, "ana", &alone.data());
    let rules =
        |priority| json!({"rules": [{"verbs": ["acquire"], "prefix": "", "priority": priority}]});
    let refused = put(&client, "/v1/access/roles/r", &rules(1)).refused(409, "LEVEL_TOO_LOW");
    assert!(refused.to_string().contains("tenure cluster raise-level 15"), "{refused}");
    put(&client, "/v1/access/roles/r", &rules(0)).ok();
}
