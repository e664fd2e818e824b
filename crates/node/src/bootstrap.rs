//! Bootstraps a cluster: agrees with the other listed members on its id, its first state and its level.
//!
//! Each initial member asks all others who they are, round after round, until in one round every other initial member
//! has answered with its id and without a cluster. An initial member draws its id once and stores it before it tells
//! it, so all initial members find the same set of ids. The cluster's id is made from that set alone.
//!
//! The first state also holds names and addresses, and it must be the same on every initial member. Initial members may
//! learn different addresses of one initial member, because it may restart at another address while the others ask.
//! Therefore only the initial member with the smallest id decides on the first records. It stores them with the
//! cluster's id, then tells them to the others, which adopt them without a change. An initial member that has adopted
//! the records tells them as well, so every remaining initial member needs an answer from only one of these. An address
//! that was wrong in the first records is corrected later, by the member itself, like any address that changes.
//!
//! The same initial member decides and tells the level of the first state: every initial member reports the highest
//! level of the machine's rules that it knows, and the smallest of these is the level. So the cluster has its level
//! before it has a leader, and no command is applied before the initial members have agreed on it.

use std::collections::{BTreeMap, BTreeSet};

use crate::control::{Control, MemberInfo};
use crate::directory::{Address, MemberRecord, cluster_id};
use crate::join::undiallable;

/// The pause between two rounds of questions.
const PAUSE_US: u64 = 200_000;
/// How often an initial member that waits logs what is missing.
const LOG_EVERY_US: u64 = 10_000_000;

/// A member to which the caller must send [`Control::Who`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdentifyRequest {
    /// The address at which it listens for members.
    pub address: Address,
    /// The name that its certificate must have; none if that is not known.
    pub name: Option<String>,
}

/// The cluster that was bootstrapped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BootstrapResult {
    /// The id of the cluster.
    pub cluster: String,
    /// The initial members' records, in the order of their ids: the content of the first state.
    pub initial_members: Vec<MemberRecord>,
    /// The level of the first state: the newest one that all initial members know.
    pub level: u16,
}

impl BootstrapResult {
    /// The cluster of one member that bootstraps it alone and knows the rules up to this level.
    pub fn alone(record: MemberRecord, level: u16) -> Self {
        let initial_members = vec![record];
        Self { cluster: cluster_id(&initial_members), initial_members, level }
    }
}

/// Why a member cannot take part in the bootstrap of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The list does not contain the member.
    #[error("the list of initial members does not name this member, `{name}`")]
    NotListed {
        /// The member's name.
        name: String,
    },
    /// Two lines of the list have the same name or address.
    #[error("the list of initial members names `{word}` twice")]
    Twice {
        /// The name or address.
        word: String,
    },
    /// An address in the list cannot be dialled.
    #[error("the address `{address}` of initial member `{name}` cannot be used: {why}")]
    Address {
        /// The initial member.
        name: String,
        /// Its address.
        address: Address,
        /// The problem with the address.
        why: &'static str,
    },
    /// A listed member belongs to a cluster that was bootstrapped without this member.
    #[error("{peer} belongs to cluster {cluster}, which was bootstrapped without this member")]
    OtherCluster {
        /// The address of that member.
        peer: Address,
        /// Its cluster.
        cluster: String,
    },
    /// The cluster was bootstrapped at a level that this member does not know: the member ran a newer version then.
    #[error(
        "{peer} bootstrapped the cluster at feature level {level}, and this version knows {known}"
    )]
    Outgrown {
        /// The address of an initial member.
        peer: Address,
        /// The level of the first state.
        level: u16,
        /// Up to which level this member knows the rules.
        known: u16,
    },
}

/// A member that bootstraps a cluster with others.
#[derive(Debug)]
pub struct Bootstrap {
    me: MemberRecord,
    /// Up to which level this member knows the machine's rules.
    level: u16,
    /// The other initial members' names, by address.
    others: BTreeMap<Address, String>,
    /// The answers of the present round, by address.
    answers: BTreeMap<Address, IdentifyAnswer>,
    asking: bool,
    next_round_us: u64,
    missing: Vec<String>,
    next_log_us: u64,
    ended: Option<Result<BootstrapResult, BootstrapError>>,
}

/// The answer of another initial member.
#[derive(Debug)]
enum IdentifyAnswer {
    InitialMember(MemberRecord, u16),
    Missing(String),
}

impl Bootstrap {
    /// Begins the bootstrap of the member with this record, which has no data and knows the rules up to this level. The
    /// list names every initial member, this member included.
    pub fn new(
        listed: &[(String, Address)],
        me: MemberRecord,
        level: u16,
    ) -> Result<Self, BootstrapError> {
        let name = &me.names.name;
        if !listed.iter().any(|(listed, _)| listed == name) {
            return Err(BootstrapError::NotListed { name: name.clone() });
        }
        let mut seen = BTreeSet::new();
        for (name, address) in listed {
            if let Some(why) = undiallable(address) {
                let (name, address) = (name.clone(), address.clone());
                return Err(BootstrapError::Address { name, address, why });
            }
            for word in [name, address] {
                if !seen.insert(word) {
                    return Err(BootstrapError::Twice { word: word.clone() });
                }
            }
        }
        let others = listed.iter().filter(|(listed, _)| listed != name);
        let others = others.map(|(name, address)| (address.clone(), name.clone())).collect();
        Ok(Self {
            me,
            level,
            others,
            answers: BTreeMap::new(),
            asking: false,
            next_round_us: 0,
            missing: Vec::new(),
            next_log_us: 0,
            ended: None,
        })
    }

    /// Returns the members to ask now. The caller must report each answer with [`Bootstrap::handle`], and also that a
    /// member could not be reached.
    pub fn turn(&mut self, now_us: u64) -> Vec<IdentifyRequest> {
        if self.ended.is_none() && self.asking && self.answers.len() == self.others.len() {
            self.end_round(now_us);
        }
        if self.ended.is_some() || self.asking || now_us < self.next_round_us {
            return Vec::new();
        }
        self.asking = true;
        self.answers.clear();
        if self.others.is_empty() {
            self.end_round(now_us);
        }
        let ask = |(address, name): (&Address, &String)| IdentifyRequest {
            address: address.clone(),
            name: Some(name.clone()),
        };
        self.others.iter().map(ask).collect()
    }

    /// When the next turn is due if no answer comes first.
    pub fn wake_us(&self) -> u64 {
        if self.asking { u64::MAX } else { self.next_round_us }
    }

    /// Handles the answer of the member at this address, or the error if there is no answer.
    pub fn handle(&mut self, address: &str, answer: Result<Control, String>) {
        let Some(name) = self.others.get(address) else { return };
        if !self.asking || self.ended.is_some() {
            return;
        }
        let answer = match answer {
            Ok(Control::MemberInfo(them)) => match self.judge(them, name, address) {
                Ok(answer) => answer,
                Err(ended) => return self.ended = Some(ended),
            },
            Ok(Control::Refused(why)) => {
                IdentifyAnswer::Missing(format!("{name} at {address}: {why}"))
            }
            Ok(_) => {
                IdentifyAnswer::Missing(format!("{name} at {address} speaks another protocol"))
            }
            Err(error) => IdentifyAnswer::Missing(format!("{name} at {address}: {error}")),
        };
        self.answers.insert(address.to_owned(), answer);
    }

    /// The result, once the bootstrap has ended.
    pub fn ended(&self) -> Option<&Result<BootstrapResult, BootstrapError>> {
        self.ended.as_ref()
    }

    /// Returns what the bootstrap waits for, for the log; none until the next line is due.
    pub fn missing(&mut self, now_us: u64) -> Option<String> {
        if self.missing.is_empty() || now_us < self.next_log_us || self.ended.is_some() {
            return None;
        }
        self.next_log_us = now_us.saturating_add(LOG_EVERY_US);
        Some(self.missing.join("; "))
    }

    fn judge(
        &self,
        them: MemberInfo,
        name: &str,
        address: &str,
    ) -> Result<IdentifyAnswer, Result<BootstrapResult, BootstrapError>> {
        let MemberInfo { record, cluster, initial_members, level } = them;
        if let Some(cluster) = cluster {
            let peer = address.to_owned();
            // The cluster was bootstrapped. If this member is among the initial members, its answer was counted.
            return Err(if !initial_members.iter().any(|record| record.id == self.me.id) {
                Err(BootstrapError::OtherCluster { peer, cluster })
            } else if level > self.level {
                Err(BootstrapError::Outgrown { peer, level, known: self.level })
            } else {
                Ok(BootstrapResult { cluster, initial_members, level })
            });
        }
        if record.names.name != name {
            let found = record.names.name;
            return Ok(IdentifyAnswer::Missing(format!("{address} is `{found}`, not `{name}`")));
        }
        if record.id == self.me.id {
            let text = format!("{name} at {address} has this member's id: its data is a copy");
            return Ok(IdentifyAnswer::Missing(text));
        }
        Ok(IdentifyAnswer::InitialMember(record, level))
    }

    /// Ends a round: every other initial member has answered, or will not in this round.
    fn end_round(&mut self, now_us: u64) {
        self.asking = false;
        self.next_round_us = now_us.saturating_add(PAUSE_US);
        self.missing.clear();
        let mut records = BTreeMap::from([(self.me.id, self.me.clone())]);
        let mut common = self.level;
        for answer in std::mem::take(&mut self.answers).into_values() {
            match answer {
                IdentifyAnswer::Missing(text) => self.missing.push(text),
                IdentifyAnswer::InitialMember(record, level) => {
                    common = common.min(level);
                    let text = format!(
                        "{} and another initial member have the same id",
                        record.names.name
                    );
                    if records.insert(record.id, record).is_some() {
                        self.missing.push(text);
                    }
                }
            }
        }
        let Some((first, decides)) = records.first_key_value() else { return };
        if !self.missing.is_empty() {
            return;
        }
        if *first != self.me.id && !mutant!("initial_members_decide_alone") {
            let name = &decides.names.name;
            return self.missing.push(format!("{name} has not agreed the cluster yet"));
        }
        let initial_members: Vec<MemberRecord> = records.into_values().collect();
        let cluster = cluster_id(&initial_members);
        self.ended = Some(Ok(BootstrapResult { cluster, initial_members, level: common }));
    }
}

/// The cluster that a listed member belongs to, if it is another than this member's. A member that has data must
/// not start then: it was given the addresses of a foreign cluster, or a foreign directory.
pub fn other_cluster(ours: &str, answer: &Control) -> Option<String> {
    let Control::MemberInfo(MemberInfo { cluster: Some(theirs), .. }) = answer else { return None };
    (theirs != ours).then(|| theirs.clone())
}

#[cfg(test)]
mod tests {
    use tenure_raft::MemberId;
    use tenure_types::Epoch;

    use super::*;
    use crate::directory::{MemberNames, Preference, first_state};

    fn record(number: u64, address: &str) -> MemberRecord {
        let name = format!("m{number}");
        let preference = Preference::default();
        let names =
            MemberNames { name, members: address.into(), clients: "h:9".into(), preference };
        MemberRecord { id: MemberId::new(number).unwrap(), names }
    }

    fn listed(numbers: &[u64]) -> Vec<(String, Address)> {
        numbers.iter().map(|number| (format!("m{number}"), format!("h:{number}"))).collect()
    }

    fn new(record: MemberRecord) -> Bootstrap {
        Bootstrap::new(&listed(&[1, 2, 3]), record, 2).unwrap()
    }

    fn iam(record: MemberRecord) -> Result<Control, String> {
        knows(record, 2)
    }

    fn knows(record: MemberRecord, level: u16) -> Result<Control, String> {
        Ok(Control::MemberInfo(MemberInfo::new(record.id, record.names, level)))
    }

    fn agreed(record: MemberRecord, agreed: &BootstrapResult) -> Result<Control, String> {
        let BootstrapResult { cluster, initial_members, level } = agreed.clone();
        Ok(Control::MemberInfo(MemberInfo {
            record,
            cluster: Some(cluster),
            initial_members,
            level,
        }))
    }

    fn of(bootstrap: &Bootstrap) -> BootstrapResult {
        bootstrap.ended().unwrap().clone().unwrap()
    }

    #[test]
    fn the_smallest_id_decides_once_all_have_answered_in_one_round() {
        let mut first = new(record(1, "h:1"));
        assert_eq!(first.turn(0).len(), 2);
        first.handle("h:2", iam(record(2, "h:2")));
        first.handle("h:3", Err("refused".into()));
        assert!(first.turn(1).is_empty());
        assert_eq!(first.missing(1).as_deref(), Some("m3 at h:3: refused"));
        assert_eq!(first.missing(2), None);
        assert_eq!(first.wake_us(), PAUSE_US + 1);
        assert_eq!(first.turn(PAUSE_US + 1).len(), 2);
        first.handle("h:3", iam(record(3, "h:3")));
        assert!(first.turn(PAUSE_US + 2).is_empty());
        assert!(first.ended().is_none(), "the answer of an earlier round does not count");
        first.handle("h:2", iam(record(2, "h:2")));
        first.turn(PAUSE_US + 3);
        let records = [record(1, "h:1"), record(2, "h:2"), record(3, "h:3")];
        let (cluster, initial_members) = (cluster_id(&records), records.into());
        assert_eq!(of(&first), BootstrapResult { cluster, initial_members, level: 2 });
    }

    #[test]
    fn an_address_that_changes_during_bootstrap_does_not_split_the_initial_members() {
        // Member 3 moves from h:3 to h:33 after member 1 asked it and before member 2 asks it.
        let mut first = new(record(1, "h:1"));
        first.turn(0);
        first.handle("h:2", iam(record(2, "h:2")));
        first.handle("h:3", iam(record(3, "h:3")));
        first.turn(1);
        let told = of(&first);
        let mut second = new(record(2, "h:2"));
        second.turn(0);
        second.handle("h:1", iam(record(1, "h:1")));
        second.handle("h:3", iam(record(3, "h:33")));
        second.turn(1);
        assert!(second.ended().is_none(), "only the smallest id decides");
        assert_eq!(second.missing(1).unwrap(), "m1 has not agreed the cluster yet");
        second.turn(PAUSE_US + 1);
        second.handle("h:1", agreed(record(1, "h:1"), &told));
        let mut third = new(record(3, "h:33"));
        third.turn(0);
        third.handle("h:2", agreed(record(2, "h:2"), &of(&second)));
        for other in [&second, &third] {
            assert_eq!(of(other), told);
            let states = [&told, &of(other)]
                .map(|it| first_state(&it.initial_members, it.level, Epoch::default()));
            assert_eq!(states[0].encode(), states[1].encode());
        }
    }

    #[test]
    fn the_first_level_is_the_newest_that_all_initial_members_know() {
        let mut first = new(record(1, "h:1"));
        first.turn(0);
        first.handle("h:2", knows(record(2, "h:2"), 3));
        // A member of an older version does not report a level.
        let silent = Control::decode(b"i-am 3 m3 h:3 h:9").unwrap();
        first.handle("h:3", Ok(silent));
        first.turn(1);
        assert_eq!(of(&first).level, 1);
        let mut second = new(record(2, "h:2"));
        second.turn(0);
        second.handle("h:1", agreed(record(1, "h:1"), &of(&first)));
        assert_eq!(of(&second), of(&first));
    }

    #[test]
    fn an_initial_member_that_went_back_to_an_older_version_does_not_adopt_what_it_does_not_know() {
        let mut first = new(record(1, "h:1"));
        first.turn(0);
        first.handle("h:2", iam(record(2, "h:2")));
        first.handle("h:3", iam(record(3, "h:3")));
        first.turn(1);
        let mut older = Bootstrap::new(&listed(&[1, 2, 3]), record(2, "h:2"), 1).unwrap();
        older.turn(0);
        older.handle("h:1", agreed(record(1, "h:1"), &of(&first)));
        let expected = BootstrapError::Outgrown { peer: "h:1".into(), level: 2, known: 1 };
        assert_eq!(older.ended(), Some(&Err(expected)));
    }

    #[test]
    fn the_cluster_id_is_that_of_the_ids() {
        let (a, b) = ([record(1, "h:1"), record(2, "h:2")], [record(2, "h:7"), record(1, "h:8")]);
        assert_eq!(cluster_id(&a), cluster_id(&b));
        assert_ne!(cluster_id(&a), cluster_id(&a[..1]));
    }

    #[test]
    fn a_cluster_that_was_founded_without_this_member_is_refused() {
        let mut third = new(record(3, "h:3"));
        third.turn(0);
        let initial_members = vec![record(1, "h:1"), record(2, "h:2")];
        let others = BootstrapResult { cluster: "c".into(), initial_members, level: 2 };
        third.handle("h:1", agreed(record(1, "h:1"), &others));
        let expected = BootstrapError::OtherCluster { peer: "h:1".into(), cluster: "c".into() };
        assert_eq!(third.ended(), Some(&Err(expected)));
        assert!(third.turn(u64::MAX).is_empty());
    }

    #[test]
    fn the_id_that_initial_members_tell_counts_and_not_one_computed_here() {
        let mut second = new(record(2, "h:2"));
        second.turn(0);
        let initial_members = vec![record(1, "h:1"), record(2, "h:2")];
        let told = BootstrapResult { cluster: "old".into(), initial_members, level: 1 };
        second.handle("h:1", agreed(record(1, "h:1"), &told));
        assert_eq!(of(&second), told);
    }

    #[test]
    fn another_member_at_a_listed_address_and_a_copied_id_are_missing() {
        let mut first = new(record(1, "h:1"));
        first.turn(0);
        first.handle("h:2", iam(record(3, "h:3")));
        let mut copy = record(3, "h:3");
        copy.id = record(1, "h:1").id;
        first.handle("h:3", iam(copy));
        first.turn(1);
        let missing = first.missing(1).unwrap();
        assert!(missing.contains("h:2 is `m3`, not `m2`"), "{missing}");
        assert!(missing.contains("its data is a copy"), "{missing}");
        assert!(first.ended().is_none());
    }

    #[test]
    fn a_list_that_cannot_be_right_is_refused() {
        let refused =
            |list: Vec<(String, Address)>| Bootstrap::new(&list, record(1, "h:1"), 2).err();
        assert!(matches!(refused(listed(&[2, 3])), Some(BootstrapError::NotListed { .. })));
        assert!(matches!(refused(listed(&[1, 2, 2])), Some(BootstrapError::Twice { .. })));
        let mut bad = listed(&[1, 2]);
        bad[1].1 = "h:0".into();
        assert!(matches!(refused(bad), Some(BootstrapError::Address { .. })));
    }

    #[test]
    fn an_initial_member_alone_needs_no_answer() {
        let mut alone = Bootstrap::new(&listed(&[1]), record(1, "h:1"), 2).unwrap();
        assert!(alone.turn(0).is_empty());
        assert_eq!(of(&alone), BootstrapResult::alone(record(1, "h:1"), 2));
    }

    #[test]
    fn a_member_with_data_notices_a_foreign_cluster() {
        let them = BootstrapResult { cluster: "b".into(), initial_members: vec![], level: 2 };
        let answer = agreed(record(1, "h:1"), &them).unwrap();
        assert_eq!(other_cluster("a", &answer).as_deref(), Some("b"));
        assert_eq!(other_cluster("b", &answer), None);
        assert_eq!(other_cluster("a", &iam(record(1, "h:1")).unwrap()), None);
    }
}
