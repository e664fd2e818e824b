//! Tests how members join, leave, and come back without their disk.

use std::fs;
use std::time::Duration;

use crate::common::client::number;
use crate::common::load::Load;
use crate::common::{Cluster, Process, free_port, tenure, wait};

/// Starts a member that has lost its disk with its old configuration. It must not be taken for the member it was, and
/// reports that.
fn refuses_to_start_wiped(cluster: &mut Cluster, at: usize) {
    cluster.start_initial_member(at);
    let process = cluster.members[at].process.as_mut().unwrap();
    assert_eq!(process.ended().code(), Some(78), "{}", process.words());
    let words = process.words();
    let last = words.lines().last().unwrap_or_default();
    assert!(last.contains("already belongs to cluster") && last.contains("--join "), "{words}");
    cluster.members[at].process = None;
}

#[test]
fn a_wiped_member_refuses_and_comes_back_under_a_new_id() {
    let mut cluster = Cluster::found(3);
    let load = Load::begin(&cluster.addresses(), 4);
    load.goes_on(50);
    let wiped = (cluster.leader() + 1) % 3;
    let old = cluster.id(wiped);
    cluster.kill(wiped);
    fs::remove_dir_all(cluster.data(wiped)).unwrap();
    refuses_to_start_wiped(&mut cluster, wiped);
    load.goes_on(50);

    // The other two go on, remove it, and let it in under a new id and the same name.
    cluster.ok(&format!("remove {old}"));
    let seed = cluster.advertised((wiped + 1) % 3);
    fs::remove_dir_all(cluster.data(wiped)).unwrap();
    cluster.start_joining(wiped, &seed, &[]);
    let status = |at| cluster.ask(at, "status").unwrap_or_default();
    wait("it follows", || status(wiped).contains("role=learner").then_some(()));
    let new = cluster.id(wiped);
    assert_ne!(old, new);
    cluster.ok(&format!("promote {new}"));
    load.goes_on(50);
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn a_wiped_leader_is_replaced_like_anyone_else() {
    let mut cluster = Cluster::found(3);
    let load = Load::begin(&cluster.addresses(), 4);
    load.goes_on(50);
    let wiped = cluster.leader();
    let old = cluster.id(wiped);
    cluster.kill(wiped);
    fs::remove_dir_all(cluster.data(wiped)).unwrap();
    // At once, while the others have no leader: with its old configuration it refuses.
    refuses_to_start_wiped(&mut cluster, wiped);
    load.goes_on(50);
    let seeds =
        format!("{},{}", cluster.advertised((wiped + 1) % 3), cluster.advertised((wiped + 2) % 3));
    cluster.ok(&format!("remove {old}"));
    cluster.start_joining(wiped, &seeds, &[]);
    let status = |at| cluster.ask(at, "status").unwrap_or_default();
    wait("it follows", || status(wiped).contains("role=learner").then_some(()));
    cluster.ok(&format!("promote {}", cluster.id(wiped)));
    load.goes_on(50);
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn two_wiped_members_grant_nothing() {
    let mut cluster = Cluster::found(3);
    cluster.ok("lease 1 600000 ana");
    cluster.ok("lock 1 deploy");
    let kept = cluster.leader();
    let before = number(&cluster.ask(kept, "status").unwrap(), "revision");
    let wiped = [(kept + 1) % 3, (kept + 2) % 3];
    for at in wiped {
        cluster.kill(at);
        fs::remove_dir_all(cluster.data(at)).unwrap();
    }
    // Start both at once, so that they meet each other, and then one after the other.
    for at in wiped {
        cluster.start_initial_member(at);
    }
    for at in wiped {
        let process = cluster.members[at].process.as_mut().unwrap();
        assert_eq!(process.ended().code(), Some(78), "{}", process.words());
        cluster.members[at].process = None;
    }
    wiped.iter().for_each(|at| refuses_to_start_wiped(&mut cluster, *at));
    wait("no member leads", || {
        let status = cluster.ask(kept, "status")?;
        status.contains("serving=false").then_some(())
    });
    // Each request waits for a leader until its time is over.
    let lines = ["put a b", "lease 2 1000 bob", "lock 1 other", "unlock 1 deploy 1"];
    std::thread::scope(|scope| {
        let asked = lines.map(|line| scope.spawn(|| cluster.ask(kept, line).unwrap()));
        for answer in asked.map(|asked| asked.join().unwrap()) {
            assert!(answer.starts_with("error none no-leader "), "{answer}");
        }
    });
    // The old state is there, and nothing else.
    let status = cluster.ask(kept, "status").unwrap();
    assert_eq!(number(&status, "revision"), before, "{status}");

    // With the member that has the data down as well, the others still must not found a new cluster.
    cluster.kill(kept);
    wiped.iter().for_each(|at| cluster.start_initial_member(*at));
    for at in wiped {
        let process = cluster.members[at].process.as_ref().unwrap();
        wait("it waits for the one that is down", || {
            let words = process.words();
            let last = words.lines().last().unwrap_or_default();
            last.contains("waiting for the other initial members").then_some(())
        });
        assert_eq!(cluster.ask_within(Duration::from_secs(1), at, "status"), None);
    }
    cluster.start(kept, &[]);
    for at in wiped {
        let process = cluster.members[at].process.as_mut().unwrap();
        assert_eq!(process.ended().code(), Some(78), "{}", process.words());
    }
    let status = wait("it is back, with all that it has", || {
        cluster.ask(kept, "status").filter(|status| number(status, "revision") >= before)
    });
    assert_eq!(number(&status, "revision"), before, "{status}");
}

#[test]
fn a_fourth_member_joins_votes_and_one_leaves() {
    let mut cluster = Cluster::found(3);
    for number in 0..20 {
        cluster.ok(&format!("put key/{number} {number}"));
    }
    let new = cluster.add();
    // Any member can be asked: it forwards the request to the leader.
    let follower = (cluster.leader() + 1) % 3;
    let seed = format!("127.0.0.1:{}", cluster.members[follower].members);
    cluster.start_joining(new, &seed, &[]);
    let status = |cluster: &Cluster, at| cluster.ask(at, "status").unwrap_or_default();
    wait("it follows", || status(&cluster, new).contains("role=learner").then_some(()));
    let id = cluster.id(new);
    cluster.ok(&format!("promote {id}"));
    wait("it votes", || status(&cluster, new).contains("role=follower").then_some(()));
    cluster.agree(&[0, 1, 2, new]);

    let gone = cluster.id(follower);
    cluster.ok(&format!("remove {gone}"));
    let process = cluster.members[follower].process.as_mut().unwrap();
    assert_eq!(process.ended().code(), Some(1));
    assert!(process.words().contains("removed from the cluster"), "{}", process.words());
    cluster.members[follower].process = None;

    // A leader that is told to stop hands leadership over first.
    let leader = cluster.leader();
    let process = cluster.members[leader].process.as_mut().unwrap();
    process.signal("-TERM");
    assert!(process.ended().success(), "{}", process.words());
    cluster.members[leader].process = None;
    cluster.ok("put after hand-over");
    cluster.start(leader, &[]);
    let left: Vec<usize> = (0..4).filter(|at| *at != follower).collect();
    cluster.agree(&left);
}

#[test]
fn a_directory_of_another_cluster_is_refused() {
    let mut first = Cluster::found(1);
    let second = Cluster::found(1);
    let listed = format!("m0=127.0.0.1:1,m1=127.0.0.1:{}", second.members[0].members);
    first.kill(0);
    first.start(0, &["--bootstrap", &listed]);
    let process = first.members[0].process.as_mut().unwrap();
    assert_eq!(process.ended().code(), Some(78));
    let words = process.words();
    assert!(words.contains("error: data directory belongs to cluster `"), "{words}");

    // A member of several does not run alone either.
    let mut three = Cluster::found(3);
    three.kill(0);
    let data = three.data(0);
    let said = three.dir.path().join("alone");
    let arguments = ["dev", "--data", data.to_str().unwrap(), "--clients", "127.0.0.1:0"];
    let mut alone = Process::start(&said, &arguments);
    assert_eq!(alone.ended().code(), Some(78));
    let words = alone.words();
    assert!(words.contains("of 3 members; try tenure serve"), "{words}");
}

#[test]
fn a_member_that_is_one_already_is_told_what_is_not_needed_and_what_is_wrong() {
    let mut cluster = Cluster::found(1);
    let at = cluster.add();
    let seed = format!("127.0.0.1:{}", cluster.members[0].members);
    cluster.start_joining(at, &seed, &[]);
    let words = |cluster: &Cluster| cluster.members[at].process.as_ref().unwrap().words();
    wait("it serves", || words(&cluster).contains("serving").then_some(()));
    assert!(!words(&cluster).contains("already"), "{}", words(&cluster));
    cluster.kill(at);
    cluster.start(at, &["--join", &seed]);
    let note = "this member already belongs to a cluster";
    wait("it says so", || words(&cluster).contains(note).then_some(()));

    // An initial member with another name is an operator's mistake, unless the operator confirms it with --rename.
    cluster.kill(0);
    let (data, clients) = (cluster.data(0), free_port());
    let clients = format!("127.0.0.1:{clients}");
    let mut arguments = vec!["serve", "--name", "other", "--data", data.to_str().unwrap()];
    arguments.extend(["--clients", &clients, "--members", &seed]);
    let mut other = Process::start(&cluster.dir.path().join("other"), &arguments);
    assert_eq!(other.ended().code(), Some(78));
    let words = other.words();
    let says = "error: data directory is of member `m0`, not of `other`; try --name m0, another \
                directory with --data, or --rename";
    assert!(words.contains(says), "{words}");
    arguments.push("--rename");
    let renamed = Process::start(&cluster.dir.path().join("renamed"), &arguments);
    wait("it is called so", || {
        let members = tenure(&["cluster", "members", "--addr", &clients]);
        members.out.contains("other").then_some(())
    });
    drop(renamed);
    // The new name persists.
    arguments.pop();
    let again = Process::start(&cluster.dir.path().join("again"), &arguments);
    wait("it serves", || again.words().contains("serving").then_some(()));
}

#[test]
fn one_that_was_removed_while_it_was_down_finds_out_when_it_comes_back() {
    let mut cluster = Cluster::found(3);
    let gone = (cluster.leader() + 1) % 3;
    cluster.kill(gone);
    let (name, leader) = (cluster.members[gone].name.clone(), cluster.leader());
    let addr = cluster.address(leader).to_string();
    let removed = tenure(&["cluster", "remove", &name, "--yes", "--addr", &addr]);
    assert_eq!(removed.code, Some(0), "{}", removed.err);
    // No member sends it the entry that removed it.
    cluster.start(gone, &[]);
    let process = cluster.members[gone].process.as_mut().unwrap();
    assert_eq!(process.ended().code(), Some(1));
    assert!(process.words().contains("removed from the cluster"), "{}", process.words());
}
