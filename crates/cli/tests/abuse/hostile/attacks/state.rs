//! Attacks the state: rings of waits, full queues, many keys and leases, remembered requests, and what belongs to
//! other clients.

use tenure_wire::v1::{self, request::Command};

use super::sessions::{REQUESTS, pour};
use crate::hostile::flood::{Reads, Round};
use crate::hostile::session::{commands, keyed};

/// The ids of the attackers' leases begin here. The honest ones are far below.
const LEASES: i64 = 1 << 40;
/// How long a lease of an attacker lives: a little longer than a round, so that nothing of it stays.
const TTL_MS: u64 = 5_000;
/// How many leases wait for each other in a ring.
const RING: u64 = 400;
/// How many keys are written. With their values they take this many times 30 KB.
const KEYS: u64 = 1_000;
/// How many leases wait for one lock: a little less than the limit for a queue.
const PLACES: u64 = 9_000;

/// The lease of this number. Each attack has its own range, and each round too.
fn lease(round: &Round<'_>, number: u64) -> i64 {
    let [.., attack] = round.from.octets();
    let of_round = (round.until_us >> 16) & 0xffff;
    LEASES | i64::from(attack) << 32 | i64::try_from(of_round << 16 | number).unwrap()
}

fn grant(lease: i64) -> Command {
    Command::GrantLease(v1::NewLease { ttl_ms: TTL_MS, lease, ..Default::default() })
}

fn acquire(lease: i64, lock: String, wait_ms: u64) -> Command {
    let wait_ms = Some(wait_ms);
    Command::Acquire(v1::AcquireRequest { lock, lease, wait_ms, ..Default::default() })
}

/// Numbers the commands of many messages, in order; the last ones are repeated for ever.
fn script(all: Vec<Command>, forever: Vec<Command>) -> impl FnMut(u64) -> Vec<u8> {
    let messages: Vec<Vec<Command>> =
        all.chunks(usize::try_from(REQUESTS).unwrap()).map(<[Command]>::to_vec).collect();
    move |part| {
        let next = messages.get(usize::try_from(part).unwrap()).unwrap_or(&forever).clone();
        commands(part * REQUESTS, next)
    }
}

/// Builds a ring of waiting leases and closes it again and again: each attempt searches the whole ring.
pub(super) fn rings(round: &Round<'_>) {
    let [.., attack] = round.from.octets();
    let lock = |at: u64| format!("ring/{attack}/{}", at % RING);
    let mut all: Vec<Command> = (0..RING).map(|at| grant(lease(round, at))).collect();
    all.extend((0..RING).map(|at| acquire(lease(round, at), lock(at), 0)));
    all.extend((0..RING - 1).map(|at| acquire(lease(round, at), lock(at + 1), 4_000)));
    let close = acquire(lease(round, RING - 1), lock(0), 4_000);
    let close = vec![close; usize::try_from(REQUESTS).unwrap()];
    pour(round, round.target.leader, 1, Reads::All, script(all, close));
}

/// Fills the queue of a lock.
pub(super) fn full_queue(round: &Round<'_>) {
    let ask = |at: u64| acquire(lease(round, at), "wanted/by/all".to_owned(), 3_000);
    // Each lease asks as soon as it is granted, so that a short round has places too.
    let all = (0..PLACES).flat_map(|at| [grant(lease(round, at)), ask(at)]).collect();
    pour(round, round.target.leader, 1, Reads::All, script(all, vec![ask(0); 50]));
}

/// Writes large values under many keys.
pub(super) fn many_keys(round: &Round<'_>) {
    pour(round, round.target.leader, 1, Reads::All, |part| {
        let put = |at| v1::PutRequest {
            key: format!("filling/{}", (part * 5 + at) % KEYS),
            value: vec![b'f'; 30_000].into(),
            ..Default::default()
        };
        commands(part * 5, (0..5).map(|at| Command::Put(put(at))))
    });
}

/// Grants leases that are never renewed, so that very many end at the same time.
pub(super) fn many_leases(round: &Round<'_>) {
    pour(round, round.target.leader, 1, Reads::All, |part| {
        let all = (0..REQUESTS).map(|at| {
            let ttl_ms = 1_000;
            let lease = lease(round, (part * REQUESTS + at) % 4_096);
            Command::GrantLease(v1::NewLease { ttl_ms, lease, ..Default::default() })
        });
        commands(part * REQUESTS, all)
    });
}

/// Acts on locks and leases of honest clients without their tokens. Revoking a lease by its id is left out: without
/// identity a member cannot tell its client from another.
pub(super) fn leases_of_others(round: &Round<'_>) {
    pour(round, round.target.leader, 2, Reads::All, |part| {
        let all = (0..REQUESTS).map(|at| {
            let lease = i64::try_from(at % 64 + 1).unwrap();
            let (lock, token) = (format!("honest/{}", at % 64), part * REQUESTS + at + (1 << 52));
            match at % 4 {
                0 => Command::Renew(v1::RenewRequest { leases: vec![lease], ..Default::default() }),
                1 => {
                    let lease = lease + 1;
                    Command::Release(v1::ReleaseRequest {
                        lock,
                        lease,
                        token,
                        ..Default::default()
                    })
                }
                2 => {
                    let (reason, by) = ("none".to_owned(), "attacker".to_owned());
                    Command::Force(v1::ForceRequest { lock, token, reason, now: true, by })
                }
                _ => Command::Leave(v1::LeaveRequest { lock, lease, ..Default::default() }),
            }
        });
        commands(part * REQUESTS, all)
    });
}

/// Sends requests that each leave a record for ten minutes: some for a lease, some for none.
pub(super) fn idempotency_keys(round: &Round<'_>) {
    let [.., attack] = round.from.octets();
    pour(round, round.target.leader, 1, Reads::All, |part| {
        let all = (0..REQUESTS).map(|at| {
            let number = part * REQUESTS + at;
            let leave = v1::LeaveRequest {
                lock: "flooded".to_owned(),
                lease: lease(round, 0),
                ..Default::default()
            };
            let command = match number {
                0 => grant(lease(round, 0)),
                _ if at % 2 == 0 => Command::Leave(leave),
                _ => Command::Delete(v1::DeleteRequest {
                    key: "flooded".to_owned(),
                    ..Default::default()
                }),
            };
            (format!("{attack}-{}-{number}", round.until_us), command)
        });
        keyed(part * REQUESTS, all)
    });
}
