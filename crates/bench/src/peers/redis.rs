//! Compares one Redis that syncs every write.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use super::CONNECTIONS;
use super::install;
use super::servers::{PeerServers, ServerSpec, free_ports};
use super::system::{ClientShape, KeptLeases, PeerClient, PeerDescription, PeerSystem};
use super::together::together;
use super::workload::PeerWorkload;

/// Deletes a lock if it is still the owner's.
const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                       return redis.call('del', KEYS[1]) else return 0 end";
/// Gives a lock its whole ttl again if it is still the owner's.
const EXTEND: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                      return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
/// The pause of a client that finds a lock taken, in milliseconds: the mean is 10.
const PAUSE_MS: std::ops::RangeInclusive<u64> = 5..=15;

/// One Redis with `appendfsync always`.
#[derive(Default)]
pub struct RedisPeer {
    program: PathBuf,
}

/// A client of Redis. The scripts are loaded, and called by their hashes.
#[derive(Clone)]
pub struct RedisClient {
    connection: MultiplexedConnection,
    release: Arc<str>,
    extend: Arc<str>,
    ttl: Duration,
}

/// A lock, and the value that only its owner knows.
pub struct RedisLock {
    key: String,
    owner: u64,
}

impl RedisClient {
    /// Tries once.
    async fn take(&mut self, lock: &str) -> Result<Option<RedisLock>> {
        let held = RedisLock { key: lock.to_owned(), owner: fastrand::u64(..) };
        let mut set = redis::cmd("SET");
        set.arg(&held.key).arg(held.owner).arg("NX").arg("PX").arg(ms(self.ttl));
        let taken: Option<String> = set.query_async(&mut self.connection).await?;
        Ok(taken.map(|_| held))
    }

    async fn extend(&mut self, held: &RedisLock) -> Result<()> {
        let mut extend = redis::cmd("EVALSHA");
        extend.arg(&*self.extend).arg(1).arg(&held.key).arg(held.owner).arg(ms(self.ttl));
        let done: i64 = extend.query_async(&mut self.connection).await?;
        ensure!(done == 1, "the lock was lost");
        Ok(())
    }

    /// Extends a lock three times in its ttl.
    async fn keep(&mut self, held: &RedisLock) -> Result<()> {
        loop {
            tokio::time::sleep(self.ttl / 3).await;
            self.extend(held).await?;
        }
    }
}

impl PeerClient for RedisClient {
    type Held = RedisLock;

    async fn acquire_free(&mut self, lock: &str) -> Result<RedisLock> {
        self.take(lock).await?.context("the lock is taken")
    }

    async fn acquire_queued(&mut self, lock: &str) -> Result<RedisLock> {
        loop {
            if let Some(held) = self.take(lock).await? {
                return Ok(held);
            }
            tokio::time::sleep(Duration::from_millis(fastrand::u64(PAUSE_MS))).await;
        }
    }

    async fn release(&mut self, held: RedisLock) -> Result<()> {
        let mut release = redis::cmd("EVALSHA");
        release.arg(&*self.release).arg(1).arg(&held.key).arg(held.owner);
        let done: i64 = release.query_async(&mut self.connection).await?;
        ensure!(done == 1, "the lock was lost");
        Ok(())
    }

    async fn hold(&mut self, held: RedisLock) -> Result<()> {
        self.keep(&held).await
    }

    async fn write(&mut self, key: &str) -> Result<()> {
        let _: String =
            redis::cmd("SET").arg(key).arg("x").query_async(&mut self.connection).await?;
        Ok(())
    }

    async fn read(&mut self, key: &str) -> Result<()> {
        let value: Option<String> =
            redis::cmd("GET").arg(key).query_async(&mut self.connection).await?;
        ensure!(value.is_some(), "the key is not there");
        Ok(())
    }
}

fn ms(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
}

async fn connect(addresses: &[String], ttl: Duration) -> Result<RedisClient> {
    let address = addresses.first().context("there is a server")?;
    let client = redis::Client::open(format!("redis://{address}/"))?;
    // The default answers within half a second or fails; a queue of pollers takes longer.
    let config =
        redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)));
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    let mut hashes = Vec::new();
    for script in [RELEASE, EXTEND] {
        let hash: String =
            redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut connection).await?;
        hashes.push(Arc::from(hash));
    }
    let Ok([release, extend]) = <[Arc<str>; 2]>::try_from(hashes) else { bail!("two scripts") };
    Ok(RedisClient { connection, release, extend, ttl })
}

async fn connections(
    addresses: &[String],
    count: usize,
    ttl: Duration,
) -> Result<Vec<RedisClient>> {
    let addresses: Arc<[String]> = addresses.into();
    together(count, move |_| {
        let addresses = addresses.clone();
        async move { connect(&addresses, ttl).await }
    })
    .await
}

impl PeerSystem for RedisPeer {
    type Client = RedisClient;

    fn name(&self) -> &'static str {
        "redis"
    }

    fn install(&mut self) -> Result<PeerDescription> {
        self.program = install::program("redis-server", &["redis-server"])?;
        let version = install::output(std::process::Command::new(&self.program).arg("--version"))?;
        let version = version.split_whitespace().find_map(|word| word.strip_prefix("v="));
        Ok(PeerDescription {
            version: format!("Redis {}", version.unwrap_or("of unknown version")),
            client: "the crate `redis`, with its multiplexed connections".into(),
            way: "`SET NX PX`, and a Lua script that deletes the key if it is the owner's. There is no queue: a \
                  client that finds the lock taken sleeps for 5 to 15 ms and tries again. No fencing token. One \
                  server: its loss loses the locks."
                .into(),
            settings: vec![
                "one server, `appendonly yes`, `appendfsync always`, `save \"\"`, `maxclients 20000`".into(),
            ],
        })
    }

    async fn start(&self, dir: &Path) -> Result<PeerServers> {
        let [port] = free_ports()?;
        let (port, data) = (port.to_string(), dir.display().to_string());
        let arguments = [
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--dir",
            &data,
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--maxclients",
            "20000",
            "--daemonize",
            "no",
        ];
        let address = format!("127.0.0.1:{port}");
        let mut servers = PeerServers::start(vec![ServerSpec {
            program: self.program.clone(),
            arguments: arguments.map(str::to_owned).to_vec(),
            address: address.clone(),
            status: address.clone(),
            log: dir.join("redis.log"),
        }])?;
        let addresses = [address];
        let up = async || connect(&addresses, Duration::from_secs(1)).await.ok().map(drop);
        servers.until("starting Redis", up).await?;
        Ok(servers)
    }

    fn cannot(&self, workload: PeerWorkload) -> Option<&'static str> {
        match workload {
            PeerWorkload::LeaderKilled => Some("one server: no other takes over"),
            PeerWorkload::Watchers { .. } => Some(
                "its notifications are lost when a connection breaks; it has no watch that resumes",
            ),
            _ => None,
        }
    }

    async fn clients(&self, addresses: &[String], shape: ClientShape) -> Result<Vec<RedisClient>> {
        let connected = connections(addresses, shape.connections, shape.ttl).await?;
        Ok((0..shape.clients).map(|at| connected[at % connected.len()].clone()).collect())
    }

    async fn leader(&self, _servers: &PeerServers) -> Result<usize> {
        Ok(0)
    }

    async fn fsyncs(&self, _servers: &PeerServers) -> Result<Option<u64>> {
        Ok(None)
    }

    async fn queue_len(&self, _addresses: &[String], _lock: &str) -> Result<Option<u64>> {
        Ok(None)
    }

    async fn keep_leases(
        &self,
        addresses: &[String],
        count: usize,
        ttl: Duration,
    ) -> Result<KeptLeases> {
        let connected = connections(addresses, CONNECTIONS, ttl).await?;
        let name = fastrand::u64(..);
        let locks = together(count, |at| {
            let mut client = connected[at % connected.len()].clone();
            async move {
                let held = client.acquire_free(&format!("lease-{name}-{at}")).await?;
                Ok((client, held))
            }
        });
        let lost = Arc::new(AtomicU64::new(0));
        let mut kept = JoinSet::new();
        for (mut client, held) in locks.await? {
            let lost = lost.clone();
            kept.spawn(async move {
                // Clients that started together do not extend together for ever.
                tokio::time::sleep(ttl.mul_f64(fastrand::f64() / 3.0)).await;
                let _ended = client.keep(&held).await;
                lost.fetch_add(1, Ordering::AcqRel);
            });
        }
        let living = async move { Ok(count - usize::try_from(lost.load(Ordering::Acquire))?) };
        Ok(KeptLeases { kept: Box::new(kept), living: Box::pin(living) })
    }

    async fn watch(
        &self,
        _addresses: &[String],
        _key: &str,
        _count: usize,
        _heard: Arc<AtomicU64>,
    ) -> Result<JoinSet<Result<()>>> {
        bail!("Redis has no watch that resumes")
    }
}
