//! Parses durations as people write them: in URLs, flags and files.

use std::time::Duration;

/// The longest accepted duration: longer than any real wait, and short enough to be added to any clock.
pub const LONGEST: Duration = Duration::from_secs(10_000 * 86_400);

/// The number of decimal places that count; further ones are less than a nanosecond of every unit.
const PLACES: usize = 18;
const SCALE: u128 = 10u128.pow(18);

/// Parses a duration such as `15s`, `500ms`, `2m`, `1h30m` or `1.5s`. A number without a unit is seconds.
///
/// The units are `us` (or `µs`), `ms`, `s`, `m`, `h` and `d`. The parts of a duration are added up. The result is exact
/// to the nanosecond, rounded down. Returns `None` for every other text, and for more than [`LONGEST`].
///
/// ```
/// use std::time::Duration;
/// use tenure_wire::duration::parse;
///
/// assert_eq!(parse("1h30m"), Some(Duration::from_secs(5_400)));
/// assert_eq!(parse("90"), Some(Duration::from_secs(90)));
/// ```
pub fn parse(text: &str) -> Option<Duration> {
    if text.is_empty() {
        return None;
    }
    if text.chars().all(is_of_number) {
        // As `sleep` does.
        return part(text, "s").filter(|time| *time <= LONGEST);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| !is_of_number(c))?);
        let (unit, after) = tail.split_at(tail.find(is_of_number).unwrap_or(tail.len()));
        total = total.checked_add(part(number, unit)?).filter(|total| *total <= LONGEST)?;
        rest = after;
    }
    Some(total)
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

fn part(number: &str, unit: &str) -> Option<Duration> {
    let unit_ns: u128 = match unit {
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    };
    let (whole, places) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && places.is_empty()) || places.contains('.') {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let places = &places[..places.len().min(PLACES)];
    let places: u128 = format!("{places:0<PLACES$}").parse().ok()?;
    let ns = u128::from(whole) * unit_ns + places * unit_ns / SCALE;
    u64::try_from(ns).ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_people_write_them() {
        let cases = [
            ("0", 0),
            ("00", 0),
            ("15", 15_000_000_000),
            ("0.5", 500_000_000),
            ("0s", 0),
            ("7us", 7_000),
            ("7µs", 7_000),
            ("500ms", 500_000_000),
            ("15s", 15_000_000_000),
            ("2m", 120_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1d", 86_400_000_000_000),
            ("1.5s", 1_500_000_000),
            ("0.1s", 100_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("0.5d1.5h", 48_600_000_000_000),
            ("0.0000000000000000000000001s", 0),
            ("10000d", 864_000_000_000_000_000),
        ];
        for (text, ns) in cases {
            assert_eq!(parse(text), Some(Duration::from_nanos(ns)), "{text}");
        }
        assert_eq!(parse("10000d"), Some(LONGEST));
    }

    #[test]
    fn every_other_text_is_refused() {
        let wrong = [
            "",
            "s",
            ".s",
            ".",
            "-1s",
            "+1s",
            "15 s",
            "1s ",
            " 1s",
            "30S",
            "1y",
            "1..5s",
            "1.5.5s",
            "1s5",
            "1e3s",
            "infs",
            "nans",
            "10000d1us",
            "864000001",
            "1.2.3",
            "99999999999999d",
            "99999999999999999999999s",
            "１s",
        ];
        for text in wrong {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
