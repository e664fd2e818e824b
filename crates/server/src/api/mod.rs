//! Listens on the client port and serves every connection.
//!
//! One port takes gRPC, HTTP/JSON and WebSocket, over HTTP/1.1 or HTTP/2, with or without TLS. Everything that a client
//! may send is bounded here, by our own numbers and not by the defaults of a library.

mod access;
mod addresses;
mod audit;
mod bounded_io;
mod console;
mod drains;
// The code that serves a call decides; the table is for the tests and the page that they print.
#[cfg(test)]
mod calls;
pub(crate) mod decode;
mod encode;
mod ending;
mod frame_limit;
mod grpc;
mod header;
mod health_listener;
pub(crate) mod http;
mod list;
mod lock_search;
mod metered;
mod overview;
mod past;
mod present;
mod protocol;
mod query;
mod request_filter;
pub(crate) mod session;
mod when_woken;
pub(crate) mod ws;

use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tenure_wire::Failure;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::dispatch::{Caller, ConnectionSources, Dispatch, MemberMemory, PrincipalSources};
use crate::identity::{IdentityCache, PeerCertificate};
use crate::metrics::{Api, Closing, OpenConnection, Port, Protocol, Refusing};
use crate::os;
use crate::tls::ServerTls;
use addresses::{ConnectionLimits, Connections, CountedConnection};
use bounded_io::BoundedIo;
use protocol::{DetectedProtocol, Rewound};
use request_filter::FilteredRouter;
use when_woken::WhenWoken;

pub(crate) use health_listener::HealthListener;
pub(crate) use http::AllowedHosts;

/// The longest message that is read: the longest value, with room for the fields around it.
pub(crate) const MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The most connections at a time. Each idle one takes some 20 KiB.
const CONNECTIONS_MAX: usize = 20_000;
/// The limits on connections. A machine with a thousand clients is rare, and it can put a proxy in between.
const LIMITS: ConnectionLimits =
    ConnectionLimits { all: CONNECTIONS_MAX, kept_for_loopback: 64, per_address: 1_000 };
/// The time from the first byte of a TLS handshake to its last.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The time from the beginning of a request, or of a connection, to the end of its headers. A client without a required
/// certificate has no more than this for the whole connection.
const HEADERS: Duration = Duration::from_secs(10);
/// The most bytes of headers, counted as HTTP/2 does, and the most headers. A client that sends more gets an error; one
/// that sends twice as much is cut off before its request is parsed.
const HEADER_BYTES_MAX: u32 = 16 * 1024;
const HEADERS_MAX: usize = 64;
/// The most bytes of an HTTP/2 frame: the least that the specification allows.
const FRAME_BYTES_MAX: u32 = 16 * 1024;
/// The most requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1_024;
/// The most streams that a client may open and reset before we have handled them.
const RESETS_MAX: usize = 64;
/// The most protocol errors of a client that we answer with resets before the connection ends.
const ERRORS_MAX: usize = 256;
/// The most bytes in flight on one stream, and on a connection, before we have read them.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// The most bytes of answers that wait on one stream until the client takes them, beyond one message.
const SEND_BYTES_MAX: usize = 128 * 1024;
/// How long the system keeps a connection whose client acknowledges nothing that was sent to it.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);
/// The silence after which a connection gets a ping, and how long it may stay silent then before it is closed.
const QUIET: Duration = Duration::from_secs(20);
const SILENT: Duration = Duration::from_secs(10);
/// How long requests in progress may take to end when the member stops.
const LEAVE: Duration = Duration::from_secs(2);

/// The time between two checks whether they have ended.
const EMPTIED: Duration = Duration::from_millis(2);

/// The client listener of a member.
pub(crate) struct ApiListeners {
    open: watch::Sender<bool>,
    connections: Connections,
}

/// Everything that serves a connection.
struct Listener {
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
    router: Router,
    /// The hosts under which the member may be addressed, and the origins of pages that may call it.
    hosts: Arc<AllowedHosts>,
    dispatch: Dispatch,
    /// With certificates, the port accepts only TLS.
    tls: Option<Arc<ServerTls>>,
    connections: Connections,
    principals: PrincipalSources,
    /// The memory in use for all connections.
    memory: MemberMemory,
    open: watch::Receiver<bool>,
}

impl ApiListeners {
    /// Starts to accept connections on a port.
    pub(crate) fn open(
        port: TcpListener,
        dispatch: &Dispatch,
        hosts: AllowedHosts,
        tls: Option<Arc<ServerTls>>,
    ) -> io::Result<Self> {
        port.set_nonblocking(true)?;
        let _inside = dispatch.runtime().enter();
        let port = tokio::net::TcpListener::from_std(port)?;
        let open = watch::Sender::new(true);
        let listener = Arc::new(Listener::new(dispatch, hosts, tls, open.subscribe()));
        let connections = listener.connections.clone();
        dispatch.runtime().spawn(accept(port, listener));
        Ok(Self { open, connections })
    }

    /// Waits until all connections are closed, for at most [`LEAVE`].
    pub(crate) fn emptied(&self) {
        let until_us = os::now_us() + os::micros(LEAVE);
        while !self.connections.is_empty() && os::now_us() < until_us {
            std::thread::sleep(EMPTIED);
        }
    }

    /// Accepts no more connections, and lets requests in progress finish.
    pub(crate) fn close(&self) {
        self.open.send_replace(false);
    }
}

impl Listener {
    fn new(
        dispatch: &Dispatch,
        hosts: AllowedHosts,
        tls: Option<Arc<ServerTls>>,
        open: watch::Receiver<bool>,
    ) -> Self {
        let hosts = Arc::new(hosts);
        let beside = ws::routes(dispatch).merge(console::routes(dispatch));
        let http = http::routes(dispatch, hosts.clone(), beside);
        Self {
            http1: protocols().http1_only(),
            http2: protocols().http2_only(),
            router: grpc::routes(dispatch, hosts.clone()).reset_fallback().merge(http),
            hosts,
            dispatch: dispatch.clone(),
            tls,
            connections: Connections::new(LIMITS),
            principals: dispatch.principals().clone(),
            memory: MemberMemory::default(),
            open,
        }
    }
}

impl Listener {
    /// Logs and counts a client whose certificate was refused. Other failed handshakes are not worth a line.
    fn refused_handshake(&self, error: &io::Error, from: IpAddr) {
        let why = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(why @ rustls::Error::InvalidCertificate(_)) = why {
            tracing::warn!(%from, cause = %why, "refused the certificate of a client");
            self.dispatch.request_metrics().refused(Api::Http, Failure::Unauthenticated.reason());
        }
    }

    /// The permit for a connection from an address; fails if there are too many.
    fn permit(&self, from: IpAddr) -> Result<ConnectionPermit, Refusing> {
        let counted = self.connections.enter(from)?;
        let sources = ConnectionSources::new(counted.source(), self.principals.clone());
        let caller = Caller::new(sources, self.memory.clone(), Some(from));
        let meters = &self.dispatch.member().meters().connections;
        let connection = Arc::new(meters.open(Some(from), caller.memory().clone()));
        let open = self.open.clone();
        Ok(ConnectionPermit {
            _held: Arc::new(counted),
            caller,
            open,
            known: true,
            certificate: None,
            identities: IdentityCache::default(),
            connection,
        })
    }
}

/// The listener of a member inside a test: clients connect through pipes.
#[cfg(feature = "virtual-time")]
pub(crate) struct InProcessListener {
    listener: Arc<Listener>,
    // The listener stays open as long as this value exists.
    _open: watch::Sender<bool>,
}

#[cfg(feature = "virtual-time")]
impl InProcessListener {
    pub(crate) fn open(dispatch: &Dispatch, hosts: AllowedHosts) -> Self {
        let open = watch::Sender::new(true);
        let listener = Arc::new(Listener::new(dispatch, hosts, None, open.subscribe()));
        Self { listener, _open: open }
    }

    /// Serves one connection until it ends.
    pub(crate) fn serve(
        &self,
        stream: tokio::io::DuplexStream,
    ) -> impl Future<Output = ()> + Send + 'static {
        let listener = self.listener.clone();
        async move {
            let here = std::net::Ipv4Addr::LOCALHOST.into();
            let Ok(permit) = listener.permit(here) else { return };
            // A client that goes away is not an error.
            let _ = detect_and_serve(stream, &listener, permit).await;
        }
    }
}

fn protocols() -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_headers(HEADERS_MAX * 2)
        .max_buf_size(HEADER_BYTES_MAX as usize * 2);
    http.http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEADER_BYTES_MAX * 2)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(ERRORS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BYTES_MAX)
        .keep_alive_interval(QUIET)
        .keep_alive_timeout(SILENT);
    http
}

async fn accept(port: tokio::net::TcpListener, listener: Arc<Listener>) {
    let mut open = listener.open.clone();
    let meters = listener.dispatch.member().meters().connections.clone();
    loop {
        let stream = tokio::select! {
            accepted = port.accept() => accepted,
            _ = open.wait_for(|open| !open) => return,
        };
        let (stream, from) = match stream {
            Ok(accepted) => accepted,
            Err(error) => {
                // The process is most likely out of file descriptors: wait until some are closed.
                tracing::warn!(cause = %error, "cannot accept a connection");
                meters.refused(Refusing::System);
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let permit = match listener.permit(from.ip()) {
            Ok(permit) => permit,
            Err(why) => {
                meters.refused(why);
                listener.dispatch.request_metrics().refused(Api::Http, "QUOTA");
                continue;
            }
        };
        let (listener, connection) = (listener.clone(), permit.connection.clone());
        tokio::spawn(async move {
            // A client that goes away, or violates the protocol, is not an error.
            let served = serve(stream, from.ip(), &listener, permit).await;
            connection.ends(closing(&served));
        });
    }
}

/// Why a connection ended, for the metrics.
fn closing(served: &io::Result<()>) -> Closing {
    match served {
        Ok(()) => Closing::Closed,
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Closing::Timeout,
        Err(error) => {
            let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            tls.map_or(Closing::Error, |_| Closing::Handshake)
        }
    }
}

/// The permit that a connection, or the WebSocket it becomes, holds while it exists.
#[derive(Clone)]
pub(crate) struct ConnectionPermit {
    _held: Arc<CountedConnection>,
    caller: Caller,
    open: watch::Receiver<bool>,
    /// Whether the client has presented a certificate, if the port requires one.
    known: bool,
    /// The certificate that the client presented, which the listener has verified.
    certificate: Option<PeerCertificate>,
    identities: IdentityCache,
    connection: Arc<OpenConnection>,
}

impl ConnectionPermit {
    /// The connection that it permits, for the metrics and the audit log.
    pub(crate) fn connection(&self) -> &OpenConnection {
        &self.connection
    }

    /// What counts against the limits of this connection, and the principal of the request that took the permit.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The certificate that the client presented.
    pub(crate) fn certificate(&self) -> Option<&PeerCertificate> {
        self.certificate.as_ref()
    }

    /// The permit for a request of this caller, which takes over the connection.
    fn of(&self, caller: Caller) -> Self {
        Self { caller, ..self.clone() }
    }

    /// Waits until the listener closes.
    pub(crate) async fn closing(&mut self) {
        // If the sender is gone, the listener is closed as well.
        let _ = self.open.wait_for(|open| !open).await;
    }
}

async fn serve(
    stream: TcpStream,
    from: IpAddr,
    listener: &Listener,
    mut permit: ConnectionPermit,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let millis = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    rustix::net::sockopt::set_tcp_user_timeout(&stream, millis)?;
    if let Some(tls) = &listener.tls {
        // The files are checked for every connection: a new certificate needs no restart.
        let config = tls.clients();
        let accepting = async {
            if !protocol::begins_tls(&stream).await? {
                protocol::refuse_plain(stream).await?;
                return Ok(None);
            }
            TlsAcceptor::from(config).accept(stream).await.map(Some)
        };
        let accepted = tokio::time::timeout(HANDSHAKE, accepting).await;
        let accepted = accepted.unwrap_or_else(|late| Err(late.into())).inspect_err(|error| {
            let meters = &listener.dispatch.member().meters().connections;
            meters.handshake_failed(Port::Clients, error);
            listener.refused_handshake(error, from);
        });
        let Some(stream) = accepted? else {
            tracing::warn!(%from, "a client without TLS connected to a port that requires TLS");
            return Ok(());
        };
        // A presented certificate has been verified. A client without one gets an error in its own protocol.
        // Without the certificates of a client authority, the handshake asks for none.
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        permit.certificate = certificates.first().map(|it| PeerCertificate::new(it));
        permit.known = !tls.knows_clients() || permit.certificate.is_some();
        if !permit.known {
            // Such a client needs no longer than this to read the error. Permits are for clients that are served.
            return tokio::time::timeout(HEADERS, detect_and_serve(stream, listener, permit))
                .await?;
        }
        return detect_and_serve(stream, listener, permit).await;
    }
    detect_and_serve(stream, listener, permit).await
}

/// Detects the version of HTTP and serves the connection in it.
async fn detect_and_serve<S>(
    mut stream: S,
    listener: &Listener,
    permit: ConnectionPermit,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let first = tokio::time::timeout(HEADERS, protocol::detect(&mut stream)).await??;
    match first {
        DetectedProtocol::Nothing => Ok(()),
        DetectedProtocol::Tls => {
            tracing::warn!("a client with TLS connected to a port without TLS");
            protocol::refuse_tls(&mut stream).await
        }
        DetectedProtocol::Http1(read) => {
            permit.connection().speaks(Protocol::Http1);
            let stream = BoundedIo::new(Rewound::new(read, stream), permit.caller().clone());
            speak(&listener.http1, stream, listener, permit).await
        }
        DetectedProtocol::Http2(read) => {
            permit.connection().speaks(Protocol::Http2);
            let stream = BoundedIo::new(Rewound::new(read, stream), permit.caller().clone());
            speak(&listener.http2, stream.limit_frames(), listener, permit).await
        }
    }
}

/// Why the member ends a connection.
enum ConnectionEnd {
    /// The client is over its budget of memory.
    OverBudget,
    /// The listener closes.
    Closing,
}

async fn speak<S>(
    http: &auto::Builder<TokioExecutor>,
    stream: BoundedIo<S>,
    listener: &Listener,
    mut permit: ConnectionPermit,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let router = FilteredRouter::new(listener, permit.clone());
    let service = TowerToHyperService::new(router);
    let caller = permit.caller().clone();
    let connection = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ends = WhenWoken::new(async move {
        tokio::select! {
            () = caller.memory().exceeded() => ConnectionEnd::OverBudget,
            () = permit.closing() => ConnectionEnd::Closing,
        }
    });
    tokio::select! {
        biased;
        ended = connection.as_mut() => return ended.map_err(io::Error::other),
        end = ends => match end {
            // Dropping the connection frees what waits for its client.
            ConnectionEnd::OverBudget => return Ok(()),
            ConnectionEnd::Closing => connection.as_mut().graceful_shutdown(),
        },
    }
    match tokio::time::timeout(LEAVE, connection).await {
        Ok(ended) => ended.map_err(io::Error::other),
        Err(_) => Ok(()),
    }
}
