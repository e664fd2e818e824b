//! How does a client speak over a WebSocket?
//!
//! `/v1/ws` carries the JSON form of a session, `/v1/lock-socket` the plain lock protocol. Every connection is
//! asked now and then whether it is still there.

pub(crate) mod plain;
mod session;

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::get;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::MESSAGE_BYTES_MAX;
use crate::edge::Edge;

/// A message of the plain protocol is a few words.
const PLAIN_BYTES_MAX: usize = 16 * 1024;
/// How often a client is asked whether it is there, and how long it may say nothing at all.
const ASKED: Duration = Duration::from_secs(20);
const SILENT: Duration = Duration::from_secs(60);

/// The routes of both.
pub(super) fn routes(edge: &Edge) -> Router {
    Router::new()
        .route("/v1/ws", get(session_socket))
        .route("/v1/lock-socket", get(plain_socket))
        .with_state(edge.clone())
}

async fn session_socket(State(edge): State<Edge>, upgrade: WebSocketUpgrade) -> Response {
    upgrade
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX)
        .max_write_buffer_size(2 * MESSAGE_BYTES_MAX)
        .on_upgrade(move |socket| session::serve(Heard::new(socket), edge))
}

async fn plain_socket(State(edge): State<Edge>, upgrade: WebSocketUpgrade) -> Response {
    upgrade
        .max_message_size(PLAIN_BYTES_MAX)
        .max_frame_size(PLAIN_BYTES_MAX)
        .max_write_buffer_size(64 * PLAIN_BYTES_MAX)
        .on_upgrade(move |socket| plain::serve(Heard::new(socket), edge))
}

/// A socket that notices when nobody is there any more.
struct Heard {
    socket: WebSocket,
    asks: tokio::time::Interval,
    heard_at: Instant,
}

impl Heard {
    fn new(socket: WebSocket) -> Self {
        let now = Instant::now();
        let mut asks = interval_at(now + ASKED, ASKED);
        asks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { socket, asks, heard_at: now }
    }

    /// The next text; nothing when the connection is over. Safe to cancel.
    async fn next(&mut self) -> Option<String> {
        loop {
            tokio::select! {
                message = self.socket.recv() => {
                    self.heard_at = Instant::now();
                    match message?.ok()? {
                        Message::Text(text) => return Some(text.as_str().to_owned()),
                        Message::Binary(bytes) => return String::from_utf8(bytes.to_vec()).ok(),
                        Message::Ping(_) | Message::Pong(_) => {}
                        Message::Close(_) => return None,
                    }
                }
                _ = self.asks.tick() => {
                    if self.heard_at.elapsed() > SILENT {
                        return None;
                    }
                    self.socket.send(Message::Ping(bytes::Bytes::new())).await.ok()?;
                }
            }
        }
    }

    /// Says something; nothing when the connection is over.
    async fn say(&mut self, text: String) -> Option<()> {
        self.socket.send(Message::Text(text.into())).await.ok()
    }
}
