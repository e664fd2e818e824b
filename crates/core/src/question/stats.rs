//! Counts the objects of the state and their memory.

use crate::machine::Machine;

/// Counts and memory of the whole state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Leases, including those that are due.
    pub leases: u64,
    /// Locks that have a holder or a queue.
    pub locks: u64,
    /// Grants in force, including cooling and delayed ones.
    pub grants: u64,
    /// Places in queues.
    pub places: u64,
    /// Keys.
    pub keys: u64,
    /// Remembered requests, numbered by leases and by idempotency key.
    pub requests: u64,
    /// Pending deadlines.
    pub deadlines: u64,
    /// How many acquire requests were queued because the deadlock search reached its bound.
    pub deadlock_searches_cut: u64,
    /// Bytes of history.
    pub history_bytes: u64,
    /// Memory of the records, without the indexes and without what the records point to.
    pub record_bytes: u64,
}

impl Machine {
    /// Counts the whole state without iterating over it.
    pub fn stats(&self) -> Stats {
        let record_bytes = self.leases.heap_bytes()
            + self.locks.heap_bytes()
            + self.grants.heap_bytes()
            + self.places.heap_bytes()
            + self.waits.heap_bytes()
            + self.keys.heap_bytes()
            + self.seq_requests.heap_bytes()
            + self.key_requests.heap_bytes();
        Stats {
            leases: self.leases.len() as u64,
            locks: self.locks.len() as u64,
            grants: self.grants.len() as u64,
            places: self.places.len() as u64,
            keys: self.keys.len() as u64,
            requests: (self.seq_requests.len() + self.key_requests.len()) as u64,
            deadlines: self.due.len() as u64,
            deadlock_searches_cut: self.deadlock_searches_cut,
            history_bytes: self.history.bytes(),
            record_bytes: record_bytes as u64,
        }
    }
}
