//! Computes when the command is asked to stop, when it is killed, and when another client can acquire the lock.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tenure::{LeaseTiming, Moment};

use crate::duration::shown;

/// The upper bound for the default grace, the time from SIGTERM to SIGKILL; below it the default is a third of the
/// ttl.
const GRACE_MAX: Duration = Duration::from_secs(5);
/// The time reserved for SIGKILL to take effect before the cluster can grant the lock to another client. A kernel ends
/// a process within milliseconds once the process runs at all.
const RESERVE_MIN: Duration = Duration::from_millis(50);
const RESERVE_MAX: Duration = Duration::from_millis(200);
const RESERVE_PART: u32 = 75;

/// All times of one run; they follow from its ttl and grace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RunTimes {
    pub(super) timing: LeaseTiming,
    pub(super) grace: Duration,
}

/// The instants that follow from one acknowledged renewal, in microseconds of the clock that counts suspend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Deadlines {
    /// When the lock becomes doubtful.
    pub(super) doubt_us: u64,
    /// When the lock is lost.
    pub(super) lost_us: u64,
    /// When no process of the command may be left.
    pub(super) kill_us: u64,
}

impl RunTimes {
    /// The times for a ttl. The error is a message that says which ttl would fit the grace.
    pub(super) fn new(ttl: Duration, grace: Option<Duration>) -> Result<Self, String> {
        if !(Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&ttl) {
            return Err(format!("a ttl of {} is not between 1s and 1h", shown(ttl)));
        }
        let timing = LeaseTiming::new(ttl).map_err(|error| error.to_string())?;
        let most = most(&timing);
        let grace = grace.unwrap_or((ttl / 3).min(GRACE_MAX).min(most));
        if grace > most {
            let enough = enough(grace);
            let (grace, ttl, most) = (shown(grace), shown(ttl), shown(most));
            return Err(format!(
                "grace {grace} does not fit ttl {ttl} (at most {most}); try --ttl {enough}s"
            ));
        }
        Ok(Self { timing, grace })
    }

    /// The deadlines that follow from the instant at which the lock would be lost.
    pub(super) fn deadlines(&self, lost: Moment) -> Deadlines {
        let since = lost.micros().saturating_sub(us(self.timing.window()));
        Deadlines {
            doubt_us: since + us(self.timing.doubtful_after()),
            lost_us: lost.micros(),
            kill_us: lost.micros() + us(self.grace),
        }
    }

    /// The earliest instant at which the cluster can grant the lock to another client.
    pub(super) fn handed_over_us(&self, deadlines: &Deadlines) -> u64 {
        deadlines.lost_us + us(self.timing.surely_lives().saturating_sub(self.timing.window()))
    }

    /// How long SIGKILL has to take effect before another client can acquire the lock.
    pub(super) fn reserve(&self) -> Duration {
        reserve(self.timing.ttl())
    }
}

fn reserve(ttl: Duration) -> Duration {
    (ttl / RESERVE_PART).clamp(RESERVE_MIN, RESERVE_MAX)
}

/// The longest grace that fits.
fn most(timing: &LeaseTiming) -> Duration {
    let behind = timing.surely_lives().saturating_sub(timing.window());
    let most = behind.saturating_sub(reserve(timing.ttl()));
    // Rounded down to a tenth of a second for display.
    Duration::from_millis(u64::try_from(most.as_millis()).unwrap_or(u64::MAX) / 100 * 100)
}

/// The shortest ttl in whole seconds that fits a grace.
fn enough(grace: Duration) -> u64 {
    let fits =
        |ttl: &u64| LeaseTiming::new(Duration::from_secs(*ttl)).is_ok_and(|it| most(&it) >= grace);
    (1..=3_600).find(fits).unwrap_or(3_600)
}

/// The current time of the clock that counts suspend.
pub(super) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(now.tv_sec) * 1_000_000 + part(now.tv_nsec) / 1_000
}

pub(super) fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(15);

    #[test]
    fn nothing_is_left_before_the_next_holder_can_start_whatever_the_ttl() {
        for ttl in (1..=3_600).map(Duration::from_secs) {
            for grace in [None, Some(most(&LeaseTiming::new(ttl).unwrap()))] {
                let times = RunTimes::new(ttl, grace).unwrap();
                let deadlines = times.deadlines(Moment::from_micros(1_000_000_000_000));
                let reserve_us = us(times.reserve());
                assert!(deadlines.doubt_us < deadlines.lost_us);
                assert!(deadlines.kill_us + reserve_us <= times.handed_over_us(&deadlines));
            }
        }
    }

    #[test]
    fn a_grace_that_does_not_fit_is_refused_with_what_would() {
        let refused = RunTimes::new(TTL, Some(Duration::from_secs(9))).unwrap_err();
        assert_eq!(refused, "grace 9s does not fit ttl 15s (at most 7s); try --ttl 20s");
        assert!(RunTimes::new(Duration::from_secs(20), Some(Duration::from_secs(9))).is_ok());
        assert!(RunTimes::new(Duration::from_millis(500), None).is_err());
    }

    #[test]
    fn the_usual_grace_is_a_third_of_the_ttl_and_at_most_five_seconds() {
        assert_eq!(
            RunTimes::new(Duration::from_secs(3), None).unwrap().grace,
            Duration::from_secs(1)
        );
        assert_eq!(RunTimes::new(Duration::from_secs(60), None).unwrap().grace, GRACE_MAX);
    }
}
