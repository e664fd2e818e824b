//! Budgets the memory of what waits for clients: per connection, per principal, and for the member in sum.
//!
//! Partial messages, answers that are not written yet, mail and watch buffers are charged to the connection that they
//! wait for. A charge never fails. A connection that exceeds its budget is marked, and the API closes it. While the
//! member exceeds its budget, it closes each connection that takes more and already has more than a small share in use.
//! So clients that read their answers are not affected by clients that do not. If what waits for one principal exceeds
//! the budget of a principal, the same happens to the connections on which that principal takes more. Each charge
//! counts for the principal of the request that it was made for, until it is dropped, whatever else the connection
//! carries meanwhile.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The most bytes that wait for one connection: many pages of a list at a time.
pub(crate) const CONNECTION_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The most bytes that wait for all connections. Beyond it a connection with more than [`SHARE_BYTES`] is closed
/// when it takes more. Beyond 1.5 times this bound the same holds for one with more than [`SMALL_BYTES`].
const MEMBER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The most bytes that wait for all connections of one principal, with the same two steps. A quarter of the member's
/// bound, so that principals whose clients do not read leave room for the other principals.
const PRINCIPAL_BYTES_MAX: usize = MEMBER_BYTES_MAX / 4;
/// A long page of a list, and its beginning in the buffers below.
const SHARE_BYTES: usize = 2 * 1024 * 1024;
/// Enough for commands, answers and renewals. A client keeps this much however many bytes wait for others.
const SMALL_BYTES: usize = 64 * 1024;

/// The memory in use for all connections of a member. Cheap to clone.
#[derive(Clone, Default, Debug)]
pub(crate) struct MemberMemory(Arc<AtomicUsize>);

/// The memory in use for all connections of a principal. Cheap to clone.
#[derive(Clone, Default, Debug)]
pub(crate) struct PrincipalMemory(Arc<AtomicUsize>);

/// The memory in use for one connection, as the requests of one principal on it use it. Cheap to clone.
#[derive(Clone, Default, Debug)]
pub(crate) struct ConnectionMemory {
    inner: Arc<ConnectionUse>,
    /// None for a caller without a principal.
    principal: Option<PrincipalMemory>,
}

#[derive(Default, Debug)]
struct ConnectionUse {
    used: AtomicUsize,
    over: AtomicBool,
    exceeded: Notify,
    member: MemberMemory,
    /// Whether the connection has become a WebSocket.
    is_socket: AtomicBool,
    socket: Mutex<SocketUse>,
}

/// What a WebSocket has read of its next message.
#[derive(Default, Debug)]
struct SocketUse {
    partial: usize,
    /// The principal of its client, once it is known.
    principal: Option<PrincipalMemory>,
}

/// How many bytes one connection of a group may have in use, while the group has `all` in use and its bound is `most`.
fn allowed_of(all: usize, most: usize) -> usize {
    match all {
        all if all <= most => CONNECTION_BYTES_MAX,
        all if all <= most / 2 * 3 => SHARE_BYTES,
        _ => SMALL_BYTES,
    }
}

/// How many bytes one connection may have in use, given what its principal and what the member have in use.
fn allowed(of_principal: usize, all: usize) -> usize {
    allowed_of(of_principal, PRINCIPAL_BYTES_MAX).min(allowed_of(all, MEMBER_BYTES_MAX))
}

impl ConnectionMemory {
    /// The memory of a new connection.
    pub(crate) fn new(member: MemberMemory) -> Self {
        let inner = Arc::new(ConnectionUse { member, ..ConnectionUse::default() });
        Self { inner, principal: None }
    }

    /// The same connection, for requests of this principal.
    pub(crate) fn of(&self, principal: Option<&PrincipalMemory>) -> Self {
        Self { inner: self.inner.clone(), principal: principal.cloned() }
    }

    /// Counts bytes until the charge is dropped.
    pub(crate) fn charge(&self, bytes: usize) -> Charge {
        self.add(bytes);
        Charge { of: self.clone(), bytes }
    }

    /// Whether a buffer may take these bytes. For buffers that can wait: they get half of what is allowed otherwise.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let used = self.inner.used.load(Ordering::Relaxed).saturating_add(bytes);
        let all = self.inner.member.0.load(Ordering::Relaxed).saturating_add(bytes);
        let of_principal = match &self.principal {
            Some(principal) => principal.0.load(Ordering::Relaxed).saturating_add(bytes),
            None => 0,
        };
        used <= allowed(of_principal.saturating_mul(2), all.saturating_mul(2)) / 2
    }

    /// Counts the messages of a WebSocket from now on, as their parts are read, for this principal.
    pub(crate) fn begin_socket(&self) {
        let mut socket = self.socket();
        let partial = std::mem::take(&mut socket.partial);
        self.of(socket.principal.as_ref()).subtract(partial);
        socket.principal.clone_from(&self.principal);
        socket.partial = partial;
        self.add(partial);
        self.inner.is_socket.store(true, Ordering::Relaxed);
    }

    /// Counts bytes that were read from the connection, if it is a WebSocket.
    pub(crate) fn read(&self, bytes: usize) {
        if bytes > 0 && self.inner.is_socket.load(Ordering::Relaxed) {
            let mut socket = self.socket();
            socket.partial += bytes;
            self.of(socket.principal.as_ref()).add(bytes);
        }
    }

    /// A message of the WebSocket is complete, or its connection is over.
    pub(crate) fn message_read(&self) {
        let mut socket = self.socket();
        let partial = std::mem::take(&mut socket.partial);
        self.of(socket.principal.as_ref()).subtract(partial);
    }

    fn socket(&self) -> std::sync::MutexGuard<'_, SocketUse> {
        self.inner.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the connection has exceeded its budget.
    pub(crate) fn is_over(&self) -> bool {
        self.inner.over.load(Ordering::Acquire)
    }

    /// Has the connection closed, whatever it has in use.
    pub(crate) fn close(&self) {
        if !self.inner.over.swap(true, Ordering::AcqRel) {
            self.inner.exceeded.notify_one();
        }
    }

    /// Waits until the connection exceeds its budget, or is to be closed.
    pub(crate) async fn exceeded(&self) {
        while !self.is_over() {
            self.inner.exceeded.notified().await;
        }
    }

    fn add(&self, bytes: usize) {
        let add = |to: &AtomicUsize| to.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let used = add(&self.inner.used);
        let of_principal = self.principal.as_ref().map_or(0, |principal| add(&principal.0));
        let all = add(&self.inner.member.0);
        if used > allowed(of_principal, all) && !self.inner.over.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                bytes = used,
                "closes a connection whose unread data exceeds its budget"
            );
            self.inner.exceeded.notify_one();
        }
    }

    fn subtract(&self, bytes: usize) {
        self.inner.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(principal) = &self.principal {
            principal.0.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.inner.member.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes that count against a connection until this is dropped.
pub(crate) struct Charge {
    of: ConnectionMemory,
    bytes: usize,
}

impl Charge {
    /// Changes the number of bytes.
    pub(crate) fn set(&mut self, bytes: usize) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.of.add(more),
            None => self.of.subtract(self.bytes - bytes),
        }
        self.bytes = bytes;
    }

    /// Adds to the number of bytes.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.set(self.bytes.saturating_add(bytes));
    }

    /// The memory that the bytes count against.
    pub(crate) fn of(&self) -> &ConnectionMemory {
        &self.of
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.of.subtract(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_exceeds_its_budget_is_over_and_others_are_not() {
        let member = MemberMemory::default();
        let (one, other) =
            (ConnectionMemory::new(member.clone()), ConnectionMemory::new(member.clone()));
        let most = one.charge(CONNECTION_BYTES_MAX);
        assert!(!one.is_over());
        let _more = one.charge(1);
        let _theirs = other.charge(SHARE_BYTES);
        assert!(one.is_over() && !other.is_over());
        drop(most);
        assert!(one.is_over(), "it is closed whatever it gives back later");
        assert_eq!(member.0.load(Ordering::Relaxed), SHARE_BYTES + 1);
    }

    #[test]
    fn when_the_member_exceeds_its_budget_small_connections_go_on() {
        let member = MemberMemory::default();
        let many: Vec<_> = (0..9).map(|_| ConnectionMemory::new(member.clone())).collect();
        let _charges: Vec<_> = many.iter().map(|it| it.charge(MEMBER_BYTES_MAX / 8)).collect();
        assert_eq!(many.iter().filter(|it| it.is_over()).count(), 1, "the one that went beyond");
        let small = ConnectionMemory::new(member.clone());
        let _charge = small.charge(SHARE_BYTES);
        assert!(!small.is_over());
        assert!(!small.has_room(1));
        // Very many connections with little each: beyond a point none gets more than commands need.
        let many: Vec<_> = (0..1_000).map(|_| ConnectionMemory::new(member.clone())).collect();
        let _charges: Vec<_> = many.iter().map(|it| it.charge(1024 * 1024)).collect();
        assert!(many.iter().filter(|it| it.is_over()).count() > 800);
        let small = ConnectionMemory::new(member);
        let _charge = small.charge(SMALL_BYTES);
        assert!(!small.is_over());
    }

    #[test]
    fn a_principal_that_exceeds_its_budget_affects_its_own_connections_only() {
        let member = MemberMemory::default();
        let (greedy, honest) = (PrincipalMemory::default(), PrincipalMemory::default());
        let of =
            |principal: &PrincipalMemory| ConnectionMemory::new(member.clone()).of(Some(principal));
        let many: Vec<_> = (0..5).map(|_| of(&greedy)).collect();
        let charges: Vec<_> = many.iter().map(|it| it.charge(PRINCIPAL_BYTES_MAX / 4)).collect();
        let over: Vec<_> = many.iter().map(ConnectionMemory::is_over).collect();
        assert_eq!(over, [false, false, false, false, true], "the one that went beyond");
        // Its connections that have little go on, and so do those of another principal, whatever they have.
        let (small, large) = (of(&greedy), of(&honest));
        let _charges = (small.charge(SHARE_BYTES), large.charge(CONNECTION_BYTES_MAX));
        assert!(!small.is_over() && !large.is_over() && !small.has_room(1));
        drop(charges);
        assert_eq!(greedy.0.load(Ordering::Relaxed), SHARE_BYTES);
    }

    #[test]
    fn a_charge_counts_for_the_principal_of_its_request_whatever_the_connection_carries_then() {
        let (ana, bob) = (PrincipalMemory::default(), PrincipalMemory::default());
        let used = |of: &PrincipalMemory| of.0.load(Ordering::Relaxed);
        let connection = ConnectionMemory::default();
        let mut first = connection.of(Some(&ana)).charge(10);
        // Requests without credentials, such as for health, and of another principal follow on the same connection.
        let nobody = connection.of(None).charge(3);
        let second = connection.of(Some(&bob)).charge(5);
        assert_eq!((used(&ana), used(&bob)), (10, 5));
        first.add(2);
        assert_eq!((used(&ana), used(&bob)), (12, 5));
        assert_eq!(connection.inner.used.load(Ordering::Relaxed), 20);
        drop((first, nobody));
        assert_eq!((used(&ana), used(&bob)), (0, 5));
        drop(second);
        assert_eq!((used(&ana), used(&bob)), (0, 0));
        assert_eq!(connection.inner.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_message_of_a_socket_counts_for_its_client_once_that_is_known() {
        let (ana, connection) = (PrincipalMemory::default(), ConnectionMemory::default());
        let used =
            || (ana.0.load(Ordering::Relaxed), connection.inner.used.load(Ordering::Relaxed));
        connection.begin_socket();
        connection.read(100);
        assert_eq!(used(), (0, 100));
        connection.of(Some(&ana)).begin_socket();
        assert_eq!(used(), (100, 100));
        connection.read(50);
        assert_eq!(used(), (150, 150));
        connection.message_read();
        assert_eq!(used(), (0, 0));
        connection.read(7);
        assert_eq!(used(), (7, 7));
        connection.message_read();
        assert_eq!(used(), (0, 0));
    }

    #[test]
    fn a_message_of_a_socket_counts_until_it_is_complete() {
        let memory = ConnectionMemory::default();
        memory.read(100);
        assert_eq!(memory.inner.used.load(Ordering::Relaxed), 0, "it is no socket yet");
        memory.begin_socket();
        memory.read(100);
        memory.read(50);
        assert_eq!(memory.inner.used.load(Ordering::Relaxed), 150);
        memory.message_read();
        memory.message_read();
        assert_eq!(memory.inner.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_charge_follows_what_is_buffered() {
        let memory = ConnectionMemory::default();
        let mut charge = memory.charge(10);
        charge.add(5);
        assert_eq!(memory.inner.used.load(Ordering::Relaxed), 15);
        charge.set(3);
        assert_eq!(memory.inner.used.load(Ordering::Relaxed), 3);
        drop(charge);
        assert_eq!(memory.inner.used.load(Ordering::Relaxed), 0);
    }
}
