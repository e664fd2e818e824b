//! Defines the messages between `tenure run` and its watchdog.
//!
//! They are lines of text over a local socket between two processes of the same binary; no other program reads them.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use super::times::Deadlines;

/// A message to the watchdog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WatchdogOrder {
    /// A renewal was acknowledged; these are the new deadlines.
    Until(Deadlines),
    /// The command may begin.
    Go,
    /// `tenure` received this signal and passes it on to the command.
    Signal(i32),
    /// Kill everything after the grace, although the lock is not lost.
    Terminate,
    /// The lock is lost.
    Stop,
}

/// A message from the watchdog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WatchdogReport {
    /// The command is ready to begin, as the leader of this process group.
    Ready { group: i32 },
    /// A signal stopped the command.
    Stopped { signal: i32 },
    /// A stopped command was continued.
    Continued,
    /// The watchdog stopped these processes because the lock is doubtful.
    Frozen { processes: usize },
    /// The watchdog continued the processes because the lock is no longer doubtful.
    Thawed,
    /// `processes` received SIGTERM, `killed` were killed at once, and the rest is killed in `kill_in_us`.
    Stopping { lost: bool, processes: usize, killed: usize, kill_in_us: u64 },
    /// `processes` received SIGKILL.
    Killing { processes: usize },
    /// The command itself ended.
    Ended(CommandEnd),
    /// No process of the command is left.
    Gone(ProcessesGone),
}

/// When no process was left, and what took how long until then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProcessesGone {
    /// Since when no process was found alive.
    pub(super) at_us: u64,
    /// How long after its deadline the watchdog acted: it was frozen, or not scheduled.
    pub(super) late_us: u64,
    /// The time from the first SIGKILL to `at_us`: a killed process has to be scheduled to die.
    pub(super) dying_us: u64,
}

/// How the command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CommandEnd {
    Code(i32),
    Signal(i32),
}

impl WatchdogOrder {
    fn line(self) -> String {
        match self {
            Self::Until(it) => format!("until {} {} {}", it.doubt_us, it.lost_us, it.kill_us),
            Self::Go => "go".to_owned(),
            Self::Signal(signal) => format!("signal {signal}"),
            Self::Terminate => "terminate".to_owned(),
            Self::Stop => "stop".to_owned(),
        }
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        Some(match words[..] {
            ["until", doubt, lost, kill] => Self::Until(Deadlines {
                doubt_us: doubt.parse().ok()?,
                lost_us: lost.parse().ok()?,
                kill_us: kill.parse().ok()?,
            }),
            ["go"] => Self::Go,
            ["signal", signal] => Self::Signal(signal.parse().ok()?),
            ["terminate"] => Self::Terminate,
            ["stop"] => Self::Stop,
            _ => return None,
        })
    }

    pub(super) fn send(self, mut to: &UnixStream) -> io::Result<()> {
        to.write_all(format!("{}\n", self.line()).as_bytes())
    }
}

impl WatchdogReport {
    fn line(self) -> String {
        match self {
            Self::Ready { group } => format!("ready {group}"),
            Self::Stopped { signal } => format!("stopped {signal}"),
            Self::Continued => "continued".to_owned(),
            Self::Frozen { processes } => format!("frozen {processes}"),
            Self::Thawed => "thawed".to_owned(),
            Self::Stopping { lost, processes, killed, kill_in_us } => {
                format!("stopping {lost} {processes} {killed} {kill_in_us}")
            }
            Self::Killing { processes } => format!("killing {processes}"),
            Self::Ended(CommandEnd::Code(code)) => format!("ended {code}"),
            Self::Ended(CommandEnd::Signal(signal)) => format!("ended by {signal}"),
            Self::Gone(ProcessesGone { at_us, late_us, dying_us }) => {
                format!("gone {at_us} {late_us} {dying_us}")
            }
        }
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        Some(match words[..] {
            ["ready", group] => Self::Ready { group: group.parse().ok()? },
            ["stopped", signal] => Self::Stopped { signal: signal.parse().ok()? },
            ["continued"] => Self::Continued,
            ["frozen", processes] => Self::Frozen { processes: processes.parse().ok()? },
            ["thawed"] => Self::Thawed,
            ["stopping", lost, processes, killed, kill_in_us] => Self::Stopping {
                lost: lost.parse().ok()?,
                processes: processes.parse().ok()?,
                killed: killed.parse().ok()?,
                kill_in_us: kill_in_us.parse().ok()?,
            },
            ["killing", processes] => Self::Killing { processes: processes.parse().ok()? },
            ["ended", code] => Self::Ended(CommandEnd::Code(code.parse().ok()?)),
            ["ended", "by", signal] => Self::Ended(CommandEnd::Signal(signal.parse().ok()?)),
            ["gone", at_us, late_us, dying_us] => Self::Gone(ProcessesGone {
                at_us: at_us.parse().ok()?,
                late_us: late_us.parse().ok()?,
                dying_us: dying_us.parse().ok()?,
            }),
            _ => return None,
        })
    }

    pub(super) fn send(self, mut to: &UnixStream) -> io::Result<()> {
        to.write_all(format!("{}\n", self.line()).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let until = Deadlines { doubt_us: 1, lost_us: 2, kill_us: 3 };
        for order in [
            WatchdogOrder::Until(until),
            WatchdogOrder::Go,
            WatchdogOrder::Signal(15),
            WatchdogOrder::Terminate,
            WatchdogOrder::Stop,
        ] {
            assert_eq!(WatchdogOrder::parse(&order.line()), Some(order));
        }
        let reports = [
            WatchdogReport::Ready { group: 7 },
            WatchdogReport::Stopped { signal: 20 },
            WatchdogReport::Continued,
            WatchdogReport::Frozen { processes: 2 },
            WatchdogReport::Thawed,
            WatchdogReport::Stopping { lost: true, processes: 3, killed: 1, kill_in_us: 9 },
            WatchdogReport::Killing { processes: 3 },
            WatchdogReport::Ended(CommandEnd::Code(4)),
            WatchdogReport::Ended(CommandEnd::Signal(9)),
            WatchdogReport::Gone(ProcessesGone { at_us: 5, late_us: 6, dying_us: 7 }),
        ];
        for report in reports {
            assert_eq!(WatchdogReport::parse(&report.line()), Some(report));
        }
    }
}
