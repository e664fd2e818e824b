//! Accepts connections, serves them, and stops.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tower::Service;

use crate::tls::{Handshakes, ServeTls};
use crate::trust::TokenPolicy;

/// The maximum number of connections. Each may bring a body of the largest size.
const CONNECTIONS_MAX: usize = 512;
/// How long the head of a request may take, and how long an idle connection stays open.
const HEAD: Duration = Duration::from_secs(30);
/// How long a peer may read none of the bytes that are sent to it.
const STALLED_MS: u32 = 30_000;
/// How long requests in progress may take when the service stops.
const GRACE: Duration = Duration::from_secs(5);
/// The pause of the acceptor when the system has no more file descriptors.
const NO_FILES: Duration = Duration::from_millis(100);

/// A service that can be served over HTTP.
pub(crate) trait Answers:
    Service<
        Request<Incoming>,
        Response = Response<Self::Body>,
        Error = Infallible,
        Future: Future<Output = Result<Response<Self::Body>, Infallible>> + Send,
    > + Clone
    + Send
    + 'static
{
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B> Answers for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = B;
}

/// Why a service did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Requests from other machines would cross the network in plain text.
    #[error("other machines can reach {0}, and the connection is not encrypted")]
    NotLoopback(SocketAddr),
    /// Every client that reaches the port could invent a token.
    #[error("other machines can reach {0}, and every number would be accepted as a token")]
    BareTokens(SocketAddr),
    /// A setting is invalid.
    #[error("{0}")]
    Setting(String),
    /// The address cannot be listened on.
    #[error("cannot listen on {at}")]
    Listen {
        /// The address.
        at: SocketAddr,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The directory cannot be used.
    #[error("cannot use {what}")]
    Disk {
        /// The file or directory.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A file in the directory cannot be parsed.
    #[error("cannot read {what}: {why}")]
    Unreadable {
        /// The file.
        what: String,
        /// Why it cannot be parsed.
        why: String,
    },
    /// There are states of Terraform, and the store's database does not know them.
    #[error(
        "{dir} has {files} versions of states that the database beside it does not know: the database is missing, or \
         an older one"
    )]
    Orphans {
        /// The directory with the states.
        dir: String,
        /// How many files it has.
        files: usize,
    },
    /// Tickets are required, and there are no keys to verify them.
    #[error("no keys to verify tickets: {0}")]
    Keys(String),
}

impl StartError {
    /// What the operator can try next.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::NotLoopback(_) => {
                "--cert and --key, 127.0.0.1, or --insecure if the network around it is trusted"
            }
            Self::BareTokens(_) => "--require-ticket, or --bare-tokens if no client lies",
            Self::Setting(_) => "--help",
            Self::Listen { .. } => "another --listen",
            Self::Disk { .. } => "another --data, or look whether another process uses it",
            Self::Unreadable { .. } => "another --data, and keep this one aside",
            Self::Orphans { .. } => {
                "the newest copy of store.redb in its place; to begin without these states, another --data"
            }
            Self::Keys(_) => {
                "--keys http://HOST:7450 (https:// under TLS) of a member that runs, or a file with the set"
            }
        }
    }

    /// Whether another setting would help, and no stored data is in doubt.
    pub fn is_setting(&self) -> bool {
        !matches!(self, Self::Unreadable { .. } | Self::Orphans { .. } | Self::Keys(_))
    }
}

/// A running service. Dropping it stops it at once.
#[derive(Debug)]
pub struct RunningService {
    /// The address that it listens on.
    pub address: SocketAddr,
    runtime: Option<Runtime>,
    stop: watch::Sender<bool>,
    connections: Arc<Semaphore>,
}

impl RunningService {
    /// Runs a task beside the service, until the service is stopped.
    pub(crate) fn beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(work);
        }
    }

    /// Accepts no more connections, gives requests in progress a grace period, and stops.
    pub fn stop(mut self) {
        let _ = self.stop.send(true);
        let all = u32::try_from(CONNECTIONS_MAX).expect("the bound is small");
        if let Some(runtime) = self.runtime.take() {
            let _ = runtime
                .block_on(async { timeout(GRACE, self.connections.acquire_many(all)).await });
            runtime.shutdown_background();
        }
    }
}

impl Drop for RunningService {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Whether an address that other machines reach may be used in plain text, and with tokens that prove nothing.
pub(crate) struct Exposure<'a> {
    pub(crate) insecure: bool,
    pub(crate) bare_tokens: bool,
    pub(crate) tls: Option<&'a ServeTls>,
    pub(crate) believe: &'a TokenPolicy,
}

/// Listens. An address that is not loopback needs TLS and tickets, or the operator's word that it does without.
pub(crate) fn bind(
    at: SocketAddr,
    exposure: &Exposure<'_>,
) -> Result<std::net::TcpListener, StartError> {
    let Exposure { insecure, bare_tokens, tls, believe } = exposure;
    if !at.ip().is_loopback() {
        if !insecure && tls.is_none() {
            return Err(StartError::NotLoopback(at));
        }
        if !bare_tokens && matches!(believe, TokenPolicy::Numbers) {
            return Err(StartError::BareTokens(at));
        }
    }
    let listen = || {
        let listener = std::net::TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    listen().map_err(|source| StartError::Listen { at, source })
}

/// Serves the connections of a listener until the service is stopped.
pub(crate) fn serve<S: Answers>(
    listener: std::net::TcpListener,
    service: S,
    handshakes: Option<Handshakes>,
) -> io::Result<RunningService> {
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (stop, stopped) = watch::channel(false);
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let listener = {
        let _inside = runtime.enter();
        TcpListener::from_std(listener)?
    };
    let handshakes = handshakes.map(Arc::new);
    runtime.spawn(accept(listener, service, handshakes, stopped, Arc::clone(&connections)));
    Ok(RunningService { address, runtime: Some(runtime), stop, connections })
}

async fn accept<S: Answers>(
    listener: TcpListener,
    service: S,
    handshakes: Option<Arc<Handshakes>>,
    stopped: watch::Receiver<bool>,
    connections: Arc<Semaphore>,
) {
    let mut told = stopped.clone();
    loop {
        let Ok(place) = Arc::clone(&connections).acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = told.changed() => return,
        };
        let Ok((stream, _)) = accepted else {
            sleep(NO_FILES).await;
            continue;
        };
        let (service, stopped) = (service.clone(), stopped.clone());
        let handshakes = handshakes.clone();
        tokio::spawn(async move {
            // Responses are correct without either option; without the timeout, a peer that does not read is only
            // noticed later.
            let _ = stream.set_nodelay(true);
            let _ = set_tcp_user_timeout(&stream, STALLED_MS);
            match handshakes {
                None => serve_connection(TokioIo::new(stream), service, stopped).await,
                // The client was told in the handshake why it failed.
                Some(handshakes) => {
                    if let Ok(stream) = handshakes.accept(stream).await {
                        serve_connection(TokioIo::new(stream), service, stopped).await;
                    }
                }
            }
            drop(place);
        });
    }
}

async fn serve_connection<S: Answers>(
    io: impl Read + Write + Unpin + Send + 'static,
    service: S,
    mut stopped: watch::Receiver<bool>,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let connection = builder.serve_connection(io, TowerToHyperService::new(service));
    let mut connection = pin!(connection);
    tokio::select! {
        // How the connection failed does not matter to the service.
        _ = &mut connection => {}
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
