//! Tests that a message with an absurd term does not brick the cluster: all members serve afterwards, and after a
//! restart.

use tenure_raft::{Message, StepKind};

use crate::stage::{ClusterAndStranger, UNKNOWN_ID, in_plaintext_and_under_tls};
use crate::stranger::{Link, step};

/// More elections than a cluster holds in its lifetime.
const FAR: u64 = 1_000_000_000_000;

in_plaintext_and_under_tls! {
    the_largest_term_from_a_stranger_bricks_nothing;
    half_of_all_terms_from_a_stranger_brick_nothing;
    a_far_term_from_a_stranger_bricks_nothing;
}

fn the_largest_term_from_a_stranger_bricks_nothing(stage: ClusterAndStranger) {
    from_a_stranger(stage, |_| u64::MAX);
}

fn half_of_all_terms_from_a_stranger_brick_nothing(stage: ClusterAndStranger) {
    from_a_stranger(stage, |_| 1 << 63);
}

fn a_far_term_from_a_stranger_bricks_nothing(stage: ClusterAndStranger) {
    from_a_stranger(stage, |term| term + FAR);
}

#[test]
fn the_largest_term_under_a_members_id_bricks_nothing() {
    from_a_member(|_| u64::MAX);
}

#[test]
fn half_of_all_terms_under_a_members_id_brick_nothing() {
    from_a_member(|_| 1 << 63);
}

#[test]
fn a_far_term_under_a_members_id_bricks_nothing() {
    from_a_member(|term| term + FAR);
}

/// A stranger sends a term to every member.
fn from_a_stranger(mut stage: ClusterAndStranger, forged: impl Fn(u64) -> u64) {
    let (claim, term) = (stage.claim(), forged(stage.number(0, "term")));
    let links =
        [0, 1, 2].map(|at| stage.stranger.hello(stage.port(at), &claim, UNKNOWN_ID, stage.id(at)));
    for mut link in links.into_iter().flatten() {
        say_in_every_way(&mut link, term);
    }
    assert_serves_also_after_restarts(&mut stage);
}

/// A program in plaintext claims a member's id, which plaintext cannot prevent, and sends a term to both others.
fn from_a_member(forged: impl Fn(u64) -> u64) {
    let mut stage = ClusterAndStranger::plain();
    let claim = stage.claim();
    let ids = [0, 1, 2].map(|at| stage.id(at));
    let term = forged(stage.number(0, "term"));
    // A connection of the smaller id replaces an existing one.
    let from = *ids.iter().min().unwrap();
    for at in (0..3).filter(|at| ids[*at] != from) {
        let link = stage.stranger.hello(stage.port(at), &claim, from, ids[at]);
        let mut link = link.expect("plaintext cannot tell members from strangers with their id");
        say_in_every_way(&mut link, term);
    }
    assert_serves_also_after_restarts(&mut stage);
}

/// Sends the kinds of messages that make a member take over a term.
fn say_in_every_way(link: &mut Link, term: u64) {
    for kind in
        [StepKind::Heartbeat, StepKind::Append, StepKind::AppendAnswer, StepKind::VoteAnswer]
    {
        if link.send(&Message::Step(Box::new(step(kind, term)))).is_err() {
            return;
        }
    }
    // A member may close the connection at any of them, also while this one is on its way.
    let _ = link.say(&Message::Step(Box::new(step(StepKind::Vote, term))));
}

fn assert_serves_also_after_restarts(stage: &mut ClusterAndStranger) {
    stage.assert_all_serve();
    for at in 0..3 {
        stage.cluster.kill(at);
        stage.start(at);
        stage.assert_all_serve();
    }
}
