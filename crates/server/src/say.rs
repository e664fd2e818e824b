//! What does a member tell those who watch it?
//!
//! One line per event on stderr: text for a terminal, JSON for anything else.

use std::fmt::{Display, Write as _};
use std::io::{IsTerminal, Write, stderr};
use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

/// How much somebody should care.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// It is good to know.
    Info,
    /// Something is not as it should be, and the member goes on.
    Warn,
    /// The member cannot go on.
    Error,
}

/// How lines are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// For people.
    Text,
    /// One object per line.
    Json,
}

static FORM: OnceLock<Form> = OnceLock::new();

/// Chooses how lines are written from here on; whoever chose first, or said something, is obeyed.
pub fn write_as(form: Form) {
    let _ = FORM.set(form);
}

/// A name and what it is.
pub type Pair<'a> = (&'a str, &'a dyn Display);

/// Says something that is good to know.
pub fn info(message: &str, pairs: &[Pair<'_>]) {
    say(Level::Info, message, pairs);
}

/// Says that something is not as it should be.
pub fn warn(message: &str, pairs: &[Pair<'_>]) {
    say(Level::Warn, message, pairs);
}

/// Says that the member cannot go on.
pub fn error(message: &str, pairs: &[Pair<'_>]) {
    say(Level::Error, message, pairs);
}

fn say(level: Level, message: &str, pairs: &[Pair<'_>]) {
    let usual = || if stderr().is_terminal() { Form::Text } else { Form::Json };
    let form = *FORM.get_or_init(usual);
    // Only for people who read it: no decision depends on the wall clock.
    let now = clock_gettime(ClockId::Realtime);
    let (seconds, millis) = (now.tv_sec, now.tv_nsec / 1_000_000);
    let line = if form == Form::Text {
        let day = seconds.rem_euclid(86_400);
        let (hour, minute, second) = (day / 3600, day / 60 % 60, day % 60);
        let level = match level {
            Level::Info => "INFO ",
            Level::Warn => "WARN ",
            Level::Error => "ERROR",
        };
        let time = format!("{hour:02}:{minute:02}:{second:02}.{millis:03}");
        as_text(&format!("{time} {level} {message}"), pairs)
    } else {
        let level = match level {
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        };
        as_json(&date(seconds, millis), level, message, pairs)
    };
    // Nobody to tell is no reason to stop.
    let _ = stderr().lock().write_all(line.as_bytes());
}

fn as_text(start: &str, pairs: &[Pair<'_>]) -> String {
    let mut line = String::from(start);
    for (at, (name, value)) in pairs.iter().enumerate() {
        let value = value.to_string();
        let space = if at == 0 { "  " } else { " " };
        if value.contains([' ', '"', '\n']) || value.is_empty() {
            let _ = write!(line, "{space}{name}={value:?}");
        } else {
            let _ = write!(line, "{space}{name}={value}");
        }
    }
    line + "\n"
}

fn as_json(time: &str, level: &str, message: &str, pairs: &[Pair<'_>]) -> String {
    let mut line = format!("{{\"time\":\"{time}\",\"level\":\"{level}\",\"message\":");
    put_json(&mut line, message);
    for (name, value) in pairs {
        line.push(',');
        put_json(&mut line, name);
        line.push(':');
        put_json(&mut line, &value.to_string());
    }
    line + "}\n"
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
        let pairs: [Pair<'_>; 2] = [("lock", &"a \"b\""), ("token", &7)];
        assert_eq!(as_text("x", &pairs), "x  lock=\"a \\\"b\\\"\" token=7\n");
        let line = as_json("1.000", "info", "x\ty", &pairs);
        let start = "{\"time\":\"1.000\",\"level\":\"info\",\"message\":\"x\\u0009y\",";
        assert_eq!(line, format!("{start}\"lock\":\"a \\\"b\\\"\",\"token\":\"7\"}}\n"));
    }
}
