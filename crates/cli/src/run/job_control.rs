//! Handles signals to `tenure run`, and commands that job control stops and continues.

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH,
};

use crate::duration::shown;

use super::link::WatchdogLink;
use super::locked_command::LockedCommand;
use super::protocol::WatchdogOrder;
use super::signals::{self, ReceivedSignal};
use super::terminal::JobTerminal;
use super::times::now_us;
use super::tree;

impl LockedCommand<'_> {
    /// Passes a signal on to the command, unless the terminal has sent it to both.
    pub(super) fn signalled(&mut self, heard: ReceivedSignal, link: &WatchdogLink) {
        let signal = heard.number;
        let shares = self.terminal.is_some();
        let passes = match signal {
            SIGCHLD => return link.keep_awake(),
            // The command is stopped too, and that is reported.
            SIGTTIN | SIGTTOU => return,
            // A shell continues the whole job; another process may mean `tenure` alone.
            SIGCONT => !shares || self.suspended,
            SIGINT | SIGQUIT | SIGTSTP | SIGWINCH => !(shares && heard.by_terminal),
            _ => true,
        };
        if passes {
            link.order(WatchdogOrder::Signal(signal));
        }
        if signal == SIGTERM {
            let grace = shown(self.job.times.grace);
            let name = self.name();
            self.messages.unusual(&format!("SIGTERM passed on to {name}, SIGKILL in {grace}"));
            link.order(WatchdogOrder::Terminate);
        } else if signal != SIGWINCH {
            let name = signals::name(signal);
            self.messages.event("signal", &json!({ "signal": name }));
        }
    }

    /// Says that a signal stopped the command. A job that a shell controls is then stopped as a whole, as every job is;
    /// its lock ends in time unless the user continues it.
    pub(super) fn stopped(&mut self, signal: i32, link: &WatchdogLink) {
        // The report may be older than a continuation.
        if self.lost.is_some() || !self.main.is_some_and(tree::is_stopped) {
            return;
        }
        let controlled = self.terminal.as_ref().is_some_and(JobTerminal::is_controlled);
        if signal == SIGTSTP && self.terminal.is_some() && !controlled {
            self.messages
                .unusual("Ctrl-Z has no effect: there is no shell that could continue the command");
            return link.order(WatchdogOrder::Signal(SIGCONT));
        }
        self.suspended = true;
        let (name, what, word) = (self.name(), self.what(), signals::name(signal));
        let why = match signal {
            SIGTTIN => ", because it reads from the terminal in the background",
            SIGTTOU => ", because it writes to the terminal in the background",
            _ => "",
        };
        let left_us = self.deadlines.lost_us.saturating_sub(now_us());
        let left = Duration::from_micros(left_us);
        let lost_in_ms = controlled.then_some(left_us / 1_000);
        self.messages.event("suspended", &json!({ "signal": word, "lost_in_ms": lost_in_ms }));
        if !controlled {
            let pid = self.main.map_or(0, |pid| pid.as_raw_nonzero().get());
            return self.messages.unusual(&format!(
                "{name} stopped by {word}{why}: {what} stays held until it goes on: kill -CONT {pid}"
            ));
        }
        self.messages.unusual(&format!(
            "{name} stopped by {word}{why}: {what} is lost and the command killed in {}, unless continued: fg",
            shown(left)
        ));
        // Only what is written before the stop is read in time.
        self.messages.flush();
        // A user may have typed `fg` as soon as the message was shown. A shell that still saw a running job has then
        // given it the terminal and continued nothing.
        let is_foreground = self.terminal.as_ref().is_some_and(JobTerminal::is_foreground);
        if matches!(signal, SIGTTIN | SIGTTOU) && is_foreground {
            link.order(WatchdogOrder::Signal(SIGCONT));
        } else if self.main.is_some_and(tree::is_stopped) {
            let _ = kill_process(getpid(), Signal::STOP);
        }
    }

    /// Says that the command goes on.
    pub(super) fn continued(&mut self) {
        if !std::mem::take(&mut self.suspended) || self.lost.is_some() {
            return;
        }
        let (name, what) = (self.name(), self.what());
        self.messages.event("continued", &json!({}));
        // A user at a terminal sees it go on, and a program that draws on the whole screen has just drawn it.
        if !self.messages.is_live() && self.hold.guard().check().is_ok() {
            self.messages.unusual(&format!("{name} continued, {what} is still held"));
        }
    }
}
