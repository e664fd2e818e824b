//! Decides how the command shares the terminal with `tenure`.
//!
//! With a controlling terminal, the command runs in the process group of `tenure`: it is a part of the same job. The
//! terminal then treats both alike, in the foreground, in the background and in a pipeline, and Ctrl-C, Ctrl-\ and
//! Ctrl-Z reach the command directly. Without a controlling terminal, as under cron or systemd, the command has a group
//! of its own, so that a signal to the group of `tenure` reaches it once, through `tenure`.

use std::fs::{self, File};

use rustix::process::{Pid, getpgid, getpgrp, getpid, getsid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// The most ancestors that are looked at.
const ANCESTORS_MAX: usize = 100;

/// The controlling terminal of this process, as it was at the start.
pub(super) struct JobTerminal {
    tty: File,
    modes: Option<Termios>,
    /// Whether a process outside of the job, a shell, can continue the job after it was stopped.
    is_controlled: bool,
}

impl JobTerminal {
    /// The controlling terminal, if there is one.
    pub(super) fn open() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let modes = if is_foreground(&tty) { tcgetattr(&tty).ok() } else { None };
        Some(Self { tty, modes, is_controlled: has_shell() })
    }

    /// The process group of the job.
    pub(super) fn group(&self) -> Pid {
        getpgrp()
    }

    /// Whether a stopped job can be continued: a shell of the same session controls it. Nothing would continue the job
    /// of `ssh -t host tenure run …` or of a container.
    pub(super) fn is_controlled(&self) -> bool {
        self.is_controlled
    }

    /// Restores the modes of the terminal after a command was killed, which may have left it without echo.
    pub(super) fn restore(&self) {
        if let Some(modes) = self.modes.as_ref().filter(|_| is_foreground(&self.tty)) {
            let _ = tcsetattr(&self.tty, OptionalActions::Drain, modes);
        }
    }
}

fn is_foreground(tty: &File) -> bool {
    tcgetpgrp(tty).is_ok_and(|group| group == getpgrp())
}

/// Whether an ancestor in the same session has another process group.
fn has_shell() -> bool {
    let (session, group) = (getsid(None).ok(), getpgrp());
    let ancestors = std::iter::successors(parent(getpid()), |pid| parent(*pid));
    let session = |pid: &Pid| session.is_some() && getsid(Some(*pid)).ok() == session;
    let mut ancestors = ancestors.take(ANCESTORS_MAX).take_while(session);
    ancestors.any(|pid| getpgid(Some(pid)).is_ok_and(|it| it != group))
}

fn parent(of: Pid) -> Option<Pid> {
    let text = fs::read_to_string(format!("/proc/{of}/stat")).ok()?;
    Pid::from_raw(text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?)
}
