//! Computes what follows from a ttl: failover time, margin for stopping, and the rate of spurious losses.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tenure::LeaseTiming;

use crate::duration;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::output::{self, OutputFormat};

/// Elections start after 300 to 600 ms without a leader, sooner if its connections were closed. A member leads one
/// round trip and a vote later.
const ELECTION_LEAST: Duration = Duration::from_millis(300);
const ELECTION_MOST: Duration = Duration::from_millis(600);
/// The difference in clock rates that the SDK allows for, in either direction.
const ALLOWED_PPM: f64 = 10_000.0;

/// Flags of `tenure plan`.
#[derive(Args)]
pub(crate) struct PlanArgs {
    /// How long a lease lives after a renewal
    #[arg(long, value_name = "TIME", value_parser = duration::ttl, default_value = "15s")]
    ttl: Duration,
    /// How long a message and its answer take, at worst
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "5ms")]
    rtt: Duration,
    /// How much the rates of two clocks differ, in parts per million
    #[arg(long, value_name = "PPM", value_parser = ppm, default_value = "200")]
    drift: f64,
    /// How many of a hundred tries to renew fail, one by one
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1")]
    loss: f64,
    /// How long the work takes to stop once it is told to
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "0")]
    grace: Duration,
    /// Output format
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
}

/// The results.
struct Follows {
    timing: LeaseTiming,
    renew: Duration,
    retry: Duration,
    tries: u32,
    /// How long a dead holder blocks the lock, at least and at most.
    failover_least: Duration,
    failover_most: Duration,
    /// The time from when the work must have stopped until another client can start.
    margin: Duration,
    /// The longest time without a leader that loses no lock.
    outage: Duration,
    /// The chance that a held lock is lost within a day although nothing is broken.
    false_loss_per_day: f64,
}

/// Computes the results and prints them.
pub(crate) fn plan(flags: &PlanArgs) -> Result<Exit, CliError> {
    let follows = Follows::of(flags)?;
    match flags.output {
        OutputFormat::Json => output::object(&follows.json(flags)),
        OutputFormat::Text => output::out(&follows.text(flags)),
    }
    Ok(Exit::Done)
}

impl Follows {
    fn of(flags: &PlanArgs) -> Result<Self, CliError> {
        let timing = LeaseTiming::new(flags.ttl).and_then(|timing| timing.stop_within(flags.grace));
        let timing = timing.map_err(|error| CliError::from(tenure::Error::LeaseTiming(error)))?;
        if flags.drift > ALLOWED_PPM {
            let text = format!("clocks that differ by {} ppm are not allowed for", flags.drift);
            return Err(CliError::arguments(text).next(format!("at most --drift {ALLOWED_PPM}")));
        }
        let (ttl, window) = (timing.ttl(), timing.window());
        let (renew, retry) = (ttl / 3, ttl / 24);
        if flags.rtt >= retry {
            let text = format!(
                "an answer takes {}, and a try to renew may take {} at ttl {}",
                duration::shown(flags.rtt),
                duration::shown(retry),
                duration::shown(ttl)
            );
            let longer = duration::shown(flags.rtt * 25);
            return Err(CliError::arguments(text).next(format!("--ttl {longer} or more")));
        }
        // Between the first try and the loss, tries follow each other; the last one must be answered in time.
        let room = window - renew - flags.rtt;
        let tries =
            1 + u32::try_from(room.as_micros() / retry.as_micros().max(1)).unwrap_or(u32::MAX);
        // The state machine counts the ttl from the entry on, the holder from before its request. The holder's clock
        // may be slower.
        let slow = flags.drift / 1e6;
        let lasts = ttl.mul_f64(1.0 - slow);
        let margin = lasts.saturating_sub(window).saturating_sub(flags.grace);
        let once = (flags.loss / 100.0).powi(i32::try_from(tries).unwrap_or(i32::MAX));
        let renewals = 86_400.0 / renew.as_secs_f64();
        Ok(Self {
            timing,
            renew,
            retry,
            tries,
            // At best the holder dies just before its renewal; at worst just after it, and the leader dies with it.
            failover_least: ttl - renew,
            failover_most: ttl.mul_f64(1.0 + slow) + flags.rtt * 2 + ELECTION_MOST,
            margin,
            outage: window - renew - flags.rtt,
            false_loss_per_day: 1.0 - (1.0 - once).powf(renewals),
        })
    }

    fn json(&self, flags: &PlanArgs) -> serde_json::Value {
        let ms = |time: Duration| crate::lock::millis(time);
        json!({
            "ttl_ms": ms(self.timing.ttl()), "rtt_ms": flags.rtt.as_secs_f64() * 1_000.0,
            "drift_ppm": flags.drift, "grace_ms": ms(flags.grace), "renew_every_ms": ms(self.renew),
            "retry_every_ms": ms(self.retry), "tries": self.tries,
            "doubtful_after_ms": ms(self.timing.doubtful_after()), "lost_after_ms": ms(self.timing.window()),
            "failover_min_ms": ms(self.failover_least), "failover_max_ms": ms(self.failover_most),
            "margin_ms": ms(self.margin), "outage_survived_ms": ms(self.outage),
            "false_loss_per_day": self.false_loss_per_day,
        })
    }

    fn text(&self, flags: &PlanArgs) -> String {
        let shown = duration::shown;
        let (renew, retry, tries) = (shown(self.renew), shown(self.retry), self.tries);
        let (doubt, lost) = (shown(self.timing.doubtful_after()), shown(self.timing.window()));
        let (least, most) = (shown(self.failover_least), at_most(self.failover_most));
        let elections = if self.outage > ELECTION_MOST + flags.rtt * 2 {
            format!(
                "so an election ({} to {}) loses nothing",
                shown(ELECTION_LEAST),
                shown(ELECTION_MOST)
            )
        } else {
            "so an election may lose the lock: take a longer ttl".to_owned()
        };
        let grace = match flags.grace {
            Duration::ZERO => "stopped at once".to_owned(),
            grace => format!("stopped within {}", shown(grace)),
        };
        format!(
            "ttl {ttl}, round trip {rtt}, clocks within {drift} ppm, {loss} % of tries fail\n\
             renewed   every {renew}; a try that fails is repeated every {retry}, {tries} tries in all\n\
             overdue   {doubt} after the last renewal that was acknowledged\n\
             lost      {lost} after it: the work is {grace}\n\
             margin    {margin} between that and the earliest start of the next holder\n\
             failover  {least} to {most} after a holder dies without releasing, the next client has the lock\n\
             outage    {outage} without any member is ridden out, {elections}\n\
             spurious loss  {chance}\n\
             not covered  a machine frozen from outside, a write already on its way: check the token there\n",
            ttl = shown(self.timing.ttl()),
            rtt = shown(flags.rtt),
            drift = flags.drift,
            loss = flags.loss,
            margin = shown(self.margin),
            outage = shown(self.outage),
            chance = chance(self.false_loss_per_day),
        )
    }
}

/// Rounded up, so that the real time is never longer.
fn at_most(time: Duration) -> String {
    let tenths = time.as_millis().div_ceil(100);
    if time >= Duration::from_secs(60) {
        return duration::shown(time + Duration::from_secs(1));
    }
    format!("{}.{}s", tenths / 10, tenths % 10)
}

/// A chance in words.
fn chance(per_day: f64) -> String {
    if per_day <= 0.0 {
        return "never by single failed tries".to_owned();
    }
    let days = 1.0 / per_day;
    let years = days / 365.0;
    match days {
        _ if years >= 1e6 => "less than once per million years held".to_owned(),
        _ if years >= 2.0 => format!("about once per {years:.0} years held"),
        _ if days >= 2.0 => format!("about once per {days:.0} days held"),
        _ => format!("a {:.0} % chance every day: take a longer ttl", per_day * 100.0),
    }
}

fn ppm(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("ppm").unwrap_or(text).parse::<f64>();
    number.ok().filter(|it| *it >= 0.0 && it.is_finite()).ok_or_else(|| {
        "parts per million, as in 200: clocks of computers differ by less than that".to_owned()
    })
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
    let number = number.ok().filter(|it| (0.0..100.0).contains(it));
    number.ok_or_else(|| "a number from 0 to 99".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(ttl: u64) -> PlanArgs {
        PlanArgs {
            ttl: Duration::from_secs(ttl),
            rtt: Duration::from_millis(5),
            drift: 200.0,
            loss: 1.0,
            grace: Duration::from_secs(2),
            output: OutputFormat::Text,
        }
    }

    #[test]
    fn the_holder_stops_before_the_next_one_starts() {
        for ttl in [5, 15, 60, 3_600] {
            let follows = Follows::of(&flags(ttl)).unwrap();
            let stopped = follows.timing.window() + Duration::from_secs(2);
            assert!(stopped + follows.margin < Duration::from_secs(ttl));
            assert!(follows.failover_least < follows.failover_most);
        }
    }

    #[test]
    fn longer_leases_are_lost_less_often_by_bad_luck_alone() {
        let chance =
            |loss| Follows::of(&PlanArgs { loss, ..flags(15) }).unwrap().false_loss_per_day;
        assert!(chance(0.0) == 0.0);
        assert!(chance(10.0) < chance(50.0));
        assert!(chance(1.0) < 0.001 && chance(50.0) <= 1.0);
    }

    #[test]
    fn what_cannot_be_planned_for_is_refused() {
        assert!(Follows::of(&PlanArgs { grace: Duration::from_secs(9), ..flags(15) }).is_err());
        assert!(Follows::of(&PlanArgs { rtt: Duration::from_secs(1), ..flags(15) }).is_err());
        assert!(Follows::of(&PlanArgs { drift: 20_000.0, ..flags(15) }).is_err());
    }
}
