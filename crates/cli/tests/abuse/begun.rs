//! Tests that the time limits cut off clients that begin a request and do not go on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tenure_server::os;

use crate::raw::{END_HEADERS, HEADERS, await_frame, begin, frame, request};
use crate::victim::{Victim, is_closed};

/// Longer than all limits: ten seconds for headers and bodies, thirty for an HTTP/2 connection.
const TIMEOUT: Duration = Duration::from_secs(50);

/// Sends bytes from time to time until the member has closed every connection.
fn drip(mut streams: Vec<TcpStream>, byte: &[u8]) {
    let until_us = os::now_us() + u64::try_from(TIMEOUT.as_micros()).unwrap();
    for stream in &streams {
        stream.set_nonblocking(true).unwrap();
    }
    while !streams.is_empty() {
        assert!(os::now_us() < until_us, "{} are still there", streams.len());
        streams.retain_mut(|stream| {
            let wrote = stream.write_all(byte);
            let read = stream.read(&mut [0; 1024]);
            !is_closed(&wrote) && !is_closed(&read) && !matches!(read, Ok(0))
        });
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn many(victim: &Victim, first: &[u8]) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = victim.dial();
        stream.write_all(first).unwrap();
        stream
    };
    (0..200).map(open).collect()
}

#[test]
fn a_client_that_begins_and_does_not_go_on_is_cut_off() {
    let victim = Victim::start();
    // All attacks run at once: each takes as long as its limit.
    victim.withstand(0, || {
        std::thread::scope(|scope| {
            scope.spawn(|| drip(many(&victim, b"GET /v1/locks HTTP/1.1\r\nX-Slow: "), b"y"));
            scope.spawn(|| body_in_crumbs(&victim));
            scope.spawn(|| half_of_the_first_word(&victim));
            scope.spawn(|| http_2_and_silence(&victim));
            scope.spawn(|| calls_without_a_message(&victim));
        });
    });
}

fn body_in_crumbs(victim: &Victim) {
    let head = format!(
        "POST /v1/force HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: 9999\r\n\r\n",
        victim.address()
    );
    drip(many(victim, head.as_bytes()), b" ");
}

/// Sends beginnings of the HTTP/2 preface, and nothing else.
fn half_of_the_first_word(victim: &Victim) {
    let firsts = [&b"P"[..], b"PRI * HTTP/2.0\r\n"].into_iter();
    drip(firsts.flat_map(|first| many(victim, first)).collect(), b"");
}

/// Sends nothing after the preface, or half a header block.
fn http_2_and_silence(victim: &Victim) {
    let half = [begin(), frame(HEADERS, 0, 1, b"\x82")].concat();
    let streams = [begin(), half].into_iter().flat_map(|first| many(victim, &first));
    drip(streams.collect(), b"");
}

/// Opens calls that are not streams and sends no message: the member answers and ends each.
fn calls_without_a_message(victim: &Victim) {
    let host = victim.address().to_string();
    let kind = [("content-type", "application/grpc"), ("te", "trailers")];
    let ask = request("POST", &host, "/tenure.v1.KeyService/Put", &kind);
    let calls = (0..500).flat_map(|at| frame(HEADERS, END_HEADERS, at * 2 + 1, &ask));
    let mut stream = victim.dial();
    stream.write_all(&begin()).unwrap();
    stream.write_all(&calls.collect::<Vec<u8>>()).unwrap();
    let answers = (0..500).map_while(|_| await_frame(&mut stream, HEADERS)).count();
    assert_eq!(answers, 500);
}
