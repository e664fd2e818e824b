//! Those who begin and do not go on: each is cut off by the limit of what it has begun.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tenure_server::os;

use crate::raw::{END_HEADERS, HEADERS, await_frame, begin, frame, request};
use crate::victim::{Victim, is_closed};

/// More than any of the limits: ten seconds for headers and bodies, thirty for a connection of HTTP/2.
const PATIENCE: Duration = Duration::from_secs(50);

/// Sends a byte now and then until each of them is cut off.
fn drip(mut streams: Vec<TcpStream>, byte: &[u8]) {
    let until_us = os::now_us() + u64::try_from(PATIENCE.as_micros()).unwrap();
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
fn whoever_begins_and_does_not_go_on_is_cut_off() {
    let victim = Victim::start();
    // All at once: each of them takes as long as its limit.
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

/// Every word that HTTP/2 may begin with, and none of its own.
fn half_of_the_first_word(victim: &Victim) {
    let firsts = [&b"P"[..], b"PRI * HTTP/2.0\r\n"].into_iter();
    drip(firsts.flat_map(|first| many(victim, first)).collect(), b"");
}

/// Nothing after the beginning, or half a list of headers.
fn http_2_and_silence(victim: &Victim) {
    let half = [begin(), frame(HEADERS, 0, 1, b"\x82")].concat();
    let streams = [begin(), half].into_iter().flat_map(|first| many(victim, &first));
    drip(streams.collect(), b"");
}

/// A call that is no stream and never says what it wants is answered and ended.
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
