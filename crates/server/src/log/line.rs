//! Formats one event as a line: text for a terminal, JSON for anything else.

use std::fmt::Write as _;

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
    let at = tenure_wire::wall::utc(crate::os::wall_ms());
    match form {
        LineForm::Text => {
            let time = at.trim_end_matches('Z').split_once('T').map_or("", |(_, time)| time);
            as_text(&format!("{time} {:5} {message}", level.as_str()), pairs)
        }
        LineForm::Json => as_json(&at, &level.as_str().to_ascii_lowercase(), message, pairs),
    }
}

/// The time of the wall clock.
pub(super) fn now() -> String {
    tenure_wire::wall::utc(crate::os::wall_ms())
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
