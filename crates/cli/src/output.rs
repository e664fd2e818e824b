//! Formats and prints what a command reports: a table for people, lines for programs.
//!
//! Stdout carries data; messages of `tenure` itself go to stderr. Colour and updates in place appear only on a
//! terminal.

use std::io::{IsTerminal, Write};

use serde::Serialize;
use tenure_types::{InvalidName, Name};
use unicode_width::UnicodeWidthStr;

/// The most characters shown of a name of any length.
const SHOWN_MAX: usize = 100;

/// How a command says what it found or did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    /// A table or a few lines for people; `table` is another word for it
    #[default]
    #[value(alias = "table")]
    Text,
    /// One object per line, for programs
    Json,
}

/// Writes data to stdout and flushes it.
pub(crate) fn out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => {}
        // The reader has gone, as with `| head`: end as a program that SIGPIPE ends.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(141),
        Err(error) => {
            tell(&format!("error: cannot write to stdout: {error}\n"));
            std::process::exit(1);
        }
    }
}

/// Writes a message to stderr. In a process with a log, it goes through the log's queue, after earlier lines and
/// without waiting for a reader.
pub(crate) fn tell(text: &str) {
    if !tenure_server::log::print(text) {
        // An error on stderr cannot be reported anywhere.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

/// Prints one object in one line.
pub(crate) fn object(value: &impl Serialize) {
    let text = serde_json::to_string(value).expect("our forms have string keys and finite numbers");
    out(&format!("{text}\n"));
}

/// Prints one object in one line and goes on if there is no reader.
pub(crate) fn offer(value: &impl Serialize) {
    let text = serde_json::to_string(value).expect("our forms have string keys and finite numbers");
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(format!("{text}\n").as_bytes()).and_then(|()| stdout.flush());
}

/// Prints one object in one line, to stderr.
pub(crate) fn tell_object(value: &impl Serialize) {
    let text = serde_json::to_string(value).expect("our forms have string keys and finite numbers");
    tell(&format!("{text}\n"));
}

/// Whether stdout is a pipe, so that its reader may wait until this process ends.
pub(crate) fn is_piped() -> bool {
    let stdout = std::fs::read_link("/proc/self/fd/1");
    stdout.is_ok_and(|it| it.to_str().is_some_and(|it| it.starts_with("pipe:")))
}

/// Whether a user can see stderr: it is a terminal.
pub(crate) fn watched() -> bool {
    std::io::stderr().is_terminal()
}

fn coloured(terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Text in red, if stderr is a terminal with colours.
pub(crate) fn red(text: &str) -> String {
    paint(coloured(std::io::stderr().is_terminal()), "31;1", text)
}

/// Text in bold, if stdout is a terminal with colours.
pub(crate) fn bold(text: &str) -> String {
    paint(coloured(std::io::stdout().is_terminal()), "1", text)
}

fn paint(colour: bool, code: &str, text: &str) -> String {
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Columns with a heading. Numbers are right-aligned.
pub(crate) struct Table {
    head: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
    /// How wide each column is so far.
    widths: Vec<usize>,
}

/// The alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

impl Table {
    pub(crate) fn new(head: &[(&'static str, Side)]) -> Self {
        let widths = head.iter().map(|(name, _)| name.len()).collect();
        Self { head: head.to_vec(), rows: Vec::new(), widths }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| clean(&cell)).collect();
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = cell.width().max(*width);
        }
        self.rows.push(cells);
    }

    /// The table as text, with a newline after each line.
    pub(crate) fn text(&self) -> String {
        let head: Vec<String> = self.head.iter().map(|(name, _)| (*name).to_owned()).collect();
        format!("{}\n{}", bold(&self.line(&head)), self.body())
    }

    /// The rows without the heading, in the same columns.
    pub(crate) fn body(&self) -> String {
        self.rows.iter().map(|row| format!("{}\n", self.line(row))).collect()
    }

    /// One line of the table.
    fn line(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for (at, cell) in cells.iter().enumerate() {
            let gap = self.widths[at].saturating_sub(cell.width());
            let (before, after) = match self.head[at].1 {
                Side::Right => (gap, 0),
                Side::Left => (0, gap),
            };
            line.push_str(&" ".repeat(before));
            line.push_str(cell);
            line.push_str(&" ".repeat(after + 2));
        }
        line.trim_end().to_owned()
    }
}

/// Pads text to a number of terminal columns: some characters take two.
pub(crate) fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(text.width())))
}

/// A number with its noun: `1 lock`, `2 locks`.
pub(crate) fn count(number: u64, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// The slots of a semaphore, as they follow the token in a message: `, slot 3`, `, slots 0, 3`.
pub(crate) fn slots(slots: &[u32]) -> String {
    let numbers: Vec<String> = slots.iter().map(u32::to_string).collect();
    match &numbers[..] {
        [] => String::new(),
        [only] => format!(", slot {only}"),
        several => format!(", slots {}", several.join(", ")),
    }
}

/// For how much longer a restored cluster grants no lock, and why.
pub(crate) fn quiet(quiet_ms: u64) -> String {
    // Whole seconds, rounded up: the machine's clock moves about once a second while nothing is written.
    let left = crate::duration::ms(quiet_ms.div_ceil(1_000).max(1) * 1_000);
    format!(
        "no lock is granted for {left} more, because clients of the cluster before the restore may still hold locks"
    )
}

/// The cause of an event, for people.
pub(crate) fn cause(cause: tenure_wire::v1::Cause) -> String {
    match cause {
        tenure_wire::v1::Cause::Cooled => "revocation over".to_owned(),
        other => tenure_wire::convert::cause_word(other).replace('_', " "),
    }
}

/// Replaces the control characters in text of another origin, which could move the cursor.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Parses a typed name.
pub(crate) fn name(typed: &str) -> Result<String, String> {
    match Name::check(typed) {
        Ok(()) => Ok(typed.to_owned()),
        Err(InvalidName::TooLong) => {
            Err(format!("it has {} bytes; a name has at most {}", typed.len(), Name::LEN_MAX))
        }
        Err(InvalidName::Control) => {
            Err("it has a control character, such as a tab or a line break".to_owned())
        }
        Err(_) => Err("a name has at least one letter".to_owned()),
    }
}

/// Parses the name of a lock to acquire. White space around a name is not seen in any output, so that two locks would
/// look like one. A lock that has such a name can be inspected and forced.
pub(crate) fn lock_name(typed: &str) -> Result<String, String> {
    let trimmed = typed.trim();
    if trimmed == typed || trimmed.is_empty() {
        return name(typed);
    }
    name(trimmed)?;
    Err(format!(
        "the name begins or ends with white space; try {}",
        crate::failure::quoted(trimmed)
    ))
}

/// Parses a priority.
pub(crate) fn priority(typed: &str) -> Result<u8, String> {
    let number = typed.parse().ok().filter(|number| *number <= 9);
    number.ok_or_else(|| "a priority is a number from 0 to 9".to_owned())
}

/// Cleans a name and cuts it to `SHOWN_MAX` characters.
pub(crate) fn shortened(name: &str) -> String {
    match name.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}…", clean(&name[..at])),
        None => clean(name),
    }
}

/// Foreign bytes as text if they are UTF-8, else their number.
pub(crate) fn bytes(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) => clean(text),
        Err(_) => format!("({} bytes)", value.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_length_fit_a_line() {
        assert_eq!(shortened("a\nb"), "a\u{fffd}b");
        assert_eq!(shortened(&"ё".repeat(101)), format!("{}…", "ё".repeat(100)));
    }

    #[test]
    fn a_name_that_cannot_be_is_refused_with_the_cause() {
        let long = "x".repeat(600);
        assert_eq!(name(&long).unwrap_err(), "it has 600 bytes; a name has at most 512");
        assert!(name("a\tb").unwrap_err().contains("control character"));
        assert_eq!(name(" a"), Ok(" a".to_owned()));
        for typed in [" a b", "a b ", "\u{a0}a b"] {
            let refused = "the name begins or ends with white space; try 'a b'";
            assert_eq!(lock_name(typed).unwrap_err(), refused);
        }
        assert_eq!(lock_name("a b"), Ok("a b".to_owned()));
    }

    #[test]
    fn columns_stand_under_their_headings() {
        let mut table = Table::new(&[("LOCK", Side::Left), ("WAITING", Side::Right)]);
        table.row(["deploy".to_owned(), "2".to_owned()]);
        table.row(["a\x1b[2J".to_owned(), "10".to_owned()]);
        assert_eq!((count(1, "lock"), count(0, "lock")), ("1 lock".into(), "0 locks".into()));
        let mut wide = Table::new(&[("LOCK", Side::Left), ("TOKEN", Side::Left)]);
        wide.row(["锁".to_owned(), "1".to_owned()]);
        wide.row(["deploy".to_owned(), "2".to_owned()]);
        assert_eq!(wide.text(), "LOCK    TOKEN\n锁      1\ndeploy  2\n");
        assert_eq!(padded("锁", 4), "锁  ");
        assert_eq!(table.text(), "LOCK    WAITING\ndeploy        2\na\u{fffd}[2J        10\n");
        assert_eq!(table.body(), "deploy        2\na\u{fffd}[2J        10\n");
    }
}
