//! Tests every HTTP path, on any member.

use serde_json::{Value, json};

use crate::client::Client;
use crate::members::wait;

/// The number of waiters of a lock.
fn waiting(at: &Client, lock: &str) -> u64 {
    at.get(&format!("/v1/locks/{lock}")).ok()["lock"]["waiting"].as_u64().unwrap_or(0)
}

pub(crate) fn leases_live_and_end(at: &Client) {
    let granted = at.post("/v1/leases", &json!({"ttl_ms": 60000, "client": "c", "metadata": "m"}));
    let granted = granted.ok();
    let lease = granted["lease"].as_str().unwrap();
    assert_eq!(granted["ttl_ms"], 60000);
    assert!(granted["header"]["revision"].as_str().unwrap().parse::<u64>().unwrap() > 0);
    let shown = at.get(&format!("/v1/leases/{lease}")).ok();
    assert_eq!((&shown["client"], &shown["metadata"]), (&json!("c"), &json!("m")));
    assert!(shown["left_ms"].as_u64().unwrap() <= 60000);
    let renewed = at.ask("POST", &format!("/v1/leases/{lease}/renew"), &[], b"").ok();
    assert_eq!((&renewed["ttl_ms"], &renewed["changed"]), (&json!(60000), &json!("0")));
    // Several at once: ended leases are reported beside live ones.
    let several = at.post("/v1/leases/renew", &json!({"leases": [lease, "9007199254740991"]})).ok();
    let ttls: Vec<_> = (0..2).map(|at| several["leases"][at]["ttl_ms"].clone()).collect();
    assert_eq!(ttls, [json!(60000), json!(0)]);
    at.post("/v1/leases/renew", &json!({"leases": []})).refused(400, "INVALID_FIELD");
    let too_many = json!({"leases": vec![lease; 5_000]});
    at.post("/v1/leases/renew", &too_many).refused(400, "TOO_MANY_IN_COMMAND");
    let before = lease.parse::<u64>().unwrap() - 1;
    let page = at.get(&format!("/v1/leases?limit=1&after={before}")).ok();
    assert_eq!(page["leases"][0]["lease"], lease);
    assert_eq!(page["next"], lease);
    assert_eq!(at.delete(&format!("/v1/leases/{lease}")).ok()["lease"], lease);
    at.get(&format!("/v1/leases/{lease}")).refused(404, "LEASE_NOT_FOUND");
    at.delete(&format!("/v1/leases/{lease}")).refused(404, "LEASE_NOT_FOUND");
    let renew = format!("/v1/leases/{lease}/renew");
    at.ask("POST", &renew, &[], b"").refused(404, "LEASE_NOT_FOUND");
    // Another client revokes the lease: its locks cool.
    let lock = at.own("revoked");
    let lease = at.lease(60_000);
    at.lock(&lock, &lease);
    at.delete(&format!("/v1/leases/{lease}?reason=gone")).ok();
    let cooling = at.get(&format!("/v1/locks/{lock}")).ok();
    assert_eq!(cooling["lock"]["holders"][0]["state"], "cooling");
    let lease = at.lease(60_000);
    at.delete(&format!("/v1/leases/{lease}?reason=gone&now=true")).ok();
}

pub(crate) fn locks_are_taken_looked_at_changed_and_released(at: &Client) {
    let (lease, other) = (at.lease(60_000), at.lease(60_000));
    let lock = at.own("a b/ü");
    let path = format!("/v1/locks/{}", lock.replace(' ', "%20").replace('ü', "%C3%BC"));
    assert!(at.get(&path).ok().get("lock").is_none());
    let body = json!({"lease": lease, "metadata": "release 5.2", "max_hold_ms": 600_000});
    let held = at.post(&path, &body).ok();
    assert_eq!((&held["lock"], &held["acquired"]), (&json!(lock), &json!(true)));
    let token = held["token"].as_str().unwrap();
    let error = at.post(&path, &json!({"lease": other})).refused(423, "HELD");
    assert_eq!((&error["lock"], &error["holder"]["token"]), (&json!(lock), &json!(token)));
    assert_eq!((&error["ahead"], &error["next"]), (&json!(0), &json!("add ?wait=30s to queue")));
    let shown = at.get(&path).ok();
    assert_eq!(shown["lock"]["holders"][0]["metadata"], "release 5.2");
    let page = at.get(&format!("/v1/locks?prefix={}/a&limit=5", lock.split('/').next().unwrap()));
    assert_eq!(page.ok()["locks"][0]["lock"], lock);
    let explained = at.get(&format!("{path}?view=explain&lease={other}")).ok();
    assert_eq!(explained["chain"][0]["lease"], lease);
    assert!(explained["free_at_latest_ms"].as_u64().is_some());

    let patch = json!({"lease": lease, "token": token, "metadata": "release 5.3"});
    assert_eq!(at.json("PATCH", &path, &[], &patch).ok()["version"], 2);
    let patch = json!({"lease": lease, "token": token, "mode": "shared"});
    let downgraded = at.json("PATCH", &path, &[], &patch).ok();
    let shared = downgraded["token"].as_str().unwrap();
    assert_ne!(shared, token);
    let second = at.post(&path, &json!({"lease": other, "mode": "shared"})).ok();
    let history = at.get(&format!("{path}?view=history")).ok();
    let causes: Vec<_> = history["changes"].as_array().unwrap().iter().collect();
    assert_eq!(causes[0]["events"][0]["cause"], "granted");
    assert_eq!(causes[0]["events"][0]["token"], token);
    assert_eq!(causes.len(), 4, "{history}");
    let next = history["next"].as_str().unwrap();
    let rest = at.get(&format!("{path}?view=history&from={next}")).ok();
    assert_eq!(rest["changes"], json!([]));
    let one = at.get(&format!("{path}?view=history&limit=1")).ok();
    assert_eq!(one["changes"].as_array().unwrap().len(), 1);
    assert_eq!(one["next"], causes[1]["revision"]);

    at.delete(&format!("{path}?lease={lease}&token={token}")).refused(409, "NOT_HOLDER");
    assert_eq!(at.delete(&format!("{path}?lease={lease}&token={shared}")).ok()["lock"], lock);
    let token = second["token"].as_str().unwrap();
    at.delete(&format!("{path}?lease={other}&token={token}")).ok();
    assert!(at.get(&path).ok().get("lock").is_none());
}

pub(crate) fn several_locks_are_taken_at_once(at: &Client) {
    let (lease, other) = (at.lease(60_000), at.lease(60_000));
    let (a, b) = (at.own("all/a"), at.own("all/b"));
    let body = json!({"lease": lease, "locks": [a, {"lock": b, "slots": 2}]});
    let held = at.post("/v1/locks", &body).ok();
    assert_eq!(held["locks"][0]["lock"], a);
    assert_eq!((&held["locks"][1]["lock"], &held["locks"][1]["slot"]), (&json!(b), &json!(0)));
    let body = json!({"lease": other, "locks": [a, {"lock": b, "slots": 2}]});
    at.post("/v1/locks", &body).refused(423, "HELD");
    let body = json!({"lease": other, "locks": [b]});
    at.post("/v1/locks", &body).refused(409, "OTHER_KIND");
    let new = json!({"locks": [{"lock": b, "slots": 2}], "new_lease": {"ttl_ms": 60000}});
    let held = at.post("/v1/locks", &new).ok();
    assert_eq!((&held["lock"], &held["slot"]), (&json!(b), &json!(1)));
    assert!(held["lease"]["lease"].as_str().is_some());
}

pub(crate) fn long_polls_wait_leave_or_keep_their_place(at: &Client) {
    let lock = at.own("poll");
    let path = format!("/v1/locks/{lock}");
    let (holder, waiter, third) = (at.lease(60_000), at.lease(60_000), at.lease(60_000));
    let token = at.lock(&lock, &holder);

    // The wait times out, and the place is gone.
    let ask = json!({"lease": waiter});
    at.post(&format!("{path}?wait=50ms"), &ask).refused(423, "WAIT_TIMEOUT");
    assert_eq!(waiting(at, &lock), 0);

    // The wait times out and the place is kept; repeating the request resumes it.
    let kept = at.post(&format!("{path}?wait=50ms&keep=true"), &ask);
    assert_eq!(kept.status, 202);
    let place = kept.value()["place"].clone();
    assert_eq!((&kept.value()["acquired"], &kept.value()["ahead"]), (&json!(false), &json!(0)));
    let behind = at.post(&format!("{path}?keep=true"), &json!({"lease": third}));
    assert_eq!((behind.status, &behind.value()["ahead"]), (202, &json!(1)));
    let queue = at.get(&format!("{path}?view=queue&limit=1")).ok();
    assert_eq!(queue["waiters"][0]["lease"], waiter);
    let after = queue["next"].as_str().unwrap();
    let queue = at.get(&format!("{path}?view=queue&after={after}")).ok();
    assert_eq!(queue["waiters"][0]["lease"], third);
    let resumed = at.post(&format!("{path}?wait=1ms&keep=true"), &ask);
    assert_eq!((resumed.status, &resumed.value()["place"]), (202, &place));

    // A client that goes away leaves the queue.
    let gone = at.lease(60_000);
    let body = json!({"lease": gone}).to_string();
    let json = [("Content-Type", "application/json")];
    let stream = at.send("POST", &format!("{path}?wait=30s"), &json, body.as_bytes());
    wait("it waits", || (waiting(at, &lock) == 3).then_some(()));
    drop(stream);
    wait("it has left", || (waiting(at, &lock) == 2).then_some(()));

    // A place is given up without a token.
    at.delete(&format!("{path}?lease={third}")).ok();
    at.delete(&format!("{path}?lease={third}")).refused(409, "NOT_WAITING");

    // The lock is granted.
    let polling = {
        let (at, path, ask) = (at.clone(), path.clone(), ask.clone());
        std::thread::spawn(move || at.post(&format!("{path}?wait=30s"), &ask).ok())
    };
    at.delete(&format!("{path}?lease={holder}&token={token}")).ok();
    let held = polling.join().unwrap();
    assert_eq!((&held["acquired"], &held["place"]), (&json!(true), &place));

    // A long poll does not renew the lease.
    let short = at.lease(2_000);
    let error = at.post(&format!("{path}?wait=5s"), &json!({"lease": short}));
    let error = error.refused(400, "WAIT_TOO_LONG");
    assert!(error["bound"].as_u64().unwrap() <= 2_000, "{error}");
    let new = json!({"new_lease": {"ttl_ms": 2000}});
    at.post(&format!("{path}?wait=5s"), &new).refused(400, "WAIT_TOO_LONG");
    assert_eq!(waiting(at, &lock), 0);
}

pub(crate) fn the_same_key_has_the_same_answer(at: &Client) {
    let key = [("Idempotency-Key", &*at.own("grant"))];
    let new = json!({"ttl_ms": 60000, "client": "c"});
    let granted = at.json("POST", "/v1/leases", &key, &new).ok();
    let again = at.json("POST", "/v1/leases", &key, &new).ok();
    assert_eq!((&granted["lease"], &granted["created"]), (&again["lease"], &again["created"]));
    let other = json!({"ttl_ms": 50000, "client": "c"});
    at.json("POST", "/v1/leases", &key, &other).refused(409, "REQUEST_ID_CONFLICT");

    let path = format!("/v1/keys/{}", at.own("once"));
    let key = [("Idempotency-Key", &*at.own("put")), ("If-None-Match", "*")];
    let put = at.ask("PUT", &path, &key, b"1").ok();
    assert_eq!(at.ask("PUT", &path, &key, b"1").ok()["version"], put["version"]);
    at.ask("PUT", &path, &key, b"2").refused(409, "REQUEST_ID_CONFLICT");
    assert_eq!(at.get(&path).body, b"1");

    // A repeated write has the revision of the first: its ETag must not let a client overwrite later writes.
    let first = at.ask("PUT", &path, &key, b"1");
    let mark = first.header("etag").unwrap().to_owned();
    assert_eq!(first.ok()["header"]["revision"], put["header"]["revision"]);
    assert_ne!(at.ask("PUT", &path, &[], b"later").header("etag"), Some(&*mark));
    let again = at.ask("PUT", &path, &key, b"1");
    assert_eq!((again.header("etag"), again.ok()), (Some(&*mark), first.ok()));
    at.ask("PUT", &path, &[("If-Match", &mark)], b"lost").refused(412, "COMPARE_FAILED");
    assert_eq!(at.get(&path).body, b"later");

    // An acquire that is over is not repeated.
    let lock = at.own("once");
    let path = format!("/v1/locks/{lock}");
    let key = [("Idempotency-Key", &*at.own("ask"))];
    let ask = json!({"lease": at.lease(60_000)});
    let held = at.json("POST", &path, &key, &ask).ok();
    assert_eq!(at.json("POST", &path, &key, &ask).ok()["token"], held["token"]);
    let (lease, token) = (ask["lease"].as_str().unwrap(), held["token"].as_str().unwrap());
    at.delete(&format!("{path}?lease={lease}&token={token}")).ok();
    at.json("POST", &path, &key, &ask).refused(409, "REQUEST_STALE");
    assert_eq!(at.get(&path).ok().get("lock"), None);
}

pub(crate) fn locks_are_taken_away(at: &Client) {
    let (lock, lease) = (at.own("forced"), at.lease(60_000));
    let token = at.lock(&lock, &lease);
    let force = |token: &str| json!({"lock": lock, "token": token, "by": "ops@host", "reason": "r", "now": true});
    let error = at.post("/v1/force", &force("1")).refused(409, "TOKEN_OUTDATED");
    assert_eq!(error["holder"]["token"], token);
    assert_eq!(at.post("/v1/force", &force(&token)).ok()["left_ms"], 0);
    assert_eq!(at.get(&format!("/v1/locks/{lock}")).ok().get("lock"), None);
    let renewed = at.ask("POST", &format!("/v1/leases/{lease}/renew"), &[], b"").ok();
    assert_ne!(renewed["changed"], "0");
    // The history of a lock records the actor that took it away and the reason, also for a revoked lease.
    let revoked = at.lease(60_000);
    at.lock(&lock, &revoked);
    at.delete(&format!("/v1/leases/{revoked}?by=ops%40host&reason=gone&now=true")).ok();
    let history = at.get(&format!("/v1/locks/{lock}?view=history")).ok();
    let changes = history["changes"].as_array().unwrap();
    let events = changes.iter().flat_map(|change| change["events"].as_array().unwrap());
    let named = events.filter(|event| event["by"] == "ops@host");
    let named: Vec<_> = named.map(|event| (&event["cause"], &event["reason"])).collect();
    assert_eq!(named, [(&json!("forced"), &json!("r")), (&json!("revoked"), &Value::Null)]);
}

pub(crate) fn elections_have_a_leader(at: &Client) {
    let path = format!("/v1/elections/{}", at.own("billing"));
    let (lease, other) = (at.lease(60_000), at.lease(60_000));
    assert_eq!(at.get(&path).ok().get("leader"), None);
    let led = at.post(&path, &json!({"lease": lease, "value": "10.0.0.5:9000"})).ok();
    let token = led["leader"]["token"].as_str().unwrap();
    assert_eq!(
        (&led["leader"]["lease"], &led["leader"]["value"]),
        (&json!(lease), &json!("10.0.0.5:9000"))
    );
    assert!(!led["leader"]["client"].as_str().unwrap().is_empty());
    at.post(&path, &json!({"lease": other})).refused(423, "HELD");
    let next = at.post(&format!("{path}?keep=true"), &json!({"lease": other, "value": "b"}));
    assert_eq!((next.status, &next.value()["ahead"]), (202, &json!(0)));
    let value = json!({"lease": lease, "token": token, "value_base64": "/w=="});
    at.json("PUT", &path, &[], &value).ok();
    assert_eq!(at.get(&path).ok()["leader"]["value_base64"], "/w==");
    let value = json!({"lease": other, "token": token});
    at.json("PUT", &path, &[], &value).refused(409, "NOT_HOLDER");
    at.delete(&format!("{path}?lease={lease}&token={token}")).ok();
    let led = at.get(&path).ok();
    assert_eq!((&led["leader"]["lease"], &led["leader"]["value"]), (&json!(other), &json!("b")));
}

pub(crate) fn keys_are_bytes_with_conditions(at: &Client) {
    let path = format!("/v1/keys/{}", at.own("config/x"));
    at.get(&path).refused(404, "KEY_NOT_FOUND");
    let bytes = b"\xff\x00\r\n raw";
    let put = at.ask("PUT", &path, &[("If-None-Match", "*")], bytes);
    let mark = put.header("etag").unwrap().to_owned();
    assert_eq!(put.ok()["version"], 1);
    assert_eq!(mark, format!("\"{}\"", put.ok()["header"]["revision"].as_str().unwrap()));
    let read = at.get(&path);
    assert_eq!((read.status, &read.body[..], read.header("etag")), (200, &bytes[..], Some(&*mark)));
    at.ask("PUT", &path, &[("If-None-Match", "*")], b"x").refused(412, "COMPARE_FAILED");
    at.ask("PUT", &path, &[("If-Match", "\"1\"")], b"x").refused(412, "COMPARE_FAILED");
    at.ask("DELETE", &path, &[("If-Match", "\"1\"")], b"").refused(412, "COMPARE_FAILED");
    assert_eq!(at.get(&path).body, bytes);
    assert_eq!(at.ask("PUT", &path, &[("If-Match", &mark)], b"2").ok()["version"], 2);
    let prefix = at.own("config/");
    let page = at.get(&format!("/v1/keys?prefix={prefix}&limit=10")).ok();
    assert_eq!((&page["keys"][0]["value"], page.get("next")), (&json!("2"), None));

    // Writes that are guarded by a lock and bound to a lease.
    let (lock, lease) = (at.own("guard"), at.lease(60_000));
    let token = at.lock(&lock, &lease);
    at.ask("PUT", &format!("{path}?lock={lock}&token=1"), &[], b"3").refused(412, "GUARD_FAILED");
    assert_eq!(at.get(&path).body, b"2");
    at.ask("PUT", &format!("{path}?lock={lock}&token={token}&lease={lease}"), &[], b"3").ok();
    at.delete(&format!("/v1/leases/{lease}")).ok();
    at.get(&path).refused(404, "KEY_NOT_FOUND");
    assert_eq!(at.delete(&path).ok()["existed"], false);
    at.ask("PUT", &path, &[], b"").ok();
    assert_eq!(at.delete(&path).ok()["existed"], true);
    at.ask("PUT", "/v1/keys/tenure/x", &[], b"").refused(403, "PERMISSION_DENIED");
}

pub(crate) fn limits_and_members_are_shown(at: &Client) {
    let value = |shown: &serde_json::Value| {
        let limits = shown["limits"].as_array().unwrap().clone();
        limits.into_iter().find(|it| it["limit"] == "waiters_per_lock").unwrap()["value"].clone()
    };
    let set = |value: u64| json!({"limits": [{"limit": "waiters_per_lock", "value": value}]});
    let old = value(&at.get("/v1/limits").ok());
    assert_eq!(value(&at.json("PATCH", "/v1/limits", &[], &set(77)).ok()), 77);
    at.json("PATCH", "/v1/limits", &[], &set(1 << 40)).refused(400, "INVALID_LIMIT");
    assert_eq!(value(&at.get("/v1/limits").ok()), 77);
    at.json("PATCH", "/v1/limits", &[], &set(old.as_u64().unwrap())).ok();

    let status = at.get("/v1/cluster").ok();
    let members = status["members"].as_array().unwrap();
    assert!(status["leader"]["name"].as_str().unwrap().starts_with('m'), "{status}");
    assert_eq!(status["survives"], members.len() / 2);
    assert!(members.iter().all(|it| it["up"] == true), "{status}");
    let listed = at.get("/v1/cluster/members").ok();
    assert_eq!(listed["members"].as_array().unwrap().len(), members.len());
    // The member's own view agrees with the cluster's, and the level is unchanged.
    let own = at.get("/v1/member").ok();
    let shown = members.iter().find(|it| it["member_id"] == own["member_id"]).unwrap();
    assert_eq!((&own["name"], &own["role"]), (&shown["name"], &shown["role"]), "{own} {status}");
    assert_eq!(own["serving"], own["role"] == "leader", "{own}");
    assert_eq!(own["leader"]["member_id"], status["leader"]["member_id"], "{own}");
    assert_eq!(own["hash"].as_str().unwrap().len(), 32, "{own}");
    assert!(own["syncs"].as_u64().unwrap() > 0 && own["disk_short"] == false, "{own}");
    let (level, above) = (own["level"].clone(), own["level_known"].as_u64().unwrap() + 1);
    assert_eq!(at.post("/v1/cluster/level", &json!({"level": level})).ok()["level"], level);
    at.post("/v1/cluster/level", &json!({"level": above})).refused(409, "LEVEL_NOT_KNOWN");
    at.post("/v1/cluster/level", &json!({"level": 70_000})).refused(400, "MALFORMED");
    let unknown = "/v1/cluster/members/nobody";
    at.delete(unknown).refused(404, "MEMBER_NOT_FOUND");
    at.post(unknown, &json!({"action": "promote"})).refused(404, "MEMBER_NOT_FOUND");
    assert_eq!(at.get("/healthz").ok()["status"], "ok");
    assert_eq!(at.get("/readyz").ok()["status"], "ok");
    let metrics = String::from_utf8(at.get("/metrics").body).unwrap();
    for line in ["tenure_leases ", "tenure_leader{member=", "tenure_request_seconds_bucket{le="] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert!(metrics.ends_with("# EOF\n"));
}
