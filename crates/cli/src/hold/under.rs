//! What does `tenure run` do while its command runs under the lock?
//!
//! It tells the watchdog of every renewal, passes signals on, says what happens, and gives the lock back once nothing
//! of the command is left. The watchdog stops the command; this stops it too if the watchdog does not.

use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process};
use serde_json::json;
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH};
use tenure::{Cause, Guard, Standing};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;

use crate::failure::quoted;
use crate::reach::Place;
use crate::span::shown;

use super::link::{Heard, Link};
use super::times::{Deadlines, Times, now_us, us};
use super::voice::{Voice, processes};
use super::watchdog::Task;
use super::words::{End, Order, Report};
use super::{OnDoubt, Run, codes, signals, terminal};

/// How long a lock that was lost is tried to be given back: it ends by itself.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often it looks again whether something is left that the watchdog did not kill.
const AGAIN: Duration = Duration::from_millis(10);
/// Looks without finding anything, until nothing is left.
const LOOKS: usize = 3;

/// What runs, and how.
pub(super) struct Job<'a> {
    pub(super) flags: &'a Run,
    pub(super) place: &'a Place,
    pub(super) times: Times,
    /// How long it took to get the lock.
    pub(super) waited: Duration,
}

/// A command under its lock.
pub(super) struct Under<'a> {
    job: Job<'a>,
    guard: Guard,
    voice: &'a mut Voice,
    deadlines: Deadlines,
    began: Instant,
    group: Option<Pid>,
    /// Whether somebody at a terminal can stop and continue it.
    jobs: bool,
    end: Option<End>,
    lost: Option<Lost>,
}

/// When and why the lock was lost, as far as it is known.
struct Lost {
    at_us: u64,
    cause: String,
    word: &'static str,
}

impl<'a> Under<'a> {
    pub(super) fn new(job: Job<'a>, guard: Guard, voice: &'a mut Voice) -> Self {
        let deadlines = job.times.deadlines(*guard.valid_until().borrow());
        let began = Instant::now();
        let (group, jobs, end, lost) = (None, false, None, None);
        Self { job, guard, voice, deadlines, began, group, jobs, end, lost }
    }

    /// Runs the command to its end, and the lock to its.
    pub(super) async fn run(
        mut self,
        tell: UnboundedSender<Heard>,
        mut heard: UnboundedReceiver<Heard>,
    ) -> u8 {
        self.say_acquired();
        let link = match self.start(tell) {
            Ok(link) => link,
            Err(error) => {
                self.voice.error(&format!("cannot start the watchdog: {error}"));
                self.voice.detail("effect", "none: the command did not start");
                let _ = tokio::time::timeout(FAREWELL, self.guard.release()).await;
                return self.voice.ended("not_started", codes::REFUSED);
            }
        };
        let gone_us = self.supervise(&link, &mut heard).await;
        self.finish(gone_us).await
    }

    fn say_acquired(&mut self) {
        let Job { flags, waited, .. } = &self.job;
        let token = self.guard.token();
        let slot = self.guard.slot().map_or(String::new(), |slot| format!(", slot {slot}"));
        self.voice.usual(&format!("lock `{}` acquired, token {token}{slot}", flags.lock));
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        self.voice.event(
            "acquired",
            &json!({
                "token": token.to_string(),
                "lease": self.guard.lease().to_string(),
                "slot": self.guard.slot(),
                "waited_ms": waited_ms,
            }),
        );
    }

    fn start(&self, tell: UnboundedSender<Heard>) -> std::io::Result<Link> {
        let flags = self.job.flags;
        let lease = self.guard.lease().to_string();
        let task = Task {
            // The lease's id was drawn at random: nobody else has the same.
            socket: format!("run-{}-{lease}", std::process::id()),
            deadlines: self.deadlines,
            grace_us: us(self.job.times.grace),
            freeze: flags.on_doubt == OnDoubt::Freeze,
            command: flags.command.clone(),
        };
        let place = self.job.place;
        let mut environment = vec![
            ("TENURE_LOCK", flags.lock.clone().into()),
            ("TENURE_TOKEN", self.guard.token().to_string().into()),
            ("TENURE_LEASE", lease.into()),
            ("TENURE_ADDR", place.addresses.join(",").into()),
        ];
        // What was said in flags, for the command's own use of the cluster.
        if let Some(tls) = &place.tls {
            environment.push(("TENURE_CA", tls.ca.clone().into_os_string()));
            if let Some((cert, key)) = &tls.own {
                environment.push(("TENURE_CERT", cert.clone().into_os_string()));
                environment.push(("TENURE_KEY", key.clone().into_os_string()));
            }
        }
        Link::start(&task, &environment, tell)
    }

    /// Until nothing of the command is left; the moment at which that was so.
    async fn supervise(&mut self, link: &Link, heard: &mut UnboundedReceiver<Heard>) -> u64 {
        let mut until = self.guard.valid_until();
        let mut standings = self.guard.standings();
        let stop = self.guard.cancellation();
        loop {
            let overdue = self.overdue_in();
            tokio::select! {
                biased;
                cause = stop.cancelled(), if self.lost.is_none() => {
                    self.lose(Some(cause));
                    link.order(Order::Stop);
                }
                changed = until.changed(), if self.lost.is_none() => {
                    if changed.is_ok() {
                        self.deadlines = self.job.times.deadlines(*until.borrow_and_update());
                        link.order(Order::Until(self.deadlines));
                    }
                }
                Ok(()) = standings.changed(), if self.lost.is_none() => {
                    let standing = *standings.borrow_and_update();
                    self.say_standing(standing);
                }
                it = heard.recv() => match it {
                    Some(Heard::Signal(signal)) => self.signalled(signal, link),
                    Some(Heard::Report(Report::Gone { at_us })) => return at_us,
                    Some(Heard::Report(report)) => self.reported(report, link),
                    Some(Heard::Silence) | None => return self.alone(link).await,
                },
                () = tokio::time::sleep(overdue.unwrap_or(FAREWELL)), if overdue.is_some() => {
                    // The watchdog should have done it.
                    link.kill_all();
                }
            }
        }
    }

    /// In how long something is wrong with the watchdog: half of what is left for a kill to take effect is over.
    fn overdue_in(&self) -> Option<Duration> {
        self.lost.as_ref()?;
        let at_us = self.deadlines.kill_us + us(self.job.times.reserve() / 2);
        Some(Duration::from_micros(at_us.saturating_sub(now_us())).max(AGAIN))
    }

    /// The watchdog was killed: what was below it is below us now.
    async fn alone(&mut self, link: &Link) -> u64 {
        // Without a command there was nothing to watch: it could not start, and has said why.
        if self.lost.is_none() && self.group.is_some() {
            self.voice.unusual("the watchdog was killed: everything that it watched is killed too");
            let cause = "the watchdog was killed".to_owned();
            self.lost = Some(Lost { at_us: now_us(), cause, word: "watchdog_killed" });
        }
        let mut empty = 0;
        let mut gone_us = now_us();
        while empty < LOOKS {
            if link.kill_all() == 0 {
                empty += 1;
            } else {
                empty = 0;
                gone_us = now_us();
            }
            tokio::time::sleep(AGAIN).await;
        }
        gone_us
    }

    fn lose(&mut self, cause: Option<Cause>) {
        let lock = &self.job.flags.lock;
        let ttl = shown(self.job.times.pace.ttl());
        let silent = "no renewal was acknowledged in time".to_owned();
        let text = match cause {
            Some(cause @ Cause::Unreachable { .. }) => format!("{cause}, half of ttl {ttl}"),
            Some(cause) => cause.to_string(),
            None => silent,
        };
        let word = cause.map_or("local_stall", |it| it.word());
        self.voice.unusual(&format!("lock `{lock}` lost: {text}"));
        let token = self.guard.token().to_string();
        self.voice.event("lost", &json!({ "token": token, "cause": word }));
        let at_us = now_us().min(self.deadlines.lost_us);
        self.lost = Some(Lost { at_us, cause: text, word });
    }

    fn say_standing(&mut self, standing: Standing) {
        let lock = &self.job.flags.lock;
        match standing {
            Standing::Doubtful => {
                let silent = shown(self.job.times.pace.doubtful_after());
                self.voice.unusual(&format!(
                    "lock `{lock}` doubtful: no renewal acknowledged for {silent}, trying other members"
                ));
                self.voice.event("doubtful", &json!({}));
            }
            Standing::Valid => {
                self.voice.unusual(&format!("lock `{lock}` sure again"));
                self.voice.event("sure", &json!({}));
            }
            Standing::Lost(_) => {}
        }
    }

    fn signalled(&mut self, signal: i32, link: &Link) {
        match signal {
            SIGCHLD => return link.keep_awake(),
            SIGCONT => {
                if let Some(group) = self.group {
                    self.jobs |= terminal::give(group);
                }
            }
            SIGTSTP => self.jobs = true,
            _ => {}
        }
        link.order(Order::Signal(signal));
        if signal == SIGTERM {
            let grace = shown(self.job.times.grace);
            let name = self.name();
            self.voice.unusual(&format!("SIGTERM passed on to {name}, SIGKILL in {grace}"));
            link.order(Order::Terminate);
        } else if signal != SIGWINCH {
            let name = signals::name(signal);
            self.voice.event("signal", &json!({ "signal": name }));
        }
    }

    fn reported(&mut self, report: Report, link: &Link) {
        match report {
            Report::Ready { group } => {
                self.group = Pid::from_raw(group);
                self.jobs = self.group.is_some_and(terminal::give);
                self.voice.event("started", &json!({ "pid": group }));
                link.order(Order::Go);
            }
            Report::Stopped { signal } => self.stopped(signal),
            Report::Frozen { processes: count } => {
                let text = format!("{} stopped until the lock is sure again", processes(count));
                self.voice.unusual(&text);
                self.voice.event("frozen", &json!({ "processes": count }));
            }
            Report::Thawed => {
                self.voice.unusual("continued");
                self.voice.event("thawed", &json!({}));
            }
            Report::Stopping { lost, processes: count, killed, kill_in_us } => {
                if lost && self.lost.is_none() {
                    // The watchdog's word counts: it has begun, and nothing undoes that.
                    let cause = match self.guard.standing() {
                        Standing::Lost(cause) => Some(cause),
                        _ => None,
                    };
                    self.lose(cause);
                }
                self.say_stopping(lost, count, killed, Duration::from_micros(kill_in_us));
            }
            Report::Killing { processes: count } => {
                self.voice.unusual(&format!("SIGKILL to {}", processes(count)));
                self.voice.event("killing", &json!({ "processes": count }));
            }
            Report::Ended(end) => self.end = Some(end),
            Report::Gone { .. } => {}
        }
    }

    /// As every job of a shell: whoever stops the command stops `tenure` too, and continues both.
    fn stopped(&mut self, signal: i32) {
        if !self.jobs || ![SIGTSTP, SIGTTIN, SIGTTOU].contains(&signal) {
            return;
        }
        let left = shown(Duration::from_micros(self.deadlines.lost_us.saturating_sub(now_us())));
        let lock = &self.job.flags.lock;
        self.voice.unusual(&format!(
            "{} stopped: lock `{lock}` is lost and the command killed in {left}, unless continued",
            self.name()
        ));
        let _ = kill_process(getpid(), Signal::STOP);
    }

    fn say_stopping(&mut self, lost: bool, count: usize, killed: usize, grace: Duration) {
        let (name, grace) = (self.name(), shown(grace));
        if killed > 0 {
            self.voice.unusual(&format!("SIGKILL to {} that stood still", processes(killed)));
        }
        if count > 0 {
            let whom = match lost {
                true => format!("{name} ({})", processes(count)),
                false => format!("{} that {name} left behind", processes(count)),
            };
            self.voice.unusual(&format!("SIGTERM to {whom}, SIGKILL in {grace}"));
        }
        self.voice.event("stopping", &json!({ "processes": count + killed, "lost": lost }));
    }

    /// Nothing is left: says what became of the command and of the lock.
    async fn finish(mut self, gone_us: u64) -> u8 {
        match self.lost.take() {
            Some(lost) => self.finish_lost(lost, gone_us).await,
            None => self.finish_held().await,
        }
    }

    async fn finish_lost(self, lost: Lost, gone_us: u64) -> u8 {
        let (lock, token) = (self.job.flags.lock.clone(), self.guard.token());
        let took = shown(Duration::from_micros(gone_us.saturating_sub(lost.at_us)));
        let free_us = self.job.times.handed_over_us(&self.deadlines);
        let voice = self.voice;
        match free_us.checked_sub(gone_us) {
            Some(margin_us) => {
                let margin = shown(Duration::from_micros(margin_us));
                voice.unusual(&format!(
                    "stopped in {took}, at least {margin} before anyone else can start"
                ));
            }
            None => {
                let late = shown(Duration::from_micros(gone_us - free_us));
                voice.unusual(&format!(
                    "stopped in {took}, TOO LATE by up to {late}: this machine or process was frozen ({})",
                    lost.cause
                ));
            }
        }
        voice.detail(
            "effect",
            &format!("the command was cut short; a fence refuses token {token} once it has seen a newer one"),
        );
        voice.detail("look", &format!("tenure history {}", quoted(&lock)));
        let margin_us = i128::from(free_us) - i128::from(gone_us);
        let margin_us = i64::try_from(margin_us).unwrap_or(i64::MIN);
        voice.event("stopped", &json!({ "cause": lost.word, "margin_us": margin_us }));
        // The work has stopped: nobody needs to wait until the lease runs out.
        let _ = tokio::time::timeout(FAREWELL, self.guard.release()).await;
        voice.ended("lost", codes::LOST)
    }

    async fn finish_held(self) -> u8 {
        let name = self.name();
        let (lock, held) = (self.job.flags.lock.clone(), self.began.elapsed());
        let (voice, end) = (self.voice, self.end);
        let released = self.guard.release().await;
        let ended = match end {
            Some(End::Signal(signal)) => {
                format!("{name} ended by {}, ", signals::name(signal))
            }
            _ => String::new(),
        };
        match released {
            Ok(()) => {
                voice.usual(&format!("{ended}lock `{lock}` released after {}", shown(held)));
                voice.event(
                    "released",
                    &json!({ "held_ms": u64::try_from(held.as_millis()).unwrap_or(u64::MAX) }),
                );
            }
            Err(error) => {
                let ttl = shown(self.job.times.pace.ttl());
                voice.unusual(&format!(
                    "{ended}lock `{lock}` not given back: {error}; it is free within {ttl}"
                ));
                voice.event("not_released", &json!({ "message": error.to_string() }));
            }
        }
        match end {
            Some(End::Code(code)) => voice.ended("command", u8::try_from(code).unwrap_or(u8::MAX)),
            Some(End::Signal(signal)) => voice.ended("signal", codes::by_signal(signal)),
            None => voice.ended("not_started", codes::REFUSED),
        }
    }

    fn name(&self) -> String {
        self.job.flags.command[0].display().to_string()
    }
}
