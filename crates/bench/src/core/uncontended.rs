//! Measures how many acquires and releases of free locks one core applies, with decoding and events.

use std::time::Duration;

use tenure_core::request::{AskWait, LeaseRef, RequestId};
use tenure_types::{Handle, Token};

use super::load::{Load, acquire, encoded_as, release, sealed, token};
use crate::clock::timed;
use crate::run_results::RunResults;

/// The number of clients; each lock is used by one of them.
const LEASES: u64 = 1_000;

/// The number of rounds of each measurement, of which the median counts.
const ROUNDS: usize = 5;

pub(crate) fn measure(scale: u64, results: &mut RunResults) {
    let all = 1_000_000 / scale;
    let random = rate(all, all, RequestNumbers::No);
    results.add(
        "apply_per_s",
        random,
        format!("commands/s, acquire or release at random over {all} locks (to reach: 1,000,000)"),
    );
    let hot = rate(1_000, all, RequestNumbers::No);
    results.add("apply_hot_per_s", hot, "commands/s, the same over 1,000 locks");
    let numbered = rate(all, all, RequestNumbers::Yes);
    results.add(
        "apply_numbered_per_s",
        numbered,
        format!("commands/s over {all} locks, every request remembered until its answer is known"),
    );
}

/// Whether requests carry a number, so that the cluster recognises a repetition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestNumbers {
    No,
    Yes,
}

fn rate(locks: u64, commands: u64, numbered: RequestNumbers) -> f64 {
    let mut load = Load::new();
    let leases = load.leases(LEASES, 3_600_000);
    let mut clients = ClientStates::new(locks, leases, numbered);
    // Half of the locks are held when the measurement starts, and this share stays the same.
    let filling = clients.toggle((0..locks).filter(|lock| lock % 2 == 0).collect());
    load.apply_all(&filling);
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let order = (0..commands).map(|_| clients.rng.u64(..locks)).collect();
            let entries = sealed(load.clock_ms, &clients.toggle(order));
            timed(|| entries.iter().for_each(|entry| load.apply(entry))).1
        })
        .collect();
    times.sort();
    let held = clients.held.iter().filter(|held| held.is_some()).count() as u64;
    assert_eq!(load.machine.stats().grants, held, "every command did what the clients think");
    commands as f64 / times[ROUNDS / 2].as_secs_f64()
}

/// What the clients know: which locks they hold, and under which token.
struct ClientStates {
    rng: fastrand::Rng,
    names: Vec<String>,
    held: Vec<Option<Token>>,
    leases: Vec<Handle>,
    tokens: u64,
    numbered: RequestNumbers,
    seqs: Vec<u64>,
}

impl ClientStates {
    fn new(locks: u64, leases: Vec<Handle>, numbered: RequestNumbers) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(7),
            names: (0..locks).map(|lock| format!("jobs/import/{lock:08}")).collect(),
            held: (0..locks).map(|_| None).collect(),
            seqs: leases.iter().map(|_| 0).collect(),
            leases,
            tokens: 0,
            numbered,
        }
    }

    /// Releases each lock that is held, and acquires each that is not.
    fn toggle(&mut self, locks: Vec<u64>) -> Vec<Vec<u8>> {
        locks
            .into_iter()
            .map(|lock| self.toggle_one(usize::try_from(lock).expect("an index")))
            .collect()
    }

    fn toggle_one(&mut self, lock: usize) -> Vec<u8> {
        let client = lock % self.leases.len();
        let lease = self.leases[client];
        self.seqs[client] += 1;
        let seq = self.seqs[client];
        let id = match self.numbered {
            RequestNumbers::No => RequestId::None,
            // As a client that waits for one answer before it sends the next request.
            RequestNumbers::Yes => {
                RequestId::Seq { lease: LeaseRef::Handle(lease), seq, done: seq - 1 }
            }
        };
        let name = &self.names[lock];
        match self.held[lock].take() {
            Some(token) => encoded_as(id, release(lease, name, token)),
            None => {
                self.tokens += 1;
                self.held[lock] = Some(token(self.tokens));
                encoded_as(id, acquire(lease, name, AskWait::No))
            }
        }
    }
}
