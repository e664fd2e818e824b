//! Founds the cluster of a run: founders that start late, crash or are not reached agree on one first state (N10).
//!
//! Founders run [`tenure_node::Bootstrap`] and ask each other over a network of their own, before the cluster exists. A
//! crash forgets what a founder has heard; the cluster that it has founded is on its disk.

use fastrand::Rng;
use tenure_node::directory::MemberRecord;
use tenure_node::{Bootstrap, BootstrapResult, Control, MemberInfo};

use super::event::EventQueue;
use super::oracle::ensure;
use super::{FaultCounts, MS, S};
use crate::invariant::InvariantViolation;

/// How long the bootstrap may take: the latest start, the crashes and some rounds of questions.
const LIMIT_US: u64 = 60 * S;

/// A cluster that was founded.
pub(super) struct BootstrappedCluster {
    pub(super) founded: BootstrapResult,
    /// When each founder knew it.
    pub(super) at_us: Vec<u64>,
    /// What each founder is called by then. The first state may have it as it was before.
    pub(super) records: Vec<MemberRecord>,
}

struct Founder {
    record: MemberRecord,
    level: u16,
    up: bool,
    boot: u64,
    bootstrap: Option<Bootstrap>,
    founded: Option<(u64, BootstrapResult)>,
}

enum BootstrapStep {
    Up(usize),
    Down(usize),
    Turn(usize, u64),
    /// A question has arrived.
    Asked {
        from: usize,
        boot: u64,
        to: usize,
    },
    Answered {
        to: usize,
        boot: u64,
        address: String,
        answer: Result<Control, String>,
    },
}

struct Scene<'a> {
    rng: &'a mut Rng,
    queue: EventQueue<BootstrapStep>,
    founders: Vec<Founder>,
    listed: Vec<(String, String)>,
    now_us: u64,
}

/// Founds a cluster of members with these records, that know the rules up to these levels.
pub(super) fn found(
    rng: &mut Rng,
    faults: &mut FaultCounts,
    founders: Vec<(MemberRecord, u16)>,
) -> Result<BootstrappedCluster, InvariantViolation> {
    let listed = founders
        .iter()
        .map(|(record, _)| (record.names.name.clone(), record.names.members.clone()))
        .collect();
    let founder = |(record, level)| {
        let (up, boot, bootstrap, founded) = (false, 0, None, None);
        Founder { record, level, up, boot, bootstrap, founded }
    };
    let founders: Vec<Founder> = founders.into_iter().map(founder).collect();
    let mut scene = Scene { rng, queue: EventQueue::default(), founders, listed, now_us: 0 };
    for founder in 0..scene.founders.len() {
        let late = scene.rng.u8(0..4) == 0;
        faults.count_by("founder_late", u64::from(late));
        let starts_us = scene.rng.u64(0..if late { 5 * S } else { 50 * MS });
        scene.queue.push(starts_us, BootstrapStep::Up(founder));
        if scene.rng.u8(0..4) == 0 {
            let at_us = starts_us + scene.rng.u64(0..500) * MS;
            scene.queue.push(at_us, BootstrapStep::Down(founder));
        }
    }
    while let Some((at_us, step)) = scene.queue.pop() {
        scene.now_us = at_us;
        ensure(at_us < LIMIT_US, "N10", || "the founders found no cluster".into())?;
        scene.happen(step, faults)?;
        if scene.founders.iter().all(|it| it.founded.is_some() && it.up) {
            break;
        }
    }
    let records = scene.founders.iter().map(|it| it.record.clone()).collect();
    let mut founded = scene.founders.into_iter().filter_map(|it| it.founded);
    let (first_us, first) = founded.next().expect("every founder has founded it");
    let mut at_us = vec![first_us];
    for (when_us, other) in founded {
        ensure(first == other, "N10", || format!("founders disagree: {first:?}, {other:?}"))?;
        at_us.push(when_us);
    }
    Ok(BootstrappedCluster { founded: first, at_us, records })
}

impl Scene<'_> {
    fn happen(
        &mut self,
        step: BootstrapStep,
        faults: &mut FaultCounts,
    ) -> Result<(), InvariantViolation> {
        match step {
            BootstrapStep::Up(at) => {
                let founder = &mut self.founders[at];
                (founder.up, founder.boot) = (true, founder.boot + 1);
                if founder.boot > 1 && self.rng.bool() {
                    // Its clients find it elsewhere since it was down.
                    faults.count("founder_moved");
                    founder.record.names.clients = format!("h{}:9", founder.record.id);
                }
                if founder.founded.is_none() {
                    let made = Bootstrap::new(&self.listed, founder.record.clone(), founder.level);
                    let made = made
                        .map_err(|refused| InvariantViolation::new("N10", refused.to_string()))?;
                    founder.bootstrap = Some(made);
                    self.queue.push(self.now_us, BootstrapStep::Turn(at, founder.boot));
                }
            }
            BootstrapStep::Down(at) => {
                faults.count("founder_crash");
                (self.founders[at].up, self.founders[at].bootstrap) = (false, None);
                let most_ms = [50, 3000][self.rng.usize(0..2)];
                self.queue.push(self.now_us + self.rng.u64(1..most_ms) * MS, BootstrapStep::Up(at));
            }
            BootstrapStep::Turn(at, boot) => self.turn(at, boot)?,
            BootstrapStep::Asked { from, boot, to } => self.answer_founder(from, boot, to)?,
            BootstrapStep::Answered { to, boot, address, answer } => {
                let founder = &mut self.founders[to];
                if let Some(bootstrap) = founder.bootstrap.as_mut().filter(|_| founder.boot == boot)
                {
                    bootstrap.handle(&address, answer);
                    self.queue.push(self.now_us, BootstrapStep::Turn(to, boot));
                }
            }
        }
        Ok(())
    }

    fn turn(&mut self, at: usize, boot: u64) -> Result<(), InvariantViolation> {
        let founder = &mut self.founders[at];
        let Some(bootstrap) = founder.bootstrap.as_mut().filter(|_| founder.boot == boot) else {
            return Ok(());
        };
        let asks = bootstrap.turn(self.now_us);
        let wake_us = bootstrap.wake_us();
        if let Some(ended) = bootstrap.ended() {
            let ended = ended.clone();
            let founded =
                ended.map_err(|refused| InvariantViolation::new("N10", refused.to_string()))?;
            founder.founded = Some((self.now_us, founded));
            founder.bootstrap = None;
            return Ok(());
        }
        for ask in &asks {
            let to = self.listed.iter().position(|(_, address)| *address == ask.address);
            let to =
                to.ok_or_else(|| InvariantViolation::new("N10", "a founder asks one not listed"))?;
            // Some connections take long to come up, so founders are asked at different moments of a round.
            let most_us = if self.rng.u8(0..4) == 0 { 2 * S } else { 20 * MS };
            let at_us = self.now_us + self.rng.u64(MS..most_us);
            self.queue.push(at_us, BootstrapStep::Asked { from: at, boot, to });
        }
        if asks.is_empty() && wake_us != u64::MAX {
            self.queue.push(wake_us.max(self.now_us + 1), BootstrapStep::Turn(at, boot));
        }
        Ok(())
    }

    fn answer_founder(
        &mut self,
        from: usize,
        boot: u64,
        to: usize,
    ) -> Result<(), InvariantViolation> {
        let Founder { record, level, up, founded, .. } = &self.founders[to];
        let mut me = MemberInfo::new(record.id, record.names.clone(), *level);
        if let Some((_, BootstrapResult { cluster, founders, level })) = founded {
            me = MemberInfo {
                cluster: Some(cluster.clone()),
                founders: founders.clone(),
                level: *level,
                ..me
            };
        }
        let said = Control::MemberInfo(me);
        let read = Control::decode(&said.encode());
        ensure(read.as_ref() == Some(&said), "codec", || format!("{said:?} does not read back"))?;
        let (late_us, answer) = match self.rng.u8(0..10) {
            _ if !up => (5 * MS, Err("connection refused".to_owned())),
            0 => (S, Err("timed out".to_owned())),
            _ => (self.rng.u64(MS..20 * MS), Ok(said)),
        };
        let address = self.listed[to].1.clone();
        let step = BootstrapStep::Answered { to: from, boot, address, answer };
        self.queue.push(self.now_us + late_us, step);
        Ok(())
    }
}
