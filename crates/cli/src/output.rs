//! How does a command say what it found: a table for people, lines for programs?
//!
//! Stdout is data; what `tenure` itself has to say goes to stderr. Colour and anything that moves only where somebody
//! looks: on a terminal.

use std::io::{IsTerminal, Write};

use serde::Serialize;
use unicode_width::UnicodeWidthStr;

/// Letters of a name that are shown where it could have any number of them.
const SHOWN_MAX: usize = 100;

/// How a command says what it found or did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(crate) enum Output {
    /// A few lines for people
    #[default]
    Text,
    /// One object per line, for programs
    Json,
}

/// Writes data to stdout, at once.
pub(crate) fn out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        // Whoever read this has gone, as behind `| head`: the same as any other program that ends by SIGPIPE.
        std::process::exit(141);
    }
}

/// Writes what we have to say to stderr: in a process with a log behind its lines, and without waiting for a reader.
pub(crate) fn tell(text: &str) {
    if !tenure_server::log::print(text) {
        // If nobody hears it, nobody can be told so.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

/// One object, in one line.
pub(crate) fn object(value: &impl Serialize) {
    let text = serde_json::to_string(value).expect("our forms have string keys and finite numbers");
    out(&format!("{text}\n"));
}

/// The same from somebody who goes on, whether or not it is read.
pub(crate) fn offer(value: &impl Serialize) {
    let text = serde_json::to_string(value).expect("our forms have string keys and finite numbers");
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(format!("{text}\n").as_bytes()).and_then(|()| stdout.flush());
}

/// One object, in one line, to stderr.
pub(crate) fn tell_object(value: &impl Serialize) {
    let text = serde_json::to_string(value).expect("our forms have string keys and finite numbers");
    tell(&format!("{text}\n"));
}

/// Whether somebody looks at what we say.
pub(crate) fn watched() -> bool {
    std::io::stderr().is_terminal()
}

fn coloured(terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Red on a terminal's stderr.
pub(crate) fn red(text: &str) -> String {
    paint(coloured(std::io::stderr().is_terminal()), "31;1", text)
}

/// Bold on a terminal's stdout.
pub(crate) fn bold(text: &str) -> String {
    paint(coloured(std::io::stdout().is_terminal()), "1", text)
}

fn paint(colour: bool, code: &str, text: &str) -> String {
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Columns with a heading. Numbers stand to the right.
pub(crate) struct Table {
    head: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
}

/// Where a column's words stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

impl Table {
    pub(crate) fn new(head: &[(&'static str, Side)]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| clean(&cell)).collect());
    }

    /// The lines, each with its end.
    pub(crate) fn text(&self) -> String {
        let width = |at: usize| {
            let cells = self.rows.iter().map(|row| row[at].width());
            cells.chain([self.head[at].0.len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let line = |cells: &[String]| {
            let mut line = String::new();
            for (at, cell) in cells.iter().enumerate() {
                let gap = widths[at].saturating_sub(cell.width());
                let (before, after) = match self.head[at].1 {
                    Side::Right => (gap, 0),
                    Side::Left => (0, gap),
                };
                line.push_str(&" ".repeat(before));
                line.push_str(cell);
                line.push_str(&" ".repeat(after + 2));
            }
            line.trim_end().to_owned()
        };
        let head: Vec<String> = self.head.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut text = format!("{}\n", bold(&line(&head)));
        for row in &self.rows {
            text.push_str(&line(row));
            text.push('\n');
        }
        text
    }
}

/// Words that fill so many columns of a terminal: some letters take two.
pub(crate) fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(text.width())))
}

/// `1 lock`, `2 locks`.
pub(crate) fn count(number: u64, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// For how much longer a restored cluster grants no lock, and why.
pub(crate) fn quiet(quiet_ms: u64) -> String {
    // Whole seconds, rounded up: the machine's clock moves about once a second while nothing is written.
    let left = crate::span::ms(quiet_ms.div_ceil(1_000).max(1) * 1_000);
    format!(
        "no lock is granted for {left} more, because clients of the cluster before the restore may still hold locks"
    )
}

/// Somebody else's words without anything that moves the cursor.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A name that somebody typed. What else it may not be, the cluster says.
pub(crate) fn name(typed: &str) -> Result<String, String> {
    if typed.is_empty() {
        Err("a name has at least one letter".to_owned())
    } else {
        Ok(typed.to_owned())
    }
}

/// The same of a name that may be of any length.
pub(crate) fn shortened(name: &str) -> String {
    match name.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}…", clean(&name[..at])),
        None => clean(name),
    }
}

/// Bytes that somebody wrote, as text where they are text.
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
    }
}
