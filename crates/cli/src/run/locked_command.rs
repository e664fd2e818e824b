//! Supervises the command that runs under the lock.
//!
//! It sends every renewal to the watchdog, passes signals on, reports what happens, and releases the lock once no
//! process of the command is left. The watchdog stops the command; this module stops it if the watchdog does not.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::Pid;
use serde_json::json;
use tenure::{Cause, Client, Error, Guard, Leadership, Lease, Standing};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use crate::connection_args::ConnectionTarget;
use crate::duration::shown;
use crate::failure::quoted;
use crate::{loss, output};

use super::link::WatchdogLink;
use super::messages::{Messages, processes};
use super::protocol::{CommandEnd, ProcessesGone, WatchdogOrder, WatchdogReport};
use super::release_watch::{GivenBack, ReleaseWatch};
use super::signals::ReceivedSignal;
use super::terminal::JobTerminal;
use super::times::{Deadlines, RunTimes, now_us, us};
use super::watchdog::Task;
use super::{codes, environment, named, signals};

/// How long `tenure run` tries to release a lock that was lost: the lease ends by itself.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);
/// How often it checks again for processes that the watchdog did not kill.
const AGAIN: Duration = Duration::from_millis(10);
/// How many checks in a row must find no process.
const EMPTY_CHECKS: usize = 3;

/// The command and its settings.
pub(super) struct Job<'a> {
    /// The names of the locks, or of the election.
    pub(super) names: &'a [String],
    pub(super) client: Client,
    pub(super) command: &'a [OsString],
    /// Whether the command is stopped while the lock is doubtful.
    pub(super) freeze: bool,
    pub(super) place: &'a ConnectionTarget,
    pub(super) times: RunTimes,
    /// How long acquiring the lock took.
    pub(super) waited: Duration,
    /// Variables of the command beside those of every run.
    pub(super) variables: Vec<(&'static str, OsString)>,
}

/// What is held while the command runs.
pub(super) enum RunLock {
    Lock(Guard),
    /// A lock of a run inside of another one, and the lease that holds it.
    Nested(Guard, Lease),
    Lead(Box<Leadership>),
}

/// How the run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RunOutcome {
    pub(super) code: u8,
    pub(super) lost: bool,
}

impl RunLock {
    pub(super) fn guard(&self) -> &Guard {
        match self {
            Self::Lock(guard) | Self::Nested(guard, _) => guard,
            Self::Lead(lead) => lead.guard(),
        }
    }

    /// Releases the lock or resigns. The work has stopped.
    pub(super) async fn give_back(self) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Nested(guard, lease) => {
                let released = guard.release().await;
                released.and(lease.revoke().await)
            }
            Self::Lead(lead) => lead.resign().await,
        }
    }

    /// The locks or the leadership with their names: lock `deploy`.
    fn named(&self, names: &[String]) -> String {
        match (self, names) {
            (Self::Lead(_), [name, ..]) => format!("leadership of `{name}`"),
            _ => named(names),
        }
    }
}

/// A command that runs under its lock.
pub(super) struct LockedCommand<'a> {
    pub(super) job: Job<'a>,
    pub(super) hold: RunLock,
    pub(super) messages: &'a mut Messages,
    pub(super) deadlines: Deadlines,
    began: Instant,
    /// The command itself, once it is ready.
    pub(super) main: Option<Pid>,
    /// The controlling terminal, if the command shares it.
    pub(super) terminal: Option<JobTerminal>,
    /// Whether a signal stopped the command.
    pub(super) suspended: bool,
    end: Option<CommandEnd>,
    pub(super) lost: Option<LockLoss>,
}

/// When and why the lock was lost, as far as this process knows.
pub(super) struct LockLoss {
    at_us: u64,
    cause: String,
    reason: LossReason,
}

/// What ended the hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LossReason {
    /// Another process gave the lock back with this run's lease and token.
    GivenBack(GivenBack),
    /// The watchdog was killed.
    WatchdogKilled,
    /// The SDK was told of a loss, or noticed it, with this word.
    Lost(&'static str),
}

impl LossReason {
    /// The cause of this loss in events.
    fn word(self) -> &'static str {
        match self {
            Self::GivenBack(how) => how.word(),
            Self::WatchdogKilled => "watchdog_killed",
            Self::Lost(word) => word,
        }
    }
}

impl<'a> LockedCommand<'a> {
    pub(super) fn new(job: Job<'a>, hold: RunLock, messages: &'a mut Messages) -> Self {
        let deadlines = job.times.deadlines(*hold.guard().valid_until().borrow());
        let began = Instant::now();
        let (main, terminal, end, lost) = (None, JobTerminal::open(), None, None);
        let suspended = false;
        Self { job, hold, messages, deadlines, began, main, terminal, suspended, end, lost }
    }

    /// Runs the command to its end, then releases the lock or handles its loss.
    pub(super) async fn run(mut self, heard: &mut UnboundedReceiver<ReceivedSignal>) -> RunOutcome {
        self.show_acquired();
        let (link, mut reports) = match self.start() {
            Ok(started) => started,
            Err(error) => {
                self.messages.error(&format!("cannot start the watchdog: {error}"));
                self.messages.detail("effect", "none: the command did not start");
                let _ = tokio::time::timeout(FAREWELL, self.hold.give_back()).await;
                let code = self.messages.ended("not_started", codes::REFUSED);
                return RunOutcome { code, lost: false };
            }
        };
        let gone = self.supervise(&link, &mut reports, heard).await;
        self.finish(gone).await
    }

    fn show_acquired(&mut self) {
        let (name, locks, waited) = (self.first(), named(self.job.names), self.job.waited);
        let guard = self.hold.guard();
        let token = guard.token();
        let slots: Vec<u32> = guard.locks().filter_map(|it| it.slot).collect();
        let slot = output::slots(&slots);
        let (text, event) = match &self.hold {
            RunLock::Lock(_) | RunLock::Nested(..) => {
                let tokens: Vec<String> = guard.locks().map(|it| it.token.to_string()).collect();
                let noun = if tokens.len() == 1 { "token" } else { "tokens" };
                (format!("{locks} acquired, {noun} {}{slot}", tokens.join(", ")), "acquired")
            }
            RunLock::Lead(_) => (format!("elected leader of `{name}`, token {token}"), "elected"),
        };
        self.messages.usual(&text);
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        self.messages.event(
            event,
            &json!({
                "token": token.to_string(),
                "lease": guard.lease().to_string(),
                "slot": guard.slot(),
                "slots": (slots.len() > 1).then_some(slots),
                "waited_ms": waited_ms,
            }),
        );
    }

    fn start(&self) -> std::io::Result<(WatchdogLink, UnboundedReceiver<WatchdogReport>)> {
        let (job, guard) = (&self.job, self.hold.guard());
        let lease = guard.lease().to_string();
        let task = Task {
            // The lease id was drawn at random, so the socket's name is unique.
            socket: format!("run-{}-{lease}", std::process::id()),
            deadlines: self.deadlines,
            grace_us: us(job.times.grace),
            freeze: job.freeze,
            insecure: job.place.insecure_credentials,
            job: self.terminal.as_ref().map(|it| it.group().as_raw_nonzero().get()),
            command: job.command.to_vec(),
        };
        let mut environment = environment::variables(self.first(), guard, job.place);
        environment.extend(job.variables.iter().cloned());
        WatchdogLink::start(&task, &environment)
    }

    /// Supervises until no process of the command is left, and returns when that was.
    async fn supervise(
        &mut self,
        link: &WatchdogLink,
        reports: &mut UnboundedReceiver<WatchdogReport>,
        heard: &mut UnboundedReceiver<ReceivedSignal>,
    ) -> ProcessesGone {
        let guard = self.hold.guard();
        let mut until = guard.valid_until();
        let mut standings = guard.standings();
        let stop = guard.cancellation();
        let mut watch = ReleaseWatch::start(&self.job.client, guard, self.job.times.timing.ttl());
        loop {
            let overdue = self.overdue_in();
            tokio::select! {
                biased;
                lost = stop.cancelled(), if self.lost.is_none() => {
                    self.lose(Some(lost));
                    link.order(WatchdogOrder::Stop);
                }
                (lock, how) = watch.given_back(), if self.lost.is_none() => {
                    self.given_back_elsewhere(&lock, how);
                    link.order(WatchdogOrder::Stop);
                }
                changed = until.changed(), if self.lost.is_none() => {
                    if changed.is_ok() {
                        self.deadlines = self.job.times.deadlines(*until.borrow_and_update());
                        link.order(WatchdogOrder::Until(self.deadlines));
                    }
                }
                Ok(()) = standings.changed(), if self.lost.is_none() => {
                    let standing = *standings.borrow_and_update();
                    self.show_standing(standing);
                }
                report = reports.recv() => match report {
                    Some(WatchdogReport::Gone(gone)) => return gone,
                    Some(report) => self.reported(report, link),
                    None => return self.alone(link).await,
                },
                Some(signal) = heard.recv() => self.signalled(signal, link),
                () = tokio::time::sleep(overdue.unwrap_or(FAREWELL)), if overdue.is_some() => {
                    // The watchdog has missed its deadline.
                    link.kill_all();
                }
            }
        }
    }

    /// In how long the watchdog counts as overdue: half of the time reserved for a kill to take effect is then over.
    fn overdue_in(&self) -> Option<Duration> {
        self.lost.as_ref()?;
        let at_us = self.deadlines.kill_us + us(self.job.times.reserve() / 2);
        Some(Duration::from_micros(at_us.saturating_sub(now_us())).max(AGAIN))
    }

    /// Kills everything after the watchdog was killed: its descendants are now children of this process.
    async fn alone(&mut self, link: &WatchdogLink) -> ProcessesGone {
        // Without a process group the command never started, and the watchdog has said why.
        if self.lost.is_none() && self.main.is_some() {
            let cause = "the watchdog was killed, and all that it watched is killed too".to_owned();
            let (at_us, reason) = (now_us(), LossReason::WatchdogKilled);
            self.tell_loss(LockLoss { at_us, cause, reason }, None);
        }
        let mut empty = 0;
        let struck_us = now_us();
        let mut at_us = struck_us;
        while empty < EMPTY_CHECKS {
            if link.kill_all() == 0 {
                empty += 1;
            } else {
                empty = 0;
                at_us = now_us();
            }
            tokio::time::sleep(AGAIN).await;
        }
        ProcessesGone { at_us, late_us: 0, dying_us: at_us - struck_us }
    }

    fn lose(&mut self, lost: Option<tenure::Lost>) {
        let text = match &lost {
            Some(lost) => loss::cause_words(lost, self.job.times.timing.ttl()),
            None => "no renewal was acknowledged in time".to_owned(),
        };
        let word = lost.as_ref().map_or("local_stall", |it| it.word());
        let at_us = now_us().min(self.deadlines.lost_us);
        let is_given_back = lost.as_ref().is_some_and(|it| matches!(it.cause(), Cause::Released));
        let reason = match is_given_back {
            true => LossReason::GivenBack(GivenBack::Released),
            false => LossReason::Lost(word),
        };
        self.tell_loss(LockLoss { at_us, cause: text, reason }, lost.as_ref());
    }

    /// Handles a lock that another process gave back: to the cluster, the work has stopped.
    fn given_back_elsewhere(&mut self, lock: &str, how: GivenBack) {
        let cause = format!(
            "`{lock}` was {} with this run's lease and token, as `tenure {}` does",
            how.verb(),
            how.command()
        );
        let reason = LossReason::GivenBack(how);
        self.tell_loss(LockLoss { at_us: now_us(), cause, reason }, None);
    }

    /// Tells of a loss, in the same form for every cause.
    fn tell_loss(&mut self, lost: LockLoss, more: Option<&tenure::Lost>) {
        let (what, guard, held) = (self.what(), self.hold.guard(), self.began.elapsed());
        self.messages.loss(&format!("{what} lost: {}", lost.cause));
        self.messages.detail("held", &loss::held_words(guard, held));
        self.messages.event("lost", &loss::event_fields(guard, held, lost.reason.word(), more));
        self.lost = Some(lost);
    }

    fn show_standing(&mut self, standing: Standing) {
        let what = self.what();
        match standing {
            Standing::Doubtful => {
                let silent = shown(self.job.times.timing.doubtful_after());
                self.messages.unusual(&format!(
                    "{what}: renewal overdue, none acknowledged for {silent}, trying other members"
                ));
                self.messages.event("doubtful", &json!({}));
            }
            Standing::Valid => {
                self.messages.unusual(&format!("{what} sure again"));
                self.messages.event("sure", &json!({}));
            }
            _ => {}
        }
    }

    fn reported(&mut self, report: WatchdogReport, link: &WatchdogLink) {
        match report {
            WatchdogReport::Ready { group } => {
                self.main = Pid::from_raw(group);
                self.messages.event("started", &json!({ "pid": group }));
                link.order(WatchdogOrder::Go);
            }
            WatchdogReport::Stopped { signal } => self.stopped(signal, link),
            WatchdogReport::Continued => self.continued(),
            WatchdogReport::Frozen { processes: count } => {
                let text = format!("{} stopped until a renewal is acknowledged", processes(count));
                self.messages.unusual(&text);
                self.messages.event("frozen", &json!({ "processes": count }));
            }
            WatchdogReport::Thawed => {
                self.messages.unusual("continued");
                self.messages.event("thawed", &json!({}));
            }
            WatchdogReport::Stopping { lost, processes: count, killed, kill_in_us } => {
                if lost && self.lost.is_none() {
                    // The watchdog's report is final: it has begun to stop the command, and nothing undoes that.
                    let lost = match self.hold.guard().check() {
                        Err(Error::Lost(lost)) => Some(lost),
                        _ => None,
                    };
                    self.lose(lost);
                }
                self.show_stopping(lost, count, killed, Duration::from_micros(kill_in_us));
            }
            WatchdogReport::Killing { processes: count } => {
                self.messages.unusual(&format!("SIGKILL to {}", processes(count)));
                self.messages.event("killing", &json!({ "processes": count }));
            }
            WatchdogReport::Ended(end) => self.end = Some(end),
            WatchdogReport::Gone(_) => {}
        }
    }

    fn show_stopping(&mut self, lost: bool, count: usize, killed: usize, grace: Duration) {
        let (name, grace) = (self.name(), shown(grace));
        if killed > 0 {
            self.messages
                .unusual(&format!("sent SIGKILL to {} in the stopped state", processes(killed)));
        }
        if count > 0 {
            let whom = match lost {
                true => format!("{name} ({})", processes(count)),
                false => format!("{} that {name} left behind", processes(count)),
            };
            self.messages.unusual(&format!("SIGTERM to {whom}, SIGKILL in {grace}"));
        }
        self.messages.event("stopping", &json!({ "processes": count + killed, "lost": lost }));
    }

    /// Reports what became of the command and of the lock, after all processes have ended.
    async fn finish(mut self, gone: ProcessesGone) -> RunOutcome {
        match self.lost.take() {
            Some(lost) => RunOutcome { code: self.finish_lost(lost, gone).await, lost: true },
            None => RunOutcome { code: self.finish_held().await, lost: false },
        }
    }

    async fn finish_lost(self, lost: LockLoss, gone: ProcessesGone) -> u8 {
        if let Some(terminal) = &self.terminal {
            terminal.restore();
        }
        let ProcessesGone { at_us: gone_us, late_us, dying_us } = gone;
        let token = self.hold.guard().token();
        let took = shown(Duration::from_micros(gone_us.saturating_sub(lost.at_us)));
        let free_us = self.job.times.handed_over_us(&self.deadlines);
        let messages = self.messages;
        match (lost.reason, free_us.checked_sub(gone_us)) {
            // A client that gives the lock back declares the work stopped, and the cluster does not say when that was.
            (LossReason::GivenBack(how), _) => messages.loss(&format!(
                "stopped in {took}; the next holder may have started before: \
                 the lock was {} while the command ran",
                how.verb()
            )),
            (LossReason::Lost("gone"), _) => messages.loss(&format!(
                "stopped in {took}; the next holder may have started before: it is not known when the lock was taken"
            )),
            (reason, Some(margin_us)) => {
                let margin = shown(Duration::from_micros(margin_us));
                let unless = match reason {
                    LossReason::Lost("forced" | "revoked") => ", unless it was taken away with --now",
                    _ => "",
                };
                messages.loss(&format!(
                    "stopped in {took}, at least {margin} before another client could have the lock{unless}"
                ));
            }
            (_, None) => {
                let late = shown(Duration::from_micros(gone_us - free_us));
                messages.loss(&format!(
                    "stopped in {took}, TOO LATE by up to {late}: {} ({})",
                    why_late(&gone),
                    lost.cause
                ));
            }
        }
        messages.detail(
            "effect",
            &format!("the command was cut short; a fence refuses token {token} once it has seen a newer one"),
        );
        // A client that was cut off at the loss was not told its cause.
        let why = tokio::time::timeout(FAREWELL, self.hold.guard().why_lost()).await;
        if let Ok(Ok(Some(why))) = why
            && why.word() != lost.reason.word()
        {
            messages.detail("why", &output::clean(&why.to_string()));
        }
        let from = self.hold.guard().revision();
        messages.detail(
            "look",
            &format!(
                "tenure history {} --from {from}",
                quoted(self.job.names.first().map_or("", String::as_str))
            ),
        );
        let margin_us = i128::from(free_us) - i128::from(gone_us);
        let margin_us = i64::try_from(margin_us).unwrap_or(i64::MIN);
        messages.event(
            "stopped",
            &json!({
                "cause": lost.reason.word(), "margin_us": margin_us, "late_us": late_us, "dying_us": dying_us,
            }),
        );
        // The work has stopped: waiters need not wait until the lease expires.
        let _ = tokio::time::timeout(FAREWELL, self.hold.give_back()).await;
        messages.ended("lost", codes::LOST)
    }

    async fn finish_held(self) -> u8 {
        let name = self.name();
        let (what, held) = (self.what(), self.began.elapsed());
        let (messages, end) = (self.messages, self.end);
        let released = self.hold.give_back().await;
        let ended = match end {
            Some(CommandEnd::Signal(signal)) => {
                format!("{name} ended by {}, ", signals::name(signal))
            }
            _ => String::new(),
        };
        match released {
            Ok(()) => {
                messages.usual(&format!("{ended}{what} released after {}", shown(held)));
                messages.event(
                    "released",
                    &json!({ "held_ms": u64::try_from(held.as_millis()).unwrap_or(u64::MAX) }),
                );
            }
            Err(error) => {
                let ttl = shown(self.job.times.timing.ttl());
                messages.loss(&format!(
                    "{ended}{what} not given back: {error}; it is free within {ttl}"
                ));
                messages.event("not_released", &json!({ "message": error.to_string() }));
            }
        }
        match end {
            Some(CommandEnd::Code(code)) => {
                messages.ended("command", u8::try_from(code).unwrap_or(u8::MAX))
            }
            Some(CommandEnd::Signal(signal)) => messages.ended("signal", codes::by_signal(signal)),
            None => messages.ended("not_started", codes::REFUSED),
        }
    }

    pub(super) fn name(&self) -> String {
        self.job.command[0].display().to_string()
    }

    pub(super) fn what(&self) -> String {
        self.hold.named(self.job.names)
    }

    fn first(&self) -> &str {
        self.job.names.first().map_or("", String::as_str)
    }
}

/// What caused the delay.
fn why_late(gone: &ProcessesGone) -> String {
    let time = |us| shown(Duration::from_micros(us));
    if gone.dying_us > gone.late_us {
        return format!("its processes took {} to die of SIGKILL", time(gone.dying_us));
    }
    format!("this machine or the watchdog was frozen or starved for {}", time(gone.late_us))
}
