//! Checks that a removed member votes until the others know of its removal.

use crate::disks::{Cluster, id};
use tenure_raft::{Step, StepKind};

/// Of four voters one is gone. X leads, and commits its own removal with the two others, which do not hear so. They
/// are two of the three voters that stay, but still need three of four: they need the vote of X.
#[cfg_attr(not(mutants), test)]
pub(crate) fn a_removed_leader_votes_until_the_others_know_of_the_removal() {
    let mut cluster = Cluster::new(4);
    let a = cluster.elect(0);
    let (x, b) = (1, 2);
    cluster.write(a, 3);
    cluster.kill(3);
    // A cannot commit the removal with X alone.
    cluster.cut_one_way(a, b);
    cluster.remove(a, x);
    cluster.transfer(a, x);
    for _ in 0..3_000 {
        cluster.step();
        if cluster.status(x).leading {
            cluster.heal();
        }
        let last = cluster.status(x).last.index;
        let acknowledged = |at| cluster.newest_sent(at, StepKind::AppendAnswer).index >= last;
        if cluster.status(x).leading && acknowledged(a) && acknowledged(b) {
            break;
        }
    }
    [a, b].into_iter().for_each(|other| cluster.cut_one_way(x, other));
    cluster.step();
    assert!(cluster.replica(x).is_retired() && !cluster.status(x).leading);
    cluster.run_ms(100);
    [a, b].into_iter().for_each(|other| {
        assert!(cluster.replica(other).members().contains(id(x)), "{other} does not know it");
    });
    cluster.heal();
    let leader = cluster.elect_among(&[a, b]);
    assert!(!cluster.replica(leader).members().contains(id(x)));
    cluster.write(leader, 1);
}

/// Of two voters X leads and commits its own removal, and the other one, A, does not hear so. A still needs two of two
/// votes: its own and that of X.
#[cfg_attr(not(mutants), test)]
pub(crate) fn the_other_of_two_voters_learns_that_its_leader_was_removed() {
    let mut cluster = Cluster::new(2);
    let a = cluster.elect(0);
    let x = 1;
    cluster.write(a, 3);
    // The removal is durable on the disk of X alone, so only X can lead next.
    cluster.stick(a);
    cluster.remove(a, x);
    cluster.run_ms(50);
    cluster.kill(a);
    cluster.start(a);
    for _ in 0..3_000 {
        cluster.step();
        let last = cluster.status(x).last.index;
        let acknowledges =
            |step: &Step| step.kind == StepKind::AppendAnswer && !step.reject && step.index >= last;
        if cluster.status(x).leading && cluster.steps_of(a).iter().any(acknowledges) {
            break;
        }
    }
    cluster.cut_one_way(x, a);
    cluster.step();
    assert!(cluster.replica(x).is_retired() && !cluster.status(x).leading);
    cluster.run_ms(100);
    assert!(cluster.replica(a).members().contains(id(x)), "A does not know it");
    cluster.heal();
    let leader = cluster.elect_among(&[a]);
    assert!(!cluster.replica(leader).members().contains(id(x)));
    cluster.write(leader, 1);
}
