//! Encodes commands as JSON and decodes the answers.

use serde_json::{Map, Value, json};
use tenure_wire::v1;
use v1::request::Command;

use crate::request::{Fault, How, Reported};

/// The name of a command on a JSON session, and its content.
pub(crate) fn command(command: &Command) -> (&'static str, Value) {
    match command {
        Command::Acquire(it) => ("acquire", acquire(it)),
        Command::Release(it) => ("release", hold(&it.lock, it.lease, it.token)),
        Command::Renew(it) => {
            ("renew", json!({"leases": it.leases.iter().map(i64::to_string).collect::<Vec<_>>()}))
        }
        Command::GrantLease(it) => ("grant_lease", lease(it)),
        Command::Revoke(it) if it.by_other => {
            let id = it.lease.to_string();
            let revoke = json!({"lease": id, "reason": it.reason, "now": it.now});
            ("revoke", with_by(revoke, &it.by))
        }
        Command::Revoke(it) => {
            let revoke = json!({"lease": it.lease.to_string(), "now": it.now});
            ("revoke", with_by(revoke, &it.by))
        }
        Command::Leave(it) => ("leave", json!({"lock": it.lock, "lease": it.lease.to_string()})),
        Command::Stopped(it) => {
            let mut stopped = hold(&it.lock, it.lease, it.token);
            stopped["lease_created"] = json!(it.lease_created.to_string());
            ("stopped", stopped)
        }
        Command::Downgrade(it) => ("downgrade", hold(&it.lock, it.lease, it.token)),
        Command::HandOn(it) => {
            let mut given = hold(&it.lock, it.lease, it.token);
            given["to"] = json!(it.to.to_string());
            ("hand_on", given)
        }
        Command::Progress(it) => {
            let mut report = hold(&it.lock, it.lease, it.token);
            report["number"] = json!(it.number.to_string());
            ("progress", report)
        }
        Command::Update(it) => {
            let mut update = hold(&it.lock, it.lease, it.token);
            update["metadata"] = text(&it.metadata);
            ("update", update)
        }
        Command::Force(it) => {
            let token = it.token.to_string();
            let (lock, reason) = (&it.lock, &it.reason);
            let force = json!({"lock": lock, "token": token, "reason": reason, "now": it.now});
            ("force", with_by(force, &it.by))
        }
        Command::Drain(it) => {
            let drain = json!({"prefix": it.prefix, "reason": it.reason});
            ("drain", with_by(drain, &it.by))
        }
        Command::Resize(it) => {
            let resize = json!({"lock": it.lock, "slots": it.slots});
            ("resize", with_by(resize, &it.by))
        }
        Command::Undrain(it) => ("undrain", with_by(json!({"prefix": it.prefix}), &it.by)),
        Command::Put(it) => {
            let mut put = json!({"key": it.key, "value": text(&it.value)});
            if it.lease != 0 {
                put["lease"] = json!(it.lease.to_string());
            }
            conditions(&mut put, it.expect.as_ref(), it.guard.as_ref());
            ("put", put)
        }
        Command::Delete(it) => {
            let mut delete = json!({"key": it.key});
            conditions(&mut delete, it.expect.as_ref(), it.guard.as_ref());
            ("delete", delete)
        }
        Command::GetLease(it) => ("get_lease", json!({"name": it.lease.to_string()})),
        Command::GetLock(it) => ("get_lock", json!({"name": it.lock})),
        Command::GetKey(it) => ("get_key", json!({"name": it.key, "stale": it.stale})),
        Command::Explain(it) => ("explain", json!({"lock": it.lock})),
    }
}

/// Adds the actor to a command, if there is one.
fn with_by(mut command: Value, by: &str) -> Value {
    if !by.is_empty() {
        command["by"] = json!(by);
    }
    command
}

fn hold(lock: &str, lease: i64, token: u64) -> Value {
    json!({"lock": lock, "lease": lease.to_string(), "token": token.to_string()})
}

pub(crate) fn text(bytes: &[u8]) -> Value {
    json!(String::from_utf8(bytes.to_vec()).unwrap())
}

pub(crate) fn lease(new: &v1::NewLease) -> Value {
    let mut lease = json!({"ttl_ms": new.ttl_ms});
    if new.lease != 0 {
        lease["lease"] = json!(new.lease.to_string());
    }
    if !new.client.is_empty() {
        lease["client"] = json!(new.client);
    }
    if !new.metadata.is_empty() {
        lease["metadata"] = text(&new.metadata);
    }
    lease
}

fn mode(mode: i32, slots: u32, take: u32) -> Map<String, Value> {
    let mut how = Map::new();
    match mode {
        1 => drop(how.insert("mode".into(), json!("shared"))),
        2 => {
            how.insert("slots".into(), json!(slots));
            if take > 0 {
                how.insert("take".into(), json!(take));
            }
        }
        _ => {}
    }
    how
}

fn acquire(ask: &v1::AcquireRequest) -> Value {
    let mut body = mode(ask.mode, ask.slots, ask.take);
    if !ask.lock.is_empty() {
        body.insert("lock".into(), json!(ask.lock));
    }
    let several = if ask.any_of.is_empty() { &ask.locks } else { &ask.any_of };
    if !several.is_empty() {
        let lock = |ask: &v1::LockAsk| {
            let mut lock = mode(ask.mode, ask.slots, ask.take);
            lock.insert("lock".into(), json!(ask.lock));
            Value::Object(lock)
        };
        body.insert("locks".into(), several.iter().map(lock).collect());
    }
    match &ask.new_lease {
        Some(new) => body.insert("new_lease".into(), lease(new)),
        None => body.insert("lease".into(), json!(ask.lease.to_string())),
    };
    if let Some(ms) = ask.wait_ms {
        body.insert("wait_ms".into(), json!(ms));
    }
    if !ask.metadata.is_empty() {
        body.insert("metadata".into(), text(&ask.metadata));
    }
    if ask.lock_delay_ms > 0 {
        body.insert("lock_delay_ms".into(), json!(ask.lock_delay_ms));
    }
    if let Some(ms) = ask.max_hold_ms {
        body.insert("max_hold_ms".into(), json!(ms));
    }
    if ask.min_hold_ms > 0 {
        body.insert("min_hold_ms".into(), json!(ask.min_hold_ms));
    }
    if !ask.supersede.is_empty() {
        body.insert("supersede".into(), json!(ask.supersede));
    }
    if !ask.any_of.is_empty() {
        body.insert("any".into(), json!(true));
    }
    if !ask.pool.is_empty() {
        body.insert("pool".into(), json!(ask.pool));
        if ask.take > 0 {
            body.insert("take".into(), json!(ask.take));
        }
    }
    if ask.upgrade {
        body.insert("upgrade".into(), json!(true));
    }
    if ask.progress_within_ms > 0 {
        body.insert("progress_within_ms".into(), json!(ask.progress_within_ms));
    }
    if ask.priority > 0 {
        body.insert("priority".into(), json!(ask.priority));
    }
    if ask.resume {
        body.insert("resume".into(), json!(true));
    }
    if ask.independent {
        body.insert("independent".into(), json!(true));
    }
    if ask.election {
        body.insert("election".into(), json!(true));
    }
    Value::Object(body)
}

fn conditions(body: &mut Value, expect: Option<&v1::Expect>, guard: Option<&v1::Guard>) {
    use v1::expect::How;
    if let Some(how) = expect.and_then(|expect| expect.how.as_ref()) {
        body["expect"] = match how {
            How::Absent(absent) => json!({"absent": absent}),
            How::Modified(revision) => json!({"modified": revision.to_string()}),
            How::Value(value) => json!({"value": text(value)}),
        };
    }
    if let Some(guard) = guard {
        body["guard"] = json!({"lock": guard.lock, "token": guard.token.to_string()});
    }
}

/// Decodes an answer by its name on a session.
pub(crate) fn told(name: &str, it: &Value) -> Reported {
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    match name {
        "acquired" | "grants" => held(it),
        "ended" => Reported::new("ended"),
        "released" => Reported::new("released"),
        "renewed" if it["ttl_ms"] == 0 => Reported::new("gone"),
        "renewed" => Reported::new("renewed").with("ttl_ms", &it["ttl_ms"]),
        "lease_granted" => Reported { lease: Some(granted(it)), ..Reported::new("granted") },
        "revoked" => Reported::new("revoked"),
        "left" => Reported::new("left"),
        "stopped" => Reported::new("stopped"),
        "handed_on" => Reported::new("handed_on"),
        "progressed" => Reported::new("progressed").with("due", it["left_ms"].is_u64()),
        "downgraded" => {
            let token = number(&it["token"]).unsigned_abs();
            Reported { grants: vec![(String::new(), token)], ..Reported::new("downgraded") }
        }
        "updated" => Reported::new("updated").with("version", &it["version"]),
        "forced" => Reported::new("forced").with("cools", it["left_ms"].as_u64().unwrap() > 0),
        "drained" => Reported::new("drained"),
        "resized" => Reported::new("resized"),
        "undrained" => Reported::new("undrained").with("existed", &it["existed"]),
        "put" => Reported::new("put").with("version", &it["version"]),
        "deleted" => Reported::new("deleted").with("existed", &it["existed"]),
        "lease" => Reported::new("lease")
            .with("client", it["client"].as_str().unwrap_or_default())
            .with("holds", count(&it["holds"]))
            .with("waits", count(&it["waits"]))
            .with("keys", count(&it["keys"])),
        "lock" => Reported::new("lock")
            .with("holders", count(&it["lock"]["holders"]))
            .with("waiting", it["lock"]["waiting"].as_u64().unwrap_or(0)),
        "key" if it.is_null() => Reported::new("nothing"),
        "key" => Reported::new("key").with("value", it["value"].as_str().unwrap_or_default()),
        "explained" => Reported::new("explained")
            .with("holders", count(&it["lock"]["holders"]))
            .with("ahead", count(&it["ahead"]))
            .with("drained", it["drained"].is_object()),
        other => panic!("`{other}`: {it}"),
    }
}

fn held(it: &Value) -> Reported {
    let mut told = Reported::new("held");
    if let Some(slot) = it["slot"].as_u64() {
        told = told.with("slot", slot);
    }
    let grant = |it: &Value| {
        (it["lock"].as_str().unwrap_or_default().to_owned(), number(&it["token"]).unsigned_abs())
    };
    told.grants = it["locks"].as_array().into_iter().flatten().map(grant).collect();
    if told.grants.is_empty() {
        told.grants.push(grant(it));
    }
    told.lease = it["lease"].is_object().then(|| granted(&it["lease"]));
    told
}

fn granted(it: &Value) -> (i64, i64) {
    (number(&it["lease"]), number(&it["created"]))
}

/// A number that JSON carries as a string.
pub(crate) fn number(value: &Value) -> i64 {
    let text = value.as_str().unwrap_or_else(|| panic!("no number in text: {value}"));
    text.parse::<u64>().unwrap().cast_signed()
}

/// Decodes an error; `how` is the form in which it arrived.
pub(crate) fn fault(error: &Value, how: How) -> Fault {
    let word = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    assert!(!word("next").is_empty(), "no advice: {error}");
    let text = |it: &Value| it.as_str().map(str::to_owned);
    let facts = [
        ("holder", text(&error["holder"]["client"])),
        ("slots", error["slots"].as_u64().map(|it| it.to_string())),
        ("ring", error["ring"].as_array().map(|it| it.len().to_string())),
        ("limit", text(&error["limit"])),
    ];
    Fault {
        facts: facts.into_iter().filter_map(|(name, it)| Some((name, it?))).collect(),
        reason: word("reason"),
        effect: match &*word("effect") {
            "none" => v1::Effect::None,
            "unknown" => v1::Effect::Unknown,
            _ => panic!("no effect: {error}"),
        },
        message: word("message"),
        revision: (!error["revision"].is_null()).then(|| number(&error["revision"])),
        bound: error["bound"].as_u64().unwrap_or_default(),
        leader: error["leader"]["address"].as_str().unwrap_or_default().to_owned(),
        how,
    }
}
