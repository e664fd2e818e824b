//! Tests the bytes of single calls and of the messages that they share.

use bytes::Bytes;
use tenure_wire::v1::{self, Cause, HolderState, Mode, Role, Subject};

use super::check;

pub(crate) const LEASE: i64 = 6_862_914_507_731_255_300;

pub(crate) fn header() -> v1::Header {
    v1::Header { cluster_id: u64::MAX, member_id: 0xb0b, revision: 8850, raft_term: 12 }
}

pub(crate) fn holder() -> v1::Holder {
    v1::Holder {
        client: "ci-7/4121".into(),
        token: 1042,
        held_ms: 252_000,
        lease: LEASE,
        state: HolderState::Cooling.into(),
        left_ms: 900,
    }
}

pub(crate) fn lease() -> v1::Lease {
    v1::Lease {
        lease: LEASE,
        created: 8800,
        lease_slot: 7,
        lease_generation: 1 << 48 | 9,
        ttl_ms: 15_000,
    }
}

pub(crate) fn event(cause: Cause) -> v1::Event {
    let kv = |value: &'static [u8]| v1::KeyValue {
        key: "deploy".into(),
        create_revision: 8700,
        mod_revision: 8850,
        version: 3,
        value: Bytes::from_static(value),
        lease: LEASE,
    };
    v1::Event {
        take: 0,
        r#type: v1::EventType::Delete.into(),
        kv: Some(kv(b"release 5.2")),
        prev_kv: Some(kv(b"\xff\x00")),
        cause: cause.into(),
        subject: Subject::Lock.into(),
        lease: LEASE,
        client: "ci-9/877".into(),
        token: 1043,
        mode: Some(Mode::Slot.into()),
        slots: 8,
        slot: Some(0),
        place: 77,
        left_ms: Some(0),
        reason: Some("runner 7 was deleted".into()),
        by: None,
        at_unix_ms: None,
        clock_ms: None,
        ttl_ms: None,
        renewed_clock_ms: None,
        priority: None,
    }
}

pub(crate) fn error() -> v1::Error {
    v1::Error {
        reason: "HELD".into(),
        message: "lock `deploy` is held".into(),
        effect: v1::Effect::Unknown.into(),
        next: "wait in the queue".into(),
        retry_after_ms: 50,
        lock: "deploy".into(),
        holder: Some(Box::new(holder())),
        ahead: 2,
        ring: vec![v1::RingLink { lease: LEASE, client: "a".into(), lock: "b".into() }],
        limit: "slots".into(),
        bound: 1024,
        least: 1,
        asked: 2048,
        lease: LEASE,
        revision: Some(8850),
        leader: Some(Box::new(leader())),
        slots: Some(8),
        set_by: String::new(),
        set_at_ms: 0,
        drained_prefix: String::new(),
        drain_reason: String::new(),
    }
}

/// A refusal by a quota, which names who set it.
fn error_of_a_quota() -> v1::Error {
    v1::Error {
        reason: "QUOTA_EXCEEDED".into(),
        limit: "leases".into(),
        bound: 200,
        asked: 201,
        set_by: "admin".into(),
        set_at_ms: 1_772_421_247_112,
        ..Default::default()
    }
}

pub(crate) fn leader() -> v1::LeaderHint {
    v1::LeaderHint { member_id: 0xb, name: "b".into(), address: "10.0.0.12:7450".into() }
}

pub(crate) fn lock_view() -> v1::LockView {
    v1::LockView {
        sized: false,
        more_holders: 0,
        lock: "workers".into(),
        slots: Some(8),
        created: 8000,
        modified: 8850,
        version: 41,
        holders: vec![v1::HolderView {
            lease: LEASE,
            lease_created: 8800,
            client: "w-1/7".into(),
            token: 1040,
            mode: Mode::Slot.into(),
            slot: Some(2),
            place: 76,
            held_ms: 3_720_000,
            state: HolderState::Delayed.into(),
            left_ms: 6_000,
            election: true,
            metadata: Bytes::from_static(b"\x00\xff"),
            lock_delay_ms: 10_000,
            max_hold_ms: Some(7_200_000),
            min_hold_ms: 0,
            renewed_ms: Some(2_000),
            progress: None,
        }],
        waiting: 1,
    }
}

pub(crate) fn waiter() -> v1::WaiterView {
    v1::WaiterView {
        take: 0,
        place: 78,
        lease: LEASE,
        client: "ci-9/877".into(),
        mode: Mode::Shared.into(),
        slots: 0,
        created: 8841,
        ahead: 1,
        behind: 77,
        waiting_ms: 31_000,
        left_ms: Some(29_000),
        election: false,
        locks: vec!["accounts/7".into(), "accounts/9".into()],
        supersede: String::new(),
        priority: 0,
        passable_ms: 0,
        any: false,
        pool: String::new(),
    }
}

pub(crate) fn lease_view() -> v1::LeaseView {
    v1::LeaseView {
        lease: Some(lease()),
        left_ms: 13_000,
        client: "ci-7/4121".into(),
        metadata: Bytes::from_static(b"m"),
        changed: 8849,
        holds: vec![v1::LockGrant { lock: "deploy".into(), token: 1042, slot: None }],
        waits: vec![v1::LockWait { place: 78, lock: "db/schema".into() }],
        keys: vec!["config/a".into()],
    }
}

pub(crate) fn explained() -> v1::ExplainResponse {
    v1::ExplainResponse {
        header: Some(header()),
        lock: Some(lock_view()),
        ahead: vec![waiter()],
        own: Some(waiter()),
        chain: vec![v1::ChainStep { lock: "a".into(), lease: LEASE, client: "c".into() }],
        chain_goes_on: true,
        freed: Some(v1::Freed { in_ms: 13_000, at_latest: true }),
        usually_held_ms: Some(220_000),
        usually_of: 20,
        quiet_ms: None,
        drained: None,
        reopening_ms: None,
    }
}

pub(crate) fn drain_view() -> v1::DrainView {
    v1::DrainView {
        prefix: "db/".into(),
        drained_ms: 61_000,
        by: "ops@host".into(),
        principal: "ops".into(),
        reason: "new disks".into(),
        created: 8850,
        holders: 3,
        more_holders: true,
    }
}

#[test]
fn drained_prefixes_are_spoken_as_ever() {
    let ask = v1::ListDrainsRequest { prefix: Some("db/".into()), stale: true };
    check("list_drains_request", &ask);
    let drains = vec![drain_view()];
    check("list_drains_response", &v1::ListDrainsResponse { header: Some(header()), drains });
}

pub(crate) fn status() -> v1::StatusResponse {
    let member = v1::Member {
        member_id: 0xb,
        name: "b".into(),
        member_address: "10.0.0.12:7451".into(),
        client_address: "10.0.0.12:7450".into(),
        role: Role::Leader.into(),
    };
    v1::StatusResponse {
        header: Some(header()),
        cluster: "prod-eu".into(),
        leader: Some(leader()),
        members: vec![v1::MemberStatus {
            member: Some(member),
            up: true,
            behind: Some(0),
            applied: Some(90_200),
            fsync_p99_us: Some(400),
            disk_free_bytes: Some(40_000_000_000),
            state: "same hash".into(),
            software: "0.1.0".into(),
            certificate_expires_ms: None,
        }],
        survives: 1,
        epoch: 1,
        incarnation: 99,
        level: 1,
        clock_ms: 1_000_000,
        floor: 8000,
        counts: Some(v1::Counts {
            leases: 1,
            locks: 2,
            grants: 3,
            waiting: 4,
            keys: 5,
            state_bytes: 6,
            history_bytes: 7,
        }),
        limits: vec![v1::LimitValue { limit: "slots".into(), value: 1024 }],
        insecure: true,
        quiet_ms: None,
        state_age_ms: None,
    }
}

#[test]
fn the_lock_service_is_spoken_as_ever() {
    let metadata = Bytes::from_static(b"release 5.2");
    check(
        "lock_request",
        &v1::LockRequest {
            name: "deploy".into(),
            lease_id: LEASE,
            metadata,
            timeout_ms: Some(0),
            mode: Mode::Slot.into(),
            slots: 8,
        },
    );
    check(
        "lock_response",
        &v1::LockResponse {
            header: Some(header()),
            key: "deploy".into(),
            fencing_token: 1043,
            acquired: true,
            position: 2,
            holder: Some(holder()),
            slot: Some(0),
            lease_create_revision: 8800,
            reason: "HELD".into(),
        },
    );
    check(
        "unlock_request",
        &v1::UnlockRequest { name: "deploy".into(), lease_id: LEASE, token: 1043 },
    );
    check(
        "lease_grant_request",
        &v1::LeaseGrantRequest {
            ttl: 15,
            id: LEASE,
            client_id: "curl".into(),
            metadata: Bytes::from_static(b"m"),
        },
    );
    check(
        "lease_grant_response",
        &v1::LeaseGrantResponse {
            header: Some(header()),
            id: LEASE,
            ttl: 15,
            create_revision: 8800,
        },
    );
    check(
        "lease_keep_alive_response",
        &v1::LeaseKeepAliveResponse {
            header: Some(header()),
            id: LEASE,
            ttl: 15,
            changed: 8849,
            ttl_ms: 15_000,
        },
    );
}

#[test]
fn watches_are_spoken_as_ever() {
    check(
        "watch_request",
        &v1::WatchRequest {
            key: "deploy".into(),
            prefix: true,
            start_revision: 8840,
            watch_id: 7,
            prev_kv: true,
            cancel: true,
            progress: true,
        },
    );
    let fields = tenure_wire::shared::WatchFields {
        header: Some(header()),
        revision: 8850,
        events: vec![event(Cause::Released), event(Cause::Granted)],
        compact_revision: 8000,
        progress: true,
        created: true,
        canceled: true,
        resume_revision: 8001,
        error: Some(error()),
    };
    check("watch_response", &v1::WatchResponse::new(7, fields));
}

#[test]
fn errors_and_views_are_spoken_as_ever() {
    check("error", &error());
    check("error_quota", &error_of_a_quota());
    check("lock_view", &lock_view());
    check("waiter_view", &waiter());
    check("lease_view", &lease_view());
    check("explain_response", &explained());
    check("status_response", &status());
    let batch = v1::Batch { revision: 8850, events: vec![event(Cause::Forced)] };
    let (next, floor) = (8851, 8000);
    let history = v1::HistoryResponse {
        header: Some(header()),
        batches: vec![batch],
        next,
        floor,
        ..Default::default()
    };
    check("history_response", &history);
    let by = Some("ops@host".to_owned());
    let by_name = v1::Event { by, ..event(Cause::Forced) };
    let batch = v1::Batch { revision: 8850, events: vec![by_name] };
    check("history_response_by", &v1::HistoryResponse { batches: vec![batch], ..history.clone() });
    let dated = v1::Event {
        at_unix_ms: Some(1_772_421_247_112),
        clock_ms: Some(3_600_000),
        ttl_ms: Some(15_000),
        renewed_clock_ms: Some(3_590_000),
        ..event(Cause::Expired)
    };
    let batch = v1::Batch { revision: 8850, events: vec![dated] };
    check("history_response_dated", &v1::HistoryResponse { batches: vec![batch], ..history });
}

#[test]
fn elections_members_and_backups_are_spoken_as_ever() {
    check(
        "campaign_request",
        &v1::CampaignRequest {
            name: "billing".into(),
            lease: LEASE,
            value: Bytes::from_static(b"10.0.0.5:9000"),
            wait_ms: Some(0),
        },
    );
    check(
        "leader_response",
        &v1::LeaderResponse {
            header: Some(header()),
            leader: Some(v1::Leadership {
                name: "billing".into(),
                lease: LEASE,
                token: 2210,
                client: "host-3/77".into(),
                value: Bytes::from_static(b"10.0.0.4:9000"),
                held_ms: 7_380_000,
            }),
        },
    );
    check(
        "add_member_request",
        &v1::AddMemberRequest {
            member_id: 0xc,
            name: "c".into(),
            member_address: "10.0.0.13:7451".into(),
            client_address: "10.0.0.13:7450".into(),
            hops: 1,
        },
    );
    check(
        "backup_response",
        &v1::BackupResponse {
            header: Some(header()),
            epoch: 1,
            total_bytes: Some(3),
            chunk: Bytes::from_static(b"abc"),
            checksum: Bytes::from_static(&[0x5a; 16]),
        },
    );
}
