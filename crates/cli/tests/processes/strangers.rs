//! Tests that a program that reaches the members' ports and is no member has no effect on them.
//!
//! In plaintext it claims no existing member's id: there only the id distinguishes members, and a program that reaches
//! the ports and claims one is taken for that member. Under TLS it has a certificate of the members' authority that
//! names no member.

use bytes::Bytes;
use tenure_core::codec::seal_entry;
use tenure_raft::{AnnouncedSnapshot, MemberId, Membership, Message, Step, StepKind};
use tenure_store::{LogEntry, LogId};
use tenure_types::Term;

use crate::stage::{ClusterAndStranger, UNKNOWN_ID, in_plaintext_and_under_tls};
use crate::stranger::{Link, put, remembered, step};

/// The distance of made-up indexes and ids from everything that the cluster has.
const BEYOND: u64 = 1_000;

in_plaintext_and_under_tls! {
    a_member_that_forwards_a_command_is_understood;
    an_unknown_id_gets_no_link;
    a_command_of_a_stranger_is_not_carried_out;
    an_admin_request_of_a_stranger_changes_no_members;
    a_promise_that_a_stranger_makes_up_stops_no_member;
    a_commit_index_that_a_stranger_makes_up_stops_no_member;
    an_entry_that_a_stranger_appends_is_not_applied;
    a_snapshot_that_a_stranger_offers_is_not_taken;
}

/// A stranger's connection to a member, on which it sends what a link carries. No member gives it a link, so it does
/// not wait for one.
fn link(stage: &ClusterAndStranger, to: usize) -> Link {
    let link = stage.stranger.unanswered(stage.port(to), &stage.claim(), UNKNOWN_ID, stage.id(to));
    link.expect("the port takes the connection")
}

/// Shows that the stranger of the other tests speaks the protocol: with the right id the member understands it.
fn a_member_that_forwards_a_command_is_understood(mut stage: ClusterAndStranger) {
    let (leader, [down, _]) = stage.roles();
    let (from, to, port) = (stage.id(down), stage.id(leader), stage.port(leader));
    let (claim, speaker) = (stage.claim(), stage.speaker_of(down));
    stage.cluster.kill(down);
    // The leader drops a new link for as long as it has not found the end of the killed member's own.
    stage.until("a member forwards commands", &[leader], |_| {
        let link = speaker.hello(port, &claim, from, to);
        let forwarded = link.map(|mut link| link.command(&[put("forwarded", "value")]));
        forwarded.is_ok_and(|done| done.unwrap_or(false))
    });
    let read = stage.cluster.ok("get forwarded");
    assert!(read.contains("value=value"), "{read}");
    stage.start(down);
    stage.assert_all_serve();
}

fn an_unknown_id_gets_no_link(mut stage: ClusterAndStranger) {
    let claim = stage.claim();
    for at in 0..3 {
        for from in [UNKNOWN_ID, u64::MAX] {
            let said = stage.stranger.hello(stage.port(at), &claim, from, stage.id(at));
            assert!(said.is_err(), "m{at} gave a link to the unknown id {from:x}");
        }
    }
    stage.assert_all_serve();
}

fn a_command_of_a_stranger_is_not_carried_out(mut stage: ClusterAndStranger) {
    for at in 0..3 {
        let forged = [put("forged", "value"), put("tenure/forged", "value")];
        let done = link(&stage, at).command(&forged).expect("the commands are sent");
        assert!(!done, "m{at} carried out a stranger's commands");
    }
    stage.assert_nothing_forged();
    stage.assert_all_serve();
}

fn an_admin_request_of_a_stranger_changes_no_members(mut stage: ClusterAndStranger) {
    let (leader, [victim, _]) = stage.roles();
    let victim = stage.id(victim);
    link(&stage, leader).remove(victim).expect("it is sent");
    stage.assert_same_members();
    stage.assert_all_serve();
}

fn a_promise_that_a_stranger_makes_up_stops_no_member(mut stage: ClusterAndStranger) {
    let (term, index) = (stage.number(0, "term"), stage.number(0, "last") + BEYOND);
    for at in 0..3 {
        link(&stage, at).say(&Message::Remember(remembered(term, index))).expect("it is sent");
        let (term, index) = (term + 1, index + BEYOND);
        link(&stage, at).say(&Message::Remember(remembered(term, index))).expect("it is sent");
    }
    stage.assert_all_serve();
}

fn a_commit_index_that_a_stranger_makes_up_stops_no_member(mut stage: ClusterAndStranger) {
    let (leader, followers) = stage.roles();
    let (term, last) = (stage.number(leader, "term"), stage.number(leader, "last"));
    for at in followers {
        let beat =
            Step { commit: last + BEYOND, commit_term: term, ..step(StepKind::Heartbeat, term) };
        link(&stage, at).say(&Message::Step(Box::new(beat))).expect("it is sent");
    }
    stage.assert_all_serve();
}

fn an_entry_that_a_stranger_appends_is_not_applied(mut stage: ClusterAndStranger) {
    let (_, followers) = stage.roles();
    for at in followers {
        // Nothing is written meanwhile, so that the entry fits after the last one.
        let (term, last) = (stage.number(at, "term"), stage.number(at, "last"));
        let request = put("forged", "value");
        let payload = Bytes::from(seal_entry(Term(term), 0, [&request[..]]));
        let entries = vec![LogEntry { index: last + 1, term, kind: 0, payload }];
        let append = Step {
            log_term: term,
            index: last,
            commit: last + 1,
            commit_term: term,
            entries,
            ..step(StepKind::Append, term)
        };
        link(&stage, at).say(&Message::Step(Box::new(append))).expect("it is sent");
    }
    stage.assert_nothing_forged();
    stage.assert_all_serve();
    stage.assert_nothing_forged();
}

fn a_snapshot_that_a_stranger_offers_is_not_taken(mut stage: ClusterAndStranger) {
    let (claim, members) = (stage.claim(), [0, 1, 2].map(|at| stage.id(at)));
    let (term, last) = (stage.number(0, "term"), stage.number(0, "last"));
    let point = LogId { index: last + BEYOND, term };
    let members_then = Membership::of_voters(members.into_iter().filter_map(MemberId::new));
    let head = AnnouncedSnapshot { point, members: members_then };
    let offered = Step { snapshot: Some(Box::new(head)), ..step(StepKind::Snapshot, term) };
    for (at, to) in members.into_iter().enumerate() {
        let ends = (UNKNOWN_ID, to);
        let said = stage.stranger.offer_snapshot(stage.port(at), &claim, ends, offered.clone());
        // A member that names the bytes that it has waits for the rest.
        assert!(!said.as_ref().is_ok_and(|said| said.starts_with("have")), "m{at}: {said:?}");
    }
    stage.assert_all_serve();
}
