//! Floods a member with HTTP/2 frames of every type.

use crate::hostile::flood::{Reads, Round, flood};
use crate::raw::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GO_AWAY, HEADERS, PING, RESET, SETTINGS, begin,
    frame, header, request,
};

const PRIORITY: u8 = 2;
const PUSH_PROMISE: u8 = 5;
const WINDOW_UPDATE: u8 = 8;
/// A type that no version of HTTP/2 has defined.
const UNKNOWN: u8 = 0x77;
/// How many connections one attack has.
const CONNECTIONS: usize = 4;
/// How many frames are written at once.
const FRAMES: usize = 500;

fn pour(round: &Round<'_>, one: Vec<u8>) {
    let part = one.repeat(FRAMES);
    flood(round, round.target.leader, CONNECTIONS, Reads::All, &begin(), |_| part.clone());
}

pub(super) fn settings(round: &Round<'_>) {
    pour(round, frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]));
}

pub(super) fn pings(round: &Round<'_>) {
    pour(round, frame(PING, 0, 0, b"12345678"));
}

/// Pings whose answers are not read.
pub(super) fn unread_pings(round: &Round<'_>) {
    let part = frame(PING, 0, 0, b"12345678").repeat(FRAMES);
    flood(round, round.target.leader, CONNECTIONS, Reads::Nothing, &begin(), |_| part.clone());
}

pub(super) fn window_updates(round: &Round<'_>) {
    pour(round, frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()));
}

pub(super) fn priorities(round: &Round<'_>) {
    pour(round, frame(PRIORITY, 0, 101, &[0, 0, 0, 0, 16]));
}

pub(super) fn unknown_frames(round: &Round<'_>) {
    pour(round, frame(UNKNOWN, 0xff, 0, &[1; 100]));
}

pub(super) fn goaways(round: &Round<'_>) {
    pour(round, frame(GO_AWAY, 0, 0, &[0; 8]));
}

/// Frames that a client must not send.
pub(super) fn forbidden_frames(round: &Round<'_>) {
    let forbidden = [
        frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
        frame(DATA, 0, 0, b"data of no stream"),
        frame(RESET, 0, 0, &[0; 4]),
        frame(SETTINGS, 0, 0, &[1; 5]),
        frame(WINDOW_UPDATE, 0, 0, &[0; 4]),
        frame(CONTINUATION, END_HEADERS, 1, b"\x82"),
        vec![0xff; 64],
    ];
    let mut turn = 0;
    flood(round, round.target.leader, CONNECTIONS, Reads::All, &begin(), |_| {
        turn += 1;
        forbidden[turn % forbidden.len()].clone()
    });
}

/// Opens streams and resets them at once.
pub(super) fn rapid_resets(round: &Round<'_>) {
    let ask = request("GET", &round.host(), "/v1/locks", &[]);
    flood(round, round.target.leader, CONNECTIONS, Reads::All, &begin(), |part| {
        let ids = (part * 100..(part + 1) * 100).map(|at| u32::try_from(at * 2 + 1).unwrap());
        let both = ids.flat_map(|id| {
            let mut bytes = frame(HEADERS, END_HEADERS | END_STREAM, id, &ask);
            bytes.extend(frame(RESET, 0, id, &8_u32.to_be_bytes()));
            bytes
        });
        both.collect()
    });
}

/// Sends a header block that does not end.
pub(super) fn continuations(round: &Round<'_>) {
    let start = request("GET", &round.host(), "/healthz", &[]);
    let begin = [begin(), frame(HEADERS, END_STREAM, 1, &start)].concat();
    let more: Vec<u8> = (0..100).flat_map(|_| header("x-more", &"y".repeat(100))).collect();
    let part = frame(CONTINUATION, 0, 1, &more);
    flood(round, round.target.leader, CONNECTIONS, Reads::All, &begin, |_| part.clone());
}

/// Sends frames of data without data, to a request that waits for its body.
pub(super) fn empty_data(round: &Round<'_>) {
    let ask = request("POST", &round.host(), "/v1/force", &[("content-type", "application/json")]);
    let begin = [begin(), frame(HEADERS, END_HEADERS, 1, &ask)].concat();
    let part = frame(DATA, 0, 1, b"").repeat(FRAMES);
    flood(round, round.target.leader, CONNECTIONS, Reads::All, &begin, |_| part.clone());
}

/// Names one long header thousands of times by its number in the compression table.
pub(super) fn header_bombs(round: &Round<'_>) {
    const VALUE: usize = 3_900;
    // A literal that the member puts into its table: one byte of name, and a length in three bytes.
    let mut block = vec![0x40, 1, b'x', 0x7f];
    let rest = VALUE - 127;
    block.extend([u8::try_from(rest % 128).unwrap() | 0x80, u8::try_from(rest / 128).unwrap()]);
    block.extend(vec![b'y'; VALUE]);
    let start = request("GET", &round.host(), "/healthz", &[]);
    // The newest entry of the table has number 62.
    let block = [start, block, vec![0xbe; 10_000]].concat();
    flood(round, round.target.leader, CONNECTIONS, Reads::All, &begin(), |part| {
        let id = u32::try_from(part * 2 + 1).unwrap();
        frame(HEADERS, END_HEADERS | END_STREAM, id, &block)
    });
}
