//! Measures the margin of every hand-over as it happens, for the metrics.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use tenure_core::Recorded;
use tenure_core::event::Cause;
use tenure_types::Revision;

use super::verify::Handovers;

/// The most locks whose last end is remembered; beyond that all are forgotten.
const LOCKS_MAX: usize = 65_536;

/// The upper bounds of the margins that are counted, in seconds.
const BOUNDS: [f64; 9] = [0.0, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0, 10.0];

/// The metrics.
pub(super) struct MarginMetrics {
    margins: Histogram,
    smallest: Gauge<f64, AtomicU64>,
}

impl Default for MarginMetrics {
    fn default() -> Self {
        Self { margins: Histogram::new(BOUNDS), smallest: Gauge::default() }
    }
}

impl MarginMetrics {
    pub(super) fn register(&self, to: &mut Registry) {
        let help = "Time between the last moment the former holder could act and the next grant, \
                    where the holder did not give the lock back itself";
        to.register("handover_margin_seconds", help, self.margins.clone());
        let help = "The smallest such time since this member started";
        to.register("handover_margin_smallest_seconds", help, self.smallest.clone());
    }
}

/// The ends that were not followed by a grant yet.
#[derive(Default)]
pub(super) struct Margins {
    handovers: Handovers,
    smallest_ms: Option<i64>,
}

impl Margins {
    /// Adds an event that happened at a revision and at this time of the cluster's clock.
    pub(super) fn add(
        &mut self,
        (revision, clock_ms): (Revision, u64),
        event: &Recorded<'_>,
        metrics: &MarginMetrics,
    ) {
        let Some(lock) = event.lock() else { return };
        // Most events concern no hand-over with a margin. They are skipped without a copy.
        let concerns = match event.cause() {
            Cause::Granted | Cause::Released | Cause::HandedOn | Cause::MinHoldOver => {
                self.handovers.knows(lock)
            }
            Cause::Expired
            | Cause::Revoked
            | Cause::Forced
            | Cause::MaxHold
            | Cause::NoProgress
            | Cause::Cooled => event.token().is_some(),
            _ => false,
        };
        if !concerns {
            return;
        }
        let handover = self.handovers.add(revision, clock_ms, &event.to_event());
        if let Some(margin_ms) = handover.and_then(|it| it.promised_margin_ms()) {
            metrics.margins.observe(seconds(margin_ms));
            if self.smallest_ms.is_none_or(|smallest| margin_ms < smallest) {
                self.smallest_ms = Some(margin_ms);
                metrics.smallest.set(seconds(margin_ms));
            }
        }
        if self.handovers.len() > LOCKS_MAX {
            self.forget();
        }
    }

    /// Forgets all ends, because events are missing after them.
    pub(super) fn forget(&mut self) {
        self.handovers = Handovers::default();
    }
}

#[expect(clippy::cast_precision_loss, reason = "a metric needs no more than 53 bits")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}
