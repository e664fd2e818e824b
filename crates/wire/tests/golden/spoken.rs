//! Tests the bytes of what a client sends on a session, with one file per command.

use bytes::Bytes;
use tenure_wire::v1::request::Command;
use tenure_wire::v1::{self, Mode};

use super::messages::LEASE;
use super::{check, check_reads};

const SLOT: u32 = 7;
const GENERATION: u64 = 1 << 48 | 9;

fn check_command(name: &str, command: Command) {
    check(&format!("session_request_{name}"), &session(command));
}

fn session(command: Command) -> v1::SessionRequest {
    let request = v1::Request {
        id: 1,
        seq: 300,
        done: 299,
        deadline_ms: 5_000,
        idempotency_key: String::new(),
        traceparent: String::new(),
        command: Some(command),
    };
    v1::SessionRequest { hello: None, requests: vec![request] }
}

fn new_lease() -> v1::NewLease {
    v1::NewLease {
        ttl_ms: 15_000,
        lease: LEASE,
        client: "ci-7/4121".into(),
        metadata: Bytes::from_static(b"m"),
    }
}

#[test]
fn a_hello_is_spoken_as_ever() {
    let lease = v1::LeaseName {
        lease: LEASE,
        created: 8800,
        lease_slot: SLOT,
        lease_generation: GENERATION,
    };
    let hello = v1::Hello {
        client: "ci-7/4121".into(),
        leases: vec![lease],
        cluster_id: u64::MAX,
        epoch: 1,
        incarnation: 99,
        software: "tenure 0.1.0".into(),
    };
    check("session_hello", &v1::SessionRequest { hello: Some(hello), requests: Vec::new() });
}

#[test]
fn the_commonest_commands_are_short() {
    let acquire = v1::AcquireRequest {
        lock: "deploy".into(),
        lease_slot: SLOT,
        lease_generation: 9,
        ..Default::default()
    };
    let request = |command| v1::SessionRequest {
        hello: None,
        requests: vec![v1::Request { id: 1, command: Some(command), ..Default::default() }],
    };
    let acquire = request(Command::Acquire(acquire));
    check("session_request_acquire_short", &acquire);
    assert!(prost::Message::encoded_len(&acquire) <= 20);
    let release = v1::ReleaseRequest {
        lock: "deploy".into(),
        lease_slot: SLOT,
        lease_generation: 9,
        token: 1043,
        ..Default::default()
    };
    let release = request(Command::Release(release));
    check("session_request_release_short", &release);
    assert!(prost::Message::encoded_len(&release) <= 24);
}

#[test]
fn commands_about_leases_are_spoken_as_ever() {
    check_command("grant_lease", Command::GrantLease(new_lease()));
    let renew = v1::RenewRequest {
        generations: vec![GENERATION, 10],
        slots: vec![SLOT, 8],
        leases: vec![LEASE],
    };
    check_command("renew", Command::Renew(renew));
    let revoke = v1::RevokeRequest {
        lease_slot: SLOT,
        lease_generation: GENERATION,
        lease: LEASE,
        by_other: true,
        reason: "runner 7 was deleted".into(),
        now: true,
        by: String::new(),
    };
    check_command("revoke", Command::Revoke(revoke.clone()));
    let by = "ops@host".to_owned();
    check_command("revoke_by", Command::Revoke(v1::RevokeRequest { by, ..revoke }));
    let get = v1::GetLeaseRequest {
        lease_slot: SLOT,
        lease_generation: GENERATION,
        lease: LEASE,
        stale: true,
    };
    check_command("get_lease", Command::GetLease(get));
}

#[test]
fn commands_about_locks_are_spoken_as_ever() {
    let ask = |lock: &str| v1::LockAsk {
        lock: lock.into(),
        mode: Mode::Slot.into(),
        slots: 8,
        ..Default::default()
    };
    let acquire = v1::AcquireRequest {
        lock: "deploy".into(),
        lease_slot: SLOT,
        lease_generation: GENERATION,
        lease: LEASE,
        mode: Mode::Slot.into(),
        slots: 8,
        wait_ms: Some(0),
        metadata: Bytes::from_static(b"release 5.2"),
        lock_delay_ms: 10_000,
        max_hold_ms: Some(3_600_000),
        min_hold_ms: 0,
        election: true,
        independent: true,
        locks: vec![ask("accounts/7"), ask("accounts/9")],
        new_lease: Some(Box::new(new_lease())),
        supersede: String::new(),
        resume: false,
        priority: 0,
        progress_within_ms: 0,
        upgrade: false,
        any_of: Vec::new(),
        pool: String::new(),
        take: 0,
    };
    check_reads("session_request_acquire", &session(Command::Acquire(acquire.clone())));
    check_command("acquire_now", Command::Acquire(acquire.clone()));
    let once_per_hour = v1::AcquireRequest { min_hold_ms: 3_240_000, ..acquire.clone() };
    check_command("acquire_min_hold", Command::Acquire(once_per_hour));
    let newest = v1::AcquireRequest { supersede: "main".into(), resume: true, ..acquire.clone() };
    check_command("acquire_supersede", Command::Acquire(newest));
    let urgent = v1::AcquireRequest { priority: 5, ..acquire.clone() };
    check_command("acquire_priority", Command::Acquire(urgent));
    let moving = v1::AcquireRequest { progress_within_ms: 300_000, ..acquire.clone() };
    let upgrade = v1::AcquireRequest { upgrade: true, ..acquire.clone() };
    check_command("acquire_upgrade", Command::Acquire(upgrade));
    check_command("acquire_progress", Command::Acquire(moving));
    let any_of = acquire.locks.clone();
    let any = v1::AcquireRequest { any_of, locks: Vec::new(), ..acquire.clone() };
    check_command("acquire_any", Command::Acquire(any));
    let (lock, locks, pool) = (String::new(), Vec::new(), "gpu/".to_owned());
    let of_pool = v1::AcquireRequest { lock, locks, pool, take: 2, ..acquire.clone() };
    check_command("acquire_pool", Command::Acquire(of_pool));
    let part = v1::LockAsk { take: 2, ..ask("accounts/7") };
    let several = v1::AcquireRequest { take: 3, locks: vec![part], ..acquire };
    check_command("acquire_take", Command::Acquire(several));
    let (lease_slot, lease_generation, lease, token) = (SLOT, GENERATION, LEASE, 1043);
    let lock = || "deploy".to_owned();
    check_command(
        "release",
        Command::Release(v1::ReleaseRequest {
            lock: lock(),
            lease_slot,
            lease_generation,
            lease,
            token,
        }),
    );
    check_command(
        "leave",
        Command::Leave(v1::LeaveRequest { lock: lock(), lease_slot, lease_generation, lease }),
    );
    check_command(
        "hand_on",
        Command::HandOn(v1::HandOnRequest {
            lock: lock(),
            lease_slot,
            lease_generation,
            lease,
            token,
            to: lease + 1,
        }),
    );
    check_command(
        "progress",
        Command::Progress(v1::ProgressRequest {
            lock: lock(),
            lease_slot,
            lease_generation,
            lease,
            token,
            number: 42,
        }),
    );
    check_command(
        "downgrade",
        Command::Downgrade(v1::DowngradeRequest {
            lock: lock(),
            lease_slot,
            lease_generation,
            lease,
            token,
        }),
    );
    let metadata = Bytes::from_static(b"release 5.3");
    check_command(
        "update",
        Command::Update(v1::UpdateRequest {
            lock: lock(),
            lease_slot,
            lease_generation,
            lease,
            token,
            metadata,
        }),
    );
    let reason = "runner 7 was deleted".to_owned();
    let by = String::new();
    let force = v1::ForceRequest { lock: lock(), token, reason, now: true, by };
    check_command("force", Command::Force(force.clone()));
    let by = "ops@host".to_owned();
    check_command("force_by", Command::Force(v1::ForceRequest { by, ..force }));
    let (prefix, reason) = (Some("db/".to_owned()), "new disks".to_owned());
    let by = "ops@host".to_owned();
    let drain = v1::DrainRequest { prefix: prefix.clone(), reason, by: by.clone() };
    check_command("drain", Command::Drain(drain));
    check_command("undrain", Command::Undrain(v1::UndrainRequest { prefix, by: by.clone() }));
    let resize = v1::ResizeRequest { lock: "runners".into(), slots: 12, by };
    check_command("resize", Command::Resize(resize));
    let lease_created = 8800;
    check_command(
        "stopped",
        Command::Stopped(v1::StoppedRequest { lock: lock(), lease, lease_created, token }),
    );
    check_command("get_lock", Command::GetLock(v1::GetLockRequest { lock: lock(), stale: true }));
    check_command(
        "explain",
        Command::Explain(v1::ExplainRequest {
            lock: lock(),
            lease_slot,
            lease_generation,
            lease,
            limit: 10,
            stale: true,
        }),
    );
}

#[test]
fn commands_about_keys_are_spoken_as_ever() {
    use v1::expect::How;
    let guard = v1::Guard { lock: "deploy".into(), token: 1043 };
    let expect = |how| Some(v1::Expect { how: Some(how) });
    let put = v1::PutRequest {
        key: "config/a".into(),
        value: Bytes::from_static(b"1"),
        lease_slot: SLOT,
        lease_generation: GENERATION,
        lease: LEASE,
        expect: expect(How::Absent(true)),
        guard: Some(guard.clone()),
    };
    check_command("put", Command::Put(put));
    let delete = |how| v1::DeleteRequest {
        key: "config/a".into(),
        expect: expect(how),
        guard: Some(guard.clone()),
    };
    check_command("delete", Command::Delete(delete(How::Modified(8850))));
    let value = How::Value(Bytes::from_static(b"1"));
    check_command("delete_value", Command::Delete(delete(value)));
    let get = v1::GetKeyRequest { key: "config/a".into(), stale: true };
    check_command("get_key", Command::GetKey(get));
}
