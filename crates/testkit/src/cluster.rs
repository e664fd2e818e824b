//! Runs a cluster inside a test, and injects faults into it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{Client, Guard, Urgency, virtual_time};
use tenure_server::inside::Inside;
use tokio::time::{sleep, timeout};

/// The number of members, as in most clusters: one may fail.
const MEMBERS: usize = 3;
/// How long to wait for a leader: several elections.
const LEAD: Duration = Duration::from_secs(30);
/// How often to check for a leader.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Why an operation on the cluster failed.
///
/// ```
/// use tenure_testkit::Error;
/// assert_eq!(Error::NotHeld.to_string(), "no client holds it");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No member led for thirty seconds of virtual time: fewer than two members run.
    #[error("no member leads")]
    NoLeader,
    /// The lease or lock to end does not exist.
    #[error("no client holds it")]
    NotHeld,
    /// The SDK returned an error.
    #[error(transparent)]
    Client(#[from] tenure::Error),
}

/// A cluster of three members inside this test.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tenure_testkit::Error> {
/// let cluster = tenure_testkit::Cluster::start().await?;
/// let client = cluster.client("worker-1").await?;
/// client.run("report", async |guard| -> Result<(), tenure::Error> {
///     println!("token {}", guard.token());
///     Ok(())
/// }).await?;
/// # Ok(()) }
/// ```
pub struct Cluster {
    inside: Inside,
    addresses: Vec<String>,
    suffix: String,
    _time: virtual_time::VirtualTimeScope,
}

/// A paused client. Dropping this resumes it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tenure_testkit::Error> {
/// # let cluster = tenure_testkit::Cluster::start().await?;
/// # let client = cluster.client("a").await?;
/// let paused = cluster.pause_client(&client);
/// drop(paused);
/// # Ok(()) }
/// ```
#[must_use = "dropping it lets the client run again"]
pub struct Paused {
    client: Client,
}

/// A client whose renewals are dropped. Dropping this lets renewals through again.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tenure_testkit::Error> {
/// # let cluster = tenure_testkit::Cluster::start().await?;
/// # let client = cluster.client("a").await?;
/// let dropped = cluster.drop_renewals(&client);
/// drop(dropped);
/// # Ok(()) }
/// ```
#[must_use = "dropping it has renewals sent again"]
pub struct Dropped {
    client: Client,
}

impl Cluster {
    /// Starts three members and waits until one of them leads.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tenure_testkit::Error> {
    /// let cluster = tenure_testkit::Cluster::start().await?;
    /// # Ok(()) }
    /// ```
    pub async fn start() -> Result<Self, Error> {
        static CLUSTERS: AtomicU64 = AtomicU64::new(0);
        let suffix = format!(".{}.tenure.test:7450", CLUSTERS.fetch_add(1, Ordering::Relaxed));
        let addresses: Vec<String> = (1..=MEMBERS).map(|at| format!("m{at}{suffix}")).collect();
        let time = virtual_time::enter();
        let inside = Inside::start(&addresses);
        virtual_time::add_dialler(&suffix, inside.dialler());
        let cluster = Self { inside, addresses, suffix, _time: time };
        cluster.led().await?;
        Ok(cluster)
    }

    /// Connects a new client with a name: the SDK as your program uses it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tenure_testkit::Error> {
    /// # let cluster = tenure_testkit::Cluster::start().await?;
    /// let client = cluster.client("worker-1").await?;
    /// assert_eq!(client.name(), "worker-1");
    /// # Ok(()) }
    /// ```
    pub async fn client(&self, name: &str) -> Result<Client, Error> {
        Ok(self.builder().name(name).connect().await?)
    }

    /// Returns a client builder with the addresses of the members, for settings of your own.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tenure_testkit::Error> {
    /// # let cluster = tenure_testkit::Cluster::start().await?;
    /// let client = cluster.builder().ttl(std::time::Duration::from_secs(60)).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn builder(&self) -> tenure::Builder {
        Client::builder().addresses(&self.addresses())
    }

    /// Returns the addresses of the members, separated by commas, for your program to connect to.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tenure_testkit::Error> {
    /// # let cluster = tenure_testkit::Cluster::start().await?;
    /// let client = tenure::Client::connect(cluster.addresses()).await?;
    /// # Ok(()) }
    /// ```
    pub fn addresses(&self) -> String {
        self.addresses.join(",")
    }

    /// Makes the lease of a guard expire at this moment, whatever its ttl, as if the cluster had received nothing for
    /// that long. The cluster's clock advances by as much, so the limits of waits and delays pass too; all other leases
    /// stay.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tenure_testkit::Error> {
    /// # let cluster = tenure_testkit::Cluster::start().await?;
    /// # let client = cluster.client("a").await?;
    /// let guard = client.lock("deploy").await?;
    /// cluster.expire_now(&guard).await?;
    /// assert_eq!(guard.lost().await, tenure::Cause::Expired);
    /// # Ok(()) }
    /// ```
    pub async fn expire_now(&self, guard: &Guard) -> Result<(), Error> {
        self.led().await?;
        if self.inside.let_expire(guard.lease()) { Ok(()) } else { Err(Error::NotHeld) }
    }

    /// Pauses a client, as SIGSTOP or a long garbage collection does: until the returned value is dropped, it renews
    /// nothing, receives nothing and signals nothing. The rest of the test continues. A guard that the test itself
    /// checks still compares the clock, as after a real pause.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tenure_testkit::Error> {
    /// # use std::time::Duration;
    /// # let cluster = tenure_testkit::Cluster::start().await?;
    /// let (a, b) = (cluster.client("a").await?, cluster.client("b").await?);
    /// let guard = a.lock("deploy").await?;
    /// let paused = cluster.pause_client(&a);
    /// let next = b.lock("deploy").await?;          // after the ttl of a's lease, in virtual time
    /// drop(paused);
    /// assert!(guard.check().is_err());
    /// # Ok(()) }
    /// ```
    pub fn pause_client(&self, client: &Client) -> Paused {
        client.pause(true);
        Paused { client: client.clone() }
    }

    /// Drops the renewals of a client on their way, until the returned value is dropped. Everything else arrives.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tenure_testkit::Error> {
    /// # let cluster = tenure_testkit::Cluster::start().await?;
    /// # let client = cluster.client("a").await?;
    /// let guard = client.lock("deploy").await?;
    /// let dropped = cluster.drop_renewals(&client);
    /// assert_eq!(guard.lost().await.word(), "cluster_unreachable");
    /// # drop(dropped);
    /// # Ok(()) }
    /// ```
    pub fn drop_renewals(&self, client: &Client) -> Dropped {
        client.drop_renewals(true);
        Dropped { client: client.clone() }
    }

    /// Kills the leader: its connections break, and another member leads when this returns. A member that was killed
    /// before is restarted first, so that there is a quorum. Leases, locks and places in queues survive.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tenure_testkit::Error> {
    /// # let cluster = tenure_testkit::Cluster::start().await?;
    /// # let client = cluster.client("a").await?;
    /// let guard = client.lock("deploy").await?;
    /// cluster.kill_leader().await?;
    /// guard.check()?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn kill_leader(&self) -> Result<(), Error> {
        self.restart_members().await?;
        let leader = self.led().await?;
        self.inside.kill(leader);
        self.led().await?;
        Ok(())
    }

    /// Kills all members but the leader. The leader still accepts requests, but nothing is committed any more, and
    /// clients learn that the outcome of their requests is unknown.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tenure_testkit::Error> {
    /// # let cluster = tenure_testkit::Cluster::start().await?;
    /// # let client = cluster.client("a").await?;
    /// cluster.lose_quorum().await?;
    /// let asked = client.lock("deploy").await;
    /// assert!(matches!(asked, Err(tenure::Error::Unknown { .. })));
    /// cluster.restart_members().await?;
    /// # Ok(()) }
    /// ```
    pub async fn lose_quorum(&self) -> Result<(), Error> {
        let leader = self.led().await?;
        for at in (0..MEMBERS).filter(|at| *at != leader) {
            self.inside.kill(at);
        }
        Ok(())
    }

    /// Restarts all members that were killed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tenure_testkit::Error> {
    /// # let cluster = tenure_testkit::Cluster::start().await?;
    /// cluster.kill_leader().await?;
    /// cluster.restart_members().await?;
    /// # Ok(()) }
    /// ```
    pub async fn restart_members(&self) -> Result<(), Error> {
        let running = self.inside.running();
        for at in (0..MEMBERS).filter(|at| !running.contains(at)) {
            self.inside.restart(at);
        }
        self.led().await?;
        Ok(())
    }

    /// Takes a lock away from its holder, as an operator does. The holder is notified, and the next grant waits until
    /// the holder has stopped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tenure_testkit::Error> {
    /// # let cluster = tenure_testkit::Cluster::start().await?;
    /// # let client = cluster.client("a").await?;
    /// let guard = client.lock("deploy").await?;
    /// cluster.force("deploy", "the runner was deleted").await?;
    /// assert_eq!(guard.lost().await, tenure::Cause::Forced);
    /// # Ok(()) }
    /// ```
    pub async fn force(&self, lock: &str, reason: &str) -> Result<(), Error> {
        let operator = self.client("operator").await?;
        let shown = operator.show(lock).await?;
        let holders = shown.map(|lock| lock.holders).unwrap_or_default();
        let token = holders.first().map(|holder| holder.token);
        let token = token.ok_or(Error::NotHeld)?;
        Ok(operator.force(lock, token, reason, Urgency::StopFirst).await?)
    }

    /// Waits until a member leads, and returns its index.
    async fn led(&self) -> Result<usize, Error> {
        let led = async {
            loop {
                match self.inside.leader() {
                    Some(leader) => return leader,
                    None => sleep(POLL_INTERVAL).await,
                }
            }
        };
        timeout(LEAD, led).await.map_err(|_| Error::NoLeader)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        virtual_time::remove_dialler(&self.suffix);
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.client.pause(false);
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.client.drop_renewals(false);
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl fmt::Debug for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paused").field("client", &self.client).finish()
    }
}

impl fmt::Debug for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dropped").field("client", &self.client).finish()
    }
}
