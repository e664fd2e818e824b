//! Checks each transition of a reconfiguration.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::codec::decode_request;
use tenure_core::outcome::{Answer, KeyWritten};
use tenure_raft::{Membership, ReplicaStatus};
use tenure_store::LogId;
use tenure_types::Term;

use super::*;
use crate::directory::{MemberNames, Preference};
use crate::invitation::InvitationToken;
use crate::lineage::Incarnation;
use crate::principal::Principal;

const DEADLINE_US: u64 = 10_000_000;
const UNDER_WAY: NodeFailure = NodeFailure::Rejected(RejectReason::ChangeUnderWay);

fn id(number: u64) -> MemberId {
    MemberId::new(number).unwrap()
}

fn record(number: u64) -> MemberRecord {
    let preference = Preference::default();
    let name = format!("m{number}");
    let names = MemberNames { name, members: "h:1".into(), clients: "h:2".into(), preference };
    MemberRecord { id: id(number), names }
}

/// A cluster of these voters, seen by member 1.
fn cluster(voters: &[u64]) -> Box<ClusterView> {
    let status = ReplicaStatus {
        term: Term(2),
        leader: None,
        leading: false,
        serving: false,
        applied: LogId::default(),
        committed: 0,
        last: LogId::default(),
        base: LogId::default(),
        unsynced: 0,
        matched: BTreeMap::new(),
        silent_us: BTreeMap::new(),
        settled: true,
        asking: false,
        cut: None,
        dropped: Default::default(),
    };
    Box::new(ClusterView {
        members: Membership::of_voters(voters.iter().copied().map(id)),
        status,
        directory: voters.iter().map(|number| (id(*number), record(*number).names)).collect(),
        up: BTreeSet::from([id(1)]),
        clock_ms: 5_000,
    })
}

/// A request at member 1, and its output so far.
struct Run {
    machine: Reconfigure,
    moment: InputContext,
    output: NextOutput,
}

impl Run {
    /// A request while member 1 leads. It has not viewed the cluster yet.
    fn new(request: Reconfiguration) -> Self {
        let mut machine = Reconfigure::new(request, id(1), DEADLINE_US);
        let moment = InputContext { now_us: 0, lead: Some(id(1)) };
        let output = machine.begin(moment);
        Self { machine, moment, output }
    }

    /// The same, in a cluster of members 1, 2 and 3.
    fn in_three(request: Reconfiguration) -> Self {
        Self::new(request).viewed(cluster(&[1, 2, 3]))
    }

    fn handle(mut self, input: ReconfigureInput) -> Self {
        self.output = self.machine.handle(self.moment, input);
        self
    }

    fn viewed(self, cluster: Box<ClusterView>) -> Self {
        assert!(
            matches!(self.output, Some(ReconfigureOutput::View(ReadConsistency::Linearizable))),
            "{self}"
        );
        self.handle(ReconfigureInput::Viewed(Ok(cluster)))
    }

    fn written(self) -> Self {
        let answer = Answer::Put(KeyWritten { version: 1, created: Revision(1) });
        let outcome = Outcome { revision: Revision(1), result: Ok(answer) };
        self.handle(ReconfigureInput::Written(Ok(outcome)))
    }

    fn changed(self, result: Result<(), NodeFailure>) -> Self {
        self.handle(ReconfigureInput::Changed(result))
    }

    fn led_by(mut self, number: u64) -> Self {
        self.moment.lead = Some(id(number));
        self.handle(ReconfigureInput::Led)
    }

    fn at(mut self, now_us: u64) -> Self {
        self.moment.now_us = now_us;
        self.output = self.machine.turn(self.moment);
        self
    }

    fn idle(self, until_us: u64) -> Self {
        assert!(self.output.is_none(), "{self}");
        assert_eq!(self.machine.wake_us(), until_us);
        self
    }

    fn views(self, expected: ReadConsistency) -> Self {
        assert!(
            matches!(self.output, Some(ReconfigureOutput::View(it)) if it == expected),
            "{self}"
        );
        self
    }

    fn admin(self, expected: &AdminRequest) -> Self {
        assert!(
            matches!(&self.output, Some(ReconfigureOutput::Admin(it)) if it == expected),
            "{self}"
        );
        self
    }

    fn changes(self, change: MembershipChange) -> Self {
        self.admin(&AdminRequest::Change(vec![change]))
    }

    fn transfers(self, to: u64) -> Self {
        self.admin(&AdminRequest::Transfer(id(to)))
    }

    /// The output is a command of the member itself about the record of this member.
    fn writes(self, number: u64) -> Self {
        let Some(ReconfigureOutput::Write(bytes)) = &self.output else { panic!("{self}") };
        let request = decode_request(bytes).unwrap();
        assert_eq!(request.principal, Principal::member().name());
        match request.command {
            Command::Put(put) => assert_eq!(put.key, directory::key(id(number))),
            Command::Delete { key, .. } => assert_eq!(key, directory::key(id(number))),
            other => panic!("{other:?}"),
        }
        self
    }

    fn done(self) -> Result<Reconfigured, NotReconfigured> {
        match self.output {
            Some(ReconfigureOutput::Done(result)) => result,
            other => panic!("{other:?}"),
        }
    }

    fn leads(self, number: u64, expected: LeadsThrough) {
        match self.done() {
            Ok(Reconfigured::Leads { by, through }) => {
                assert_eq!((by, through), (id(number), expected));
            }
            other => panic!("{other:?}"),
        }
    }

    fn fails(self) -> NotReconfigured {
        self.done().unwrap_err()
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} at {:?}", self.output, self.machine.at)
    }
}

fn voters(result: Result<Reconfigured, NotReconfigured>) -> Vec<u64> {
    let Ok(Reconfigured::Removed(cluster)) = result else { panic!("{result:?}") };
    cluster.members.voters.iter().map(|id| id.get()).collect()
}

#[test]
fn a_member_is_added_after_its_record_is_written() {
    let run = Run::in_three(Reconfiguration::Add(record(4))).writes(4);
    let run = run.written().changes(MembershipChange::AddLearner(id(4)));
    assert!(matches!(run.changed(Ok(())).done(), Ok(Reconfigured::Changed)));
}

#[test]
fn a_record_that_cannot_stand_in_the_directory_is_refused_before_anything_is_read() {
    let mut bad = record(4);
    bad.names.clients = "two words".into();
    let field = "client_address";
    assert_eq!(Run::new(Reconfiguration::Add(bad)).fails(), NotReconfigured::Word { field });
}

#[test]
fn an_id_or_name_that_a_member_has_and_a_retired_id_are_not_added() {
    let exists = |member: String| NotReconfigured::Exists { member };
    let run = Run::in_three(Reconfiguration::Add(record(2)));
    assert_eq!(run.fails(), exists(id(2).to_string()));
    let mut namesake = record(4);
    namesake.names.name = "m3".into();
    assert_eq!(Run::in_three(Reconfiguration::Add(namesake)).fails(), exists("m3".into()));
    let mut before = cluster(&[1, 2, 3]);
    before.members.retired.insert(id(4));
    let retired = Run::new(Reconfiguration::Add(record(4))).viewed(before);
    assert_eq!(
        retired.fails(),
        NotReconfigured::Failed(NodeFailure::Rejected(RejectReason::Retired))
    );
}

#[test]
fn a_record_that_is_refused_or_not_written_adds_no_member() {
    let run = Run::in_three(Reconfiguration::Add(record(4)));
    let failed = run.handle(ReconfigureInput::Written(Err(NodeFailure::Unknown)));
    assert_eq!(failed.fails(), NotReconfigured::Failed(NodeFailure::Unknown));
    let run = Run::in_three(Reconfiguration::Add(record(4)));
    let result = Err(Refusal::LeaseNotFound);
    let refused = Outcome { revision: Revision(1), result };
    let refused = run.handle(ReconfigureInput::Written(Ok(refused)));
    assert_eq!(refused.fails(), NotReconfigured::Refused(Refusal::LeaseNotFound));
}

#[test]
fn without_a_view_of_now_nothing_is_changed() {
    for request in [
        Reconfiguration::Add(record(4)),
        Reconfiguration::Promote(id(2)),
        Reconfiguration::Remove(id(2)),
        Reconfiguration::Transfer(None),
    ] {
        let run = Run::new(request).views(ReadConsistency::Linearizable);
        let run = run.handle(ReconfigureInput::Viewed(Err(NodeFailure::NoLeader)));
        assert_eq!(run.fails(), NotReconfigured::Failed(NodeFailure::NoLeader));
    }
}

#[test]
fn a_learner_is_promoted_and_a_voter_stays_one() {
    let mut before = cluster(&[1, 2, 3]);
    before.members.learners.insert(id(4));
    let run = Run::new(Reconfiguration::Promote(id(4))).viewed(before);
    let run = run.changes(MembershipChange::Promote(id(4)));
    assert!(matches!(run.changed(Ok(())).done(), Ok(Reconfigured::Changed)));
    let voter = Run::in_three(Reconfiguration::Promote(id(2)));
    assert!(matches!(voter.done(), Ok(Reconfigured::HadVote)));
    let member = id(9);
    let unknown = Run::in_three(Reconfiguration::Promote(member));
    assert_eq!(unknown.fails(), NotReconfigured::NotFound { member });
}

#[test]
fn a_change_waits_while_another_one_is_under_way() {
    let remove = MembershipChange::Remove(id(2));
    let run = Run::in_three(Reconfiguration::Remove(id(2))).changes(remove);
    let run = run.changed(Err(UNDER_WAY)).idle(PAUSE_US).at(PAUSE_US - 1).idle(PAUSE_US);
    let run = run.at(PAUSE_US).changes(remove).changed(Ok(()));
    run.writes(2);
}

#[test]
fn a_change_that_finds_another_one_under_way_at_the_deadline_fails() {
    let mut before = cluster(&[1, 2, 3]);
    before.members.learners.insert(id(4));
    let mut run = Run::new(Reconfiguration::Promote(id(4))).viewed(before);
    run.moment.now_us = DEADLINE_US - ANSWERED_US;
    assert_eq!(run.changed(Err(UNDER_WAY)).fails(), NotReconfigured::Failed(UNDER_WAY));
}

#[test]
fn a_removed_member_loses_its_record_and_the_cluster_is_shown_as_it_is_then() {
    let run =
        Run::in_three(Reconfiguration::Remove(id(3))).changes(MembershipChange::Remove(id(3)));
    let run = run.changed(Ok(())).writes(3).written();
    assert_eq!(voters(run.viewed(cluster(&[1, 2, 4])).done()), [1, 2, 4]);
    // Without a view of now, what is known is shown.
    let run = Run::in_three(Reconfiguration::Remove(id(3))).changed(Ok(()));
    let run = run
        .handle(ReconfigureInput::Written(Err(NodeFailure::NoLeader)))
        .views(ReadConsistency::Linearizable);
    let run = run.handle(ReconfigureInput::Viewed(Err(NodeFailure::NoLeader)));
    assert_eq!(voters(run.done()), [1, 2]);
}

#[test]
fn a_stranger_and_the_last_voter_are_not_removed() {
    let member = id(9);
    let run = Run::in_three(Reconfiguration::Remove(member));
    assert_eq!(run.fails(), NotReconfigured::NotFound { member });
    let run = Run::new(Reconfiguration::Remove(id(1))).viewed(cluster(&[1]));
    assert_eq!(run.fails(), NotReconfigured::LastVoter);
}

#[test]
fn a_leader_hands_over_before_it_is_removed() {
    let run = Run::in_three(Reconfiguration::Remove(id(1))).viewed(cluster(&[1, 2, 3]));
    let run = run.transfers(3).changed(Ok(())).idle(HANDED_OVER_US);
    let run = run.led_by(3).changes(MembershipChange::Remove(id(1)));
    // It removes itself, so it can neither delete its record nor look again.
    assert_eq!(voters(run.changed(Ok(())).done()), [2, 3]);
}

#[test]
fn a_removal_that_failed_is_looked_at_again() {
    let failed = || {
        let run = Run::in_three(Reconfiguration::Remove(id(3)));
        run.changed(Err(NodeFailure::Unknown)).views(ReadConsistency::Stale)
    };
    let view = |cluster| ReconfigureInput::Viewed(Ok(cluster));
    failed().handle(view(cluster(&[1, 2]))).writes(3);
    let still = failed().handle(view(cluster(&[1, 2, 3])));
    assert_eq!(still.fails(), NotReconfigured::Failed(NodeFailure::Unknown));
    let unseen = failed().handle(ReconfigureInput::Viewed(Err(NodeFailure::Expired)));
    assert_eq!(unseen.fails(), NotReconfigured::Failed(NodeFailure::Unknown));
    // It was elected meanwhile, so it hands over first.
    let mut elected = failed();
    elected.moment.lead = Some(id(3));
    let elected = elected.handle(view(cluster(&[1, 2, 3])));
    elected.viewed(cluster(&[1, 2, 3])).transfers(1);
    let mut late = failed();
    late.moment = InputContext { now_us: DEADLINE_US - ANSWERED_US + 1, lead: Some(id(3)) };
    let late = late.handle(view(cluster(&[1, 2, 3])));
    assert_eq!(late.fails(), NotReconfigured::Failed(NodeFailure::Unknown));
}

#[test]
fn a_member_that_ends_because_it_was_removed_is_removed() {
    let run = Run::in_three(Reconfiguration::Remove(id(1))).viewed(cluster(&[1, 2, 3]));
    let removing =
        run.transfers(3).changed(Ok(())).led_by(2).changes(MembershipChange::Remove(id(1)));
    let removed = removing.handle(ReconfigureInput::Removed);
    assert_eq!(voters(removed.done()), [2, 3]);
    let checking = Run::in_three(Reconfiguration::Remove(id(1))).viewed(cluster(&[1, 2, 3]));
    let checking = checking.changed(Ok(())).led_by(2).changed(Err(NodeFailure::Unknown));
    let removed = checking.views(ReadConsistency::Stale).handle(ReconfigureInput::Removed);
    assert_eq!(voters(removed.done()), [2, 3]);
    let other = Run::new(Reconfiguration::Transfer(None)).handle(ReconfigureInput::Removed);
    assert_eq!(other.fails(), NotReconfigured::Failed(NodeFailure::Stopping));
}

#[test]
fn leadership_goes_to_the_member_that_is_named() {
    let run = Run::in_three(Reconfiguration::Transfer(Some(id(2)))).transfers(2);
    let run = run.changed(Ok(())).led_by(3).idle(HANDED_OVER_US);
    run.led_by(2).leads(2, LeadsThrough::Request);
    let member = id(4);
    let learner = Run::in_three(Reconfiguration::Transfer(Some(member)));
    assert_eq!(learner.fails(), NotReconfigured::NotFound { member });
    let already = Run::in_three(Reconfiguration::Transfer(Some(id(1))));
    already.leads(1, LeadsThrough::Other);
}

#[test]
fn leadership_goes_to_the_voter_that_has_most() {
    let mut seen = cluster(&[1, 2, 3]);
    seen.up.extend([id(2), id(3)]);
    seen.status.matched = BTreeMap::from([(id(2), 9), (id(3), 8)]);
    Run::new(Reconfiguration::Transfer(None)).viewed(seen.clone()).transfers(2);
    seen.up.remove(&id(2));
    Run::new(Reconfiguration::Transfer(None)).viewed(seen).transfers(3);
    let alone = Run::new(Reconfiguration::Transfer(None)).viewed(cluster(&[1]));
    assert_eq!(alone.fails(), NotReconfigured::LastVoter);
}

#[test]
fn a_transfer_that_was_lost_is_tried_again_until_the_deadline() {
    let mut run = Run::in_three(Reconfiguration::Transfer(Some(id(2))));
    let mut now_us = 0;
    while now_us + HANDED_OVER_US < DEADLINE_US {
        now_us += HANDED_OVER_US;
        run = run.transfers(2).changed(Ok(())).idle(now_us).at(now_us);
        run = run.viewed(cluster(&[1, 2, 3]));
    }
    let run = run.transfers(2).changed(Ok(())).idle(DEADLINE_US).at(DEADLINE_US);
    assert_eq!(run.fails(), NotReconfigured::Failed(NodeFailure::Unknown));
}

#[test]
fn a_transfer_that_fails_is_done_nevertheless_if_the_member_leads() {
    let failed = Err(NodeFailure::Unknown);
    let run = Run::in_three(Reconfiguration::Transfer(Some(id(2)))).changed(failed);
    assert_eq!(run.fails(), NotReconfigured::Failed(NodeFailure::Unknown));
    let led_by_2 = || {
        let mut run = Run::in_three(Reconfiguration::Transfer(Some(id(2))));
        run.moment.lead = Some(id(2));
        run
    };
    led_by_2().changed(failed).leads(2, LeadsThrough::Unknown);
    led_by_2().changed(Ok(())).leads(2, LeadsThrough::Request);
    // It was elected by itself: the leader did not take the request.
    led_by_2().changed(Err(NodeFailure::Expired)).leads(2, LeadsThrough::Other);
    // The first attempt was accepted, and may have had its effect late.
    let mut again = Run::in_three(Reconfiguration::Transfer(Some(id(2))));
    again = again.transfers(2).changed(Ok(())).idle(HANDED_OVER_US).at(HANDED_OVER_US);
    again = again.viewed(cluster(&[1, 2, 3]));
    again.moment.lead = Some(id(2));
    again.changed(failed).leads(2, LeadsThrough::Request);
}

#[test]
fn inputs_that_are_not_waited_for_change_nothing() {
    let run = Run::new(Reconfiguration::Promote(id(2))).changed(Ok(())).idle(u64::MAX);
    let run = run.written().idle(u64::MAX).led_by(2).idle(u64::MAX);
    let run = run.handle(ReconfigureInput::Viewed(Ok(cluster(&[1, 2, 3]))));
    assert!(matches!(run.done(), Ok(Reconfigured::HadVote)));
}

#[test]
fn an_invitation_counts_from_a_clock_that_is_up_to_date() {
    let token = InvitationToken::new([3; crate::invitation::TOKEN_BYTES]);
    let incarnation = Incarnation(0);
    let new = NewInvitation { token, expires_ms: 1_000, member: None, incarnation };
    let invite = || Run::new(Reconfiguration::Invite(new.clone()));
    let put = new.put(5_000);
    let run = invite();
    assert!(
        matches!(&run.output, Some(ReconfigureOutput::Write(it)) if *it == new.touch()),
        "{run}"
    );
    let run = run.written().viewed(cluster(&[1, 2, 3]));
    assert!(matches!(&run.output, Some(ReconfigureOutput::Write(it)) if *it == put), "{run}");
    assert!(matches!(run.written().done(), Ok(Reconfigured::Invited(Revision(1)))));
    let failed = || ReconfigureInput::Written(Err(NodeFailure::Unknown));
    let unknown = NotReconfigured::Failed(NodeFailure::Unknown);
    assert_eq!(invite().handle(failed()).fails(), unknown);
    let writing = invite().written().viewed(cluster(&[1, 2, 3]));
    assert_eq!(writing.handle(failed()).fails(), unknown);
}

#[test]
fn after_an_attempt_that_may_have_its_effect_no_failure_means_that_nothing_happened() {
    let unknown = NotReconfigured::Failed(NodeFailure::Unknown);
    let no_leader = || ReconfigureInput::Viewed(Err(NodeFailure::NoLeader));
    // Member 3 leads again when its removal is looked at, so it has to hand over first.
    let run = Run::in_three(Reconfiguration::Remove(id(3)));
    let mut run = run.changes(MembershipChange::Remove(id(3))).changed(Err(NodeFailure::Unknown));
    run.moment.lead = Some(id(3));
    let again = ReconfigureInput::Viewed(Ok(cluster(&[1, 2, 3])));
    let run = run.views(ReadConsistency::Stale).handle(again).views(ReadConsistency::Linearizable);
    assert_eq!(run.handle(no_leader()).fails(), unknown);
    // The transfer has begun.
    let run = Run::in_three(Reconfiguration::Transfer(Some(id(2)))).transfers(2).changed(Ok(()));
    let run = run.idle(HANDED_OVER_US).at(HANDED_OVER_US).views(ReadConsistency::Linearizable);
    assert_eq!(run.handle(no_leader()).fails(), unknown);
}

#[test]
fn a_member_that_is_removed_itself_tells_of_the_removal_that_it_has_made() {
    let run = Run::in_three(Reconfiguration::Remove(id(3))).changed(Ok(())).writes(3);
    assert_eq!(voters(run.handle(ReconfigureInput::Removed).done()), [1, 2]);
}

#[test]
fn a_member_that_another_request_removes_does_not_report_its_own_request_as_done() {
    let removed = |run: Run| run.handle(ReconfigureInput::Removed);
    let unknown = NotReconfigured::Failed(NodeFailure::Unknown);
    let stopping = NotReconfigured::Failed(NodeFailure::Stopping);
    let remove = || Run::in_three(Reconfiguration::Remove(id(3)));
    assert_eq!(removed(remove()).fails(), unknown);
    let checking = |failure| remove().changed(Err(failure)).views(ReadConsistency::Stale);
    assert_eq!(removed(checking(NodeFailure::Unknown)).fails(), unknown);
    assert_eq!(
        removed(checking(NodeFailure::Expired)).fails(),
        NotReconfigured::Failed(NodeFailure::Expired)
    );
    // Nothing was sent yet.
    assert_eq!(removed(Run::new(Reconfiguration::Remove(id(3)))).fails(), stopping);
    // Its own removal, also if another request made it.
    let mut own = Run::in_three(Reconfiguration::Remove(id(1)));
    own.moment.lead = Some(id(1));
    assert_eq!(voters(removed(own).done()), [2, 3]);
    // Other changes may have reached the leader.
    let add = || Run::in_three(Reconfiguration::Add(record(4)));
    assert_eq!(removed(add()).fails(), unknown);
    assert_eq!(removed(add().written()).fails(), unknown);
    let transfer = Run::in_three(Reconfiguration::Transfer(Some(id(2)))).transfers(2);
    assert_eq!(removed(transfer).fails(), unknown);
}
