//! Writes the messages and events of `tenure run`.
//!
//! Standard output belongs to the command. A terminal shows a few lines, and the block about the queue is updated in
//! place. A log gets one line per change, and none if nothing unusual happens. With `--quiet` there are only errors and
//! the loss of the lock.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use serde_json::{Map, Value, json};

use crate::output::OutputFormat;
use crate::print_args::QuietArgs;
use crate::suggest::suggested;
use crate::terminal::fitted;
use crate::waiting::labelled;

use super::waiting::QueueView;

/// How long flushing the last messages may take.
const FLUSH: Duration = Duration::from_secs(1);

/// The pause after an interrupted attempt to write.
const AGAIN: Duration = Duration::from_millis(20);

/// Something to write.
enum MessageItem {
    ToStderr(String),
    Event(String),
    Flush(Sender<()>),
}

/// Tells of a stop while other code has the messages.
pub(super) struct StopNotice {
    was_stopped: Arc<AtomicBool>,
    /// Whether messages are written as text.
    is_shown: bool,
    terminal: bool,
    writer: Sender<MessageItem>,
}

impl StopNotice {
    /// Writes why the job stops, and waits up to `FLUSH` until everything is written.
    pub(super) fn stopping(&self, text: &str) {
        if self.is_shown {
            // The terminal has echoed the key.
            let start = if self.terminal { "\r" } else { "" };
            let _ = self.writer.send(MessageItem::ToStderr(format!("{start}tenure: {text}\n")));
        }
        let (done, written) = channel();
        let _ = self.writer.send(MessageItem::Flush(done));
        let _ = written.recv_timeout(FLUSH);
        self.continued();
    }

    /// Notes that the job goes on after a stop.
    pub(super) fn continued(&self) {
        self.was_stopped.store(true, Ordering::Relaxed);
    }
}

/// Writes messages and events on a separate thread: a blocked terminal, or a pipe without a reader, must not delay
/// stopping the command.
pub(super) struct Messages {
    locks: Vec<String>,
    output: OutputFormat,
    /// Whether only errors and losses are written.
    quiet: bool,
    /// Whether the last message was left out, and its details with it.
    left_out: bool,
    terminal: bool,
    /// Whether something unusual happened, so that a log gets usual lines too.
    unusual: bool,
    /// How many lines the block has that is updated in place.
    block: usize,
    /// Whether the job was stopped since the block was drawn: the shell has written below it, so it stays.
    was_stopped: Arc<AtomicBool>,
    /// The error message and its details, for the last event.
    why: Map<String, Value>,
    writer: Sender<MessageItem>,
}

impl Messages {
    /// Sets the locks that the events name.
    pub(super) fn set_locks(&mut self, locks: &[String]) {
        self.locks = locks.to_vec();
    }

    pub(super) fn new(locks: &[String], flags: &QuietArgs, events: Option<File>) -> Self {
        let (output, quiet, left_out) = (flags.output, flags.quiet, false);
        let terminal = output == OutputFormat::Text && std::io::stderr().is_terminal();
        let (writer, said) = channel();
        std::thread::spawn(move || write(&said, events));
        let (unusual, block, why) = (false, 0, Map::new());
        let (locks, was_stopped) = (locks.to_vec(), Arc::default());
        Self { locks, output, quiet, left_out, terminal, unusual, block, was_stopped, why, writer }
    }

    /// Tells of stops while the messages are lent.
    pub(super) fn stop_notice(&self) -> StopNotice {
        let is_shown = self.output == OutputFormat::Text && !self.quiet;
        StopNotice {
            was_stopped: self.was_stopped.clone(),
            is_shown,
            terminal: self.terminal,
            writer: self.writer.clone(),
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.terminal
    }

    /// Writes an event for programs: one object per line.
    pub(super) fn event(&mut self, event: &str, more: &Value) {
        // The event's name comes first, for people who read the lines.
        let at = tenure_wire::wall::utc(tenure_server::os::wall_ms());
        let mut line = format!("{{\"event\":\"{event}\",\"at\":\"{at}\"");
        if event != "ended" {
            line.push_str(&format!(",\"lock\":{}", json!(self.locks.first())));
            if self.locks.len() > 1 {
                line.push_str(&format!(",\"locks\":{}", json!(self.locks)));
            }
        }
        for (name, value) in more.as_object().into_iter().flatten() {
            line.push_str(&format!(",\"{name}\":{value}"));
        }
        line.push_str("}\n");
        if self.output == OutputFormat::Json {
            self.write(MessageItem::ToStderr(line.clone()));
        }
        self.write(MessageItem::Event(line));
    }

    /// Writes a line only to a terminal, or after something unusual.
    pub(super) fn usual(&mut self, text: &str) {
        if self.terminal || self.unusual {
            self.notice(text);
        }
    }

    /// Writes why the command is skipped, only to a terminal or after something unusual.
    pub(super) fn skipped(&mut self, why: &str) {
        self.why.insert("message".to_owned(), why.into());
        self.usual(&format!("skipped: {why}"));
    }

    /// Writes a line to a log, too.
    pub(super) fn unusual(&mut self, text: &str) {
        self.unusual = true;
        self.notice(text);
    }

    /// Writes a line about the loss of the lock, or about a release that failed: also with `--quiet`.
    pub(super) fn loss(&mut self, text: &str) {
        (self.unusual, self.left_out) = (true, false);
        self.line(&format!("tenure: {text}"));
    }

    fn notice(&mut self, text: &str) {
        self.left_out = self.quiet;
        if !self.quiet {
            self.line(&format!("tenure: {text}"));
        }
    }

    /// Writes an error message.
    pub(super) fn error(&mut self, text: &str) {
        (self.unusual, self.left_out) = (true, false);
        self.why.insert("message".to_owned(), text.into());
        self.line(&format!("error: {text}"));
    }

    /// Writes a further line under the last one: a label and its text.
    pub(super) fn detail(&mut self, word: &str, text: &str) {
        let completed = matches!(word, "try" | "look").then(|| suggested(text));
        let text = completed.as_deref().unwrap_or(text);
        if !self.why.is_empty() {
            // The field has the name that it has in the errors of all other commands.
            let field = if word == "try" { "next" } else { word };
            self.why.insert(field.to_owned(), text.into());
        }
        self.further(&labelled(word, text));
    }

    /// Writes a further line without a label.
    pub(super) fn further(&mut self, line: &str) {
        if !self.left_out {
            self.line(line);
        }
    }

    /// Shows the place in the queue: updated in place on a terminal, one line per change in a log.
    pub(super) fn waiting(&mut self, view: &QueueView, changed: bool) {
        if self.output != OutputFormat::Text || self.quiet {
            return;
        }
        self.unusual = true;
        // A job in the background writes whole lines: a block would overwrite what the user types.
        if self.terminal && is_foreground() {
            self.clear();
            let lines = view.lines();
            self.write(MessageItem::ToStderr(
                lines.iter().map(|line| format!("{}\n", fitted(line))).collect(),
            ));
            self.block = lines.len();
        } else if changed {
            self.write(MessageItem::ToStderr(format!("{}\n", view.line())));
        }
    }

    /// Writes the last event and waits up to `FLUSH` until everything is written.
    pub(super) fn ended(&mut self, outcome: &str, code: u8) -> u8 {
        let mut last = json!({ "outcome": outcome, "exit_code": code });
        if let Value::Object(last) = &mut last {
            last.append(&mut self.why);
        }
        self.event("ended", &last);
        self.flush();
        code
    }

    /// Waits up to `FLUSH` until everything is written.
    pub(super) fn flush(&self) {
        let (done, written) = channel();
        self.write(MessageItem::Flush(done));
        let _ = written.recv_timeout(FLUSH);
    }

    fn line(&mut self, line: &str) {
        if self.output == OutputFormat::Text {
            self.clear();
            self.write(MessageItem::ToStderr(format!("{line}\n")));
        }
    }

    fn clear(&mut self) {
        let was_stopped = self.was_stopped.swap(false, Ordering::Relaxed);
        let lines = std::mem::take(&mut self.block) * usize::from(!was_stopped);
        if self.terminal && lines > 0 {
            // Return to the first column too: the terminal echoes Ctrl-C and moves the cursor.
            self.write(MessageItem::ToStderr(format!("\r\x1b[{lines}A\x1b[J")));
        }
    }

    fn write(&self, said: MessageItem) {
        // The thread lives as long as this sender.
        let _ = self.writer.send(said);
    }
}

/// Whether the terminal on stderr is given to this job, or is none that has jobs.
fn is_foreground() -> bool {
    tcgetpgrp(std::io::stderr()).map_or(true, |group| group == getpgrp())
}

fn write(said: &Receiver<MessageItem>, mut events: Option<File>) {
    for said in said {
        // The command goes on even if there is no reader or the disk is full.
        let _ = match said {
            MessageItem::ToStderr(text) => write_stderr(text.as_bytes()),
            MessageItem::Event(line) => {
                events.as_mut().map_or(Ok(()), |it| it.write_all(line.as_bytes()))
            }
            MessageItem::Flush(done) => {
                let _ = done.send(());
                Ok(())
            }
        };
    }
}

/// Writes to stderr. A terminal that stops the output of jobs in the background interrupts every attempt until the job
/// is in the foreground.
fn write_stderr(mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match std::io::stderr().write(bytes) {
            Ok(0) => return Ok(()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => std::thread::sleep(AGAIN),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A count with its noun: `1 process`, `3 processes`.
pub(super) fn processes(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}
