//! Tests the gRPC services for locks, leases and keys.

use tenure_wire::v1;
use tonic::Code;

use crate::common::{Members, soon, wait_for};
use crate::{Clients, heads, name, nothing, refused};

fn ask(lock: &str, lease: i64, wait_ms: Option<u64>) -> v1::AcquireRequest {
    v1::AcquireRequest { lock: lock.into(), lease, wait_ms, ..nothing() }
}

#[tokio::test(flavor = "multi_thread")]
async fn places_are_listed_and_left() {
    let members = Members::found(3);
    for at in [members.leader(), members.follower()] {
        let mut clients = Clients::new(&members.connect(at));
        let lock = name("queue");
        let holder = clients.lease("holder").await;
        let token = clients.take(&lock, holder).await;
        let mut waiters = Vec::new();
        for number in 0..3_u64 {
            let lease = clients.lease(&format!("w{number}")).await;
            let mut other = clients.clone();
            let asked = ask(&lock, lease, None);
            let task = tokio::spawn(async move { other.locks.acquire(asked).await });
            let waiting = number + 1;
            wait_for("it waits", async || (clients.waiting(&lock).await == waiting).then_some(()))
                .await;
            waiters.push((lease, task));
        }
        let page = v1::QueueRequest { lock: lock.clone(), limit: 2, ..nothing() };
        let first = clients.locks.queue(page.clone()).await.unwrap().into_inner();
        heads(first.header.as_ref(), members.id(at));
        let clients_of = |it: &v1::QueueResponse| {
            it.waiters.iter().map(|it| it.client.clone()).collect::<Vec<_>>()
        };
        assert_eq!(clients_of(&first), ["w0", "w1"]);
        let page = v1::QueueRequest { after: first.next, ..page };
        let last = clients.locks.queue(page).await.unwrap().into_inner();
        assert_eq!((clients_of(&last), last.next), (vec!["w2".to_owned()], 0));

        let (middle, task) = waiters.remove(1);
        let leave = v1::LeaveRequest { lock: lock.clone(), lease: middle, ..nothing() };
        let left = clients.locks.leave(leave.clone()).await.unwrap().into_inner();
        heads(left.header.as_ref(), members.id(at));
        assert!(left.held.is_empty());
        task.abort();
        refused(clients.locks.leave(leave).await, Code::FailedPrecondition, "NOT_WAITING");
        let release = v1::ReleaseRequest { lock: lock.clone(), lease: holder, token, ..nothing() };
        clients.locks.release(release.clone()).await.unwrap();
        refused(clients.locks.release(release).await, Code::FailedPrecondition, "NOT_HOLDER");
        let (_, task) = waiters.remove(0);
        assert!(soon(task).await.unwrap().unwrap().into_inner().token > token);
        waiters.into_iter().for_each(|(_, task)| task.abort());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages_and_a_follower_shows_what_the_leader_does() {
    let members = Members::found(3);
    let mut here = Clients::new(&members.connect(members.leader()));
    let mut there = Clients::new(&members.connect(members.follower()));
    let lease = here.lease("lister").await;
    let prefix = name("list");
    for number in 0..5 {
        here.take(&format!("{prefix}/{number}"), lease).await;
        let put = v1::PutRequest { key: format!("{prefix}/{number}"), lease, ..nothing() };
        here.keys.put(put).await.unwrap();
    }
    let (mut after, mut seen) = (String::new(), Vec::new());
    loop {
        let page = v1::ListLocksRequest { prefix: prefix.clone(), limit: 2, after, ..nothing() };
        let there = there.locks.list(page.clone()).await.unwrap().into_inner();
        let mut here = here.locks.list(page).await.unwrap().into_inner();
        for lock in here.locks.iter_mut().flat_map(|lock| &mut lock.holders) {
            lock.held_ms = 0;
        }
        seen.extend(there.locks.iter().map(|lock| lock.lock.clone()));
        let names = |it: &v1::ListLocksResponse| {
            it.locks.iter().map(|it| (it.lock.clone(), it.version)).collect::<Vec<_>>()
        };
        assert_eq!((names(&here), &here.next), (names(&there), &there.next));
        after = there.next;
        if after.is_empty() {
            break;
        }
    }
    assert_eq!(seen, (0..5).map(|it| format!("{prefix}/{it}")).collect::<Vec<_>>());

    let keys = v1::ListKeysRequest { prefix: prefix.clone(), limit: 4, ..nothing() };
    let first = there.keys.list(keys.clone()).await.unwrap().into_inner();
    assert_eq!((first.kvs.len(), &*first.next), (4, &*format!("{prefix}/3")));
    let rest = v1::ListKeysRequest { after: first.next, ..keys };
    let rest = there.keys.list(rest).await.unwrap().into_inner();
    assert_eq!((rest.kvs.len(), &*rest.next), (1, ""));

    here.lease("another").await;
    let leases = v1::ListLeasesRequest { limit: 1, ..nothing() };
    let first = there.leases.list(leases).await.unwrap().into_inner();
    assert_eq!(first.leases.len(), 1);
    let rest = v1::ListLeasesRequest { limit: 9, after: first.next, ..nothing() };
    let rest = there.leases.list(rest).await.unwrap().into_inner();
    assert_eq!((rest.leases.len(), rest.next), (1, 0));
    let negative = v1::ListLeasesRequest { after: -1, ..nothing() };
    refused(there.leases.list(negative).await, Code::InvalidArgument, "INVALID_FIELD");

    let get = v1::GetLeaseRequest { lease, ..nothing() };
    let view = there.leases.get(get).await.unwrap().into_inner().lease.unwrap();
    assert_eq!((view.holds.len(), view.keys.len(), &*view.client), (5, 5, "lister"));
    let revoke = v1::RevokeRequest { lease, ..nothing() };
    let revoked = there.leases.revoke(revoke.clone()).await.unwrap().into_inner();
    heads(revoked.header.as_ref(), members.id(members.follower()));
    refused(there.leases.get(get).await, Code::NotFound, "LEASE_NOT_FOUND");
    refused(there.leases.revoke(revoke).await, Code::NotFound, "LEASE_NOT_FOUND");
}
