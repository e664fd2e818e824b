//! Checks the replies of each API of a degraded member.
//!
//! The member has no tokens left, waits for its disk, is changing its membership, is cut off from the leader, is
//! damaged, or requires a certificate that the client lacks.
//!
//! Each case needs a member of its own, and most need a disk that was tampered with.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tenure_core::LEVEL_MAX;
use tenure_server::tls::{ServerTls, ServerTlsFiles};
use tenure_server::{ServerSettings, StartMode};
use tenure_store::{DataDir, Disk, File, Snapshots};
use tenure_wire::v1;
use tenure_wire::v1::cluster_service_client::ClusterServiceClient;
use tenure_wire::v1::key_service_client::KeyServiceClient;
use tenure_wire::v1::lock_service_client::LockServiceClient;
use tenure_wire::v1::session_service_client::SessionServiceClient;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use v1::request::Command;

use crate::authority::Authority;
use crate::common::{Members, soon, wait, wait_for};
use crate::disk::{Sync, SyncedBy};
use crate::metrics::metric;
use crate::overload::{SLOW, ask, connect_to, put, run, settings};
use crate::patch;
use crate::request::{Api, Ask, Reply, What};
use crate::run::{APIS, Seen, open};

/// The id of a member that is added and never started.
const UNKNOWN: u64 = 77;
/// The deadline of calls that must not be answered in time.
const SHORT_MS: u32 = 300;

/// The number of entries after which members compare their states.
const COMPARED: usize = 1_000;

/// While set, a member waits for its disk and does nothing else.
static STUCK: AtomicBool = AtomicBool::new(false);
/// Whether the member waits for its disk now.
static WAITS: AtomicBool = AtomicBool::new(false);
/// While set, no sync ends, and the member goes on.
static PENDING: AtomicBool = AtomicBool::new(false);

fn sync_unless_stuck(file: &dyn File) -> io::Result<Duration> {
    WAITS.store(STUCK.load(Ordering::Acquire), Ordering::Release);
    held_by(&STUCK);
    file.sync()?;
    // A sync that reports no time counts as fast, so the event loop itself waits for the next one.
    Ok(Duration::ZERO)
}

fn sync_unless_pending(file: &dyn File) -> io::Result<Duration> {
    held_by(&PENDING);
    Ok(file.sync()? + SLOW)
}

fn held_by(what: &AtomicBool) {
    while what.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn on(data: &Path, sync: fn(Arc<dyn Disk>) -> Arc<dyn Disk>) -> ServerSettings {
    ServerSettings { disk: sync, ..settings(data) }
}

fn synced_by(disk: Arc<dyn Disk>, sync: Sync) -> Arc<dyn Disk> {
    Arc::new(SyncedBy(disk, sync))
}

/// Runs all cases, one after the other.
pub(crate) async fn all() -> Seen {
    let mut seen = Seen::default();
    without_tokens(&mut seen).await;
    stuck(&mut seen).await;
    changing(&mut seen).await;
    astray(&mut seen).await;
    damaged(&mut seen).await;
    diverging().await;
    unknown(&mut seen).await;
    seen
}

/// Every API of a member.
fn apis(at: SocketAddr) -> Vec<Arc<dyn Api>> {
    APIS.iter().map(|api| open(api, connect_to(at), at)).collect()
}

/// Sends a request to all APIs at once.
async fn ask_all(apis: &[Arc<dyn Api>], each: impl Fn(usize) -> Ask) -> Vec<Reply> {
    let asked = apis.iter().enumerate();
    let asked = asked.map(|(number, api)| tokio::spawn(soon(api.ask("degraded", each(number)))));
    let mut replies = Vec::new();
    for reply in asked.collect::<Vec<_>>() {
        replies.push(reply.await.expect("it is answered"));
    }
    replies
}

/// Whether the outcome is unknown: on a busy machine a deadline can pass before the definite answer arrives.
fn in_doubt(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(fault) if fault.reason == "UNKNOWN_OUTCOME")
}

/// Sends a request to all APIs; each must refuse it with this reason.
async fn refuse(
    seen: &mut Seen,
    apis: &[Arc<dyn Api>],
    reason: &str,
    each: impl Fn(usize) -> Ask,
) -> Vec<Reply> {
    let mut replies = ask_all(apis, &each).await;
    for (number, reply) in replies.iter_mut().enumerate().filter(|(_, it)| in_doubt(it)) {
        *reply = wait_for("it is certain", async || {
            let reply = apis[number].ask("degraded", each(number)).await;
            (!in_doubt(&reply)).then_some(reply)
        })
        .await;
    }
    for (api, reply) in APIS.iter().zip(&replies) {
        seen.must_be(api, reply, reason);
    }
    replies
}

/// A member whose epoch has no tokens left grants no locks.
async fn without_tokens(seen: &mut Seen) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("spent");
    let before = run(settings(&data));
    before.stop();
    drop(before);
    use_up_tokens(&data);
    let running = run(ServerSettings { entrance: StartMode::None, ..settings(&data) });
    let mut locks = LockServiceClient::new(connect_to(running.clients));
    let grant = v1::LeaseGrantRequest { ttl: 600, client_id: "c".into(), ..Default::default() };
    let lease = soon(locks.lease_grant(grant)).await.unwrap().into_inner().id;
    refuse(seen, &apis(running.clients), "TOKENS_EXHAUSTED", |number| {
        let lock = format!("last/{number}");
        let try_it = v1::AcquireRequest { lock, lease, wait_ms: Some(0), ..Default::default() };
        // No deadline, so that the API `plain` calls `LockService`.
        Ask { deadline_ms: None, ..ask(Command::Acquire(try_it)) }
    })
    .await;
    running.stop();
}

/// Changes the state that a member starts from, as if 2^48 locks had been granted.
fn use_up_tokens(data: &Path) {
    let (dir, _) = DataDir::open_or_create(data).unwrap();
    let snapshots = Snapshots::open(dir.disk()).unwrap();
    let id = snapshots.complete().unwrap().pop().expect("it was founded");
    let (machine, members) = tenure_raft::read(&snapshots, id, LEVEL_MAX).unwrap();
    drop(snapshots);
    for file in fs::read_dir(data.join("snapshots")).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    let snapshots = Snapshots::open(dir.disk()).unwrap();
    let mut meta = Vec::new();
    members.encode(&mut meta);
    let mut writer = snapshots.write(id.point, &meta).unwrap();
    writer.append(&patch::with_tokens_left(&machine, 0).encode()).unwrap();
    writer.finish().unwrap();
}

/// A member that waits for its disk answers no reads, not even stale ones.
async fn stuck(seen: &mut Seen) {
    let dir = tempfile::tempdir().unwrap();
    let running = run(on(&dir.path().join("stuck"), |disk| synced_by(disk, sync_unless_stuck)));
    let apis = apis(running.clients);
    let read = |_| {
        let key = v1::GetKeyRequest { key: "k".into(), stale: true };
        Ask { deadline_ms: Some(SHORT_MS), ..ask(Command::GetKey(key)) }
    };
    // Sessions start while the member still works.
    ask_all(&apis, read).await;
    STUCK.store(true, Ordering::Release);
    let mut keys = KeyServiceClient::new(connect_to(running.clients));
    let writing = tokio::spawn(async move { keys.put(put("never".into(), 1)).await });
    wait("it waits for its disk", || WAITS.load(Ordering::Acquire).then_some(()));
    // APIs whose reads have no deadline of their own give up after ten seconds.
    refuse(seen, &apis, "DEADLINE", read).await;
    assert_eq!(metric(running.clients, "tenure_silent ").await, 1.0);
    STUCK.store(false, Ordering::Release);
    let _ = soon(writing).await;
    wait_for("it is heard again", async || {
        (metric(running.clients, "tenure_silent ").await == 0.0).then_some(())
    })
    .await;
    running.stop();
}

/// While one change of membership cannot complete, the member refuses another one.
async fn changing(seen: &mut Seen) {
    let dir = tempfile::tempdir().unwrap();
    let running = run(on(&dir.path().join("pending"), |disk| synced_by(disk, sync_unless_pending)));
    let mut cluster = ClusterServiceClient::new(connect_to(running.clients));
    let address = || "127.0.0.1:1".to_owned();
    let add = v1::AddMemberRequest {
        member_id: UNKNOWN,
        name: "nobody".into(),
        member_address: address(),
        client_address: address(),
        hops: 0,
    };
    soon(cluster.add(add)).await.unwrap();
    PENDING.store(true, Ordering::Release);
    let first = tokio::spawn(async move {
        cluster.remove(v1::RemoveMemberRequest { member_id: UNKNOWN }).await
    });
    let remove = || {
        let what = What::Remove(UNKNOWN);
        Ask { what, key: None, seq: 0, deadline_ms: Some(SHORT_MS) }
    };
    for api in ["grpc", "plain", "http"] {
        let at = open(api, connect_to(running.clients), running.clients);
        // This request may arrive before the first one does.
        let reply = wait_for("another change is under way", async || {
            let reply = at.ask("degraded", remove()).await;
            (!in_doubt(&reply)).then_some(reply)
        })
        .await;
        seen.must_be(api, &reply, "MEMBERSHIP_CHANGING");
    }
    PENDING.store(false, Ordering::Release);
    let _ = soon(first).await;
    running.stop();
}

/// A learner whose leader is gone refuses writes and names that leader, because it takes part in no election.
async fn astray(seen: &mut Seen) {
    let mut members = Members::found(1);
    let learner = members.join();
    let leader = members.one(0).clients;
    wait("it follows", || {
        let followed = members.one(learner).member.lead().borrow().by;
        followed.is_some_and(|id| id.get() == members.id(0)).then_some(())
    });
    let at = members.one(learner).clients;
    let mut keys = KeyServiceClient::new(connect_to(at));
    soon(keys.put(put("passed-on".into(), 1))).await.unwrap();
    let newest = |at: usize| members.one(at).member.status().unwrap().revision;
    wait("it has the state", || (newest(learner) >= newest(0)).then_some(()));
    let gone = members.id(0);
    members.stop(0);
    let mut cluster = ClusterServiceClient::new(connect_to(at));
    wait_for("it has lost its leader", async || {
        let status = cluster.status(v1::StatusRequest {}).await.unwrap().into_inner();
        let is_down = |it: &v1::MemberStatus| {
            it.member.as_ref().is_some_and(|it| it.member_id == gone) && !it.up
        };
        status.members.iter().any(is_down).then_some(())
    })
    .await;
    let replies = refuse(seen, &apis(at), "NOT_LEADER", |number| {
        let write = Command::Put(put(format!("k/{number}"), 1));
        Ask { deadline_ms: Some(SHORT_MS), ..ask(write) }
    })
    .await;
    for (api, reply) in APIS.iter().zip(replies) {
        let Reply::Refused(fault) = reply else { continue };
        assert_eq!(fault.leader, leader.to_string(), "{api} says where the leader is: {fault:?}");
    }
}

/// A member whose disk went back in time has lost what it promised. It stops and reports that.
async fn damaged(seen: &mut Seen) {
    let mut members = Members::found(3);
    let damaged = members.follower();
    members.stop(damaged);
    let data = members.data(damaged);
    let copy = data.with_extension("copy");
    copy_all(&data, &copy);
    members.start_again(damaged);
    for number in 0..10 {
        // Members on a busy machine may elect a new leader at any time.
        wait_for("it is promised", async || {
            let mut keys = KeyServiceClient::new(members.connect(members.leader()));
            keys.put(put(format!("promised/{number}"), 1)).await.ok()
        })
        .await;
    }
    let newest = |at: usize| members.one(at).member.status().unwrap().revision;
    let leader = members.leader();
    wait("it has all of it", || (newest(damaged) >= newest(leader)).then_some(()));
    members.stop(damaged);
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&copy, &data).unwrap();
    members.start_again(damaged);
    let one = members.one(damaged);
    wait("it finds out", || one.member.ended().map(|end| assert!(end.is_corrupt(), "{end}")));
    refuse(seen, &apis(one.clients), "CORRUPT", |number| {
        ask(Command::Put(put(format!("k/{number}"), 1)))
    })
    .await;
}

/// A member whose state differs from the others' detects it while clients are connected, and they learn why it ends.
async fn diverging() {
    let mut members = Members::found(3);
    let damaged = members.follower();
    members.stop(damaged);
    use_up_tokens(&members.data(damaged));
    members.start_again(damaged);
    let one = &members.one(damaged);
    let listening = Listening::open(one.clients).await;
    assert!(one.member.ended().is_none(), "no member has compared anything yet");
    // The leader grants this lock; the damaged member has no token left for it. Members on a busy machine may elect a
    // new leader at any time.
    wait_for("it is granted", async || {
        let mut locks = LockServiceClient::new(members.connect(members.leader()));
        let grant = v1::LeaseGrantRequest { ttl: 600, client_id: "c".into(), ..Default::default() };
        let lease_id = locks.lease_grant(grant).await.ok()?.into_inner().id;
        let lock = v1::TryLockRequest { name: "l".into(), lease_id, ..Default::default() };
        let granted = locks.try_lock(lock).await.ok()?.into_inner();
        (granted.fencing_token > 0).then_some(())
    })
    .await;
    let mut keys = KeyServiceClient::new(members.connect(members.leader()));
    for _ in 0..COMPARED {
        wait_for("it is written", async || {
            let done = keys.put(put("k".into(), 1)).await.ok();
            if done.is_none() {
                keys = KeyServiceClient::new(members.connect(members.leader()));
            }
            done
        })
        .await;
    }
    wait("it finds out", || one.member.ended().map(|end| assert!(end.is_corrupt(), "{end}")));
    soon(listening.read_refusal("CORRUPT")).await;
}

/// Open connections over which the client sends no requests.
struct Listening {
    session: tonic::Streaming<v1::SessionResponse>,
    _to: mpsc::Sender<v1::SessionRequest>,
    sockets: Vec<WebSocketStream<MaybeTlsStream<TcpStream>>>,
}

impl Listening {
    async fn open(at: SocketAddr) -> Self {
        let (to, from) = mpsc::channel(1);
        // The stream begins with the first message.
        to.send(v1::SessionRequest::default()).await.unwrap();
        let mut client = SessionServiceClient::new(connect_to(at));
        let session = soon(client.open(ReceiverStream::new(from))).await.unwrap();
        let mut sockets = Vec::new();
        for path in ["/v1/ws", "/v1/lock-socket"] {
            let socket = soon(connect_async(format!("ws://{at}{path}"))).await.unwrap();
            sockets.push(socket.0);
        }
        Self { session: session.into_inner(), _to: to, sockets }
    }

    /// Checks that each connection receives the reason and ends.
    async fn read_refusal(mut self, reason: &str) {
        let mut said = None;
        while let Ok(Some(message)) = self.session.message().await {
            said = message.closing.or(said);
        }
        assert_eq!(said.map(|it| it.reason).as_deref(), Some(reason), "on a session");
        for socket in &mut self.sockets {
            let mut closed = None;
            while let Some(Ok(message)) = socket.next().await {
                if let Message::Close(Some(frame)) = message {
                    closed = Some((u16::from(frame.code), frame.reason.to_string()));
                }
            }
            assert_eq!(closed, Some((1011, reason.to_owned())), "on a socket");
        }
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Where clients need a certificate, a client without one gets an error.
async fn unknown(seen: &mut Seen) {
    let dir = tempfile::tempdir().unwrap();
    let cert_files = Authority::new(dir.path(), "ours").sign("a");
    let theirs = Authority::new(dir.path(), "clients").sign("somebody");
    let files = ServerTlsFiles {
        cert: cert_files.cert.clone(),
        key: cert_files.key.clone(),
        client_ca: Some(theirs.ca),
        member_ca: None,
    };
    let tls = Some(Arc::new(ServerTls::load(files).unwrap()));
    let running = run(ServerSettings { tls, ..settings(&dir.path().join("a")) });
    let at = under_tls(running.clients, &cert_files.ca).await;
    refuse(seen, &apis(at), "UNAUTHENTICATED", |number| {
        ask(Command::Put(put(format!("k/{number}"), 1)))
    })
    .await;
    running.stop();
}

/// An address whose plain connections are forwarded to a member over TLS, without a client certificate.
async fn under_tls(to: SocketAddr, ca: &Path) -> SocketAddr {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut plain, _)) = listener.accept().await {
            let connector = connector.clone();
            tokio::spawn(async move {
                let stream = TcpStream::connect(to).await?;
                let mut stream =
                    connector.connect(ServerName::try_from("a").unwrap(), stream).await?;
                tokio::io::copy_bidirectional(&mut plain, &mut stream).await
            });
        }
    });
    at
}
