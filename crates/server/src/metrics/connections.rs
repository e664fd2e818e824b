//! Counts connections by protocol, refused connections and failed TLS handshakes.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustls::{AlertDescription, CertificateError, Error as TlsError};

use crate::dispatch::ConnectionMemory;

/// What a client speaks on its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Http1 = 1,
    Http2 = 2,
    WebSocket = 3,
}

/// The labels. The first is for connections whose first bytes, or TLS handshakes, are on their way.
const PROTOCOLS: [&str; 4] = ["unknown", "http1", "http2", "websocket"];

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closing {
    /// The client closed it, or all of its requests were served.
    Closed,
    /// The client was too slow: a handshake, a first request or its headers.
    Timeout,
    /// The TLS handshake failed.
    Handshake,
    /// The client violated the protocol, or the connection broke.
    Error,
    /// What waited for the client exceeded the connection's budget of memory.
    Memory,
}

const CLOSINGS: [&str; 5] = ["closed", "timeout", "handshake", "error", "memory"];

/// Why a connection was refused before it was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusing {
    /// Its address has the most connections that one address may have.
    PerAddress,
    /// The operating system gave none, most likely because too many files are open.
    System,
    /// The health listener has the most connections that it serves.
    HealthFull,
    /// The member has the most connections that it may have, of all addresses.
    AllFull,
}

const REFUSINGS: [&str; 4] = ["per_address", "system", "health_full", "all_full"];

/// The listener on which a handshake failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Port {
    Clients,
    Members,
}

const PORTS: [&str; 2] = ["clients", "members"];

/// The causes of failed handshakes that [`handshake_cause`] tells apart.
const HANDSHAKES: [&str; 8] = [
    "timeout",
    "closed",
    "not_tls",
    "no_certificate",
    "certificate_expired",
    "unknown_issuer",
    "rejected_by_client",
    "other",
];

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfProtocol {
    protocol: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfCause {
    cause: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfHandshake {
    port: &'static str,
    cause: &'static str,
}

/// The metrics of connections. Labels have a fixed number of values: no address is among them.
#[derive(Debug)]
pub(crate) struct ConnectionMeters {
    open: Family<OfProtocol, Gauge<u64, AtomicU64>>,
    closed: Family<OfCause, Counter>,
    refused: Family<OfCause, Counter>,
    handshakes: Family<OfHandshake, Counter>,
    throttled: Counter,
}

impl Default for ConnectionMeters {
    fn default() -> Self {
        let (open, closed) = (Family::default(), Family::default());
        let (refused, handshakes) = (Family::default(), Family::default());
        let throttled = Counter::default();
        let meters = Self { open, closed, refused, handshakes, throttled };
        // Every series exists from the start, so that a rate over it is right from its first event on.
        PROTOCOLS.iter().for_each(|protocol| drop(meters.gauge(protocol)));
        CLOSINGS.iter().for_each(|cause| drop(meters.closed.get_or_create(&OfCause { cause })));
        REFUSINGS.iter().for_each(|cause| drop(meters.refused.get_or_create(&OfCause { cause })));
        for port in PORTS {
            for cause in HANDSHAKES {
                drop(meters.handshakes.get_or_create(&OfHandshake { port, cause }));
            }
        }
        meters
    }
}

impl ConnectionMeters {
    /// Registers the metrics.
    pub(crate) fn register(&self, to: &mut Registry) {
        let help = "Connections of clients that are open, by protocol";
        to.register("connections", help, self.open.clone());
        let help = "Connections of clients that ended, by cause";
        to.register("connections_closed", help, self.closed.clone());
        let help = "Connections that were refused before they were served, by cause";
        to.register("connections_refused", help, self.refused.clone());
        let help = "TLS handshakes that failed, by port and cause";
        to.register("tls_handshakes_failed", help, self.handshakes.clone());
        let help = "Credentials refused without a check, because their address presented too many wrong ones";
        to.register("authentications_throttled", help, self.throttled.clone());
    }

    /// Counts a connection with this memory until the returned value is dropped.
    pub(crate) fn open(
        self: &Arc<Self>,
        from: Option<IpAddr>,
        memory: ConnectionMemory,
    ) -> OpenConnection {
        self.gauge(PROTOCOLS[0]).inc();
        let (protocol, closing) = (AtomicUsize::new(0), AtomicUsize::new(0));
        OpenConnection { of: self.clone(), from, memory, protocol, closing }
    }

    /// Counts credentials that were not checked.
    pub(crate) fn throttled(&self) {
        self.throttled.inc();
    }

    pub(crate) fn refused(&self, why: Refusing) {
        self.refused.get_or_create(&OfCause { cause: REFUSINGS[why as usize] }).inc();
    }

    pub(crate) fn handshake_failed(&self, port: Port, error: &io::Error) {
        let of = OfHandshake { port: PORTS[port as usize], cause: handshake_cause(error) };
        self.handshakes.get_or_create(&of).inc();
    }

    fn gauge(&self, protocol: &'static str) -> Gauge<u64, AtomicU64> {
        self.open.get_or_create_owned(&OfProtocol { protocol })
    }
}

/// A connection that counts until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    of: Arc<ConnectionMeters>,
    from: Option<IpAddr>,
    memory: ConnectionMemory,
    protocol: AtomicUsize,
    closing: AtomicUsize,
}

impl OpenConnection {
    /// The address that it comes from; none for a connection inside a test.
    pub(crate) fn from(&self) -> Option<IpAddr> {
        self.from
    }

    /// Records what the client speaks.
    pub(crate) fn speaks(&self, protocol: Protocol) {
        let before = self.protocol.swap(protocol as usize, Ordering::Relaxed);
        self.of.gauge(PROTOCOLS[before]).dec();
        self.of.gauge(PROTOCOLS[protocol as usize]).inc();
    }

    /// Records why it ends.
    pub(crate) fn ends(&self, closing: Closing) {
        self.closing.store(closing as usize, Ordering::Relaxed);
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.of.gauge(PROTOCOLS[*self.protocol.get_mut()]).dec();
        // A connection that exceeds its budget ends at several places, some of which see only a broken stream, and a
        // WebSocket outlives the connection that it was. All of them are closed for the same cause.
        let over = self.memory.is_over().then_some(Closing::Memory as usize);
        let cause = CLOSINGS[over.unwrap_or(*self.closing.get_mut())];
        self.of.closed.get_or_create(&OfCause { cause }).inc();
    }
}

/// Why a handshake failed, as one of [`HANDSHAKES`].
fn handshake_cause(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => return "timeout",
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => return "closed",
        _ => {}
    }
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) else {
        return "other";
    };
    match tls {
        TlsError::InvalidMessage(_) => "not_tls",
        TlsError::NoCertificatesPresented => "no_certificate",
        TlsError::AlertReceived(AlertDescription::CertificateRequired) => "no_certificate",
        TlsError::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "certificate_expired",
        TlsError::InvalidCertificate(CertificateError::UnknownIssuer) => "unknown_issuer",
        TlsError::AlertReceived(_) => "rejected_by_client",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::CONNECTION_BYTES_MAX;

    #[test]
    fn a_connection_is_counted_once_by_what_it_speaks_and_how_it_ends() {
        let meters = Arc::new(ConnectionMeters::default());
        let open = |at: usize| meters.gauge(PROTOCOLS[at]).get();
        let one = meters.open(None, ConnectionMemory::default());
        assert_eq!([open(0), open(2)], [1, 0]);
        one.speaks(Protocol::Http2);
        assert_eq!([open(0), open(2)], [0, 1]);
        one.ends(Closing::Error);
        drop(one);
        assert_eq!([open(0), open(2)], [0, 0]);
        assert_eq!(meters.closed.get_or_create(&OfCause { cause: "error" }).get(), 1);
    }

    #[test]
    fn a_connection_over_its_budget_of_memory_counts_under_that_cause() {
        let meters = Arc::new(ConnectionMeters::default());
        let memory = ConnectionMemory::default();
        let one = meters.open(None, memory.clone());
        let charge = memory.charge(CONNECTION_BYTES_MAX + 1);
        // A write that fails because of the budget looks like a broken connection.
        one.ends(Closing::Error);
        drop((one, charge));
        let closed = |cause| meters.closed.get_or_create(&OfCause { cause }).get();
        assert_eq!([closed("memory"), closed("error"), closed("closed")], [1, 0, 0]);
    }

    #[test]
    fn handshakes_fail_for_causes_that_are_listed() {
        let tls =
            |error: TlsError| handshake_cause(&io::Error::new(io::ErrorKind::InvalidData, error));
        let expired = TlsError::InvalidCertificate(CertificateError::Expired);
        assert_eq!(tls(expired), "certificate_expired");
        assert_eq!(tls(TlsError::NoCertificatesPresented), "no_certificate");
        assert_eq!(tls(TlsError::DecryptError), "other");
        assert_eq!(handshake_cause(&io::ErrorKind::TimedOut.into()), "timeout");
        for cause in ["timeout", "closed", "not_tls", "no_certificate", "other"] {
            assert!(HANDSHAKES.contains(&cause));
        }
    }
}
