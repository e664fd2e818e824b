//! Tests that a removed member's id and key have no effect, also on a link from before the removal.

use std::time::Duration;

use bytes::Bytes;
use tenure_core::codec::seal_entry;
use tenure_raft::{Message, Step, StepKind};
use tenure_store::LogEntry;
use tenure_types::Term;

use crate::stage::{ClusterAndStranger, in_plaintext_and_under_tls};
use crate::stranger::{Link, put, remembered, step};

/// How long the members may take to close the links of a member that they removed.
const CLOSE: Duration = Duration::from_secs(5);
/// An index beyond everything that the cluster has.
const BEYOND: u64 = 1_000;

in_plaintext_and_under_tls! {
    a_removed_member_gets_no_link;
    a_removed_member_loses_the_links_that_it_has;
    a_command_of_a_removed_member_is_not_carried_out;
    a_promise_that_a_removed_member_makes_up_stops_no_member;
    an_entry_that_a_removed_member_appends_is_not_applied;
}

/// A program with the id and the key of a removed member, and its links from before.
struct Removed {
    stage: ClusterAndStranger,
    at: usize,
    id: u64,
    links: Vec<(usize, Link)>,
}

/// Removes a follower that a program has replaced, with its id and its key, while the program has links to both
/// others.
fn removed(mut stage: ClusterAndStranger) -> Removed {
    let (leader, [at, other]) = stage.roles();
    let (id, claim, speaker) = (stage.id(at), stage.claim(), stage.speaker_of(at));
    stage.cluster.kill(at);
    let links = [leader, other].map(|to| {
        let link = speaker.hello(stage.port(to), &claim, id, stage.id(to));
        (to, link.expect("a member gets a link"))
    });
    stage.cluster.ok(&format!("remove {id}"));
    // Both members have applied the removal: only then may the tests expect them to act on it.
    stage.assert_all_serve();
    Removed { stage, at, id, links: links.into() }
}

fn a_removed_member_gets_no_link(stage: ClusterAndStranger) {
    let Removed { mut stage, at, id, links } = removed(stage);
    drop(links);
    let (claim, speaker) = (stage.claim(), stage.speaker_of(at));
    for to in [(at + 1) % 3, (at + 2) % 3] {
        let said = speaker.hello(stage.port(to), &claim, id, stage.id(to));
        assert!(said.is_err(), "m{to} gave a link to a removed member");
    }
    stage.assert_all_serve();
}

fn a_removed_member_loses_the_links_that_it_has(stage: ClusterAndStranger) {
    let Removed { mut stage, links, .. } = removed(stage);
    for (to, mut link) in links {
        assert!(link.is_closed_within(CLOSE), "m{to} keeps the link of a removed member");
    }
    stage.assert_all_serve();
}

fn a_command_of_a_removed_member_is_not_carried_out(stage: ClusterAndStranger) {
    let Removed { mut stage, links, .. } = removed(stage);
    for (to, mut link) in links {
        // Most members have closed the link by then.
        let done = link.command(&[put("forged", "value")]).unwrap_or(false);
        assert!(!done, "m{to} carried out a command of a removed member");
    }
    stage.assert_nothing_forged();
    stage.assert_all_serve();
}

fn a_promise_that_a_removed_member_makes_up_stops_no_member(stage: ClusterAndStranger) {
    let Removed { mut stage, links, .. } = removed(stage);
    for (to, mut link) in links {
        let (term, index) = (stage.number(to, "term"), stage.number(to, "last") + BEYOND);
        // Most members have closed the link by then.
        let _ = link.say(&Message::Remember(remembered(term, index)));
    }
    stage.assert_all_serve();
}

fn an_entry_that_a_removed_member_appends_is_not_applied(stage: ClusterAndStranger) {
    let Removed { mut stage, links, .. } = removed(stage);
    let leader = stage.cluster.leader();
    for (to, mut link) in links.into_iter().filter(|(to, _)| *to != leader) {
        let (term, last) = (stage.number(to, "term"), stage.number(to, "last"));
        let request = put("forged", "value");
        let payload = Bytes::from(seal_entry(Term(term), 0, [&request[..]]));
        let append = Step {
            log_term: term,
            index: last,
            commit: last + 1,
            commit_term: term,
            entries: vec![LogEntry { index: last + 1, term, kind: 0, payload }],
            ..step(StepKind::Append, term)
        };
        // Most members have closed the link by then.
        let _ = link.say(&Message::Step(Box::new(append)));
    }
    stage.assert_nothing_forged();
    stage.assert_all_serve();
}
