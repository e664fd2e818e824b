//! Do three members lose anything when they are killed, one after another and all at once?

use crate::common::Cluster;
use crate::common::load::Load;

#[test]
fn nothing_acknowledged_is_lost_by_kills_under_load() {
    let mut cluster = Cluster::found(3);
    let load = Load::begin(&cluster.addresses(), 4);
    load.goes_on(50);
    for round in 0..6 {
        let leader = cluster.leader();
        let victim = if round % 2 == 0 { leader } else { (leader + 1) % 3 };
        cluster.kill(victim);
        // Two go on without it, and with it again.
        load.goes_on(40);
        cluster.start(victim, &[]);
        load.goes_on(20);
    }
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn nothing_acknowledged_is_lost_when_all_are_killed_at_once() {
    let mut cluster = Cluster::found(3);
    let load = Load::begin(&cluster.addresses(), 4);
    for _ in 0..3 {
        load.goes_on(60);
        (0..3).for_each(|at| cluster.kill(at));
        (0..3).for_each(|at| cluster.start(at, &[]));
    }
    load.goes_on(60);
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn the_last_two_killed_in_turn_leave_nothing_behind() {
    let mut cluster = Cluster::found(3);
    let load = Load::begin(&cluster.addresses(), 4);
    for round in 0..3 {
        load.goes_on(40);
        let leader = cluster.leader();
        let others = [(leader + 1) % 3, (leader + 2) % 3];
        // The leader is left without a quorum, and is killed before the others are back.
        others.iter().for_each(|at| cluster.kill(*at));
        cluster.kill(leader);
        cluster.start(others[round % 2], &[]);
        cluster.start(leader, &[]);
        load.goes_on(20);
        cluster.start(others[(round + 1) % 2], &[]);
    }
    load.judge(&cluster, &[0, 1, 2]);
}
