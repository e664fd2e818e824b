//! Keeps millions of latencies in a compact logarithmic histogram.

use hdrhistogram::Histogram;

/// The decimal digits of a value that are kept: a reported value is within 1 % of the measured one.
const DIGITS: u8 = 2;

/// A histogram of latencies.
#[derive(Clone)]
pub(super) struct LatencyCounts {
    histogram: Histogram<u64>,
    /// The largest value exactly; the histogram has only its bucket.
    max_us: u64,
}

impl Default for LatencyCounts {
    fn default() -> Self {
        let histogram = Histogram::new(DIGITS).expect("a histogram has 1 to 5 digits");
        Self { histogram, max_us: 0 }
    }
}

impl LatencyCounts {
    pub(super) fn add(&mut self, us: u64) {
        self.histogram.record(us).expect("the histogram grows by itself");
        self.max_us = self.max_us.max(us);
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("the histogram grows by itself");
        self.max_us = self.max_us.max(other.max_us);
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that `percent` of the samples do not exceed; 0 without samples.
    pub(super) fn percentile_us(&self, percent: f64) -> u64 {
        self.histogram.value_at_percentile(percent).min(self.max_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_reported_as_one_that_is_hardly_larger() {
        for us in (0..5_000).chain([10_000, 123_456, 9_999_999, 3_600_000_000]) {
            let mut times = LatencyCounts::default();
            times.add(us);
            times.add(u64::MAX >> 1);
            let shown = times.percentile_us(50.0);
            assert!(shown >= us && shown as f64 <= us as f64 * 1.01 + 1.0, "{us} {shown}");
        }
    }

    #[test]
    fn percentiles_are_what_they_say() {
        let mut times = LatencyCounts::default();
        (1..=1_000).for_each(|us| times.add(us));
        let mut twice = times.clone();
        twice.join(&times);
        for (times, count) in [(&times, 1_000), (&twice, 2_000)] {
            let median = times.percentile_us(50.0);
            assert!((500..=505).contains(&median), "{median}");
            assert_eq!(times.percentile_us(100.0), 1_000);
            assert_eq!(times.count(), count);
        }
        assert_eq!(LatencyCounts::default().percentile_us(99.0), 0);
        let mut joined = LatencyCounts::default();
        joined.join(&times);
        assert_eq!(joined.percentile_us(99.0), times.percentile_us(99.0));
    }
}
