//! Chooses the signals that `tenure run` passes on and those that its watchdog survives.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU,
    SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

/// A signal that this process received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReceivedSignal {
    pub(super) number: i32,
    /// Whether the terminal sent it, and so to every process of the job.
    pub(super) by_terminal: bool,
}

impl From<Origin> for ReceivedSignal {
    fn from(origin: Origin) -> Self {
        Self { number: origin.signal, by_terminal: matches!(origin.cause, Cause::Kernel) }
    }
}

/// Signals that a user may send to `tenure` and mean for the command.
const PASSED_ON: &[i32] =
    &[SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGTSTP, SIGCONT];

/// Signals with which the terminal stops a job in the background.
const BACKGROUND: &[i32] = &[SIGTTIN, SIGTTOU];

/// Subscribes to all signals that are passed on or stop a job, and to SIGCHLD for the watchdog. Signals that `tenure`
/// was started to ignore, as by `nohup`, stay ignored, also by the command.
pub(super) fn register() -> io::Result<SignalsInfo<WithOrigin>> {
    let ignored = ignored();
    let wanted = PASSED_ON.iter().chain(BACKGROUND).copied();
    let wanted = wanted.filter(|signal| !ignored.contains(signal));
    SignalsInfo::new(wanted.chain([SIGCHLD]))
}

/// Makes signals that would end or stop this process have no effect. Programs that it starts get the default
/// behaviour: unlike an ignored signal, a handler does not outlive exec.
pub(super) fn ignore_in_this_process() -> io::Result<()> {
    let ignored = ignored();
    let unheard = Arc::new(AtomicBool::new(false));
    let unwanted = PASSED_ON.iter().chain(BACKGROUND);
    for signal in unwanted.filter(|it| **it != SIGCONT && !ignored.contains(it)) {
        signal_hook::flag::register(*signal, unheard.clone())?;
    }
    Ok(())
}

/// The name of a signal, such as `SIGTERM`.
pub(super) fn name(signal: i32) -> String {
    let name = signal_hook::low_level::signal_name(signal);
    name.map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// The signals that this process ignores.
fn ignored() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (1..=64).filter(|signal| mask >> (signal - 1) & 1 == 1).collect()
}
