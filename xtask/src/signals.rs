//! Lets tests receive signals that whoever started this program had ignored, as `nohup` and `&` in a script do.
//!
//! Programs inherit what is ignored, and the tests of `tenure run` interrupt what they start. A signal that has a
//! handler in this program has its usual effect again in every program that it starts.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT};

/// Gives the ignored ones of these signals a handler without effect: this program goes on ignoring them.
pub(crate) fn stop_ignoring() -> Result<()> {
    let status = fs::read_to_string("/proc/self/status").context("cannot read what is ignored")?;
    let ignored = ignored(&status).context("/proc/self/status has no mask of ignored signals")?;
    for signal in [SIGHUP, SIGINT, SIGQUIT] {
        if ignored & (1 << (signal - 1)) != 0 {
            let unread = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, unread).context("cannot set a handler")?;
        }
    }
    Ok(())
}

/// The signals that a process ignores, one bit for each.
fn ignored(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Says to this test that it was started by itself, with a signal that is ignored.
    const INNER: &str = "XTASK_TEST_INNER";

    #[test]
    fn a_program_that_is_started_gets_signals_that_were_ignored() {
        const NAME: &str =
            "signals::tests::a_program_that_is_started_gets_signals_that_were_ignored";
        if std::env::var_os(INNER).is_some() {
            stop_ignoring().unwrap();
            let shown = Command::new("cat").arg("/proc/self/status").output().unwrap();
            return println!("\n{}", String::from_utf8_lossy(&shown.stdout));
        }
        let script =
            format!("trap '' INT; cat /proc/self/status; exec \"$0\" --exact {NAME} --nocapture");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).arg(std::env::current_exe().unwrap()).env(INNER, "1");
        let out = String::from_utf8(shell.output().unwrap().stdout).unwrap();
        let interrupt = 1 << (SIGINT - 1);
        let masks: Vec<u64> =
            out.lines().filter_map(ignored).map(|mask| mask & interrupt).collect();
        assert_eq!(masks, [interrupt, 0], "before and after");
    }
}
