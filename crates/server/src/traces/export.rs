//! Sends spans to a collector over OTLP/gRPC, in batches.
//!
//! Requests put their spans into a bounded queue and never wait for it. A collector that is slow or gone costs spans,
//! which are counted, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::sync::mpsc::Receiver;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::message::{self, ExportRequest, ExportResponse, Resource, ResourceSpans, Scope};
use super::message::{ScopeSpans, Span};
use super::{SpanLoss, Traces};
use crate::log::Limiter;

/// The most spans in one message: some hundred kilobytes.
const BATCH_MAX: usize = 512;
/// How long spans gather before they are sent.
const GATHER: Duration = Duration::from_millis(200);
/// How long the collector may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// The connection to a collector.
pub(super) struct Exporter {
    pub(super) endpoint: Endpoint,
    pub(super) resource: Resource,
    pub(super) queue: Receiver<Span>,
    pub(super) traces: Arc<Traces>,
}

/// The endpoint for an address such as `http://127.0.0.1:4317`; none if it is not one.
pub(super) fn endpoint(address: &str) -> Option<Endpoint> {
    // Without TLS: a collector runs beside the member, and forwards the spans as its operator likes.
    let host = address.strip_prefix("http://")?.trim_end_matches('/');
    let is_plain = !host.is_empty() && !host.contains(['/', '?', '#', '@']);
    let endpoint = Endpoint::from_shared(format!("http://{host}")).ok().filter(|_| is_plain)?;
    Some(endpoint.timeout(ANSWER).connect_timeout(ANSWER))
}

impl Exporter {
    /// Exports spans as long as the member exists.
    pub(super) async fn run(mut self) {
        let mut grpc = tonic::client::Grpc::new(self.endpoint.connect_lazy());
        let lines = Limiter::default();
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
    fn an_endpoint_is_a_host_and_a_port_over_http() {
        for good in ["http://127.0.0.1:4317", "http://localhost:4317/", "http://[::1]:4317"] {
            assert!(endpoint(good).is_some(), "{good}");
        }
        for bad in ["", "127.0.0.1:4317", "https://127.0.0.1:4317", "http://", "http://a b"] {
            assert!(endpoint(bad).is_none(), "{bad}");
        }
        assert!(endpoint("http://127.0.0.1:4317/v1/traces").is_none(), "that is OTLP over HTTP");
    }
}
