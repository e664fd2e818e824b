//! Defines what the comparison needs of a system and of its clients.

use std::any::Any;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;

use super::load;
use super::results::SampleMetrics;
use super::servers::PeerServers;
use super::workload::{MeasurePlan, PeerWorkload};

/// A future of the main thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// How many clients to connect, and how.
#[derive(Clone, Copy, Debug)]
pub struct ClientShape {
    /// The clients. Each has a lease of its own, if the system has leases that are not connections.
    pub clients: usize,
    /// The connections that they share.
    pub connections: usize,
    /// How long a lock outlives its client.
    pub ttl: Duration,
}

/// One client of a system, with its lease or session.
pub trait PeerClient: Send + 'static {
    /// A lock that the client holds.
    type Held: Send;

    /// Takes a lock that no other client wants.
    fn acquire_free(&mut self, lock: &str) -> impl Future<Output = Result<Self::Held>> + Send;

    /// Takes a lock that other clients want too: waits for its turn, as the system does that.
    fn acquire_queued(&mut self, lock: &str) -> impl Future<Output = Result<Self::Held>> + Send;

    /// Gives a lock back, and waits until the system has confirmed it.
    fn release(&mut self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;

    /// Keeps a lock until the process is killed.
    fn hold(&mut self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;

    /// Writes a key, whether it exists or not.
    fn write(&mut self, key: &str) -> impl Future<Output = Result<()>> + Send;

    /// Reads a key that exists: the newest value that any client wrote.
    fn read(&mut self, key: &str) -> impl Future<Output = Result<()>> + Send;
}

/// Leases that a client keeps alive, and how to count those that live.
pub struct KeptLeases {
    /// Keeps what renews them.
    pub kept: Box<dyn Any + Send>,
    /// Asks how many of them live.
    pub living: Pin<Box<dyn Future<Output = Result<usize>>>>,
}

/// How a system is described on the page.
#[derive(Clone, Debug, Default)]
pub struct PeerDescription {
    /// The version that was started.
    pub version: String,
    /// The client library.
    pub client: String,
    /// How it takes and gives back a lock, and how its clients wait.
    pub way: String,
    /// What its servers are started with.
    pub settings: Vec<String>,
}

/// A system that is compared.
pub trait PeerSystem: Send + Sync + 'static {
    /// Its clients.
    type Client: PeerClient;

    /// The name on the command line and in the tables.
    fn name(&self) -> &'static str;

    /// Makes sure that its servers can be started, and returns its description.
    fn install(&mut self) -> Result<PeerDescription>;

    /// Starts its servers with their data below `dir`, and waits until they serve.
    fn start(&self, dir: &Path) -> impl Future<Output = Result<PeerServers>>;

    /// Why a workload does not apply to the system.
    fn cannot(&self, workload: PeerWorkload) -> Option<&'static str>;

    /// Connects clients.
    fn clients(
        &self,
        addresses: &[String],
        shape: ClientShape,
    ) -> impl Future<Output = Result<Vec<Self::Client>>>;

    /// The server that leads, counted from 0.
    fn leader(&self, servers: &PeerServers) -> impl Future<Output = Result<usize>>;

    /// The log syncs of all servers since they started; `None` if the system does not count them.
    fn fsyncs(&self, servers: &PeerServers) -> impl Future<Output = Result<Option<u64>>>;

    /// How many clients hold the lock or wait for it; `None` if the system keeps no queue.
    fn queue_len(
        &self,
        addresses: &[String],
        lock: &str,
    ) -> impl Future<Output = Result<Option<u64>>>;

    /// Takes leases and keeps them alive from this process.
    fn keep_leases(
        &self,
        addresses: &[String],
        count: usize,
        ttl: Duration,
    ) -> impl Future<Output = Result<KeptLeases>>;

    /// Starts watches of one key, and returns when all of them are established. Each adds to `heard` what it hears.
    fn watch(
        &self,
        addresses: &[String],
        key: &str,
        count: usize,
        heard: Arc<AtomicU64>,
    ) -> impl Future<Output = Result<JoinSet<Result<()>>>>;
}

/// A system whose client type is hidden.
pub trait AnyPeer {
    /// See [`PeerSystem::name`].
    fn name(&self) -> &'static str;
    /// See [`PeerSystem::install`].
    fn install(&mut self) -> Result<PeerDescription>;
    /// See [`PeerSystem::cannot`].
    fn cannot(&self, workload: PeerWorkload) -> Option<&'static str>;
    /// See [`PeerSystem::start`].
    fn start<'a>(&'a self, dir: &'a Path) -> LocalFuture<'a, Result<PeerServers>>;
    /// Runs one workload.
    fn measure<'a>(
        &'a self,
        servers: &'a mut PeerServers,
        workload: PeerWorkload,
        plan: &'a MeasurePlan,
    ) -> LocalFuture<'a, Result<SampleMetrics>>;
    /// Takes a lock, says so, and keeps it until this process is killed.
    fn hold<'a>(&'a self, addresses: &'a [String], lock: &'a str) -> LocalFuture<'a, Result<()>>;
}

impl<S: PeerSystem> AnyPeer for S {
    fn name(&self) -> &'static str {
        PeerSystem::name(self)
    }

    fn install(&mut self) -> Result<PeerDescription> {
        PeerSystem::install(self)
    }

    fn cannot(&self, workload: PeerWorkload) -> Option<&'static str> {
        PeerSystem::cannot(self, workload)
    }

    fn start<'a>(&'a self, dir: &'a Path) -> LocalFuture<'a, Result<PeerServers>> {
        Box::pin(PeerSystem::start(self, dir))
    }

    fn measure<'a>(
        &'a self,
        servers: &'a mut PeerServers,
        workload: PeerWorkload,
        plan: &'a MeasurePlan,
    ) -> LocalFuture<'a, Result<SampleMetrics>> {
        Box::pin(load::measure(self, servers, workload, plan))
    }

    fn hold<'a>(&'a self, addresses: &'a [String], lock: &'a str) -> LocalFuture<'a, Result<()>> {
        Box::pin(load::hold(self, addresses, lock))
    }
}
