//! Translates the lines of a test into calls, and responses into lines.
//!
//! Scenarios use lines such as `lock 7 deploy queue` and get lines back: `ok …`, `refused REASON …` (a rule refused
//! the command) or `error EFFECT …` (a failure; `none` or `unknown` says whether the command may have taken effect).

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::http::{Answer, Call};

/// The longest that a member is asked to try.
const TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// Reasons that the state machine itself decides, although their status is that of a failure.
const REFUSALS: [&str; 3] = ["QUIET", "NO_SPACE", "TOKENS_EXHAUSTED"];

/// The words of a line, and the idempotency key before them.
fn words(line: &str) -> (Option<&str>, Vec<&str>) {
    let keyed = line.strip_prefix("once ").and_then(|rest| rest.split_once(' '));
    let (key, line) = keyed.map_or((None, line), |(key, line)| (Some(key), line));
    (key, line.split_whitespace().collect())
}

/// The call for a line. The member gives up before the caller does, which waits for `answer_timeout`.
pub(crate) fn call(line: &str, answer_timeout: Duration) -> Call {
    let timeout = format!("timeout={}ms", (answer_timeout * 3 / 4).min(TIMEOUT_MAX).as_millis());
    let (key, words) = words(line);
    let json = |body: Value| Some(("application/json", body.to_string()));
    let (verb, path, body) = match words[..] {
        ["lease", id, ttl_ms, client] => {
            let ttl_ms: u64 = ttl_ms.parse().unwrap();
            let body = json!({ "lease": id, "ttl_ms": ttl_ms, "client": client });
            ("POST", format!("/v1/leases?{timeout}"), json(body))
        }
        ["renew", ref leases @ ..] => {
            ("POST", format!("/v1/leases/renew?{timeout}"), json(json!({ "leases": leases })))
        }
        ["revoke", id] => ("DELETE", format!("/v1/leases/{id}?{timeout}"), None),
        ["lock", id, lock, ref how @ ..] => {
            let how = match how {
                [] | ["try"] => String::new(),
                ["queue"] => "?keep=true".to_owned(),
                ["wait", ms] => format!("?wait={ms}ms"),
                _ => panic!("cannot make sense of {line:?}"),
            };
            ("POST", format!("/v1/locks/{lock}{how}"), json(json!({ "lease": id })))
        }
        ["unlock", id, lock, token] => {
            ("DELETE", format!("/v1/locks/{lock}?lease={id}&token={token}&{timeout}"), None)
        }
        ["put", key, value] => {
            let body = Some(("application/octet-stream", value.to_owned()));
            ("PUT", format!("/v1/keys/{key}?{timeout}"), body)
        }
        ["get", key] => ("GET", format!("/v1/keys?prefix={key}&limit=1"), None),
        ["stale", "get", key] => ("GET", format!("/v1/keys?prefix={key}&limit=1&stale=true"), None),
        ["limit", name, value] => {
            let value: u64 = value.parse().unwrap();
            let body = json!({ "limits": [{ "limit": name, "value": value }] });
            ("PATCH", format!("/v1/limits?{timeout}"), json(body))
        }
        ["locks"] => ("GET", "/v1/locks?limit=1000".to_owned(), None),
        ["locks", prefix] => ("GET", format!("/v1/locks?limit=1000&prefix={prefix}"), None),
        ["stale", "locks"] => ("GET", "/v1/locks?limit=1000&stale=true".to_owned(), None),
        ["explain", lock] => ("GET", format!("/v1/locks/{lock}?view=explain"), None),
        ["status" | "hash"] => ("GET", "/v1/member".to_owned(), None),
        ["members"] => ("GET", "/v1/cluster".to_owned(), None),
        ["promote", id] => {
            let body = json(json!({ "action": "promote" }));
            ("POST", format!("/v1/cluster/members/{id}?{timeout}"), body)
        }
        ["transfer", id] => {
            let body = json(json!({ "action": "lead" }));
            ("POST", format!("/v1/cluster/members/{id}?{timeout}"), body)
        }
        ["remove", id] => ("DELETE", format!("/v1/cluster/members/{id}?{timeout}"), None),
        _ => panic!("cannot make sense of {line:?}"),
    };
    Call { verb, path, key: key.map(str::to_owned), body }
}

/// The response to a line, as a line.
pub(crate) fn told(line: &str, answer: &Answer) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_else(|error| {
        panic!("{line}: {error}: {}", String::from_utf8_lossy(&answer.body));
    });
    let (_, words) = words(line);
    if !(200..300).contains(&answer.status) {
        return not_applied(words[0], answer.status, &body["error"]);
    }
    let revision = text(&body["header"]["revision"]);
    let (stale, words) = match words[..] {
        ["stale", ref words @ ..] => (" stale", words),
        ref words => ("", words),
    };
    match words[0] {
        "lease" => {
            let [lease, ttl_ms, created] = ["lease", "ttl_ms", "created"].map(|it| text(&body[it]));
            format!("ok lease={lease} ttl_ms={ttl_ms} created={created} revision={revision}")
        }
        "renew" => format!("ok {} revision={revision}", renewals(&body["leases"])),
        "revoke" => format!("ok revoked revision={revision}"),
        "lock" => {
            let (place, lock) = (text(&body["place"]), text(&body["lock"]));
            if body["acquired"] == true {
                let token = text(&body["token"]);
                format!("ok lock={lock} token={token} place={place} revision={revision}")
            } else {
                let ahead = text(&body["ahead"]);
                format!("ok queued ahead={ahead} place={place} revision={revision}")
            }
        }
        "unlock" => format!("ok released revision={revision}"),
        "put" => format!("ok version={} revision={revision}", text(&body["version"])),
        "get" => {
            let found = all(&body["keys"]).iter().find(|found| found["key"] == words[1]);
            let Some(found) = found else { return format!("ok absent{stale} revision={revision}") };
            let [version, modified, value] =
                ["version", "modified", "value"].map(|it| text(&found[it]));
            format!(
                "ok version={version} modified={modified} value={value}{stale} revision={revision}"
            )
        }
        "locks" => {
            let locks = all(&body["locks"]);
            let shown: String = locks.iter().map(|one| format!(" [{}]", lock(one))).collect();
            format!("ok count={}{shown}{stale} revision={revision}", locks.len())
        }
        "explain" if body["lock"].is_null() => "ok free".to_owned(),
        "explain" => {
            let ahead = all(&body["ahead"]).iter().map(|waiter| {
                format!(" [client={} lease={}]", text(&waiter["client"]), text(&waiter["lease"]))
            });
            format!("ok [{}]{}", lock(&body["lock"]), ahead.collect::<String>())
        }
        "status" => status(&body),
        "hash" => format!("ok index={} hash={}", text(&body["applied"]), text(&body["hash"])),
        "members" => members(all(&body["members"])),
        _ => "ok".to_owned(),
    }
}

/// A response without success, as a line. The state machine never refuses changes of members.
fn not_applied(word: &str, status: u16, error: &Value) -> String {
    let (reason, message) = (text(&error["reason"]), text(&error["message"]));
    let of_members = ["promote", "remove", "transfer"].contains(&word);
    if of_members || (status >= 500 && !REFUSALS.contains(&&*reason)) {
        let word = reason.to_lowercase().replace('_', "-");
        format!("error {} {word} {message}", text(&error["effect"]))
    } else {
        format!("refused {reason} {message}")
    }
}

fn renewals(leases: &Value) -> String {
    let shown = all(leases).iter().map(|lease| match lease["ttl_ms"].as_u64() {
        Some(0) | None => "ended".to_owned(),
        Some(ttl_ms) => format!("ttl_ms={ttl_ms}"),
    });
    shown.collect::<Vec<_>>().join(" ")
}

fn lock(lock: &Value) -> String {
    let mut line = text(&lock["lock"]);
    for holder in all(&lock["holders"]) {
        let _ = write!(line, " {}", text(&holder["state"]));
        for name in ["client", "lease", "token", "held_ms"] {
            let _ = write!(line, " {name}={}", text(&holder[name]));
        }
    }
    let _ = write!(line, " waiting={}", text(&lock["waiting"]));
    line
}

fn status(own: &Value) -> String {
    let leader = &own["leader"]["member_id"];
    let leader = if leader.is_null() { "none".to_owned() } else { text(leader) };
    let disk = if own["disk_short"] == true { "short" } else { "enough" };
    let incarnation: u64 = text(&own["incarnation"]).parse().unwrap();
    let mut line = format!(
        "ok member={} role={} leader={leader} disk={disk} incarnation={incarnation:016x} revision={}",
        text(&own["member_id"]),
        text(&own["role"]),
        text(&own["header"]["revision"]),
    );
    for name in [
        "serving",
        "term",
        "applied",
        "committed",
        "last",
        "base",
        "clock_ms",
        "cluster",
        "epoch",
        "preference",
        "hash",
    ] {
        let _ = write!(line, " {name}={}", text(&own[name]));
    }
    line
}

fn members(members: &[Value]) -> String {
    let mut line = format!("ok count={}", members.len());
    for one in members {
        let [id, role, name] = ["member_id", "role", "name"].map(|it| text(&one[it]));
        let behind = one["behind"].as_u64().map(|behind| format!(" behind={behind}"));
        let _ = write!(line, " [{id} {role} name={name}{}]", behind.unwrap_or_default());
    }
    line
}

fn all(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// A value without quotes.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
