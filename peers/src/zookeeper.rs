//! Compares three servers of ZooKeeper.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tenure_bench::peers::PeerWorkload;
use tenure_bench::peers::install;
use tenure_bench::peers::servers::{PeerServers, ServerSpec, ask, free_ports};
use tenure_bench::peers::system::{
    ClientShape, KeptLeases, PeerClient, PeerDescription, PeerSystem,
};
use tenure_bench::peers::together::together;
use tokio::task::JoinSet;
use zookeeper_client::{
    Acls, AddWatchMode, Client, CreateMode, CreateOptions, Error, SessionState,
};

/// Where Debian puts the server, and its configuration of what is logged.
const CLASS_PATH: &str = "/etc/zookeeper/conf:/usr/share/java/zookeeper.jar";
const JAR: &str = "/usr/share/java/zookeeper.jar";
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
/// The most sessions that fit: each is a connection, and a process has so many files and an address so many ports.
const SESSIONS_MAX: usize = 15_000;

/// Three servers of ZooKeeper.
#[derive(Default)]
pub(crate) struct ZooKeeperPeer {
    java: PathBuf,
}

/// A client. Clients that share a connection share its session.
pub(crate) struct ZooKeeperClient {
    client: Client,
}

fn ephemeral() -> CreateOptions<'static> {
    CreateMode::EphemeralSequential.with_acls(Acls::anyone_all())
}

fn persistent() -> CreateOptions<'static> {
    CreateMode::Persistent.with_acls(Acls::anyone_all())
}

impl ZooKeeperClient {
    /// Creates the node of this client below the lock, and returns its path.
    async fn enter(&self, dir: &str) -> Result<String> {
        let prefix = format!("{dir}/lock-");
        loop {
            match self.client.create(&prefix, &[], &ephemeral()).await {
                Ok((_, sequence)) => return Ok(format!("{prefix}{sequence}")),
                Err(Error::NoNode) => match self.client.create(dir, &[], &persistent()).await {
                    Ok(_) | Err(Error::NodeExists) => {}
                    Err(error) => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until no node below the lock is older than its own, by watching the one before it.
    async fn wait(&self, dir: &str, path: &str) -> Result<()> {
        loop {
            let mut nodes = self.client.list_children(dir).await?;
            // All have one prefix, and sequence numbers of one length.
            nodes.sort_unstable();
            let is_own = |it: &String| path.ends_with(it.as_str());
            let own = nodes.iter().position(is_own).context("the client's node is gone")?;
            let Some(before) = own.checked_sub(1) else { return Ok(()) };
            let before = format!("{dir}/{}", nodes[before]);
            let (stat, watch) = self.client.check_and_watch_stat(&before).await?;
            if stat.is_some() {
                watch.changed().await;
            }
        }
    }
}

impl PeerClient for ZooKeeperClient {
    /// The path of the client's node.
    type Held = String;

    async fn acquire_free(&mut self, lock: &str) -> Result<String> {
        self.acquire_queued(lock).await
    }

    async fn acquire_queued(&mut self, lock: &str) -> Result<String> {
        let dir = format!("/{lock}");
        let path = self.enter(&dir).await?;
        self.wait(&dir, &path).await?;
        Ok(path)
    }

    async fn release(&mut self, held: String) -> Result<()> {
        Ok(self.client.delete(&held, None).await?)
    }

    async fn hold(&mut self, _held: String) -> Result<()> {
        // The client keeps its session alive.
        let ended = self.client.state_watcher().changed().await;
        bail!("the session is {ended:?}")
    }

    async fn write(&mut self, key: &str) -> Result<()> {
        let path = format!("/{key}");
        match self.client.set_data(&path, b"x", None).await {
            Err(Error::NoNode) => drop(self.client.create(&path, b"x", &persistent()).await?),
            written => drop(written?),
        }
        Ok(())
    }

    async fn read(&mut self, key: &str) -> Result<()> {
        let path = format!("/{key}");
        // Both leave at once; a server answers a session in the order of its requests.
        let (synced, data) = (self.client.sync(&path), self.client.get_data(&path));
        synced.await?;
        ensure!(!data.await?.0.is_empty(), "the key is not there");
        Ok(())
    }
}

async fn connect(addresses: &[String], first: usize, timeout: Duration) -> Result<Client> {
    let mut servers = addresses.to_vec();
    servers.rotate_left(first % addresses.len().max(1));
    let connector = Client::connector().with_session_timeout(timeout);
    connector.connect(&servers.join(",")).await.context("connecting")
}

async fn connections(addresses: &[String], count: usize, timeout: Duration) -> Result<Vec<Client>> {
    let addresses: Arc<[String]> = addresses.into();
    together(count, move |at| {
        let addresses = addresses.clone();
        async move { connect(&addresses, at, timeout).await }
    })
    .await
}

impl PeerSystem for ZooKeeperPeer {
    type Client = ZooKeeperClient;

    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn install(&mut self) -> Result<PeerDescription> {
        if !Path::new(JAR).exists() {
            install::debian(&["zookeeper", "default-jre-headless"])?;
        }
        ensure!(Path::new(JAR).exists(), "the package `zookeeper` brought no {JAR}");
        self.java = install::program("java", &["default-jre-headless"])?;
        let mut query = Command::new("dpkg-query");
        query.args(["--show", "--showformat=${Version}", "zookeeper"]);
        let version = install::output(&mut query)?;
        // The version of ZooKeeper is before that of the package.
        let version = version.split('-').next().unwrap_or_default();
        Ok(PeerDescription {
            version: format!("ZooKeeper {version}"),
            client: "the crate `zookeeper-client`".into(),
            way: "The recipe of its documentation: an ephemeral sequential node, a list of the nodes, a watch of the \
                  one before, and a delete. Clients that share a connection share its session, which favours it. \
                  Waiters queue in order. Reads are `sync` and `getData`, sent together; this is as fresh as its \
                  clients can ask for, and strictly linearizable only while its leader does not change."
                .into(),
            settings: vec![
                "three servers on Java with `-Xmx1024m`, fsync before every acknowledgement (default)".into(),
                "`tickTime=1000`, so that a session of 2 s is allowed; `initLimit=10`, `syncLimit=5`, \
                 `maxClientCnxns=0`, logs errors only"
                    .into(),
            ],
        })
    }

    async fn start(&self, dir: &Path) -> Result<PeerServers> {
        let ports = free_ports::<9>()?;
        let line =
            |at: usize| format!("server.{}=127.0.0.1:{}:{}", at + 1, ports[3 + at], ports[6 + at]);
        let members = (0..3).map(line).collect::<Vec<_>>().join("\n");
        let mut specs = Vec::new();
        for (at, port) in ports.iter().enumerate().take(3) {
            let data = dir.join(format!("m{at}"));
            std::fs::create_dir_all(&data)?;
            std::fs::write(data.join("myid"), (at + 1).to_string())?;
            let settings = format!(
                "tickTime=1000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\nadmin.enableServer=false\n\
                 4lw.commands.whitelist=srvr,mntr\ndataDir={}\nclientPort={port}\n\
                 clientPortAddress=127.0.0.1\n{members}\n",
                data.display()
            );
            let file = dir.join(format!("m{at}.cfg"));
            std::fs::write(&file, settings)?;
            let file = file.display().to_string();
            let arguments = [
                "-Xmx1024m",
                "-Dzookeeper.root.logger=ERROR,CONSOLE",
                "-cp",
                CLASS_PATH,
                MAIN,
                &file,
            ];
            let address = format!("127.0.0.1:{port}");
            specs.push(ServerSpec {
                program: self.java.clone(),
                arguments: arguments.map(str::to_owned).to_vec(),
                address: address.clone(),
                status: address,
                log: dir.join(format!("m{at}.log")),
            });
        }
        let mut servers = PeerServers::start(specs)?;
        let addresses = servers.addresses();
        let up = async || {
            let serves = |it: &String| ask(it, "srvr").is_ok_and(|said| said.contains("Mode: "));
            if !addresses.iter().all(serves) {
                return None;
            }
            connect(&addresses, 0, Duration::from_secs(10)).await.ok().map(drop)
        };
        servers.until("starting three servers of ZooKeeper", up).await?;
        Ok(servers)
    }

    fn cannot(&self, workload: PeerWorkload) -> Option<&'static str> {
        match workload {
            PeerWorkload::Leases { leases } if leases > SESSIONS_MAX => Some(
                "a lease is a session, and each session a connection; so many do not fit on one machine",
            ),
            _ => None,
        }
    }

    async fn clients(
        &self,
        addresses: &[String],
        shape: ClientShape,
    ) -> Result<Vec<ZooKeeperClient>> {
        let connected = connections(addresses, shape.connections, shape.ttl).await?;
        let client =
            |at: usize| ZooKeeperClient { client: connected[at % connected.len()].clone() };
        Ok((0..shape.clients).map(client).collect())
    }

    async fn leader(&self, servers: &PeerServers) -> Result<usize> {
        let leads = |it: &&str| ask(it, "srvr").is_ok_and(|said| said.contains("Mode: leader"));
        servers.statuses().position(|it| leads(&it)).context("no server leads")
    }

    async fn fsyncs(&self, servers: &PeerServers) -> Result<Option<u64>> {
        let mut sum = 0;
        for status in servers.statuses() {
            let said = ask(status, "mntr")?;
            let count = said.lines().find_map(|it| it.strip_prefix("zk_cnt_fsynctime\t"));
            sum += count
                .and_then(|it| it.trim().parse::<u64>().ok())
                .context("a server counts its syncs")?;
        }
        Ok(Some(sum))
    }

    async fn queue_len(&self, addresses: &[String], lock: &str) -> Result<Option<u64>> {
        let client = connect(addresses, 0, Duration::from_secs(10)).await?;
        let stat = client.check_stat(&format!("/{lock}")).await?;
        Ok(Some(stat.map_or(Ok(0), |it| u64::try_from(it.num_children))?))
    }

    async fn keep_leases(
        &self,
        addresses: &[String],
        count: usize,
        ttl: Duration,
    ) -> Result<KeptLeases> {
        let kept = connections(addresses, count, ttl).await?;
        let looked_at = kept.clone();
        let living = async move {
            let lives = |it: &&Client| it.state() == SessionState::SyncConnected;
            Ok(looked_at.iter().filter(lives).count())
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
        // A server has one watch of a path for each session, so each watch has a session of its own.
        let clients = connections(addresses, count, Duration::from_secs(20)).await?;
        let mut tasks = JoinSet::new();
        let watches = together(count, |at| {
            let (client, path) = (clients[at].clone(), format!("/{key}"));
            async move {
                let watch = client.watch(&path, AddWatchMode::Persistent).await?;
                Ok((client, watch))
            }
        });
        for (client, mut watch) in watches.await.context("starting watches")? {
            let heard = heard.clone();
            tasks.spawn(async move {
                loop {
                    let event = watch.changed().await;
                    ensure!(
                        client.state() == SessionState::SyncConnected,
                        "a session ended: {event:?}"
                    );
                    heard.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        Ok(tasks)
    }
}
