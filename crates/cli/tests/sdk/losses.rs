//! Tests that no lease is lost while only leaders die, one after another (L5).

use std::time::Duration;

use tenure::{Client, Guard, Lease, Standing};
use tenure_server::os;

use crate::common::{Cluster, kills, progress, wait};
use crate::{addresses, client, runtime};

const TTL: Duration = Duration::from_secs(15);
const CLIENTS: usize = 10;
const LEASES_EACH: usize = 10;

async fn lease(client: &Client, number: usize) -> (Lease, Guard) {
    let lease = client.lease(TTL).await.unwrap();
    let guard = lease.lock(format!("held/{number}")).no_wait().await.unwrap();
    (lease, guard)
}

// Retry once: each election must end within half of the ttl.
#[test]
fn no_lease_is_lost_while_leaders_are_killed() {
    let kills = kills(3);
    let mut cluster = Cluster::found(3);
    let runtime = runtime();
    let addresses = addresses(&cluster);
    let mut leases = Vec::new();
    for at in 0..CLIENTS {
        let client = runtime.block_on(client(&addresses, &format!("c{at}")));
        for each in 0..LEASES_EACH {
            leases.push(runtime.block_on(lease(&client, at * LEASES_EACH + each)));
        }
    }
    let lost = || leases.iter().filter(|(_, guard)| guard.check().is_err()).count();
    let mut doubts = 0;
    let bar = progress(kills);
    for _ in 0..kills {
        let leader = cluster.leader();
        cluster.kill(leader);
        cluster.leader();
        doubts += leases.iter().filter(|(it, _)| it.standing() == Standing::Doubtful).count();
        cluster.start(leader, &[]);
        cluster.agree(&[0, 1, 2]);
        bar.inc(1);
    }
    bar.finish_and_clear();
    // A lease that was not renewed since the last kill would be lost by then.
    let until_us = os::now_us() + u64::try_from((TTL / 2).as_micros()).unwrap();
    wait("every lease is renewed", || (os::now_us() > until_us).then_some(()));
    let (all, lost) = (leases.len(), lost());
    println!("losses kills={kills} leases={all} lost={lost} doubts={doubts} violations={lost}");
    assert_eq!(lost, 0, "{:?}", leases.iter().map(|(it, _)| it.standing()).collect::<Vec<_>>());
}
