//! Compares Tenure: three members and the SDK.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tenure::{Client, Guard, Lease, Standing};
use tenure_server::{HealthListen, ServerSettings, StartMode};
use tokio::task::JoinSet;

use super::CONNECTIONS;
use super::install;
use super::servers::{PeerServers, ServerSpec, ask, counter, free_ports, get};
use super::system::{ClientShape, KeptLeases, PeerClient, PeerDescription, PeerSystem};
use super::together::together;
use super::workload::PeerWorkload;

/// How long a call may take; also the time in which a client finds another leader.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest queue that one of the workloads makes is longer than the default limit.
const WAITERS_MAX: u64 = 1_000_000;

/// Three members of Tenure.
pub struct TenurePeer {
    /// The program `tenure`. Without one, this program runs the members: the same server with the same settings.
    pub program: Option<PathBuf>,
}

/// A client of the SDK with its lease.
pub struct TenureClient {
    client: Client,
    lease: Lease,
}

impl PeerClient for TenureClient {
    type Held = Guard;

    async fn acquire_free(&mut self, lock: &str) -> Result<Guard> {
        Ok(self.lease.lock(lock).no_wait().await?)
    }

    async fn acquire_queued(&mut self, lock: &str) -> Result<Guard> {
        Ok(self.lease.lock(lock).await?)
    }

    async fn release(&mut self, held: Guard) -> Result<()> {
        Ok(held.release().await?)
    }

    async fn hold(&mut self, held: Guard) -> Result<()> {
        // The SDK renews the lease.
        bail!("the lock was lost: {:?}", held.lost().await)
    }

    async fn write(&mut self, key: &str) -> Result<()> {
        self.client.key(key).put("x").await?;
        Ok(())
    }

    async fn read(&mut self, key: &str) -> Result<()> {
        ensure!(self.client.key(key).get().await?.is_some(), "the key is not there");
        Ok(())
    }
}

impl TenurePeer {
    fn arguments(&self, at: usize, dir: &Path, ports: &MemberPorts) -> Vec<String> {
        let local = |port: u16| format!("127.0.0.1:{port}");
        let initial_members = (0..3).map(|at| format!("m{at}={}", local(ports.members[at])));
        let initial_members = initial_members.collect::<Vec<_>>().join(",");
        let data = dir.join(format!("m{at}")).display().to_string();
        let [clients, members, health] =
            [ports.clients[at], ports.members[at], ports.health[at]].map(local);
        let name = format!("m{at}");
        match self.program {
            Some(_) => [
                "serve",
                "--name",
                &name,
                "--data",
                &data,
                "--clients",
                &clients,
                "--members",
                &members,
                "--health",
                &health,
                "--bootstrap",
                &initial_members,
            ]
            .map(str::to_owned)
            .to_vec(),
            None => {
                ["peers", "--member", &name, &data, &clients, &members, &health, &initial_members]
                    .map(str::to_owned)
                    .to_vec()
            }
        }
    }
}

/// The ports of three members.
struct MemberPorts {
    clients: [u16; 3],
    members: [u16; 3],
    health: [u16; 3],
}

async fn connect(addresses: &[String], first: usize) -> Result<Client> {
    let mut builder = Client::builder().name("bench").timeout(TIMEOUT);
    for at in 0..addresses.len() {
        builder = builder.address(addresses[(first + at) % addresses.len()].clone());
    }
    builder.connect().await.context("connecting")
}

async fn connections(addresses: &[String], count: usize) -> Result<Vec<Client>> {
    let addresses: Arc<[String]> = addresses.into();
    together(count, move |at| {
        let addresses = addresses.clone();
        async move { connect(&addresses, at).await }
    })
    .await
}

async fn leases(clients: &[Client], count: usize, ttl: Duration) -> Result<Vec<TenureClient>> {
    together(count, |at| {
        let client = clients[at % clients.len()].clone();
        async move {
            let lease = client.lease(ttl).await.context("taking a lease")?;
            Ok(TenureClient { client, lease })
        }
    })
    .await
}

impl PeerSystem for TenurePeer {
    type Client = TenureClient;

    fn name(&self) -> &'static str {
        "tenure"
    }

    fn install(&mut self) -> Result<PeerDescription> {
        let version = match &self.program {
            Some(program) => install::output(std::process::Command::new(program).arg("--version"))?,
            None => format!("tenure {} (in the program that measures)", env!("CARGO_PKG_VERSION")),
        };
        Ok(PeerDescription {
            version: version.lines().next().unwrap_or_default().to_owned(),
            client: "its SDK, the crate `tenure`".into(),
            way: "`Lease::lock` and `Guard::release`. Each client has a lease of its own. Waiters queue in the \
                  cluster, in order, and are sent their grant. Reads confirm the leader."
                .into(),
            settings: vec![
                "three members, `tenure serve` with default settings: fdatasync before every acknowledgement, \
                 event archive on"
                    .into(),
                "limit `waiters_per_lock` raised to 1,000,000 (default 10,000)".into(),
            ],
        })
    }

    async fn start(&self, dir: &Path) -> Result<PeerServers> {
        let ports = free_ports::<9>()?;
        let of = |from: usize| [ports[from], ports[from + 1], ports[from + 2]];
        let ports = MemberPorts { clients: of(0), members: of(3), health: of(6) };
        let program = match &self.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().context("finding this program")?,
        };
        let spec = |at: usize| ServerSpec {
            program: program.clone(),
            arguments: self.arguments(at, dir, &ports),
            address: format!("127.0.0.1:{}", ports.clients[at]),
            status: format!("127.0.0.1:{}", ports.health[at]),
            log: dir.join(format!("m{at}.log")),
        };
        let mut servers = PeerServers::start((0..3).map(spec).collect())?;
        let addresses = servers.addresses();
        let body =
            format!(r#"{{"limits":[{{"limit":"waiters_per_lock","value":{WAITERS_MAX}}}]}}"#);
        let raise = format!(
            "PATCH /v1/limits HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            addresses[0],
            body.len()
        );
        let answered = async || ask(&addresses[0], &raise).ok().filter(|it| it.contains(" 200 "));
        servers.until("raising a limit of Tenure", answered).await?;
        let up = async || {
            let client = connect(&addresses, 0).await.ok()?;
            let status = client.status().await.ok()?;
            (status.survives == 1 && status.leader.is_some()).then_some(())
        };
        servers.until("starting three members of Tenure", up).await?;
        Ok(servers)
    }

    fn cannot(&self, _workload: PeerWorkload) -> Option<&'static str> {
        None
    }

    async fn clients(&self, addresses: &[String], shape: ClientShape) -> Result<Vec<TenureClient>> {
        let connected = connections(addresses, shape.connections).await?;
        leases(&connected, shape.clients, shape.ttl).await
    }

    async fn leader(&self, servers: &PeerServers) -> Result<usize> {
        let status = connect(&servers.addresses(), 0).await?.status().await?;
        let leader = status.leader.context("there is no leader")?;
        leader
            .strip_prefix('m')
            .and_then(|at| at.parse().ok())
            .context("a member is called m0 to m2")
    }

    async fn fsyncs(&self, servers: &PeerServers) -> Result<Option<u64>> {
        let mut sum = 0;
        for status in servers.statuses() {
            let page = get(status, "/metrics")?;
            sum += counter(&page, "tenure_fsyncs_total").context("a member counts its syncs")?;
        }
        Ok(Some(sum))
    }

    async fn queue_len(&self, addresses: &[String], lock: &str) -> Result<Option<u64>> {
        let shown = connect(addresses, 0).await?.show(lock).await?;
        Ok(Some(shown.map_or(0, |it| it.waiting + it.holders.len() as u64)))
    }

    async fn keep_leases(
        &self,
        addresses: &[String],
        count: usize,
        ttl: Duration,
    ) -> Result<KeptLeases> {
        let connected = connections(addresses, CONNECTIONS).await?;
        let kept = Arc::new(leases(&connected, count, ttl).await?);
        let observed = kept.clone();
        let living = async move {
            let lost = |it: &&TenureClient| matches!(it.lease.standing(), Standing::Lost(_));
            Ok(observed.len() - observed.iter().filter(lost).count())
        };
        Ok(KeptLeases { kept: Box::new(kept), living: Box::pin(living) })
    }

    async fn watch(
        &self,
        addresses: &[String],
        key: &str,
        count: usize,
        heard: Arc<AtomicU64>,
    ) -> Result<JoinSet<Result<()>>> {
        let connected = connections(addresses, CONNECTIONS.min(count)).await?;
        let watches = together(count, |at| {
            let (client, key) = (connected[at % connected.len()].clone(), key.to_owned());
            async move { Ok(client.watch(key).await?) }
        });
        let mut tasks = JoinSet::new();
        for mut watch in watches.await.context("starting watches")? {
            let heard = heard.clone();
            tasks.spawn(async move {
                while watch.next().await?.is_some() {
                    heard.fetch_add(1, Ordering::AcqRel);
                }
                Ok(())
            });
        }
        Ok(tasks)
    }
}

/// Runs one member until the process is killed: its name, data, three addresses, and all initial members.
pub(crate) fn serve_member(words: &[String]) -> Result<()> {
    let [name, data, clients, members, health, initial_members] = words else {
        bail!("a member has six words")
    };
    let initial_member = |it: &str| {
        let (name, address) = it.split_once('=')?;
        Some((name.to_owned(), address.to_owned()))
    };
    let initial_members = initial_members.split(',').map(initial_member).collect::<Option<_>>();
    let settings = ServerSettings {
        clients: clients.clone(),
        members: Some(members.clone()),
        health: HealthListen::At(health.clone()),
        entrance: StartMode::Bootstrap(
            initial_members.context("an initial member has a name and an address")?,
        ),
        ..ServerSettings::new(name.clone(), PathBuf::from(data))
    };
    let _running = tenure_server::start(settings)?;
    loop {
        std::thread::park();
    }
}
