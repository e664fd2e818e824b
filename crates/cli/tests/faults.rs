//! What else can happen to a member, and is anything lost by it?

mod common;

use std::process::Command;

use common::{Cluster, field, wait};

#[test]
fn a_leader_that_stands_still_is_replaced_and_follows_when_it_goes_on() {
    let mut cluster = Cluster::found(3);
    cluster.ok("lease 1 600000 ana");
    cluster.ok("lock 1 deploy");
    let old = cluster.leader();
    let stopped = cluster.members[old].process.take().unwrap();
    stopped.signal("-STOP");
    let new = cluster.leader();
    assert_ne!(old, new);
    cluster.ok("put while stopped");
    stopped.signal("-CONT");
    cluster.members[old].process = Some(stopped);
    // It still thinks that it leads, and must not act on that.
    let answer = cluster.ask(old, "put old leader").unwrap();
    assert!(!answer.starts_with("refused"), "{answer}");
    wait("it follows", || cluster.ask(old, "status")?.contains("role=follower").then_some(()));
    let read = cluster.ask(old, "get while").unwrap();
    assert_eq!(field(&read, "value").as_deref(), Some("stopped"), "{read}");
    cluster.agree(&[0, 1, 2]);
    let locks = cluster.ok("locks");
    assert!(locks.contains("[deploy held client=ana lease=1 token=1 "), "{locks}");
}

#[test]
fn a_member_whose_disk_went_back_notices_and_refuses() {
    let mut cluster = Cluster::found(3);
    cluster.ok("put before copy");
    let leader = cluster.leader();
    let victim = (leader + 1) % 3;
    cluster.agree(&[0, 1, 2]);
    cluster.kill(victim);
    let (data, copy) = (cluster.data(victim), cluster.dir.path().join("copy"));
    let copied = Command::new("cp").arg("-a").args([&data, &copy]).status().unwrap();
    assert!(copied.success());

    cluster.start(victim, &[]);
    for number in 0..20 {
        cluster.ok(&format!("put after/{number} x"));
    }
    cluster.agree(&[0, 1, 2]);
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
    cluster.ok("put the-others go-on");
}

#[test]
fn a_rolling_restart_loses_nothing() {
    let mut cluster = Cluster::found(3);
    cluster.ok("lease 1 600000 ana");
    cluster.ok("lock 1 deploy");
    for at in 0..3 {
        let process = cluster.members[at].process.as_mut().unwrap();
        process.signal("-TERM");
        assert!(process.ended().success(), "{}", process.words());
        cluster.members[at].process = None;
        cluster.ok(&format!("put without {at}"));
        cluster.start(at, &[]);
        cluster.agree(&[0, 1, 2]);
    }
    let locks = cluster.ok("locks");
    assert!(locks.contains("[deploy held client=ana lease=1 token=1 "), "{locks}");
    let read = cluster.ok("get without");
    assert_eq!(field(&read, "value").as_deref(), Some("2"), "{read}");
}
