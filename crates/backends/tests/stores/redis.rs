//! Tests locks over Redis, on one server and on several: usually one holder, and a stop in time.

use std::time::Duration;

use tenure_backends::{Backend, Builder, Error, Locks, Redis, Redlock};

use crate::scenario::{DEADLINE, contend, is_lost_in_time, outlives_its_ttl, serves, wakes};
use crate::servers::Server;

const LONG: Duration = Duration::from_secs(60);
/// With room for a machine that is busy with other tests.
const SHORT: Duration = Duration::from_secs(4);

fn one(server: &Server, ttl: Duration) -> Locks<Redis> {
    let redis = Redis::new(&server.address);
    set_up(Locks::builder(redis), ttl)
}

fn set_up<B: Backend>(builder: Builder<B>, ttl: Duration) -> Locks<B> {
    builder.ttl(ttl).window(ttl * 5 / 6).timeout(Duration::from_secs(5)).start().unwrap()
}

fn several(servers: &[Server], ttl: Duration) -> Locks<Redlock> {
    let redlock = Redlock::new(servers.iter().map(|server| server.address.clone()));
    set_up(Locks::builder(redlock), ttl)
}

async fn servers(count: usize) -> Option<Vec<Server>> {
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(Server::redis().await?);
    }
    Some(servers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_never_overlap_on_one_server_and_no_event_is_missed() {
    let Some(server) = Server::redis().await else { return };
    contend(|| one(&server, LONG), 6, 8, |_| ()).await;
    wakes(&one(&server, LONG), &one(&server, LONG), LONG).await;
    serves(&one(&server, LONG), &one(&server, LONG)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_outlives_its_ttl_and_a_killed_server_is_a_loss_in_time() {
    let Some(mut server) = Server::redis().await else { return };
    let locks = one(&server, SHORT);
    outlives_its_ttl(&locks, SHORT).await;
    let guard = locks.lock("deploy").await.unwrap();
    is_lost_in_time(guard, SHORT, || server.kill()).await;
    let unreachable = locks.lock("deploy").no_wait().await;
    assert!(matches!(unreachable, Err(Error::Unavailable { .. })), "{unreachable:?}");
    server.restart().await;
    locks.lock("deploy").wait(DEADLINE).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holder_is_waited_out_without_any_notification() {
    let Some(server) = Server::redis().await else { return };
    let address = server.address.clone();
    let dead = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let locks = Locks::builder(Redis::new(address)).ttl(SHORT).start().unwrap();
            std::mem::forget(locks.lock("orphan").await.unwrap());
        });
    });
    dead.join().unwrap();
    let locks = one(&server, SHORT);
    assert!(matches!(locks.lock("orphan").no_wait().await, Err(Error::Held { .. })));
    locks.lock("orphan").wait(DEADLINE).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_works_with_a_minority_of_servers_down_and_stops_with_a_majority() {
    let Some(mut servers) = servers(3).await else { return };
    contend(|| several(&servers, LONG), 4, 4, |_| ()).await;
    let (a, b) = (several(&servers, SHORT), several(&servers, SHORT));
    let held = a.lock("deploy").await.unwrap();
    // One of three is down: a held lock stays held, and other clients still see that.
    servers[0].kill();
    outlives_its_ttl(&a, SHORT).await;
    held.check().unwrap();
    assert!(matches!(b.lock("deploy").no_wait().await, Err(Error::Held { .. })));
    held.release().await.unwrap();
    contend(|| several(&servers, LONG), 3, 3, |_| ()).await;
    wakes(&several(&servers, LONG), &several(&servers, LONG), LONG).await;
    serves(&several(&servers, LONG), &several(&servers, LONG)).await;
    // Two of three are down: no client can tell who holds the lock.
    let held = a.lock("deploy").await.unwrap();
    is_lost_in_time(held, SHORT, || servers[1].kill()).await;
    let unreachable = b.lock("deploy").no_wait().await;
    assert!(matches!(unreachable, Err(Error::Unavailable { .. })), "{unreachable:?}");
}
