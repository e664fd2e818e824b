//! Decides how the command shares the terminal with `tenure`.
//!
//! With a controlling terminal, the command runs in the process group of `tenure`: it is a part of the same job. The
//! terminal then treats both alike, in the foreground, in the background and in a pipeline, and Ctrl-C, Ctrl-\ and
//! Ctrl-Z reach the command directly. Without a controlling terminal, as under cron or systemd, the command has a group
//! of its own, so that a signal to the group of `tenure` reaches it once, through `tenure`.

use std::fs::File;

use rustix::process::{Pid, getpid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

use super::tree;

/// The most ancestors that are looked at.
const ANCESTORS_MAX: usize = 100;

/// The controlling terminal of this process, as it was at the start.
pub(super) struct JobTerminal {
    tty: File,
    modes: Option<Termios>,
    /// The process group of the job.
    group: Pid,
    /// Whether a process outside of the job, a shell, can continue the job after it was stopped.
    is_controlled: bool,
}

impl JobTerminal {
    /// The controlling terminal, if there is one and this process can name its own group. A process that was put into a
    /// new PID namespace without a new session cannot: nothing in the namespace can join its group.
    pub(super) fn open() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let group = tree::stat(getpid())?.group?;
        let mut terminal = Self { tty, modes: None, group, is_controlled: has_shell() };
        if terminal.is_foreground() {
            terminal.modes = tcgetattr(&terminal.tty).ok();
        }
        Some(terminal)
    }

    /// The process group of the job.
    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Whether a stopped job can be continued: a shell of the same session controls it. Nothing would continue the job
    /// of `ssh -t host tenure run …` or of a container.
    pub(super) fn is_controlled(&self) -> bool {
        self.is_controlled
    }

    /// Restores the modes of the terminal after a command was killed, which may have left it without echo.
    pub(super) fn restore(&self) {
        if let Some(modes) = self.modes.as_ref().filter(|_| self.is_foreground()) {
            let _ = tcsetattr(&self.tty, OptionalActions::Drain, modes);
        }
    }

    /// Whether the terminal is given to the job.
    pub(super) fn is_foreground(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == self.group)
    }
}

/// Whether an ancestor in the same session has another process group.
fn has_shell() -> bool {
    let Some(own) = tree::stat(getpid()) else { return false };
    let parent = |it: &tree::ProcessStat| tree::stat(it.parent?);
    let ancestors = std::iter::successors(parent(&own), parent).take(ANCESTORS_MAX);
    let mut session = ancestors.take_while(|it| it.session == own.session);
    session.any(|it| it.group != own.group)
}
