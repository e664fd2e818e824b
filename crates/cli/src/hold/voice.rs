//! What does `tenure run` say, to whom, and when does it keep quiet?
//!
//! Standard output is the command's. On a terminal there are a few lines, and the block about a queue is updated in
//! place; in a log there is one line per change, and nothing at all if nothing unusual happens.

use std::fs::File;
use std::io::{IsTerminal, Write};

use serde_json::{Value, json};

use crate::run::Output;

/// Somebody who says things.
pub(super) struct Voice {
    lock: String,
    output: Output,
    events: Option<File>,
    terminal: bool,
    /// Something happened that is worth more lines, also in a log.
    unusual: bool,
    /// Lines of the block that is updated in place.
    block: Vec<String>,
}

impl Voice {
    pub(super) fn new(lock: &str, output: Output, events: Option<File>) -> Self {
        let terminal = output == Output::Text && std::io::stderr().is_terminal();
        let (unusual, block) = (false, Vec::new());
        Self { lock: lock.to_owned(), output, events, terminal, unusual, block }
    }

    pub(super) fn is_live(&self) -> bool {
        self.terminal
    }

    /// For programs: one object per line.
    pub(super) fn event(&mut self, event: &str, more: &Value) {
        // What it is stands first, for people who read it too.
        let mut line = format!("{{\"event\":\"{event}\"");
        if event != "ended" {
            line.push_str(&format!(",\"lock\":{}", Value::from(self.lock.as_str())));
        }
        for (name, value) in more.as_object().into_iter().flatten() {
            line.push_str(&format!(",\"{name}\":{value}"));
        }
        line.push_str("}\n");
        if self.output == Output::Json {
            eprint!("{line}");
        }
        if let Some(file) = &mut self.events {
            // A full disk must not stop the work.
            let _ = file.write_all(line.as_bytes());
        }
    }

    /// Said only to somebody who watches, or after something unusual.
    pub(super) fn usual(&mut self, text: &str) {
        if self.terminal || self.unusual {
            self.line(&format!("tenure: {text}"));
        }
    }

    /// Said in any case.
    pub(super) fn unusual(&mut self, text: &str) {
        self.unusual = true;
        self.line(&format!("tenure: {text}"));
    }

    /// Why nothing was done, and what to do.
    pub(super) fn error(&mut self, text: &str) {
        self.unusual = true;
        self.line(&format!("error: {text}"));
    }

    /// A further line under the last one: a word and what it means.
    pub(super) fn detail(&mut self, word: &str, text: &str) {
        self.line(&detail(word, text));
    }

    /// The same, as it is.
    pub(super) fn further(&mut self, line: &str) {
        self.line(line);
    }

    /// Where it stands in a queue: replaced in place for somebody who watches, one line per change for a log.
    pub(super) fn waiting(&mut self, lines: &[String], changed: bool) {
        if self.output != Output::Text {
            return;
        }
        self.unusual = true;
        if self.terminal {
            self.clear();
            lines.iter().for_each(|line| eprintln!("{line}"));
            self.block = lines.to_vec();
        } else if changed && let Some(first) = lines.first() {
            let holder = lines.get(1).and_then(|line| line.trim().strip_prefix("held by"));
            let held = holder.map_or(String::new(), |it| format!(", held by {}", it.trim()));
            eprintln!("{first}{held}");
        }
    }

    /// The last event.
    pub(super) fn ended(&mut self, outcome: &str, code: u8) -> u8 {
        self.event("ended", &json!({ "outcome": outcome, "exit_code": code }));
        code
    }

    fn line(&mut self, line: &str) {
        if self.output == Output::Text {
            self.clear();
            eprintln!("{line}");
        }
    }

    fn clear(&mut self) {
        let lines = std::mem::take(&mut self.block).len();
        if self.terminal && lines > 0 {
            eprint!("\x1b[{lines}A\x1b[J");
        }
    }
}

/// `  held by  ci-7/4121`
pub(super) fn detail(word: &str, text: &str) -> String {
    format!("  {word:<8} {text}")
}

/// `1 process`, `3 processes`.
pub(super) fn processes(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}
