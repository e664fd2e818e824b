//! Attacks with connections: slow ones, silent ones, very many, and those of another protocol.

use std::net::TcpStream;
use std::time::Duration;

use crate::hostile::flood::{Reads, Round, drip, flood};
use crate::raw::{HEADERS, begin, frame, pour};

/// How many connections a slow client has.
const SLOW: usize = 100;
/// How many connections one address opens.
const MANY: usize = 1_500;
/// How many of them are opened before the attack looks at the time.
const STEP: usize = 50;

pub(super) fn slow_headers(round: &Round<'_>) {
    drip(round, round.target.leader, SLOW, b"GET /v1/locks HTTP/1.1\r\nX-Slow: ", b'y');
}

pub(super) fn slow_bodies(round: &Round<'_>) {
    let head = format!(
        "POST /v1/force HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: 9999\r\n\r\n",
        round.host()
    );
    drip(round, round.target.leader, SLOW, head.as_bytes(), b' ');
}

/// Begins header blocks of HTTP/2 and goes on with nothing.
pub(super) fn half_header_blocks(round: &Round<'_>) {
    let half = [begin(), frame(HEADERS, 0, 1, b"\x82")].concat();
    flood(round, round.target.leader, SLOW, Reads::Nothing, &half, |_| Vec::new());
}

/// Opens very many connections, keeps them for a moment and closes all.
pub(super) fn connections(round: &Round<'_>) {
    while !round.is_over() {
        let mut open: Vec<TcpStream> = Vec::new();
        while open.len() < MANY && !round.is_over() {
            open.extend((0..STEP).filter_map(|_| round.dial(round.target.leader)));
            round.idle();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Speaks TLS to a port without it.
pub(super) fn tls_hellos(round: &Round<'_>) {
    // The beginning of a handshake record with a client's hello in it.
    let hello = [&[0x16, 3, 1, 1, 0, 1, 0, 0, 0xfc, 3, 3][..], &[7; 246]].concat();
    flood(round, round.target.leader, 4, Reads::All, &hello, |_| hello.clone());
}

/// Sends bytes of no protocol, to both ports.
pub(super) fn noise(round: &Round<'_>) {
    let mut seed = round.until_us | 1;
    let mut noise = move |length: usize| -> Vec<u8> {
        let next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed.to_le_bytes()[0]
        };
        std::iter::repeat_with(next).take(length).collect()
    };
    while !round.is_over() {
        for to in [round.target.leader, round.target.members] {
            let Some(mut stream) = round.dial(to) else { continue };
            let _ = pour(&mut stream, &noise(2_000));
        }
        round.idle();
    }
}
