//! Traces requests, and exports their spans over OTLP. Off unless the settings name a collector.
//!
//! ```text
//! request ─► sampled? ─► RequestSpan ── steps of the event loop ──► answer ─► bounded queue ─► Exporter ─► collector
//! ```
//!
//! A caller that sends a W3C `traceparent` decides by its flag whether its request is sampled. Of the other requests
//! the member samples the ratio in its settings. A request never waits for a span: one that the queue has no room for
//! is dropped and counted.
//!
//! The messages of OTLP are written by hand ([`message`]): OpenTelemetry's crates bring an SDK of their own, and a
//! member needs nine messages of it.

mod context;
mod export;
mod message;
mod span;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tenure_node::ReplyTo;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Sender, channel};

pub(crate) use context::TraceContext;
use export::{CollectorAddress, Exporter};
use span::SpanStep;
pub(crate) use span::{RequestSpan, SpanSteps, as_present, present, within};

use crate::credentials::ServerAuthority;
use crate::os;

/// The most spans that wait for the exporter: some two megabytes, and a second of a busy member's sampled requests.
const QUEUE_MAX: usize = 4_096;

/// Where a member sends traces, and how many.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    /// The collector's OTLP/gRPC address, such as `http://127.0.0.1:4317`, or `https://` for an encrypted connection.
    pub endpoint: String,
    /// The authorities that sign the certificate of a collector at `https://`.
    pub authority: ServerAuthority,
    /// The share of requests without a `traceparent` that is sampled, from 0 to 1.
    pub ratio: f64,
}

/// Why a span was not exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpanLoss {
    /// The queue was full: the collector is slower than the requests.
    QueueFull,
    /// The collector did not answer, answered with an error, or rejected the span.
    Collector,
}

const LOSSES: [&str; 2] = ["queue_full", "collector"];

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct SpanLossLabels {
    cause: &'static str,
}

/// The traces of a member.
#[derive(Debug)]
pub(crate) struct Traces {
    on: OnceLock<TracesOn>,
    /// The steps of traced batches that are in flight, by where their answers go.
    steps: Mutex<BTreeMap<ReplyKey, Vec<Arc<SpanSteps>>>>,
    /// Their number, so that the event loop takes no lock while there are none.
    traced: AtomicUsize,
    exported: Counter,
    dropped: Family<SpanLossLabels, Counter>,
}

#[derive(Debug)]
struct TracesOn {
    /// A new trace whose number is below this one is sampled.
    below: u64,
    queue: Sender<message::Span>,
}

/// Where the answers of a batch go: a kind, a session or call, and a batch.
type ReplyKey = (u8, u64, u64);

impl Default for Traces {
    fn default() -> Self {
        let dropped = Family::default();
        // Every series exists from the start, so that a rate over it is right from its first event on.
        LOSSES
            .iter()
            .for_each(|cause| drop(dropped.get_or_create_owned(&SpanLossLabels { cause })));
        let (steps, traced, exported) = (Mutex::default(), AtomicUsize::new(0), Counter::default());
        Self { on: OnceLock::new(), steps, traced, exported, dropped }
    }
}

impl Traces {
    /// Traces requests from now on, for the member with this name.
    pub(crate) fn start(
        self: &Arc<Self>,
        settings: &TraceSettings,
        name: &str,
        runtime: &Handle,
    ) -> io::Result<()> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let collector = CollectorAddress::parse(&settings.endpoint).ok_or_else(|| {
            invalid(format!("`{}` is no address; try http://127.0.0.1:4317", settings.endpoint))
        })?;
        let below = below(settings.ratio)
            .ok_or_else(|| invalid(format!("{} is no ratio from 0 to 1", settings.ratio)))?;
        let attributes = vec![
            message::text("service.name", "tenure"),
            message::text("service.instance.id", name),
            message::text("service.version", env!("CARGO_PKG_VERSION")),
        ];
        let (sender, queue) = channel(QUEUE_MAX);
        let resource = message::Resource { attributes };
        let authority = settings.authority.clone();
        let exporter = Exporter { collector, authority, resource, queue, traces: self.clone() };
        if self.on.set(TracesOn { below, queue: sender }).is_ok() {
            runtime.spawn(exporter.run());
        }
        Ok(())
    }

    /// Whether requests are traced.
    pub(crate) fn is_on(&self) -> bool {
        self.on.get().is_some()
    }

    /// Begins the span of a request; none if it is not sampled.
    pub(crate) fn begin(
        self: &Arc<Self>,
        parent: Option<TraceContext>,
        api: &'static str,
        command: &'static str,
    ) -> Option<RequestSpan> {
        let on = self.on.get()?;
        let trace_id = match &parent {
            Some(parent) if parent.is_sampled => parent.trace_id,
            Some(_) => return None,
            None => {
                let number = os::random();
                if number >= on.below && on.below != u64::MAX {
                    return None;
                }
                let id = u128::from(os::random().max(1)) << 64 | u128::from(number);
                id.to_be_bytes()
            }
        };
        Some(RequestSpan::new(self.clone(), trace_id, parent, (api, command)))
    }

    /// Records the steps of a batch until the returned value is dropped. Call it before the batch is submitted.
    pub(crate) fn follow(
        self: &Arc<Self>,
        reply: ReplyTo,
        steps: Vec<Arc<SpanSteps>>,
    ) -> Option<FollowedBatch> {
        if steps.is_empty() {
            return None;
        }
        let now_us = os::now_us();
        steps.iter().for_each(|steps| steps.add(SpanStep::Submitted, now_us));
        let key = key(reply);
        if self.steps().insert(key, steps).is_none() {
            self.traced.fetch_add(1, Ordering::Release);
        }
        Some(FollowedBatch { traces: self.clone(), key })
    }

    /// Records when a batch was proposed and applied. The event loop calls this.
    pub(crate) fn timed(&self, reply: ReplyTo, proposed_at_us: u64, applied_at_us: u64) {
        if self.traced.load(Ordering::Acquire) == 0 {
            return;
        }
        for steps in self.steps().get(&key(reply)).into_iter().flatten() {
            steps.add(SpanStep::Proposed, proposed_at_us);
            steps.add(SpanStep::Applied, applied_at_us);
        }
    }

    /// Registers the metrics.
    pub(crate) fn register(&self, to: &mut Registry) {
        let help = "Spans of requests that the collector took";
        to.register("trace_spans_exported", help, self.exported.clone());
        let help = "Spans of requests that were lost, by cause";
        to.register("trace_spans_dropped", help, self.dropped.clone());
    }

    fn put(&self, span: message::Span) {
        let Some(on) = self.on.get() else { return };
        if on.queue.try_send(span).is_err() {
            self.lost(SpanLoss::QueueFull, 1);
        }
    }

    fn sent(&self, spans: u64, rejected: u64) {
        self.exported.inc_by(spans - rejected);
        self.lost(SpanLoss::Collector, rejected);
    }

    fn lost(&self, why: SpanLoss, spans: u64) {
        self.dropped.get_or_create(&SpanLossLabels { cause: LOSSES[why as usize] }).inc_by(spans);
    }

    fn steps(&self) -> MutexGuard<'_, BTreeMap<ReplyKey, Vec<Arc<SpanSteps>>>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A traced batch in flight.
#[derive(Debug)]
pub(crate) struct FollowedBatch {
    traces: Arc<Traces>,
    key: ReplyKey,
}

impl Drop for FollowedBatch {
    fn drop(&mut self) {
        if self.traces.steps().remove(&self.key).is_some() {
            self.traces.traced.fetch_sub(1, Ordering::Release);
        }
    }
}

fn key(reply: ReplyTo) -> ReplyKey {
    match reply {
        ReplyTo::Call(call) => (0, call.0, 0),
        ReplyTo::Session { session, batch } => (1, session.0, batch),
    }
}

/// The bound of the numbers that a ratio samples; none if it is no ratio.
#[expect(clippy::cast_possible_truncation, reason = "a ratio of at most 1 stays within the type")]
#[expect(clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a ratio is not exact")]
fn below(ratio: f64) -> Option<u64> {
    (0.0..=1.0).contains(&ratio).then_some((ratio * u64::MAX as f64) as u64)
}

#[cfg(test)]
mod tests {
    use tenure_node::CallId;

    use super::*;

    fn on(ratio: f64) -> (Arc<Traces>, tokio::sync::mpsc::Receiver<message::Span>) {
        let traces = Arc::new(Traces::default());
        let (queue, spans) = channel(QUEUE_MAX);
        traces.on.set(TracesOn { below: below(ratio).unwrap(), queue }).unwrap();
        (traces, spans)
    }

    fn parent(flags: &str) -> Option<TraceContext> {
        let text = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
        TraceContext::parse(&text)
    }

    #[test]
    fn the_caller_decides_for_its_trace_and_the_ratio_for_others() {
        let (none, _spans) = on(0.0);
        assert!(none.begin(parent("01"), "grpc", "acquire").is_some());
        assert!(none.begin(None, "grpc", "acquire").is_none());
        let (all, _spans) = on(1.0);
        assert!(all.begin(parent("00"), "grpc", "acquire").is_none());
        let (some, _spans) = on(0.25);
        let sampled = |_: &u32| some.begin(None, "grpc", "acquire").is_some();
        let count = (0..4_000).filter(sampled).count();
        assert!((700..1_300).contains(&count), "{count}");
        assert!(Arc::<Traces>::default().begin(parent("01"), "grpc", "acquire").is_none());
        assert_eq!((below(1.1), below(-0.1), below(f64::NAN)), (None, None, None));
    }

    #[test]
    fn a_span_has_the_steps_of_its_batch() {
        let (traces, mut spans) = on(0.0);
        let span = traces.begin(parent("01"), "grpc", "acquire").unwrap();
        let reply = ReplyTo::Call(CallId(7));
        let followed = traces.follow(reply, vec![span.steps()]);
        let now_us = os::now_us();
        traces.timed(reply, now_us + 10, now_us + 30);
        traces.timed(ReplyTo::Call(CallId(8)), 1, 2);
        drop(followed);
        assert_eq!(traces.traced.load(Ordering::Relaxed), 0);
        span.finish(Some("HELD"));
        let span = spans.try_recv().unwrap();
        let names: Vec<_> = span.events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["submitted", "proposed", "applied"]);
        assert_eq!(span.trace_id[..2], [0x0a, 0xf7]);
        assert_eq!(span.parent_span_id[..2], [0xb7, 0xad]);
        assert!(span.attributes.contains(&message::number("tenure.commit_us", 20)));
        assert!(span.attributes.contains(&message::text("tenure.reason", "HELD")));
        assert_eq!(span.status, None, "a refusal is no failure of the member");
    }

    #[test]
    fn a_request_whose_caller_goes_away_has_a_span_too() {
        let (traces, mut spans) = on(1.0);
        drop(traces.begin(None, "http", "put"));
        let span = spans.try_recv().unwrap();
        assert!(span.attributes.contains(&message::text("tenure.reason", "CALLER_GONE")));
    }

    #[test]
    fn spans_beyond_the_queue_are_dropped_and_counted() {
        let (traces, _spans) = on(1.0);
        (0..QUEUE_MAX + 7).for_each(|_| drop(traces.begin(None, "http", "put")));
        let dropped = traces.dropped.get_or_create(&SpanLossLabels { cause: "queue_full" });
        assert_eq!(dropped.get(), 7);
    }
}
