//! Runs a child process, keeps its output in a log file, and shows it on demand.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cargo::shown;
use crate::clock::Stopwatch;
use crate::output::is_message;
use crate::repo::Repo;

/// How often the running layer shows its time.
const TICK: Duration = Duration::from_secs(1);

/// How much the user sees while a layer runs.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Verbosity {
    /// Nothing: another layer shows its progress.
    Nothing,
    /// The running layer and its time, on a terminal.
    Progress,
    /// Every line.
    Everything,
}

/// The output of one layer, in a file and on the terminal.
pub(crate) struct LayerLog {
    layer: &'static str,
    file: File,
    show: Verbosity,
    watch: Stopwatch,
    kept: VecDeque<String>,
}

/// A child that ended, and the lines it printed.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    lines: Vec<(OutputStream, String)>,
}

#[derive(Clone, Copy, PartialEq)]
enum OutputStream {
    Out,
    Err,
}

impl Finished {
    /// Every line, in the order of arrival.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|(_, line)| line.as_str())
    }

    /// The last line of the standard output that is not blank.
    pub(crate) fn last_line(&self) -> &str {
        let out = self.lines.iter().filter(|(stream, _)| *stream == OutputStream::Out);
        let mut lines = out.map(|(_, line)| line.trim()).filter(|line| !line.is_empty());
        lines.next_back().unwrap_or_default()
    }
}

impl LayerLog {
    /// Creates an empty log, replacing the one of the layer's last run.
    pub(crate) fn create(repo: &Repo, layer: &'static str, show: Verbosity) -> Result<Self> {
        let path = repo.path(&name_of(layer));
        let dir = path.parent().context("a log has a directory")?;
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let log = Self { layer, file, show, watch: Stopwatch::start(), kept: VecDeque::new() };
        log.show_progress();
        Ok(log)
    }

    /// The file, relative to the top of the repository.
    pub(crate) fn name(&self) -> String {
        name_of(self.layer)
    }

    /// The last lines.
    pub(crate) fn tail(&self, lines: usize) -> Vec<&str> {
        let skipped = self.kept.len().saturating_sub(lines);
        self.kept.iter().skip(skipped).map(String::as_str).collect()
    }

    /// Runs a child to its end and keeps every line.
    pub(crate) fn run(&mut self, mut command: Command) -> Result<Finished> {
        self.line(&format!("$ {}", shown(&command)))?;
        let mut child = command
            // This program parses the lines as well, so they must not contain colours.
            .env("CARGO_TERM_COLOR", "never")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", shown(&command)))?;
        let (sender, receiver) = channel();
        let out = child.stdout.take().context("the output is piped")?;
        let err = child.stderr.take().context("the errors are piped")?;
        forward(OutputStream::Out, out, sender.clone());
        forward(OutputStream::Err, err, sender);

        let mut lines = Vec::new();
        loop {
            match receiver.recv_timeout(TICK) {
                Ok((stream, line)) => {
                    self.line(&line)?;
                    lines.push((stream, line));
                }
                Err(RecvTimeoutError::Timeout) => self.show_progress(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = child.wait().context("cannot wait for a child")?;
        Ok(Finished { status, lines })
    }

    /// Keeps one line, and prints it if everything is shown.
    pub(crate) fn line(&mut self, line: &str) -> Result<()> {
        if is_message(line) {
            return Ok(());
        }
        writeln!(self.file, "{line}").with_context(|| format!("cannot write {}", self.name()))?;
        if self.show == Verbosity::Everything {
            eprintln!("{line}");
        }
        self.kept.push_back(line.to_owned());
        Ok(())
    }

    /// Prints progress when stderr is not a terminal.
    pub(crate) fn told(&self, line: &str) {
        if self.show == Verbosity::Progress && !std::io::stderr().is_terminal() {
            println!("{line}");
        }
    }

    /// Clears the progress from the terminal, so that the next line starts clean.
    pub(crate) fn clear_progress(&self) {
        if self.progress_is_seen() {
            eprint!("\r\x1b[K");
        }
    }

    /// Shows that the layer runs, and for how long.
    pub(crate) fn show_progress(&self) {
        if self.progress_is_seen() {
            eprint!("\r\x1b[Klayer {}: running, {}s", self.layer, self.watch.elapsed().as_secs());
        }
    }

    fn progress_is_seen(&self) -> bool {
        self.show == Verbosity::Progress && std::io::stderr().is_terminal()
    }
}

fn name_of(layer: &str) -> String {
    format!("target/xtask/{layer}.log")
}

/// Forwards the lines of a stream from a thread, so that neither pipe can fill up unread.
fn forward(
    stream: OutputStream,
    from: impl Read + Send + 'static,
    to: Sender<(OutputStream, String)>,
) {
    thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            if to.send((stream, line)).is_err() {
                return;
            }
            bytes.clear();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo::cargo;

    #[test]
    fn a_child_is_run_to_its_end_and_its_lines_are_kept() {
        let repo = Repo::find().unwrap();
        let mut log = LayerLog::create(&repo, "selftest", Verbosity::Progress).unwrap();
        let finished = log.run(cargo(&repo, "--version")).unwrap();
        assert!(finished.status.success());
        assert!(finished.last_line().starts_with("cargo "));
        assert_eq!(log.tail(1), [finished.last_line()]);
        assert_eq!(log.tail(9).len(), 2, "the command and what it said");
    }

    #[test]
    fn a_child_that_fails_says_so() {
        let repo = Repo::find().unwrap();
        let mut log = LayerLog::create(&repo, "selftest-failing", Verbosity::Progress).unwrap();
        let finished = log.run(cargo(&repo, "no-such-command")).unwrap();
        assert!(!finished.status.success());
        assert_eq!(finished.last_line(), "", "errors are not output");
    }
}
