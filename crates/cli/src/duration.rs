//! Parses and formats durations.

use std::time::Duration;

/// Parses `15s`, `500ms`, `2m`, `1h30m`, and a number of seconds, as the HTTP API does.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    tenure_wire::duration::parse(text)
        .ok_or_else(|| format!("`{text}` is not a time; try 15, 15s, 500ms, 2m, 1h30m or 7d"))
}

/// The same, but not 0.
pub(crate) fn some(text: &str) -> Result<Duration, String> {
    let time = parse(text)?;
    if time.is_zero() { Err(format!("`{text}` is no time at all; try 1h")) } else { Ok(time) }
}

/// Formats a duration for people, rounded down: an age is never shown longer than it is.
pub(crate) fn shown(time: Duration) -> String {
    let (seconds, millis) = (time.as_secs(), time.subsec_millis());
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) if seconds == 0 && millis == 0 && !time.is_zero() => {
            format!("{}us", time.subsec_micros())
        }
        (0, 0, 0) if seconds == 0 && millis > 0 && millis < 100 => format!("{millis}ms"),
        (0, 0, 0) if seconds < 10 && millis >= 100 => format!("{seconds}.{}s", millis / 100),
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) if seconds % 60 == 0 => format!("{minutes}m"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) if minutes % 60 == 0 => format!("{hours}h"),
        (0, _, _) => format!("{hours}h{:02}m", minutes % 60),
        (_, _, _) => format!("{days}d{:02}h", hours % 24),
    }
}

/// Formats milliseconds for people.
pub(crate) fn ms(ms: u64) -> String {
    shown(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_unit_is_seconds() {
        assert_eq!(parse("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert_eq!(parse("1m30s"), parse("90"));
        for wrong in ["", ".", "soon", "-1", "1.2.3", "5 s"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_shown_short_and_never_too_long() {
        let cases = [
            (0, "0s"),
            (40, "40ms"),
            (999, "0.9s"),
            (1_000, "1s"),
            (3_250, "3.2s"),
            (59_999, "59s"),
            (252_000, "4m12s"),
            (300_000, "5m"),
            (3_725_000, "1h02m"),
            (90_000_000, "1d01h"),
        ];
        for (given, expected) in cases {
            assert_eq!(ms(given), expected);
        }
    }
}
