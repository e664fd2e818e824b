//! Limits the number of connections per client address.
//!
//! One machine may have many connections, and behind a proxy all clients share one address; but no address may shut out
//! all others.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections of each address, up to a maximum.
#[derive(Clone)]
pub(super) struct ConnectionsByAddress {
    max: usize,
    inside: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
}

/// A connection that counts until it is dropped.
pub(super) struct CountedConnection {
    of: ConnectionsByAddress,
    address: IpAddr,
}

impl ConnectionsByAddress {
    pub(super) fn new(max: usize) -> Self {
        Self { max, inside: Arc::default() }
    }

    /// Counts a connection; none if its address has reached the maximum.
    pub(super) fn enter(&self, address: IpAddr) -> Option<CountedConnection> {
        let mut inside = self.inside();
        let count = inside.entry(address).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(CountedConnection { of: self.clone(), address })
    }

    fn inside(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut inside = self.of.inside();
        if let Some(count) = inside.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                inside.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_own_share_and_no_other() {
        let addresses = ConnectionsByAddress::new(2);
        let (one, other) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let first = addresses.enter(one);
        let _second = addresses.enter(one);
        assert!(addresses.enter(one).is_none());
        assert!(addresses.enter(other).is_some());
        drop(first);
        assert!(addresses.enter(one).is_some());
        assert_eq!(addresses.inside().len(), 1, "who has left is forgotten");
    }
}
