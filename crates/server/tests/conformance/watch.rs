//! Tests that a watcher that moves between members and APIs sees every event exactly once.
//!
//! Writers write, leaders stop and come back, and the history is dropped. Watchers, over gRPC and server-sent events,
//! read a few events at one member and go on at the next. Each sees every revision of its key once and in order, or
//! learns that the history does not reach back so far and goes on from the floor. Only such a gap is allowed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tenure_wire::v1;
use tenure_wire::v1::key_service_client::KeyServiceClient;
use tenure_wire::v1::lock_service_client::LockServiceClient;
use tenure_wire::v1::maintenance_service_client::MaintenanceServiceClient;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tonic::transport::Endpoint;

use crate::common::{DEADLINE, Members};
use crate::json::number;

const KEY: &str = "watched";
/// The number of events read at one member before moving to the next.
const EVENTS_PER_STOP: usize = 7;
/// The number of leaders that are stopped and restarted.
const KILLS: usize = 2;

/// The API addresses of the running members.
type Addresses = Arc<Mutex<Vec<Option<SocketAddr>>>>;

/// The next result of a watch.
#[derive(Debug)]
enum Next {
    /// The values of the events of one revision.
    Change(i64, Vec<String>),
    Compacted(i64),
    /// This member delivers nothing more.
    Over,
}

/// The events that a watcher has seen.
#[derive(Default)]
struct Seen {
    /// The value that each revision wrote.
    changes: BTreeMap<i64, String>,
    /// The reported gaps, with start and end.
    gaps: Vec<(i64, i64)>,
    stops: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watchers_that_hop_see_everything_once_or_are_told() {
    let mut members = tokio::task::block_in_place(|| Members::found(3));
    let apis: Addresses =
        Arc::new(Mutex::new((0..3).map(|at| Some(members.one(at).clients)).collect()));
    let written = Arc::new(Mutex::new(BTreeMap::new()));
    let (stop, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(u64::MAX)));
    let writer = tokio::spawn(write(apis.clone(), written.clone(), stop.clone()));
    let first = first_of(&written).await;
    let watchers = ["grpc", "sse", "grpc", "sse"].into_iter().enumerate();
    let watchers: Vec<_> = watchers
        .map(|(at, form)| tokio::spawn(watch(apis.clone(), form, at, first, last.clone())))
        .collect();
    // A watcher that sleeps while the history is dropped learns of it.
    for _ in 0..KILLS {
        let (until, leader) = (newest(&written) + 40, members.leader());
        reached(&written, until).await;
        shorten(&apis, leader).await;
        apis.lock().unwrap()[leader] = None;
        tokio::task::block_in_place(|| members.stop(leader));
        reached(&written, newest(&written) + 40).await;
        tokio::task::block_in_place(|| members.start_again(leader));
        apis.lock().unwrap()[leader] = Some(members.one(leader).clients);
    }
    stop.store(true, Ordering::Release);
    writer.await.unwrap();
    last.store(newest(&written).cast_unsigned(), Ordering::Release);
    let written = written.lock().unwrap().clone();
    let (mut told, mut stops) = (0, 0);
    for watcher in watchers {
        let seen = tokio::time::timeout(DEADLINE, watcher).await.expect("it sees the end").unwrap();
        stops += seen.stops;
        told += seen.gaps.len();
        let values: std::collections::BTreeSet<_> = seen.changes.values().collect();
        assert_eq!(values.len(), seen.changes.len(), "a write was done twice, or told twice");
        for (revision, value) in &seen.changes {
            if let Some(acknowledged) = written.get(revision) {
                assert_eq!(value, acknowledged, "at {revision}");
            }
        }
        let missed = written.keys().filter(|it| !seen.changes.contains_key(it));
        for revision in missed {
            let excused = seen.gaps.iter().any(|(from, to)| (*from..*to).contains(revision));
            assert!(excused, "{revision} was missed and no gap was reported: {:?}", seen.gaps);
        }
    }
    // From before the floor, in both forms.
    let (at, floor) = (apis.lock().unwrap()[0].unwrap(), *written.keys().next().unwrap());
    for form in ["grpc", "sse"] {
        let mut stream = Stream::open(form, at, floor).await.unwrap();
        assert!(matches!(stream.next().await, Next::Compacted(to) if to > floor), "{form}");
    }
    println!("{} writes, {KILLS} leaders stopped, {stops} stops, {told} gaps told", written.len());
}

type Written = Arc<Mutex<BTreeMap<i64, String>>>;

fn newest(written: &Written) -> i64 {
    written.lock().unwrap().keys().next_back().copied().unwrap_or(0)
}

async fn reached(written: &Written, revision: i64) {
    crate::common::wait_for("it is written", async || (newest(written) >= revision).then_some(()))
        .await;
}

async fn first_of(written: &Written) -> i64 {
    reached(written, 1).await;
    *written.lock().unwrap().keys().next().unwrap()
}

/// Writes numbers into one key, at any member. A write without an answer is repeated under its id.
async fn write(apis: Addresses, written: Written, stop: Arc<AtomicBool>) {
    let mut number = 0_u64;
    while !stop.load(Ordering::Acquire) {
        number += 1;
        for turn in 0_usize.. {
            let Some(at) = api(&apis, turn) else { continue };
            let channel = Endpoint::from_shared(format!("http://{at}")).unwrap().connect_lazy();
            let value = number.to_string();
            let put = v1::PutRequest {
                key: KEY.into(),
                value: value.clone().into(),
                ..Default::default()
            };
            let mut put = tonic::Request::new(put);
            put.set_timeout(Duration::from_secs(5));
            put.metadata_mut().insert("idempotency-key", format!("w{number}").parse().unwrap());
            if let Ok(done) = KeyServiceClient::new(channel).put(put).await {
                let revision = done.into_inner().header.unwrap().revision;
                written.lock().unwrap().insert(revision, value);
                break;
            }
        }
    }
}

/// Drops all but the newest revisions from the history, and has new ones kept.
async fn shorten(apis: &Addresses, at: usize) {
    let at = apis.lock().unwrap()[at].unwrap();
    let channel = Endpoint::from_shared(format!("http://{at}")).unwrap().connect_lazy();
    for value in [3, 100_000] {
        let limit = "history_revisions".to_owned();
        let limits = v1::SetLimitsRequest { limits: vec![v1::LimitValue { limit, value }] };
        MaintenanceServiceClient::new(channel.clone()).set_limits(limits).await.unwrap();
    }
}

/// The address of a running member, in rotation.
fn api(apis: &Addresses, turn: usize) -> Option<SocketAddr> {
    let apis = apis.lock().unwrap();
    apis[turn % apis.len()]
}

async fn watch(
    apis: Addresses,
    form: &'static str,
    at: usize,
    first: i64,
    last: Arc<AtomicU64>,
) -> Seen {
    let (mut seen, mut from) = (Seen::default(), first);
    for turn in at.. {
        if from.cast_unsigned() > last.load(Ordering::Acquire) {
            return seen;
        }
        let Some(at) = api(&apis, turn) else { continue };
        let Some(mut stream) = Stream::open(form, at, from).await else { continue };
        seen.stops += 1;
        for _ in 0..EVENTS_PER_STOP {
            let waited = tokio::time::timeout(Duration::from_millis(200), stream.next());
            match waited.await {
                Ok(Next::Change(revision, values)) => {
                    assert!(revision >= from, "{revision} came again, or before {from}");
                    assert_eq!(values.len(), 1, "one write per revision");
                    let before = seen.changes.insert(revision, values[0].clone());
                    assert_eq!(before, None, "{revision} came twice");
                    from = revision + 1;
                }
                Ok(Next::Compacted(floor)) => {
                    assert!(floor > from, "told {floor} at {from}");
                    seen.gaps.push((from, floor));
                    from = floor;
                    break;
                }
                // No event for a while, or no member there: go on with the next member.
                Ok(Next::Over) | Err(_) => break,
            }
        }
    }
    seen
}

type Requests = tokio::sync::mpsc::Sender<v1::WatchRequest>;

/// A watch of the key at one member.
enum Stream {
    /// The stream, and the sender that keeps it open.
    Grpc(tonic::Streaming<v1::WatchResponse>, #[expect(dead_code, reason = "kept open")] Requests),
    Sse(BufReader<TcpStream>),
    Compacted(i64),
}

impl Stream {
    async fn open(form: &str, at: SocketAddr, from: i64) -> Option<Self> {
        if form == "grpc" {
            let channel = Endpoint::from_shared(format!("http://{at}")).unwrap().connect_lazy();
            let (to, requests) = tokio::sync::mpsc::channel(1);
            let ask = v1::WatchRequest {
                key: KEY.into(),
                start_revision: from,
                watch_id: 1,
                ..Default::default()
            };
            to.send(ask).await.unwrap();
            let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
            let stream = LockServiceClient::new(channel).watch(requests).await.ok()?;
            return Some(Self::Grpc(stream.into_inner(), to));
        }
        let mut stream = TcpStream::connect(at).await.ok()?;
        let path = format!("/v1/watch?name={KEY}&from={from}");
        let head = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut lines = BufReader::new(stream);
        let status = line(&mut lines).await?;
        if status.contains(" 410 ") {
            while !line(&mut lines).await?.is_empty() {}
            let mut body = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut lines, &mut body).await.ok()?;
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["error"]["reason"], "COMPACTED");
            return Some(Self::Compacted(number(&body["error"]["revision"])));
        }
        status.contains(" 200 ").then_some(Self::Sse(lines))
    }

    async fn next(&mut self) -> Next {
        match self {
            Self::Compacted(floor) => Next::Compacted(*floor),
            Self::Grpc(stream, _) => loop {
                let Ok(Some(message)) = stream.message().await else { return Next::Over };
                let message = message.into_fields();
                if message.compact_revision > 0 {
                    return Next::Compacted(message.compact_revision);
                }
                if message.error.is_some() {
                    return Next::Over;
                }
                if !message.events.is_empty() {
                    let value = |it: &v1::Event| it.kv.as_ref().map(|kv| kv.value.clone());
                    let values = message.events.iter().filter_map(value);
                    let values = values.map(|it| String::from_utf8(it.to_vec()).unwrap());
                    return Next::Change(message.revision, values.collect());
                }
            },
            Self::Sse(lines) => loop {
                let Some(event) = line(lines).await else { return Next::Over };
                let Some(data) = event.strip_prefix("data: ") else { continue };
                let data: Value = serde_json::from_str(data).unwrap();
                if let Some(floor) = data.get("floor") {
                    return Next::Compacted(number(floor));
                }
                if let Some(events) = data["events"].as_array() {
                    let value = |it: &Value| it["value"].as_str().unwrap().to_owned();
                    let values = events.iter().map(value).collect();
                    return Next::Change(number(&data["revision"]), values);
                }
            },
        }
    }
}

async fn line(lines: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    match lines.read_line(&mut line).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end().to_owned()),
    }
}
