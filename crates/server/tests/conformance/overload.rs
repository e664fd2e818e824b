//! Checks the replies of each API of a member that is quiet after a restore, full, overloaded, or has an unread watch.
//!
//! Each case needs a member of its own: one that was just restored, one whose disk has no room or does not sync, one
//! with a watch that is not read.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tenure_server::restore::{RestoreOptions, RestoreOrigin, StoppedFor, restore};
use tenure_server::{RunningServer, ServerSettings, StartMode, backup, start};
use tenure_store::{Disk, File};
use tenure_types::Epoch;
use tenure_wire::v1;
use tenure_wire::v1::lock_service_client::LockServiceClient;
use tenure_wire::v1::session_service_client::SessionServiceClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_stream::wrappers::ReceiverStream;
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;
use tonic::transport::{Channel, Endpoint};
use v1::request::Command;

use crate::common::{DEADLINE, soon, wait, wait_for};
use crate::disk::SyncedBy;
use crate::metrics::metric;
use crate::request::{Ask, Fault, How, Reply, What};
use crate::run::{APIS, Seen, open};

const SEGMENT_BYTES: u32 = 256 * 1024;
/// Longer than a leader waits in the event loop, so that the loop goes on while the disk is held.
pub(crate) const SLOW: Duration = Duration::from_millis(5);
/// The longest value allowed.
const VALUE_BYTES: usize = 30_000;
/// More values than all buffers between a member and a client that does not read can hold.
const VALUES: usize = 500;

/// While set, no sync ends on disks that check it.
static HELD: AtomicBool = AtomicBool::new(false);
/// While set, disks that check it report no room.
static FULL: AtomicBool = AtomicBool::new(false);

fn sync_unless_held(file: &dyn File) -> io::Result<Duration> {
    while HELD.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(file.sync()? + SLOW)
}

/// A disk that reports no room while [`FULL`] is set.
#[derive(Debug)]
struct Crowded(Arc<dyn Disk>);

impl Disk for Crowded {
    fn make_dir(&self, dir: &str) -> io::Result<()> {
        self.0.make_dir(dir)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.0.open(name)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.0.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        if FULL.load(Ordering::Acquire) { Ok(4096) } else { self.0.free_bytes() }
    }
}

/// Runs all cases, one after the other.
pub(crate) async fn all() -> Seen {
    let mut seen = Seen::default();
    quiet(&mut seen).await;
    full(&mut seen).await;
    overloaded(&mut seen).await;
    not_read(&mut seen).await;
    seen
}

pub(crate) fn settings(data: &Path) -> ServerSettings {
    ServerSettings {
        clients: "127.0.0.1:0".into(),
        entrance: StartMode::Alone,
        segment_bytes: SEGMENT_BYTES,
        reserve_bytes: 64 * 1024,
        ..ServerSettings::new("a", data)
    }
}

/// Starts a member alone and waits until it leads.
pub(crate) fn run(settings: ServerSettings) -> RunningServer {
    let running = start(settings).unwrap();
    running.member.read(DEADLINE, |_| ()).unwrap();
    running
}

fn connect(running: &RunningServer) -> Channel {
    connect_to(running.clients)
}

pub(crate) fn connect_to(at: SocketAddr) -> Channel {
    let address = format!("http://{at}");
    Endpoint::from_shared(address).unwrap().timeout(DEADLINE).connect_lazy()
}

pub(crate) fn ask(command: Command) -> Ask {
    Ask { what: What::Command(command), key: None, seq: 0, deadline_ms: Some(30_000) }
}

pub(crate) fn put(key: String, bytes: usize) -> v1::PutRequest {
    v1::PutRequest { key, value: vec![b'x'; bytes].into(), ..Default::default() }
}

/// Sends a command to an API. The reply must be a refusal with this reason, in the form of the table.
async fn refused(
    seen: &mut Seen,
    running: &RunningServer,
    api: &str,
    command: Command,
    reason: &str,
) {
    let at = open(api, connect(running), running.clients);
    let reply = soon(at.ask("overload", ask(command))).await;
    seen.must_be(api, &reply, reason);
}

impl Seen {
    /// Checks that a reply is a refusal with this reason, in the form of the table.
    pub(crate) fn must_be(&mut self, api: &str, reply: &Reply, reason: &str) {
        let kept = match reply {
            Reply::Refused(fault) if fault.reason == reason => self.refused(api, fault),
            other => Err(format!("wanted {reason}, got {other:?}")),
        };
        if let Err(why) = kept {
            self.failed.push(format!("{api}, under overload: {why}"));
        }
        self.steps += 1;
    }
}

/// A restored cluster grants nothing as long as a lease from before the restore may still be trusted.
async fn quiet(seen: &mut Seen) {
    let dir = tempfile::tempdir().unwrap();
    let before = run(settings(&dir.path().join("before")));
    let mut locks = LockServiceClient::new(connect(&before));
    let grant = v1::LeaseGrantRequest { ttl: 600, client_id: "c".into(), ..Default::default() };
    let lease_id = locks.lease_grant(grant).await.unwrap().into_inner().id;
    let ask = v1::TryLockRequest { name: "old".into(), lease_id, ..Default::default() };
    locks.try_lock(ask).await.unwrap();
    let file = dir.path().join("backup");
    let mut bytes = Vec::new();
    backup::take(&before.member, DEADLINE).unwrap().write(&mut bytes).unwrap();
    std::fs::write(&file, bytes).unwrap();
    before.stop();
    // Tokens of epoch 32 and later are too large for JSON numbers.
    let quiet = [("quiet", 40, StoppedFor::ForMs(0)), ("waived", 41, StoppedFor::ForGood)];
    for (name, epoch, stopped) in quiet {
        let data = dir.path().join(name);
        let wanted = RestoreOptions {
            from: RestoreOrigin::Backup(file.clone()),
            data: data.clone(),
            cluster: None,
            epoch: Epoch::new(epoch),
            above: None,
            ledger: None,
            stopped,
            names: None,
            segment_bytes: SEGMENT_BYTES,
        };
        restore(&wanted).unwrap();
        let running = run(ServerSettings { entrance: StartMode::None, ..settings(&data) });
        if stopped == StoppedFor::ForGood {
            token_too_large(seen, &running).await;
        } else {
            for (number, api) in APIS.iter().enumerate() {
                let (ttl_ms, client) = (60_000, "c".to_owned());
                let new_lease = v1::NewLease { ttl_ms, client, ..Default::default() };
                let acquire = v1::AcquireRequest {
                    lock: format!("new/{number}"),
                    new_lease: Some(Box::new(new_lease)),
                    wait_ms: Some(0),
                    ..Default::default()
                };
                // `LockService` needs a lease first.
                let api = if *api == "plain" { "grpc" } else { api };
                refused(seen, &running, api, Command::Acquire(acquire), "QUIET").await;
            }
        }
        running.stop();
    }
}

async fn token_too_large(seen: &mut Seen, running: &RunningServer) {
    let url = format!("ws://{}/v1/lock-socket", running.clients);
    let (mut socket, _) = soon(connect_async(url)).await.unwrap();
    let ask = json!({"commandType": 0, "key": "large", "clientID": "c", "ttl": 15});
    socket.send(Message::text(ask.to_string())).await.unwrap();
    let Some(Ok(Message::Text(said))) = soon(socket.next()).await else { panic!("no answer") };
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said, json!({"success": false, "reason": "TOKEN_TOO_LARGE"}));
    seen.reasons.insert("TOKEN_TOO_LARGE".into());
    seen.steps += 1;
}

/// Commands that make the state grow are refused while there is no room; releases are not.
async fn full(seen: &mut Seen) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("full");
    let running = run(ServerSettings { disk: |disk| Arc::new(Crowded(disk)), ..settings(&data) });
    FULL.store(true, Ordering::Release);
    wait("the member notices", || running.member.metrics().disk_short.then_some(()));
    for (number, api) in APIS.iter().enumerate() {
        let grows = Command::Put(put(format!("k/{number}"), 1));
        refused(seen, &running, api, grows, "DISK_FULL").await;
    }
    assert_eq!(metric(running.clients, "tenure_disk_short ").await, 1.0);
    assert_eq!(metric(running.clients, "tenure_disk_free_bytes ").await, 4096.0);
    FULL.store(false, Ordering::Release);
    wait_for("the metrics follow", async || {
        let free = metric(running.clients, "tenure_disk_free_bytes ").await;
        let short = metric(running.clients, "tenure_disk_short ").await;
        (free > 4096.0 && short == 0.0).then_some(())
    })
    .await;
    running.stop();
}

/// No sync ends, so that every command stays in flight until the member is overloaded.
async fn overloaded(seen: &mut Seen) {
    let dir = tempfile::tempdir().unwrap();
    let disk =
        |disk: Arc<dyn Disk>| -> Arc<dyn Disk> { Arc::new(SyncedBy(disk, sync_unless_held)) };
    let running = run(ServerSettings { disk, ..settings(&dir.path().join("held")) });
    HELD.store(true, Ordering::Release);
    let mut sessions = Vec::new();
    for number in 0..12 {
        let (to, requests) = tokio::sync::mpsc::channel(1);
        let request = |id| v1::Request {
            id,
            deadline_ms: 60_000,
            command: Some(Command::Put(put(format!("{number}/{id}"), 1))),
            ..Default::default()
        };
        let requests_all = (0..1_024).map(request).collect();
        to.send(v1::SessionRequest { hello: None, requests: requests_all }).await.unwrap();
        let mut client = SessionServiceClient::new(connect(&running));
        sessions.push((to, soon(client.open(ReceiverStream::new(requests))).await.unwrap()));
    }
    let mut keys = tenure_wire::v1::key_service_client::KeyServiceClient::new(connect(&running));
    wait_for("it is too much", async || {
        let mut asked = tonic::Request::new(put("one-more".into(), 1));
        asked.set_timeout(Duration::from_millis(100));
        let status = keys.put(asked).await.err()?;
        let error = tenure_wire::status::error_from(&status)?;
        (error.reason == "OVERLOADED").then_some(())
    })
    .await;
    for (number, api) in APIS.iter().enumerate() {
        let asks = Command::Put(put(format!("k/{number}"), 1));
        let at = open(api, connect(&running), running.clients);
        // Reads that gave up have returned their share of the budget. A command that takes such a share keeps it,
        // because no sync ends, so soon there is none left.
        let reply = loop {
            let asked = Ask { deadline_ms: Some(300), ..ask(asks.clone()) };
            let reply = soon(at.ask("overload", asked)).await;
            let is_admitted =
                matches!(&reply, Reply::Refused(fault) if fault.reason == "UNKNOWN_OUTCOME");
            if !is_admitted {
                break reply;
            }
        };
        seen.must_be(api, &reply, "OVERLOADED");
    }
    HELD.store(false, Ordering::Release);
    drop(sessions);
    running.stop();
}

/// A watch that is not read is ended, and the client learns where to resume.
async fn not_read(seen: &mut Seen) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("unread");
    let running = run(ServerSettings { segment_bytes: 4 * 1024 * 1024, ..settings(&data) });
    let (to, requests) = tokio::sync::mpsc::channel(1);
    to.send(v1::WatchRequest { key: "big".into(), ..Default::default() }).await.unwrap();
    let mut client = LockServiceClient::new(connect(&running));
    let mut calls = soon(client.watch(ReceiverStream::new(requests))).await.unwrap().into_inner();
    assert!(soon(calls.message()).await.unwrap().unwrap().into_fields().created);

    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut events = soon(socket.connect(running.clients)).await.unwrap();
    let head = format!("GET /v1/watch?name=big HTTP/1.1\r\nHost: {}\r\n\r\n", running.clients);
    events.write_all(head.as_bytes()).await.unwrap();
    let mut begun = vec![0; 12];
    soon(events.read_exact(&mut begun)).await.unwrap();
    assert_eq!(begun, b"HTTP/1.1 200");

    let mut keys = tenure_wire::v1::key_service_client::KeyServiceClient::new(connect(&running));
    let mut lag = 0.0;
    for _ in 0..VALUES {
        soon(keys.put(put("big".into(), VALUE_BYTES))).await.unwrap();
        // Read the metric until it was seen once: from then on nothing delays the puts.
        if lag == 0.0 {
            lag = metric(running.clients, "tenure_watch_lag_revisions ").await;
        }
    }
    assert!(lag > 0.0, "they are seen to fall behind");
    // A watch that was not read for a second is too slow for the next event.
    wait_for("both are too slow", async || {
        keys.put(put("big".into(), VALUE_BYTES)).await.unwrap();
        let slow = running.hub().metrics().slow;
        (slow >= 2).then_some(())
    })
    .await;
    let error = loop {
        let fields = soon(calls.message()).await.unwrap().expect("it says why").into_fields();
        if let Some(error) = fields.error {
            assert!(fields.resume_revision > 0);
            break error;
        }
    };
    let fault = Fault::new(&error, How::Frame);
    if let Err(why) = seen.refused("grpc", &fault) {
        seen.failed.push(format!("grpc, not read: {why}"));
    }
    assert_eq!(error.reason, "SLOW_CONSUMER");
    assert!(metric(running.clients, "tenure_watches_too_slow_total ").await >= 2.0);
    // Read everything up to the end of the stream.
    let mut said = Vec::new();
    let mut piece = vec![0; 1 << 20];
    while !String::from_utf8_lossy(&said[said.len().saturating_sub(4096)..])
        .contains("event: slow_consumer")
    {
        let read = soon(events.read(&mut piece)).await.unwrap();
        assert!(read > 0, "the stream ended without a word");
        said.extend_from_slice(&piece[..read]);
    }
    seen.steps += 2;
    running.stop();
}
