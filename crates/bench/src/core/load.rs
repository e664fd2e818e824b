//! Brings a machine into the state that a measurement needs.

use tenure_core::Machine;
use tenure_core::codec::{encode_request, seal_entry};
use tenure_core::outcome::{Answer, Effects};
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, Hold, LeaseRef, NewLease, Purpose, Request,
    RequestId,
};
use tenure_types::{Epoch, Handle, LeaseId, Limit, Mode, Term, Token};

/// The number of commands in one entry, as a busy leader batches them.
pub(crate) const PER_ENTRY: usize = 256;

/// A machine, and the leader's count that its next entries carry.
pub(crate) struct Load {
    pub(crate) machine: Machine,
    pub(crate) effects: Effects,
    pub(crate) clock_ms: u64,
}

impl Load {
    /// Creates a machine whose limits are raised far enough for the benchmarks.
    pub(crate) fn new() -> Self {
        let mut load = Self {
            machine: Machine::new(Epoch::default()),
            effects: Effects::default(),
            clock_ms: 0,
        };
        let raised = [
            (Limit::WaitersPerLock, 10_000_000),
            (Limit::LocksPerLease, 10_000_000),
            (Limit::Leases, 100_000_000),
            (Limit::StateBytes, 1 << 36),
        ];
        load.apply_all(&[encoded(Command::SetLimits(raised.to_vec()))]);
        load
    }

    /// Applies encoded requests, at most `PER_ENTRY` in each entry.
    pub(crate) fn apply_all(&mut self, requests: &[Vec<u8>]) {
        for entry in sealed(self.clock_ms, requests) {
            self.apply(&entry);
        }
    }

    pub(crate) fn apply(&mut self, entry: &[u8]) {
        self.machine.apply(Term(1), Some(entry), &mut self.effects);
    }

    /// Grants leases 1 to `count` and returns their handles.
    pub(crate) fn leases(&mut self, count: u64, ttl_ms: u64) -> Vec<Handle> {
        self.leases_from(1, count, ttl_ms)
    }

    /// Grants `count` leases, with ids from `first` on.
    pub(crate) fn leases_from(&mut self, first: u64, count: u64, ttl_ms: u64) -> Vec<Handle> {
        let mut handles = Vec::new();
        let ids: Vec<u64> = (first..first + count).collect();
        for ids in ids.chunks(PER_ENTRY) {
            let requests: Vec<Vec<u8>> = ids.iter().map(|&id| new_lease(id, ttl_ms)).collect();
            self.apply_all(&requests);
            handles.extend(self.effects.outcomes.iter().map(|outcome| match &outcome.result {
                Ok(Answer::LeaseGranted(lease)) => lease.handle,
                other => panic!("a lease was not granted: {other:?}"),
            }));
        }
        handles
    }
}

/// Batches encoded requests into entries.
pub(crate) fn sealed(clock_ms: u64, requests: &[Vec<u8>]) -> Vec<Vec<u8>> {
    requests
        .chunks(PER_ENTRY)
        .map(|chunk| seal_entry(Term(1), clock_ms, chunk.iter().map(Vec::as_slice)))
        .collect()
}

pub(crate) fn encoded(command: Command<'_>) -> Vec<u8> {
    encoded_as(RequestId::None, command)
}

pub(crate) fn encoded_as(id: RequestId<'_>, command: Command<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_request(&Request { principal: "", id, command }, &mut bytes);
    bytes
}

pub(crate) fn new_lease(id: u64, ttl_ms: u64) -> Vec<u8> {
    let client = format!("host-{}/{}", id % 997, id);
    encoded(Command::GrantLease(NewLease {
        id: LeaseId::new(id).expect("a positive number is an id"),
        ttl_ms,
        client: &client,
        metadata: &[],
    }))
}

pub(crate) fn acquire(lease: Handle, lock: &str, wait: AskWait) -> Command<'_> {
    Command::Acquire(Acquire {
        lease: AskLease::Existing(LeaseRef::Handle(lease)),
        locks: Asks::One(Ask { lock, mode: Mode::Exclusive }),
        any: false,
        wait,
        metadata: &[],
        lock_delay_ms: 0,
        max_hold_ms: None,
        min_hold_ms: 0,
        progress_within_ms: 0,
        supersede: None,
        resume: false,
        priority: 0,
        purpose: Purpose::Lock,
        independent: false,
    })
}

pub(crate) fn release(lease: Handle, lock: &str, token: Token) -> Command<'_> {
    Command::Release(Hold { lease: LeaseRef::Handle(lease), lock, token })
}

/// The token of the `number`-th grant of a new machine.
pub(crate) fn token(number: u64) -> Token {
    Token::new(Epoch::default(), number).expect("fewer grants than tokens")
}
