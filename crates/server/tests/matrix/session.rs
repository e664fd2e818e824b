//! Builds the requests of a session, and sends them over gRPC, over a WebSocket and over the lock socket.

use std::net::SocketAddr;

use futures_util::{SinkExt as _, StreamExt as _};
use prost::Message as _;
use serde_json::{Value, json};
use tenure_wire::json::session;
use tenure_wire::v1;
use tenure_wire::v1::answer::Result as Answered;
use tenure_wire::v1::session_service_client::SessionServiceClient;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use tonic::transport::Channel;

use super::grpc;
use super::outcome::{LEFT_OUT, NO_EFFECT, Outcome, TTL_0};
use super::stage::{Column, HIDDEN, MatrixMember, Row};
use crate::bounded::DEADLINE;

pub(super) fn variants(request: &str) -> &'static [&'static str] {
    match request {
        "put" => &["", "lease", "guard"],
        "revoke" => &["", "reason"],
        _ => &[""],
    }
}

/// A valid request; `None` if the matrix does not have it.
pub(super) fn request(name: &str, variant: &str, row: &Row) -> Option<Value> {
    let (lease, token) = (row.lease.to_string(), row.token.to_string());
    let (lock, key, free) = (row.name("lock"), row.name("key"), row.name("free"));
    let hold = json!({"lock": lock, "lease": lease, "token": token});
    let command = match name {
        "acquire" => json!({"lock": free, "lease": lease, "wait_ms": 0}),
        "delete" => json!({"key": key}),
        "downgrade" | "release" => hold,
        "drain" => json!({"prefix": row.name("spare"), "reason": "new disks"}),
        "resize" => json!({"lock": row.name("spare"), "slots": 3}),
        "undrain" => json!({"prefix": row.name("spare")}),
        "explain" => json!({"lock": lock, "lease": lease}),
        "force" => json!({"lock": lock, "token": token, "reason": "it is needed elsewhere"}),
        "get_key" => json!({"name": key}),
        "get_lease" => json!({"name": lease}),
        "get_lock" => json!({"name": lock}),
        "grant_lease" => json!({"ttl_ms": 60_000}),
        // These two begin a session, and are no requests.
        "hello" => return Some(json!({"hello": {}})),
        "resume" => return Some(json!({"resume": {"leases": [lease]}})),
        "leave" => json!({"lock": row.name("queue"), "lease": lease}),
        "put" if variant == "lease" => json!({"key": key, "value": HIDDEN, "lease": lease}),
        "put" if variant == "guard" => json!({"key": key, "value": HIDDEN,
            "guard": {"lock": lock, "token": token}}),
        "put" => json!({"key": key, "value": HIDDEN}),
        "renew" => json!({"leases": [lease]}),
        "revoke" if variant == "reason" => json!({"lease": lease, "reason": "stuck"}),
        "revoke" => json!({"lease": lease}),
        "stopped" => json!({"lock": lock, "lease": lease, "token": token,
            "lease_created": row.created.to_string()}),
        "hand_on" => json!({"lock": lock, "lease": lease, "token": token, "to": lease}),
        "progress" => json!({"lock": lock, "lease": lease, "token": token, "number": "1"}),
        "update" => json!({"lock": lock, "lease": lease, "token": token, "metadata": "new"}),
        _ => return None,
    };
    let mut request = json!({"id": 1});
    request[name] = command;
    Some(request)
}

/// The leases that the first message resumes.
fn resumed(asked: &Value) -> Vec<i64> {
    let leases = asked["resume"]["leases"].as_array().map(Vec::as_slice).unwrap_or_default();
    leases.iter().map(|lease| lease.as_str().unwrap().parse().unwrap()).collect()
}

/// The outcome of a beginning: which leases were resumed, of those that were asked for.
fn welcomed(asked: &Value, leases: usize, body: Vec<u8>) -> Outcome {
    if leases < resumed(asked).len() { Outcome::word(LEFT_OUT, body) } else { Outcome::ok(body) }
}

/// Opens a session over gRPC and sends the request.
pub(super) async fn ask_grpc(channel: Channel, bearer: Option<&str>, asked: &Value) -> Outcome {
    let begins = asked["id"].is_null();
    let requests = if begins {
        Vec::new()
    } else {
        let asked: session::Request = serde_json::from_value(asked.clone()).unwrap();
        vec![v1::Request::try_from(asked).unwrap()]
    };
    let lease = |lease| v1::LeaseName { lease, ..Default::default() };
    let leases = resumed(asked).into_iter().map(lease).collect();
    let hello = Some(v1::Hello { client: "matrix".into(), leases, ..Default::default() });
    let first = tokio_stream::once(v1::SessionRequest { hello, requests });
    let sent = tokio_stream::StreamExt::chain(first, tokio_stream::pending());
    let mut call = tonic::Request::new(sent);
    if let Some(bearer) = bearer {
        call.metadata_mut().insert("authorization", bearer.parse().unwrap());
    }
    let mut client = SessionServiceClient::new(channel);
    let answer = async {
        let mut heard = client.open(call).await?.into_inner();
        let mut body = Vec::new();
        loop {
            let Some(message) = heard.message().await? else {
                return Ok(Outcome::word("no answer", body));
            };
            body.extend(message.encode_to_vec());
            if let Some(error) = message.closing {
                return Ok(Outcome::error(&error, body));
            }
            if let Some(welcome) = message.welcome.filter(|_| begins) {
                return Ok(welcomed(asked, welcome.leases.len(), body));
            }
            if let Some(answer) = message.answers.into_iter().next() {
                return Ok(match answer.result {
                    Some(Answered::Error(error)) => Outcome::error(&error, body),
                    Some(Answered::Renewed(it)) if it.ttl_ms == [0] => Outcome::word(TTL_0, body),
                    Some(_) => Outcome::ok(body),
                    None => Outcome::word("empty answer", body),
                });
            }
        }
    };
    let answer = tokio::time::timeout(DEADLINE, answer).await.expect("it came in time");
    answer.unwrap_or_else(|status: tonic::Status| grpc::refused(&status))
}

/// Opens a session over a WebSocket, with the credentials in the first message, and sends the request.
pub(super) async fn ask_ws(at: SocketAddr, bearer: Option<&str>, asked: &Value) -> Outcome {
    let Some(socket) = Socket::open(at, "/v1/ws", None).await else { return unidentified() };
    let mut hello = json!({"client": "matrix"});
    if let Some(bearer) = bearer {
        hello["authorization"] = json!(bearer);
    }
    let mut first = json!({"hello": hello});
    if asked["id"].is_null() {
        first["resume"] = asked["resume"].clone();
    } else {
        first["requests"] = json!([asked]);
    }
    first.as_object_mut().unwrap().retain(|_, part| !part.is_null());
    ask_over(socket, &first, asked).await
}

/// Upgrades a request to a socket, with the credentials in its header, and sends a message without any.
pub(super) async fn ask_upgrade(stage: &MatrixMember, column: Column, path: &str) -> Outcome {
    let (at, bearer) = (stage.at(column), stage.bearer(column));
    let Some(mut socket) = Socket::open(at, path, bearer).await else { return unidentified() };
    if path == "/v1/ws" {
        let hello = json!({"hello": {"client": "matrix"}});
        return ask_over(socket, &hello, &hello).await;
    }
    // What is no message is answered only to a client that is known.
    socket.try_say("no message").await;
    match plain(&socket.next().await.expect("a reply")) {
        Outcome { word, body } if word == "MALFORMED" => Outcome::ok(body),
        other => other,
    }
}

/// Sends the first message of a session, and waits for the answer to what it asks.
async fn ask_over(mut socket: Socket, first: &Value, asked: &Value) -> Outcome {
    socket.say(first).await;
    let mut body = Vec::new();
    loop {
        let Some(message) = socket.next().await else {
            return Outcome::word("no answer", body);
        };
        body.extend(message.to_string().into_bytes());
        let answer = &message["answers"][0];
        let errors = [&message["closing"], &answer["error"]];
        if let Some(error) = errors.into_iter().find(|it| it.is_object()) {
            let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
            return Outcome::refused(&text("reason"), &text("message"), body);
        }
        if message["welcome"].is_object() && asked["id"].is_null() {
            let leases = message["welcome"]["leases"].as_array().map_or(0, Vec::len);
            return welcomed(asked, leases, body);
        }
        if answer.is_object() {
            let ended = answer.to_string().contains("\"ttl_ms\":0");
            return if ended { Outcome::word(TTL_0, body) } else { Outcome::ok(body) };
        }
    }
}

/// Sends a message of the lock socket. A release has no answer: its outcome is what became of the lock.
pub(super) async fn ask_lock_socket(
    stage: &MatrixMember,
    column: Column,
    message: &str,
    row: &Row,
) -> Option<Outcome> {
    let at = stage.at(column);
    let lock = row.name("socket");
    let ask = |command: u32, bearer: Option<&str>| {
        let mut ask = json!({"commandType": command, "key": lock, "clientID": HIDDEN, "ttl": 600});
        if let Some(bearer) = bearer {
            ask["authorization"] = json!(bearer);
        }
        ask
    };
    let bearer = stage.bearer(column);
    match message {
        "acquire" => {
            let Some(mut socket) = Socket::open(at, "/v1/lock-socket", None).await else {
                return Some(unidentified());
            };
            socket.say(&ask(0, bearer)).await;
            Some(plain(&socket.next().await.expect("a reply")))
        }
        "release" => {
            let holder = Socket::open(stage.at(Column::Right), "/v1/lock-socket", None).await;
            let mut holder = holder.expect("the right caller gets a socket");
            holder.say(&ask(0, stage.bearer(Column::Right))).await;
            assert_eq!(holder.next().await.unwrap()["success"], true);
            let Some(mut socket) = Socket::open(at, "/v1/lock-socket", None).await else {
                return Some(unidentified());
            };
            socket.say(&ask(1, bearer)).await;
            // The member has served the release when it answers the next message.
            socket.try_say("no message").await;
            let reply = socket.next().await.expect("a reply");
            if reply["reason"] == "UNAUTHENTICATED" {
                return Some(plain(&reply));
            }
            let shown = stage.owner("GET", &format!("/v1/locks/{lock}"), &Value::Null).ok();
            let held = shown["lock"]["holders"].as_array().is_some_and(|it| !it.is_empty());
            Some(if held { Outcome::word(NO_EFFECT, Vec::new()) } else { Outcome::ok(Vec::new()) })
        }
        _ => None,
    }
}

/// The outcome of an upgrade that was refused for want of credentials.
fn unidentified() -> Outcome {
    Outcome::word("UNAUTHENTICATED", Vec::new())
}

fn plain(reply: &Value) -> Outcome {
    let body = reply.to_string().into_bytes();
    match reply["reason"].as_str() {
        Some(reason) => Outcome::word(reason, body),
        None => Outcome::ok(body),
    }
}

struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    /// Opens a socket, with credentials if there are some; `None` if the upgrade is refused for want of credentials.
    async fn open(at: SocketAddr, path: &str, bearer: Option<&str>) -> Option<Self> {
        let mut request = format!("ws://{at}{path}").into_client_request().unwrap();
        if let Some(bearer) = bearer {
            request.headers_mut().insert("authorization", bearer.parse().unwrap());
        }
        match connect_async(request).await {
            Ok((socket, _)) => Some(Self(socket)),
            Err(tungstenite::Error::Http(refused)) if refused.status() == 401 => None,
            Err(error) => panic!("no socket: {error}"),
        }
    }

    async fn say(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    /// Sends a text on a socket that the member may have closed.
    async fn try_say(&mut self, text: &str) {
        let _ = self.0.send(Message::text(text.to_owned())).await;
    }

    /// The next message; `None` if the socket is closed.
    async fn next(&mut self) -> Option<Value> {
        loop {
            let next = tokio::time::timeout(DEADLINE, self.0.next()).await;
            match next.expect("it came in time")? {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}
