//! Checks that a new leader changes no members before it has committed an entry of its own term.
//!
//! Without that rule the check goes on, and sees two majorities commit different entries.

use crate::disks::{Cluster, id};
use tenure_raft::{MembershipChange, RejectReason};

#[cfg_attr(not(mutants), test)]
pub(crate) fn a_new_leader_changes_no_members_before_it_has_committed_an_entry_of_its_own() {
    // Members 0, 1 and 2 decide. Leader 2 proposes to promote 3, and no other voter hears of it.
    let mut cluster = Cluster::with_learners(3, 2);
    cluster.elect(2);
    let before = cluster.status(2).last.index;
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        cluster.cut(one, other);
    }
    assert_eq!(cluster.start_change(2, MembershipChange::Promote(id(3))), Ok(()));
    while cluster.status(2).leading {
        cluster.step();
    }
    assert_eq!(cluster.status(2).last.index, before + 1, "the change is in its log, uncommitted");
    // It leads again with the vote of 0, and is asked to promote 4 before anything of its new term is committed.
    cluster.heal();
    cluster.isolate(1);
    while !cluster.status(2).leading {
        assert!(!cluster.status(0).leading, "0 lacks an entry");
        cluster.step();
    }
    let asked = cluster.start_change(2, MembershipChange::Promote(id(4)));
    if asked == Err(RejectReason::ChangeUnderWay) {
        return;
    }
    // What follows happens only without the rule.
    assert_eq!(asked, Ok(()));
    // Both changes are committed by 0 and 2. Member 0 holds them and does not learn that they are committed.
    while cluster.status(0).last.index < before + 3 {
        cluster.step();
    }
    cluster.cut_one_way(2, 0);
    cluster.run_ms(50);
    assert!(cluster.status(2).committed >= before + 3, "committed by 0 and 2");
    assert!(cluster.status(0).committed <= before, "0 does not know it");
    // Of the five voters that 2 knows, 2, 3 and 4 are a majority. Of the three that 0 knows, 0 and 1 are one.
    cluster.heal();
    for (one, other) in [0, 1].into_iter().flat_map(|one| [2, 3, 4].map(|other| (one, other))) {
        cluster.cut(one, other);
    }
    cluster.run_ms(5_000);
    cluster.write(2, 1);
    let committed = cluster.status(0).committed.min(cluster.status(2).committed);
    assert!(committed > before + 3, "both have committed an entry after the changes");
    let at = |number: usize| {
        let entries = cluster.disk(number).entries;
        entries.into_iter().filter(|entry| entry.index <= committed).collect::<Vec<_>>()
    };
    assert_eq!(at(0), at(2), "S8: two majorities agree on different entries");
    panic!("a change began before the leader had committed an entry of its own term");
}
