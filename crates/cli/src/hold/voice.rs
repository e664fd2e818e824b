//! What does `tenure run` say, to whom, and when does it keep quiet?
//!
//! Standard output is the command's. On a terminal there are a few lines, and the block about a queue is updated in
//! place; in a log there is one line per change, and nothing at all if nothing unusual happens.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::output::Output;
use crate::terminal::fitted;

/// How long what was said last may take to be written.
const FLUSH: Duration = Duration::from_secs(1);

/// Something to be written.
enum Said {
    ToStderr(String),
    Event(String),
    Flush(Sender<()>),
}

/// Somebody who says things. They are written by a thread of their own: a terminal that stands still, or a pipe that
/// nobody reads, must not keep anybody from stopping the command.
pub(super) struct Voice {
    lock: String,
    output: Output,
    terminal: bool,
    /// Something happened that is worth more lines, also in a log.
    unusual: bool,
    /// How many lines the block has that is updated in place.
    block: usize,
    /// Why nothing was done, and what to do, for the last event.
    why: Map<String, Value>,
    writer: Sender<Said>,
}

impl Voice {
    pub(super) fn new(lock: &str, output: Output, events: Option<File>) -> Self {
        let terminal = output == Output::Text && std::io::stderr().is_terminal();
        let (writer, said) = channel();
        std::thread::spawn(move || write(&said, events));
        let (unusual, block, why) = (false, 0, Map::new());
        Self { lock: lock.to_owned(), output, terminal, unusual, block, why, writer }
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
            self.write(Said::ToStderr(line.clone()));
        }
        self.write(Said::Event(line));
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
        self.why.insert("message".to_owned(), text.into());
        self.line(&format!("error: {text}"));
    }

    /// A further line under the last one: a word and what it means.
    pub(super) fn detail(&mut self, word: &str, text: &str) {
        if !self.why.is_empty() {
            // As in the errors of all other commands.
            let field = if word == "try" { "next" } else { word };
            self.why.insert(field.to_owned(), text.into());
        }
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
            self.write(Said::ToStderr(
                lines.iter().map(|line| format!("{}\n", fitted(line))).collect(),
            ));
            self.block = lines.len();
        } else if changed && let Some(first) = lines.first() {
            let holder = lines.get(1).and_then(|line| line.trim().strip_prefix("held by"));
            let held = holder.map_or(String::new(), |it| format!(", held by {}", it.trim()));
            self.write(Said::ToStderr(format!("{first}{held}\n")));
        }
    }

    /// The last event; waits a little until all of it is written.
    pub(super) fn ended(&mut self, outcome: &str, code: u8) -> u8 {
        let mut last = json!({ "outcome": outcome, "exit_code": code });
        if let Value::Object(last) = &mut last {
            last.append(&mut self.why);
        }
        self.event("ended", &last);
        let (done, written) = channel();
        self.write(Said::Flush(done));
        let _ = written.recv_timeout(FLUSH);
        code
    }

    fn line(&mut self, line: &str) {
        if self.output == Output::Text {
            self.clear();
            self.write(Said::ToStderr(format!("{line}\n")));
        }
    }

    fn clear(&mut self) {
        let lines = std::mem::take(&mut self.block);
        if self.terminal && lines > 0 {
            // To the first column too: a Ctrl-C that was typed is shown, and moves the cursor.
            self.write(Said::ToStderr(format!("\r\x1b[{lines}A\x1b[J")));
        }
    }

    fn write(&self, said: Said) {
        // The thread ends when this does.
        let _ = self.writer.send(said);
    }
}

fn write(said: &Receiver<Said>, mut events: Option<File>) {
    for said in said {
        // If nobody listens, or the disk is full, the work goes on all the same.
        let _ = match said {
            Said::ToStderr(text) => std::io::stderr().write_all(text.as_bytes()),
            Said::Event(line) => events.as_mut().map_or(Ok(()), |it| it.write_all(line.as_bytes())),
            Said::Flush(done) => {
                let _ = done.send(());
                Ok(())
            }
        };
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
