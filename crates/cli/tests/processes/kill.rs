//! Tests that three members lose nothing when they are killed, one after another and all at once.

use crate::common::load::Load;
use crate::common::{Cluster, kills, progress};

#[test]
fn nothing_acknowledged_is_lost_by_kills_under_load() {
    let kills = kills(6);
    let mut cluster = Cluster::found(3);
    let load = Load::begin(&cluster.addresses(), 4);
    load.goes_on(50);
    let bar = progress(kills);
    for kill in 0..kills {
        let leader = cluster.leader();
        let victim = if kill % 2 == 0 { leader } else { (leader + 1) % 3 };
        cluster.kill(victim);
        // The other two go on without it, and then with it again.
        load.goes_on(40);
        cluster.start(victim, &[]);
        load.goes_on(20);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let history = load.judge(&cluster, &[0, 1, 2]);
    let (acknowledged, grants) = (history.told.len(), history.grants());
    println!("load kills={kills} acknowledged={acknowledged} grants={grants} violations=0");
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

#[test]
fn five_members_lose_nothing_when_two_are_killed() {
    let mut cluster = Cluster::found(5);
    let load = Load::begin(&cluster.addresses(), 4);
    for round in 0..2 {
        load.goes_on(40);
        let leader = cluster.leader();
        let victims = [leader, (leader + 1 + round) % 5];
        victims.iter().for_each(|at| cluster.kill(*at));
        load.goes_on(60);
        victims.iter().for_each(|at| cluster.start(*at, &[]));
    }
    load.goes_on(20);
    load.judge(&cluster, &[0, 1, 2, 3, 4]);
}
