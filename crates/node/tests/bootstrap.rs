//! Tests that members that bootstrap a cluster together begin with the same state, whatever happens meanwhile.
//!
//! Drives several initial members from a seed: answers are lost or late, members restart at other addresses, and
//! members lose their disks. Initial members with the same cluster id must have the same first state at any time. Once
//! the faults stop, all initial members that kept their disks belong to one cluster.

use std::collections::BTreeMap;

use tenure_node::directory::{MemberNames, MemberRecord, Preference, first_state};
use tenure_node::{
    Bootstrap, BootstrapError, BootstrapResult, Control, IdentifyRequest, MemberInfo,
};
use tenure_raft::MemberId;
use tenure_types::Epoch;

const TICK_US: u64 = 20_000;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

struct InitialMember {
    record: MemberRecord,
    bootstrap: Option<Bootstrap>,
    /// The decision on its disk.
    agreed: Option<BootstrapResult>,
    refused: Option<BootstrapError>,
    /// It has decided, and its disk has not written it yet.
    writing: bool,
    asks: Vec<(u64, IdentifyRequest)>,
}

struct World {
    rng: Rng,
    now_us: u64,
    listed: Vec<(String, String)>,
    initial_members: Vec<InitialMember>,
    /// The first state of each cluster that was ever bootstrapped.
    states: BTreeMap<String, Vec<u8>>,
    lost: bool,
}

fn member_record(rng: &mut Rng, number: usize) -> MemberRecord {
    let names = MemberNames {
        name: format!("m{number}"),
        members: format!("h:{}", number + 1),
        clients: format!("c:{}", 1 + rng.below(60_000)),
        preference: Preference::default(),
    };
    MemberRecord { id: MemberId::new(1 + rng.below(1 << 40)).unwrap(), names }
}

/// Up to which level an initial member knows the rules: the fourth is of an older version.
fn level_of(at: usize) -> u16 {
    if at == 3 { 1 } else { tenure_core::LEVEL_MAX }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let count = 1 + usize::try_from(rng.below(5)).unwrap();
        let listed: Vec<_> =
            (0..count).map(|n| (format!("m{n}"), format!("h:{}", n + 1))).collect();
        let initial_members = (0..count).map(|number| InitialMember {
            record: member_record(&mut rng, number),
            bootstrap: None,
            agreed: None,
            refused: None,
            writing: false,
            asks: Vec::new(),
        });
        let initial_members = initial_members.collect();
        Self { rng, now_us: 0, listed, initial_members, states: BTreeMap::new(), lost: false }
    }

    fn faulty(&self) -> bool {
        self.now_us < 3_000_000
    }

    fn run(&mut self) {
        while self.now_us < 6_000_000 {
            self.now_us += TICK_US;
            for at in 0..self.initial_members.len() {
                self.turn(at);
            }
        }
        if !self.lost {
            let first =
                self.initial_members[0].agreed.as_ref().expect("the first has bootstrapped");
            for initial_member in &self.initial_members {
                assert_eq!(
                    initial_member.agreed.as_ref(),
                    Some(first),
                    "{:?}",
                    initial_member.refused
                );
            }
        }
    }

    fn turn(&mut self, at: usize) {
        if self.faulty() && self.rng.chance(3) {
            self.restart(at);
        }
        let (lossy, slow) = (self.faulty() && self.rng.chance(20), self.rng.below(300_000));
        let initial_member = &mut self.initial_members[at];
        if initial_member.agreed.is_some() || initial_member.refused.is_some() {
            return;
        }
        if initial_member.bootstrap.is_none() {
            let bootstrap =
                Bootstrap::new(&self.listed, initial_member.record.clone(), level_of(at));
            initial_member.bootstrap = Some(bootstrap.unwrap());
        }
        let bootstrap = initial_member.bootstrap.as_mut().unwrap();
        let asks = bootstrap.turn(self.now_us);
        initial_member.asks.extend(asks.into_iter().map(|ask| (self.now_us + slow, ask)));
        let due: Vec<IdentifyRequest> = initial_member
            .asks
            .extract_if(.., |(at_us, _)| *at_us <= self.now_us)
            .map(|it| it.1)
            .collect();
        for ask in due {
            let asked = self.listed.iter().position(|(_, address)| *address == ask.address);
            let answer = match asked {
                Some(asked) if !lossy => Ok(self.who(asked)),
                _ => Err("lost".to_owned()),
            };
            let bootstrap = self.initial_members[at].bootstrap.as_mut().unwrap();
            bootstrap.handle(&ask.address, answer);
        }
        self.end(at);
    }

    fn who(&self, at: usize) -> Control {
        let InitialMember { record, agreed, .. } = &self.initial_members[at];
        let me = MemberInfo::new(record.id, record.names.clone(), level_of(at));
        Control::MemberInfo(match agreed.clone() {
            Some(BootstrapResult { cluster, initial_members, level }) => {
                MemberInfo { cluster: Some(cluster), initial_members, level, ..me }
            }
            None => me,
        })
    }

    fn end(&mut self, at: usize) {
        let initial_member = &mut self.initial_members[at];
        match initial_member.bootstrap.as_ref().and_then(Bootstrap::ended).cloned() {
            None => {}
            // The initial member tells others only once the disk has the decision, which a restart may prevent.
            Some(Ok(_)) if !initial_member.writing => initial_member.writing = true,
            Some(Ok(agreed)) => {
                let common = (0..self.listed.len()).map(level_of).min();
                assert_eq!(Some(agreed.level), common, "the newest level that all know");
                let state = first_state(&agreed.initial_members, agreed.level, Epoch::default());
                let state = state.encode();
                let first = self.states.entry(agreed.cluster.clone()).or_insert(state.clone());
                assert!(*first == state, "one cluster id, one first state");
                assert!(
                    agreed
                        .initial_members
                        .iter()
                        .any(|record| record.id == initial_member.record.id)
                );
                initial_member.agreed = Some(agreed);
            }
            Some(Err(refused)) => {
                assert!(self.lost, "{refused}");
                initial_member.refused = Some(refused);
            }
        }
    }

    /// Restarts a member, perhaps at another address, perhaps with an empty disk.
    fn restart(&mut self, at: usize) {
        let clients = format!("c:{}", 1 + self.rng.below(60_000));
        let wiped = self.rng.chance(5);
        let record = member_record(&mut self.rng, at);
        let initial_member = &mut self.initial_members[at];
        initial_member.bootstrap = None;
        initial_member.writing = false;
        initial_member.asks.clear();
        if wiped {
            self.lost = true;
            (initial_member.record, initial_member.agreed, initial_member.refused) =
                (record, None, None);
        } else {
            initial_member.record.names.clients = clients;
        }
    }
}

#[test]
fn initial_members_of_one_cluster_have_one_first_state() {
    let mut agreed = 0;
    for seed in 0..3_000 {
        let mut world = World::new(seed);
        let ran = std::panic::AssertUnwindSafe(|| world.run());
        if let Err(panic) = std::panic::catch_unwind(ran) {
            eprintln!("seed {seed} failed");
            std::panic::resume_unwind(panic);
        }
        agreed += u32::from(!world.lost);
    }
    assert!(agreed > 500, "{agreed} runs without a lost disk");
}
