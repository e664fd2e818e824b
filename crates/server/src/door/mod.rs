//! How do clients come in?
//!
//! One port takes gRPC, HTTP/JSON and WebSocket, over HTTP/1.1 or HTTP/2, with or without TLS. Whatever a
//! client may send is bounded here, by numbers of ours and not by the defaults of a library.

mod addresses;
mod ask;
pub(crate) mod decode;
mod encode;
mod facts;
mod first;
mod grpc;
pub(crate) mod http;
mod list;
pub(crate) mod session;
mod threshold;
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

use crate::edge::{Edge, Principal};
use crate::os;
use crate::tls::Tls;
use addresses::{Addresses, Counted};
use first::{First, Rewound};
use threshold::Seated;

pub(crate) use http::Hosts;

/// The longest message that is read: the longest value, with room for what is around it.
pub(crate) const MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Connections at a time. Each idle one takes some 20 KiB.
const CONNECTIONS_MAX: usize = 20_000;
/// Of these, one address may have so many: a proxy needs most of them, and the rest is for whoever has to look.
const PER_ADDRESS_MAX: usize = CONNECTIONS_MAX / 4 * 3;
/// From the first byte of a TLS handshake to its last.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// From the beginning of a request, or of a connection, to the end of its headers. Who has not shown what this port
/// wants to see has no more than that for all it does.
const HEADERS: Duration = Duration::from_secs(10);
/// Bytes of headers, counted as HTTP/2 does, and how many of them. Whoever sends more is told so; whoever sends twice
/// as much is cut off before it is understood.
const HEADER_BYTES_MAX: u32 = 16 * 1024;
const HEADERS_MAX: usize = 64;
/// Bytes of a frame of HTTP/2: the least that its specification allows to ask for.
const FRAME_BYTES_MAX: u32 = 16 * 1024;
/// Requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1_024;
/// Streams that a client may open and reset before we have looked at them.
const RESETS_MAX: usize = 64;
/// Errors of its own that a client may have us answer with resets before the connection ends.
const ERRORS_MAX: usize = 256;
/// What may be on its way on one stream, and on a connection, before we have read it.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// A connection on which nothing came for so long is asked whether it is there, and closed if it is not.
const QUIET: Duration = Duration::from_secs(20);
const SILENT: Duration = Duration::from_secs(10);
/// Requests that are under way have so long to end when the member stops.
const LEAVE: Duration = Duration::from_secs(2);

/// How often it is looked whether they have.
const EMPTIED: Duration = Duration::from_millis(2);

/// The open doors of a member.
pub(crate) struct Doors {
    open: watch::Sender<bool>,
    room: Arc<Semaphore>,
}

/// What serves every connection.
struct House {
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
    router: Router,
    edge: Edge,
    /// With certificates nothing on this port is in plain.
    tls: Option<Arc<Tls>>,
    room: Arc<Semaphore>,
    open: watch::Receiver<bool>,
}

impl Doors {
    /// Opens the doors on a port.
    pub(crate) fn open(
        port: TcpListener,
        edge: &Edge,
        hosts: Hosts,
        tls: Option<Arc<Tls>>,
    ) -> io::Result<Self> {
        port.set_nonblocking(true)?;
        let _inside = edge.runtime().enter();
        let port = tokio::net::TcpListener::from_std(port)?;
        let open = watch::Sender::new(true);
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let house = Arc::new(House::new(edge, hosts, tls, (room.clone(), open.subscribe())));
        edge.runtime().spawn(accept(port, house));
        Ok(Self { open, room })
    }

    /// Waits until everybody has been told and is gone, but not for long.
    pub(crate) fn emptied(&self) {
        let until_us = os::now_us() + os::micros(LEAVE);
        while self.room.available_permits() < CONNECTIONS_MAX && os::now_us() < until_us {
            std::thread::sleep(EMPTIED);
        }
    }

    /// Lets nobody in any more, and those inside finish what they are at.
    pub(crate) fn close(&self) {
        self.open.send_replace(false);
    }
}

impl House {
    fn new(
        edge: &Edge,
        hosts: Hosts,
        tls: Option<Arc<Tls>>,
        (room, open): (Arc<Semaphore>, watch::Receiver<bool>),
    ) -> Self {
        let http = http::routes(edge, hosts, ws::routes(edge));
        Self {
            http1: protocols().http1_only(),
            http2: protocols().http2_only(),
            router: grpc::routes(edge).reset_fallback().merge(http),
            edge: edge.clone(),
            tls,
            room,
            open,
        }
    }
}

/// The doors of a member inside a test: they open onto pipes.
#[cfg(feature = "virtual-time")]
pub(crate) struct Inside {
    house: Arc<House>,
    addresses: Addresses,
    // As long as this is there they are open.
    _open: watch::Sender<bool>,
}

#[cfg(feature = "virtual-time")]
impl Inside {
    pub(crate) fn open(edge: &Edge, hosts: Hosts) -> Self {
        let open = watch::Sender::new(true);
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Self {
            house: Arc::new(House::new(edge, hosts, None, (room, open.subscribe()))),
            addresses: Addresses::new(PER_ADDRESS_MAX),
            _open: open,
        }
    }

    /// Serves one connection until it ends.
    pub(crate) fn serve(
        &self,
        stream: tokio::io::DuplexStream,
    ) -> impl Future<Output = ()> + Send + 'static {
        let house = self.house.clone();
        let addresses = self.addresses.clone();
        async move {
            let Ok(room) = house.room.clone().acquire_owned().await else { return };
            let Some(counted) = addresses.enter(std::net::Ipv4Addr::LOCALHOST.into()) else {
                return;
            };
            let seat = Seat::new(room, counted, &house.open);
            // A client that goes away is no event.
            let _ = hear(stream, &house, seat).await;
        }
    }
}

/// Who asks. Clients have no credentials yet, so all of them are the same principal.
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

async fn accept(port: tokio::net::TcpListener, house: Arc<House>) {
    let mut open = house.open.clone();
    let addresses = Addresses::new(PER_ADDRESS_MAX);
    loop {
        let Ok(room) = house.room.clone().acquire_owned().await else { return };
        let stream = tokio::select! {
            accepted = port.accept() => accepted,
            _ = open.wait_for(|open| !open) => return,
        };
        let (stream, from) = match stream {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: give others time to close some.
                tracing::warn!(cause = %error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(counted) = addresses.enter(from.ip()) else { continue };
        let house = house.clone();
        let seat = Seat::new(room, counted, &house.open);
        tokio::spawn(async move {
            // A client that goes away, or cannot speak, is no event.
            let _ = serve(stream, &house, seat).await;
        });
    }
}

/// What a connection holds for as long as it, or the socket it becomes, is there.
#[derive(Clone)]
pub(crate) struct Seat {
    _held: Arc<(OwnedSemaphorePermit, Counted)>,
    open: watch::Receiver<bool>,
    /// Whether whoever has it has shown what this port wants to see.
    known: bool,
}

impl Seat {
    fn new(room: OwnedSemaphorePermit, counted: Counted, open: &watch::Receiver<bool>) -> Self {
        Self { _held: Arc::new((room, counted)), open: open.clone(), known: true }
    }

    /// Waits until the doors are closed.
    pub(crate) async fn asked_to_leave(&mut self) {
        // If nobody can close them any more, they are.
        let _ = self.open.wait_for(|open| !open).await;
    }
}

async fn serve(stream: TcpStream, house: &House, mut seat: Seat) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if let Some(tls) = &house.tls {
        // The files are looked at for every connection: a new certificate needs no restart.
        let accepting = TlsAcceptor::from(tls.clients()).accept(stream);
        let stream = tokio::time::timeout(HANDSHAKE, accepting).await??;
        // What was shown has been verified. Who shows nothing is told in words that this is not enough.
        seat.known = !tls.knows_clients() || stream.get_ref().1.peer_certificates().is_some();
        if !seat.known {
            // To be told takes no longer. A seat is for those who are served.
            return tokio::time::timeout(HEADERS, hear(stream, house, seat)).await?;
        }
        return hear(stream, house, seat).await;
    }
    hear(stream, house, seat).await
}

/// Hears how a client of HTTP begins, and goes on in its version.
async fn hear<S>(mut stream: S, house: &House, seat: Seat) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let first = tokio::time::timeout(HEADERS, first::hear(&mut stream)).await??;
    match first {
        First::Nothing => Ok(()),
        First::Http1(read) => speak(&house.http1, Rewound::new(read, stream), house, seat).await,
        First::Http2(read) => speak(&house.http2, Rewound::new(read, stream), house, seat).await,
    }
}

async fn speak<S>(
    http: &auto::Builder<TokioExecutor>,
    stream: S,
    house: &House,
    mut seat: Seat,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let seated = Seated::new(house, seat.clone());
    let service = TowerToHyperService::new(seated);
    let connection = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended.map_err(io::Error::other),
        () = seat.asked_to_leave() => connection.as_mut().graceful_shutdown(),
    }
    match tokio::time::timeout(LEAVE, connection).await {
        Ok(ended) => ended.map_err(io::Error::other),
        Err(_) => Ok(()),
    }
}
