//! Tests that what waits for a client, or comes from it in parts, has a budget of memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::common::wait;
use crate::raw::{
    DATA, END_HEADERS, END_STREAM, HEADERS, SETTINGS, begin, frame, pour, request, rest,
};
use crate::victim::Victim;

const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
/// The most bytes in one frame.
const FRAME: usize = 16 * 1024;
/// What a connection may have waiting for it, and some more for what arrives while it is being closed.
const BUDGET_KB: u64 = 2 * 32 * 1024;
/// What eight pages under way take, as records and as JSON: they count for their connection once they are encoded.
const PAGES_KB: u64 = 8 * 4 * 1024;

/// The bytes that a connection may still send, as the member says it.
struct Credit {
    stream: TcpStream,
    bytes: usize,
}

impl Credit {
    /// Begins a connection, and accepts the windows that the member offers.
    fn new(mut stream: TcpStream) -> Self {
        let accepted = frame(SETTINGS, ACK, 0, b"");
        pour(&mut stream, &[begin(), accepted].concat()).unwrap();
        Self { stream, bytes: 65_535 }
    }

    /// Sends a frame of data when the member accepts it; `None` once the member has closed the connection.
    fn send(&mut self, id: u32, data: &[u8]) -> Option<()> {
        while self.bytes < data.len() {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).ok()?;
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            self.stream.read_exact(&mut payload).ok()?;
            if head[3] == WINDOW_UPDATE && head[5..] == [0; 4] {
                self.bytes += u32::from_be_bytes(payload.try_into().unwrap()) as usize;
            }
        }
        self.bytes -= data.len();
        pour(&mut self.stream, &frame(DATA, 0, id, data)).ok()
    }
}

/// The headers that open a session.
fn open(host: &str) -> Vec<u8> {
    let kind = [("content-type", "application/grpc"), ("te", "trailers")];
    request("POST", host, "/tenure.v1.SessionService/Open", &kind)
}

/// A message of gRPC that announces this length.
fn message(length: usize, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(length).unwrap().to_be_bytes();
    [&[0], &length[..], content].concat()
}

#[test]
fn parts_of_messages_on_many_streams_cut_the_connection_off() {
    let victim = Victim::start();
    let host = victim.address().to_string();
    victim.withstand(BUDGET_KB, || {
        let mut credit = Credit::new(victim.dial());
        // On each of many sessions most of a message, and never its end.
        let cut_off = (0..500_u32).any(|at| {
            let id = at * 2 + 1;
            let opened = pour(&mut credit.stream, &frame(HEADERS, END_HEADERS, id, &open(&host)));
            let begun = opened
                .ok()
                .and_then(|()| credit.send(id, &message(1024 * 1024, b"\x12\xff\xff\x3f")));
            let mut sent = begun;
            for _ in 0..50 {
                sent = sent.and_then(|()| credit.send(id, &[1; FRAME]));
            }
            sent.is_none()
        });
        assert!(cut_off, "it holds 400 MB of partial messages");
    });
}

#[test]
fn messages_of_very_many_tiny_requests_are_not_decoded() {
    let victim = Victim::start();
    let host = victim.address().to_string();
    victim.withstand(0, || {
        let tiny = b"\x12\x00".repeat(1024 * 1024 - 8);
        let message = message(tiny.len(), &tiny);
        for _ in 0..4 {
            let mut credit = Credit::new(victim.dial());
            pour(&mut credit.stream, &frame(HEADERS, END_HEADERS, 1, &open(&host))).unwrap();
            // The session ends early, so that the rest of the message has no credit: that is fine.
            credit.stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let _ = message.chunks(FRAME).all(|part| credit.send(1, part).is_some());
        }
    });
}

#[test]
fn answers_that_are_not_read_cut_the_connection_off() {
    let victim = Victim::start();
    let host = victim.address().to_string();
    // One page of a list with these is a megabyte long.
    let value = vec![b'v'; 30_000];
    for key in 0..40 {
        let put = format!(
            "PUT /v1/keys/large/{key} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            value.len()
        );
        let mut stream = victim.dial();
        pour(&mut stream, &[put.as_bytes(), &value].concat()).unwrap();
        let said = rest(&mut stream);
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    }
    victim.withstand(BUDGET_KB + PAGES_KB, || {
        let mut stream = victim.dial();
        // All windows are as large as they can be, and nothing is read.
        let windows = frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
        let connection = frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes());
        pour(&mut stream, &[begin(), windows, connection].concat()).unwrap();
        let ask = request("GET", &host, "/v1/keys?prefix=large", &[]);
        let flags = END_HEADERS | END_STREAM;
        stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        for at in 0..1_000_u32 {
            if stream.write_all(&frame(HEADERS, flags, at * 2 + 1, &ask)).is_err() {
                break;
            }
        }
        wait("the member closes it", || victim.says("exceeds its budget").then_some(()));
        // The connection ends long before a gigabyte has been read.
        let (mut read, mut part) = (0, vec![0; 1 << 20]);
        while let Ok(bytes @ 1..) = stream.read(&mut part) {
            read += bytes;
        }
        assert!(read < 500 << 20, "it kept {read} bytes of answers");
    });
}
