//! Speaks gRPC over raw HTTP/2 frames, so that a client can also leave out what a library would do.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use tenure_wire::v1::{self, request::Command};
use tenure_wire::{Message, v1::SessionResponse};

use super::flood::now;
use crate::raw::{
    DATA, END_HEADERS, END_STREAM, HEADERS, PING, RESET, SETTINGS, begin, frame, request,
};

const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
/// The most bytes of one frame.
const FRAME: usize = 16 * 1024;
/// The windows of HTTP/2 before a setting says otherwise.
const WINDOW: i64 = 65_535;
/// The identifier of the setting for the window of a stream.
const INITIAL_WINDOW: u16 = 4;
/// What this client lets the member send: more than any test reads.
const LARGEST: u32 = 0x7fff_0000;

/// One connection with its streams.
pub(crate) struct Grpc {
    stream: TcpStream,
    host: String,
    unsent: Vec<u8>,
    unread: Vec<u8>,
    /// What may be sent: on all streams, on a new one, and on each.
    credit: i64,
    initial: i64,
    credits: BTreeMap<u32, i64>,
    next: u32,
    /// What has arrived of a message on each stream.
    partial: BTreeMap<u32, Vec<u8>>,
    /// Messages that have arrived.
    messages: Vec<(u32, Vec<u8>)>,
}

impl Grpc {
    /// Begins a connection whose windows let the member send as much as it likes.
    pub(crate) fn new(stream: TcpStream, host: &str) -> Self {
        let window = [&INITIAL_WINDOW.to_be_bytes()[..], &LARGEST.to_be_bytes()].concat();
        let mut unsent = begin();
        unsent.extend(frame(SETTINGS, 0, 0, &window));
        unsent.extend(frame(WINDOW_UPDATE, 0, 0, &LARGEST.to_be_bytes()));
        Self {
            stream,
            host: host.to_owned(),
            unsent,
            unread: Vec::new(),
            credit: WINDOW,
            initial: WINDOW,
            credits: BTreeMap::new(),
            next: 1,
            partial: BTreeMap::new(),
            messages: Vec::new(),
        }
    }

    /// Opens a stream for a method.
    pub(crate) fn open(&mut self, path: &str, more: &[(&str, &str)]) -> u32 {
        let id = self.next;
        self.next += 2;
        let mut headers = vec![("content-type", "application/grpc"), ("te", "trailers")];
        headers.extend(more);
        let ask = request("POST", &self.host, path, &headers);
        self.unsent.extend(frame(HEADERS, END_HEADERS, id, &ask));
        self.credits.insert(id, self.initial);
        id
    }

    /// Opens a session.
    pub(crate) fn open_session(&mut self) -> u32 {
        self.open("/tenure.v1.SessionService/Open", &[])
    }

    /// Whether the member has not ended this stream.
    pub(crate) fn is_open(&self, id: u32) -> bool {
        self.credits.contains_key(&id)
    }

    /// Whether the windows have room for so many bytes, and the last ones have left.
    pub(crate) fn has_room(&self, id: u32, bytes: usize) -> bool {
        let bytes = i64::try_from(bytes).unwrap();
        self.unsent.len() < FRAME
            && self.credit >= bytes
            && self.credits.get(&id).is_some_and(|credit| *credit >= bytes)
    }

    /// Sends the only message of a call, if the windows have room for it.
    pub(crate) fn call(&mut self, path: &str, more: &[(&str, &str)], message: &[u8]) {
        let bytes = i64::try_from(message.len()).unwrap();
        if self.unsent.len() < FRAME && self.credit >= bytes {
            let id = self.open(path, more);
            self.data(id, message);
            self.unsent.extend(frame(DATA, END_STREAM, id, b""));
            self.credits.remove(&id);
        }
    }

    /// Sends bytes of messages on a stream.
    pub(crate) fn data(&mut self, id: u32, bytes: &[u8]) {
        for part in bytes.chunks(FRAME) {
            self.unsent.extend(frame(DATA, 0, id, part));
        }
        let bytes = i64::try_from(bytes.len()).unwrap();
        self.credit -= bytes;
        if let Some(credit) = self.credits.get_mut(&id) {
            *credit -= bytes;
        }
    }

    /// Writes and reads what it can without waiting; whether anything moved.
    pub(crate) fn turn(&mut self) -> io::Result<bool> {
        Ok(self.write()? | self.read()?)
    }

    /// Writes what it can without waiting. An error means that the connection is over.
    pub(crate) fn write(&mut self) -> io::Result<bool> {
        if self.unsent.is_empty() {
            return Ok(false);
        }
        let sent = now(self.stream.write(&self.unsent))?.unwrap_or(0);
        self.unsent.drain(..sent);
        Ok(sent > 0)
    }

    /// Reads what is there without waiting, and obeys it. An error means that the connection is over.
    pub(crate) fn read(&mut self) -> io::Result<bool> {
        let mut part = [0; 64 * 1024];
        let mut moved = false;
        // Bounded, so that a client with much to read also sends.
        for _ in 0..16 {
            match now(self.stream.read(&mut part))? {
                Some(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Some(bytes) => {
                    self.unread.extend(&part[..bytes]);
                    moved = true;
                }
                None => break,
            }
        }
        let unread = std::mem::take(&mut self.unread);
        let mut rest = &unread[..];
        while let Some((head, after)) = rest.split_first_chunk::<9>() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            if after.len() < length {
                break;
            }
            let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            self.take(head[3], head[4], id, &after[..length]);
            rest = &after[length..];
        }
        self.unread = rest.to_vec();
        Ok(moved)
    }

    /// Messages that have arrived since the last call, with their streams.
    pub(crate) fn messages(&mut self) -> Vec<(u32, Vec<u8>)> {
        std::mem::take(&mut self.messages)
    }

    fn take(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        match kind {
            SETTINGS if flags & ACK == 0 => {
                for (name, value) in payload.chunks_exact(6).map(|it| it.split_at(2)) {
                    if name == INITIAL_WINDOW.to_be_bytes() {
                        let window = i64::from(number(value));
                        let more = window - self.initial;
                        self.initial = window;
                        self.credits.values_mut().for_each(|credit| *credit += more);
                    }
                }
                self.unsent.extend(frame(SETTINGS, ACK, 0, b""));
            }
            PING if flags & ACK == 0 => self.unsent.extend(frame(PING, ACK, 0, payload)),
            WINDOW_UPDATE if id == 0 => self.credit += i64::from(number(payload)),
            WINDOW_UPDATE => {
                if let Some(credit) = self.credits.get_mut(&id) {
                    *credit += i64::from(number(payload));
                }
            }
            DATA => self.take_data(id, payload),
            _ => {}
        }
        if kind == RESET || (matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0) {
            self.credits.remove(&id);
            self.partial.remove(&id);
        }
    }

    fn take_data(&mut self, id: u32, payload: &[u8]) {
        if let Ok(bytes @ 1..) = u32::try_from(payload.len()) {
            for stream in [0, id] {
                self.unsent.extend(frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes()));
            }
        }
        let partial = self.partial.entry(id).or_default();
        partial.extend(payload);
        while let Some(length) = partial.get(1..5).map(|it| number(it) as usize) {
            if partial.len() < 5 + length {
                break;
            }
            self.messages.push((id, partial[5..5 + length].to_vec()));
            partial.drain(..5 + length);
        }
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap_or_default())
}

/// A message of gRPC with this content.
pub(crate) fn message(content: &[u8]) -> Vec<u8> {
    announced(content.len(), content)
}

/// A message of gRPC that announces this length.
pub(crate) fn announced(length: usize, content: &[u8]) -> Vec<u8> {
    [&[0], &u32::try_from(length).unwrap().to_be_bytes()[..], content].concat()
}

/// The first message of a session.
pub(crate) fn hello() -> Vec<u8> {
    let hello = Some(v1::Hello { client: "attacker".to_owned(), ..Default::default() });
    message(&v1::SessionRequest { hello, requests: Vec::new() }.encode_to_vec())
}

/// Commands as one message of a session. The requests are numbered from `first`.
pub(crate) fn commands(first: u64, all: impl IntoIterator<Item = Command>) -> Vec<u8> {
    with_deadline(first, 0, all)
}

/// The same, where each request has a deadline.
pub(crate) fn with_deadline(
    first: u64,
    deadline_ms: u32,
    all: impl IntoIterator<Item = Command>,
) -> Vec<u8> {
    let requests = all.into_iter().zip(first..).map(|(command, id)| v1::Request {
        id,
        deadline_ms,
        command: Some(command),
        ..Default::default()
    });
    let requests = requests.collect();
    message(&v1::SessionRequest { hello: None, requests }.encode_to_vec())
}

/// The same, where each request has an idempotency key.
pub(crate) fn keyed(first: u64, all: impl IntoIterator<Item = (String, Command)>) -> Vec<u8> {
    let requests = all.into_iter().zip(first..).map(|((idempotency_key, command), id)| {
        v1::Request { id, idempotency_key, command: Some(command), ..Default::default() }
    });
    let requests = requests.collect();
    message(&v1::SessionRequest { hello: None, requests }.encode_to_vec())
}

/// A message of a member.
pub(crate) fn response(message: &[u8]) -> Option<SessionResponse> {
    SessionResponse::decode(message).ok()
}
