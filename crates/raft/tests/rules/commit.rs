//! Checks when a leader tells the other members how far the log is committed.

use crate::disks::Cluster;
use tenure_raft::StepKind;

/// Messages of the leader that carry neither entries nor anything else than the commit index.
fn bare_appends(cluster: &Cluster, leader: usize) -> usize {
    let steps = cluster.steps_of(leader).iter();
    steps.filter(|step| step.kind == StepKind::Append && step.entries.is_empty()).count()
}

/// Writes one command, and returns how many steps after its commit the last follower knows of it.
fn steps_until_all_know(cluster: &mut Cluster, leader: usize) -> usize {
    cluster.write(leader, 1);
    let committed = cluster.status(leader).committed;
    let knows = |cluster: &Cluster, at| cluster.status(at).committed >= committed;
    let mut steps = 0;
    while !(0..3).all(|at| knows(cluster, at)) {
        cluster.step();
        steps += 1;
    }
    steps
}

#[test]
fn an_idle_leader_sends_the_commit_index_soon_and_at_once_to_members_that_have_clients() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.elect(0);
    let idle = steps_until_all_know(&mut cluster, leader);
    cluster.replica_mut(leader).serve_other_members();
    let serving = steps_until_all_know(&mut cluster, leader);
    assert_eq!((idle, serving), (2, 1));
    cluster.run_ms(61_000);
    assert_eq!(steps_until_all_know(&mut cluster, leader), idle, "their clients are gone");
}

#[test]
fn entries_carry_the_commit_index_of_those_before_them() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.elect(0);
    cluster.run_ms(100);
    let before = bare_appends(&cluster, leader);
    cluster.submit(leader, 50);
    // The engine sends one append without entries to each follower for each heartbeat that the follower answers while
    // entries are in flight.
    let heartbeats = 50 / 10;
    assert!(bare_appends(&cluster, leader) <= before + 2 * heartbeats);
    cluster.run_ms(100);
    let committed = cluster.status(leader).committed;
    assert!((0..3).all(|at| cluster.status(at).committed == committed));
}
