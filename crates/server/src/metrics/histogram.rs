//! Collects times and sizes in histograms without a lock.
//!
//! Each bound is a power of two times the one before, so the step of a value is found by counting bits. An observation
//! increments two numbers; a reader may see one of them a moment before the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// The steps of a histogram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scale {
    /// The upper bound of the first step.
    first: u64,
    /// Each bound is this power of two times the one before.
    bits: u32,
    /// The number of steps with a bound; one more step has none.
    steps: usize,
    /// The number of observed units per displayed unit.
    unit: u64,
}

impl Scale {
    /// Microseconds, shown as seconds: from 25 µs to some 50 s.
    pub(crate) const QUICK: Self = Self { first: 25, bits: 1, steps: 22, unit: 1_000_000 };
    /// Microseconds, shown as seconds: from 250 µs to some three days.
    pub(crate) const LONG: Self = Self { first: 250, bits: 2, steps: 16, unit: 1_000_000 };
    /// Plain numbers, from 1 to 16,384.
    pub(crate) const NUMBERS: Self = Self { first: 1, bits: 1, steps: 15, unit: 1 };

    fn step(self, value: u64) -> usize {
        let times = value.div_ceil(self.first).clamp(1, 1 << 62).next_power_of_two();
        (times.trailing_zeros().div_ceil(self.bits) as usize).min(self.steps)
    }

    #[expect(clippy::cast_precision_loss, reason = "no bound has more than 53 bits")]
    fn bound(self, step: usize) -> f64 {
        if step == self.steps {
            return f64::INFINITY;
        }
        (self.first << (self.bits as usize * step)) as f64 / self.unit as f64
    }
}

/// The number of values in each step. Cheap to clone; clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    inner: Arc<HistogramCells>,
}

#[derive(Debug)]
struct HistogramCells {
    scale: Scale,
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(scale: Scale) -> Self {
        let counts = (0..=scale.steps).map(|_| AtomicU64::new(0)).collect();
        Self { inner: Arc::new(HistogramCells { scale, counts, sum: AtomicU64::new(0) }) }
    }

    pub(crate) fn observe(&self, value: u64) {
        let HistogramCells { scale, counts, sum } = &*self.inner;
        counts[scale.step(value)].fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(value, Ordering::Relaxed);
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    #[expect(clippy::cast_precision_loss, reason = "sums are shown, not counted with")]
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let HistogramCells { scale, counts, sum } = &*self.inner;
        let counts = counts.iter().map(|count| count.load(Ordering::Relaxed));
        let steps: Vec<(f64, u64)> =
            counts.enumerate().map(|(step, count)| (scale.bound(step), count)).collect();
        let all = steps.iter().map(|(_, count)| count).sum();
        let sum = sum.load(Ordering::Relaxed) as f64 / scale.unit as f64;
        encoder.encode_histogram::<NoLabelSet>(sum, all, &steps, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_into_the_first_step_that_has_room_for_it() {
        for scale in [Scale::QUICK, Scale::LONG, Scale::NUMBERS] {
            for value in (0..2_000).chain((0..64).map(|bit| (1 << bit) - 1)).chain([u64::MAX]) {
                #[expect(clippy::cast_precision_loss, reason = "a test of bounds")]
                let shown = value as f64 / scale.unit as f64;
                let step = scale.step(value);
                assert!(shown <= scale.bound(step), "{value} in {step} of {scale:?}");
                let fits_before = step > 0 && shown <= scale.bound(step - 1);
                assert!(!fits_before, "{value} in {step} of {scale:?}");
            }
        }
    }
}
