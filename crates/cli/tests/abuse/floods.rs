//! Tests that floods of streams, headers, pings and requests are cut off.

use std::io::Write;
use std::time::Duration;

use crate::raw::{
    CONTINUATION, END_HEADERS, END_STREAM, GO_AWAY, HEADERS, PING, RESET, SETTINGS, await_frame,
    begin, frame, go_away_code, pour, request, rest,
};
use crate::victim::{Victim, is_closed};

/// The HTTP/2 error ENHANCE_YOUR_CALM.
const CALM: u32 = 0xb;

#[test]
fn streams_that_are_opened_and_reset_end_the_connection() {
    let victim = Victim::start();
    let host = victim.address().to_string();
    let ask = request("GET", &host, "/v1/locks", &[]);
    victim.withstand(0, || {
        for _ in 0..20 {
            let mut stream = victim.dial();
            pour(&mut stream, &begin()).unwrap();
            let mut told = stream.try_clone().unwrap();
            let listener = std::thread::spawn(move || await_frame(&mut told, GO_AWAY));
            let mut cut_off = false;
            // A hundred thousand streams, in parts of a thousand.
            for part in 0..100_u32 {
                let mut bytes = Vec::new();
                for number in 0..1_000 {
                    let id = (part * 1_000 + number) * 2 + 1;
                    bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, id, &ask));
                    bytes.extend(frame(RESET, 0, id, &8_u32.to_be_bytes()));
                }
                if pour(&mut stream, &bytes).is_err() {
                    cut_off = true;
                    break;
                }
            }
            assert!(cut_off, "it took a hundred thousand of them");
            if let Some(goodbye) = listener.join().unwrap() {
                assert_eq!(go_away_code(&goodbye), CALM);
            }
        }
    });
}

#[test]
fn frames_without_a_request_end_the_connection() {
    let victim = Victim::start();
    let update = frame(8, 0, 0, &1_u32.to_be_bytes());
    let (ping, settings) = (frame(PING, 0, 0, b"12345678"), frame(SETTINGS, 0, 0, b""));
    let (priority, unknown) = (frame(2, 0, 1, &[0, 0, 0, 0, 16]), frame(0x77, 0, 0, b""));
    victim.withstand(0, || {
        for one in [ping, settings, update, priority, unknown] {
            let mut stream = victim.dial();
            pour(&mut stream, &begin()).unwrap();
            // The answers are read, so that the member is never held up by them.
            let mut told = stream.try_clone().unwrap();
            let reader = std::thread::spawn(move || rest(&mut told));
            let part = one.repeat(1_000);
            let cut_off = (0..1_000).any(|_| pour(&mut stream, &part).is_err());
            assert!(cut_off, "it took a million frames: {one:?}");
            reader.join().unwrap();
        }
    });
}

#[test]
fn headers_without_end_are_cut_off() {
    let victim = Victim::start();
    let host = victim.address().to_string();
    victim.withstand(0, || {
        // HTTP/1: too many headers, too long ones, and headers without end.
        let many: String = (0..100).map(|at| format!("x-{at}: y\r\n")).collect();
        let long = format!("x-long: {}\r\n", "y".repeat(64 * 1024));
        for headers in [many, long] {
            let mut stream = victim.dial();
            let asked = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
            let _ = pour(&mut stream, asked.as_bytes());
            let said = rest(&mut stream);
            assert!(said.is_empty() || said.starts_with("HTTP/1.1 431"), "{said}");
        }
        let mut stream = victim.dial();
        pour(&mut stream, format!("GET / HTTP/1.1\r\nHost: {host}\r\n").as_bytes()).unwrap();
        let part = "x-more: y\r\n".repeat(1_000);
        assert!((0..10_000).any(|_| pour(&mut stream, part.as_bytes()).is_err()));

        // HTTP/2: a header list that is longer than our limit, and one that never ends.
        let mut stream = victim.dial();
        pour(&mut stream, &begin()).unwrap();
        let start = request("GET", &host, "/healthz", &[]);
        pour(&mut stream, &frame(HEADERS, END_STREAM, 1, &start)).unwrap();
        let more: Vec<u8> =
            (0..100).flat_map(|_| crate::raw::header("x-more", &"y".repeat(100))).collect();
        let part = frame(CONTINUATION, 0, 1, &more);
        assert!(
            (0..10_000).any(|_| pour(&mut stream, &part).is_err()),
            "it read 100 MB of headers"
        );
    });
}

#[test]
fn frames_that_are_too_large_are_an_error() {
    let victim = Victim::start();
    victim.withstand(0, || {
        let mut stream = victim.dial();
        pour(&mut stream, &begin()).unwrap();
        let _ = pour(&mut stream, &frame(HEADERS, END_HEADERS, 1, &vec![0; 1 << 20]));
        let goodbye = await_frame(&mut stream, GO_AWAY);
        // A frame-size error, unless the reset that follows unread bytes was faster.
        assert!(goodbye.is_none_or(|goodbye| go_away_code(&goodbye) == 6));
    });
}

#[test]
fn who_asks_and_never_listens_is_not_read_from() {
    let victim = Victim::start();
    let host = victim.address().to_string();
    victim.withstand(0, || {
        let get = format!("GET /openapi.json HTTP/1.1\r\nHost: {host}\r\n\r\n").repeat(100);
        let pings: Vec<u8> = (0..1_000).flat_map(|_| frame(PING, 0, 0, b"12345678")).collect();
        for (begin, part) in [(Vec::new(), get.into_bytes()), (begin(), pings)] {
            let mut stream = victim.dial();
            pour(&mut stream, &begin).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
            let mut sent = 0;
            // Write until the member reads no more or closes the connection. It must not read everything.
            let stopped = (0..20_000).any(|_| {
                sent += part.len();
                stream.write_all(&part).is_err()
            });
            assert!(stopped, "it took {sent} bytes from a client that never reads");
        }
    });
}

#[test]
fn empty_frames_without_end_disturb_no_other_client() {
    let victim = Victim::start();
    let host = victim.address().to_string();
    victim.withstand(0, || {
        let mut stream = victim.dial();
        pour(&mut stream, &begin()).unwrap();
        let ask = request("POST", &host, "/v1/force", &[("content-type", "application/json")]);
        pour(&mut stream, &frame(HEADERS, END_HEADERS, 1, &ask)).unwrap();
        let part: Vec<u8> = (0..1_000).flat_map(|_| frame(crate::raw::DATA, 0, 1, b"")).collect();
        for _ in 0..200 {
            if is_closed(&pour(&mut stream, &part)) {
                break;
            }
        }
    });
}
