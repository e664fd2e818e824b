//! Draws on the whole terminal, reads its keys, and restores it afterwards.

use std::io::{IsTerminal, Read, Write};

use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use tokio::sync::mpsc;
use unicode_width::UnicodeWidthChar;

use crate::failure::CliError;

/// A pressed key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyPress {
    Letter(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
}

/// A terminal that is drawn on as a whole. Dropping it restores the previous content.
pub(crate) struct Screen {
    before: Termios,
}

/// The size of a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// Whether stdin and stdout are terminals.
pub(crate) fn there() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

impl Screen {
    /// Takes the terminal over. Ctrl-C still sends a signal.
    pub(crate) fn open() -> Result<Self, CliError> {
        let failed = |error| CliError::refused(format!("cannot use the terminal: {error}"));
        let before = termios::tcgetattr(rustix::stdio::stdin()).map_err(failed)?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw).map_err(failed)?;
        write("\x1b[?1049h\x1b[?25l");
        Ok(Self { before })
    }

    /// The size of the terminal.
    pub(crate) fn size(&self) -> Size {
        let size = termios::tcgetwinsize(rustix::stdio::stdout());
        let (columns, rows) = size.map_or((80, 24), |it| (it.ws_col, it.ws_row));
        Size { columns: usize::from(columns.max(20)), rows: usize::from(rows.max(6)) }
    }

    /// Draws all lines, each cut to the width.
    pub(crate) fn draw(&self, lines: &[String]) {
        let size = self.size();
        let mut text = String::from("\x1b[H");
        for line in lines.iter().take(size.rows) {
            text.push_str(&cut(line, size.columns));
            text.push_str("\x1b[K\r\n");
        }
        // A newline after the last row would scroll the first one away.
        text.truncate(text.len().saturating_sub(if lines.len() >= size.rows { 2 } else { 0 }));
        text.push_str("\x1b[J");
        write(&text);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        write("\x1b[?25h\x1b[?1049l");
        // A failure to restore the terminal cannot be handled.
        let _ = termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Delivers keys from now on.
pub(crate) fn keys() -> mpsc::UnboundedReceiver<KeyPress> {
    let (to, from) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while let Ok(read @ 1..) = std::io::stdin().lock().read(&mut bytes) {
            for key in parse(&bytes[..read]) {
                if to.send(key).is_err() {
                    return;
                }
            }
        }
    });
    from
}

fn parse(bytes: &[u8]) -> Vec<KeyPress> {
    let text = String::from_utf8_lossy(bytes);
    let (mut keys, mut rest) = (Vec::new(), text.as_ref());
    while let Some(first) = rest.chars().next() {
        let (key, length) = match first {
            _ if rest.starts_with("\x1b[A") || rest.starts_with("\x1bOA") => (KeyPress::Up, 3),
            _ if rest.starts_with("\x1b[B") || rest.starts_with("\x1bOB") => (KeyPress::Down, 3),
            '\x1b' => (KeyPress::Escape, 1),
            '\r' | '\n' => (KeyPress::Enter, 1),
            '\x7f' | '\x08' => (KeyPress::Backspace, 1),
            letter => (KeyPress::Letter(letter), letter.len_utf8()),
        };
        keys.push(key);
        rest = &rest[length..];
    }
    keys
}

/// Cuts a line to the width; colour codes do not count.
fn cut(line: &str, columns: usize) -> String {
    let (mut text, mut shown, mut coded) = (String::new(), 0, false);
    for c in line.chars() {
        if c == '\x1b' {
            coded = true;
        }
        if !coded {
            shown += width(c);
            if shown > columns {
                break;
            }
        }
        text.push(c);
        if coded && c.is_ascii_alphabetic() {
            coded = false;
        }
    }
    if line.contains('\x1b') {
        text.push_str("\x1b[0m");
    }
    text
}

/// Cuts a line for stderr to one row, so that the caller knows how many rows to draw over.
pub(crate) fn fitted(line: &str) -> String {
    let size = termios::tcgetwinsize(rustix::stdio::stderr());
    let columns = size.map_or(0, |it| usize::from(it.ws_col));
    within(line, if columns == 0 { 80 } else { columns })
}

/// How many columns a character takes: two for wide ones, none for combining accents.
fn width(letter: char) -> usize {
    letter.width().unwrap_or(0)
}

fn within(line: &str, columns: usize) -> String {
    let mut taken = 0;
    let fits = line.chars().take_while(|c| {
        taken += width(*c);
        taken <= columns
    });
    fits.collect()
}

fn write(text: &str) {
    let mut stdout = std::io::stdout().lock();
    // If the terminal is gone, the process gets a signal.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        let expected = [
            KeyPress::Up,
            KeyPress::Letter('q'),
            KeyPress::Enter,
            KeyPress::Backspace,
            KeyPress::Escape,
        ];
        assert_eq!(parse(b"\x1b[Aq\r\x7f\x1b"), expected);
    }

    #[test]
    fn lines_are_cut_where_the_screen_ends() {
        assert_eq!(cut("abcdef", 3), "abc");
        assert_eq!(cut("\x1b[1mabcdef", 3), "\x1b[1mabc\x1b[0m");
        assert_eq!(cut("■■■", 2), "■■");
        assert_eq!(cut("锁锁", 3), "锁");
        assert_eq!(within("ab锁锁", 5), "ab锁");
    }
}
