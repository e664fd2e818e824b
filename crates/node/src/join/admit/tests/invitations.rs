//! Checks which invitations admit a new member, and that each admits one.

use super::*;

fn with(record: MemberRecord, invitation: Option<InvitationToken>) -> Join {
    Join { invitation, ..request(record) }
}

fn is_uninvited(answer: &Control, words: &str) -> bool {
    matches!(answer, Control::Uninvited(why) if why.contains(words))
}

impl JoinCluster {
    fn join_with(&mut self, number: u64, invitation: Option<InvitationToken>) -> Control {
        let leader = self.leader();
        self.join(leader, with(record(number), invitation), PeerName::Plain)
    }

    fn invitations(&self) -> usize {
        self.nodes[&self.leader()].machine().keys(invitation::PREFIX, None, 1_000).len()
    }
}

#[test]
fn a_stranger_without_a_valid_invitation_is_neither_called_back_nor_added() {
    let mut cluster = JoinCluster::of(3);
    let leader = cluster.leader();
    let mut guessed = token(4).to_string();
    guessed.pop();
    guessed.push('f');
    let guessed = InvitationToken::parse(&guessed);
    for (presented, words) in [
        (None, "joining needs an invitation"),
        (Some(token(INVITED + 1)), "no such invitation"),
        (guessed, "no such invitation"),
    ] {
        let answer = cluster.join_with(4, presented.clone());
        assert!(is_uninvited(&answer, words), "{presented:?}: {answer:?}");
        // A certificate for its name does not replace the invitation.
        let answer = cluster.join(leader, with(record(4), presented), certified("m4"));
        assert!(is_uninvited(&answer, words), "{answer:?}");
    }
    // Nor does an invitation replace the certificate.
    let answer = cluster.join(leader, request(record(4)), certified("m5"));
    assert!(is_refused(&answer, "the certificate is not for `m4`"), "{answer:?}");
    assert_eq!(cluster.called, []);
    assert_eq!(cluster.names(4), None);
    assert!(matches!(cluster.join_with(4, Some(token(4))), Control::Joined { .. }));
}

#[test]
fn an_invitation_admits_one_member_which_may_ask_again() {
    let mut cluster = JoinCluster::of(3);
    assert!(matches!(cluster.join_with(4, Some(token(9))), Control::Joined { .. }));
    cluster.run(GAP_US / 1_000);
    let answer = cluster.join_with(5, Some(token(9)));
    assert!(is_uninvited(&answer, "another member has used"), "{answer:?}");
    assert!(matches!(cluster.join_with(4, Some(token(9))), Control::Joined { .. }));
    // Removed, the member does not come back with it, nor does another one come in its place.
    cluster.change(MembershipChange::Remove(id(4)));
    assert_eq!(cluster.join_with(4, Some(token(9))), Control::Retired);
    assert!(is_uninvited(&cluster.join_with(5, Some(token(9))), "another member has used"));
}

#[test]
fn of_two_joins_with_one_invitation_at_once_one_succeeds() {
    let mut cluster = JoinCluster::of(3);
    let leader = cluster.leader();
    for number in [4, 5] {
        let (join, peer_name) = (JoinId(1_000 + number), PeerName::Plain);
        let request = with(record(number), Some(token(9)));
        cluster.hand(leader, Input::Join { join, request: Box::new(request), peer_name });
    }
    cluster.run(1_000);
    let joined = |number: u64| matches!(cluster.answers[&number], Control::Joined { .. });
    assert_eq!([joined(1_004), joined(1_005)], [true, false], "{:?}", cluster.answers);
    cluster.run(GAP_US / 1_000);
    assert!(is_uninvited(&cluster.join_with(5, Some(token(9))), "another member has used"));
}

#[test]
fn a_use_that_another_leader_has_written_is_not_written_again() {
    let mut cluster = JoinCluster::of(3);
    let leader = cluster.leader();
    cluster.call_back = |_| None;
    let (join, peer_name) = (JoinId(1_000), PeerName::Plain);
    let machine = cluster.nodes[&leader].machine();
    let token = Some(token(9));
    let incarnation = lineage().incarnation;
    let read = |joiner| InvitationUse::check(machine, incarnation, joiner, token.as_ref());
    // Two leaders read the unused invitation.
    let (first, second) = (read(id(4)).unwrap().put(id(4)), read(id(5)).unwrap().put(id(5)));
    let request = with(record(4), token.clone());
    cluster.hand(leader, Input::Join { join, request: Box::new(request), peer_name });
    let (proposal, linger_us, deadline_us) = (NO_CALLER, 0, u64::MAX);
    let requests = [second.into(), first.into()].into();
    let node = cluster.nodes.get_mut(&leader).unwrap();
    node.replica.handle(RaftInput::Submit { proposal, requests, linger_us, deadline_us });
    cluster.run(200);
    cluster.hand(
        leader,
        Input::CalledBack { join, answer: is_there(record(4)).unwrap().map(Box::new) },
    );
    cluster.run(200);
    assert!(is_uninvited(&cluster.answers[&1_000], "another member has used"));
    cluster.call_back = is_there;
    assert!(matches!(cluster.join_with(5, token), Control::Joined { .. }));
}

#[test]
fn an_expired_invitation_admits_no_member_although_the_clock_stood_still() {
    let mut cluster = JoinCluster::of(3);
    let short = |number| NewInvitation { expires_ms: 3_000, ..invitation(number) };
    cluster.invite([short(INVITED + 1), short(INVITED + 2)]);
    let before = cluster.invitations();
    assert!(matches!(cluster.join_with(4, Some(token(INVITED + 1))), Control::Joined { .. }));
    let clock_ms = cluster.nodes[&cluster.leader()].machine().clock_ms();
    cluster.run(GAP_US / 1_000 + 1_000);
    let now_ms = cluster.nodes[&cluster.leader()].machine().clock_ms();
    assert!(now_ms - clock_ms < 3_000, "no entry has moved the machine's clock");
    let answer = cluster.join_with(5, Some(token(INVITED + 2)));
    assert!(is_uninvited(&answer, "has expired"), "{answer:?}");
    assert!(!cluster.nodes[&cluster.leader()].replica().members().contains(id(5)));
    // The leader deletes what has expired.
    cluster.run(2_000);
    assert_eq!(cluster.invitations(), before - 2);
    let answer = cluster.join_with(5, Some(token(INVITED + 2)));
    assert!(is_uninvited(&answer, "no such invitation, or it has expired"), "{answer:?}");
}

#[test]
fn an_invitation_for_one_member_or_from_before_a_restore_admits_no_other() {
    let mut cluster = JoinCluster::of(1);
    let bound = NewInvitation { member: Some(id(5)), ..invitation(INVITED + 1) };
    let old = NewInvitation { incarnation: Incarnation(1), ..invitation(INVITED + 2) };
    cluster.invite([bound, old.clone()]);
    let answer = cluster.join_with(4, Some(token(INVITED + 1)));
    assert!(is_uninvited(&answer, "for another member"), "{answer:?}");
    assert!(matches!(cluster.join_with(5, Some(token(INVITED + 1))), Control::Joined { .. }));
    // The leader deletes it soon after. Before that it does not count either.
    let mut machine = Machine::new(Epoch::default());
    let put = old.put(0);
    let entry = tenure_core::codec::seal_entry(tenure_types::Term(1), 0, [&put[..]]);
    machine.apply(tenure_types::Term(1), Some(&entry), &mut Default::default());
    let check = |incarnation| {
        InvitationUse::check(&machine, incarnation, id(6), Some(&token(INVITED + 2))).map(drop)
    };
    assert_eq!(check(lineage().incarnation).map_err(|why| why.contains("restored")), Err(true));
    assert_eq!(check(Incarnation(1)), Ok(()));
}

#[test]
fn a_member_that_an_operator_added_by_its_id_needs_no_invitation() {
    let mut cluster = JoinCluster::of(1);
    let requests =
        [directory::put(&directory::key(id(4)), &record(4).names.to_string()).into()].into();
    let leader = cluster.leader();
    let (proposal, linger_us, deadline_us) = (NO_CALLER, 0, u64::MAX);
    let node = cluster.nodes.get_mut(&leader).unwrap();
    node.replica.handle(RaftInput::Submit { proposal, requests, linger_us, deadline_us });
    cluster.change(MembershipChange::AddLearner(id(4)));
    assert!(matches!(cluster.join_with(4, None), Control::Joined { .. }));
}
