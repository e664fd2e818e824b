//! Which signals does `tenure run` pass on, and which does its watchdog shrug off?

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
    SIGWINCH,
};
use signal_hook::iterator::Signals;

/// What somebody may mean for the command when they send it to `tenure`.
const PASSED_ON: &[i32] =
    &[SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGTSTP, SIGCONT];

/// Hears everything that is passed on, and of the watchdog. What `tenure` was started to ignore, as by `nohup`, stays
/// ignored, by the command too.
pub(super) fn heard() -> io::Result<Signals> {
    let ignored = ignored();
    let wanted = PASSED_ON.iter().copied().filter(|signal| !ignored.contains(signal));
    Signals::new(wanted.chain([SIGCHLD]))
}

/// What would end or stop a process has no effect on this one. What it starts has the usual behaviour: a handler,
/// unlike a signal that is ignored, does not outlive exec.
pub(super) fn shrug() -> io::Result<()> {
    let ignored = ignored();
    let unheard = Arc::new(AtomicBool::new(false));
    for signal in PASSED_ON.iter().filter(|it| **it != SIGCONT && !ignored.contains(it)) {
        signal_hook::flag::register(*signal, unheard.clone())?;
    }
    Ok(())
}

/// `SIGTERM`.
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
