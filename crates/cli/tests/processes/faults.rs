//! What else can happen to a member, and is anything lost by it?

use std::process::Command;

use crate::common::client::number;
use crate::common::load::Load;
use crate::common::{Cluster, field, wait};

#[test]
fn a_leader_that_stands_still_is_replaced_and_follows_when_it_goes_on() {
    let mut cluster = Cluster::found(3);
    let load = Load::begin(&cluster.addresses(), 4);
    load.goes_on(50);
    for round in 0..2 {
        let old = cluster.leader();
        let stopped = cluster.members[old].process.take().unwrap();
        stopped.signal("-STOP");
        let new = cluster.leader();
        assert_ne!(old, new);
        cluster.ok(&format!("put while {round}"));
        load.goes_on(40);
        stopped.signal("-CONT");
        cluster.members[old].process = Some(stopped);
        // It still thinks that it leads, and must not act on that.
        let answer = cluster.ask(old, "put old leader").unwrap();
        assert!(!answer.starts_with("refused"), "{answer}");
        wait("it follows", || cluster.ask(old, "status")?.contains("role=follower").then_some(()));
        let read = cluster.ask(old, "get while").unwrap();
        assert_eq!(field(&read, "value"), Some(round.to_string()), "{read}");
    }
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn a_member_whose_disk_went_back_notices_and_refuses() {
    let mut cluster = Cluster::found(3);
    let load = Load::begin(&cluster.addresses(), 3);
    load.goes_on(50);
    let leader = cluster.leader();
    let victim = (leader + 1) % 3;
    cluster.kill(victim);
    let (data, copy) = (cluster.data(victim), cluster.dir.path().join("copy"));
    let copied = Command::new("cp").arg("-a").args([&data, &copy]).status().unwrap();
    assert!(copied.success());

    cluster.start(victim, &[]);
    let revision = number(&cluster.ok("put after copy"), "revision");
    wait("it has acknowledged more", || {
        (number(&cluster.ask(victim, "status")?, "revision") >= revision).then_some(())
    });
    cluster.kill(victim);
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&copy, &data).unwrap();
    cluster.start(victim, &[]);
    let process = cluster.members[victim].process.as_mut().unwrap();
    assert_eq!(process.ended().code(), Some(1), "{}", process.words());
    let words = process.words();
    let last = words.lines().last().unwrap_or_default();
    assert!(last.contains("acknowledged entries up to") && last.contains("--join"), "{words}");
    cluster.members[victim].process = None;
    load.goes_on(50);
    let others: Vec<usize> = (0..3).filter(|at| *at != victim).collect();
    load.judge(&cluster, &others);
}

#[test]
fn a_rolling_restart_loses_nothing() {
    let mut cluster = Cluster::found(3);
    let load = Load::begin(&cluster.addresses(), 4);
    for at in 0..3 {
        load.goes_on(40);
        let process = cluster.members[at].process.as_mut().unwrap();
        process.signal("-TERM");
        assert!(process.ended().success(), "{}", process.words());
        cluster.members[at].process = None;
        load.goes_on(40);
        cluster.start(at, &[]);
        let applied = number(&cluster.ask(cluster.leader(), "status").unwrap(), "applied");
        wait("it is back", || {
            (number(&cluster.ask(at, "status")?, "applied") >= applied).then_some(())
        });
    }
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn a_member_far_behind_catches_up_by_snapshot_while_writes_go_on() {
    let mut cluster = Cluster::found_with_snapshots(100);
    let load = Load::begin(&cluster.addresses(), 4);
    load.goes_on(50);
    let behind = (cluster.leader() + 1) % 3;
    cluster.kill(behind);
    let last = std::fs::read_to_string(&cluster.dir.path().join(format!("m{behind}.log"))).unwrap();
    let stopped_at = wait("the others tell", || {
        Some(number(&cluster.ask(cluster.leader(), "status")?, "applied"))
    });
    wait("the others have forgotten what it lacks", || {
        let base = number(&cluster.ask(cluster.leader(), "status")?, "base");
        (base > stopped_at).then_some(())
    });
    cluster.start(behind, &[]);
    wait("a snapshot reaches it", || {
        let process = cluster.members[behind].process.as_ref().unwrap();
        process.words()[last.len()..].contains("snapshot received").then_some(())
    });
    load.goes_on(50);
    load.judge(&cluster, &[0, 1, 2]);
}
