//! Formats one event as a line: text for a terminal, JSON for anything else.

use std::fmt::Write as _;

use rustix::time::{ClockId, clock_gettime};
use tracing::Level;

/// The most bytes of one value that are kept: the names and causes in it may have any length.
const VALUE_BYTES_MAX: usize = 4096;

/// The format of lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineForm {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The name of a field and its value.
pub(super) type Pair = (&'static str, String);

/// Formats an event that happens now.
pub(super) fn format(form: LineForm, level: Level, message: &str, pairs: &[Pair]) -> String {
    // Only readers of the log use the wall clock: no decision depends on it.
    let now = clock_gettime(ClockId::Realtime);
    let (seconds, millis) = (now.tv_sec, now.tv_nsec / 1_000_000);
    match form {
        LineForm::Text => {
            let day = seconds.rem_euclid(86_400);
            let (hour, minute, second) = (day / 3600, day / 60 % 60, day % 60);
            let time = format!("{hour:02}:{minute:02}:{second:02}.{millis:03}");
            as_text(&format!("{time} {:5} {message}", level.as_str()), pairs)
        }
        LineForm::Json => {
            let level = level.as_str().to_ascii_lowercase();
            as_json(&date(seconds, millis), &level, message, pairs)
        }
    }
}

/// The time of the wall clock.
pub(super) fn now() -> String {
    let now = clock_gettime(ClockId::Realtime);
    date(now.tv_sec, now.tv_nsec / 1_000_000)
}

fn as_text(start: &str, pairs: &[Pair]) -> String {
    let mut line = String::from(start);
    for (at, (name, value)) in pairs.iter().enumerate() {
        let value = shortened(value);
        let space = if at == 0 { "  " } else { " " };
        // A peer chooses some of these values: no control character may reach a terminal.
        let plain = |c: char| c != ' ' && c != '"' && !c.is_control();
        if value.is_empty() || !value.chars().all(plain) {
            let _ = write!(line, "{space}{name}={value:?}");
        } else {
            let _ = write!(line, "{space}{name}={value}");
        }
    }
    line + "\n"
}

fn as_json(time: &str, level: &str, message: &str, pairs: &[Pair]) -> String {
    let mut line = format!("{{\"time\":\"{time}\",\"level\":\"{level}\",\"message\":");
    put_json(&mut line, message);
    for (name, value) in pairs {
        line.push(',');
        put_json(&mut line, name);
        line.push(':');
        put_json(&mut line, shortened(value));
    }
    line + "}\n"
}

fn shortened(value: &str) -> &str {
    let end = (0..=VALUE_BYTES_MAX.min(value.len())).rev().find(|at| value.is_char_boundary(*at));
    &value[..end.unwrap_or(0)]
}

/// A moment of the wall clock, in UTC.
fn date(seconds: i64, millis: i64) -> String {
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 1 March of year 0, in eras of 400 years: leap days come last.
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

fn put_json(line: &mut String, text: &str) {
    line.push('"');
    for c in text.chars() {
        match c {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            c if c.is_control() => {
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            c => line.push(c),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0, 7), "1970-01-01T00:00:00.007Z");
        assert_eq!(date(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(date(1_767_225_599, 999), "2025-12-31T23:59:59.999Z");
    }

    #[test]
    fn lines_are_text_or_json() {
        let pairs = [("lock", "a \"b\"".to_owned()), ("token", "7".to_owned())];
        assert_eq!(as_text("x", &pairs), "x  lock=\"a \\\"b\\\"\" token=7\n");
        let line = as_json("1.000", "info", "x\ty", &pairs);
        let start = "{\"time\":\"1.000\",\"level\":\"info\",\"message\":\"x\\u0009y\",";
        assert_eq!(line, format!("{start}\"lock\":\"a \\\"b\\\"\",\"token\":\"7\"}}\n"));
    }
    #[test]
    fn values_are_bounded_and_cannot_move_the_cursor() {
        let pairs = [("why", "\u{1b}[2J".to_owned())];
        assert_eq!(as_text("x", &pairs), "x  why=\"\\u{1b}[2J\"\n");
        let pairs = [("why", "ä".repeat(VALUE_BYTES_MAX))];
        assert_eq!(as_text("", &pairs).len(), "  why=\n".len() + VALUE_BYTES_MAX);
    }
}
