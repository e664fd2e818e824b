//! Sends spans to a collector over OTLP/gRPC, in batches.
//!
//! Requests put their spans into a bounded queue and never wait for it. A collector that is slow or gone costs spans,
//! which are counted, and nothing else.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::{Authority, PathAndQuery};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;
use tower::Service;

use super::message::{self, ExportRequest, ExportResponse, Resource, ResourceSpans, Scope};
use super::message::{ScopeSpans, Span};
use super::{SpanLoss, Traces};
use crate::credentials::ServerAuthority;
use crate::log::Limiter;

/// The most spans in one message: some hundred kilobytes.
const BATCH_MAX: usize = 512;
/// How long spans gather before they are sent.
const GATHER: Duration = Duration::from_millis(200);
/// How long the collector may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Exports the spans of a member.
pub(super) struct Exporter {
    pub(super) collector: CollectorAddress,
    pub(super) authority: ServerAuthority,
    pub(super) resource: Resource,
    pub(super) queue: Receiver<Span>,
    pub(super) traces: Arc<Traces>,
}

/// The address of a collector: a host and a port, and whether the connection is encrypted.
#[derive(Clone, Debug)]
pub(super) struct CollectorAddress {
    host: Authority,
    secured: bool,
}

impl CollectorAddress {
    /// Parses an address such as `http://127.0.0.1:4317` or `https://collector.example:4317`.
    pub(super) fn parse(address: &str) -> Option<Self> {
        let (scheme, host) = address.split_once("://")?;
        let secured = match scheme {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let host = host.strip_suffix('/').unwrap_or(host);
        let host: Authority = host.parse().ok()?;
        (!host.host().is_empty() && !host.as_str().contains('@')).then_some(Self { host, secured })
    }

    /// A connection that is made when it is needed, and made again when it breaks.
    fn connect(&self, authority: &ServerAuthority) -> Result<Channel, tonic::transport::Error> {
        // The connector encrypts. For the library the connection is a plain one, except for the scheme in requests.
        let endpoint = Endpoint::from_shared(format!("http://{}", self.host))?;
        let endpoint = endpoint.timeout(ANSWER).connect_timeout(ANSWER);
        if !self.secured {
            return Ok(endpoint.connect_lazy());
        }
        let origin = Uri::builder().scheme("https").authority(self.host.clone());
        let origin = origin.path_and_query("/").build().unwrap_or_default();
        let dial = TlsDial { host: self.host.clone(), authority: authority.clone() };
        Ok(endpoint.origin(origin).connect_with_connector_lazy(dial))
    }
}

/// Dials a collector under TLS.
#[derive(Clone)]
struct TlsDial {
    host: Authority,
    authority: ServerAuthority,
}

impl TlsDial {
    async fn dial(self) -> io::Result<TokioIo<TlsStream<TcpStream>>> {
        let host = self.host.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = self.host.port_u16().unwrap_or(443);
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        let authority = self.authority;
        let config = tokio::task::spawn_blocking(move || authority.configure()).await;
        let mut config = config.map_err(io::Error::other)?.map_err(io::Error::other)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        Ok(TokioIo::new(stream))
    }
}

impl Service<Uri> for TlsDial {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().dial())
    }
}

impl Exporter {
    /// Exports spans as long as the member exists.
    pub(super) async fn run(mut self) {
        let lines = Limiter::default();
        let channel = match self.collector.connect(&self.authority) {
            Ok(channel) => channel,
            Err(error) => return tracing::error!(cause = %error, "cannot export spans"),
        };
        let mut grpc = tonic::client::Grpc::new(channel);
        let mut batch = Vec::new();
        while self.queue.recv_many(&mut batch, BATCH_MAX).await > 0 {
            if batch.len() < BATCH_MAX {
                tokio::time::sleep(GATHER).await;
                while batch.len() < BATCH_MAX
                    && let Ok(span) = self.queue.try_recv()
                {
                    batch.push(span);
                }
            }
            let spans = std::mem::take(&mut batch);
            let count = spans.len() as u64;
            match send(&mut grpc, &self.resource, spans).await {
                Ok(rejected) => self.traces.sent(count, rejected.min(count)),
                Err(status) => {
                    self.traces.lost(SpanLoss::Collector, count);
                    let message = "cannot export spans";
                    if let Some(pass) = lines.pass(message, "", "") {
                        let suppressed = pass.suppressed;
                        tracing::warn!(spans = count, cause = %status, suppressed, "{message}");
                    }
                }
            }
        }
    }
}

/// Sends spans, and returns how many of them the collector rejected.
async fn send(
    grpc: &mut tonic::client::Grpc<Channel>,
    resource: &Resource,
    spans: Vec<Span>,
) -> Result<u64, Status> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let scope = Some(Scope { name: "tenure".to_owned(), version });
    let scope_spans = vec![ScopeSpans { scope, spans }];
    let resource = Some(resource.clone());
    let request = ExportRequest { resource_spans: vec![ResourceSpans { resource, scope_spans }] };
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static(message::EXPORT);
    let codec = ProstCodec::<ExportRequest, ExportResponse>::default();
    let response = grpc.unary(tonic::Request::new(request), path, codec).await?;
    let rejected = response.into_inner().partial_success.map_or(0, |part| part.rejected_spans);
    Ok(u64::try_from(rejected).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_and_a_port_over_http_or_https() {
        let secured = |address: &str| CollectorAddress::parse(address).map(|it| it.secured);
        for good in ["http://127.0.0.1:4317", "http://localhost:4317/", "http://[::1]:4317"] {
            assert_eq!(secured(good), Some(false), "{good}");
        }
        assert_eq!(secured("https://collector.example:4317"), Some(true));
        for bad in
            ["", "127.0.0.1:4317", "ftp://127.0.0.1:4317", "http://", "http://a b", "https://a@b"]
        {
            assert_eq!(secured(bad), None, "{bad}");
        }
        assert_eq!(secured("http://127.0.0.1:4317/v1/traces"), None, "that is OTLP over HTTP");
    }
}
