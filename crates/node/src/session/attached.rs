//! Remembers the leases whose notices a session gets, so that a renewal asks only for those of the others.

use std::collections::BTreeSet;

use tenure_core::request::LeaseRef;
use tenure_types::Handle;

/// The most leases of one renewal that the session asks to be attached to; later renewals attach the others. They are
/// kept until the renewal is answered, and are not counted against the budget of the connection.
const ASKED_MAX: usize = 256;

/// The most leases that are remembered. Forgetting them costs attaching them again, nothing else.
const REMEMBERED_MAX: usize = 65_536;

#[derive(Default)]
pub(super) struct Attached(BTreeSet<Handle>);

impl Attached {
    /// The leases that the session is not known to be attached to, by position. A handle is a small number that a
    /// stranger can guess, so the session is attached only once the renewal has succeeded.
    pub(super) fn missing(&self, leases: &[LeaseRef]) -> Vec<(usize, Handle)> {
        let missing = |(at, lease): (usize, &LeaseRef)| match lease {
            LeaseRef::Handle(handle) if !self.0.contains(handle) => Some((at, *handle)),
            _ => None,
        };
        leases.iter().enumerate().filter_map(missing).take(ASKED_MAX).collect()
    }

    pub(super) fn add(&mut self, lease: Handle) {
        if self.0.len() >= REMEMBERED_MAX {
            self.0.clear();
        }
        self.0.insert(lease);
    }

    pub(super) fn remove(&mut self, lease: Handle) {
        self.0.remove(&lease);
    }
}
