//! Tests that every API refuses messages that are too large.

use std::io::{Read, Write};

use crate::raw::{DATA, END_HEADERS, HEADERS, await_frame, begin, frame, pour, request, rest};
use crate::victim::Victim;

#[test]
fn bodies_that_are_too_long_are_refused() {
    let victim = Victim::start();
    let host = victim.address().to_string();
    victim.withstand(0, || {
        let head = format!(
            "POST /v1/force HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        );
        // One body announces a length that is too long, the other announces none.
        let mut stream = victim.dial();
        pour(&mut stream, format!("{head}Content-Length: 99999999999\r\n\r\n").as_bytes()).unwrap();
        let _ = (0..1_000).any(|_| pour(&mut stream, &[b' '; 4096]).is_err());
        let said = rest(&mut stream);
        assert!(said.is_empty() || said.contains("TOO_LARGE"), "{said}");

        let mut stream = victim.dial();
        pour(&mut stream, format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes()).unwrap();
        let chunk = format!("1000\r\n{}\r\n", " ".repeat(4096));
        let cut_off = (0..100_000).any(|_| pour(&mut stream, chunk.as_bytes()).is_err());
        assert!(cut_off, "it took 400 MB");
    });
}

#[test]
fn a_message_of_grpc_that_is_too_long_is_refused_before_it_is_read() {
    let victim = Victim::start();
    let host = victim.address().to_string();
    victim.withstand(0, || {
        let mut stream = victim.dial();
        pour(&mut stream, &begin()).unwrap();
        let kind = [("content-type", "application/grpc"), ("te", "trailers")];
        for id in [1, 3, 5] {
            let ask = request("POST", &host, "/tenure.v1.KeyService/Put", &kind);
            pour(&mut stream, &frame(HEADERS, END_HEADERS, id, &ask)).unwrap();
            // Announce three gibibytes and send a few bytes.
            pour(&mut stream, &frame(DATA, 0, id, b"\0\xc0\0\0\0abc")).unwrap();
            // Header blocks of answers are compressed; that one arrives is enough here.
            assert!(await_frame(&mut stream, HEADERS).is_some(), "no answer");
        }
    });
}

#[test]
fn a_frame_of_a_socket_that_is_too_long_ends_it() {
    let victim = Victim::start();
    let host = victim.address().to_string();
    victim.withstand(0, || {
        for path in ["/v1/ws", "/v1/lock-socket"] {
            let mut stream = victim.dial();
            let ask = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            );
            pour(&mut stream, ask.as_bytes()).unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 101");
            // A masked text frame of one gibibyte.
            stream.write_all(&[0x81, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0]).unwrap();
            let _ = (0..100_000).any(|_| pour(&mut stream, &[b' '; 4096]).is_err());
            // The connection is over: reading the rest ends.
            rest(&mut stream);
        }
    });
}
