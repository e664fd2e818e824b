//! Tests that the work always stops before the cluster lets another client start, under delays, losses, stalls and
//! suspends.
//!
//! There is one client with one lease and one lock, a model that follows the cluster's rules, and another client that
//! always waits for the lock. Everything comes from one seed. An effect of the work after the model granted the lock to
//! the other client is a violation of T4. A planted bug must be caught within the same number of schedules.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_types::{Revision, Token};

use super::machine::{ClusterScript, ReplySent, RequestSent, unscale};
use super::{
    AckEffect, Cause, ClockReading, EndMessage, LeaseState, LeaseTiming, LeaseTimingError, Moment,
    PendingGrant, Standing,
};
use crate::plant;

const SCHEDULES: u64 = 10_000;
const TTL_US: u64 = 10_000_000;
/// The declared bound on the difference of clock rates.
const RATE_PPM: i64 = 10_000;

/// What can happen, at a moment of real time.
#[derive(Clone, Debug)]
enum ScheduleEvent {
    /// The client's runtime polls the lease.
    Poll,
    /// The work checks the guard, and acts shortly after.
    Work,
    /// The work acts, after a check or before it stops. An act after `until`, by the client's clock, is left to the
    /// fence.
    Act {
        until: Moment,
    },
    /// The work has stopped.
    Stopped,
    /// The client sends the request for the grant, or repeats it.
    Ask,
    ToServer(RequestSent),
    ToClient(ReplySent),
    /// An operator takes the lock away.
    Force,
    /// The client's machine is suspended, its process is stopped, or only its runtime is blocked.
    Sleep(u64),
    Stop(u64),
    Block(u64),
}

#[derive(Default, Debug)]
struct ScheduleCounts {
    acts: u64,
    losses: BTreeMap<&'static str, u64>,
    late_answers: u64,
    taken_unheard: u64,
    late_grants: u64,
    /// How often work ended while the lock was held, and the client released the lock by the fast path (`given_back`)
    /// or by an end message (`farewells`).
    given_back: u64,
    farewells: u64,
}

struct ScheduleWorld {
    rng: fastrand::Rng,
    now: u64,
    queue: BTreeMap<(u64, u64), ScheduleEvent>,
    serial: u64,
    client_ppm: i64,
    machine_ppm: i64,
    /// The client's time that passed in suspend.
    slept: u64,
    runs_from: u64,
    polls_from: u64,
    calm: bool,
    timing: LeaseTiming,
    stop_us: u64,
    asking: PendingGrant,
    state: Option<LeaseState>,
    stopping: bool,
    /// When the guard's cancellation fired. The work stops within its declared time to stop from then on.
    cancelled: Option<Moment>,
    over: bool,
    /// When the work ends by itself, and whether it has.
    done_at: Option<u64>,
    done: bool,
    machine: ClusterScript,
    counts: ScheduleCounts,
}

fn token() -> Token {
    Token::from_u64(1).expect("1 is a token")
}

/// The widest allowed window, or a random one.
fn timing(rng: &mut fastrand::Rng, stop_us: u64) -> LeaseTiming {
    let ttl = Duration::from_micros(TTL_US);
    let stop = Duration::from_micros(stop_us);
    let half = LeaseTiming::new(ttl)
        .and_then(|timing| timing.stop_within(stop))
        .expect("it fits half a ttl");
    let wide = match half.with_window(ttl - stop) {
        Ok(wide) => wide,
        Err(LeaseTimingError::Window { most, .. }) => {
            half.with_window(most).expect("it may be that long")
        }
        Err(other) => panic!("{other}"),
    };
    match rng.u8(..4) {
        0 => half,
        1 => {
            let least = half.ttl() / 3 + Duration::from_micros(1);
            let span = u64::try_from((wide.window() - least).as_micros()).unwrap();
            half.with_window(least + Duration::from_micros(rng.u64(..span))).expect("in between")
        }
        _ => wide,
    }
}

impl ScheduleWorld {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let stop_us = if rng.bool() { rng.u64(1..TTL_US / 4) } else { 1 };
        let timing = timing(&mut rng, stop_us);
        let mut rate = || match rng.u8(..4) {
            0 => 0,
            1 => -RATE_PPM,
            2 => RATE_PPM,
            _ => rng.i64(-RATE_PPM..=RATE_PPM),
        };
        let (client_ppm, machine_ppm) = (rate(), rate());
        let calm = rng.u8(..10) == 0;
        let mut world = Self {
            rng,
            now: 0,
            queue: BTreeMap::new(),
            serial: 0,
            client_ppm,
            machine_ppm,
            slept: 0,
            runs_from: 0,
            polls_from: 0,
            calm,
            timing,
            stop_us,
            asking: PendingGrant::new(timing),
            state: None,
            stopping: false,
            cancelled: None,
            over: false,
            done_at: None,
            done: false,
            machine: ClusterScript::default(),
            counts: ScheduleCounts::default(),
        };
        world.at(0, ScheduleEvent::Ask);
        if world.rng.u8(..3) == 0 {
            world.done_at = Some(world.rng.u64(..TTL_US * 3));
        }
        if !calm {
            for _ in 0..world.rng.u8(..4) {
                let (at, long) = (world.rng.u64(..TTL_US * 3), world.rng.u64(..TTL_US * 2));
                let fault = [
                    ScheduleEvent::Sleep(long),
                    ScheduleEvent::Stop(long),
                    ScheduleEvent::Block(long),
                ];
                let which = world.rng.usize(..3);
                world.at(at, fault[which].clone());
            }
            if world.rng.u8(..3) == 0 {
                let at = world.rng.u64(..TTL_US * 3);
                world.at(at, ScheduleEvent::Force);
            }
        }
        world
    }

    fn at(&mut self, at: u64, event: ScheduleEvent) {
        self.serial += 1;
        self.queue.insert((at.max(self.now), self.serial), event);
    }

    fn boot(&self) -> u64 {
        scale(self.now, self.client_ppm)
    }

    fn machine_clock(&self) -> u64 {
        scale(self.now, self.machine_ppm)
    }

    fn reading(&self) -> ClockReading {
        let boot = self.boot();
        // The clocks began long before, so that a suspend never takes one below zero.
        let start = 1_000_000_000;
        ClockReading {
            boot: Moment::from_micros(start + boot),
            awake: Moment::from_micros(start + boot - self.slept),
        }
    }

    /// The real time at which the client's clock shows a moment.
    fn real(&self, moment: Moment) -> u64 {
        let boot = moment.micros().saturating_sub(1_000_000_000);
        // Rounded up: a timer never fires early.
        unscale(boot, self.client_ppm)
    }

    fn delay(&mut self) -> Option<u64> {
        if self.calm {
            return Some(self.rng.u64(1_000..TTL_US / 100));
        }
        match self.rng.u8(..8) {
            0 => None,
            1 => Some(self.rng.u64(1..TTL_US * 2)),
            2 | 3 => Some(self.rng.u64(1..TTL_US / 2)),
            _ => Some(self.rng.u64(1..TTL_US / 20)),
        }
    }

    fn send(&mut self, said: RequestSent) {
        if let Some(delay) = self.delay() {
            self.at(self.now + delay, ScheduleEvent::ToServer(said));
        }
    }

    fn tell(&mut self, told: ReplySent) {
        if let Some(delay) = self.delay() {
            self.at(self.now + delay, ScheduleEvent::ToClient(told));
        } else if matches!(told, ReplySent::Taken) {
            self.counts.taken_unheard += 1;
        }
    }

    /// Runs until nothing more can happen, and returns the violation if there is one.
    fn run(&mut self) -> Result<(), String> {
        while let Some(((at, _), event)) = self.queue.pop_first() {
            if at > TTL_US * 8 {
                break;
            }
            let from = match &event {
                ScheduleEvent::Poll | ScheduleEvent::ToClient(_) | ScheduleEvent::Ask => {
                    self.polls_from.max(self.runs_from)
                }
                ScheduleEvent::Work | ScheduleEvent::Act { .. } | ScheduleEvent::Stopped => {
                    self.runs_from
                }
                _ => 0,
            };
            if at < from {
                self.at(from, event);
                continue;
            }
            self.now = at;
            self.machine.pass_on(self.machine_clock(), self.machine_ppm);
            self.step(event)?;
            let reading = self.reading();
            if self.cancelled.is_none()
                && self.state.as_mut().is_some_and(|state| state.losses().next().is_some())
            {
                self.cancelled = Some(reading.boot);
            }
        }
        // A window barely longer than a third of the ttl is allowed, but leaves no time for one round trip.
        let roomy = self.timing.window() >= self.timing.ttl() * 5 / 12;
        if self.calm && roomy && !matches!(self.standing(), Some(Standing::Valid)) {
            return Err(format!("L5: lost without a fault: {:?}", self.state));
        }
        if self.calm && self.done && self.machine.passed_on.is_none() {
            return Err(format!("given back without a fault, and held: {:?}", self.state));
        }
        Ok(())
    }

    fn standing(&mut self) -> Option<Standing> {
        let reading = self.reading();
        self.state.as_mut().map(|state| state.standing(reading))
    }

    fn step(&mut self, event: ScheduleEvent) -> Result<(), String> {
        match event {
            ScheduleEvent::Ask => self.ask(),
            ScheduleEvent::Poll => self.poll(),
            ScheduleEvent::Work => self.work(),
            ScheduleEvent::Act { until } => return self.act(until),
            ScheduleEvent::Stopped => self.stopped(),
            ScheduleEvent::ToServer(said) => self.serve(said),
            ScheduleEvent::ToClient(told) => self.receive(told),
            ScheduleEvent::Force => {
                if let Some(told) = self.machine.force() {
                    self.tell(told);
                }
            }
            ScheduleEvent::Sleep(long) => {
                self.slept += scale(long, self.client_ppm);
                self.runs_from = self.runs_from.max(self.now) + long;
                // No clock is read before the machine resumes, so the whole suspend can be added at once.
            }
            ScheduleEvent::Stop(long) => self.runs_from = self.runs_from.max(self.now) + long,
            ScheduleEvent::Block(long) => self.polls_from = self.polls_from.max(self.now) + long,
        }
        Ok(())
    }

    fn ask(&mut self) {
        if self.state.is_some() || self.over {
            return;
        }
        let reading = self.reading();
        self.asking.sent(reading);
        self.send(RequestSent::Grant);
        self.at(self.now + TTL_US / 20, ScheduleEvent::Ask);
    }

    fn poll(&mut self) {
        let reading = self.reading();
        let Some(state) = &mut self.state else { return };
        if state.poll(reading) {
            let number = state.renewing(reading);
            self.send(RequestSent::Renew(number));
        }
        self.farewells();
        let Some(state) = &mut self.state else { return };
        if state.check(reading).is_ok() || mutant!("late_answer_revives") {
            let due = state.due();
            let at = self.real(due).max(self.now + 1_000);
            self.at(at, ScheduleEvent::Poll);
        }
    }

    fn work(&mut self) {
        let reading = self.reading();
        let Some(state) = &mut self.state else { return };
        // One step at a time: an action that has begun is done before the next check.
        let mut next = self.now;
        match state.check_grant(token(), reading) {
            Ok(()) if !self.done && self.done_at.is_some_and(|at| at <= self.now) => {
                self.done = true;
                self.give_back();
            }
            Ok(()) => {
                let until = reading.boot + Duration::from_micros(self.stop_us);
                let lag = self.rng.u64(..=unscale(self.stop_us, self.client_ppm) - 1);
                self.stopping = false;
                self.cancelled = None;
                next += lag;
                self.at(self.now + lag, ScheduleEvent::Act { until });
            }
            Err(cause) if !self.stopping && !self.done => {
                *self.counts.losses.entry(cause.word()).or_default() += 1;
                self.stopping = true;
                let cancelled = self.cancelled.unwrap_or(reading.boot).min(state.lost_at());
                let most = cancelled + Duration::from_micros(self.stop_us);
                let left = self.real(most).saturating_sub(self.now + 2);
                let lag = self.rng.u64(..=left);
                self.at(self.now + lag, ScheduleEvent::Act { until: most });
                self.at(self.now + lag, ScheduleEvent::Stopped);
            }
            Err(_) => {}
        }
        next += self.rng.u64(1..TTL_US / 40);
        self.at(next, ScheduleEvent::Work);
    }

    fn act(&mut self, until: Moment) -> Result<(), String> {
        // Work that is delayed between check and effect for longer than declared needs the fence.
        if self.reading().boot > until {
            return Ok(());
        }
        self.counts.acts += 1;
        match self.machine.passed_on {
            Some(passed_on) if passed_on <= self.now => Err(format!(
                "T4: an effect at {} although another holds since {passed_on}",
                self.now
            )),
            _ => Ok(()),
        }
    }

    fn stopped(&mut self) {
        if self.stopping {
            self.give_back();
        }
    }

    /// Ends the work. A guard that is released tries the fast path first; one that is dropped, or stands for several
    /// locks, does not.
    fn give_back(&mut self) {
        let reading = self.reading();
        let short = self.rng.bool();
        let Some(state) = &mut self.state else { return };
        if short && state.given_back(token(), reading).is_some() {
            self.counts.given_back += 1;
            self.send(RequestSent::Release);
            return;
        }
        self.counts.farewells += u64::from(state.check_grant(token(), reading).is_ok());
        state.stopped(token());
        self.farewells();
        let Some(state) = &mut self.state else { return };
        if state.check(reading).is_err() && state.is_idle() {
            self.send(RequestSent::Revoke);
        }
    }

    fn farewells(&mut self) {
        let Some(state) = &mut self.state else { return };
        for (_, _, farewell) in state.farewells() {
            self.send(match farewell {
                EndMessage::Release => RequestSent::Release,
                EndMessage::Confirm => RequestSent::Confirm,
            });
        }
    }

    fn serve(&mut self, said: RequestSent) {
        let deadline = self.machine_clock() + TTL_US;
        if let Some(told) = self.machine.serve(said, deadline, self.now) {
            self.tell(told);
        }
    }

    fn receive(&mut self, told: ReplySent) {
        let reading = self.reading();
        match told {
            ReplySent::Granted if self.state.is_none() && !self.over => {
                match self.asking.granted(reading) {
                    Ok(mut state) => {
                        if state.granted("lock", token(), Revision(1), reading).is_ok() {
                            self.state = Some(state);
                            self.at(self.now, ScheduleEvent::Work);
                            self.at(self.now, ScheduleEvent::Poll);
                        }
                    }
                    Err(_) => {
                        self.counts.late_grants += 1;
                        self.over = true;
                        self.send(RequestSent::Revoke);
                    }
                }
            }
            ReplySent::Renewed { number, lives, changed } => {
                let Some(state) = &mut self.state else { return };
                self.counts.late_answers += u64::from(state.check(reading).is_err());
                let ttl = if lives { self.timing.ttl() } else { Duration::ZERO };
                if state.renewed(number, ttl, changed, reading) == AckEffect::ReadHoldings {
                    self.send(RequestSent::Holdings);
                }
            }
            ReplySent::Held { revision, changed, held } => {
                let holds = if held { vec![token()] } else { Vec::new() };
                if let Some(state) = &mut self.state {
                    state.holdings(revision, changed, &holds, reading);
                }
            }
            ReplySent::Taken => {
                if let Some(state) = &mut self.state {
                    state.taken(token(), Cause::Forced);
                }
            }
            ReplySent::Granted => {}
        }
    }
}

fn scale(time: u64, ppm: i64) -> u64 {
    let rate = 1_000_000 + i128::from(ppm);
    u64::try_from(i128::from(time) * rate / 1_000_000).expect("times are positive")
}

/// Returns the first violation among the schedules, with its seed.
fn find(counts: &mut ScheduleCounts) -> Option<(u64, String)> {
    for seed in 0..SCHEDULES {
        let mut world = ScheduleWorld::new(seed);
        let found = world.run().err();
        counts.acts += world.counts.acts;
        counts.late_answers += world.counts.late_answers;
        counts.taken_unheard += world.counts.taken_unheard;
        counts.late_grants += world.counts.late_grants;
        counts.given_back += world.counts.given_back;
        counts.farewells += world.counts.farewells;
        for (word, count) in world.counts.losses {
            *counts.losses.entry(word).or_default() += count;
        }
        if let Some(violation) = found {
            return Some((seed, violation));
        }
    }
    None
}

#[test]
fn the_work_stops_before_another_can_start_whatever_happens() {
    let mut counts = ScheduleCounts::default();
    if let Some((seed, violation)) = find(&mut counts) {
        panic!("seed {seed}: {violation}");
    }
    println!("{SCHEDULES} schedules: {counts:?}");
    // The schedules must contain enough faults of each kind; otherwise the test would prove nothing.
    assert!(counts.acts > 100_000, "{counts:?}");
    for cause in ["cluster_unreachable", "local_stall", "suspended", "forced", "gone"] {
        assert!(counts.losses.get(cause).is_some_and(|count| *count > 10), "{cause}: {counts:?}");
    }
    assert!(counts.late_answers > 100 && counts.taken_unheard > 20 && counts.late_grants > 20);
    assert!(counts.given_back > 100 && counts.farewells > 100, "{counts:?}");
}

#[test]
fn every_planted_bug_is_caught() {
    let mut missed = Vec::new();
    for name in plant::ALL {
        plant::select(Some(name));
        match find(&mut ScheduleCounts::default()) {
            Some((seed, violation)) if violation.starts_with("T4") => {
                println!("caught {name} after {} schedules: {violation}", seed + 1);
            }
            Some((seed, other)) => missed.push(format!("{name}: seed {seed}: {other}")),
            None => missed.push((*name).to_owned()),
        }
    }
    plant::select(None);
    println!("mutants caught={}/{}", plant::ALL.len() - missed.len(), plant::ALL.len());
    assert!(missed.is_empty(), "missed: {missed:?}");
}
