//! Attacks in sessions: floods of requests, partial messages, answers that are not read, expired deadlines.

use std::net::SocketAddr;

use tenure_wire::v1::{self, request::Command};

use crate::hostile::flood::{AGAIN, Reads, Round};
use crate::hostile::session::{Grpc, announced, commands, hello, message, with_deadline};

/// How many requests are in one message.
pub(super) const REQUESTS: u64 = 200;
/// A part of a message.
const FRAME: [u8; 16 * 1024] = [1; 16 * 1024];

/// Opens one session on each of some connections and sends one message after another. `part` gets the number of
/// messages that its session has sent.
pub(super) fn pour(
    round: &Round<'_>,
    to: SocketAddr,
    connections: usize,
    reads: Reads,
    mut part: impl FnMut(u64) -> Vec<u8>,
) {
    let mut open: Vec<(Grpc, u32, u64, Vec<u8>)> = Vec::new();
    while !round.is_over() {
        if open.len() < connections {
            std::thread::sleep(AGAIN);
        }
        if open.len() < connections
            && let Some(stream) = round.dial(to)
        {
            let mut grpc = Grpc::new(stream, &to.to_string());
            let id = grpc.open_session();
            open.push((grpc, id, 0, hello()));
        }
        let mut moved = false;
        open.retain_mut(|(grpc, id, parts, next)| {
            if !grpc.is_open(*id) {
                (*id, *parts, *next) = (grpc.open_session(), 0, hello());
            }
            if next.is_empty() {
                *next = part(*parts);
                *parts += 1;
            }
            if grpc.has_room(*id, next.len()) {
                grpc.data(*id, &std::mem::take(next));
            }
            let turned = match reads {
                Reads::All => grpc.turn(),
                Reads::Nothing => grpc.write(),
            };
            grpc.messages();
            moved |= *turned.as_ref().unwrap_or(&false);
            turned.is_ok()
        });
        if !moved {
            round.idle();
        }
    }
}

/// Sends requests of two bytes each, as many in a message as fit.
pub(super) fn tiny_requests(round: &Round<'_>) {
    let tiny = message(&b"\x12\x00".repeat(30_000));
    pour(round, round.target.leader, 2, Reads::All, |_| tiny.clone());
}

/// Sends well-formed requests without a pause in one session.
pub(super) fn one_session(round: &Round<'_>) {
    pour(round, round.target.leader, 1, Reads::All, |part| {
        let get = |at| v1::GetLockRequest { lock: format!("absent/{at}"), stale: true };
        commands(part * REQUESTS, (0..REQUESTS).map(|at| Command::GetLock(get(at))))
    });
}

/// Asks for large values and reads none of the answers.
pub(super) fn unread_answers(round: &Round<'_>) {
    pour(round, round.target.leader, 8, Reads::Nothing, |part| {
        let get =
            |at| v1::GetKeyRequest { key: format!("large/{}", at % 40), ..Default::default() };
        commands(part * 50, (0..50).map(|at| Command::GetKey(get(at))))
    });
}

/// Sends most of a long message on each of very many streams.
pub(super) fn partial_messages(round: &Round<'_>) {
    while !round.is_over() {
        let to = round.target.leader;
        let Some(stream) = round.dial(to) else { continue };
        let mut grpc = Grpc::new(stream, &to.to_string());
        let mut id = grpc.open_session();
        let (mut sent, mut streams) = (0, 1);
        while !round.is_over() {
            if grpc.has_room(id, FRAME.len()) {
                let part = if sent == 0 {
                    announced(1 << 20, b"\x12\xff\xff\x3f")
                } else {
                    FRAME.to_vec()
                };
                grpc.data(id, &part);
                sent += 1;
            }
            if (sent == 40 && streams < 1_000) || !grpc.is_open(id) {
                (id, sent, streams) = (grpc.open_session(), 0, streams + 1);
            }
            match grpc.turn() {
                Ok(true) => {}
                Ok(false) => round.idle(),
                Err(_) => break,
            }
        }
    }
}

/// Sends commands whose deadline is over before they can be proposed.
pub(super) fn expired_deadlines(round: &Round<'_>) {
    pour(round, round.target.leader, 4, Reads::All, |part| {
        let put = |at| v1::PutRequest {
            key: format!("late/{}", at % 50),
            value: vec![b'x'; 200].into(),
            ..Default::default()
        };
        with_deadline(part * REQUESTS, 1, (0..REQUESTS).map(|at| Command::Put(put(at))))
    });
}

/// Sends single calls whose deadline is over on arrival.
pub(super) fn expired_calls(round: &Round<'_>) {
    let to = round.target.leader;
    while !round.is_over() {
        let Some(stream) = round.dial(to) else { continue };
        let mut grpc = Grpc::new(stream, &to.to_string());
        let put = v1::PutRequest { key: "late/call".to_owned(), ..Default::default() };
        let put = message(&tenure_wire::Message::encode_to_vec(&put));
        while !round.is_over() {
            grpc.call("/tenure.v1.KeyService/Put", &[("grpc-timeout", "1n")], &put);
            match grpc.turn() {
                Ok(true) => {}
                Ok(false) => round.idle(),
                Err(_) => break,
            }
        }
    }
}

/// Sends what the reserve of the budget is for, about leases and locks that do not exist.
pub(super) fn nonsense_in_the_reserve(round: &Round<'_>) {
    pour(round, round.target.leader, 4, Reads::All, |part| {
        let all = (0..REQUESTS).map(|at| {
            let lease = i64::try_from(1 << 50 | at).unwrap();
            match at % 4 {
                0 => Command::Renew(v1::RenewRequest { leases: vec![lease], ..Default::default() }),
                1 => Command::Revoke(v1::RevokeRequest { lease, ..Default::default() }),
                2 => {
                    let lock = "nothing".to_owned();
                    Command::Release(v1::ReleaseRequest {
                        lock,
                        lease,
                        token: 1,
                        ..Default::default()
                    })
                }
                _ => {
                    let key = "nothing".to_owned();
                    Command::Delete(v1::DeleteRequest { key, ..Default::default() })
                }
            }
        });
        commands(part * REQUESTS, all)
    });
}

/// Sends writes to a member that must forward them.
pub(super) fn forwarded_writes(round: &Round<'_>) {
    pour(round, round.target.follower, 4, Reads::All, |part| {
        let put = |at| v1::PutRequest {
            key: format!("forwarded/{}", at % 50),
            value: vec![b'x'; 500].into(),
            ..Default::default()
        };
        commands(part * REQUESTS, (0..REQUESTS).map(|at| Command::Put(put(at))))
    });
}
