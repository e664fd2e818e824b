//! Tests leadership preferences and reads of learners, with real processes.

use crate::common::{Cluster, field, wait};

/// Starts three initial members with these preferences.
fn found(preferences: [&str; 3]) -> Cluster {
    let mut cluster = Cluster::new();
    for _ in 0..3 {
        cluster.add();
    }
    for (at, preference) in preferences.iter().enumerate() {
        start(&mut cluster, at, preference);
    }
    cluster.leader();
    cluster
}

fn start(cluster: &mut Cluster, at: usize, preference: &str) {
    let initial_members = cluster.members[..3].iter();
    let listed = initial_members.map(|one| format!("{}=127.0.0.1:{}", one.name, one.members));
    let listed = listed.collect::<Vec<_>>().join(",");
    cluster.start(at, &["--bootstrap", &listed, "--preference", preference]);
}

fn number(cluster: &Cluster, at: usize, name: &str) -> u64 {
    wait(name, || field(&cluster.ask(at, "status")?, name)?.parse().ok())
}

fn words(cluster: &Cluster, at: usize) -> String {
    cluster.members[at].process.as_ref().unwrap().words()
}

// Retry once: a machine that stalls for an election timeout causes an election of its own.
#[test]
fn the_preferred_member_gets_leadership_back_and_not_while_it_cannot_take_it() {
    const HANDS: &str = "hands leadership to a preferred member";
    let mut cluster = found(["50", "100", "50"]);
    wait("the preferred member leads", || (cluster.leader() == 1).then_some(()));

    // To the other members it looks cut off: its sockets stay open, and it does not answer.
    cluster.members[1].process.as_ref().unwrap().signal("-STOP");
    let instead = wait("another one leads", || Some(cluster.leader()).filter(|at| *at != 1));
    let term = number(&cluster, instead, "term");
    let before = words(&cluster, instead).matches(HANDS).count();
    // The state machine's clock advances while a lease exists.
    cluster.ok("lease 7 600000 worker");
    let from_ms = number(&cluster, instead, "clock_ms");
    wait("it has led for longer than it takes to hand over", || {
        cluster.ok("renew 7");
        (number(&cluster, instead, "clock_ms") > from_ms + 5_000).then_some(())
    });
    assert_eq!(number(&cluster, instead, "term"), term, "its leadership was not disturbed");
    assert_eq!(words(&cluster, instead).matches(HANDS).count(), before, "it did not even try");

    cluster.kill(1);
    start(&mut cluster, 1, "100");
    wait("the preferred member leads again", || (cluster.leader() == 1).then_some(()));
    cluster.ok("put key value");
    cluster.agree(&[0, 1, 2]);
    assert_eq!(number(&cluster, 1, "preference"), 100);
}

#[test]
fn a_member_with_preference_0_leads_only_while_no_other_can() {
    let mut cluster = found(["0", "50", "0"]);
    wait("the only one that may leads", || (cluster.leader() == 1).then_some(()));
    cluster.kill(1);
    cluster.ok("put key value");
    start(&mut cluster, 1, "50");
    wait("it leads again", || (cluster.leader() == 1).then_some(()));
    cluster.ok("put key another");
    cluster.agree(&[0, 1, 2]);
}

#[test]
fn a_learner_serves_reads_and_has_no_vote() {
    let mut cluster = found(["50"; 3]);
    let learner = cluster.add();
    let seed = format!("127.0.0.1:{}", cluster.members[0].members);
    cluster.start_joining(learner, &seed, &[]);
    let its = |cluster: &Cluster, line: &str| cluster.ask(learner, line).unwrap_or_default();
    wait("it follows", || its(&cluster, "status").contains("role=learner leader=").then_some(()));
    cluster.ok("lease 7 600000 worker");
    cluster.ok("lock 7 deploy");
    for round in 0..20 {
        // A read through the learner shows every acknowledged write, even one that it has not applied yet.
        cluster.ok(&format!("put key {round}"));
        let read =
            wait("it reads", || Some(its(&cluster, "get key")).filter(|a| a.starts_with("ok")));
        assert_eq!(field(&read, "value"), Some(round.to_string()), "{read}");
    }
    assert!(its(&cluster, "explain deploy").contains("client=worker"));
    let revision = |answer: &str| field(answer, "revision").unwrap().parse::<u64>().unwrap();
    let stale = its(&cluster, "stale locks");
    assert!(stale.contains("[deploy held client=worker") && stale.contains(" stale revision="));

    // One of three voters may fail. The learner does not replace a second one.
    let first = (cluster.leader() + 1) % 3;
    cluster.kill(first);
    let before = revision(&its(&cluster, "stale get key"));
    cluster.ok("put key survived");
    let seen = wait("the learner follows", || {
        let seen = its(&cluster, "stale get key");
        seen.contains("value=survived").then_some(seen)
    });
    assert!(revision(&seen) > before, "{seen}");
    let second = (0..3).find(|at| *at != first && *at != cluster.leader()).unwrap();
    cluster.kill(second);
    let last = (0..3).find(|at| *at != first && *at != second).unwrap();
    wait("no member leads", || {
        cluster.ask(last, "status").unwrap().contains("leader=none").then_some(())
    });
    assert!(cluster.ask(last, "put key lost").unwrap().starts_with("error none"));
    // A learner may still know the member that it followed, which no longer leads.
    let unread = its(&cluster, "get key");
    let words = ["error none no-leader ", "error none not-leader "];
    assert!(words.iter().any(|word| unread.starts_with(word)), "{unread}");
    assert_eq!(its(&cluster, "stale get key"), seen, "what it knows it still tells");
    start(&mut cluster, second, "50");
    assert!(cluster.ok("get key").contains("value=survived"));
}
