//! Computes the timing of a lease: how long it is relied on after a renewal, and when it is renewed.

use std::time::Duration;

/// The bound on the difference of clock rates, unless the caller knows of worse clocks: some fifteen times the real
/// difference.
const RATE_ERROR_PPM: u32 = 10_000;
const MILLION: u64 = 1_000_000;
/// The shortest and the longest ttl. A cluster may allow less than its usual minimum of one second: the cluster
/// decides.
const TTL_MIN: Duration = Duration::from_millis(100);
const TTL_MAX: Duration = Duration::from_secs(3_600);

/// The times of one lease, all derived from its ttl.
///
/// ```
/// # use std::time::Duration;
/// # use tenure::LeaseTiming;
/// let timing = LeaseTiming::new(Duration::from_secs(15))?;
/// assert_eq!(timing.window(), Duration::from_millis(7_500));
/// assert_eq!(timing.doubtful_after(), Duration::from_millis(6_250));
/// # Ok::<(), tenure::LeaseTimingError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseTiming {
    ttl: Duration,
    window: Duration,
    stop: Duration,
}

/// Why the times of a lease do not fit each other.
///
/// ```
/// # use std::time::Duration;
/// # use tenure::LeaseTiming;
/// let refused = LeaseTiming::new(Duration::from_secs(15)).unwrap().stop_within(Duration::from_secs(9)).unwrap_err();
/// assert_eq!(refused.to_string(), "grace 9s does not fit ttl 15s (at most 7.2s)");
/// ```
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseTimingError {
    /// The declared time to stop does not fit between the end of the window and the end of the ttl.
    #[error("grace {grace:?} does not fit ttl {ttl:?} (at most {most:.1?})")]
    Grace {
        /// The declared time to stop.
        grace: Duration,
        /// The ttl that it has to fit.
        ttl: Duration,
        /// The longest time that would fit.
        most: Duration,
    },
    /// The window leaves no time to renew, or none to stop.
    #[error(
        "window {window:?} does not fit ttl {ttl:?} (more than {least:.1?}, at most {most:.1?})"
    )]
    Window {
        /// The requested window.
        window: Duration,
        /// The ttl that it has to fit.
        ttl: Duration,
        /// The window must be longer than this.
        least: Duration,
        /// The window must not be longer than this.
        most: Duration,
    },
    /// The ttl is outside of the allowed range.
    #[error("a ttl of {ttl:?} is not between 100ms and 1h")]
    Ttl {
        /// The requested ttl.
        ttl: Duration,
    },
}

impl LeaseTiming {
    /// Computes the default times of a ttl: the lease is relied on for half of it after a renewal.
    ///
    /// ```
    /// # use std::time::Duration;
    /// assert!(tenure::LeaseTiming::new(Duration::from_millis(10)).is_err());
    /// ```
    pub fn new(ttl: Duration) -> Result<Self, LeaseTimingError> {
        if !(TTL_MIN..=TTL_MAX).contains(&ttl) {
            return Err(LeaseTimingError::Ttl { ttl });
        }
        Ok(Self { ttl, window: ttl / 2, stop: Duration::ZERO })
    }

    /// Declares how long the work may take to stop once it is told to.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure::LeaseTiming;
    /// let timing = LeaseTiming::new(Duration::from_secs(15))?.stop_within(Duration::from_secs(5))?;
    /// assert_eq!(timing.ttl(), Duration::from_secs(15));
    /// # Ok::<(), tenure::LeaseTimingError>(())
    /// ```
    pub fn stop_within(self, grace: Duration) -> Result<Self, LeaseTimingError> {
        let most = longest(self.ttl).saturating_sub(self.window);
        if grace > most {
            return Err(LeaseTimingError::Grace { grace, ttl: self.ttl, most });
        }
        Ok(Self { stop: grace, ..self })
    }

    /// Sets how long the lease is relied on after a renewal, instead of half of the ttl.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure::LeaseTiming;
    /// let timing = LeaseTiming::new(Duration::from_secs(15))?.with_window(Duration::from_secs(12))?;
    /// assert_eq!(timing.window(), Duration::from_secs(12));
    /// # Ok::<(), tenure::LeaseTimingError>(())
    /// ```
    pub fn with_window(self, window: Duration) -> Result<Self, LeaseTimingError> {
        let (ttl, least, most) =
            (self.ttl, self.ttl / 3, longest(self.ttl).saturating_sub(self.stop));
        if window <= least || window > most {
            return Err(LeaseTimingError::Window { window, ttl, least, most });
        }
        Ok(Self { window, ..self })
    }

    /// How long the lease lives in the cluster after a renewal.
    ///
    /// ```
    /// # use std::time::Duration;
    /// assert_eq!(tenure::LeaseTiming::new(Duration::from_secs(9)).unwrap().ttl(), Duration::from_secs(9));
    /// ```
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How long the client relies on the lease after a renewal was sent.
    ///
    /// ```
    /// # use std::time::Duration;
    /// assert_eq!(tenure::LeaseTiming::new(Duration::from_secs(8)).unwrap().window(), Duration::from_secs(4));
    /// ```
    pub fn window(&self) -> Duration {
        self.window
    }

    /// How long after a renewal was sent the cluster surely keeps the lease, by the clock of this machine.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let timing = tenure::LeaseTiming::new(Duration::from_secs(15)).unwrap();
    /// assert!(timing.surely_lives() < timing.ttl() && timing.surely_lives() > timing.window());
    /// ```
    pub fn surely_lives(&self) -> Duration {
        longest(self.ttl)
    }

    /// How long after a renewal was sent the lease becomes doubtful, if no newer one is acknowledged.
    ///
    /// ```
    /// # use std::time::Duration;
    /// assert_eq!(tenure::LeaseTiming::new(Duration::from_secs(12)).unwrap().doubtful_after(), Duration::from_secs(5));
    /// ```
    pub fn doubtful_after(&self) -> Duration {
        (self.ttl / 3 + self.window) / 2
    }

    /// When the next renewal is sent, counted from the last acknowledged one.
    pub(crate) fn renew_after(&self) -> Duration {
        self.ttl / 3
    }

    /// How long one attempt may take, and how soon the next one follows.
    pub(crate) fn retry(&self) -> Duration {
        self.ttl / 24
    }
}

/// The longest time that surely ends before the ttl does, if every clock is as good as declared.
fn longest(ttl: Duration) -> Duration {
    if mutant!("window_without_drift") {
        return ttl;
    }
    let micros = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
    let error = u64::from(RATE_ERROR_PPM);
    Duration::from_micros(micros.saturating_mul(MILLION - error) / (MILLION + error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(15);

    #[test]
    fn a_grace_that_does_not_fit_is_refused_with_what_would() {
        let timing = LeaseTiming::new(TTL).unwrap();
        assert!(timing.stop_within(Duration::from_secs(7)).is_ok());
        let Err(LeaseTimingError::Grace { most, .. }) = timing.stop_within(Duration::from_secs(9))
        else {
            panic!("9s of 15s cannot fit behind half of it")
        };
        assert!(timing.stop_within(most).is_ok());
        assert!(timing.stop_within(most + Duration::from_micros(1)).is_err());
    }

    #[test]
    fn a_ttl_out_of_range_is_refused_with_the_range() {
        assert!(LeaseTiming::new(Duration::from_millis(100)).is_ok());
        assert!(LeaseTiming::new(Duration::from_secs(3_600)).is_ok());
        let refused = LeaseTiming::new(Duration::from_millis(99)).unwrap_err();
        assert_eq!(refused.to_string(), "a ttl of 99ms is not between 100ms and 1h");
        assert!(LeaseTiming::new(Duration::from_millis(3_600_001)).is_err());
    }

    #[test]
    fn a_window_leaves_time_to_renew_and_to_stop() {
        let timing = LeaseTiming::new(TTL).unwrap();
        assert!(timing.with_window(TTL).is_err(), "it tolerates no drift");
        assert!(timing.with_window(TTL / 3).is_err(), "it is over when the first renewal is sent");
        let slow = timing.stop_within(Duration::from_secs(4)).unwrap();
        assert!(slow.with_window(Duration::from_secs(11)).is_err());
        assert!(slow.with_window(Duration::from_secs(10)).is_ok());
    }
}
