//! Attacks WebSockets.

use crate::hostile::flood::{Reads, Round, flood};
use crate::raw::bearer_line;

const TEXT: u8 = 1;
const CONTINUED: u8 = 0;
const PING: u8 = 9;
const LAST: u8 = 0x80;
/// How many sockets one attack has.
const SOCKETS: usize = 4;

/// The request that makes a connection a WebSocket. What follows may be sent without waiting for the answer.
pub(super) fn upgrade(host: &str, path: &str, more: &str) -> Vec<u8> {
    let text = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{}{more}\r\n",
        bearer_line()
    );
    text.into_bytes()
}

/// A frame as a client sends it, masked with zeros.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![opcode];
    match payload.len() {
        length @ ..126 => bytes.push(0x80 | u8::try_from(length).unwrap()),
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

fn text(payload: &str) -> Vec<u8> {
    frame(LAST | TEXT, payload.as_bytes())
}

fn pour(round: &Round<'_>, reads: Reads, first: &[u8], part: &[u8]) {
    let begin = [&upgrade(&round.host(), "/v1/ws", "")[..], first].concat();
    flood(round, round.target.leader, SOCKETS, reads, &begin, |_| part.to_vec());
}

/// Announces a frame of a gibibyte and sends as much of it as the member takes.
pub(super) fn large_frames(round: &Round<'_>) {
    let first = [LAST | TEXT, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0];
    pour(round, Reads::All, &first, &[b' '; 4096]);
}

pub(super) fn pings(round: &Round<'_>) {
    pour(round, Reads::All, b"", &frame(LAST | PING, b"ping").repeat(200));
}

/// Pings whose answers are not read.
pub(super) fn unread_pings(round: &Round<'_>) {
    pour(round, Reads::Nothing, b"", &frame(LAST | PING, &[b'p'; 125]).repeat(200));
}

/// Begins a message and adds fragments of one byte without an end.
pub(super) fn fragments(round: &Round<'_>) {
    pour(round, Reads::All, &frame(TEXT, b"{"), &frame(CONTINUED, b" ").repeat(500));
}

/// Asks for large values and reads none.
pub(super) fn unread_answers(round: &Round<'_>) {
    let hello = text(r#"{"hello":{"client":"attacker"}}"#);
    let asks =
        (1..=40).map(|id| format!(r#"{{"id":{id},"get_key":{{"key":"large/{}"}}}}"#, id % 40));
    let asks = text(&format!(r#"{{"requests":[{}]}}"#, asks.collect::<Vec<_>>().join(",")));
    pour(round, Reads::Nothing, &hello, &asks);
}

/// Sends JSON that is deeply nested, and JSON with very many elements.
pub(super) fn bombs(round: &Round<'_>) {
    let deep = text(&format!(r#"{{"requests":{}"#, "[".repeat(30_000)));
    let long = text(&format!(r#"{{"requests":[{}{{}}]}}"#, "{},".repeat(20_000)));
    pour(round, Reads::All, b"", &[deep, long].concat());
}

/// Asks for locks with the plain protocol under ever new names, and does not release them.
pub(super) fn plain_locks(round: &Round<'_>) {
    let begin = upgrade(&round.host(), "/v1/lock-socket", "");
    flood(round, round.target.leader, 2, Reads::All, &begin, |part| {
        let asks = (0..50).map(|at| {
            let name = (part * 50 + at) % 2_000;
            text(&format!(
                r#"{{"commandType":0,"key":"plain/{}","clientID":"{name}","ttl":2}}"#,
                name % 100
            ))
        });
        asks.flatten().collect()
    });
}
