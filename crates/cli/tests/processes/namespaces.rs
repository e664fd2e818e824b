//! Tests that silently lost packets stop no other member and lose no write.

use crate::common::load::Load;
use crate::common::{Cluster, wait};

fn others(of: usize) -> [usize; 2] {
    [(of + 1) % 3, (of + 2) % 3]
}

#[test]
fn a_leader_whose_cable_is_pulled_gives_way_and_comes_back() {
    let Some(cluster) = Cluster::found_in_spaces() else { return };
    let load = Load::begin(&cluster.addresses(), 4);
    let spaces = cluster.spaces.as_ref().unwrap();
    for _ in 0..2 {
        load.goes_on(40);
        let old = cluster.leader();
        spaces.unplug(old);
        cluster.leader_of(&others(old));
        load.goes_on(40);
        spaces.heal();
        wait("it follows", || {
            let status = cluster.ask(old, "status")?;
            status.contains("role=follower").then_some(())
        });
    }
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn packets_lost_in_one_direction_or_between_two_members_stop_no_client() {
    let Some(cluster) = Cluster::found_in_spaces() else { return };
    let load = Load::begin(&cluster.addresses(), 4);
    let spaces = cluster.spaces.as_ref().unwrap();
    load.goes_on(40);
    // The others do not receive the leader's packets.
    let old = cluster.leader();
    others(old).iter().for_each(|other| spaces.lose(old, *other));
    cluster.leader_of(&others(old));
    load.goes_on(40);
    spaces.heal();
    load.goes_on(20);
    // The leader does not receive the others' packets.
    let old = cluster.leader();
    others(old).iter().for_each(|other| spaces.lose(*other, old));
    cluster.leader_of(&others(old));
    load.goes_on(40);
    spaces.heal();
    load.goes_on(20);
    // Only one member reaches both others.
    for bridge in 0..3 {
        let [one, other] = others(bridge);
        spaces.part(one, other);
        load.goes_on(60);
        spaces.heal();
    }
    load.judge(&cluster, &[0, 1, 2]);
}
