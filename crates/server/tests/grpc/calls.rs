//! Tests locks and leases through `LockService`.

use std::time::Duration;

use tenure_wire::v1;
use tokio_stream::StreamExt as _;
use tonic::{Code, Request};

use crate::common::{Members, soon, wait_for};
use crate::{Clients, heads, keyed, name, nothing, refused, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_taken_held_and_given_back_through_every_member() {
    let members = Members::found(3);
    for at in [members.leader(), members.follower()] {
        let mut clients = Clients::new(&members.connect(at));
        let id = members.id(at);
        let grant = v1::LeaseGrantRequest { ttl: 60, client_id: "a".into(), ..nothing() };
        let lease = clients.lock.lease_grant(grant).await.unwrap().into_inner();
        assert_eq!(lease.ttl, 60);
        assert_eq!(heads(lease.header.as_ref(), id), lease.create_revision);
        let other = clients.lease("b").await;

        let lock = name("call");
        let ask = v1::LockRequest {
            name: lock.clone(),
            lease_id: lease.id,
            metadata: "m".into(),
            timeout_ms: Some(1_000),
            ..nothing()
        };
        let taken = clients.lock.lock(ask).await.unwrap().into_inner();
        heads(taken.header.as_ref(), id);
        assert!(taken.acquired && taken.fencing_token > 0, "{taken:?}");
        assert_eq!((&taken.key, taken.lease_create_revision), (&lock, lease.create_revision));

        let attempt = v1::TryLockRequest { name: lock.clone(), lease_id: other, ..nothing() };
        let held = clients.lock.try_lock(attempt.clone()).await.unwrap().into_inner();
        assert!(!held.acquired && held.fencing_token == 0 && held.reason == "HELD", "{held:?}");
        let holder = held.holder.unwrap();
        assert_eq!((&*holder.client, holder.token), ("a", taken.fencing_token));

        let wait = v1::LockRequest {
            name: lock.clone(),
            lease_id: other,
            timeout_ms: Some(30),
            ..nothing()
        };
        let late = clients.lock.lock(wait).await.unwrap().into_inner();
        assert!(!late.acquired && late.reason == "WAIT_TIMEOUT", "{late:?}");
        assert_eq!((late.position, late.holder.unwrap().lease), (0, lease.id));

        let unlock =
            v1::UnlockRequest { name: lock.clone(), lease_id: other, token: taken.fencing_token };
        let error =
            refused(clients.lock.unlock(unlock).await, Code::FailedPrecondition, "NOT_HOLDER");
        assert_eq!(error.lock, lock);
        let unlock = v1::UnlockRequest {
            name: lock.clone(),
            lease_id: lease.id,
            token: taken.fencing_token,
        };
        let done = clients.lock.unlock(unlock.clone()).await.unwrap().into_inner();
        assert!(heads(done.header.as_ref(), id) > lease.create_revision);
        refused(clients.lock.unlock(unlock).await, Code::FailedPrecondition, "NOT_HOLDER");
        let next = clients.lock.try_lock(attempt).await.unwrap().into_inner();
        assert!(next.acquired && next.fencing_token > taken.fencing_token);

        let revoke = v1::LeaseRevokeRequest { id: other };
        let revoked = clients.lock.lease_revoke(revoke).await.unwrap().into_inner();
        heads(revoked.header.as_ref(), id);
        refused(clients.lock.lease_revoke(revoke).await, Code::NotFound, "LEASE_NOT_FOUND");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused_by_name_and_alike_everywhere() {
    let members = Members::found(3);
    let mut told = Vec::new();
    for at in [members.leader(), members.follower()] {
        let mut clients = Clients::new(&members.connect(at));
        let mut all = Vec::new();
        let invalid = Code::InvalidArgument;
        for (ttl, id) in [(-1, 0), (i64::MAX, 0), (60, -5)] {
            let grant = v1::LeaseGrantRequest { ttl, id, ..nothing() };
            all.push(refused(clients.lock.lease_grant(grant).await, invalid, "INVALID_FIELD"));
        }
        let grant = v1::LeaseGrantRequest { ttl: 0, ..nothing() };
        let error = refused(clients.lock.lease_grant(grant).await, invalid, "INVALID_TTL");
        assert_eq!((&*error.limit, error.bound), ("ttl_min_ms", 1_000));
        all.push(error);
        let ask =
            |name: &str, lease_id| v1::LockRequest { name: name.into(), lease_id, ..nothing() };
        let negative = v1::LockRequest { timeout_ms: Some(-1), ..ask("a", 1) };
        let slots = v1::LockRequest { slots: 3, ..ask("a", 1) };
        for bad in [ask("", 1), ask("a", 0), negative, slots] {
            all.push(refused(clients.lock.lock(bad).await, invalid, "INVALID_FIELD"));
        }
        let gone = clients.lock.lock(ask("a", 77)).await;
        all.push(refused(gone, Code::NotFound, "LEASE_NOT_FOUND"));
        let unlock = v1::UnlockRequest { name: "a".into(), lease_id: 77, token: 0 };
        all.push(refused(clients.lock.unlock(unlock).await, invalid, "INVALID_FIELD"));
        let lease = clients.lease("me").await;
        let named = clients.lock.lock(ask("tab\there", lease)).await;
        all.push(refused(named, invalid, "INVALID_NAME"));
        told.push(all);
    }
    assert_eq!(told[0], told[1], "a follower refuses as the leader does");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_ones_own_number_is_granted_once() {
    let members = Members::found(1);
    let mut clients = Clients::new(&members.connect(0));
    let grant = v1::LeaseGrantRequest { ttl: 60, id: 4_711, client_id: "me".into(), ..nothing() };
    let first = clients.lock.lease_grant(grant.clone()).await.unwrap().into_inner();
    let again = clients.lock.lease_grant(grant.clone()).await.unwrap().into_inner();
    assert_eq!((first.id, first.create_revision), (4_711, again.create_revision));
    let other = v1::LeaseGrantRequest { client_id: "other".into(), ..grant };
    let error = refused(clients.lock.lease_grant(other).await, Code::AlreadyExists, "LEASE_EXISTS");
    assert_eq!(error.lease, 4_711);
    // A lease without a number gets a random one, never the same twice.
    assert_ne!(clients.lease("x").await, clients.lease("x").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_a_key_is_done_once_at_whichever_member() {
    let members = Members::found(3);
    let mut here = Clients::new(&members.connect(members.leader()));
    let mut there = Clients::new(&members.connect(members.follower()));
    let grant = v1::LeaseGrantRequest { ttl: 60, client_id: "k".into(), ..nothing() };
    let key = name("grant");
    let first = here.lock.lease_grant(keyed(&key, grant.clone())).await.unwrap().into_inner();
    let again = there.lock.lease_grant(keyed(&key, grant.clone())).await.unwrap().into_inner();
    assert_eq!((first.id, first.create_revision), (again.id, again.create_revision));
    let other = v1::LeaseGrantRequest { ttl: 61, ..grant };
    let conflict = there.lock.lease_grant(keyed(&key, other)).await;
    refused(conflict, Code::FailedPrecondition, "REQUEST_ID_CONFLICT");

    let (lock, key) = (name("keyed"), name("put"));
    let token = here.take(&lock, first.id).await;
    let unlock = v1::UnlockRequest { name: lock, lease_id: first.id, token };
    here.lock.unlock(keyed(&key, unlock.clone())).await.unwrap();
    there.lock.unlock(keyed(&key, unlock.clone())).await.unwrap();
    refused(there.lock.unlock(unlock).await, Code::FailedPrecondition, "NOT_HOLDER");
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_are_answered_one_by_one_and_a_dead_lease_ends_nothing() {
    let members = Members::found(3);
    for at in [members.leader(), members.follower()] {
        let mut clients = Clients::new(&members.connect(at));
        let live = clients.lease("live").await;
        let (to, from) = tokio::sync::mpsc::channel(8);
        let requests = tokio_stream::wrappers::ReceiverStream::new(from);
        let answers = clients.lock.lease_keep_alive(requests).await.unwrap();
        let mut answers = answers.into_inner();
        for (id, ttl) in [(live, 60), (12_345, 0), (-1, 0), (live, 60)] {
            to.send(v1::LeaseKeepAliveRequest { id }).await.unwrap();
            let answer = soon(answers.next()).await.unwrap().unwrap();
            assert_eq!((answer.id, answer.ttl, answer.changed), (id, ttl, 0));
            assert_eq!(answer.ttl_ms / 1_000, u64::try_from(ttl).unwrap());
            assert_eq!(answer.header.unwrap().member_id, members.id(at));
        }
        // A loss that the holder did not request shows in the next renewal.
        let lock = name("lost");
        let token = clients.take(&lock, live).await;
        let force =
            v1::ForceRequest { lock, token, reason: "test".into(), now: true, by: String::new() };
        let forced = clients.locks.force(force).await.unwrap().into_inner();
        to.send(v1::LeaseKeepAliveRequest { id: live }).await.unwrap();
        let answer = soon(answers.next()).await.unwrap().unwrap();
        assert_eq!(answer.changed, forced.header.unwrap().revision);
        drop(to);
        assert!(soon(answers.next()).await.is_none(), "the stream ends with its requests");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_the_grant_and_one_that_is_given_up_leaves_the_queue() {
    let members = Members::found(3);
    for at in [members.leader(), members.follower()] {
        let mut clients = Clients::new(&members.connect(at));
        let (holder, waiter) = (clients.lease("holder").await, clients.lease("waiter").await);
        let lock = name("wait");
        let token = clients.take(&lock, holder).await;
        let ask = v1::LockRequest { name: lock.clone(), lease_id: waiter, ..nothing() };

        // The caller goes away: its task is dropped, and the stream with it.
        let mut other = clients.clone();
        let asked = ask.clone();
        let gone = tokio::spawn(async move { other.lock.lock(asked).await });
        wait_for("it waits", async || (clients.waiting(&lock).await == 1).then_some(())).await;
        gone.abort();
        wait_for("it has left", async || (clients.waiting(&lock).await == 0).then_some(())).await;

        // The caller's deadline passes.
        let hurried = clients.lock.lock(within(Duration::from_millis(50), ask.clone())).await;
        match hurried {
            Ok(late) => assert!(!late.into_inner().acquired),
            Err(status) => assert!(
                matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled),
                "{status:?}"
            ),
        }
        wait_for("it has left", async || (clients.waiting(&lock).await == 0).then_some(())).await;

        // The lock is released.
        let mut other = clients.clone();
        let asked = tokio::spawn(async move { other.lock.lock(Request::new(ask)).await });
        wait_for("it waits", async || (clients.waiting(&lock).await == 1).then_some(())).await;
        let unlock = v1::UnlockRequest { name: lock.clone(), lease_id: holder, token };
        clients.lock.unlock(unlock).await.unwrap();
        let taken = soon(asked).await.unwrap().unwrap().into_inner();
        assert!(taken.acquired && taken.fencing_token > token, "{taken:?}");
        heads(taken.header.as_ref(), members.id(at));
    }
}
