//! Listens on the client port and serves every connection.
//!
//! One port takes gRPC, HTTP/JSON and WebSocket, over HTTP/1.1 or HTTP/2, with or without TLS. Everything that a client
//! may send is bounded here, by our own numbers and not by the defaults of a library.

mod addresses;
pub(crate) mod decode;
mod encode;
mod grpc;
mod header;
mod health_listener;
pub(crate) mod http;
mod list;
mod protocol;
mod query;
mod request_filter;
pub(crate) mod session;
pub(crate) mod ws;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::dispatch::{Dispatch, Principal};
use crate::metrics::{Closing, OpenConnection, Port, Protocol, Refusing};
use crate::os;
use crate::tls::ServerTls;
use addresses::{ConnectionsByAddress, CountedConnection};
use protocol::{DetectedProtocol, Rewound};
use request_filter::FilteredRouter;

pub(crate) use health_listener::HealthListener;
pub(crate) use http::AllowedHosts;

/// The longest message that is read: the longest value, with room for the fields around it.
pub(crate) const MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The most connections at a time. Each idle one takes some 20 KiB.
const CONNECTIONS_MAX: usize = 20_000;
/// The most connections of one address: a proxy needs most of them, and the rest stays free for operators.
const PER_ADDRESS_MAX: usize = CONNECTIONS_MAX / 4 * 3;
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
    room: Arc<Semaphore>,
}

/// Everything that serves a connection.
struct Listener {
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
    router: Router,
    dispatch: Dispatch,
    /// With certificates, the port accepts only TLS.
    tls: Option<Arc<ServerTls>>,
    room: Arc<Semaphore>,
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
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let listener =
            Arc::new(Listener::new(dispatch, hosts, tls, (room.clone(), open.subscribe())));
        dispatch.runtime().spawn(accept(port, listener));
        Ok(Self { open, room })
    }

    /// Waits until all connections are closed, for at most [`LEAVE`].
    pub(crate) fn emptied(&self) {
        let until_us = os::now_us() + os::micros(LEAVE);
        while self.room.available_permits() < CONNECTIONS_MAX && os::now_us() < until_us {
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
        (room, open): (Arc<Semaphore>, watch::Receiver<bool>),
    ) -> Self {
        let http = http::routes(dispatch, hosts, ws::routes(dispatch));
        Self {
            http1: protocols().http1_only(),
            http2: protocols().http2_only(),
            router: grpc::routes(dispatch).reset_fallback().merge(http),
            dispatch: dispatch.clone(),
            tls,
            room,
            open,
        }
    }
}

/// The listener of a member inside a test: clients connect through pipes.
#[cfg(feature = "virtual-time")]
pub(crate) struct InProcessListener {
    listener: Arc<Listener>,
    addresses: ConnectionsByAddress,
    // The listener stays open as long as this value exists.
    _open: watch::Sender<bool>,
}

#[cfg(feature = "virtual-time")]
impl InProcessListener {
    pub(crate) fn open(dispatch: &Dispatch, hosts: AllowedHosts) -> Self {
        let open = watch::Sender::new(true);
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Self {
            listener: Arc::new(Listener::new(dispatch, hosts, None, (room, open.subscribe()))),
            addresses: ConnectionsByAddress::new(PER_ADDRESS_MAX),
            _open: open,
        }
    }

    /// Serves one connection until it ends.
    pub(crate) fn serve(
        &self,
        stream: tokio::io::DuplexStream,
    ) -> impl Future<Output = ()> + Send + 'static {
        let listener = self.listener.clone();
        let addresses = self.addresses.clone();
        async move {
            let Ok(room) = listener.room.clone().acquire_owned().await else { return };
            let Some(counted) = addresses.enter(std::net::Ipv4Addr::LOCALHOST.into()) else {
                return;
            };
            let connection = listener.dispatch.member().meters().connections.open(None);
            let permit = ConnectionPermit::new(room, counted, &listener.open, Arc::new(connection));
            // A client that goes away is not an error.
            let _ = detect_and_serve(stream, &listener, permit).await;
        }
    }
}

/// The principal of a client. Clients have no credentials yet, so all of them are the same principal.
pub(crate) fn principal() -> Principal {
    Principal::anyone()
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
        .max_send_buf_size(STREAM_WINDOW as usize)
        .keep_alive_interval(QUIET)
        .keep_alive_timeout(SILENT);
    http
}

async fn accept(port: tokio::net::TcpListener, listener: Arc<Listener>) {
    let mut open = listener.open.clone();
    let addresses = ConnectionsByAddress::new(PER_ADDRESS_MAX);
    let meters = listener.dispatch.member().meters().connections.clone();
    loop {
        let Ok(room) = listener.room.clone().acquire_owned().await else { return };
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
        let Some(counted) = addresses.enter(from.ip()) else {
            meters.refused(Refusing::PerAddress);
            continue;
        };
        let listener = listener.clone();
        let connection = Arc::new(meters.open(Some(from.ip())));
        let permit = ConnectionPermit::new(room, counted, &listener.open, connection.clone());
        tokio::spawn(async move {
            // A client that goes away, or violates the protocol, is not an error.
            let served = serve(stream, &listener, permit).await;
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
    _held: Arc<(OwnedSemaphorePermit, CountedConnection)>,
    open: watch::Receiver<bool>,
    /// Whether the client has presented a certificate, if the port requires one.
    known: bool,
    connection: Arc<OpenConnection>,
}

impl ConnectionPermit {
    fn new(
        room: OwnedSemaphorePermit,
        counted: CountedConnection,
        open: &watch::Receiver<bool>,
        connection: Arc<OpenConnection>,
    ) -> Self {
        Self { _held: Arc::new((room, counted)), open: open.clone(), known: true, connection }
    }

    /// The connection that it permits, for the metrics and the audit log.
    pub(crate) fn connection(&self) -> &OpenConnection {
        &self.connection
    }

    /// Waits until the listener closes.
    pub(crate) async fn closing(&mut self) {
        // If the sender is gone, the listener is closed as well.
        let _ = self.open.wait_for(|open| !open).await;
    }
}

async fn serve(
    stream: TcpStream,
    listener: &Listener,
    mut permit: ConnectionPermit,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if let Some(tls) = &listener.tls {
        // The files are checked for every connection: a new certificate needs no restart.
        let accepting = TlsAcceptor::from(tls.clients()).accept(stream);
        let accepted = tokio::time::timeout(HANDSHAKE, accepting).await;
        let stream = accepted.unwrap_or_else(|late| Err(late.into())).inspect_err(|error| {
            let meters = &listener.dispatch.member().meters().connections;
            meters.handshake_failed(Port::Clients, error);
        })?;
        // A presented certificate has been verified. A client without one gets an error in its own protocol.
        permit.known = !tls.knows_clients() || stream.get_ref().1.peer_certificates().is_some();
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
        DetectedProtocol::Http1(read) => {
            permit.connection().speaks(Protocol::Http1);
            speak(&listener.http1, Rewound::new(read, stream), listener, permit).await
        }
        DetectedProtocol::Http2(read) => {
            permit.connection().speaks(Protocol::Http2);
            speak(&listener.http2, Rewound::new(read, stream), listener, permit).await
        }
    }
}

async fn speak<S>(
    http: &auto::Builder<TokioExecutor>,
    stream: S,
    listener: &Listener,
    mut permit: ConnectionPermit,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let seated = FilteredRouter::new(listener, permit.clone());
    let service = TowerToHyperService::new(seated);
    let connection = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended.map_err(io::Error::other),
        () = permit.closing() => connection.as_mut().graceful_shutdown(),
    }
    match tokio::time::timeout(LEAVE, connection).await {
        Ok(ended) => ended.map_err(io::Error::other),
        Err(_) => Ok(()),
    }
}
