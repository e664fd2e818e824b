//! Checks that a removed member finds out, and when it ends.

use super::*;

#[test]
fn a_removed_id_is_refused_for_ever_by_every_member() {
    let mut cluster = JoinCluster::of(3);
    let (leader, gone) = (cluster.leader(), cluster.other());
    cluster.cut.push(gone);
    cluster.change(MembershipChange::Remove(gone));
    let third = *cluster.nodes.keys().find(|it| **it != leader && **it != gone).unwrap();
    let asks = request(record(gone.get()));
    assert_eq!(cluster.join(leader, asks.clone(), PeerName::Plain), Control::Retired);
    assert_eq!(cluster.join(third, asks, certified("m2")).encode(), {
        // A member that does not lead knows it as well, if the certificate is for the name that is asked for.
        match gone.get() {
            2 => Control::Retired.encode(),
            _ => {
                let why = format!("the certificate is not for `m{}`", gone.get());
                Control::Refused(why).encode()
            }
        }
    });
    // The removed member hears of no leader, asks the others, and stops.
    cluster.run(6_000);
    let asked: Vec<_> = cluster.questions.iter().filter(|(by, ..)| *by == gone).collect();
    assert!(asked.len() >= 2, "{asked:?}");
    let addresses: BTreeSet<&String> = asked.iter().map(|it| &it.2).collect();
    assert_eq!(addresses.len(), 2, "one after the other");
    let Control::Join(join) = asked[0].3.clone() else { panic!() };
    let answer = cluster.join(leader, join, PeerName::Plain);
    assert_eq!(answer, Control::Retired);
    cluster.hand(gone, Input::StandingAnswer { from: leader, answer: Box::new(answer) });
    cluster.run(20);
    assert_eq!(cluster.stops.get(&gone), Some(&Stop::Removed));
}

#[test]
fn a_member_that_has_applied_its_removal_stops_when_a_majority_of_the_rest_confirms_it() {
    let mut cluster = JoinCluster::of(4);
    let gone = cluster.other();
    cluster.change(MembershipChange::Remove(gone));
    cluster.run(1_000);
    assert!(cluster.nodes[&gone].replica().is_retired());
    let voters = cluster.nodes[&gone].replica().members().voters.clone();
    assert_eq!(voters.len(), 3);
    let asked = |cluster: &JoinCluster| -> BTreeSet<MemberId> {
        cluster.questions.iter().filter(|(by, ..)| *by == gone).map(|it| it.1).collect()
    };
    assert_eq!(asked(&cluster), voters, "it asks those that stay, at once");
    let confirm = |cluster: &mut JoinCluster, from| {
        cluster.hand(gone, Input::StandingAnswer { from, answer: Box::new(Control::Retired) });
        cluster.run(500);
    };
    let mut voters = voters.into_iter();
    let (first, second) = (voters.next().unwrap(), voters.next().unwrap());
    confirm(&mut cluster, first);
    assert_eq!(cluster.stops.get(&gone), None, "one of three");
    confirm(&mut cluster, first);
    assert_eq!(cluster.stops.get(&gone), None, "the same one again");
    confirm(&mut cluster, second);
    assert_eq!(cluster.stops.get(&gone), Some(&Stop::Removed));
}

#[test]
fn a_removed_learner_that_missed_it_asks_the_others_and_stops() {
    let mut cluster = JoinCluster::of(3);
    let (leader, learner) = (cluster.leader(), id(4));
    assert!(matches!(cluster.join_plain(record(4)), Control::Joined { .. }));
    cluster.start_empty(record(4));
    cluster.run(2_000);
    assert_eq!(cluster.nodes[&learner].lead.by, Some(leader));
    assert!(cluster.questions.is_empty(), "{:?}", cluster.questions);
    cluster.cut.push(learner);
    cluster.change(MembershipChange::Remove(learner));
    // A learner calls no election, so it believes in its last leader.
    cluster.run(6_000);
    assert_eq!(cluster.nodes[&learner].lead.by, Some(leader));
    let Some((by, _, _, Control::Join(join))) = cluster.questions.pop() else {
        panic!("no question")
    };
    assert_eq!(by, learner);
    let answer = cluster.join(leader, join, PeerName::Plain);
    cluster.hand(learner, Input::StandingAnswer { from: leader, answer: Box::new(answer) });
    cluster.run(20);
    assert_eq!(cluster.stops.get(&learner), Some(&Stop::Removed));
}

#[test]
fn a_member_whose_removal_one_member_confirms_for_long_stops_without_a_majority() {
    let mut cluster = JoinCluster::of(4);
    let gone = cluster.other();
    cluster.change(MembershipChange::Remove(gone));
    cluster.run(1_000);
    let first = *cluster.nodes[&gone].replica().members().voters.first().unwrap();
    let answer = || Input::StandingAnswer { from: first, answer: Box::new(Control::Retired) };
    cluster.hand(gone, answer());
    cluster.run(50_000);
    assert_eq!(cluster.stops.get(&gone), None);
    // The other two were replaced since.
    cluster.run(20_000);
    cluster.hand(gone, answer());
    cluster.run(20);
    assert_eq!(cluster.stops.get(&gone), Some(&Stop::Removed));
}
