//! Parses and formats durations.

use std::time::Duration;

/// Parses `15s`, `500ms`, `2m`, `1h30m`, and a number of seconds, as the HTTP API does.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    tenure_wire::duration::parse(text).ok_or_else(|| match respelled(text) {
        Some(meant) => format!("`{text}` is not a time; try {meant}"),
        None => format!("`{text}` is not a time; try 15, 15s, 500ms, 2m, 1h30m or 7d"),
    })
}

/// How a time is spelled here that was written with other units or with spaces, such as `5sec` or `1 hour`.
fn respelled(text: &str) -> Option<String> {
    let of_number = |c: char| c.is_ascii_digit() || c == '.';
    let text: String = text.split_whitespace().collect();
    let mut meant = String::new();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c| !of_number(c)).unwrap_or(rest.len()));
        let (word, after) = tail.split_at(tail.find(of_number).unwrap_or(tail.len()));
        meant.push_str(number);
        meant.push_str(if word.is_empty() { "" } else { unit(word)? });
        rest = after;
    }
    tenure_wire::duration::parse(&meant).map(|_| meant)
}

/// The unit of time that a word means.
pub(crate) fn unit(word: &str) -> Option<&'static str> {
    Some(match word.to_lowercase().as_str() {
        "us" | "µs" => "us",
        "ms" | "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        _ => return None,
    })
}

/// Parses a ttl. A number of seconds above an hour is probably meant in milliseconds.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = parse(text)?;
    match text.parse::<u64>() {
        Ok(number) if ttl > Duration::from_secs(3_600) => {
            let seconds = match number % 1_000 {
                0 => format!(" or {}s", number / 1_000),
                _ => String::new(),
            };
            Err(format!("{number} means seconds, more than 1h; try {number}ms{seconds}"))
        }
        _ => Ok(ttl),
    }
}

/// Parses the time within which progress is promised, which is not 0.
pub(crate) fn within(text: &str) -> Result<Duration, String> {
    let time = parse(text)?;
    if time.is_zero() { Err(format!("`{text}` is no time at all; try 5m")) } else { Ok(time) }
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
    fn a_time_in_another_spelling_is_refused_with_ours() {
        for (typed, meant) in
            [("5sec", "5s"), ("5S", "5s"), ("1 hour", "1h"), ("5 s", "5s"), ("1 Day 2 hrs", "1d2h")]
        {
            let expected = format!("`{typed}` is not a time; try {meant}");
            assert_eq!(parse(typed), Err(expected));
        }
        assert!(parse("5 parsecs").unwrap_err().contains("try 15, 15s"));
        let above = "15000 means seconds, more than 1h; try 15000ms or 15s";
        assert_eq!(ttl("15000"), Err(above.to_owned()));
        assert!(ttl("15001").unwrap_err().ends_with("; try 15001ms"));
        assert_eq!((ttl("3600").is_ok(), ttl("2h").is_ok()), (true, true));
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
