//! Tests snapshots, hash comparison and removal with three members.

use super::*;

#[test]
fn a_member_that_forgot_stops_before_the_leader_repeats_what_it_forgot() {
    let mut cluster = Cluster::new(3);
    cluster.run(2);
    let leader = cluster.leader();
    let victim = (leader + 1) % 3;
    let (entries, hard_state) = {
        let member = &cluster.members[victim];
        (member.entries.clone(), member.hard_state)
    };
    let image = cluster.members[victim].image.clone();
    for proposal in 1..5 {
        cluster.grant(leader, proposal, 60_000);
        cluster.run(1);
    }
    // Kill the member and start it from a rolled-back disk. Its greetings and the heartbeats to it are lost, so the
    // first that it receives are entries that do not follow what it has.
    cluster.members[victim] = Member::start(victim, entries, hard_state, image);
    cluster.members[leader].inputs.push(ReplicaInput::Unreachable { member: id(victim) });
    cluster.grant(leader, 5, 60_000);
    for _ in 0..200 {
        cluster.step_losing(|to, input| {
            let ReplicaInput::Message { from, message } = input else { return false };
            let heartbeat =
                matches!(message, Message::Step(step) if step.kind == StepKind::Heartbeat);
            let greeting = *message == Message::Hello;
            to == id(victim) && heartbeat || *from == id(victim) && greeting
        });
    }
    let stopped = &cluster.members[victim].stopped;
    assert!(matches!(stopped, Some(Stop::Forgot { .. })), "{stopped:?}");
    cluster.leader();
}

#[test]
fn a_member_greets_every_member_it_is_linked_to() {
    let mut cluster = Cluster::new(3);
    cluster.run(1);
    cluster.members[0].inputs.push(ReplicaInput::Linked { member: id(1) });
    let mut sent = Vec::new();
    let now_us = cluster.now_us;
    cluster.members[0].turn(now_us, |to, input| sent.push((to, input)));
    let greets = |(to, input): &(MemberId, ReplicaInput)| {
        *to == id(1) && matches!(input, ReplicaInput::Message { message: Message::Hello, .. })
    };
    assert!(sent.first().is_some_and(greets), "before anything else");
}

#[test]
fn a_failed_snapshot_is_tried_again_and_a_short_disk_asks_for_one() {
    let mut cluster = Cluster::new(1);
    cluster.run(2);
    for proposal in 1..=60 {
        cluster.grant(0, proposal, 600_000);
        cluster.step();
    }
    cluster.run(1);
    let (first, ..) = cluster.members[0].image.clone().unwrap();
    assert!(first.index > 1, "one was saved");
    cluster.members[0].saves_fail = true;
    for proposal in 101..=160 {
        cluster.grant(0, proposal, 600_000);
        cluster.step();
    }
    cluster.run(1);
    assert_eq!(cluster.members[0].image.as_ref().unwrap().0, first);
    cluster.members[0].saves_fail = false;
    cluster.run(12);
    let (second, ..) = cluster.members[0].image.clone().unwrap();
    assert!(second > first, "it is tried again without more entries");
    cluster.grant(0, 200, 600_000);
    cluster.run(1);
    assert_eq!(cluster.members[0].image.as_ref().unwrap().0, second);
    cluster.set_space(0, Space::Short);
    cluster.run(1);
    assert!(cluster.members[0].image.as_ref().unwrap().0 > second, "compaction makes room");
}

#[test]
fn members_do_not_all_save_at_the_same_entry() {
    let mut cluster = Cluster::new(3);
    cluster.run(2);
    let leader = cluster.leader();
    let mut saved = std::collections::BTreeSet::new();
    for proposal in 1..=120 {
        cluster.grant(leader, proposal, 600_000);
        cluster.step();
        let images = cluster.members.iter().filter_map(|member| member.image.as_ref());
        saved.extend(images.map(|(point, ..)| point.index));
    }
    assert!(saved.len() > 3, "{saved:?}");
}

#[test]
fn a_large_state_is_saved_less_often_than_a_small_one() {
    let mut cluster = Cluster::new(1);
    let snapshot_bytes = 64 * 1024;
    cluster.configure(0, ReplicaConfig { snapshot_bytes, snapshot_entries: 10, ..config(0) });
    cluster.run(2);
    let mut proposal = 0;
    let mut saved_while_granting = |cluster: &mut Cluster, leases: u64| {
        let mut saved = std::collections::BTreeSet::new();
        for _ in 0..leases {
            proposal += 1;
            cluster.grant(0, proposal, 600_000);
            cluster.step();
            saved.extend(cluster.members[0].image.as_ref().map(|(point, ..)| point.index));
        }
        saved.len() - 1
    };
    let state = |cluster: &Cluster| {
        let machine = cluster.members[0].replica.machine();
        machine.stats().record_bytes + machine.stats().history_bytes + machine.state_bytes()
    };
    let small = saved_while_granting(&mut cluster, 30);
    let bytes = state(&cluster);
    assert!(small >= 3, "{small} times, every five to ten entries, with {bytes} bytes");
    saved_while_granting(&mut cluster, 2_000);
    assert!(state(&cluster) > 4 * snapshot_bytes, "{}", state(&cluster));
    let large = saved_while_granting(&mut cluster, 100);
    assert!(large <= 1, "{large} times");
    let later = saved_while_granting(&mut cluster, 8_000);
    assert!((1..10).contains(&later), "{later} times, each after as much as the state has");
}
