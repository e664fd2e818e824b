//! Brings a member into a cluster that exists: the side of the member that wants to join.
//!
//! The leader's side is in `join/admit.rs`. `join/standing.rs` keeps a member's record in the directory up to date and
//! notices that the member was removed.

pub(crate) mod admit;
pub(crate) mod standing;

use std::net::{IpAddr, Ipv6Addr};

use tenure_raft::Stop;

use crate::bootstrap::IdentifyRequest;
use crate::control::{Control, Join};
use crate::directory::{Address, MemberRecord};
use crate::lineage::Lineage;

/// The most members asked on the way from a seed to the leader.
const HOPS_MAX: usize = 5;
/// How long a member tries before it says why it cannot join.
const ENTER_US: u64 = 30_000_000;
/// Between two rounds over all seeds.
const PAUSE_US: u64 = 500_000;
/// The longest host name that can be resolved.
const HOST_BYTES_MAX: usize = 253;

/// The member's identity in its dealings with other members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberIdentity {
    /// Its id, name and addresses, as they are since this start.
    pub record: MemberRecord,
    /// Its cluster.
    pub lineage: Lineage,
    /// The newest level of the machine's rules that it knows.
    pub level_known: u16,
    /// Records that it was given when it joined. They count while its own state has no directory.
    pub given: Vec<MemberRecord>,
}

/// A cluster that has added this member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joined {
    /// The cluster.
    pub lineage: Lineage,
    /// Its directory, so that the member can dial the others before it has the state.
    pub directory: Vec<MemberRecord>,
}

/// Why a member could not join.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JoinError {
    /// No member added it in time.
    #[error("no member of the cluster added this member: {tried}")]
    Unreachable {
        /// The answer of each seed.
        tried: String,
    },
    /// The cluster adds no member without an invitation, and this member presented none that admits it.
    #[error("the cluster did not add this member: {why}")]
    Uninvited {
        /// The answer of the leader.
        why: String,
    },
    /// The leader refused this member for a reason that asking again does not remove.
    #[error("the cluster did not add this member: {why}")]
    Rejected {
        /// The answer of the leader.
        why: String,
    },
    /// The cluster has removed this id. The data directory must be emptied, which draws a new one.
    #[error("the cluster has removed this member's id, which is never used again")]
    Retired,
}

/// A member that asks to be added, first one seed, then the member that it names as leader, then the next seed.
#[derive(Debug)]
pub struct Joining {
    seeds: Vec<Address>,
    join: Join,
    at: JoinStage,
    tried: Vec<String>,
    /// A leader's answer in this round that will be the same next time.
    refused: Option<JoinError>,
    until_us: Option<u64>,
    ended: Option<Result<Joined, JoinError>>,
}

#[derive(Debug)]
enum JoinStage {
    /// This seed is the next to be asked.
    Seed(usize),
    /// The member at this address was asked, as the so manieth after a seed.
    Asked { seed: usize, address: Address, hops: usize },
    /// Another member has named the member at this address as leader.
    Next { seed: usize, address: Address, hops: usize },
    /// All seeds were asked.
    Paused { until_us: u64 },
}

impl Joining {
    /// A member that has no data. `join` must name no lineage.
    pub fn new(seeds: Vec<Address>, join: Join) -> Self {
        Self {
            seeds,
            join,
            at: JoinStage::Seed(0),
            tried: Vec::new(),
            refused: None,
            until_us: None,
            ended: None,
        }
    }

    /// What the member asks others for.
    pub fn request(&self) -> Control {
        Control::Join(self.join.clone())
    }

    /// The member to be asked now, with [`Joining::request`]. It must be followed by one [`Joining::handle`],
    /// also if it could not be reached.
    pub fn turn(&mut self, now_us: u64) -> Option<IdentifyRequest> {
        if self.ended.is_some() {
            return None;
        }
        let until_us = *self.until_us.get_or_insert(now_us.saturating_add(ENTER_US));
        if let JoinStage::Seed(seed) = self.at
            && seed >= self.seeds.len()
        {
            // Another seed may know a newer leader, so all of them are asked first. After that, asking again does
            // not help.
            if let Some(error) = self.refused.take() {
                self.ended = Some(Err(error));
                return None;
            }
            if now_us >= until_us {
                let tried = self.tried.join("; ");
                self.ended = Some(Err(JoinError::Unreachable { tried }));
                return None;
            }
            self.at = JoinStage::Paused { until_us: now_us.saturating_add(PAUSE_US) };
        }
        if matches!(self.at, JoinStage::Paused { until_us } if now_us >= until_us) {
            self.tried.clear();
            self.at = JoinStage::Seed(0);
        }
        let (seed, address, hops) = match &self.at {
            JoinStage::Seed(seed) => (*seed, self.seeds.get(*seed)?.clone(), 1),
            JoinStage::Next { seed, address, hops } => (*seed, address.clone(), *hops),
            JoinStage::Asked { .. } | JoinStage::Paused { .. } => return None,
        };
        self.at = JoinStage::Asked { seed, address: address.clone(), hops };
        Some(IdentifyRequest { address, name: None })
    }

    /// When the next turn is due if no answer comes first.
    pub fn wake_us(&self) -> u64 {
        match self.at {
            JoinStage::Paused { until_us } => until_us,
            JoinStage::Asked { .. } => u64::MAX,
            JoinStage::Seed(_) | JoinStage::Next { .. } => 0,
        }
    }

    /// Takes the answer of the member that was asked, or why there is none.
    pub fn handle(&mut self, answer: Result<Control, String>) {
        let JoinStage::Asked { seed, address, hops } = &self.at else { return };
        let (seed, hops) = (*seed, *hops);
        let why = match answer {
            Ok(Control::Joined { lineage, level, directory }) if level <= self.join.level => {
                return self.ended = Some(Ok(Joined { lineage, directory }));
            }
            Ok(Control::Joined { level, .. }) => {
                Stop::Outgrown { level, known: self.join.level }.to_string()
            }
            Ok(Control::Retired) => return self.ended = Some(Err(JoinError::Retired)),
            Ok(Control::Elsewhere(_)) if hops >= HOPS_MAX => {
                format!("no leader after {HOPS_MAX} members")
            }
            Ok(Control::Elsewhere(next)) => match undiallable(&next) {
                None => return self.at = JoinStage::Next { seed, address: next, hops: hops + 1 },
                Some(why) => format!("it names a leader at `{next}`: {why}"),
            },
            Ok(Control::Uninvited(why)) => {
                self.refused = Some(JoinError::Uninvited { why: why.clone() });
                why
            }
            Ok(Control::Rejected(why)) => {
                self.refused = Some(JoinError::Rejected { why: why.clone() });
                why
            }
            Ok(Control::Refused(why)) => why,
            Ok(_) => "speaks another protocol".to_owned(),
            Err(error) => error,
        };
        self.tried.push(format!("{address}: {why}"));
        self.at = JoinStage::Seed(seed + 1);
    }

    /// The result, once the attempt to join has ended.
    pub fn ended(&self) -> Option<&Result<Joined, JoinError>> {
        self.ended.as_ref()
    }
}

/// Why no member can dial an address; none if one can. Names are not resolved.
pub fn undiallable(address: &str) -> Option<&'static str> {
    let Some((host, port)) = address.rsplit_once(':') else { return Some("it has no port") };
    match port.parse::<u16>() {
        Err(_) => return Some("its port is not a number from 1 to 65535"),
        Ok(0) => return Some("its port is 0"),
        Ok(_) => {}
    }
    let ip = match host.strip_prefix('[').map(|host| host.strip_suffix(']')) {
        Some(inside) => match inside.map(str::parse::<Ipv6Addr>) {
            Some(Ok(ip)) => Some(IpAddr::V6(ip)),
            _ => return Some("it has no IPv6 address in its brackets"),
        },
        None if host.contains(':') => return Some("an IPv6 address stands in brackets"),
        None => host.parse::<IpAddr>().ok(),
    };
    if ip.is_some_and(|ip| ip.is_unspecified() || ip.is_multicast()) {
        return Some("it stands for no single machine");
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let named = !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.bytes().all(plain);
    (ip.is_none() && !named).then_some("its host is neither a name nor an IP address")
}

#[cfg(test)]
mod tests {
    use tenure_raft::MemberId;
    use tenure_types::Epoch;

    use super::*;
    use crate::directory::{MemberNames, Preference};
    use crate::lineage::Incarnation;

    fn entering(seeds: &[&str]) -> Joining {
        let names = MemberNames {
            name: "d".into(),
            members: "h:4".into(),
            clients: "h:9".into(),
            preference: Preference::default(),
        };
        let record = MemberRecord { id: MemberId::new(4).unwrap(), names };
        let seeds = seeds.iter().map(|seed| (*seed).to_owned()).collect();
        Joining::new(seeds, Join { record, level: 1, lineage: None, invitation: None })
    }

    fn joined(level: u16) -> Result<Control, String> {
        let (epoch, incarnation) = (Epoch::default(), Incarnation(0));
        let lineage = Lineage { cluster: "c".into(), epoch, incarnation };
        Ok(Control::Joined { lineage, level, directory: vec![] })
    }

    fn address(ask: Option<IdentifyRequest>) -> String {
        ask.unwrap().address
    }

    #[test]
    fn a_member_follows_hints_to_the_leader() {
        let mut entering = entering(&["h:1"]);
        assert_eq!(address(entering.turn(0)), "h:1");
        assert_eq!(entering.turn(0), None, "one question at a time");
        entering.handle(Ok(Control::Elsewhere("h:2".into())));
        assert_eq!(address(entering.turn(0)), "h:2");
        entering.handle(joined(1));
        assert_eq!(entering.ended().unwrap().as_ref().unwrap().lineage.cluster, "c");
        assert_eq!(entering.turn(0), None);
    }

    #[test]
    fn hints_in_a_circle_end_after_five_members_and_the_next_seed_is_asked() {
        let mut entering = entering(&["h:1", "h:7"]);
        for hop in 0..HOPS_MAX {
            assert_ne!(address(entering.turn(0)), "h:7", "hop {hop}");
            entering.handle(Ok(Control::Elsewhere(format!("h:{}", hop % 2 + 1))));
        }
        assert_eq!(address(entering.turn(0)), "h:7");
        entering.handle(Ok(Control::Elsewhere("h:0".into())));
        assert!(entering.turn(0).is_none(), "an address that cannot be dialled is not dialled");
    }

    #[test]
    fn seeds_are_asked_again_until_time_is_up() {
        let mut entering = entering(&["h:1", "h:2"]);
        let mut now_us = 0;
        let mut asked = 0;
        while entering.ended().is_none() {
            if entering.turn(now_us).is_some() {
                asked += 1;
                entering.handle(Err("no route".into()));
                continue;
            }
            now_us = entering.wake_us().max(now_us);
        }
        assert_eq!(now_us, ENTER_US);
        assert_eq!(asked, 2 * (ENTER_US / PAUSE_US + 1));
        let tried = "h:1: no route; h:2: no route".to_owned();
        assert_eq!(entering.ended(), Some(&Err(JoinError::Unreachable { tried })));
    }

    #[test]
    fn a_retired_id_is_not_tried_again_and_a_newer_cluster_is_named() {
        let mut retired = entering(&["h:1"]);
        retired.turn(0);
        retired.handle(Ok(Control::Retired));
        assert_eq!(retired.ended(), Some(&Err(JoinError::Retired)));
        let mut outgrown = entering(&["h:1"]);
        outgrown.turn(0);
        outgrown.handle(joined(2));
        assert!(outgrown.tried[0].contains("at feature level 2"), "{:?}", outgrown.tried);
    }

    #[test]
    fn a_member_without_an_invitation_asks_every_seed_once() {
        let mut uninvited = entering(&["h:1", "h:2"]);
        for seed in ["h:1", "h:2"] {
            assert_eq!(address(uninvited.turn(0)), seed);
            let why = format!("none at {seed}");
            uninvited.handle(Ok(Control::Uninvited(why)));
        }
        assert_eq!(uninvited.turn(0), None);
        let why = "none at h:2".to_owned();
        assert_eq!(uninvited.ended(), Some(&Err(JoinError::Uninvited { why })));
        // The first seed knows an old leader.
        let mut invited = entering(&["h:1", "h:2"]);
        invited.turn(0);
        invited.handle(Ok(Control::Uninvited("not known yet".into())));
        assert_eq!(address(invited.turn(0)), "h:2");
        invited.handle(joined(1));
        assert!(matches!(invited.ended(), Some(Ok(_))));
    }

    #[test]
    fn a_member_whose_name_is_taken_is_not_tried_again() {
        let mut taken = entering(&["h:1"]);
        taken.turn(0);
        let why = "member 2 is called `b` already".to_owned();
        taken.handle(Ok(Control::Rejected(why.clone())));
        assert_eq!(taken.turn(0), None);
        assert_eq!(taken.ended(), Some(&Err(JoinError::Rejected { why })));
    }

    #[test]
    fn only_addresses_that_can_be_dialled_are_accepted() {
        for good in ["h:1", "a-b.example_x:65535", "10.0.0.1:7451", "[::1]:7451", "localhost:80"] {
            assert_eq!(undiallable(good), None, "{good}");
        }
        for bad in [
            "",
            "-",
            "h",
            "h:",
            "h:0",
            "h:65536",
            "h:x",
            ":1",
            "0.0.0.0:1",
            "[::]:1",
            "::1:1",
            "[::1:1",
            "a b:1",
            "a/b:1",
            "224.0.0.1:1",
            "[h]:1",
        ] {
            assert!(undiallable(bad).is_some(), "{bad}");
        }
    }
}
