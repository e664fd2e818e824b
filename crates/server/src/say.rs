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
    static TEXT: OnceLock<bool> = OnceLock::new();
    let text = *TEXT.get_or_init(|| stderr().is_terminal());
    // Only for people who read it: no decision depends on the wall clock.
    let now = clock_gettime(ClockId::Realtime);
    let (seconds, millis) = (now.tv_sec, now.tv_nsec / 1_000_000);
    let line = if text {
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
        as_json(&format!("{seconds}.{millis:03}"), level, message, pairs)
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
    let mut line = format!("{{\"time\":{time},\"level\":\"{level}\",\"message\":");
    put_json(&mut line, message);
    for (name, value) in pairs {
        line.push(',');
        put_json(&mut line, name);
        line.push(':');
        put_json(&mut line, &value.to_string());
    }
    line + "}\n"
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
    fn lines_are_text_or_json() {
        let pairs: [Pair<'_>; 2] = [("lock", &"a \"b\""), ("token", &7)];
        assert_eq!(as_text("x", &pairs), "x  lock=\"a \\\"b\\\"\" token=7\n");
        assert_eq!(
            as_json("1.000", "info", "x\ty", &pairs),
            "{\"time\":1.000,\"level\":\"info\",\"message\":\"x\\u0009y\",\"lock\":\"a \\\"b\\\"\",\"token\":\"7\"}\n"
        );
    }
}
