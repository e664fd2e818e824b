//! Tests sessions and the plain lock protocol over WebSockets.

use crate::alone;
use crate::metrics;
use std::net::SocketAddr;
use std::time::Duration;

use crate::alone::Alone;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

const DEADLINE: Duration = Duration::from_secs(60);

fn alone() -> Alone {
    let dir = tempfile::tempdir().unwrap();
    let settings = alone::settings(dir.path());
    Alone::run(dir, settings)
}

struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    async fn open(address: SocketAddr, path: &str) -> Self {
        Self(connect_async(format!("ws://{address}{path}")).await.unwrap().0)
    }

    async fn say(&mut self, message: Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    /// The next message; none when the connection is over.
    async fn next(&mut self) -> Option<Value> {
        loop {
            let next = tokio::time::timeout(DEADLINE, self.0.next());
            match next.await.expect("waited too long for a message")? {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    async fn ask(&mut self, message: Value) -> Value {
        self.say(message).await;
        self.next().await.unwrap()
    }

    /// Reads messages until one has this field.
    async fn until(&mut self, field: &str) -> Value {
        loop {
            let message = self.next().await.unwrap();
            if !message[field].is_null() {
                return message;
            }
        }
    }
}

async fn grant(socket: &mut Socket, id: u64, ttl_ms: u64) -> String {
    let asked = json!({"requests": [{"id": id, "grant_lease": {"ttl_ms": ttl_ms}}]});
    socket.say(asked).await;
    let message = socket.until("answers").await;
    message["answers"][0]["lease_granted"]["lease"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_session_in_json_queues_and_is_told_when_its_turn_comes() {
    let member = alone();
    let address = member.running.clients;
    let (mut a, mut b) =
        (Socket::open(address, "/v1/ws").await, Socket::open(address, "/v1/ws").await);
    let welcome = a.ask(json!({"hello": {"client": "a"}})).await;
    assert_eq!(welcome["welcome"]["member"], "m0");
    let first = grant(&mut a, 1, 60_000).await;
    let second = grant(&mut b, 1, 60_000).await;

    let acquire = |id: u64, lease: &str| {
        let ask = json!({"lock": "deploy", "lease": lease});
        json!({"requests": [{"id": id, "acquire": ask}]})
    };
    a.say(acquire(2, &first)).await;
    let held = a.until("answers").await;
    let token = held["answers"][0]["acquired"]["token"].as_str().unwrap().to_owned();
    b.say(acquire(7, &second)).await;
    let queued = b.until("answers").await;
    assert_eq!(queued["answers"][0]["queued"]["ahead"], 0);

    let hold = json!({"lock": "deploy", "lease": first, "token": token});
    a.say(json!({"requests": [{"id": 3, "release": hold}]})).await;
    assert!(a.until("answers").await["answers"][0]["released"].is_object());
    let granted = b.until("grants").await["grants"][0].clone();
    assert_eq!((granted["id"].as_u64(), granted["lock"].as_str()), (Some(7), Some("deploy")));
    assert_eq!(granted["lease"].as_str(), Some(&second[..]));
    let newer: u64 = granted["token"].as_str().unwrap().parse().unwrap();
    assert!(newer > token.parse().unwrap());

    // A stale token releases nothing.
    let stale = json!({"lock": "deploy", "lease": second, "token": token});
    b.say(json!({"requests": [{"id": 8, "release": stale}]})).await;
    let refused = b.until("answers").await["answers"][0]["error"].clone();
    assert_eq!((&refused["reason"], &refused["effect"]), (&json!("NOT_HOLDER"), &json!("none")));
}

#[tokio::test]
async fn a_session_that_comes_back_hears_of_its_losses() {
    let member = alone();
    let address = member.running.clients;
    let mut a = Socket::open(address, "/v1/ws").await;
    let lease = grant(&mut a, 1, 60_000).await;
    let acquire = json!({"lock": "deploy", "lease": lease});
    a.say(json!({"requests": [{"id": 2, "acquire": acquire}]})).await;
    let token = a.until("answers").await["answers"][0]["acquired"]["token"].clone();
    drop(a);

    let mut again = Socket::open(address, "/v1/ws").await;
    let welcome = again.ask(json!({"resume": {"leases": [lease]}})).await;
    assert_eq!(welcome["welcome"]["leases"][0]["lease"], json!(lease));
    let force = json!({"lock": "deploy", "token": token, "by": "ops@host", "reason": "a test"});
    again.say(json!({"requests": [{"id": 1, "force": force}]})).await;
    let lost = again.until("losses").await["losses"][0].clone();
    assert_eq!(
        (&lost["lock"], &lost["token"], &lost["cause"]),
        (&json!("deploy"), &token, &json!("forced"))
    );
    assert_eq!((&lost["by"], &lost["reason"]), (&json!("ops@host"), &json!("a test")));
    assert_eq!(lost["lease"], json!(lease));
}

#[tokio::test]
async fn nonsense_is_named_and_ends_the_session() {
    let member = alone();
    let mut a = Socket::open(member.running.clients, "/v1/ws").await;
    let answer = a.ask(
        json!({"requests": [{"id": 1, "release": {"lock": "x", "lease": "0", "token": "1"}}]}),
    );
    let answer = answer.await;
    let error = if answer["answers"].is_null() { a.until("answers").await } else { answer };
    assert_eq!(error["answers"][0]["error"]["reason"], "INVALID_FIELD");
    let nonsense = || Message::text("hello there");
    a.0.send(nonsense()).await.unwrap();
    let error = a.until("answers").await["answers"][0].clone();
    assert_eq!((&error["id"], &error["error"]["reason"]), (&json!(0), &json!("MALFORMED")));
    // A client that continues like that is disconnected.
    a.0.send(nonsense()).await.unwrap();
    assert_eq!(a.until("closing").await["closing"]["reason"], "MALFORMED");
    let closed = tokio::time::timeout(DEADLINE, a.0.next()).await.expect("it is closed in time");
    let Some(Ok(Message::Close(Some(frame)))) = closed else { panic!("no close") };
    assert_eq!(u16::from(frame.code), 1007);
}

/// The response to a request without an upgrade.
fn without_upgrade(address: SocketAddr, verb: &str, path: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let request = format!("{verb} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_path_of_sockets_answers_other_requests_as_every_path_does() {
    let member = alone();
    let address = member.running.clients;
    for path in ["/v1/ws", "/v1/lock-socket"] {
        let answer = without_upgrade(address, "GET", path);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains(r#""reason":"MALFORMED""#), "{answer}");
        let answer = without_upgrade(address, "POST", path);
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
        assert!(answer.contains(r#""reason":"UNKNOWN_VERB""#), "{answer}");
    }
}

#[tokio::test]
async fn a_plain_message_that_is_too_long_closes_the_socket_and_says_so() {
    let member = alone();
    let mut a = Socket::open(member.running.clients, "/v1/lock-socket").await;
    a.0.send(Message::text("x".repeat(32 * 1024))).await.unwrap();
    let closed = tokio::time::timeout(DEADLINE, a.0.next()).await.expect("it is closed in time");
    let Some(Ok(Message::Close(Some(frame)))) = closed else { panic!("no close") };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1009, "TOO_LARGE"));
}

fn plain(kind: u64, key: &str, client: &str, ttl: u64) -> Value {
    json!({"commandType": kind, "key": key, "clientID": client, "ttl": ttl})
}

#[tokio::test]
async fn the_plain_protocol_grants_in_order_and_releases_without_an_answer() {
    let member = alone();
    let address = member.running.clients;
    let mut a = Socket::open(address, "/v1/lock-socket").await;
    let mut b = Socket::open(address, "/v1/lock-socket").await;
    let first = a.ask(plain(0, "k", "a", 60)).await;
    assert_eq!((&first["success"], &first["fencingToken"]["key"]), (&json!(true), &json!("k")));
    b.say(plain(0, "k", "b", 60)).await;
    // Several locks on one connection: waiting for one does not delay another.
    let other = b.ask(plain(0, "other", "b", 60)).await;
    assert_eq!(other["fencingToken"]["key"], "other");
    a.say(plain(1, "k", "a", 0)).await;
    let second = b.next().await.unwrap();
    let token = |reply: &Value| reply["fencingToken"]["value"].as_u64().unwrap();
    assert!(token(&second) > token(&first));
    let refused = b.ask(plain(5, "k", "b", 60)).await;
    assert_eq!((&refused["success"], &refused["reason"]), (&json!(false), &json!("INVALID_FIELD")));
    for series in [
        "tenure_request_seconds_count{api=\"lock_socket\",command=\"acquire\"}",
        "tenure_request_seconds_count{api=\"lock_socket\",command=\"release\"}",
        "tenure_refusals_total{reason=\"INVALID_FIELD\",api=\"lock_socket\"}",
    ] {
        assert!(metrics::metric(address, series).await >= 1.0, "{series}");
    }
}

#[tokio::test]
async fn a_plain_client_that_comes_back_finds_its_grant_and_its_place() {
    let member = alone();
    let address = member.running.clients;
    let mut a = Socket::open(address, "/v1/lock-socket").await;
    let mut b = Socket::open(address, "/v1/lock-socket").await;
    let mut c = Socket::open(address, "/v1/lock-socket").await;
    let first = a.ask(plain(0, "k", "a", 60)).await;
    b.say(plain(0, "k", "b", 60)).await;
    // An answer about another lock proves that the request before it was received.
    b.ask(plain(0, "b-was-heard", "b", 60)).await;
    wait_for_queue(&member, 1).await;
    c.say(plain(0, "k", "c", 60)).await;
    wait_for_queue(&member, 2).await;
    drop(a);
    drop(b);
    let mut a = Socket::open(address, "/v1/lock-socket").await;
    assert_eq!(a.ask(plain(0, "k", "a", 60)).await, first, "the same grant");
    let mut b = Socket::open(address, "/v1/lock-socket").await;
    b.say(plain(0, "k", "b", 60)).await;
    b.ask(plain(0, "b-is-back", "b", 60)).await;
    a.say(plain(1, "k", "a", 0)).await;
    assert_eq!(b.next().await.unwrap()["success"], true, "before the one who came later");
}

async fn wait_for_queue(member: &Alone, length: u64) {
    let waiting = async {
        loop {
            let asked = member
                .running
                .member
                .read_stale(|machine| machine.lock("k").map_or(0, |lock| lock.waiting));
            if asked.unwrap() == length {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.expect("waited too long for the queue");
}
