//! Tests the bytes of what a member sends on a session, with one file per result and notice.

use bytes::Bytes;
use tenure_wire::v1::answer::Result as R;
use tenure_wire::v1::{self, Cause};

use super::messages::{
    LEASE, drain_view, error, explained, header, leader, lease, lease_view, lock_view,
};
use super::{check, check_reads};

fn check_result(name: &str, result: R) {
    check(&format!("session_answer_{name}"), &response(result));
}

fn response(result: R) -> v1::SessionResponse {
    let answer = v1::Answer { id: 1, revision: 8850, result: Some(result) };
    v1::SessionResponse { revision: 8851, answers: vec![answer], ..Default::default() }
}

fn grant() -> v1::LockGrant {
    v1::LockGrant { lock: "accounts/7".into(), token: 1043, slot: Some(0) }
}

pub(crate) fn welcome() -> v1::Welcome {
    v1::Welcome {
        header: Some(header()),
        member: "b".into(),
        epoch: 1,
        incarnation: 99,
        leader: Some(leader()),
        in_flight_max: 1024,
        requests_per_message_max: 256,
        message_bytes_max: 65_536,
        renew_max: 4_096,
        seq_window: 256,
        level: 1,
        software: "tenure 0.1.0".into(),
        leases: vec![lease()],
    }
}

#[test]
fn answers_about_locks_are_spoken_as_ever() {
    let acquired = v1::AcquireResponse {
        header: None,
        token: 1043,
        place: 78,
        slot: Some(0),
        lease_created: 8800,
        locks: vec![grant(), grant()],
        lease: Some(lease()),
    };
    check_reads("session_answer_acquired", &response(R::Acquired(acquired.clone())));
    check_result("acquired_now", R::Acquired(acquired));
    check_result("released", R::Released(v1::ReleaseResponse { header: None }));
    let (place, ahead, lease_created) = (78, 1, 8800);
    let queued = v1::Queued { place, ahead, lease_created, lease: Some(lease()) };
    check_result("queued", R::Queued(queued));
    check_result("left", R::Left(v1::LeaveResponse { header: None, held: vec![grant()] }));
    check_result("stopped", R::Stopped(v1::StoppedResponse { header: None }));
    let downgraded = v1::DowngradeResponse { header: None, token: 1044 };
    check_result("downgraded", R::Downgraded(downgraded));
    check_result("updated", R::Updated(v1::UpdateResponse { header: None, version: 42 }));
    check_result("ended", R::Ended(v1::Ended {}));
    check_result("forced", R::Forced(v1::ForceResponse { header: None, left_ms: 13_000 }));
    check_result("drained", R::Drained(v1::DrainResponse { header: None }));
    let undrained = v1::UndrainResponse { header: None, existed: true };
    check_result("undrained", R::Undrained(undrained));
    check_result("resized", R::Resized(v1::ResizeResponse { header: None }));
    let sized = v1::LockView { sized: true, ..lock_view() };
    let lock_sized = v1::GetLockResponse { header: None, lock: Some(sized) };
    check_result("lock_sized", R::Lock(lock_sized));
    let progressed = v1::ProgressResponse { header: None, left_ms: Some(299_000) };
    check_result("progressed", R::Progressed(progressed));
    check_result("handed_on", R::HandedOn(v1::HandOnResponse { header: None, token: 43 }));
    let progress =
        v1::ProgressView { number: 42, within_ms: 300_000, still_ms: 1_000, left_ms: 299_000 };
    let mut moving = lock_view();
    moving.holders[0].progress = Some(progress);
    check_result(
        "lock_progress",
        R::Lock(v1::GetLockResponse { header: None, lock: Some(moving) }),
    );
    let drained = Some(drain_view());
    let below = v1::ExplainResponse { drained, ..Default::default() };
    check_result("explained_drained", R::Explained(below.into()));
    let lock = v1::GetLockResponse { header: None, lock: Some(lock_view()) };
    check_result("lock", R::Lock(lock));
    check_result("explained", R::Explained(explained().into()));
    check_result("error", R::Error(error().into()));
}

#[test]
fn answers_about_leases_and_keys_are_spoken_as_ever() {
    let renewed = v1::Renewed { ttl_ms: vec![15_000, 0], changed: vec![8849, 0] };
    check_result("renewed", R::Renewed(renewed));
    check_result("lease_granted", R::LeaseGranted(lease()));
    check_result("revoked", R::Revoked(v1::RevokeResponse { header: None }));
    let shown = v1::GetLeaseResponse { header: None, lease: Some(lease_view()) };
    check_result("lease", R::Lease(shown.into()));
    check_result("put", R::Put(v1::PutResponse { header: None, version: 1, created: 8850 }));
    check_result("deleted", R::Deleted(v1::DeleteResponse { header: None, existed: true }));
    let kv = v1::KeyValue {
        key: "config/a".into(),
        create_revision: 8700,
        mod_revision: 8850,
        version: 3,
        value: Bytes::from_static(b"1"),
        lease: LEASE,
    };
    check_result("key", R::Key(v1::GetKeyResponse { header: None, kv: Some(kv) }));
}

#[test]
fn notices_are_spoken_as_ever() {
    let (lease_slot, lease_generation, revision) = (7, 1 << 48 | 9, 8850);
    let response = v1::SessionResponse {
        welcome: Some(welcome()),
        revision: 8851,
        answers: Vec::new(),
        grants: vec![v1::Granted {
            id: 1,
            lock: "deploy".into(),
            token: 1043,
            slot: Some(0),
            place: 78,
            lease_slot,
            lease_generation,
            revision,
            locks: vec![grant()],
        }],
        losses: vec![v1::Lost {
            lock: "deploy".into(),
            token: 1043,
            lease_slot,
            lease_generation,
            revision,
            cause: Cause::Forced.into(),
            ..Default::default()
        }],
        waits_ended: vec![v1::WaitEnded {
            id: 1,
            place: 78,
            lease_slot,
            lease_generation,
            revision,
            ..Default::default()
        }],
        leases_ended: vec![v1::LeaseEnded {
            lease_slot,
            lease_generation,
            revision,
            cause: Cause::Expired.into(),
            ..Default::default()
        }],
        leader: Some(leader()),
        closing: Some(error()),
    };
    check("session_notices", &response);
    let (by, reason) = ("ops@host".to_owned(), "stuck for an hour".to_owned());
    let lost = v1::Lost {
        lock: "deploy".into(),
        token: 1043,
        cause: Cause::Forced.into(),
        by: by.clone(),
        reason: reason.clone(),
        ..Default::default()
    };
    let cause = Cause::Revoked.into();
    let ended = v1::LeaseEnded { lease_slot, cause, by, reason, ..Default::default() };
    let (losses, leases_ended) = (vec![lost], vec![ended]);
    let words = v1::SessionResponse { losses, leases_ended, ..Default::default() };
    check("session_notices_word", &words);
}
