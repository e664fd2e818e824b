//! Tests calls and streams while leaders stop.

use std::time::Duration;

use tenure_wire::v1;
use tonic::Code;

use crate::common::{Members, soon, wait_for};
use crate::{Clients, heads, keyed, name, nothing, within};

#[tokio::test(flavor = "multi_thread")]
async fn callers_wait_while_a_new_leader_is_elected() {
    let mut members = Members::found(3);
    let leader = members.leader();
    let follower = members.follower();
    let mut clients = Clients::new(&members.connect(follower));
    let lease = clients.lease("patient").await;
    let lock = name("failover");
    let token = clients.take(&lock, lease).await;

    // One client waits for a lock and many write, all at a follower.
    let other = clients.lease("waiter").await;
    let mut waiting = clients.clone();
    let ask = v1::LockRequest { name: lock.clone(), lease_id: other, ..nothing() };
    let waits = tokio::spawn(async move { waiting.lock.lock(ask).await });
    wait_for("it waits", async || (clients.waiting(&lock).await == 1).then_some(())).await;
    let prefix = name("written");
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (mut clients, prefix) = (clients.clone(), prefix.clone());
            tokio::spawn(async move {
                for number in 0..40 {
                    let key = format!("{prefix}/{writer}/{number}");
                    let put = v1::PutRequest { key: key.clone(), value: "x".into(), ..nothing() };
                    let mut put = keyed(&key, put);
                    put.set_timeout(Duration::from_secs(30));
                    clients.keys.put(put).await.unwrap();
                }
            })
        })
        .collect();
    wait_for("they write", async || {
        let list = v1::ListKeysRequest { prefix: prefix.clone(), stale: true, ..nothing() };
        (!clients.keys.list(list).await.unwrap().into_inner().kvs.is_empty()).then_some(())
    })
    .await;
    tokio::task::block_in_place(|| members.stop(leader));
    for writer in writers {
        soon(writer).await.unwrap();
    }
    let list = v1::ListKeysRequest { prefix, limit: 1_000, ..nothing() };
    let written = clients.keys.list(within(Duration::from_secs(30), list)).await.unwrap();
    let written = written.into_inner();
    assert_eq!(written.kvs.len(), 8 * 40);
    assert!(written.kvs.iter().all(|kv| kv.version == 1), "each exactly once");

    // The place in the queue has outlived the leader.
    assert_eq!(clients.waiting(&lock).await, 1);
    let unlock = v1::UnlockRequest { name: lock, lease_id: lease, token };
    clients.lock.unlock(unlock).await.unwrap();
    let taken = soon(waits).await.unwrap().unwrap().into_inner();
    assert!(taken.acquired && taken.fencing_token > token);
    heads(taken.header.as_ref(), members.id(follower));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_stops_ends_its_streams_and_says_so() {
    let mut members = Members::found(1);
    let mut clients = Clients::new(&members.connect(0));
    let watch = v1::WatchRequest { key: "a".into(), watch_id: 1, ..nothing() };
    let (to, requests) = tokio::sync::mpsc::channel(1);
    to.send(watch).await.unwrap();
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut stream = clients.lock.watch(requests).await.unwrap().into_inner();
    assert!(soon(stream.message()).await.unwrap().unwrap().into_fields().created);
    let who = v1::LeaderRequest { name: "e".into(), ..nothing() };
    let mut observer = clients.elections.observe(who).await.unwrap().into_inner();
    assert!(soon(observer.message()).await.unwrap().unwrap().leader.is_none());
    tokio::task::block_in_place(|| members.stop(0));
    let status = soon(stream.message()).await.unwrap_err();
    crate::told(&status, Code::Unavailable, "SHUTTING_DOWN");
    let status = soon(observer.message()).await.unwrap_err();
    crate::told(&status, Code::Unavailable, "SHUTTING_DOWN");
}
