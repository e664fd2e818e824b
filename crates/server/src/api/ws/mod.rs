//! Serves WebSockets: JSON sessions and the plain lock protocol.
//!
//! `/v1/ws` carries the JSON form of a session, `/v1/lock-socket` the plain lock protocol. Every connection is pinged
//! regularly.

pub(crate) mod plain;
mod session;

use std::convert::Infallible;
use std::time::Duration;

use ::http::request::Parts;
use axum::Router;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use axum::routing::get;
use tenure_node::RateLimit;
use tenure_wire::reason::{self, Socket};
use tenure_wire::{Failure, v1};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{ConnectionPermit, MESSAGE_BYTES_MAX, http};
use crate::dispatch::{Caller, Dispatch, SessionMessage};
use crate::identity::{CallerIdentity, Fingerprint, Presented};
use crate::metrics::Protocol;
use crate::os;

/// The most bytes of a message of the plain protocol, which has a few words.
const PLAIN_BYTES_MAX: usize = 16 * 1024;
/// The pings and pongs of a client in one second. Each costs the member as much as a message, and a ping is answered.
const CONTROL_PER_SECOND: u64 = 100;
/// The ping interval and the silence limit of every socket.
const TIMEOUT: PingSchedule =
    PingSchedule { asked: Duration::from_secs(20), silent: Duration::from_secs(60) };
/// How long a client that was sent the reason of its closing has to read it, before what it still sends resets the
/// connection.
const FAREWELL: Duration = Duration::from_secs(1);
/// The close code for frames that the protocol does not allow.
const PROTOCOL: u16 = 1002;
/// The close code for reasons to which the table assigns none: a violation of the protocol's rules.
const RULES: u16 = 1008;

/// The paths of both.
pub(super) const PATHS: [&str; 2] = ["/v1/ws", "/v1/lock-socket"];
/// How long a client may take to send its credentials, if the upgrade had none and identity is enabled.
const CREDENTIALS: Duration = Duration::from_secs(10);

/// The routes of both.
pub(super) fn routes(dispatch: &Dispatch) -> Router {
    Router::new()
        .route("/v1/ws", get(session_socket))
        .route("/v1/lock-socket", get(plain_socket))
        .method_not_allowed_fallback(http::unknown_verb)
        .with_state(dispatch.clone())
}

/// A request to one of the paths, if it can be upgraded.
type SocketUpgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

/// The permit of the connection that becomes a socket.
struct UpgradePermit(Option<ConnectionPermit>);

impl<S: Send + Sync> FromRequestParts<S> for UpgradePermit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.remove()))
    }
}

/// The response to a request that cannot be upgraded.
fn no_socket(why: &dyn std::fmt::Display) -> Response {
    http::refused(Failure::Malformed { what: format!("this path opens a WebSocket: {why}") })
}

async fn session_socket(
    State(dispatch): State<Dispatch>,
    UpgradePermit(permit): UpgradePermit,
    upgrade: SocketUpgrade,
) -> Response {
    let (upgrade, permit) = match (upgrade, permit) {
        (Ok(upgrade), Some(permit)) => (upgrade, permit),
        (Err(why), _) => return no_socket(&why),
        (Ok(_), None) => return no_socket(&"not over this version of HTTP"),
    };
    permit.connection().speaks(Protocol::WebSocket);
    upgrade
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX)
        .max_write_buffer_size(2 * MESSAGE_BYTES_MAX)
        .on_upgrade(async move |socket| {
            let caller = permit.caller().clone();
            let socket = LiveSocket::new(socket, MESSAGE_BYTES_MAX, &caller);
            caller.run(session::serve(socket, dispatch, permit)).await;
        })
}

async fn plain_socket(
    State(dispatch): State<Dispatch>,
    UpgradePermit(permit): UpgradePermit,
    upgrade: SocketUpgrade,
) -> Response {
    let (upgrade, permit) = match (upgrade, permit) {
        (Ok(upgrade), Some(permit)) => (upgrade, permit),
        (Err(why), _) => return no_socket(&why),
        (Ok(_), None) => return no_socket(&"not over this version of HTTP"),
    };
    permit.connection().speaks(Protocol::WebSocket);
    upgrade
        .max_message_size(PLAIN_BYTES_MAX)
        .max_frame_size(PLAIN_BYTES_MAX)
        .max_write_buffer_size(64 * PLAIN_BYTES_MAX)
        .on_upgrade(move |socket| {
            let caller = permit.caller().clone();
            let socket = LiveSocket::new(socket, PLAIN_BYTES_MAX, &caller);
            caller.run(plain::serve(socket, dispatch, permit))
        })
}

/// A client that was identified, and its first message if that was read for its credentials.
struct IdentifiedSocket {
    socket: LiveSocket,
    identity: CallerIdentity,
    first: Option<String>,
}

/// Why a client was not identified.
enum Unidentified {
    /// It is gone, or was told so already.
    Gone,
    /// Its credentials are missing or wrong.
    Refused(Box<LiveSocket>, Failure),
}

/// Identifies the client of a socket: by the upgrade, or by the first message, because browsers cannot set headers.
/// `authorization` finds the credentials in a message.
async fn identify(
    mut socket: LiveSocket,
    dispatch: &Dispatch,
    permit: &mut ConnectionPermit,
    authorization: impl Fn(&str) -> Option<String>,
) -> Result<IdentifiedSocket, Unidentified> {
    if let Some(identity) = permit.caller().identity().cloned() {
        return Ok(IdentifiedSocket { socket, identity, first: None });
    }
    let identity = dispatch.member().identity();
    let is_late = async {
        match identity.is_required(&identity.access()) {
            true => tokio::time::sleep(CREDENTIALS).await,
            false => std::future::pending().await,
        }
    };
    // No request uses this session: it reports when the member ends by itself.
    let session = dispatch.session();
    let ended = async {
        let is_last = |it: &SessionMessage| matches!(it, SessionMessage::Closed);
        while !session.mail().await.iter().any(is_last) {}
    };
    let heard = tokio::select! {
        heard = socket.next() => heard.ok_or(Unidentified::Gone)?,
        () = is_late => Err(Failure::Unauthenticated),
        () = ended => Err(dispatch.farewell()),
        () = permit.closing() => Err(dispatch.farewell()),
    };
    let text = match heard {
        Ok(text) => text,
        Err(failure) => {
            socket.close(&(&failure).into()).await;
            return Err(Unidentified::Gone);
        }
    };
    let certificate = permit.certificate().cloned();
    let presented = Presented { certificate, ..Presented::default() };
    let (value, throttle) = (authorization(&text), permit.caller().throttle());
    let fingerprint = value.as_ref().map(|value| Fingerprint::of(value.as_bytes()));
    if let Some(fingerprint) = fingerprint
        && let Err(failure) = throttle.check(os::now_us(), fingerprint)
    {
        dispatch.member().meters().connections.throttled();
        return Err(Unidentified::Refused(Box::new(socket), failure));
    }
    let presented = match value {
        Some(value) => presented.with_authorization(&value),
        None => Ok(presented),
    };
    if let Ok(presented) = &presented
        && let Some(missing) = identity.missing_keys(presented)
    {
        missing.read().await;
    }
    match presented.and_then(|presented| CallerIdentity::resolve(identity, presented)) {
        Ok(identity) => {
            fingerprint.into_iter().for_each(|fingerprint| throttle.succeeded(fingerprint));
            Ok(IdentifiedSocket { socket, identity, first: Some(text) })
        }
        Err(failure) => {
            let wrong = fingerprint.into_iter();
            wrong.for_each(|fingerprint| throttle.failed(os::now_us(), fingerprint));
            Err(Unidentified::Refused(Box::new(socket), failure))
        }
    }
}

/// How often a client is pinged, and how long it may send nothing at all.
#[derive(Clone, Copy)]
struct PingSchedule {
    asked: Duration,
    silent: Duration,
}

/// A socket that detects when the client is gone.
struct LiveSocket {
    socket: WebSocket,
    bytes_max: usize,
    silent: Duration,
    asks: tokio::time::Interval,
    heard_at: Instant,
    /// Counts what is read for the next message.
    caller: Option<Caller>,
    control: RateLimit,
}

impl Drop for LiveSocket {
    fn drop(&mut self) {
        if let Some(caller) = &self.caller {
            caller.memory().message_read();
        }
    }
}

impl LiveSocket {
    fn new(socket: WebSocket, bytes_max: usize, caller: &Caller) -> Self {
        let mut live = Self::with(socket, bytes_max, TIMEOUT);
        live.belongs_to(caller);
        live
    }

    /// Counts what is read for the next message for this caller from now on.
    fn belongs_to(&mut self, caller: &Caller) {
        caller.memory().begin_socket();
        self.caller = Some(caller.clone());
    }

    fn with(socket: WebSocket, bytes_max: usize, schedule: PingSchedule) -> Self {
        let now = Instant::now();
        let mut asks = interval_at(now + schedule.asked, schedule.asked);
        asks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (silent, control) = (schedule.silent, RateLimit::default());
        Self { socket, bytes_max, silent, asks, heard_at: now, caller: None, control }
    }

    /// The next text, or the error in it; none when the connection is over. Safe to cancel.
    async fn next(&mut self) -> Option<Result<String, Failure>> {
        loop {
            tokio::select! {
                message = self.socket.recv() => {
                    self.heard_at = Instant::now();
                    if let Some(caller) = &self.caller {
                        caller.memory().message_read();
                    }
                    match message? {
                        Ok(Message::Text(text)) => return Some(Ok(text.as_str().to_owned())),
                        Ok(Message::Binary(bytes)) => {
                            let text = String::from_utf8(bytes.to_vec());
                            let not_text = Failure::UnsupportedMedia { expected: "text" };
                            return Some(text.map_err(|_| not_text));
                        }
                        Ok(Message::Ping(_) | Message::Pong(_)) => {
                            if self.control.take(os::now_us(), CONTROL_PER_SECOND).is_err() {
                                // Without waiting for what it still sends: that is the harm.
                                let reason = "too many pings".into();
                                let frame = CloseFrame { code: RULES, reason };
                                let closing = self.socket.send(Message::Close(Some(frame)));
                                let _ = tokio::time::timeout(FAREWELL, closing).await;
                                return None;
                            }
                        }
                        Ok(Message::Close(_)) => return None,
                        Err(error) => {
                            if let Some(failure) = self.unreadable(&error) {
                                return Some(Err(failure));
                            }
                            if is_violation(&error) {
                                self.farewell(PROTOCOL, "protocol error").await;
                            }
                            return None;
                        }
                    }
                }
                _ = self.asks.tick() => {
                    if self.heard_at.elapsed() > self.silent {
                        return None;
                    }
                    self.socket.send(Message::Ping(bytes::Bytes::new())).await.ok()?;
                }
            }
        }
    }

    /// The client's error, unless the connection has simply ended. The library identifies the error only by its
    /// message; the conformance tests check it.
    fn unreadable(&self, error: &axum::Error) -> Option<Failure> {
        let what = error.to_string();
        if what.contains("Space limit exceeded") {
            return Some(Failure::TooLarge { bound: self.bytes_max as u64 });
        }
        what.contains("UTF-8").then_some(Failure::UnsupportedMedia { expected: "text" })
    }

    /// Closes the connection with the code from the table of reasons.
    async fn close(mut self, error: &v1::Error) {
        let code = match reason::row(&error.reason).map(|row| row.socket) {
            Some(
                Socket::Close(code) | Socket::FrameThenClose(code) | Socket::RefuseUpgrade(code),
            ) => code,
            Some(Socket::Frame | Socket::Redirect) | None => RULES,
        };
        self.farewell(code, &error.reason).await;
    }

    /// Sends the close frame, and gives the client time to read it.
    async fn farewell(&mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code, reason: reason.into() };
        let sending = self.socket.send(Message::Close(Some(frame)));
        if !matches!(tokio::time::timeout(FAREWELL, sending).await, Ok(Ok(()))) {
            return;
        }
        let read_on = async { while let Some(Ok(_)) = self.socket.recv().await {} };
        let read = tokio::time::timeout(FAREWELL, read_on).await.is_ok();
        if read && (reason == "TOO_LARGE" || code == PROTOCOL) {
            tokio::time::sleep(FAREWELL).await;
        }
    }

    /// Sends a text; none when the connection is over.
    async fn send_text(&mut self, text: String) -> Option<()> {
        let _charge = Caller::present_memory().charge(text.len());
        self.socket.send(Message::Text(text.into())).await.ok()
    }
}

/// Whether the client has violated the protocol of WebSockets, and may still be there to read that.
fn is_violation(error: &axum::Error) -> bool {
    let what = error.to_string();
    what.contains("WebSocket protocol error") && !what.contains("without closing handshake")
}

#[cfg(test)]
mod tests {
    use axum::serve;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);
    const HANDSHAKE: &str = "GET / HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\n\
        Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    /// An empty ping, as a server sends it.
    const PING: [u8; 2] = [0x89, 0];
    /// The pong, as a client sends it: masked with zeros.
    const PONG: [u8; 6] = [0x8a, 0x80, 0, 0, 0, 0];

    /// The client's end of a socket whose server has this schedule, after the handshake.
    async fn socket(schedule: PingSchedule) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let handler = async move |socket| {
            let heard = LiveSocket::with(socket, PLAIN_BYTES_MAX, schedule).next().await;
            assert!(heard.is_none(), "the client sent nothing");
        };
        let upgrade = async move |upgrade: WebSocketUpgrade| upgrade.on_upgrade(handler);
        let router = Router::new().route("/", get(upgrade));
        tokio::spawn(async move { serve(listener, router).await });
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(HANDSHAKE.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(timeout(DEADLINE, socket.read_u8()).await.unwrap().unwrap());
        }
        assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
        socket
    }

    #[tokio::test]
    async fn a_client_that_answers_no_ping_is_closed() {
        let silent = Duration::from_millis(500);
        let began = Instant::now();
        let mut socket = socket(PingSchedule { asked: Duration::from_millis(50), silent }).await;
        let mut said = Vec::new();
        let closed = timeout(DEADLINE, socket.read_to_end(&mut said)).await;
        closed.expect("it is closed in time").unwrap();
        assert!(began.elapsed() > silent, "not before it was silent for too long");
        assert!(!said.is_empty(), "it is asked");
        assert!(said.chunks(2).all(|frame| frame == PING), "it is told nothing: {said:?}");
    }

    #[tokio::test]
    async fn a_violation_of_the_protocol_is_answered_with_a_close_frame() {
        let schedule = PingSchedule { asked: DEADLINE, silent: DEADLINE };
        // A frame that is not masked, one with a reserved bit, one of an unknown kind, a continuation of nothing.
        for frame in [[0x81, 0], [0xf1, 0x80], [0x83, 0x80], [0x80, 0x80]] {
            let mut socket = socket(schedule).await;
            socket.write_all(&frame).await.unwrap();
            socket.write_all(&[0; 4]).await.unwrap();
            let mut said = [0; 4];
            timeout(DEADLINE, socket.read_exact(&mut said)).await.unwrap().expect("a frame");
            let [kind, _, high, low] = said;
            assert_eq!((kind, u16::from_be_bytes([high, low])), (0x88, PROTOCOL), "{frame:?}");
        }
    }

    #[tokio::test]
    async fn a_client_that_sends_pings_without_end_is_closed() {
        let schedule = PingSchedule { asked: DEADLINE, silent: DEADLINE };
        let mut socket = socket(schedule).await;
        // As a client sends it: masked with zeros.
        let pings =
            [0x89, 0x80, 0, 0, 0, 0].repeat(10 * usize::try_from(CONTROL_PER_SECOND).unwrap());
        let (mut from, mut to) = socket.split();
        let writing = async {
            // The member may close before it has read all.
            let _ = to.write_all(&pings).await;
            std::future::pending::<()>().await;
        };
        let reading = async {
            let mut pongs = 0;
            loop {
                match (from.read_u8().await.expect("a frame"), from.read_u8().await) {
                    (0x8a, Ok(0)) => pongs += 1,
                    (0x88, Ok(_)) => break (pongs, from.read_u16().await.expect("a code")),
                    other => panic!("{other:?}"),
                }
            }
        };
        let (pongs, code) = tokio::select! {
            end = timeout(DEADLINE, reading) => end.expect("it is closed"),
            () = writing => unreachable!("it waits"),
        };
        assert_eq!(code, RULES);
        assert!((1..3 * CONTROL_PER_SECOND).contains(&pongs), "{pongs} were answered");
    }

    #[tokio::test]
    async fn a_client_that_answers_is_not_silent() {
        let (asked, silent) = (Duration::from_millis(50), Duration::from_secs(5));
        let began = Instant::now();
        let mut socket = socket(PingSchedule { asked, silent }).await;
        // Longer than a client that sends nothing is tolerated.
        while began.elapsed() < silent + silent / 2 {
            let mut frame = [0; 2];
            timeout(DEADLINE, socket.read_exact(&mut frame)).await.unwrap().expect("it goes on");
            assert_eq!(frame, PING);
            socket.write_all(&PONG).await.unwrap();
        }
    }
}
