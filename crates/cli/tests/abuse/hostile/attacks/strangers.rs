//! Attacks of callers without credentials, or with wrong ones.

use tenure_wire::v1;
use tenure_wire::{Message as _, v1::PutRequest};

use super::sockets::upgrade;
use crate::hostile::flood::{AGAIN, Reads, Round, flood};
use crate::hostile::session::{Grpc, message};
use crate::raw::{DATA, END_HEADERS, END_STREAM, HEADERS, begin, frame, request};

/// How many connections one attack has.
const CONNECTIONS: usize = 8;
/// The calls of one connection of HTTP/2.
const CALLS: u32 = 100;

/// Sends requests with one credential after another, several on their way at a time.
fn pour(round: &Round<'_>, bearer: impl Fn(u64) -> String) {
    let (host, mut number) = (round.host(), 0);
    flood(round, round.target.leader, CONNECTIONS, Reads::All, b"", |_| {
        let mut part = String::new();
        for _ in 0..16 {
            number += 1;
            let bearer = bearer(number);
            part += &format!(
                "GET /v1/locks HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {bearer}\r\n\r\n"
            );
        }
        part.into_bytes()
    });
}

/// Tries keys, each once.
pub(super) fn guessed_keys(round: &Round<'_>) {
    pour(round, |number| format!("tenure_{number:016x}_{number:064x}"));
}

/// Tries the same wrong key for ever.
pub(super) fn one_wrong_key(round: &Round<'_>) {
    pour(round, |_| format!("tenure_{}_{}", "7".repeat(16), "7".repeat(64)));
}

/// Tries tokens that no issuer has signed.
pub(super) fn wrong_tokens(round: &Round<'_>) {
    pour(round, |number| format!("eyJhbGciOiJFZERTQSJ9.e30.{number}"));
}

/// Writes keys over gRPC with the methods that browsers use before they send credentials.
pub(super) fn other_methods(round: &Round<'_>) {
    let (host, to) = (round.host(), round.target.leader);
    let put = PutRequest { key: "stranger".to_owned(), ..Default::default() }.encode_to_vec();
    let mut all = begin();
    for at in 0..CALLS {
        let method = ["OPTIONS", "HEAD", "POST"][at as usize % 3];
        let more = [("content-type", "application/grpc"), ("te", "trailers")];
        let ask = request(method, &host, "/tenure.v1.KeyService/Put", &more);
        all.extend(frame(HEADERS, END_HEADERS, at * 2 + 1, &ask));
        all.extend(frame(DATA, END_STREAM, at * 2 + 1, &message(&put)));
    }
    flood(round, to, CONNECTIONS, Reads::All, &all, |_| Vec::new());
    if round.stage.has_key("stranger") {
        round.complain("a caller without credentials has written a key".to_owned());
    }
}

/// Asks whether the member is ready, again and again.
pub(super) fn probes(round: &Round<'_>) {
    let probe = format!("GET /readyz HTTP/1.1\r\nHost: {}\r\n\r\n", round.host()).repeat(16);
    flood(round, round.target.follower, CONNECTIONS, Reads::All, b"", |_| {
        probe.clone().into_bytes()
    });
}

/// Opens sessions, and sends a request before the refusal comes.
pub(super) fn sessions(round: &Round<'_>) {
    let to = round.target.leader;
    while !round.is_over() {
        std::thread::sleep(AGAIN);
        let Some(stream) = round.dial(to) else { continue };
        let mut grpc = Grpc::new(stream, &to.to_string());
        let first = v1::SessionRequest { hello: Some(v1::Hello::default()), requests: Vec::new() };
        let first = message(&first.encode_to_vec());
        for _ in 0..CALLS {
            let id = grpc.open_session();
            if grpc.has_room(id, first.len()) {
                grpc.data(id, &first);
            }
        }
        for _ in 0..CALLS {
            if grpc.turn().is_err() {
                break;
            }
            grpc.messages();
        }
    }
}

/// Opens sockets and sends nothing, so that the member waits for their credentials.
pub(super) fn sockets(round: &Round<'_>) {
    let begin = upgrade(&round.host(), "/v1/ws", "");
    flood(round, round.target.leader, 64, Reads::Nothing, &begin, |_| Vec::new());
}
