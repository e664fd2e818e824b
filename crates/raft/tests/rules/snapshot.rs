//! Checks that a damaged snapshot is written again, that a stale one does not replace a newer one, and what a leader
//! answers for a membership change that a snapshot skipped.

use std::collections::BTreeSet;

use bytes::Bytes;
use tenure_core::Machine;
use tenure_raft::{
    AnnouncedSnapshot, Boot, MemberId, Membership, MembershipChange, Replica, ReplicaConfig,
    ReplicaInput, ReplicaOutput, Step, StepKind,
};
use tenure_store::{HardState, LogId};
use tenure_types::Epoch;

use crate::disks::{Cluster, id};

const NOW_US: u64 = 1_000_000;

/// A member that starts from a snapshot at this point; at the default point it has none.
fn started(
    me: MemberId,
    applied: LogId,
    members: Membership,
    given: BTreeSet<MemberId>,
) -> Replica {
    let LogId { index: commit, term } = applied;
    let boot = Boot {
        machine: Machine::new(Epoch::default()),
        applied,
        members,
        base: applied,
        entries: Vec::new(),
        hard_state: HardState { term, vote: None, commit },
        notes: Vec::new(),
        cut: None,
        given,
    };
    Replica::new(ReplicaConfig::new(me), boot, 77).unwrap()
}

/// A snapshot of a leader arrives whole.
fn received(from: usize, point: LogId, members: &Membership) -> ReplicaInput {
    let head = AnnouncedSnapshot { point, members: members.clone() };
    let step = Step {
        kind: StepKind::Snapshot,
        term: point.term,
        log_term: 0,
        index: 0,
        commit: 0,
        commit_term: 0,
        reject: false,
        reject_hint: 0,
        context: Bytes::new(),
        durable: LogId::default(),
        entries: Vec::new(),
        snapshot: Some(Box::new(head)),
    };
    let machine = Box::new(Machine::new(Epoch::default()));
    let (from, step, members) = (id(from), Box::new(step), Box::new(members.clone()));
    ReplicaInput::SnapshotReceived { from, step, machine, members }
}

fn snapshots_written(replica: &mut Replica, now_us: u64) -> Vec<LogId> {
    let mut outputs = Vec::new();
    replica.turn(now_us, &mut outputs);
    let point = |output: &ReplicaOutput| match output {
        ReplicaOutput::SaveSnapshot { point, .. } => Some(*point),
        _ => None,
    };
    outputs.iter().filter_map(point).collect()
}

#[cfg_attr(not(mutants), test)]
pub(crate) fn a_damaged_snapshot_is_written_again() {
    let first = LogId { index: 1, term: 1 };
    let voters = Membership::of_voters((0..3).map(id));
    let mut replica = started(id(0), first, voters, BTreeSet::new());
    assert_eq!(snapshots_written(&mut replica, NOW_US), []);
    replica.snapshot_damaged(first);
    assert_eq!(snapshots_written(&mut replica, NOW_US + 1), [first]);
}

#[cfg_attr(not(mutants), test)]
pub(crate) fn a_stale_snapshot_behind_a_newer_one_is_left_alone() {
    let me = id(3);
    let voters: BTreeSet<MemberId> = (0..3).map(id).collect();
    let members = Membership { learners: [me].into(), ..Membership::of_voters(voters.clone()) };
    let mut replica = started(me, LogId::default(), Membership::default(), voters);
    // The second has an older term and arrives in the same turn.
    replica.handle(received(0, LogId { index: 90, term: 7 }, &members));
    replica.handle(received(1, LogId { index: 40, term: 6 }, &members));
    replica.turn(NOW_US, &mut Vec::new());
    assert_eq!(replica.status().applied, LogId { index: 90, term: 7 });
}

/// A leader that is cut off has proposed a learner. The next leader may have committed that, and sends a snapshot that
/// is newer than the proposal.
#[cfg_attr(not(mutants), test)]
pub(crate) fn a_membership_change_that_a_snapshot_skipped_is_unknown() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.elect(0);
    cluster.isolate(leader);
    let before = cluster.changes(leader);
    cluster.start_change(leader, MembershipChange::AddLearner(id(3))).unwrap();
    assert_eq!(cluster.changes(leader), before);
    // Its disk keeps nothing from now on, so that the test needs no snapshots on disk.
    cluster.stick(leader);
    let point = LogId { index: 1_000, term: cluster.term(leader) + 1 };
    let learners = [id(3)].into();
    let members = Membership { learners, ..Membership::of_voters((0..3).map(id)) };
    cluster.input(leader, received(1, point, &members));
    cluster.step();
    assert_eq!(cluster.changes(leader), (before.0 + 1, before.1 + 1));
}
