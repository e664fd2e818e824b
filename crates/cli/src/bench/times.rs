//! Keeps millions of latencies in a compact logarithmic histogram.

/// The buckets per doubling: a reported value is within 3 % of the measured one.
const STEPS: u32 = 32;

/// A histogram of latencies.
#[derive(Clone, Default)]
pub(super) struct Times {
    counts: Vec<u64>,
    count: u64,
    max_us: u64,
}

impl Times {
    pub(super) fn add(&mut self, us: u64) {
        let bucket = bucket(us);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.max_us = self.max_us.max(us);
    }

    pub(super) fn join(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (own, more) in self.counts.iter_mut().zip(&other.counts) {
            *own += more;
        }
        self.count += other.count;
        self.max_us = self.max_us.max(other.max_us);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The latency that `percent` of the samples do not exceed; 0 without samples.
    pub(super) fn percentile_us(&self, percent: f64) -> u64 {
        let wanted = (self.count as f64 * percent / 100.0).ceil();
        let mut seen = 0.0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += *count as f64;
            if *count > 0 && seen >= wanted {
                return upper(bucket).min(self.max_us);
            }
        }
        self.max_us
    }
}

/// Values below `STEPS` have a bucket each; above that there are `STEPS` buckets per doubling.
fn bucket(us: u64) -> usize {
    let steps = u64::from(STEPS);
    if us < steps {
        return usize::try_from(us).unwrap_or(0);
    }
    let doubling = us.ilog2() - STEPS.ilog2();
    let within = (us >> doubling) - steps;
    usize::try_from(steps + u64::from(doubling) * steps + within).unwrap_or(usize::MAX)
}

/// The largest number in a bucket.
fn upper(bucket: usize) -> u64 {
    let (bucket, steps) = (bucket as u64, u64::from(STEPS));
    if bucket < steps {
        return bucket;
    }
    let (doubling, within) = ((bucket - steps) / steps, (bucket - steps) % steps);
    ((steps + within + 1) << doubling) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_a_bucket_that_is_hardly_larger() {
        for us in (0..5_000).chain([10_000, 123_456, 9_999_999]) {
            let top = upper(bucket(us));
            assert!(top >= us && top as f64 <= us as f64 * 1.04 + 1.0, "{us} {top}");
        }
    }

    #[test]
    fn percentiles_are_what_they_say() {
        let mut times = Times::default();
        (1..=1_000).for_each(|us| times.add(us));
        let mut twice = times.clone();
        twice.join(&times);
        for times in [&times, &twice] {
            let median = times.percentile_us(50.0);
            assert!((500..=520).contains(&median), "{median}");
            assert_eq!(times.percentile_us(100.0), 1_000);
        }
        assert_eq!(Times::default().percentile_us(99.0), 0);
    }
}
