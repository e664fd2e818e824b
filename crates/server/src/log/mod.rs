//! Installs the `tracing` subscriber of a process: one line per event on stderr, written by a thread of its own.
//!
//! ```text
//! any thread ─ event ─► Subscriber: level, line ─► LineQueue, bounded ─► log writer thread ─► stderr
//! ```
//!
//! An event never waits for stderr: a pipe that is not read, a slow disk or a stopped terminal must not stop the event
//! loop. While the queue is full, lines are dropped and counted.

mod level;
mod limit;
mod line;
mod queue;
mod subscriber;

use std::io::{self, IsTerminal, stderr};
use std::panic::PanicHookInfo;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;

use level::LevelCell;
pub(crate) use limit::Limiter;
pub use line::LineForm;
use queue::LineQueue;
use subscriber::Subscriber;

/// How long the end of the process waits until the last lines are written: many times what a live reader needs, and
/// short enough for a supervisor that waits for the process.
const FLUSH: Duration = Duration::from_secs(1);

static QUEUE: OnceLock<Arc<LineQueue>> = OnceLock::new();
static LEVEL: OnceLock<Arc<LevelCell>> = OnceLock::new();
static DROPPED: OnceLock<Counter> = OnceLock::new();

/// The least important lines that are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Level {
    /// The member or one of its threads cannot go on.
    Error,
    /// Something is wrong, and the member goes on.
    Warn,
    /// Changes of state: leadership, membership, snapshots, start and stop.
    #[default]
    Info,
    /// Details for finding the cause of a problem.
    Debug,
}

impl Level {
    /// The level with this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "error" => Some(Self::Error),
            "warn" => Some(Self::Warn),
            "info" => Some(Self::Info),
            "debug" => Some(Self::Debug),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    fn to_tracing(self) -> tracing::Level {
        match self {
            Self::Error => tracing::Level::ERROR,
            Self::Warn => tracing::Level::WARN,
            Self::Info => tracing::Level::INFO,
            Self::Debug => tracing::Level::DEBUG,
        }
    }
}

/// Sends the events of this process to stderr from now on: as `form`, or as text to a terminal and as JSON to anything
/// else. A panic is an event too. The first call decides; later calls change nothing.
///
/// # Errors
///
/// If the thread that writes the lines cannot start.
pub fn install(form: Option<LineForm>, level: Level) -> io::Result<()> {
    let terminal = stderr().is_terminal();
    let form = form.unwrap_or(if terminal { LineForm::Text } else { LineForm::Json });
    let queue = Arc::new(LineQueue::new(form, dropped_lines()));
    let level = Arc::new(LevelCell::new(level));
    let subscriber = Subscriber::new(queue.clone(), form, level.clone());
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        return Ok(());
    }
    let writer = queue.clone();
    std::thread::Builder::new()
        .name("tenure-log".to_owned())
        .spawn(move || writer.write_to(stderr()))?;
    let _ = QUEUE.set(queue);
    let _ = LEVEL.set(level);
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// Queues text for stderr unchanged, behind the lines that were logged before. Returns whether a log is installed; if
/// not, the caller writes the text itself.
pub fn print(text: &str) -> bool {
    QUEUE.get().map(|queue| queue.push(text.to_owned())).is_some()
}

/// Waits until everything logged before is written; at most a second, because stderr may not be read. Call it before
/// the process ends.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH);
    }
}

/// The level in force; none if no log is installed.
pub fn level() -> Option<Level> {
    LEVEL.get().map(|level| level.get())
}

/// Changes the level of the whole process and returns the previous one; none if no log is installed.
pub fn set_level(level: Level) -> Option<Level> {
    let before = LEVEL.get()?.set(level);
    let (from, to) = (before.name(), level.name());
    tracing::warn!(from, to, "log level changed");
    Some(before)
}

/// The wall clock as text, for records that people read.
pub(crate) fn wall_time() -> String {
    line::now()
}

/// Counts the lines that this process has dropped.
pub(crate) fn dropped_lines() -> Counter {
    DROPPED.get_or_init(Counter::default).clone()
}

/// Replaces the default hook, which writes to stderr itself and could block there. In a release build the process is
/// aborted next, so the line must be written before this returns.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let at = panic.location().map(ToString::to_string).unwrap_or_default();
    let payload = panic.payload();
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let what = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("unknown");
    let trace = std::backtrace::Backtrace::capture();
    let captured = trace.status() == std::backtrace::BacktraceStatus::Captured;
    let backtrace = captured.then(|| trace.to_string());
    let thread = thread.name().unwrap_or("unnamed");
    tracing::error!(thread, at, what, backtrace, "panic");
    flush();
}
