//! Stops the command when `tenure run` itself is stopped, killed or starved.
//!
//! The watchdog is a process between `tenure run` and the command, in a process group of its own: neither a terminal
//! nor a signal to `tenure`'s group reaches it. It is the command's parent and the subreaper of everything that the
//! command starts, so all of it stays below. It knows by the clock alone when the lock is doubtful, when it is lost
//! and when no process may be left; `tenure run` only ever sends later deadlines. The main thread starts the command
//! and lives as long as the process: the kernel sends the command's parent-death signal when that thread ends. The
//! main thread waits only for the clock, changes of processes and orders; another thread reaps ended processes
//! (`reaper.rs`).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::num::NonZeroI32;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{
    Pid, Signal, WaitStatus, getpid, getppid, getpriority_process, kill_process,
    kill_process_group, set_child_subreaper, setpriority_process,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::duration::shown;

use super::protocol::{CommandEnd, ProcessesGone, WatchdogOrder, WatchdogReport};
use super::reaper::{ChildChange, Reaper};
use super::times::{Deadlines, now_us};
use super::tree::{self, ProcessState};
use super::{SELF, START, give_back, messages, signals, times};

/// How soon after SIGKILL the watchdog checks again for processes that are left or new.
const AGAIN: Duration = Duration::from_millis(2);
/// The rounds of stopping until no process is found running. Processes that fork faster than this are killed in the
/// end.
const FREEZE_ROUNDS: usize = 50;
const FREEZE_ROUND: Duration = Duration::from_millis(1);
/// The highest priority; no other process has it by chance.
const FIRST: i32 = -20;
/// How long printing the last message may take.
const LAST: Duration = Duration::from_secs(1);
/// The longest order line that is accepted: orders are short.
const LINE_MAX: usize = 256;

/// Everything that the watchdog receives when it starts.
pub(super) struct Task {
    /// The abstract name of the socket on which `tenure run` listens.
    pub(super) socket: String,
    pub(super) deadlines: Deadlines,
    pub(super) grace_us: u64,
    /// Whether the command is stopped while the lock is doubtful.
    pub(super) freeze: bool,
    /// The process group of `tenure run`, if the command is to join it.
    pub(super) job: Option<i32>,
    /// Whether credentials may be sent without TLS, when the watchdog itself gives the locks back.
    pub(super) insecure: bool,
    pub(super) command: Vec<OsString>,
}

impl Task {
    /// The task as arguments of the process.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let Deadlines { doubt_us, lost_us, kill_us } = self.deadlines;
        let numbers = [
            doubt_us,
            lost_us,
            kill_us,
            self.grace_us,
            u64::from(self.freeze),
            u64::from(self.insecure),
        ];
        let mut arguments = vec![OsString::from(&self.socket)];
        arguments.extend(numbers.map(|number| number.to_string().into()));
        arguments.push(self.job.unwrap_or(0).to_string().into());
        arguments.extend(self.command.iter().cloned());
        arguments
    }

    /// Reads the task back from the arguments.
    pub(super) fn read(arguments: &[OsString]) -> Option<Self> {
        let [socket, doubt, lost, kill, grace, freeze, insecure, job, command @ ..] = arguments
        else {
            return None;
        };
        let number = |text: &OsString| text.to_str()?.parse().ok();
        let deadlines =
            Deadlines { doubt_us: number(doubt)?, lost_us: number(lost)?, kill_us: number(kill)? };
        Some(Self {
            socket: socket.to_str()?.to_owned(),
            deadlines,
            grace_us: number(grace)?,
            freeze: number(freeze)? != 0,
            insecure: number(insecure)? != 0,
            job: job.to_str()?.parse().ok().filter(|job| *job != 0),
            command: command.to_vec(),
        })
    }
}

/// Watches one command from its start to its end.
pub(super) fn run(task: &Task) -> ExitCode {
    match WatchdogProcess::start(task) {
        Ok(mut watchdog) => {
            watchdog.watch();
            if !watchdog.link.open {
                // Nothing else is left that could.
                print_last(match give_back::give_back(task.insecure) {
                    Ok(()) => {
                        "tenure: everything has ended and the lock is given back\n".to_owned()
                    }
                    Err(failure) => {
                        format!("tenure: the lock is not given back: {}\n", failure.text)
                    }
                });
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: the watchdog cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}

struct WatchdogProcess {
    link: RunLink,
    timer: OwnedFd,
    reaper: Reaper,
    own: Pid,
    main: Pid,
    /// The command's process group.
    group: Pid,
    begun: bool,
    ended: Option<CommandEnd>,
    deadlines: Deadlines,
    grace_us: u64,
    freeze: bool,
    frozen: bool,
    lost: bool,
    /// When everything is killed, once it has to end.
    kill_us: Option<u64>,
    killed: bool,
    /// Every process that was found while everything had to end.
    known: BTreeSet<NonZeroI32>,
    /// Since when none of them was found alive.
    dead_us: Option<u64>,
    /// When the first of them was killed.
    struck_us: Option<u64>,
    /// The most that the watchdog acted after a deadline.
    late_us: u64,
}

/// The socket to `tenure run`.
struct RunLink {
    stream: UnixStream,
    heard: Vec<u8>,
    /// Whether `tenure run` is still connected.
    open: bool,
}

impl WatchdogProcess {
    fn start(task: &Task) -> io::Result<Self> {
        // Become the subreaper before any process can be below this one.
        set_child_subreaper(Some(getpid()))?;
        // A name of its own distinguishes it from `tenure run` in process lists, and for users who signal by name.
        let _ = std::fs::write("/proc/self/comm", "watchdog");
        signals::ignore_in_this_process()?;
        let link = RunLink::open(&task.socket)?;
        let timer = timerfd_create(
            TimerfdClockId::Boottime,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let usual = rush();
        let mut command = Command::new(SELF);
        command.arg0("tenure").arg(START).args([getpid().to_string(), usual.to_string()]);
        command.args(&task.command);
        let child = command.process_group(task.job.unwrap_or(0)).spawn()?;
        let main = Pid::from_child(&child);
        Ok(Self {
            link,
            timer,
            reaper: Reaper::start()?,
            own: getpid(),
            main,
            group: task.job.and_then(Pid::from_raw).unwrap_or(main),
            begun: false,
            ended: None,
            deadlines: task.deadlines,
            grace_us: task.grace_us,
            freeze: task.freeze,
            frozen: false,
            lost: false,
            kill_us: None,
            killed: false,
            known: BTreeSet::new(),
            dead_us: None,
            struck_us: None,
            late_us: 0,
        })
    }

    /// Watches until no process is left below it.
    fn watch(&mut self) {
        loop {
            for order in self.link.orders() {
                self.obey(order);
            }
            if !self.link.open {
                self.lose();
            }
            self.look_at_clock();
            if self.take_note() {
                let at_us = self.dead_us.unwrap_or_else(now_us);
                let dying_us =
                    self.struck_us.map_or(0, |struck_us| at_us.saturating_sub(struck_us));
                self.tell(WatchdogReport::Gone(ProcessesGone {
                    at_us,
                    late_us: self.late_us,
                    dying_us,
                }));
                return;
            }
            self.sleep();
        }
    }

    fn obey(&mut self, order: WatchdogOrder) {
        match order {
            // A loss is final: a later renewal does not revive the lock.
            WatchdogOrder::Until(deadlines) if !self.lost => self.deadlines = deadlines,
            WatchdogOrder::Until(_) => {}
            WatchdogOrder::Go => {
                self.begun = true;
                let _ = kill_process(self.main, Signal::CONT);
            }
            WatchdogOrder::Signal(number) => self.pass_on(number),
            WatchdogOrder::Terminate => self.kill_by(now_us() + self.grace_us),
            WatchdogOrder::Stop => self.lose(),
        }
    }

    /// Sends a signal to every process of the command's group, except to those that are not the command's.
    fn pass_on(&mut self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        // A user's SIGCONT does not continue processes that are stopped because the lock is doubtful.
        if signal == Signal::CONT && self.frozen || self.ended.is_some() {
            return;
        }
        if self.group == self.main {
            let _ = kill_process_group(self.main, signal);
            return;
        }
        let mut all = tree::living(self.own);
        all.retain(|it| {
            it.pid == self.main
                || tree::stat(it.pid).and_then(|stat| stat.group) == Some(self.group)
        });
        tree::signal(&all, signal);
    }

    fn look_at_clock(&mut self) {
        let now_us = now_us();
        if !self.lost && now_us >= self.deadlines.lost_us {
            self.late_us = self.late_us.max(now_us - self.deadlines.lost_us);
            self.lose();
        }
        if self.freeze && !self.lost && self.begun {
            let doubtful = now_us >= self.deadlines.doubt_us;
            if doubtful && !self.frozen {
                self.freeze();
            } else if !doubtful && self.frozen {
                self.thaw();
            }
        }
        if let Some(kill_us) = self.kill_us.filter(|kill_us| now_us >= *kill_us) {
            if !self.killed {
                self.late_us = self.late_us.max(now_us - kill_us);
            }
            self.kill();
        }
    }

    /// Handles the loss of the lock, or of `tenure run`, without which no renewal can arrive.
    fn lose(&mut self) {
        if self.lost {
            return;
        }
        self.lost = true;
        self.kill_by((now_us() + self.grace_us).min(self.deadlines.kill_us));
        self.terminate(true);
    }

    /// Sends SIGTERM to every process below; a stopped process cannot react and is killed.
    fn terminate(&mut self, lost: bool) {
        let now_us = now_us();
        let kill_in_us = self.kill_us.unwrap_or(now_us).saturating_sub(now_us);
        if kill_in_us == 0 {
            return;
        }
        let all = tree::living(self.own);
        let (stopped, running): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|it| it.state == ProcessState::Stopped);
        let killed = tree::signal(&stopped, Signal::KILL);
        let processes = tree::signal(&running, Signal::TERM);
        self.tell(WatchdogReport::Stopping { lost, processes, killed, kill_in_us });
        if !self.link.open {
            let (whom, grace) =
                (messages::processes(processes), shown(Duration::from_micros(kill_in_us)));
            print_line(format!(
                "tenure: `tenure run` is gone: SIGTERM to {whom}, SIGKILL in {grace}\n"
            ));
        }
    }

    fn kill(&mut self) {
        let now_us = now_us();
        let mut all = tree::living(self.own);
        self.known.extend(all.iter().map(|it| it.pid.as_raw_nonzero()));
        // Look up known processes that are no longer listed by their pid: lists have gaps while a process ends.
        let listed: Vec<Pid> = all.iter().map(|it| it.pid).collect();
        let unlisted = self.known.iter().filter_map(|pid| Pid::from_raw(pid.get()));
        let unlisted = unlisted.filter(|pid| !listed.contains(pid));
        all.extend(unlisted.filter_map(|pid| tree::still_below(self.own, pid)));
        let processes = tree::signal(&all, Signal::KILL);
        if processes > 0 {
            self.struck_us.get_or_insert(now_us);
        }
        // A killed process runs none of its own code, but it has to be scheduled once to be gone.
        for it in &all {
            let _ = setpriority_process(Some(it.pid), FIRST);
        }
        if all.is_empty() {
            // Read the clock after the search: a process may have died during it.
            self.dead_us.get_or_insert_with(times::now_us);
        } else {
            self.dead_us = None;
        }
        if !std::mem::replace(&mut self.killed, true) && processes > 0 {
            self.tell(WatchdogReport::Killing { processes });
        }
    }

    fn kill_by(&mut self, at_us: u64) {
        self.kill_us = Some(self.kill_us.map_or(at_us, |known| known.min(at_us)));
    }

    fn freeze(&mut self) {
        self.frozen = true;
        let mut stopped = BTreeSet::new();
        // A process that forked before it was stopped has a child that the next round finds.
        for _ in 0..FREEZE_ROUNDS {
            let mut running = tree::living(self.own);
            running.retain(|it| it.state == ProcessState::Alive);
            if running.is_empty() {
                break;
            }
            tree::signal(&running, Signal::STOP);
            stopped.extend(running.iter().map(|it| it.pid.as_raw_nonzero()));
            std::thread::sleep(FREEZE_ROUND);
        }
        self.tell(WatchdogReport::Frozen { processes: stopped.len() });
    }

    fn thaw(&mut self) {
        self.frozen = false;
        tree::signal(&tree::living(self.own), Signal::CONT);
        self.tell(WatchdogReport::Thawed);
    }

    /// Handles everything that ended or stopped. Returns whether no process is left.
    fn take_note(&mut self) -> bool {
        for change in self.reaper.changes() {
            let ChildChange::Child(pid, status) = change else { return true };
            if pid == self.main {
                self.main_changed(status);
            }
            // A process that the search never saw was alive until now.
            if !status.stopped()
                && !status.continued()
                && !self.known.contains(&pid.as_raw_nonzero())
            {
                self.dead_us = None;
            }
        }
        false
    }

    fn main_changed(&mut self, status: WaitStatus) {
        if let Some(signal) = status.stopping_signal() {
            if self.frozen {
                return;
            }
            let report = match self.begun {
                false => WatchdogReport::Ready { group: self.main.as_raw_nonzero().get() },
                true => WatchdogReport::Stopped { signal },
            };
            return self.tell(report);
        }
        if status.continued() && self.begun {
            return self.tell(WatchdogReport::Continued);
        }
        let end = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => CommandEnd::Code(code),
            (None, Some(signal)) => CommandEnd::Signal(signal),
            (None, None) => return,
        };
        self.ended = Some(end);
        self.tell(WatchdogReport::Ended(end));
        // Processes that the command left behind must not outlive the lock.
        if !tree::living(self.own).is_empty() {
            self.kill_by(now_us() + self.grace_us);
            if !self.lost {
                self.terminate(false);
            }
        }
    }

    fn sleep(&mut self) {
        let kill = self.kill_us.map(|kill_us| kill_us.max(now_us() + self.again_us()));
        let doubt = (self.freeze && !self.frozen).then_some(self.deadlines.doubt_us);
        let lost = (!self.lost).then_some(self.deadlines.lost_us);
        let next = [kill, doubt.filter(|_| !self.lost && self.begun), lost];
        if let Some(next_us) = next.into_iter().flatten().min() {
            set(&self.timer, next_us);
        }
        let link = self.link.open.then_some(&self.link.stream);
        let mut fds = vec![
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(self.reaper.bell(), PollFlags::IN),
        ];
        fds.extend(link.map(|link| PollFd::new(link, PollFlags::IN)));
        // After an interruption by a signal the loop just checks everything again.
        let _ = poll(&mut fds, None);
        let mut bytes = [0; 64];
        let _ = rustix::io::read(&self.timer, &mut bytes);
    }

    /// Once the watchdog kills, it checks again soon.
    fn again_us(&self) -> u64 {
        if self.killed { times::us(AGAIN) } else { 0 }
    }

    fn tell(&mut self, report: WatchdogReport) {
        // A `tenure run` that is stopped reads the report later; if it is gone, no process needs the report.
        if self.link.open && report.send(&self.link.stream).is_err() {
            self.link.open = false;
        }
    }
}

impl RunLink {
    fn open(name: &str) -> io::Result<Self> {
        let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        // The socket's name is no secret: the listener must be our parent.
        if Some(socket_peercred(&stream)?.pid) != getppid() {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "another process listens"));
        }
        stream.set_nonblocking(true)?;
        Ok(Self { stream, heard: Vec::new(), open: true })
    }

    /// All orders that arrived since the last call.
    fn orders(&mut self) -> Vec<WatchdogOrder> {
        let mut bytes = [0; 1024];
        while self.open {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.open = false,
                Ok(taken) => self.heard.extend_from_slice(&bytes[..taken]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.open = false,
            }
        }
        let mut orders = Vec::new();
        while let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            orders.extend(std::str::from_utf8(&line[..end]).ok().and_then(WatchdogOrder::parse));
        }
        // A peer that sends no lines is not `tenure run`.
        self.open &= self.heard.len() <= LINE_MAX;
        orders
    }
}

/// Raises the priority where that is allowed: the process that stops others must not wait for them. Returns the
/// previous priority, which is the command's.
fn rush() -> i32 {
    let usual = getpriority_process(None).unwrap_or(0);
    // Without the permission it keeps the usual priority.
    let _ = setpriority_process(None, FIRST);
    usual
}

/// Prints the last message of this process, unless its reader takes too long.
fn print_last(text: String) {
    let (done, printed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = io::stderr().write(text.as_bytes());
        let _ = done.send(());
    });
    let _ = printed.recv_timeout(LAST);
}

/// Prints a message without waiting for a reader: a terminal may be blocked, and a pipe may be full or closed.
fn print_line(text: String) {
    // One attempt: a terminal that stops the output of jobs in the background interrupts every one.
    let work = move || io::stderr().write(text.as_bytes());
    // If no thread can be started, the message is dropped.
    let _ = std::thread::Builder::new().name("print".to_owned()).spawn(work);
}

fn set(timer: &OwnedFd, at_us: u64) {
    let value = Timespec {
        tv_sec: i64::try_from(at_us / 1_000_000).unwrap_or(i64::MAX),
        // Not zero, which would disarm the timer.
        tv_nsec: i64::try_from(at_us % 1_000_000 * 1_000 + 1).unwrap_or(1),
    };
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let when = Itimerspec { it_interval: never, it_value: value };
    if let Err(error) = timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &when) {
        print_line(format!("tenure: the watchdog's timer cannot be set: {error}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_watchdog_is_told_is_what_it_reads() {
        let deadlines = Deadlines { doubt_us: 1, lost_us: 2, kill_us: 3 };
        let command = ["./a", "--freeze", "b c"].map(OsString::from).to_vec();
        let socket = "run-1-2".to_owned();
        let (grace_us, freeze, job) = (4, true, Some(7));
        let task = Task { socket, deadlines, grace_us, freeze, job, insecure: true, command };
        let read = Task::read(&task.arguments()).unwrap();
        assert_eq!((read.deadlines, read.grace_us, read.freeze), (deadlines, 4, true));
        assert_eq!((read.job, read.insecure), (Some(7), true));
        assert_eq!((read.socket, read.command), (task.socket, task.command));
        assert!(Task::read(&["run-1-2".into(), "1".into()]).is_none());
    }
}
