//! Tests that a member whose disk was rolled back is detected before it can do harm.

use crate::disks::{Cluster, id};
use tenure_raft::{DiskLoss, Message, Observed, StepKind, Stop};
use tenure_store::LogId;

fn forgot(cluster: &Cluster, at: usize) -> Option<DiskLoss> {
    match cluster.stopped(at) {
        Some(Stop::Forgot { lost, .. }) => Some(*lost),
        Some(other) => panic!("member {at} stopped otherwise: {other}"),
        None => None,
    }
}

/// A follower has entries of a leader that lost them, replaces them by those of the next leader, and is rolled back to
/// the first. Its log is as long as what it acknowledged, or longer.
#[test]
fn a_log_of_the_right_length_and_the_wrong_terms_is_noticed() {
    for abandoned in [3, 30] {
        let mut cluster = Cluster::new(3);
        let (c, a) = (1, 2);
        let b = cluster.elect(0);
        cluster.write(b, 5);
        // B's entries reach C only, and B's own disk makes none of them durable.
        cluster.cut(b, a);
        cluster.stick(b);
        cluster.submit(b, abandoned);
        cluster.run_ms(100);
        let old = cluster.disk(c);
        cluster.kill(b);
        cluster.kill(c);
        cluster.heal();
        cluster.start(b);
        let leader = cluster.elect_among(&[a, b]);
        cluster.write(leader, 12);
        cluster.start(c);
        cluster.run_ms(1_000);
        cluster.write(leader, 1);
        cluster.kill(c);
        cluster.replace_disk(c, old);
        cluster.start(c);
        cluster.run_ms(500);
        assert!(forgot(&cluster, c).is_some(), "{abandoned} entries of a lost leader");
        cluster.write(leader, 3);
    }
}

#[test]
fn an_acknowledgement_is_remembered_by_a_leader_that_has_restarted() {
    let mut cluster = Cluster::new(3);
    let (b, c) = (1, 2);
    let a = cluster.elect(0);
    cluster.write(a, 5);
    let old = cluster.disk(c);
    cluster.cut(a, b);
    cluster.write(a, 50);
    cluster.run_ms(1_200);
    cluster.kill(a);
    cluster.kill(c);
    cluster.heal();
    cluster.replace_disk(c, old);
    cluster.start(a);
    cluster.start(c);
    cluster.run_ms(500);
    assert!(forgot(&cluster, c).is_some(), "the notes on A's disk say so");
}

#[test]
fn an_acknowledgement_is_remembered_by_a_follower_when_the_leader_is_gone() {
    let mut cluster = Cluster::new(3);
    let (b, c) = (1, 2);
    let a = cluster.elect(0);
    cluster.write(a, 5);
    let old = cluster.disk(c);
    cluster.write(a, 50);
    cluster.run_ms(100);
    cluster.kill(a);
    cluster.kill(c);
    cluster.replace_disk(c, old);
    cluster.start(c);
    cluster.run_ms(500);
    assert!(forgot(&cluster, c).is_some(), "the leader had passed it on to B");
    assert!(cluster.stopped(b).is_none());
}

#[test]
fn a_forgotten_term_and_vote_are_noticed() {
    let mut cluster = Cluster::new(3);
    let (a, b) = (0, 1);
    let old = cluster.disk(b);
    let leader = cluster.elect(a);
    let term = cluster.term(leader);
    cluster.kill(b);
    cluster.replace_disk(b, old);
    // The member that it voted for has restarted too, so only the notes can show the vote.
    cluster.run_ms(1_100);
    cluster.kill(leader);
    cluster.start(leader);
    cluster.start(b);
    cluster.run_ms(500);
    let lost = forgot(&cluster, b);
    assert!(matches!(lost, Some(DiskLoss::Term { seen, .. }) if seen >= term), "{lost:?}");
}

#[test]
fn a_vote_for_another_in_the_same_term_is_noticed() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.elect(0);
    let term = cluster.term(leader);
    let observed = Observed { term, vote: Some(id(2)), ..Observed::default() };
    cluster.hand(1, 2, Message::Remember(observed));
    cluster.run_ms(50);
    assert_eq!(forgot(&cluster, 1), Some(DiskLoss::Vote { term, vote: id(2) }));
}

#[test]
fn a_heartbeat_that_commits_what_a_member_lacks_proves_it() {
    for other_term in [false, true] {
        let mut cluster = Cluster::new(3);
        let leader = cluster.elect(0);
        cluster.write(leader, 5);
        let mut step = cluster.heartbeat();
        step.commit = if other_term { 3 } else { 900 };
        step.commit_term = if other_term { step.term - 1 } else { step.term };
        cluster.hand(1, leader, Message::Step(Box::new(step)));
        cluster.run_ms(50);
        assert!(matches!(forgot(&cluster, 1), Some(DiskLoss::Entry { .. })));
    }
    let mut cluster = Cluster::new(3);
    let leader = cluster.elect(0);
    let mut step = cluster.heartbeat();
    assert_eq!(step.kind, StepKind::Heartbeat);
    (step.term, step.commit, step.commit_term) = (step.term + 1, 2, step.term);
    cluster.hand(1, leader, Message::Step(Box::new(step)));
    cluster.run_ms(50);
    assert!(matches!(forgot(&cluster, 1), Some(DiskLoss::Term { .. })));
}

/// A leader that was cut off has written many entries that were never committed. It rejoins, acknowledges, and is
/// rolled back to its former state.
#[test]
fn a_former_leader_with_a_longer_log_is_noticed_with_and_without_a_change_of_leader() {
    for change in [false, true] {
        let mut cluster = Cluster::new(3);
        let c = cluster.elect(0);
        let (a, b) = (1, 2);
        cluster.write(c, 5);
        cluster.isolate(c);
        cluster.submit(c, 200);
        cluster.run_ms(100);
        cluster.kill(c);
        let old = cluster.disk(c);
        let leader = cluster.elect_among(&[a, b]);
        cluster.write(leader, 11);
        cluster.heal();
        cluster.start(c);
        cluster.run_ms(1_000);
        cluster.write(leader, 1);
        cluster.kill(c);
        if change {
            cluster.run_ms(200);
            cluster.kill(leader);
            cluster.start(leader);
            cluster.run_ms(3_000);
        }
        cluster.replace_disk(c, old);
        cluster.start(c);
        cluster.run_ms(700);
        assert!(forgot(&cluster, c).is_some(), "change of leader: {change}");
    }
}

#[test]
fn a_leader_whose_disk_went_back_is_noticed_by_what_it_led() {
    for late in [false, true] {
        let mut cluster = Cluster::new(3);
        let (b, c) = (1, 2);
        let a = cluster.elect(0);
        cluster.write(a, 5);
        cluster.kill(c);
        let old = cluster.disk(a);
        cluster.write(a, 10);
        cluster.run_ms(60);
        cluster.kill(a);
        cluster.replace_disk(a, old);
        if late {
            // The only member that remembers starts later. Until then no member can detect the loss.
            cluster.kill(b);
        }
        cluster.start(a);
        cluster.start(c);
        if late {
            cluster.run_ms(100);
            cluster.start(b);
        }
        cluster.run_ms(1_000);
        assert!(forgot(&cluster, a).is_some(), "late: {late}");
    }
}

#[test]
fn members_that_kept_everything_are_never_accused() {
    let mut cluster = Cluster::new(3);
    let mut leader = cluster.elect(0);
    for round in 0..12 {
        cluster.write(leader, 3);
        let victim = if round % 3 == 0 { leader } else { (leader + round) % 3 };
        cluster.kill(victim);
        if round % 4 == 0 {
            cluster.run_ms(1_500);
        }
        cluster.start(victim);
        cluster.run_ms(2_500);
        leader = cluster.leader().expect("a majority is up");
    }
    (0..3).for_each(|at| assert!(cluster.stopped(at).is_none()));
}

#[test]
fn a_member_promises_nothing_before_it_was_told() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.elect(0);
    cluster.write(leader, 3);
    let follower = (leader + 1) % 3;
    cluster.kill(follower);
    cluster.kill((leader + 2) % 3);
    // One of the two members that it asks is down, so it waits for the full time.
    cluster.start(follower);
    cluster.run_ms(500);
    assert!(cluster.status(follower).asking);
    assert!(cluster.answers_of(follower).is_empty(), "{:?}", cluster.answers_of(follower));
    cluster.run_ms(200);
    assert!(!cluster.status(follower).asking);
    cluster.run_ms(3_000);
    let leader = cluster.leader().expect("two of three are up");
    cluster.write(leader, 1);
}

#[test]
fn with_all_members_up_a_restart_waits_for_a_round_trip_only() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.elect(0);
    let follower = (leader + 1) % 3;
    cluster.kill(follower);
    cluster.start(follower);
    cluster.run_ms(30);
    assert!(!cluster.status(follower).asking);
}

#[test]
fn a_sole_voter_waits_for_no_other_member() {
    let mut cluster = Cluster::new(1);
    cluster.run_ms(20);
    assert!(!cluster.status(0).asking);
    let leader = cluster.elect(0);
    cluster.write(leader, 3);
    cluster.kill(0);
    cluster.start(0);
    cluster.run_ms(20);
    assert!(!cluster.status(0).asking);
}

#[test]
fn what_a_snapshot_covers_counts_as_there() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.elect(0);
    cluster.write(leader, 3);
    let follower = (leader + 1) % 3;
    let observed = Observed { committed: LogId { index: 1, term: 9 }, ..Observed::default() };
    cluster.hand(follower, leader, Message::Remember(Observed { term: 1, ..observed }));
    cluster.run_ms(50);
    assert!(cluster.stopped(follower).is_none(), "the log begins after it");
}

/// A regression test: a commit index that was written without a sync of its own held back every later answer, while the
/// leader waited for an answer before it sent the entries that would have caused the next sync.
#[test]
fn a_commit_index_alone_holds_no_answer_back() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.elect(0);
    let follower = (leader + 1) % 3;
    cluster.submit(leader, 1);
    // Until the follower has acknowledged, and before it learns that the entry is committed.
    cluster.step();
    cluster.step();
    cluster.stick(follower);
    cluster.run_ms(500);
    let status = cluster.status(follower);
    assert_eq!(status.committed, status.last.index, "it has heard of the commit");
    let silent_us = cluster.status(leader).silent_us[&id(follower)];
    assert!(silent_us < 200_000, "no answer for {silent_us} us");
}

#[test]
fn while_all_that_remember_are_down_no_member_can_tell_and_they_tell_when_they_return() {
    let mut cluster = Cluster::new(3);
    let (b, c) = (1, 2);
    let a = cluster.elect(0);
    cluster.write(a, 5);
    cluster.kill(c);
    let old = cluster.disk(a);
    cluster.write(a, 10);
    cluster.run_ms(1_200);
    cluster.kill(a);
    cluster.kill(b);
    cluster.replace_disk(a, old);
    cluster.start(a);
    cluster.start(c);
    cluster.run_ms(4_000);
    assert!(cluster.leader().is_some(), "the two go on without what they do not know of");
    assert!(forgot(&cluster, a).is_none());
    cluster.start(b);
    cluster.run_ms(1_000);
    assert!(forgot(&cluster, a).is_some(), "B's notes say so");
}

#[test]
fn the_loss_of_entries_that_a_leader_never_sent_is_not_noticed() {
    let mut cluster = Cluster::new(3);
    let a = cluster.elect(0);
    cluster.write(a, 5);
    cluster.run_ms(1_200);
    let old = cluster.disk(a);
    // The entries are durable on its own disk. It is killed before any message leaves.
    cluster.isolate(a);
    cluster.submit(a, 3);
    cluster.run_ms(20);
    assert!(cluster.disk(a).entries.len() > old.entries.len());
    cluster.kill(a);
    cluster.replace_disk(a, old);
    cluster.heal();
    cluster.start(a);
    cluster.run_ms(2_000);
    assert!(forgot(&cluster, a).is_none());
}

#[test]
fn disks_that_all_went_back_to_one_moment_are_an_older_cluster() {
    let mut cluster = Cluster::new(3);
    let a = cluster.elect(0);
    cluster.write(a, 5);
    cluster.run_ms(1_200);
    let old: Vec<_> = (0..3).map(|at| cluster.disk(at)).collect();
    cluster.write(a, 10);
    (0..3).for_each(|at| cluster.kill(at));
    old.into_iter().enumerate().for_each(|(at, disk)| cluster.replace_disk(at, disk));
    (0..3).for_each(|at| cluster.start(at));
    let leader = cluster.elect_among(&[0, 1, 2]);
    cluster.write(leader, 1);
    (0..3).for_each(|at| assert!(forgot(&cluster, at).is_none()));
}
