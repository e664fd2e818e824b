//! Defines instants of the clock that decides about leases, and a reading of both clocks.

use std::ops::Add;
use std::time::Duration;

/// An instant of the clock that also counts while the machine is suspended, in microseconds since the machine started.
///
/// ```
/// # use std::time::Duration;
/// # use tenure::Moment;
/// let moment = Moment::from_micros(5) + Duration::from_micros(2);
/// assert_eq!(moment.since(Moment::from_micros(3)), Duration::from_micros(4));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Moment(u64);

impl Moment {
    /// Creates the instant this many microseconds after the clock began.
    ///
    /// ```
    /// # use tenure::Moment;
    /// assert!(Moment::from_micros(1) < Moment::from_micros(2));
    /// ```
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the clock began.
    ///
    /// ```
    /// # use tenure::Moment;
    /// assert_eq!(Moment::from_micros(7).micros(), 7);
    /// ```
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Returns how long after `earlier` this instant is, or zero if it is not later.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure::Moment;
    /// assert_eq!(Moment::from_micros(1).since(Moment::from_micros(2)), Duration::ZERO);
    /// ```
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// Both clocks of the machine, read together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClockReading {
    /// The clock that counts while the machine is suspended. This one decides.
    pub(crate) boot: Moment,
    /// The clock that stops in suspend. Its distance to the other shows how long the machine was suspended.
    pub(crate) awake: Moment,
}

impl ClockReading {
    /// The instant that decides.
    pub(crate) fn now(self) -> Moment {
        if mutant!("clock_stops_in_suspend") { self.awake } else { self.boot }
    }

    /// How long the machine has been suspended since it started.
    pub(crate) fn slept(self) -> Duration {
        self.boot.since(self.awake)
    }
}
