//! Checks that a member whose disk went back does not vote a second time in a term.

use crate::disks::{Cluster, id};
use tenure_raft::{Message, StepKind};

/// Whether a member has granted its vote to another one in a later term than `term`.
fn voted_after(cluster: &Cluster, number: usize, term: u64) -> bool {
    let mut steps = cluster.steps_of(number).iter();
    steps.any(|step| step.kind == StepKind::VoteAnswer && !step.reject && step.term > term)
}

/// The disk loses the vote and nothing else: no message of the elected leader reaches the voter, so it has no entry to
/// lose.
#[cfg_attr(not(mutants), test)]
pub(crate) fn a_member_whose_disk_forgot_its_vote_gives_no_other_in_that_term() {
    let mut cluster = Cluster::new(3);
    let first = cluster.elect(0);
    cluster.write(first, 3);
    cluster.run_ms(1_200);
    let (before, third) = (cluster.term(0), 2);
    let old = [cluster.disk(0), cluster.disk(1)];
    // Members 0 and 1 elect one of them.
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        cluster.cut(one, other);
    }
    while cluster.status(0).leading {
        cluster.step();
    }
    cluster.heal();
    cluster.isolate(third);
    while !voted_after(&cluster, 0, before) && !voted_after(&cluster, 1, before) {
        cluster.step();
    }
    let voter = usize::from(voted_after(&cluster, 1, before));
    let leader = 1 - voter;
    cluster.heal();
    cluster.cut_one_way(leader, voter);
    cluster.run_ms(1_200);
    assert!(cluster.status(leader).leading, "with the third member");
    let term = cluster.term(leader);
    let ballot = cluster.newest_sent(leader, StepKind::Vote);
    assert_eq!(ballot.term, term);
    // The leader has told the third member how the voter voted, and is gone.
    cluster.kill(leader);
    cluster.kill(voter);
    cluster.replace_disk(voter, old[voter].clone());
    cluster.start(voter);
    while cluster.stopped(voter).is_none() && cluster.status(voter).asking {
        cluster.step();
    }
    // A late vote request of the third member for that term arrives.
    cluster.hand(voter, third, Message::Step(Box::new(ballot)));
    cluster.run_ms(50);
    assert!(!voted_after(&cluster, voter, before), "S12: {:?} votes twice in {term}", id(voter));
}
