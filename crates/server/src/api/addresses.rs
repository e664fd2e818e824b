//! Limits the number of connections: in sum, and per client address.
//!
//! One machine may have many connections, and behind a proxy all clients share one address; but no address may shut out
//! all others. Some connections are kept for clients on the member's own machine, so that an operator can connect while
//! others fill the rest.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::dispatch::RequestSource;
use crate::metrics::Refusing;
use crate::os;

/// The addresses that are remembered, before those without connections are forgotten: more than there may be
/// connections.
const ADDRESSES_MAX: usize = 65_536;

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimits {
    /// Of all addresses together.
    pub(super) all: usize,
    /// Of these, the ones that only clients on this machine get.
    pub(super) kept_for_loopback: usize,
    /// From one address of another machine.
    pub(super) per_address: usize,
}

/// The open connections.
#[derive(Clone)]
pub(super) struct Connections {
    limits: ConnectionLimits,
    open: Arc<Mutex<OpenConnections>>,
}

#[derive(Default)]
struct OpenConnections {
    all: usize,
    by_address: BTreeMap<IpAddr, ByAddress>,
}

/// The connections of one address, and what is counted for their requests.
struct ByAddress {
    connections: usize,
    source: Arc<RequestSource>,
}

impl Default for ByAddress {
    fn default() -> Self {
        Self { connections: 0, source: RequestSource::of_address() }
    }
}

/// A connection that counts until it is dropped.
pub(super) struct CountedConnection {
    of: Connections,
    address: IpAddr,
    source: Arc<RequestSource>,
}

impl Connections {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        Self { limits, open: Arc::default() }
    }

    /// Counts a connection; fails if its address has reached the limit, or all have.
    pub(super) fn enter(&self, address: IpAddr) -> Result<CountedConnection, Refusing> {
        let address = counted_as(address);
        let ConnectionLimits { all, kept_for_loopback, per_address } = self.limits;
        // The clients of a proxy on this machine all come from loopback.
        let (all_max, address_max) = match address.is_loopback() {
            true => (all, all),
            false => (all.saturating_sub(kept_for_loopback), per_address),
        };
        let mut open = self.open();
        let by_address = open.by_address.get(&address).map_or(0, |it| it.connections);
        if open.all >= all_max {
            return Err(Refusing::AllFull);
        }
        if by_address >= address_max {
            return Err(Refusing::PerAddress);
        }
        open.all += 1;
        if open.by_address.len() >= ADDRESSES_MAX {
            open.by_address.retain(|_, it| it.connections > 0);
        }
        let one = open.by_address.entry(address).or_default();
        one.connections += 1;
        let source = one.source.clone();
        Ok(CountedConnection { of: self.clone(), address, source })
    }

    /// Whether no connection is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open().all == 0
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CountedConnection {
    /// What is counted for the requests of the address.
    pub(super) fn source(&self) -> Arc<RequestSource> {
        self.source.clone()
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut open = self.of.open();
        open.all -= 1;
        if let Some(one) = open.by_address.get_mut(&self.address) {
            one.connections -= 1;
            // What an address has used up of its rate counts on when it connects again.
            if one.connections == 0 && one.source.is_new(os::now_us()) {
                open.by_address.remove(&self.address);
            }
        }
    }
}

/// The address that a connection counts for. A machine has all IPv6 addresses of a /64 network, and a socket for both
/// versions shows an IPv4 address inside an IPv6 one.
fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            Ipv6Addr::from(network).into()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(all: usize, kept_for_loopback: usize, per_address: usize) -> Connections {
        Connections::new(ConnectionLimits { all, kept_for_loopback, per_address })
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_its_own_share_and_no_other() {
        let connections = connections(10, 0, 2);
        let (one, other) = (address("10.0.0.1"), address("10.0.0.2"));
        let first = connections.enter(one);
        let _second = connections.enter(one);
        assert_eq!(connections.enter(one).err(), Some(Refusing::PerAddress));
        assert!(connections.enter(other).is_ok());
        drop(first);
        assert!(connections.enter(one).is_ok());
        assert_eq!(
            connections.open().by_address.len(),
            1,
            "an address without connections is forgotten"
        );
    }

    #[test]
    fn all_addresses_of_a_network_of_ipv6_count_as_one() {
        let connections = connections(10, 0, 2);
        let _held = [
            connections.enter(address("2001:db8::1")),
            connections.enter(address("2001:db8::ffff:2")),
            connections.enter(address("::ffff:10.0.0.1")),
            connections.enter(address("10.0.0.1")),
        ];
        assert!(connections.enter(address("2001:db8::3")).is_err());
        assert!(connections.enter(address("2001:db8:0:1::3")).is_ok());
        assert!(connections.enter(address("10.0.0.1")).is_err(), "also inside an IPv6 address");
    }

    #[test]
    fn an_operator_on_this_machine_gets_in_when_others_fill_the_rest() {
        let connections = connections(10, 2, 4);
        let many: Vec<_> = (0..100)
            .filter_map(|at| connections.enter(IpAddr::from([10, 0, 0, at])).ok())
            .collect();
        assert_eq!(many.len(), 8);
        let mine: Vec<_> =
            (0..3).filter_map(|_| connections.enter(address("127.0.0.1")).ok()).collect();
        assert_eq!(mine.len(), 2);
        let refused = |from: IpAddr| connections.enter(from).err();
        assert_eq!(refused(address("10.0.0.200")), Some(Refusing::AllFull));
        assert_eq!(refused(address("127.0.0.1")), Some(Refusing::AllFull));
        drop((many, mine));
        assert!(connections.is_empty());
    }
}
