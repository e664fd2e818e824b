//! Drives JSON sessions over a WebSocket.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tenure_wire::v1;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::json;
use crate::request::{Answered, Api, Ask, Bad, Fault, How, Reply, Reported, What};
use crate::session::Waiting;

/// The WebSocket API of one member.
pub(crate) struct Sockets {
    at: SocketAddr,
    open: Mutex<BTreeMap<String, Socket>>,
}

/// One socket, and its pending requests.
#[derive(Clone)]
struct Socket {
    to: mpsc::Sender<Message>,
    waiting: Waiting,
}

impl Sockets {
    pub(crate) fn new(at: SocketAddr) -> Self {
        Self { at, open: Mutex::default() }
    }

    fn socket(&self, who: &str) -> Socket {
        let mut open = self.open.lock().unwrap();
        let new = || Socket::open(self.at, &json!({"hello": {"client": who}}));
        open.entry(who.to_owned()).or_insert_with(new).clone()
    }
}

impl Api for Sockets {
    fn ask(&self, who: &str, ask: Ask) -> Answered {
        let command = match &ask.what {
            What::Command(command) => command,
            What::Bad(bad) => return bad_socket(self.at, *bad),
            _ => return Box::pin(async { Reply::NotHere }),
        };
        let (name, content) = json::command(command);
        let socket = self.socket(who);
        let (id, answer) = socket.waiting.ask();
        let mut request = json!({"id": id, name: content});
        if let Some(key) = ask.key {
            request["idempotency_key"] = json!(key);
        }
        if let Some(ms) = ask.deadline_ms {
            request["deadline_ms"] = json!(ms);
        }
        if ask.seq > 0 {
            request["seq"] = json!(ask.seq);
        }
        let message = Message::text(json!({"requests": [request]}).to_string());
        Box::pin(async move {
            // A socket that is closed has already answered every request.
            let _ = socket.to.send(message).await;
            answer.await.expect("an answer")
        })
    }
}

impl Socket {
    fn open(at: SocketAddr, hello: &Value) -> Self {
        let (to, mut messages) = mpsc::channel::<Message>(16);
        let waiting = Waiting::default();
        to.try_send(Message::text(hello.to_string())).unwrap();
        tokio::spawn({
            let waiting = waiting.clone();
            async move {
                let socket = match connect_async(format!("ws://{at}/v1/ws")).await {
                    Ok((socket, _)) => socket,
                    Err(error) => return waiting.end(&not_opened(error)),
                };
                let (mut sink, stream) = socket.split();
                let sending = async {
                    while let Some(message) = messages.recv().await {
                        if sink.send(message).await.is_err() {
                            // What the member sent before counts, so do not end here.
                            std::future::pending::<()>().await;
                        }
                    }
                };
                tokio::select! {
                    () = sending => {}
                    () = listen(stream, &waiting) => {}
                }
            }
        });
        Self { to, waiting }
    }
}

type Stream = futures_util::stream::SplitStream<WebSocketStream<MaybeTlsStream<TcpStream>>>;

async fn listen(mut stream: Stream, waiting: &Waiting) {
    let mut last = None;
    let code = loop {
        match stream.next().await {
            Some(Ok(Message::Text(text))) => {
                let message: Value = serde_json::from_str(&text).unwrap();
                if message["closing"].is_object() {
                    last = Some(json::fault(&message["closing"], How::Close(None)));
                }
                take(&message, waiting);
            }
            Some(Ok(Message::Close(frame))) => break frame.map(|it| it.code.into()),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => break None,
        }
    };
    // For a socket closed without a message, only the code tells the reason.
    let fault = last.unwrap_or_else(|| {
        let socket = code.map(|code| (code, tenure_wire::reason::Socket::Close(code)));
        let row = tenure_wire::reason::TABLE.iter();
        let reason = socket.and_then(|(_, socket)| row.clone().find(|row| row.socket == socket));
        let reason = reason.map_or("(no reason)", |row| row.reason).to_owned();
        let error = v1::Error { reason, message: "closed".into(), ..Default::default() };
        Fault::new(&error, How::Close(None))
    });
    waiting.end(&Reply::Refused(Fault { how: How::Close(code), ..fault }));
}

fn take(message: &Value, waiting: &Waiting) {
    let list = |name: &str| message[name].as_array().cloned().unwrap_or_default();
    for answer in list("answers") {
        let id = answer["id"].as_u64().unwrap();
        let named = answer.as_object().unwrap().iter();
        let (name, content) = named
            .clone()
            .find(|(name, _)| *name != "id" && *name != "revision")
            .unwrap_or_else(|| panic!("{answer}"));
        let revision = answer.get("revision").map_or(0, json::number);
        match &**name {
            // An error without a request id answers request 1, the first of the socket.
            "error" => waiting.answer(id.max(1), Reply::Refused(json::fault(content, How::Frame))),
            "queued" => {}
            "renewed" => waiting.answer(id, json::told("renewed", &content[0]).into()),
            "lease" | "key" => {
                let told = json::told(name, &content[&**name]);
                waiting.answer(id, Reported { revision, ..told }.into());
            }
            name => waiting.answer(id, Reported { revision, ..json::told(name, content) }.into()),
        }
    }
    for granted in list("grants") {
        let id = granted["id"].as_u64().unwrap();
        waiting.answer(id, json::told("grants", &granted).into());
    }
    for it in list("waits_ended") {
        let id = it["id"].as_u64().unwrap();
        let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
        if it["error"].is_object() {
            let (reason, message) = (text(&it["error"]["reason"]), text(&it["error"]["message"]));
            let error = v1::Error { reason, message, ..Default::default() };
            waiting.wait_refused(id, &error);
        } else {
            waiting.waited_in_vain(id, &text(&it["superseded_by"]));
        }
    }
}

fn bad_socket(at: SocketAddr, bad: Bad) -> Answered {
    let mut hello = json!({"hello": {"client": "bad"}});
    let said = match bad {
        Bad::Host => return upgrade(at, "/v1/ws", "host", "evil.example"),
        Bad::Origin => return upgrade(at, "/v1/ws", "origin", "http://evil.example"),
        Bad::Headers => return upgrade(at, "/v1/ws", "x-long", &crate::http::LONG),
        Bad::OtherCluster => {
            hello["hello"]["cluster_id"] = json!("77");
            Message::text("{}")
        }
        Bad::Restored => {
            hello["hello"]["epoch"] = json!(77);
            Message::text("{}")
        }
        Bad::Malformed => Message::text("hello there"),
        Bad::TooLarge => Message::text("x".repeat(3 << 20)),
        Bad::Media => Message::binary(vec![0xff; 8]),
        Bad::UnknownCall | Bad::UnknownVerb | Bad::TooManyWatches | Bad::Half | Bad::Backup => {
            return Box::pin(async { Reply::NotHere });
        }
    };
    let socket = Socket::open(at, &hello);
    Box::pin(async move {
        let (_, answer) = socket.waiting.ask();
        let _ = socket.to.send(said).await;
        answer.await.expect("an answer")
    })
}

/// Tries to open a socket with a wrong header.
pub(crate) fn upgrade(
    at: SocketAddr,
    path: &'static str,
    header: &'static str,
    value: &'static str,
) -> Answered {
    Box::pin(async move {
        let mut request = format!("ws://{at}{path}").into_client_request().unwrap();
        request.headers_mut().insert(header, value.parse().unwrap());
        match connect_async(request).await {
            Ok(_) => Reply::Done(Reported::new("open")),
            Err(error) => not_opened(error),
        }
    })
}

/// The reply for a socket that was not opened.
fn not_opened(error: Error) -> Reply {
    let Error::Http(response) = error else { panic!("{error}") };
    let status = response.status().as_u16();
    let body = response.body().clone().unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap();
    Reply::Refused(json::fault(&body["error"], How::Upgrade(status)))
}
