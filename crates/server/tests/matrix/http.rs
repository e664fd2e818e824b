//! Builds a request for every HTTP route and sends it.

use std::io::{BufRead as _, BufReader, Read as _};

use serde_json::{Value, json};

use super::outcome::{Outcome, TTL_0};
use super::stage::{Column, HIDDEN, MatrixMember, Row};
use crate::client::Client;

/// A request: a path with its query, and a body.
pub(super) struct HttpRequest {
    verb: &'static str,
    path: String,
    body: Value,
}

/// The variants in which a route is called, beside the plain one.
pub(super) fn variants(route: &str) -> &'static [&'static str] {
    match route {
        "GET /v1/locks/{lock}" => &["", "view=queue", "view=history", "view=explain"],
        "GET /v1/elections/{name}" => &["", "view=observe"],
        "PUT /v1/keys/{key}" => &["", "lease", "guard"],
        "PATCH /v1/locks/{lock}" => &["", "mode=shared"],
        "DELETE /v1/locks/{lock}" => &["", "leave"],
        "DELETE /v1/leases/{lease}" => &["", "reason"],
        "POST /v1/cluster/members/{member}" => &["promote", "lead"],
        _ => &[""],
    }
}

/// A valid request of a route; `None` if the matrix does not have it.
pub(super) fn request(route: &str, variant: &str, row: &Row) -> Option<HttpRequest> {
    let (verb, path) = route.split_once(' ')?;
    let lease = row.lease.to_string();
    let (token, leadership) = (row.token.to_string(), row.leadership.to_string());
    let (lock, key, election) = (row.name("lock"), row.name("key"), row.name("election"));
    let free = row.name("free");
    let (spare, hash) = (row.spare(), "ab".repeat(32));
    let none = Value::Null;
    let (path, body) = match route {
        "GET /.well-known/jwks.json"
        | "GET /healthz"
        | "GET /metrics"
        | "GET /openapi.json"
        | "GET /readyz"
        | "GET /v1/access"
        | "GET /v1/access/certificate-rules"
        | "GET /v1/access/issuers"
        | "GET /v1/access/keys"
        | "GET /v1/access/principals"
        | "GET /v1/access/roles"
        | "GET /v1/access/usage"
        | "GET /v1/audit"
        | "GET /v1/cluster"
        | "GET /v1/cluster/invitations"
        | "GET /v1/cluster/members"
        | "GET /v1/console"
        | "GET /v1/drains"
        | "DELETE /v1/console/session"
        | "POST /v1/console/session"
        | "GET /v1/keys"
        | "GET /v1/leases"
        | "GET /v1/limits"
        | "GET /v1/locks"
        | "GET /v1/member"
        | "GET /v1/overview" => (path.to_owned(), none),
        "GET /v1/history" => (format!("{path}?prefix=own/{}/", row.number), none),
        "GET /v1/access/can" => (format!("{path}?principal=owner&verb=read&name={free}"), none),
        "DELETE /v1/access/certificate-rules/{rule}" => {
            (format!("/v1/access/certificate-rules/{spare}"), none)
        }
        "PUT /v1/access/certificate-rules/{rule}" => (
            format!("/v1/access/certificate-rules/{spare}"),
            json!({"pattern": format!("cn:{spare}"), "principal": spare}),
        ),
        "PUT /v1/access/identity" => (path.to_owned(), json!({"enabled": true})),
        "DELETE /v1/access/issuers/{issuer}" => (format!("/v1/access/issuers/{spare}"), none),
        "PUT /v1/access/issuers/{issuer}" => (
            format!("/v1/access/issuers/{spare}"),
            json!({"audience": "tenure", "jwks_url": "http://127.0.0.1:9/jwks", "prefix": spare}),
        ),
        "DELETE /v1/access/keys/{key}" => (format!("/v1/access/keys/{}", row.key), none),
        "PUT /v1/access/keys/{key}" => (
            format!("/v1/access/keys/{}", row.new_key()),
            json!({"principal": spare, "hash": hash, "name": "new"}),
        ),
        "POST /v1/access/keys/{key}/rotate" => (
            format!("/v1/access/keys/{}/rotate", row.key),
            json!({"key": row.new_key(), "hash": hash, "overlap_ms": 1_000}),
        ),
        "DELETE /v1/access/principals/{principal}" | "GET /v1/access/principals/{principal}" => {
            (format!("/v1/access/principals/{spare}"), none)
        }
        "PATCH /v1/access/principals/{principal}" => {
            (format!("/v1/access/principals/{spare}"), json!({"enabled": false}))
        }
        "PUT /v1/access/principals/{principal}" => {
            (format!("/v1/access/principals/{spare}"), json!({"roles": []}))
        }
        "PUT /v1/access/quotas" => (path.to_owned(), json!({})),
        "DELETE /v1/access/roles/{role}" => (format!("/v1/access/roles/{spare}"), none),
        "PUT /v1/access/roles/{role}" => (
            format!("/v1/access/roles/{spare}"),
            json!({"rules": [{"verbs": ["read"], "prefix": "spare/"}]}),
        ),
        "DELETE /v1/cluster/invitations/{invitation}" => {
            (format!("/v1/cluster/invitations/{}", "00".repeat(8)), none)
        }
        "POST /v1/cluster/invitations" | "POST /v1/cluster/keys/rotate" => {
            (path.to_owned(), json!({}))
        }
        "POST /v1/cluster/level" => (path.to_owned(), json!({"level": row.level})),
        "POST /v1/cluster/members" => (
            path.to_owned(),
            json!({"member_id": "78", "name": "m78", "member_address": "127.0.0.1:9",
                "client_address": "127.0.0.1:9"}),
        ),
        "DELETE /v1/cluster/members/{member}" => ("/v1/cluster/members/78".to_owned(), none),
        "POST /v1/cluster/members/{member}" => {
            ("/v1/cluster/members/98".to_owned(), json!({"action": variant}))
        }
        "DELETE /v1/elections/{name}" => {
            (format!("/v1/elections/{election}?lease={lease}&token={leadership}"), none)
        }
        "GET /v1/elections/{name}" => (format!("/v1/elections/{election}?{variant}"), none),
        "POST /v1/elections/{name}" => {
            (format!("/v1/elections/{free}"), json!({"lease": lease, "value": "value"}))
        }
        "PUT /v1/elections/{name}" => (
            format!("/v1/elections/{election}"),
            json!({"lease": lease, "token": leadership, "value": "value"}),
        ),
        "DELETE /v1/drains" => (format!("{path}?prefix={}", row.name("spare")), none),
        "POST /v1/drains" => {
            (path.to_owned(), json!({"prefix": row.name("spare"), "reason": "new disks"}))
        }
        "DELETE /v1/semaphores/{lock}" => (format!("/v1/semaphores/{}", row.name("spare")), none),
        "PUT /v1/semaphores/{lock}" => {
            (format!("/v1/semaphores/{}", row.name("spare")), json!({"slots": 3}))
        }
        "POST /v1/force" => (
            path.to_owned(),
            json!({"lock": lock, "token": token, "reason": "it is needed elsewhere"}),
        ),
        "PUT /v1/keys/{key}" if variant == "lease" => {
            (format!("/v1/keys/{key}?lease={lease}"), none)
        }
        "PUT /v1/keys/{key}" if variant == "guard" => {
            (format!("/v1/keys/{key}?lock={lock}&token={token}"), none)
        }
        "DELETE /v1/keys/{key}" | "GET /v1/keys/{key}" | "PUT /v1/keys/{key}" => {
            (format!("/v1/keys/{key}"), none)
        }
        "POST /v1/leases" => (path.to_owned(), json!({"ttl_ms": 60_000})),
        "POST /v1/leases/renew" => (path.to_owned(), json!({"leases": [lease]})),
        "DELETE /v1/leases/{lease}" if variant == "reason" => {
            (format!("/v1/leases/{lease}?reason=stuck"), none)
        }
        "DELETE /v1/leases/{lease}" | "GET /v1/leases/{lease}" => {
            (format!("/v1/leases/{lease}"), none)
        }
        "POST /v1/leases/{lease}/renew" => (format!("/v1/leases/{lease}/renew"), none),
        "PATCH /v1/limits" => {
            let (limit, value) = &row.limit;
            (path.to_owned(), json!({"limits": [{"limit": limit, "value": value}]}))
        }
        "POST /v1/locks" => {
            (path.to_owned(), json!({"lease": lease, "locks": [free, row.name("free-2")]}))
        }
        "DELETE /v1/locks/{lock}" if variant == "leave" => {
            (format!("/v1/locks/{}?lease={lease}", row.name("queue")), none)
        }
        "DELETE /v1/locks/{lock}" => {
            (format!("/v1/locks/{lock}?lease={lease}&token={token}"), none)
        }
        "GET /v1/locks/{lock}" if variant == "view=explain" => {
            (format!("/v1/locks/{lock}?view=explain&lease={lease}"), none)
        }
        "GET /v1/locks/{lock}" => (format!("/v1/locks/{lock}?{variant}"), none),
        "PATCH /v1/locks/{lock}" if variant == "mode=shared" => {
            (format!("/v1/locks/{lock}"), json!({"lease": lease, "token": token, "mode": "shared"}))
        }
        "PATCH /v1/locks/{lock}" => (
            format!("/v1/locks/{lock}"),
            json!({"lease": lease, "token": token, "metadata": "new"}),
        ),
        "POST /v1/locks/{lock}" => (format!("/v1/locks/{free}"), json!({"lease": lease})),
        "POST /v1/tickets" => {
            (path.to_owned(), json!({"lease": lease, "lock": lock, "token": token}))
        }
        "GET /v1/watch" => (format!("{path}?prefix=own/{}/", row.number), none),
        _ => return None,
    };
    let verb = ["GET", "PUT", "POST", "PATCH", "DELETE"].into_iter().find(|it| *it == verb)?;
    Some(HttpRequest { verb, path: path.trim_end_matches('?').to_owned(), body })
}

/// Sends a request. Of a stream of events only the head is read.
pub(super) fn ask(stage: &MatrixMember, column: Column, request: &HttpRequest) -> Outcome {
    let HttpRequest { verb, path, body } = request;
    let mut headers = vec![("Authorization", stage.bearer(column).unwrap_or_default())];
    let bytes = if body.is_null() {
        // Only a key is written as it is.
        if *verb == "PUT" { HIDDEN.as_bytes().to_vec() } else { Vec::new() }
    } else {
        headers.push(("Content-Type", "application/json"));
        body.to_string().into_bytes()
    };
    let client = Client::new(stage.at(column), "http");
    let mut stream = BufReader::new(client.send(verb, path, &headers, &bytes));
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    let status: u16 = line.split(' ').nth(1).unwrap_or_default().parse().unwrap();
    let (mut line, mut events) = (String::new(), false);
    while stream.read_line(&mut line).unwrap() > 2 {
        events |= line.contains("text/event-stream");
        line.clear();
    }
    let mut answer = Vec::new();
    if events {
        return Outcome::ok(answer);
    }
    stream.read_to_end(&mut answer).unwrap();
    let value: Value = serde_json::from_slice(&answer).unwrap_or_default();
    if status >= 300 {
        let error = &value["error"];
        let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
        return Outcome::refused(&text("reason"), &text("message"), answer);
    }
    if value["leases"][0]["ttl_ms"] == 0 {
        return Outcome::word(TTL_0, answer);
    }
    Outcome::ok(answer)
}
