//! Tests that partitions and slow connections between members lose nothing.

use std::time::Duration;

use crate::common::load::Load;
use crate::common::proxy::Road;
use crate::common::{Cluster, wait};

fn others(of: usize) -> [usize; 2] {
    [(of + 1) % 3, (of + 2) % 3]
}

/// Waits until a leader that hears from no other member steps down.
fn gives_up(cluster: &Cluster, at: usize) {
    wait("it gives up", || (!cluster.leads(at)).then_some(()));
}

#[test]
fn a_leader_that_is_cut_off_gives_way_to_one_of_the_others() {
    let cluster = Cluster::found_behind_proxies();
    let load = Load::begin(&cluster.addresses(), 4);
    let proxies = cluster.proxies.as_ref().unwrap();
    for road in [Road::Cut, Road::Hole, Road::Held] {
        load.goes_on(40);
        let old = cluster.leader();
        proxies.around(old, road);
        let new = cluster.leader_of(&others(old));
        assert_ne!(new, old);
        gives_up(&cluster, old);
        load.goes_on(60);
        // A write that it cannot commit must not be acknowledged.
        let answer = cluster.ask_within(Duration::from_secs(4), old, "put alone x").unwrap();
        assert!(!answer.starts_with("ok"), "{answer}");
        proxies.heal();
        load.goes_on(20);
    }
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn a_leader_that_cannot_receive_or_cannot_send_is_replaced() {
    let cluster = Cluster::found_behind_proxies();
    let load = Load::begin(&cluster.addresses(), 4);
    let proxies = cluster.proxies.as_ref().unwrap();
    for hears in [true, false] {
        load.goes_on(40);
        let old = cluster.leader();
        for other in others(old) {
            let (from, to) = if hears { (old, other) } else { (other, old) };
            proxies.set(from, to, Road::Hole);
        }
        cluster.leader_of(&others(old));
        gives_up(&cluster, old);
        load.goes_on(60);
        proxies.heal();
        load.goes_on(20);
    }
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn a_follower_that_one_direction_fails_does_not_stop_the_others() {
    let cluster = Cluster::found_behind_proxies();
    let load = Load::begin(&cluster.addresses(), 4);
    let proxies = cluster.proxies.as_ref().unwrap();
    for hears in [true, false] {
        load.goes_on(40);
        let leader = cluster.leader();
        let lonely = others(leader)[0];
        for other in others(lonely) {
            let (from, to) = if hears { (lonely, other) } else { (other, lonely) };
            proxies.set(from, to, Road::Hole);
        }
        load.goes_on(100);
        proxies.heal();
    }
    load.goes_on(20);
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn members_that_only_a_third_connects_agree_through_it() {
    let cluster = Cluster::found_behind_proxies();
    let load = Load::begin(&cluster.addresses(), 4);
    let proxies = cluster.proxies.as_ref().unwrap();
    // Each member is the bridge once, so the leader is at an end at least once.
    for bridge in 0..3 {
        let [one, other] = others(bridge);
        proxies.between(one, other, Road::Hole);
        load.goes_on(80);
        proxies.heal();
        load.goes_on(20);
    }
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn slow_and_broken_roads_cost_time_and_nothing_else() {
    let cluster = Cluster::found_behind_proxies();
    let load = Load::begin(&cluster.addresses(), 4);
    let proxies = cluster.proxies.as_ref().unwrap();
    let slow = Road::Slow(Duration::from_millis(40));
    for at in 0..3 {
        proxies.around(at, slow);
        load.goes_on(40);
        proxies.heal();
    }
    for round in 0..12 {
        let (one, other) = (round % 3, (round + 1) % 3);
        proxies.between(one, other, Road::Cut);
        load.goes_on(5);
        proxies.heal();
    }
    load.goes_on(40);
    load.judge(&cluster, &[0, 1, 2]);
}
