//! Keeps the metrics of a store.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::response::Response;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::answer::AnswerReason;

use super::engine::Totals;

pub(super) const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type StoreGauge = Gauge<u64, AtomicU64>;

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct CallLabels {
    call: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RefusalLabels {
    reason: &'static str,
}

/// The metrics.
pub(super) struct StoreMetrics {
    requests: Family<CallLabels, Histogram>,
    refusals: Family<RefusalLabels, Counter>,
    commits: Histogram,
    writes: Counter,
    shown: Mutex<StoreReading>,
}

/// The gauges that are set when the metrics are read.
struct StoreReading {
    registry: Registry,
    keys: StoreGauge,
    floors: StoreGauge,
    bytes: StoreGauge,
    waiting: StoreGauge,
}

impl StoreMetrics {
    pub(super) fn new() -> Self {
        // From 0.1 ms to some 13 s.
        let times: fn() -> Histogram = || Histogram::new(exponential_buckets(0.000_1, 2.0, 18));
        let requests = Family::new_with_constructor(times);
        let (refusals, commits, writes) = (Family::default(), times(), Counter::default());
        let (keys, floors, bytes, waiting) =
            <(StoreGauge, StoreGauge, StoreGauge, StoreGauge)>::default();
        let mut registry = Registry::with_prefix("tenure_store");
        let to = &mut registry;
        let help = "From the head of a request to the head of its answer";
        to.register_with_unit("request", help, Unit::Seconds, Family::clone(&requests));
        to.register("refusals", "Answers that were not success", Family::clone(&refusals));
        let help = "Transactions, each with one or more writes";
        to.register_with_unit("commit", help, Unit::Seconds, commits.clone());
        to.register(
            "writes",
            "Writes, fenced reads and raises that were looked at",
            Counter::clone(&writes),
        );
        to.register("keys", "Keys", keys.clone());
        to.register("floors", "Locks and slots that have a floor", floors.clone());
        to.register("kept_bytes", "What counts towards the bound of the store", bytes.clone());
        to.register("queue", "Writes that wait", waiting.clone());
        let shown = Mutex::new(StoreReading { registry, keys, floors, bytes, waiting });
        Self { requests, refusals, commits, writes, shown }
    }

    pub(super) fn served(&self, call: &'static str, took: Duration, response: &Response) {
        self.requests.get_or_create(&CallLabels { call }).observe(took.as_secs_f64());
        if let Some(AnswerReason(reason)) = response.extensions().get() {
            self.refusals.get_or_create(&RefusalLabels { reason }).inc();
        }
    }

    pub(super) fn turned(&self, writes: usize, took: Duration) {
        self.commits.observe(took.as_secs_f64());
        self.writes.inc_by(writes as u64);
    }

    pub(super) fn show(&self, totals: Totals, waiting: usize) -> String {
        // A gauge cannot be half set, so a poisoned lock is safe to use.
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.keys.set(totals.keys);
        shown.floors.set(totals.floors);
        shown.bytes.set(totals.bytes);
        shown.waiting.set(waiting as u64);
        let mut text = String::new();
        encode(&mut text, &shown.registry).expect("writing to memory does not fail");
        text
    }
}
