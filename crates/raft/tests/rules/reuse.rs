//! Checks that the id of a removed member is never used again, and shows what would happen if it were.

use crate::disks::{Cluster, id};
use tenure_raft::{MembershipChange, RejectReason};

#[cfg_attr(not(mutants), test)]
pub(crate) fn the_id_of_a_removed_member_is_refused_by_every_later_leader() {
    let mut cluster = Cluster::new(4);
    let leader = cluster.elect(0);
    assert_eq!(cluster.change(leader, MembershipChange::Remove(id(3))), Ok(()));
    assert_eq!(
        cluster.change(leader, MembershipChange::AddLearner(id(3))),
        Err(RejectReason::Retired),
        "N18: the id of a removed member is not that of a member again"
    );
    let next = cluster.elect(1);
    assert_eq!(
        cluster.change(next, MembershipChange::AddLearner(id(3))),
        Err(RejectReason::Retired),
        "N18: the id of a removed member is not that of a member again"
    );
}

/// The engine takes an answer that the removed member sent in the same term for one of the new member, whose disk is
/// empty. From then on it ignores the rejections of the new member as outdated. The leader's heartbeats name what it
/// believes to be acknowledged, so the new member finds that its disk does not have it, and stops. Without a late
/// answer the new member applies the removal and the addition of its id, and takes part.
#[cfg(mutants)]
pub(crate) fn without_that_rule_the_new_member_stops_instead_of_being_sent_entries_for_ever() {
    use crate::disks::Disk;
    use tenure_raft::{Message, StepKind, Stop};
    use tenure_store::HardState;

    for late_answer in [true, false] {
        let mut cluster = Cluster::new(4);
        let leader = cluster.elect(0);
        cluster.write(leader, 5);
        cluster.run_ms(100);
        let late = cluster.newest_sent(3, StepKind::AppendAnswer);
        let term = cluster.term(leader);
        assert_eq!(late.term, term);
        cluster.kill(3);
        let hard_state = HardState { term: 1, vote: None, commit: 1 };
        cluster.replace_disk(3, Disk { hard_state, ..Disk::default() });
        assert_eq!(cluster.change(leader, MembershipChange::Remove(id(3))), Ok(()));
        assert_eq!(cluster.change(leader, MembershipChange::AddLearner(id(3))), Ok(()));
        cluster.start(3);
        if late_answer {
            let held = late.index;
            cluster.hand(leader, 3, Message::Step(Box::new(late)));
            cluster.step();
            assert_eq!(cluster.status(leader).matched.get(&id(3)), Some(&held), "it is believed");
        }
        cluster.run_ms(5_000);
        assert_eq!(cluster.term(leader), term, "all of this in one term");
        match cluster.stopped(3) {
            Some(Stop::Forgot { .. }) if late_answer => {}
            None if !late_answer => {}
            other => panic!("late answer: {late_answer}, the new member: {other:?}"),
        }
    }
}
