//! Bootstraps the cluster of a run: initial members that start late, crash or are not reached agree on one first state
//! (N10).
//!
//! Initial members run [`tenure_node::Bootstrap`] and ask each other over a network of their own, before the cluster
//! exists. A crash forgets what an initial member has heard; the cluster that it has bootstrapped is on its disk.

use fastrand::Rng;
use tenure_node::directory::MemberRecord;
use tenure_node::{Bootstrap, BootstrapResult, Control, MemberInfo};

use super::event::EventQueue;
use super::oracle::ensure;
use super::{FaultCounts, MS, S};
use crate::invariant::InvariantViolation;

/// How long the bootstrap may take: the latest start, the crashes and some rounds of questions.
const LIMIT_US: u64 = 60 * S;

/// A cluster that was bootstrapped.
pub(super) struct BootstrappedCluster {
    pub(super) agreed: BootstrapResult,
    /// When each initial member knew it.
    pub(super) at_us: Vec<u64>,
    /// What each initial member is called by then. The first state may have it as it was before.
    pub(super) records: Vec<MemberRecord>,
}

struct InitialMember {
    record: MemberRecord,
    level: u16,
    up: bool,
    boot: u64,
    bootstrap: Option<Bootstrap>,
    agreed: Option<(u64, BootstrapResult)>,
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
    initial_members: Vec<InitialMember>,
    listed: Vec<(String, String)>,
    now_us: u64,
}

/// Founds a cluster of members with these records, that know the rules up to these levels.
pub(super) fn bootstrap(
    rng: &mut Rng,
    faults: &mut FaultCounts,
    initial_members: Vec<(MemberRecord, u16)>,
) -> Result<BootstrappedCluster, InvariantViolation> {
    let listed = initial_members
        .iter()
        .map(|(record, _)| (record.names.name.clone(), record.names.members.clone()))
        .collect();
    let initial_member = |(record, level)| {
        let (up, boot, bootstrap, agreed) = (false, 0, None, None);
        InitialMember { record, level, up, boot, bootstrap, agreed }
    };
    let initial_members: Vec<InitialMember> =
        initial_members.into_iter().map(initial_member).collect();
    let mut scene = Scene { rng, queue: EventQueue::default(), initial_members, listed, now_us: 0 };
    for initial_member in 0..scene.initial_members.len() {
        let late = scene.rng.u8(0..4) == 0;
        faults.count_by("initial_member_late", u64::from(late));
        let starts_us = scene.rng.u64(0..if late { 5 * S } else { 50 * MS });
        scene.queue.push(starts_us, BootstrapStep::Up(initial_member));
        if scene.rng.u8(0..4) == 0 {
            let at_us = starts_us + scene.rng.u64(0..500) * MS;
            scene.queue.push(at_us, BootstrapStep::Down(initial_member));
        }
    }
    while let Some((at_us, step)) = scene.queue.pop() {
        scene.now_us = at_us;
        ensure(at_us < LIMIT_US, "N10", || "the initial members agree on no cluster".into())?;
        scene.handle_event(step, faults)?;
        if scene.initial_members.iter().all(|it| it.agreed.is_some() && it.up) {
            break;
        }
    }
    let records = scene.initial_members.iter().map(|it| it.record.clone()).collect();
    let mut agreed = scene.initial_members.into_iter().filter_map(|it| it.agreed);
    let (first_us, first) = agreed.next().expect("every initial member has bootstrapped it");
    let mut at_us = vec![first_us];
    for (when_us, other) in agreed {
        ensure(first == other, "N10", || {
            format!("initial members disagree: {first:?}, {other:?}")
        })?;
        at_us.push(when_us);
    }
    Ok(BootstrappedCluster { agreed: first, at_us, records })
}

impl Scene<'_> {
    fn handle_event(
        &mut self,
        step: BootstrapStep,
        faults: &mut FaultCounts,
    ) -> Result<(), InvariantViolation> {
        match step {
            BootstrapStep::Up(at) => {
                let initial_member = &mut self.initial_members[at];
                (initial_member.up, initial_member.boot) = (true, initial_member.boot + 1);
                if initial_member.boot > 1 && self.rng.bool() {
                    // Its clients find it elsewhere since it was down.
                    faults.count("initial_member_moved");
                    initial_member.record.names.clients =
                        format!("h{}:9", initial_member.record.id);
                }
                if initial_member.agreed.is_none() {
                    let made = Bootstrap::new(
                        &self.listed,
                        initial_member.record.clone(),
                        initial_member.level,
                    );
                    let made = made
                        .map_err(|refused| InvariantViolation::new("N10", refused.to_string()))?;
                    initial_member.bootstrap = Some(made);
                    self.queue.push(self.now_us, BootstrapStep::Turn(at, initial_member.boot));
                }
            }
            BootstrapStep::Down(at) => {
                faults.count("initial_member_crash");
                (self.initial_members[at].up, self.initial_members[at].bootstrap) = (false, None);
                let most_ms = [50, 3000][self.rng.usize(0..2)];
                self.queue.push(self.now_us + self.rng.u64(1..most_ms) * MS, BootstrapStep::Up(at));
            }
            BootstrapStep::Turn(at, boot) => self.turn(at, boot)?,
            BootstrapStep::Asked { from, boot, to } => {
                self.answer_initial_member(from, boot, to)?;
            }
            BootstrapStep::Answered { to, boot, address, answer } => {
                let initial_member = &mut self.initial_members[to];
                if let Some(bootstrap) =
                    initial_member.bootstrap.as_mut().filter(|_| initial_member.boot == boot)
                {
                    bootstrap.handle(&address, answer);
                    self.queue.push(self.now_us, BootstrapStep::Turn(to, boot));
                }
            }
        }
        Ok(())
    }

    fn turn(&mut self, at: usize, boot: u64) -> Result<(), InvariantViolation> {
        let initial_member = &mut self.initial_members[at];
        let Some(bootstrap) =
            initial_member.bootstrap.as_mut().filter(|_| initial_member.boot == boot)
        else {
            return Ok(());
        };
        let asks = bootstrap.turn(self.now_us);
        let wake_us = bootstrap.wake_us();
        if let Some(ended) = bootstrap.ended() {
            let ended = ended.clone();
            let agreed =
                ended.map_err(|refused| InvariantViolation::new("N10", refused.to_string()))?;
            initial_member.agreed = Some((self.now_us, agreed));
            initial_member.bootstrap = None;
            return Ok(());
        }
        for ask in &asks {
            let to = self.listed.iter().position(|(_, address)| *address == ask.address);
            let to = to.ok_or_else(|| {
                InvariantViolation::new("N10", "an initial member asks one not listed")
            })?;
            // Some connections take long to come up, so initial members are asked at different moments of a round.
            let most_us = if self.rng.u8(0..4) == 0 { 2 * S } else { 20 * MS };
            let at_us = self.now_us + self.rng.u64(MS..most_us);
            self.queue.push(at_us, BootstrapStep::Asked { from: at, boot, to });
        }
        if asks.is_empty() && wake_us != u64::MAX {
            self.queue.push(wake_us.max(self.now_us + 1), BootstrapStep::Turn(at, boot));
        }
        Ok(())
    }

    fn answer_initial_member(
        &mut self,
        from: usize,
        boot: u64,
        to: usize,
    ) -> Result<(), InvariantViolation> {
        let InitialMember { record, level, up, agreed, .. } = &self.initial_members[to];
        let mut me = MemberInfo::new(record.id, record.names.clone(), *level);
        if let Some((_, BootstrapResult { cluster, initial_members, level })) = agreed {
            me = MemberInfo {
                cluster: Some(cluster.clone()),
                initial_members: initial_members.clone(),
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
