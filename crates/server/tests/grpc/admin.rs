//! Tests the gRPC services for locks, leases and keys.

use tenure_wire::v1;
use tonic::Code;

use crate::common::{Members, soon, wait_for};
use crate::{Clients, heads, keyed, name, nothing, refused};

fn ask(lock: &str, lease: i64, wait_ms: Option<u64>) -> v1::AcquireRequest {
    v1::AcquireRequest { lock: lock.into(), lease, wait_ms, ..nothing() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_is_updated_downgraded_forced_and_explained() {
    let members = Members::found(3);
    for at in [members.leader(), members.follower()] {
        let mut clients = Clients::new(&members.connect(at));
        let id = members.id(at);
        let (lease, other) = (clients.lease("a").await, clients.lease("b").await);
        let lock = name("full");
        let taken = clients.locks.acquire(ask(&lock, lease, None)).await.unwrap().into_inner();
        heads(taken.header.as_ref(), id);
        let token = taken.token;
        let held = clients.locks.acquire(ask(&lock, other, Some(0))).await;
        let error = refused(held, Code::FailedPrecondition, "HELD");
        assert_eq!(error.holder.unwrap().token, token);
        let late = clients.locks.acquire(ask(&lock, other, Some(20))).await;
        refused(late, Code::Aborted, "WAIT_TIMEOUT");

        let update = v1::UpdateRequest {
            lock: lock.clone(),
            lease,
            token,
            metadata: "new".into(),
            ..nothing()
        };
        let updated = clients.locks.update(update.clone()).await.unwrap().into_inner();
        assert!(heads(updated.header.as_ref(), id) > 0 && updated.version > 1);
        let wrong = v1::UpdateRequest { lease: other, ..update };
        refused(clients.locks.update(wrong).await, Code::FailedPrecondition, "NOT_HOLDER");

        let downgrade = v1::DowngradeRequest { lock: lock.clone(), lease, token, ..nothing() };
        let shared = clients.locks.downgrade(downgrade.clone()).await.unwrap().into_inner();
        heads(shared.header.as_ref(), id);
        assert!(shared.token > token);
        let again = v1::DowngradeRequest { token: shared.token, ..downgrade };
        refused(clients.locks.downgrade(again).await, Code::FailedPrecondition, "NOT_EXCLUSIVE");

        let outdated =
            v1::ForceRequest { lock: lock.clone(), token, reason: "test".into(), ..nothing() };
        let error = refused(
            clients.locks.force(outdated.clone()).await,
            Code::FailedPrecondition,
            "TOKEN_OUTDATED",
        );
        assert_eq!(error.holder.unwrap().token, shared.token);
        let force = v1::ForceRequest { token: shared.token, ..outdated };
        let forced = clients.locks.force(force).await.unwrap().into_inner();
        assert!(forced.left_ms > 0, "it cools");
        heads(forced.header.as_ref(), id);
        let explain = v1::ExplainRequest { lock: lock.clone(), lease: other, ..nothing() };
        let explained = clients.locks.explain(explain).await.unwrap().into_inner();
        heads(explained.header.as_ref(), id);
        let state = explained.lock.unwrap().holders[0].state();
        assert_eq!(state, v1::HolderState::Cooling);
        assert!(explained.freed.is_some());
        let stopped = v1::StoppedRequest {
            lock: lock.clone(),
            lease,
            lease_created: taken.lease_created,
            token: shared.token,
        };
        let done = clients.locks.stopped(stopped.clone()).await.unwrap().into_inner();
        heads(done.header.as_ref(), id);
        refused(clients.locks.stopped(stopped).await, Code::FailedPrecondition, "NOT_COOLING");

        let history = v1::HistoryRequest { lock: lock.clone(), ..nothing() };
        let told = clients.locks.history(history).await.unwrap().into_inner();
        heads(told.header.as_ref(), id);
        let causes: Vec<_> =
            told.batches.iter().flat_map(|it| it.events.iter().map(v1::Event::cause)).collect();
        use v1::Cause::{Cooled, Downgraded, Forced, Granted, Updated};
        for cause in [Granted, Updated, Downgraded, Forced, Cooled] {
            assert!(causes.contains(&cause), "{cause:?} in {causes:?}");
        }
        let early = v1::HistoryRequest { lock: lock.clone(), from: -1, ..nothing() };
        refused(clients.locks.history(early).await, Code::InvalidArgument, "INVALID_FIELD");
    }
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
async fn several_locks_and_a_lease_come_with_one_call_and_rings_are_refused() {
    let members = Members::found(1);
    let mut clients = Clients::new(&members.connect(0));
    let (a, b) = (name("ring-a"), name("ring-b"));
    let new = v1::NewLease { ttl_ms: 60_000, client: "both".into(), ..nothing() };
    let part = |lock: &String| v1::LockAsk { lock: lock.clone(), ..nothing() };
    let both = v1::AcquireRequest {
        locks: vec![part(&a), part(&b)],
        new_lease: Some(Box::new(new)),
        ..nothing()
    };
    let key = name("key");
    let taken = clients.locks.acquire(keyed(&key, both.clone())).await.unwrap().into_inner();
    assert_eq!(taken.locks.len(), 2);
    let lease = taken.lease.expect("the lease it granted").lease;
    let again = clients.locks.acquire(keyed(&key, both)).await.unwrap().into_inner();
    assert_eq!(again.locks, taken.locks, "the same request, the same answer");
    let excluded = v1::AcquireRequest { locks: vec![part(&b)], ..ask(&a, lease, None) };
    refused(clients.locks.acquire(excluded).await, Code::InvalidArgument, "INVALID_FIELD");

    let other = clients.lease("other").await;
    let c = name("ring-c");
    clients.take(&c, other).await;
    let mut waiting = clients.clone();
    let asked = ask(&a, other, None);
    let task = tokio::spawn(async move { waiting.locks.acquire(asked).await });
    wait_for("it waits", async || (clients.waiting(&a).await == 1).then_some(())).await;
    let ring = clients.locks.acquire(ask(&c, lease, None)).await;
    let error = refused(ring, Code::FailedPrecondition, "DEADLOCK");
    assert_eq!(error.ring.len(), 2);
    task.abort();
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

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_written_compared_guarded_and_deleted() {
    let members = Members::found(3);
    for at in [members.leader(), members.follower()] {
        let mut clients = Clients::new(&members.connect(at));
        let key = name("key");
        let absent = v1::expect::How::Absent(true);
        let put = v1::PutRequest {
            key: key.clone(),
            value: "1".into(),
            expect: Some(v1::Expect { how: Some(absent) }),
            ..nothing()
        };
        let written = clients.keys.put(put.clone()).await.unwrap().into_inner();
        assert_eq!(heads(written.header.as_ref(), members.id(at)), written.created);
        let error =
            refused(clients.keys.put(put).await, Code::FailedPrecondition, "COMPARE_FAILED");
        assert_eq!(error.revision, Some(written.created));
        let get = v1::GetKeyRequest { key: key.clone(), ..nothing() };
        let kv = clients.keys.get(get.clone()).await.unwrap().into_inner().kv.unwrap();
        assert_eq!((&kv.value[..], kv.version), (&b"1"[..], 1));
        let stale = v1::GetKeyRequest { stale: true, ..get.clone() };
        assert!(clients.keys.get(stale).await.is_ok());

        let lease = clients.lease("g").await;
        let lock = name("guard");
        let token = clients.take(&lock, lease).await;
        let guarded = |token| v1::PutRequest {
            key: key.clone(),
            value: "2".into(),
            guard: Some(v1::Guard { lock: lock.clone(), token }),
            ..nothing()
        };
        clients.keys.put(guarded(token)).await.unwrap();
        let stranger = clients.keys.put(guarded(token + 1)).await;
        refused(stranger, Code::FailedPrecondition, "GUARD_FAILED");
        let own = v1::PutRequest { key: "tenure/members/1".into(), ..nothing() };
        refused(clients.keys.put(own).await, Code::PermissionDenied, "PERMISSION_DENIED");
        refused(
            clients.keys.put(nothing::<v1::PutRequest>()).await,
            Code::InvalidArgument,
            "INVALID_NAME",
        );

        let delete = v1::DeleteRequest { key: key.clone(), ..nothing() };
        let gone = clients.keys.delete(delete.clone()).await.unwrap().into_inner();
        heads(gone.header.as_ref(), members.id(at));
        assert!(gone.existed);
        assert!(!clients.keys.delete(delete).await.unwrap().into_inner().existed);
        assert!(clients.keys.get(get).await.unwrap().into_inner().kv.is_none());
        let nameless = clients.keys.get(nothing::<v1::GetKeyRequest>()).await;
        refused(nameless, Code::InvalidArgument, "INVALID_FIELD");
    }
}
