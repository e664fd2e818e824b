//! Limits how often something may happen in a second, with one number of state (the generic cell rate algorithm).

use std::sync::atomic::{AtomicU64, Ordering};

const SECOND_NS: u64 = 1_000_000_000;

/// How often something happened. It may happen as often at once as it may in a second.
#[derive(Debug, Default)]
pub struct RateLimit {
    /// The time until which what has happened uses up the rate.
    used_until_ns: AtomicU64,
}

/// Something happened too often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooOften {
    /// How often it would have happened within a second.
    pub asked: u64,
    /// When it may happen again.
    pub retry_after_us: u64,
}

impl RateLimit {
    /// Counts one more at this time of a clock that never goes back; fails if a second has as many as it may. Counts
    /// nothing then.
    pub fn take(&self, now_us: u64, per_second: u64) -> Result<(), TooOften> {
        if per_second == 0 {
            return Err(TooOften { asked: 1, retry_after_us: SECOND_NS / 1_000 });
        }
        let now_ns = now_us.saturating_mul(1_000);
        let each_ns = (SECOND_NS / per_second).max(1);
        // Rounded down like each part, so that exactly as many fit into a second.
        let second_ns = each_ns.saturating_mul(per_second);
        let mut before = self.used_until_ns.load(Ordering::Relaxed);
        loop {
            let until_ns = before.max(now_ns).saturating_add(each_ns);
            let used_ns = until_ns - now_ns;
            if used_ns > second_ns {
                let retry_after_us = (used_ns - second_ns).div_ceil(1_000);
                return Err(TooOften { asked: used_ns.div_ceil(each_ns), retry_after_us });
            }
            let stored = self.used_until_ns.compare_exchange_weak(
                before,
                until_ns,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match stored {
                Ok(_) => return Ok(()),
                Err(now) => before = now,
            }
        }
    }

    /// Whether nothing is used up at this time.
    pub fn is_full(&self, now_us: u64) -> bool {
        self.used_until_ns.load(Ordering::Relaxed) <= now_us.saturating_mul(1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_a_second_has_may_happen_at_once_and_then_at_that_rate() {
        for rate in [1, 3, 100, 7_000] {
            let limit = RateLimit::default();
            let (start, mut now_us) = (5_000_000, 5_000_000);
            assert_eq!(
                (0..rate + 10).filter(|_| limit.take(now_us, rate).is_ok()).count() as u64,
                rate
            );
            let refused = limit.take(now_us, rate).unwrap_err();
            assert_eq!(refused.asked, rate + 1);
            assert!(limit.take(now_us + refused.retry_after_us, rate).is_ok(), "as it was told");
            let mut taken = 1;
            while now_us < start + 10_000_000 {
                now_us += 137;
                taken += u64::from(limit.take(now_us, rate).is_ok());
            }
            assert!((rate * 10 - 1..=rate * 10 + 1).contains(&taken), "{taken} of {rate}");
        }
    }

    #[test]
    fn a_lower_rate_holds_at_once_and_a_rate_of_none_refuses_all() {
        let limit = RateLimit::default();
        (0..100).for_each(|_| assert!(limit.take(1_000_000, 1_000).is_ok()));
        assert!(!limit.is_full(1_000_000));
        assert!(limit.take(1_000_000, 10).is_ok(), "a tenth of a second is used up");
        assert!(limit.take(1_000_000, 0).is_err());
        assert!(limit.is_full(3_000_000));
    }
}
