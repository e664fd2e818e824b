//! Hands the terminal to the command's process group and takes it back, so that prompts and editors work.
//!
//! The group in the foreground gives it to the command's group. The command's group gives it back before it is gone.
//! Only a process in the foreground may do either: at the end that is the usher, a process of ours that is started in
//! the command's group.

use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, getpgid, getpgrp, getppid, waitid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::{SELF, USHER};

/// How long the usher may take: the reaper does nothing else meanwhile.
const ROUND: Duration = Duration::from_millis(1);
const ROUNDS: usize = 50;

/// Gives the foreground to a group and returns whether it did. It does so only if this group has the foreground and
/// both stdin and stdout are the terminal: in a pipeline the other processes need it too.
pub(super) fn give(group: Pid) -> bool {
    let whole = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let Some(tty) = tty().filter(|_| whole) else { return false };
    tcgetpgrp(&tty).is_ok_and(|now| now == getpgrp()) && tcsetpgrp(&tty, group).is_ok()
}

/// Whether a process has ended and is not yet reaped.
pub(super) fn has_ended(pid: Pid) -> bool {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(pid), how), Ok(Some(_)))
}

/// Starts a process that gives the foreground of an ending group to our parent's group.
pub(super) fn hand_back(from: Pid) {
    let Some(tty) = tty() else { return };
    if !tcgetpgrp(&tty).is_ok_and(|now| now == from) {
        return;
    }
    let Some(to) = getppid().and_then(|parent| getpgid(Some(parent)).ok()) else { return };
    let mut usher = Command::new(SELF);
    usher.arg(USHER).arg(to.to_string()).process_group(from.as_raw_nonzero().get());
    usher.stdin(Stdio::null()).stdout(Stdio::null());
    // Without the usher an interactive shell takes its terminal back by itself; a script may not.
    let Ok(mut usher) = usher.spawn() else { return };
    for _ in 0..ROUNDS {
        if !matches!(usher.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(ROUND);
    }
    let _ = usher.kill();
    let _ = usher.wait();
}

/// Runs the usher process.
pub(super) fn usher(to: Option<Pid>) -> ExitCode {
    let given = tty().zip(to).is_some_and(|(tty, to)| tcsetpgrp(&tty, to).is_ok());
    if given { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tty() -> Option<File> {
    File::options().read(true).write(true).open("/dev/tty").ok()
}
