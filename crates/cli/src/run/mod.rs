//! Runs a command while its lock is held, and ends it before the cluster can grant the lock to another client.
//!
//! Three processes take part. `tenure run` holds the lock (`front.rs`, `queue.rs`, `under.rs`). Its child, the
//! watchdog, knows the deadlines and is the parent of the command (`watchdog.rs`). `start.rs` becomes the command. If
//! any of them stops, dies or starves, the others end everything in time. `docs/guides/run.md` says what that covers.

mod codes;
mod environment;
mod front;
mod give_back;
mod job_control;
mod lead;
mod link;
mod locked_command;
mod messages;
mod nested;
mod protocol;
mod queue;
mod reaper;
mod refuse;
mod release_watch;
mod resolve;
mod signals;
mod start;
mod terminal;
mod terraform;
mod times;
mod tree;
mod waiting;
mod watchdog;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};

pub(crate) use lead::{Candidacy, lead};

use crate::duration;
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::output;
use crate::print_args::QuietArgs;

/// The running binary, even after its file was replaced.
const SELF: &str = "/proc/self/exe";
/// Arguments that mark our own processes; users do not type them.
const WATCHDOG: &str = "__watchdog";
const START: &str = "__start";

/// Flags of `tenure run`.
#[derive(Args)]
pub(crate) struct RunArgs {
    /// Which lock; several are acquired together, all or none, or with --any one of them
    #[arg(value_name = "LOCK", value_parser = output::lock_name, required = true)]
    locks: Vec<String>,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, last = true)]
    command: Vec<OsString>,
    /// Queue at most this long; 0 tries once [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Lease TTL, 1s to 1h: how long the lock stays held after this process dies
    #[arg(long, value_name = "TIME", value_parser = duration::ttl, default_value = "15s")]
    ttl: Duration,
    /// From SIGTERM to SIGKILL on loss [default: a third of ttl, at most 5s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    grace: Option<Duration>,
    /// Acquire any one of the locks: the first that is free
    #[arg(long)]
    any: bool,
    /// LOCK is a prefix: acquire any slot of the pool, of the semaphores below it that have a size
    #[arg(long, group = "semaphore", conflicts_with_all = ["any", "shared"])]
    pool: bool,
    /// Acquire in shared (read) mode
    #[arg(long, conflicts_with = "slots")]
    shared: bool,
    /// Acquire one of N semaphore slots
    #[arg(long, value_name = "N", group = "semaphore", value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,
    /// Acquire so many of the slots, all or none
    #[arg(
        long,
        value_name = "N",
        requires = "semaphore",
        default_value = "1",
        hide_default_value = true
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    take: u32,
    /// Stop the command one ttl before this time, so that others can have the lock by then
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    max_hold: Option<Duration>,
    /// At most one start in this time (nine tenths of it); a run that is skipped exits with 0
    #[arg(long, value_name = "TIME", value_parser = duration::some, conflicts_with_all = ["any", "pool"])]
    once_per: Option<Duration>,
    /// Replace older runs of this group that wait for the lock
    #[arg(long, value_name = "GROUP", value_parser = output::name)]
    supersede: Option<String>,
    /// How urgent it is, 0 to 9: each step counts as having asked 30s earlier
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = output::priority)]
    priority: u8,
    /// Stop the command if it does not report a larger number with `tenure progress N` within this time, each time
    #[arg(long, value_name = "TIME", value_parser = duration::within)]
    progress_within: Option<Duration>,
    /// Delay before re-grant after involuntary loss
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "0", hide_default_value = true)]
    lock_delay: Duration,
    /// What happens to the command while a renewal is late
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    on_doubt: OnDoubt,
    /// Description shown when the lock is inspected, such as "release 5.2"
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    metadata: String,
    /// Set Terraform's variables to this state of a `tenure store`, with a ticket that proves this run's lock
    #[arg(long, value_name = "URL", value_parser = terraform::url)]
    #[arg(conflicts_with_all = ["shared", "slots", "any", "pool"])]
    terraform: Option<String>,
    /// Exit with this code instead of 75 if the lock was not acquired
    #[arg(long, value_name = "N", default_value_t = codes::NOT_ACQUIRED)]
    held_code: u8,
    /// Write one JSON object per event to this file
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

impl RunArgs {
    /// How long to queue; `None` for no limit. Of a job that runs once per period, the next run comes with the next
    /// period, so there is nothing to queue for.
    fn wait(&self) -> Option<Duration> {
        self.wait.or(self.once_per.map(|_| Duration::ZERO))
    }

    /// The least time from one start to the next: nine tenths of the period, so that a timer that is early by up to a
    /// tenth of it does not skip a period.
    fn min_hold(&self) -> Duration {
        self.once_per.map_or(Duration::ZERO, |period| period / 10 * 9)
    }

    /// What is asked for, with its names: lock `deploy`, one of locks `a`, `b`, or pool `gpu/`.
    fn named(&self) -> String {
        match (self.any && self.locks.len() > 1, self.pool) {
            (true, _) => format!("one of {}", named(&self.locks)),
            (false, true) => format!("pool `{}`", output::shortened(self.first())),
            (false, false) => named(&self.locks),
        }
    }

    /// Checks what the parser of the arguments does not: a pool has one prefix.
    fn check(&self) -> Result<(), CliError> {
        if self.pool && self.locks.len() > 1 {
            let first = quoted(self.first());
            let text = format!("--pool takes one prefix: tenure run --pool {first} -- COMMAND");
            return Err(CliError::arguments(text));
        }
        Ok(())
    }

    /// Whether the cluster decides which lock it is.
    fn is_choice(&self) -> bool {
        self.any || self.pool
    }

    /// The first lock, for commands that take one.
    fn first(&self) -> &str {
        self.locks.first().map_or("", String::as_str)
    }
}

/// The locks with their names: lock `deploy`, or locks `a`, `b`.
fn named(locks: &[String]) -> String {
    let names: Vec<String> =
        locks.iter().map(|lock| format!("`{}`", output::shortened(lock))).collect();
    let noun = if locks.len() == 1 { "lock" } else { "locks" };
    format!("{noun} {}", names.join(", "))
}

/// What happens to the command while the lock is doubtful.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum OnDoubt {
    /// It goes on, until the lock is lost
    #[default]
    Continue,
    /// It is stopped, and continued when the lock is sure again
    Freeze,
}

/// Runs `tenure run`.
pub(crate) fn run(flags: &RunArgs) -> Result<Exit, CliError> {
    front::run(flags).map(Exit::Command)
}

/// Runs the watchdog or the start of the command, if this process was started as one of them.
pub(crate) fn inside() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let word = arguments.next()?;
    let rest: Vec<OsString> = arguments.collect();
    match word.to_str()? {
        WATCHDOG => Some(match watchdog::Task::read(&rest) {
            Some(task) => watchdog::run(&task),
            None => ExitCode::from(codes::USAGE),
        }),
        START => Some(start::run(&rest)),
        _ => None,
    }
}
