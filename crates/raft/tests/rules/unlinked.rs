//! Checks elections after the connection to the leader has ended.

use crate::disks::{Cluster, id};
use tenure_raft::ReplicaInput;

/// The shortest election timeout.
const TIMEOUT_MS: u64 = 300;

#[test]
fn followers_of_a_leader_whose_connections_ended_do_not_wait_for_the_election_timeout() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.elect(0);
    cluster.write(leader, 3);
    cluster.kill(leader);
    for follower in [1, 2] {
        cluster.input(follower, ReplicaInput::Unlinked { member: id(leader) });
    }
    cluster.run_ms(TIMEOUT_MS - 5);
    let next = cluster.leader();
    assert!(matches!(next, Some(1 | 2)), "{next:?}");
}

#[test]
fn a_follower_that_alone_loses_its_connection_does_not_replace_the_leader() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.elect(0);
    cluster.write(leader, 3);
    let term = cluster.term(leader);
    cluster.cut(leader, 2);
    cluster.input(2, ReplicaInput::Unlinked { member: id(leader) });
    cluster.run_ms(5_000);
    assert_eq!((cluster.leader(), cluster.term(leader)), (Some(leader), term));
    cluster.heal();
    cluster.run_ms(200);
    assert_eq!(cluster.status(2).leader, Some(id(leader)));
    assert_eq!(cluster.term(2), term);
}

#[test]
fn a_connection_to_another_follower_ends_without_consequence() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.elect(0);
    cluster.input(1, ReplicaInput::Unlinked { member: id(2) });
    cluster.step();
    assert_eq!(cluster.status(1).leader, Some(id(leader)));
}
