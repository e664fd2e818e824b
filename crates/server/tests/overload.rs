//! Tests which commands an overloaded member refuses, how early, and which it does not.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::client::Client;
use crate::disk::SyncedBy;
use crate::metrics::metric;
use bytes::Bytes;
use tenure_core::codec::encode_request;
use tenure_core::request::{self, Expect, RequestId};
use tenure_server::{NodeFailure, ServerSettings, StartMode, os, start};
use tenure_store::File;
use tenure_wire::status::error_from;
use tenure_wire::v1;
use tenure_wire::v1::key_service_client::KeyServiceClient;
use tenure_wire::v1::lock_service_client::LockServiceClient;
use tenure_wire::v1::request::Command;
use tenure_wire::v1::session_service_client::SessionServiceClient;
use tokio::sync::mpsc::channel;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

const DEADLINE: Duration = Duration::from_secs(60);
/// The metric of commands in flight through the member.
const IN_FLIGHT: &str = "tenure_commands_in_flight ";

/// While set, no sync ends on the disks of this process that check it.
static HELD: AtomicBool = AtomicBool::new(false);

/// Longer than a leader waits in the event loop, so that the loop goes on while the disk is held.
const SLOW: Duration = Duration::from_millis(5);

fn sync_unless_held(file: &dyn File) -> io::Result<Duration> {
    while HELD.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(file.sync()? + SLOW)
}

/// Waits for a future; if it takes too long, the test fails with what it waited for.
async fn in_time<T>(what: &str, it: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, it).await.unwrap_or_else(|_| panic!("waited too long: {what}"))
}

fn settings(dir: &tempfile::TempDir) -> ServerSettings {
    ServerSettings {
        clients: "127.0.0.1:0".into(),
        entrance: StartMode::Alone,
        segment_bytes: 256 * 1024,
        reserve_bytes: 64 * 1024,
        ..ServerSettings::new("a", dir.path().join("a"))
    }
}

fn put(key: String, value: Vec<u8>) -> v1::PutRequest {
    v1::PutRequest { key, value: value.into(), ..Default::default() }
}

/// What waits for the event loop must not occupy the threads that serve connections.
#[tokio::test(flavor = "multi_thread")]
async fn connections_are_served_while_the_event_loop_hangs_and_thousands_of_commands_wait() {
    let dir = tempfile::tempdir().unwrap();
    let running = start(settings(&dir)).unwrap();
    let address = format!("http://{}", running.clients);
    let connect = || Endpoint::from_shared(address.clone()).unwrap().connect_lazy();
    let (hangs, hanging) = std::sync::mpsc::channel();
    let (go_on, gate) = std::sync::mpsc::channel::<()>();
    let member = running.member.clone();
    let hung = std::thread::spawn(move || {
        member.read_stale(move |_| {
            hangs.send(()).unwrap();
            let _ = gate.recv();
        })
    });
    hanging.recv().unwrap();

    let mut calls = tokio::task::JoinSet::new();
    for connection in 0..16 {
        let channel = connect();
        for number in 0..1_000 {
            let mut keys = KeyServiceClient::new(channel.clone());
            let put = put(format!("{connection}/{number}"), b"v".to_vec());
            calls.spawn(async move { keys.put(put).await });
        }
    }
    // Nothing is answered but what is refused.
    let first = in_time("a refusal", calls.join_next()).await.unwrap().unwrap();
    assert_eq!(error_from(&first.unwrap_err()).unwrap().reason, "OVERLOADED");
    for number in 0..64 {
        let client = Client::new(running.clients, "ana");
        let asked = tokio::task::spawn_blocking(move || client.get("/healthz").status);
        let status = in_time("health", asked).await.unwrap();
        assert!(matches!(status, 200 | 503), "answer {number} has the status {status}");
    }
    drop(go_on);
    tokio::task::spawn_blocking(move || hung.join()).await.unwrap().unwrap().unwrap();
    calls.abort_all();
    let mut keys = KeyServiceClient::new(connect());
    let after = async {
        while keys.put(put("after".into(), b"v".to_vec())).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time("commands after it", after).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_more_is_refused_early_and_who_has_something_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ServerSettings {
        disk: |disk| Arc::new(SyncedBy(disk, sync_unless_held)),
        ..settings(&dir)
    };
    let running = start(settings).unwrap();
    let address = format!("http://{}", running.clients);
    let connect = || Endpoint::from_shared(address.clone()).unwrap().connect_lazy();
    let mut locks = LockServiceClient::new(connect());
    let grant = v1::LeaseGrantRequest { ttl: 600, client_id: "c".into(), ..Default::default() };
    let granted = in_time("a lease", locks.lease_grant(grant)).await;
    let lease = granted.unwrap().into_inner().id;
    let ask = v1::TryLockRequest { name: "held".into(), lease_id: lease, ..Default::default() };
    let taken = in_time("a lock", locks.try_lock(ask)).await;
    let token = taken.unwrap().into_inner().fencing_token;

    // No sync ends, so that every command stays in flight until there are too many.
    HELD.store(true, Ordering::Release);
    let mut sessions = Vec::new();
    let mut refused = None;
    for number in 0..16 {
        let (to, requests) = channel(4);
        let all = (0..1_024).map(|id| v1::Request {
            id,
            deadline_ms: 60_000,
            command: Some(Command::Put(put(format!("{number}/{id}"), b"v".to_vec()))),
            ..Default::default()
        });
        let requests_all = all.collect();
        to.send(v1::SessionRequest { hello: None, requests: requests_all }).await.unwrap();
        let mut client = SessionServiceClient::new(connect());
        let opened = in_time("a session", client.open(ReceiverStream::new(requests))).await;
        let mut from = opened.unwrap().into_inner();
        // A session sends nothing as long as none of its requests has an answer.
        // The first ones are admitted whole. Each later one gets less, until the address has what one may have.
        if let Ok(said) = tokio::time::timeout(Duration::from_millis(500), from.message()).await {
            let answers = said.unwrap().unwrap().answers;
            refused = answers.into_iter().find_map(|answer| match answer.result {
                Some(v1::answer::Result::Error(error)) => Some(error),
                _ => None,
            });
        }
        sessions.push((to, from));
    }
    let refused = refused.expect("sixteen thousand on their way are too many");
    assert_eq!((&*refused.reason, refused.effect()), ("OVERLOADED", v1::Effect::None));
    assert!(refused.retry_after_ms > 0, "{refused:?}");

    // A single call is refused at once, not at its deadline.
    let began_us = os::now_us();
    let mut keys = KeyServiceClient::new(connect());
    let answer = in_time("a refusal", keys.put(put("k".into(), b"v".to_vec()))).await;
    let error = error_from(&answer.unwrap_err()).unwrap();
    assert_eq!(error.reason, "OVERLOADED");
    assert!(os::now_us() - began_us < 5_000_000, "early means before its deadline");

    let full = metric(running.clients, IN_FLIGHT).await;
    // Renewals and releases are admitted, and served as soon as anything is.
    let mut renewing = locks.clone();
    let renewal = tokio::spawn(async move {
        let beat = v1::LeaseKeepAliveRequest { id: lease };
        let mut beats = renewing.lease_keep_alive(tokio_stream::once(beat)).await?.into_inner();
        beats.message().await
    });
    let mut releasing = locks.clone();
    let release = tokio::spawn(async move {
        let unlock = v1::UnlockRequest { name: "held".into(), lease_id: lease, token };
        releasing.unlock(unlock).await
    });
    let until_us = os::now_us() + u64::try_from(DEADLINE.as_micros()).unwrap();
    while metric(running.clients, IN_FLIGHT).await < full + 2.0 {
        assert!(os::now_us() < until_us, "a renewal or a release is not on its way");
        assert!(!renewal.is_finished() && !release.is_finished());
    }
    HELD.store(false, Ordering::Release);
    in_time("the release", release).await.unwrap().unwrap();
    let renewed = in_time("the renewal", renewal).await.unwrap().unwrap();
    assert!(renewed.is_some_and(|it| it.ttl > 0));
    let answer = in_time("a key", keys.put(put("k".into(), b"v".to_vec()))).await;
    answer.expect("there is room again");
    drop(sessions);
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_no_log_would_take_is_refused_and_the_member_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let running = start(settings(&dir)).unwrap();
    let address = format!("http://{}", running.clients);
    let mut keys = KeyServiceClient::new(Endpoint::from_shared(address).unwrap().connect_lazy());
    // Half of a segment of this member is 128 KiB.
    let large = put("large".into(), vec![7; 200 * 1024]);
    let error = error_from(&in_time("a refusal", keys.put(large)).await.unwrap_err()).unwrap();
    assert_eq!((&*error.reason, error.effect()), ("TOO_LARGE", v1::Effect::None));
    assert_eq!(error.bound, 128 * 1024);
    in_time("a key", keys.put(put("small".into(), b"v".to_vec()))).await.unwrap();

    // The same in process: a command that fits is applied.
    let command = |value: &[u8]| {
        let put = request::Put { key: "k", value, lease: None, expect: Expect::Any, guard: None };
        let command = request::Command::Put(put);
        let mut bytes = Vec::new();
        let id = RequestId::None;
        encode_request(&request::Request { principal: "", id, command }, &mut bytes);
        Bytes::from(bytes)
    };
    let commands = vec![command(&[7; 200 * 1024]), command(b"v")];
    let fates = running.member.submit(commands, Duration::ZERO, DEADLINE);
    assert_eq!(fates[0], Err(NodeFailure::TooLarge { bound: 128 * 1024 }));
    assert!(fates[1].as_ref().is_ok_and(|outcome| outcome.result.is_ok()), "{fates:?}");
    running.stop();
}
