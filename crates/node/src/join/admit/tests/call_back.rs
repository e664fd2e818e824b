//! Checks when the leader calls a new member back, and what follows from the answer.

use super::*;

#[test]
fn a_new_member_is_called_back_after_the_cheap_checks_only() {
    let mut cluster = JoinCluster::of(3);
    let leader = cluster.leader();
    let mut namesake = record(4);
    namesake.names.name = "m2".into();
    let older = Join { level: 0, ..request(record(5)) };
    let stranger = PeerName::Certified(vec!["other".into()]);
    let answer = cluster.join_plain(namesake);
    assert!(is_refused(&answer, "is called `m2` already"), "{answer:?}");
    assert!(matches!(answer, Control::Rejected(_)), "the joiner would ask again: {answer:?}");
    assert!(is_refused(&cluster.join_plain(moved(4, "h:0")), "cannot dial"));
    assert!(is_refused(&cluster.join(leader, older, PeerName::Plain), "at feature level"));
    assert!(is_refused(&cluster.join(leader, request(record(4)), stranger), "certificate"));
    let other = cluster.other();
    let answer = cluster.join(other, request(record(4)), PeerName::Plain);
    assert!(matches!(answer, Control::Elsewhere(_)), "{answer:?}");
    assert_eq!(cluster.called, []);
    // A member that exists has been called back before.
    let answer = cluster.join(leader, request(record(2)), certified("m2"));
    assert!(matches!(answer, Control::Joined { .. }), "{answer:?}");
    assert_eq!(cluster.called, []);
    assert!(matches!(cluster.join_plain(record(4)), Control::Joined { .. }));
    assert_eq!(cluster.called, [id(4)]);
}

#[test]
fn a_member_that_is_not_where_it_says_is_not_added() {
    let mut cluster = JoinCluster::of(3);
    cluster.call_back = |_| Some(Err("no route".into()));
    let answer = cluster.join_plain(record(4));
    assert!(is_refused(&answer, "does not answer at h:4: no route"), "{answer:?}");
    cluster.call_back = |_| is_there(record(7));
    assert!(is_refused(&cluster.join_plain(record(4)), "another member than"));
    cluster.call_back = |_| Some(Ok(Control::Retired));
    assert!(is_refused(&cluster.join_plain(record(4)), "another member than"));
    assert_eq!(cluster.names(4), None);
    assert!(!cluster.nodes[&cluster.leader()].replica().members().contains(id(4)));
}

#[test]
fn calls_that_are_not_answered_do_not_keep_others_out_and_are_bounded() {
    let mut cluster = JoinCluster::of(3);
    let leader = cluster.leader();
    cluster.call_back = |record| (record.id == id(99)).then(|| is_there(record)).flatten();
    for number in 4..4 + CALLS_MAX as u64 - 1 {
        let join = JoinId(1_000 + number);
        let (request, peer_name) = (request(record(number)), PeerName::Plain);
        cluster.hand(leader, Input::Join { join, request: Box::new(request), peer_name });
    }
    cluster.run(100);
    assert!(matches!(cluster.join_plain(record(99)), Control::Joined { .. }), "one call is free");
    cluster.run(10_000);
    let (join, peer_name) = (JoinId(2_000), PeerName::Plain);
    cluster.hand(leader, Input::Join { join, request: Box::new(request(record(98))), peer_name });
    cluster.run(100);
    assert!(is_refused(&cluster.join_plain(record(97)), "are being called back"));
    // The member ends: every joiner that waits is told.
    let mut outputs = Vec::new();
    cluster.nodes.get_mut(&leader).unwrap().end(&mut outputs);
    let told = outputs.iter().filter(|output| matches!(output, Output::JoinAnswer { .. }));
    assert_eq!(told.count(), CALLS_MAX);
}

#[test]
fn a_join_is_checked_again_after_the_call() {
    let mut cluster = JoinCluster::of(3);
    let leader = cluster.leader();
    cluster.call_back = |_| None;
    let (join, peer_name) = (JoinId(1_000), PeerName::Plain);
    cluster.hand(leader, Input::Join { join, request: Box::new(request(record(4))), peer_name });
    cluster.run(100);
    assert_eq!(cluster.called, [id(4)]);
    // Meanwhile another member takes the name.
    cluster.call_back = is_there;
    let mut namesake = record(5);
    namesake.names.name = "m4".into();
    assert!(matches!(cluster.join_plain(namesake), Control::Joined { .. }));
    let answer = is_there(record(4)).unwrap();
    cluster.hand(leader, Input::CalledBack { join, answer: answer.map(Box::new) });
    cluster.run(100);
    assert!(is_refused(&cluster.answers[&1_000], "is called `m4` already"));
}
