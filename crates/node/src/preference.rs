//! Decides to which member a leader hands over, by the members' preferences.
//!
//! Each member has a preference in the directory. A leader hands over to the voter with the highest preference above
//! its own, and only under these conditions: the leader has led for a while, the other member has answered and been
//! nearly caught up all that time, no change of members is in progress, and the last attempt was long ago. Elections
//! are unaffected. So a hand-over can cost a cluster a pause but never its leader: a member that cannot take over does
//! not.

use std::collections::BTreeMap;

use tenure_raft::{MemberId, Membership, ReplicaStatus};

use crate::directory::{MemberNames, Preference};

/// The interval at which a leader considers a hand-over.
const CHECK_US: u64 = 250_000;
/// How long a leader has led, and the other one has kept up, before it hands over.
const STEADY_US: u64 = 3_000_000;
/// The pause between two attempts of one member, so that two that disagree do not hand leadership back and forth.
const PAUSE_US: u64 = 10_000_000;
/// A member that has not answered for this long, six heartbeats, does not keep up.
const SILENT_US: u64 = 300_000;
/// A member that lacks more entries does not keep up. Under load a few are always on their way.
const BEHIND_MAX: u64 = 64;

/// The hand-over state of one member.
#[derive(Debug, Default)]
pub struct Chooser {
    checked_at_us: Option<u64>,
    tried_at_us: Option<u64>,
    /// The term it leads, and since when it serves.
    leads: Option<(u64, u64)>,
    /// Since when each other voter has kept up.
    steady: BTreeMap<MemberId, u64>,
}

impl Chooser {
    /// Whether the next check is due. A check reads the whole directory.
    pub fn is_due(&self, now_us: u64) -> bool {
        self.checked_at_us.is_none_or(|at_us| now_us >= at_us.saturating_add(CHECK_US))
    }

    /// Returns the member to which this leader should transfer leadership now, if there is one.
    pub fn choose(
        &mut self,
        now_us: u64,
        me: MemberId,
        status: &ReplicaStatus,
        members: &Membership,
        directory: &BTreeMap<MemberId, MemberNames>,
    ) -> Option<MemberId> {
        self.checked_at_us = Some(now_us);
        if !status.serving || !status.settled {
            self.leads = None;
            self.steady.clear();
            return None;
        }
        let term = status.term.0;
        let since_us =
            self.leads.filter(|(led, _)| *led == term).map_or(now_us, |(_, since)| since);
        self.leads = Some((term, since_us));
        let others = members.voters.iter().copied().filter(|id| *id != me);
        let steady = others.filter(|id| keeps_up(status, *id));
        self.steady =
            steady.map(|id| (id, self.steady.get(&id).copied().unwrap_or(now_us))).collect();
        let long = |since_us: u64, time_us: u64| now_us.saturating_sub(since_us) >= time_us;
        if !long(since_us, STEADY_US) || self.tried_at_us.is_some_and(|at| !long(at, PAUSE_US)) {
            return None;
        }
        let ready = self.steady.iter().filter(|(_, since_us)| long(**since_us, STEADY_US));
        let best = ready.map(|(id, _)| (preference(directory, *id), *id)).max()?;
        if best.0 <= preference(directory, me) {
            return None;
        }
        self.tried_at_us = Some(now_us);
        Some(best.1)
    }
}

/// The member to which a leader that leaves hands over: one that keeps up, the most preferred, the nearest.
pub fn successor(
    status: &ReplicaStatus,
    directory: &BTreeMap<MemberId, MemberNames>,
    near: impl Fn(MemberId) -> bool,
) -> Option<MemberId> {
    let known = status.matched.iter().filter(|(id, _)| near(**id));
    let best = known.max_by_key(|(id, matched)| {
        (keeps_up(status, **id), preference(directory, **id), **matched)
    });
    best.map(|(id, _)| *id)
}

fn keeps_up(status: &ReplicaStatus, id: MemberId) -> bool {
    let heard = status.silent_us.get(&id).is_some_and(|silent_us| *silent_us <= SILENT_US);
    let matched = status.matched.get(&id).copied().unwrap_or(0);
    heard && matched.saturating_add(BEHIND_MAX) >= status.last.index
}

fn preference(directory: &BTreeMap<MemberId, MemberNames>, id: MemberId) -> Preference {
    directory.get(&id).map(|names| names.preference).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tenure_store::LogId;
    use tenure_types::Term;

    use super::*;

    fn id(number: u64) -> MemberId {
        MemberId::new(number).unwrap()
    }

    /// Member 1 leads 2 and 3, which have kept up, and all prefer 3, then 2, then 1.
    struct PreferenceHarness {
        chooser: Chooser,
        status: ReplicaStatus,
        members: Membership,
        directory: BTreeMap<MemberId, MemberNames>,
        now_us: u64,
    }

    impl PreferenceHarness {
        fn new() -> Self {
            let point = LogId { index: 1_000, term: 5 };
            let others = [(id(2), 1_000), (id(3), 1_000)];
            let status = ReplicaStatus {
                term: Term(5),
                leader: Some(id(1)),
                leading: true,
                serving: true,
                settled: true,
                applied: point,
                committed: 1_000,
                last: point,
                base: LogId::default(),
                unsynced: 0,
                asking: false,
                cut: None,
                dropped: Default::default(),
                matched: others.into(),
                silent_us: [(id(2), 50_000), (id(3), 50_000)].into(),
            };
            let names = |preference| MemberNames {
                name: "a".into(),
                members: "h:1".into(),
                clients: "h:2".into(),
                preference: Preference::new(preference).unwrap(),
            };
            let directory = [(id(1), names(50)), (id(2), names(60)), (id(3), names(100))].into();
            let members = Membership::of_voters([id(1), id(2), id(3)]);
            Self { chooser: Chooser::default(), status, members, directory, now_us: 1 }
        }

        fn prefer(&mut self, number: u64, preference: u8) {
            let names = self.directory.get_mut(&id(number)).unwrap();
            names.preference = Preference::new(preference).unwrap();
        }

        /// Looks for this long, as often as the event loop does. Returns each hand-over: to which member, and when.
        fn run(&mut self, ms: u64) -> Vec<(u64, u64)> {
            let begun_us = self.now_us;
            let mut chosen = Vec::new();
            while self.now_us < begun_us + ms * 1_000 {
                assert!(self.chooser.is_due(self.now_us));
                let Self { chooser, status, members, directory, now_us } = self;
                let to = chooser.choose(*now_us, id(1), status, members, directory);
                chosen.extend(to.map(|to| (to.get(), (*now_us - begun_us) / 1_000)));
                self.now_us += CHECK_US;
            }
            chosen
        }
    }

    #[test]
    fn the_most_preferred_gets_it_after_a_while_and_attempts_are_rare() {
        let mut stage = PreferenceHarness::new();
        assert_eq!(stage.run(2_900), [], "not at once");
        assert_eq!(stage.run(25_000), [(3, 0), (3, 10_000), (3, 20_000)]);
    }

    #[test]
    fn a_leader_with_the_highest_preference_keeps_leadership() {
        let mut stage = PreferenceHarness::new();
        stage.prefer(1, 100);
        assert_eq!(stage.run(30_000), []);
        stage.directory.clear();
        assert_eq!(
            stage.run(30_000),
            [],
            "an empty directory gives all members the same preference"
        );
    }

    #[test]
    fn a_leader_with_preference_0_hands_over_to_any_higher_preference() {
        let mut stage = PreferenceHarness::new();
        (1..=3).for_each(|number| stage.prefer(number, 0));
        assert_eq!(stage.run(30_000), []);
        stage.prefer(2, 1);
        assert_eq!(stage.run(1_000), [(2, 0)]);
    }

    #[test]
    fn who_does_not_keep_up_does_not_get_it() {
        let mut stage = PreferenceHarness::new();
        stage.prefer(2, 50);
        stage.status.matched.insert(id(3), 1_000 - BEHIND_MAX - 1);
        assert_eq!(stage.run(30_000), [], "behind");
        stage.status.matched.insert(id(3), 1_000);
        stage.status.silent_us.insert(id(3), SILENT_US + 1);
        assert_eq!(stage.run(30_000), [], "silent");
        stage.status.silent_us.remove(&id(3));
        assert_eq!(stage.run(30_000), [], "never heard");
        stage.status.silent_us.insert(id(3), 0);
        assert_eq!(stage.run(2_900), [], "it is counted from now");
        stage.status.matched.insert(id(3), 0);
        assert_eq!(stage.run(250), []);
        stage.status.matched.insert(id(3), 1_000);
        assert_eq!(stage.run(4_000), [(3, 3_000)], "and again from the last time it was not");
    }

    #[test]
    fn changes_of_members_and_terms_begin_the_count_again() {
        let mut stage = PreferenceHarness::new();
        assert_eq!(stage.run(2_500), []);
        stage.status.settled = false;
        assert_eq!(stage.run(30_000), []);
        stage.status.settled = true;
        assert_eq!(stage.run(2_500), []);
        stage.status.term = Term(9);
        assert_eq!(stage.run(2_900), []);
        assert_eq!(stage.run(1_000), [(3, 0)]);
        stage.status.serving = false;
        assert_eq!(stage.run(30_000), [], "who does not serve has nothing to hand over");
    }

    #[test]
    fn learners_are_not_handed_anything() {
        let mut stage = PreferenceHarness::new();
        stage.members = Membership::of_voters([id(1), id(2)]);
        stage.members.learners.insert(id(3));
        assert_eq!(stage.run(4_000), [(2, 3_000)]);
    }

    #[test]
    fn who_leaves_hands_over_to_the_preferred_of_those_who_keep_up() {
        let mut stage = PreferenceHarness::new();
        let to = |stage: &PreferenceHarness| successor(&stage.status, &stage.directory, |_| true);
        assert_eq!(to(&stage), Some(id(3)));
        stage.status.matched.insert(id(3), 0);
        assert_eq!(to(&stage), Some(id(2)));
        assert_eq!(successor(&stage.status, &stage.directory, |id| id.get() == 3), Some(id(3)));
    }
}
