//! Serves health, metrics and diagnostics on a port of their own, in plain HTTP without client certificates.
//!
//! A probe or a scraper has no client certificate, and it must get an answer while the clients' port is full. The port
//! listens on loopback unless the operator chooses another address.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

use super::http::{self, AllowedHosts, PeerAddress};
use crate::dispatch::Dispatch;
use crate::metrics::{ConnectionMeters, Refusing};

/// The most connections at a time: some scrapers and probes, each with a few connections.
const CONNECTIONS_MAX: usize = 64;
/// The time from the beginning of a connection, or the end of a response, to the end of the next request's headers.
const HEADERS: Duration = Duration::from_secs(10);
/// The time that a connection may last: a reader that does not read its response is cut off.
const CONNECTION: Duration = Duration::from_secs(120);
/// The most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The health listener of a member.
pub(crate) struct HealthListener {
    open: watch::Sender<bool>,
}

impl HealthListener {
    /// Starts to accept connections on a port.
    pub(crate) fn open(
        port: TcpListener,
        dispatch: &Dispatch,
        hosts: AllowedHosts,
    ) -> io::Result<Self> {
        port.set_nonblocking(true)?;
        let _inside = dispatch.runtime().enter();
        let port = tokio::net::TcpListener::from_std(port)?;
        let open = watch::Sender::new(true);
        let router = http::health_routes(dispatch, hosts);
        let meters = dispatch.member().meters().connections.clone();
        dispatch.runtime().spawn(accept(port, router, meters, open.subscribe()));
        Ok(Self { open })
    }

    /// Accepts no more connections, and closes those that exist.
    pub(crate) fn close(&self) {
        self.open.send_replace(false);
    }
}

async fn accept(
    port: tokio::net::TcpListener,
    router: Router,
    meters: Arc<ConnectionMeters>,
    mut open: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = port.accept() => accepted,
            _ = open.wait_for(|open| !open) => return,
        };
        let Ok((stream, from)) = accepted else {
            // The process is most likely out of file descriptors: wait until some are closed.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(permit) = room.clone().try_acquire_owned() else {
            meters.refused(Refusing::HealthFull);
            continue;
        };
        let (router, open) = (router.clone(), open.clone());
        tokio::spawn(async move {
            let _ = tokio::time::timeout(CONNECTION, serve(stream, from, router, open)).await;
            drop(permit);
        });
    }
}

async fn serve(
    stream: TcpStream,
    from: SocketAddr,
    router: Router,
    mut open: watch::Receiver<bool>,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(HEAD_BYTES_MAX);
    let router = router.layer(Extension(PeerAddress(from.ip())));
    let connection =
        builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    tokio::select! {
        // A client that goes away is not an error.
        _ = connection.as_mut() => {}
        _ = open.wait_for(|open| !open) => {}
    }
}
