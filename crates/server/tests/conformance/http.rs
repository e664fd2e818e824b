//! Drives the HTTP API.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::LazyLock;

use serde_json::{Value, json};
use tenure_wire::v1;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use v1::request::Command;

use crate::json;
use crate::request::{Answered, Api, Ask, Bad, Fault, How, Reply, Reported, What};

/// More bytes than headers may have.
pub(crate) static LONG: LazyLock<String> = LazyLock::new(|| "x".repeat(20_000));

/// A client of one member, with one connection per request.
#[derive(Clone, Copy)]
pub(crate) struct Http {
    pub(crate) at: SocketAddr,
}

/// A request.
struct Sent {
    verb: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

/// An answer.
pub(crate) struct Got {
    pub(crate) status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Api for Http {
    fn ask(&self, _: &str, ask: Ask) -> Answered {
        let http = *self;
        Box::pin(async move {
            if let What::Watch { name, from, events } = &ask.what {
                let path = format!("/v1/watch?name={}&from={from}", escaped(name));
                return http.watch(&path, *events).await;
            }
            if let What::Observe { name } = &ask.what {
                let path = format!("/v1/elections/{}?view=observe", escaped(name));
                return http.watch(&path, 0).await;
            }
            let Some((mut sent, word)) = request(&ask) else { return Reply::NotHere };
            if let Some(key) = &ask.key {
                sent.headers.push(("Idempotency-Key", key.clone()));
            }
            let got = http.send(sent).await;
            if got.status >= 400 {
                return Reply::Refused(got.fault());
            }
            assert_eq!(got.status, 200, "{}", String::from_utf8_lossy(&got.body));
            Reply::Done(told(word, &got))
        })
    }
}

impl Got {
    fn value(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("{}: {}", self.status, String::from_utf8_lossy(&self.body)))
    }

    fn fault(&self) -> Fault {
        assert!(self.headers.contains("content-type: application/json"), "{}", self.headers);
        json::fault(&self.value()["error"], How::Status(self.status))
    }
}

impl Http {
    async fn send(self, sent: Sent) -> Got {
        let mut stream = TcpStream::connect(self.at).await.unwrap();
        let mut head = format!("{} {} HTTP/1.1\r\nConnection: close\r\n", sent.verb, sent.path);
        if !sent.headers.iter().any(|(name, _)| *name == "Host") {
            let _ = write!(head, "Host: {}\r\n", self.at);
        }
        for (name, value) in &sent.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if !sent.headers.iter().any(|(name, _)| *name == "Content-Length") {
            let _ = write!(head, "Content-Length: {}\r\n", sent.body.len());
        }
        head += "\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let (mut from, mut to) = stream.split();
        // A member that has refused the head may have closed already.
        let (_, got) = tokio::join!(to.write_all(&sent.body), read(&mut from));
        got
    }

    /// Reads this many events of a stream or, with 0, the current leader.
    async fn watch(self, path: &str, events: usize) -> Reply {
        let mut stream = TcpStream::connect(self.at).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.at);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream);
        let mut first = String::new();
        lines.read_line(&mut first).await.unwrap();
        if !first.contains(" 200 ") {
            let mut rest = first.into_bytes();
            lines.read_to_end(&mut rest).await.unwrap();
            return Reply::Refused(parsed(&rest).fault());
        }
        let mut seen = 0;
        while seen < events || events == 0 {
            let mut line = String::new();
            assert_ne!(lines.read_line(&mut line).await.unwrap(), 0, "the stream goes on");
            if let Some(data) = line.strip_prefix("data: ") {
                let data: Value = serde_json::from_str(data).unwrap();
                if let Some(value) = data["leader"]["value"].as_str() {
                    return Reply::Done(Reported::new("leader").with("value", value));
                }
                seen += data["events"].as_array().map_or(0, Vec::len);
            }
        }
        Reply::Done(Reported::new("events").with("count", seen))
    }
}

async fn read(from: &mut (impl tokio::io::AsyncRead + Unpin)) -> Got {
    let mut bytes = Vec::new();
    // A member that refuses a long body without reading it resets the connection after its response.
    let _ = from.read_to_end(&mut bytes).await;
    parsed(&bytes)
}

fn parsed(bytes: &[u8]) -> Got {
    let end = bytes.windows(4).position(|it| it == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no head: {}", String::from_utf8_lossy(bytes)));
    let headers = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let status = headers.split(' ').nth(1).unwrap().parse().unwrap();
    Got { status, headers, body: bytes[end + 4..].to_vec() }
}

fn escaped(name: &str) -> String {
    name.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

fn bare(verb: &'static str, path: String) -> Sent {
    Sent { verb, path, headers: Vec::new(), body: Vec::new() }
}

fn with(verb: &'static str, path: String, body: &Value) -> Sent {
    let headers = vec![("Content-Type", "application/json".to_owned())];
    Sent { verb, path, headers, body: body.to_string().into_bytes() }
}

/// The request, and the name of its success.
fn request(ask: &Ask) -> Option<(Sent, &'static str)> {
    Some(match &ask.what {
        What::Command(command) => return by_command(command, ask.deadline_ms),
        What::Locks { prefix } => {
            (bare("GET", format!("/v1/locks?prefix={}", escaped(prefix))), "locks")
        }
        What::Keys { prefix } => {
            (bare("GET", format!("/v1/keys?prefix={}", escaped(prefix))), "keys")
        }
        What::Leases => (bare("GET", "/v1/leases".into()), "leases"),
        What::Queue { lock } => {
            (bare("GET", format!("/v1/locks/{}?view=queue", escaped(lock))), "waiters")
        }
        What::History { lock, from } => {
            let from = if *from == 0 { String::new() } else { format!("&from={from}") };
            (bare("GET", format!("/v1/locks/{}?view=history{from}", escaped(lock))), "changes")
        }
        What::Limits(limits) => {
            let limit = |(limit, value): &(String, u64)| json!({"limit": limit, "value": value});
            let limits: Vec<_> = limits.iter().map(limit).collect();
            (with("PATCH", "/v1/limits".into(), &json!({ "limits": limits })), "set")
        }
        What::Campaign { name, lease, value, wait_ms } => {
            let wait = wait_ms.map_or("30s".to_owned(), |ms| format!("{ms}ms"));
            let path = format!("/v1/elections/{}?wait={wait}", escaped(name));
            (with("POST", path, &json!({"lease": lease.to_string(), "value": value})), "leads")
        }
        What::Proclaim { name, lease, token, value } => {
            let (lease, token) = (lease.to_string(), token.to_string());
            let body = json!({"lease": lease, "token": token, "value": value});
            (with("PUT", format!("/v1/elections/{}", escaped(name)), &body), "proclaimed")
        }
        What::Leader { name } => {
            (bare("GET", format!("/v1/elections/{}", escaped(name))), "leader")
        }
        What::Resign { name, lease, token } => {
            let path = format!("/v1/elections/{}?lease={lease}&token={token}", escaped(name));
            (bare("DELETE", path), "resigned")
        }
        What::Add { hops: 1.., .. } | What::Compact { .. } | What::Level(_) => return None,
        What::Add { member, name, .. } => {
            let body = json!({"member_id": member.to_string(), "name": name,
                "member_address": "127.0.0.1:1", "client_address": "127.0.0.1:1"});
            (with("POST", "/v1/cluster/members".into(), &body), "added")
        }
        What::Promote(member) => {
            let path = format!("/v1/cluster/members/{member}");
            (with("POST", path, &json!({"action": "promote"})), "promoted")
        }
        What::Remove(member) => {
            let timeout = ask.deadline_ms.map_or(String::new(), |ms| format!("?timeout={ms}ms"));
            (bare("DELETE", format!("/v1/cluster/members/{member}{timeout}")), "removed")
        }
        What::Ticket { lock, lease, token } => {
            let (lease, token) = (lease.to_string(), token.to_string());
            let body = json!({"lock": lock, "lease": lease, "token": token});
            (with("POST", "/v1/tickets".into(), &body), "signed")
        }
        What::Rotate { overlap_ms } => {
            let body = overlap_ms.map_or(json!({}), |ms| json!({"overlap_ms": ms}));
            (with("POST", "/v1/cluster/keys/rotate".into(), &body), "rotated")
        }
        What::TicketKeys => (bare("GET", "/.well-known/jwks.json".into()), "jwks"),
        What::Watch { .. } | What::Observe { .. } => return None,
        What::Bad(bad) => return bad_request(*bad).map(|sent| (sent, "done")),
    })
}

fn by_command(command: &Command, deadline_ms: Option<u32>) -> Option<(Sent, &'static str)> {
    let (_, body) = json::command(command);
    Some(match command {
        Command::Acquire(it) => {
            let mut body = body;
            let content = body.as_object_mut().unwrap();
            content.remove("wait_ms");
            content.remove("lock");
            // HTTP has no wait without a limit.
            let wait = it.wait_ms.map_or("30s".to_owned(), |ms| format!("{ms}ms"));
            let name =
                if it.lock.is_empty() { String::new() } else { format!("/{}", escaped(&it.lock)) };
            (with("POST", format!("/v1/locks{name}?wait={wait}"), &body), "acquired")
        }
        Command::Release(it) => {
            let query = format!("lease={}&token={}", it.lease, it.token);
            (bare("DELETE", format!("/v1/locks/{}?{query}", escaped(&it.lock))), "released")
        }
        Command::Leave(it) => {
            let path = format!("/v1/locks/{}?lease={}", escaped(&it.lock), it.lease);
            (bare("DELETE", path), "left")
        }
        Command::Downgrade(it) => {
            let (lease, token) = (it.lease.to_string(), it.token.to_string());
            let body = json!({"lease": lease, "token": token, "mode": "shared"});
            (with("PATCH", format!("/v1/locks/{}", escaped(&it.lock)), &body), "downgraded")
        }
        Command::HandOn(it) => {
            let (lease, token) = (it.lease.to_string(), it.token.to_string());
            let body = json!({"lease": lease, "token": token, "hand_on_to": it.to.to_string()});
            (with("PATCH", format!("/v1/locks/{}", escaped(&it.lock)), &body), "handed_on")
        }
        Command::Progress(it) => {
            let (lease, token) = (it.lease.to_string(), it.token.to_string());
            let body = json!({"lease": lease, "token": token, "progress": it.number.to_string()});
            (with("PATCH", format!("/v1/locks/{}", escaped(&it.lock)), &body), "progressed")
        }
        Command::Update(it) => {
            let mut body = body;
            body.as_object_mut().unwrap().remove("lock");
            (with("PATCH", format!("/v1/locks/{}", escaped(&it.lock)), &body), "updated")
        }
        Command::Force(_) => (with("POST", "/v1/force".into(), &body), "forced"),
        Command::Drain(_) => (with("POST", "/v1/drains".into(), &body), "drained"),
        Command::Resize(it) if it.slots == 0 => {
            let path = format!("/v1/semaphores/{}?by={}", escaped(&it.lock), escaped(&it.by));
            (bare("DELETE", path), "resized")
        }
        Command::Resize(it) => {
            let mut body = body;
            body.as_object_mut().unwrap().remove("lock");
            (with("PUT", format!("/v1/semaphores/{}", escaped(&it.lock)), &body), "resized")
        }
        Command::Undrain(it) => {
            let prefix = escaped(it.prefix.as_deref().unwrap_or_default());
            let path = format!("/v1/drains?prefix={prefix}&by={}", escaped(&it.by));
            (bare("DELETE", path), "undrained")
        }
        Command::Renew(it) => {
            (bare("POST", format!("/v1/leases/{}/renew", it.leases[0])), "renewed")
        }
        Command::GrantLease(_) => (with("POST", "/v1/leases".into(), &body), "lease_granted"),
        Command::Revoke(it) => {
            let mut why = if it.by_other {
                format!("?reason={}&now={}", escaped(&it.reason), it.now)
            } else {
                format!("?now={}", it.now)
            };
            if !it.by.is_empty() {
                let _ = write!(why, "&by={}", escaped(&it.by));
            }
            (bare("DELETE", format!("/v1/leases/{}{why}", it.lease)), "revoked")
        }
        Command::Put(it) => {
            let mut query = guard(it.guard.as_ref());
            if it.lease != 0 {
                let _ = write!(query, "&lease={}", it.lease);
            }
            if let Some(ms) = deadline_ms {
                let _ = write!(query, "&timeout={ms}ms");
            }
            let path = format!("/v1/keys/{}?{}", escaped(&it.key), query.trim_start_matches('&'));
            let headers = expect(it.expect.as_ref())?;
            (Sent { verb: "PUT", path, headers, body: it.value.to_vec() }, "put")
        }
        Command::Delete(it) => {
            let query = guard(it.guard.as_ref());
            let path = format!("/v1/keys/{}?{}", escaped(&it.key), query.trim_start_matches('&'));
            let headers = expect(it.expect.as_ref())?;
            (Sent { headers, ..bare("DELETE", path) }, "deleted")
        }
        Command::GetLease(it) => (bare("GET", format!("/v1/leases/{}", it.lease)), "lease"),
        Command::GetLock(it) => (bare("GET", format!("/v1/locks/{}", escaped(&it.lock))), "lock"),
        Command::GetKey(it) => {
            let path = format!("/v1/keys/{}?stale={}", escaped(&it.key), it.stale);
            (bare("GET", path), "bytes")
        }
        Command::Explain(it) => {
            (bare("GET", format!("/v1/locks/{}?view=explain", escaped(&it.lock))), "explained")
        }
        Command::Stopped(_) => return None,
    })
}

fn guard(guard: Option<&v1::Guard>) -> String {
    guard.map_or(String::new(), |it| format!("&lock={}&token={}", escaped(&it.lock), it.token))
}

/// Conditions are headers; HTTP has no condition on the value.
fn expect(expect: Option<&v1::Expect>) -> Option<Vec<(&'static str, String)>> {
    use v1::expect::How;
    match expect.and_then(|expect| expect.how.as_ref()) {
        None => Some(Vec::new()),
        Some(How::Absent(_)) => Some(vec![("If-None-Match", "*".into())]),
        Some(How::Modified(revision)) => Some(vec![("If-Match", format!("\"{revision}\""))]),
        Some(How::Value(_)) => None,
    }
}

fn told(word: &'static str, got: &Got) -> Reported {
    if word == "bytes" {
        return Reported::new("key").with("value", String::from_utf8_lossy(&got.body));
    }
    let value = got.value();
    let revision = value["header"].is_object().then(|| json::number(&value["header"]["revision"]));
    let told = match word {
        "locks" | "keys" | "leases" | "waiters" | "changes" => {
            Reported::new("listed").with("count", value[word].as_array().unwrap().len())
        }
        "set" | "proclaimed" | "resigned" | "added" | "promoted" | "removed" | "done" => {
            Reported::new(word)
        }
        "signed" => {
            let parts = value["ticket"].as_str().unwrap_or_default().split('.').count();
            Reported::new("signed").with("parts", parts)
        }
        "rotated" => Reported::new(word),
        "jwks" => Reported::new("keys").with("some", !value["keys"].as_array().unwrap().is_empty()),
        "leads" => {
            let token = json::number(&value["leader"]["token"]).unsigned_abs();
            Reported { grants: vec![(String::new(), token)], ..Reported::new("leads") }
        }
        "leader" if value["leader"].is_null() => Reported::new("vacant"),
        "leader" => Reported::new("leader")
            .with("value", value["leader"]["value"].as_str().unwrap_or_default()),
        word => json::told(word, &value),
    };
    Reported { revision: revision.unwrap_or(0), ..told }
}

fn bad_request(bad: Bad) -> Option<Sent> {
    let put = || bare("PUT", "/v1/keys/bad".into());
    let leases = |kind: &str, body: &str| {
        let headers = vec![("Content-Type", kind.to_owned())];
        let body = body.as_bytes().to_vec();
        Sent { verb: "POST", path: "/v1/leases".into(), headers, body }
    };
    Some(match bad {
        Bad::Malformed => leases("application/json", "{"),
        Bad::TooLarge => Sent { body: vec![0; 3 << 20], ..put() },
        Bad::UnknownCall => bare("GET", "/v1/steal".into()),
        Bad::UnknownVerb => bare("PUT", "/v1/leases".into()),
        Bad::Media => leases("text/plain", "{}"),
        Bad::Host => Sent { headers: vec![("Host", "evil.example".into())], ..put() },
        Bad::Origin => Sent { headers: vec![("Origin", "http://evil.example".into())], ..put() },
        Bad::Headers => Sent { headers: vec![("X-Long", LONG.clone())], ..put() },
        Bad::Half => Sent { headers: vec![("Content-Length", "9".into())], ..put() },
        Bad::OtherCluster | Bad::Restored | Bad::TooManyWatches | Bad::Backup => return None,
    })
}
