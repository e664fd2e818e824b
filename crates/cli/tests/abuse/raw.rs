//! Builds and parses raw HTTP bytes: no library sends what these tests send.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// The beginning of an HTTP/2 connection: the preface and an empty settings frame.
pub(crate) fn begin() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, b"")[..]].concat()
}

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GO_AWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Builds one frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut out = length[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// Builds a header that the other end does not put into its compression table.
pub(crate) fn header(name: &str, value: &str) -> Vec<u8> {
    let mut out = vec![0];
    for text in [name, value] {
        out.push(u8::try_from(text.len()).unwrap());
        assert!(text.len() < 127);
        out.extend(text.as_bytes());
    }
    out
}

thread_local! {
    static BEARER: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Has this thread send these credentials with all its requests.
pub(crate) fn set_bearer(bearer: Option<String>) {
    BEARER.set(bearer);
}

/// The credentials of this thread.
pub(crate) fn bearer() -> Option<String> {
    BEARER.with_borrow(Clone::clone)
}

/// Its credentials as a line of HTTP/1.1; nothing if it has none.
pub(crate) fn bearer_line() -> String {
    bearer().map(|bearer| format!("Authorization: {bearer}\r\n")).unwrap_or_default()
}

/// Builds the headers of a request.
pub(crate) fn request(method: &str, host: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let all = [(":method", method), (":scheme", "http"), (":authority", host), (":path", path)];
    let bearer = bearer();
    let bearer = bearer.as_deref().map(|bearer| ("authorization", bearer));
    let all = all.iter().chain(more).chain(&bearer);
    all.flat_map(|(name, value)| header(name, value)).collect()
}

/// Reads frames until one of this kind arrives; `None` when the connection is over.
pub(crate) fn await_frame(from: &mut TcpStream, wanted: u8) -> Option<Vec<u8>> {
    loop {
        let mut head = [0; 9];
        from.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        from.read_exact(&mut payload).ok()?;
        if head[3] == wanted {
            return Some(payload);
        }
    }
}

/// The error code in a GOAWAY frame.
pub(crate) fn go_away_code(payload: &[u8]) -> u32 {
    u32::from_be_bytes([payload[4], payload[5], payload[6], payload[7]])
}

/// Writes all bytes; an error means that the other end has closed the connection.
pub(crate) fn pour(to: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)
}

/// Reads until the connection ends or the read times out.
pub(crate) fn rest(from: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let _ = from.read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}
