//! Knows when the certificates expire that other members presented on their present connections.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure_raft::MemberId;

/// The certificates of connected members.
#[derive(Default)]
pub(crate) struct PeerCertificates(Mutex<BTreeMap<MemberId, PresentedCertificate>>);

struct PresentedCertificate {
    /// The number of the connection among those of its link.
    generation: u64,
    expires_s: u64,
}

impl PeerCertificates {
    /// Records what a member presented on a connection, unless it has a newer connection.
    pub(super) fn presented(&self, member: MemberId, generation: u64, expires_s: u64) {
        let mut known = self.lock();
        if known.get(&member).is_none_or(|old| old.generation < generation) {
            known.insert(member, PresentedCertificate { generation, expires_s });
        }
    }

    /// Forgets what a member presented on a connection that is closed.
    pub(super) fn closed(&self, member: MemberId, generation: u64) {
        let mut known = self.lock();
        if known.get(&member).is_some_and(|it| it.generation == generation) {
            known.remove(&member);
        }
    }

    /// When the certificate of a connected member expires, in milliseconds since 1970.
    pub(crate) fn expires_ms(&self, member: MemberId) -> Option<u64> {
        self.lock().get(&member).map(|it| it.expires_s.saturating_mul(1_000))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<MemberId, PresentedCertificate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_connection_counts_until_it_is_closed() {
        let (known, member) = (PeerCertificates::default(), MemberId::new(7).unwrap());
        assert_eq!(known.expires_ms(member), None);
        known.presented(member, 2, 200);
        // An older connection may report late.
        known.presented(member, 1, 100);
        known.closed(member, 1);
        assert_eq!(known.expires_ms(member), Some(200_000));
        known.presented(member, 3, 300);
        known.closed(member, 2);
        assert_eq!(known.expires_ms(member), Some(300_000));
        known.closed(member, 3);
        assert_eq!(known.expires_ms(member), None);
    }
}
