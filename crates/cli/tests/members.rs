//! How do members come, go, and come back without their disk?

mod common;

use std::fs;

use common::{Cluster, Process, wait};

#[test]
fn a_wiped_member_refuses_and_comes_back_under_a_new_id() {
    let mut cluster = Cluster::found(3);
    cluster.ok("lease 1 600000 ana");
    cluster.ok("lock 1 deploy");
    let wiped = (cluster.leader() + 1) % 3;
    let old = cluster.id(wiped);
    cluster.kill(wiped);
    fs::remove_dir_all(cluster.data(wiped)).unwrap();

    // With its old configuration it must not be taken for the member it was.
    cluster.start_founder(wiped);
    let process = cluster.members[wiped].process.as_mut().unwrap();
    assert_eq!(process.ended().code(), Some(78));
    let words = process.words();
    let last = words.lines().last().unwrap_or_default();
    assert!(last.contains("already belongs to cluster") && last.contains("--join "), "{words}");

    // The other two go on, and let it in under a new id.
    let seed = format!("127.0.0.1:{}", cluster.members[(wiped + 1) % 3].members);
    cluster.start(wiped, &["--join", &seed]);
    let status = |at| cluster.ask(at, "status").unwrap_or_default();
    wait("it follows", || status(wiped).contains("role=learner").then_some(()));
    let new = cluster.id(wiped);
    assert_ne!(old, new);
    cluster.ok(&format!("promote {new}"));
    cluster.ok(&format!("remove {old}"));
    let locks = cluster.ok("locks");
    assert!(locks.contains("[deploy held client=ana lease=1 token=1 "), "{locks}");
    cluster.agree(&[0, 1, 2]);
}

#[test]
fn two_wiped_members_grant_nothing() {
    let mut cluster = Cluster::found(3);
    cluster.ok("lease 1 600000 ana");
    cluster.ok("lock 1 deploy");
    let kept = cluster.leader();
    let wiped = [(kept + 1) % 3, (kept + 2) % 3];
    for at in wiped {
        cluster.kill(at);
        fs::remove_dir_all(cluster.data(at)).unwrap();
    }
    for at in wiped {
        cluster.start_founder(at);
    }
    for at in wiped {
        assert_eq!(cluster.members[at].process.as_mut().unwrap().ended().code(), Some(78));
    }
    wait("nobody leads", || {
        let status = cluster.ask(kept, "status")?;
        status.contains("serving=false").then_some(())
    });
    let refused = cluster.ask(kept, "put a b").unwrap();
    assert_eq!(refused, "error none not-leader leader=none");
}

#[test]
fn a_fourth_member_joins_votes_and_one_leaves() {
    let mut cluster = Cluster::found(3);
    for number in 0..20 {
        cluster.ok(&format!("put key/{number} {number}"));
    }
    let new = cluster.add();
    // Any member will do: it sends on to the leader.
    let follower = (cluster.leader() + 1) % 3;
    let seed = format!("127.0.0.1:{}", cluster.members[follower].members);
    cluster.start(new, &["--join", &seed]);
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

    // A leader that is told to stop hands over first.
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

    // Nor does a member of several run alone.
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
