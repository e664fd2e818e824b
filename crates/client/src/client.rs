//! Configures a client and connects it to a cluster.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Instrument;

use crate::ask::{AcquireOptions, LockAsk};
use crate::credentials::Credentials;
use crate::error::Error;
use crate::guard::Guard;
use crate::held_lease::{HeldLease, timing_of};
use crate::lease::Lease;
use crate::lease_state::LeaseState;
use crate::shared::{ClientSettings, ClientShared, TraceHook};
use crate::tls::{self, TlsFiles};

/// The address to connect to if none is configured.
const LOOPBACK: &str = "127.0.0.1:7450";
/// The environment variable with the members' addresses, separated by commas.
const ADDRESSES: &str = "TENURE_ADDR";
/// The environment variables that name files: the authority that signs the members' certificates, and the client's own
/// certificate and private key.
const CA: &str = "TENURE_CA";
const CERT: &str = "TENURE_CERT";
const KEY: &str = "TENURE_KEY";
/// The environment variables with an API key, and with the names of files that have an API key and a bearer token.
const API_KEY: &str = "TENURE_API_KEY";
const API_KEY_FILE: &str = "TENURE_API_KEY_FILE";
const TOKEN_FILE: &str = "TENURE_TOKEN_FILE";
/// The default bound on one request, and on the search for a member.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The default ttl of a lease.
const TTL: Duration = Duration::from_secs(15);
/// The most characters of the program and of the host in a name. Both, and the process id, fit into the 512 bytes that
/// a name may have.
const NAME_PART_MAX: usize = 60;

/// A connection to a cluster. Cheap to clone; all clones share their sessions.
///
/// ```no_run
/// # async fn migrate(token: tenure::Token) -> Result<(), tenure::Error> { Ok(()) }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let client = tenure::Client::from_env().await?;        // TENURE_ADDR, else loopback
/// client.run("deploy", async |guard| migrate(guard.token()).await).await?;
///
/// let guard = client.lock("deploy").await?;              // waits in the queue, with a lease of its own
/// migrate(guard.token()).await?;
/// guard.release().await?;                                // dropping releases too, in the background
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<ClientShared>,
}

/// The settings of a client before it connects.
///
/// ```no_run
/// # async fn example() -> Result<(), tenure::Error> {
/// use std::time::Duration;
/// let client = tenure::Client::builder()
///     .address("10.0.0.11:7450")
///     .address("10.0.0.12:7450")
///     .name("ci-7/4121")
///     .ttl(Duration::from_secs(30))
///     .connect()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is connected until `connect` is awaited"]
pub struct Builder {
    settings: ClientSettings,
    /// What is wrong with the API key, for [`connect`](Self::connect) to report.
    wrong_key: Option<String>,
}

/// An address, and the outcome of the last attempt to connect to it.
///
/// ```no_run
/// # fn example(client: tenure::Client) {
/// for tried in client.tried() { println!("{} {}", tried.address, tried.outcome); }
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Tried {
    /// The address that was tried.
    pub address: String,
    /// `connected`, or the reason why not.
    pub outcome: String,
}

impl Client {
    /// Returns a builder with the default settings.
    ///
    /// ```
    /// let builder = tenure::Client::builder().name("worker-1");
    /// ```
    pub fn builder() -> Builder {
        Builder {
            settings: ClientSettings {
                addresses: Vec::new(),
                name: own_name(),
                timeout: TIMEOUT,
                retry_refused: None,
                ttl: TTL,
                window: None,
                grace: Duration::ZERO,
                tls: TlsFiles::default(),
                trace: None,
                credentials: Credentials::default(),
            },
            wrong_key: None,
        }
    }

    /// Connects to the cluster that has members at these addresses, separated by commas.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tenure::Error> {
    /// let client = tenure::Client::connect("10.0.0.11:7450,10.0.0.12:7450").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(addresses: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().addresses(addresses.as_ref()).connect().await
    }

    /// Connects to the cluster that `TENURE_ADDR` names, or else to one on this machine; see [`Builder::from_env`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tenure::Error> {
    /// let client = tenure::Client::from_env().await?;
    /// # Ok(()) }
    /// ```
    pub async fn from_env() -> Result<Self, Error> {
        Self::builder().from_env().connect().await
    }

    /// Requests a lock under a new lease of its own. Awaiting it waits in the queue.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("deploy").await?;
    /// # guard.release().await }
    /// ```
    pub fn lock(&self, lock: impl Into<String>) -> LockAsk {
        LockAsk::own(self.shared.clone(), vec![lock.into()])
    }

    /// Requests several locks, all or none, under one new lease. The guard stands for all of them.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let both = client.lock_all(["accounts/7", "accounts/9"]).await?;
    /// # both.release().await }
    /// ```
    pub fn lock_all<I>(&self, locks: I) -> LockAsk
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        LockAsk::own(self.shared.clone(), locks.into_iter().map(Into::into).collect())
    }

    /// Requests any one of several locks under a new lease: the first, in the order of names, that is free. Until then
    /// the request waits in the queues of all of them and keeps its turn in each. [`Guard::name`](crate::Guard::name)
    /// tells which one it is. Needs feature level 13.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let gpu = client.lock_any(["gpu/0", "gpu/1", "gpu/2"]).await?;
    /// println!("working on {} under token {}", gpu.name(), gpu.token());
    /// # gpu.release().await }
    /// ```
    pub fn lock_any<I>(&self, locks: I) -> LockAsk
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.lock_all(locks).any()
    }

    /// Requests any slot of a pool under a new lease. The slots of `gpu/` are the semaphores below it whose sizes an
    /// operator has set, also those that are added while it waits. [`Guard::name`](crate::Guard::name) tells which one
    /// it is. [`shared`](LockAsk::shared) and [`slots`](LockAsk::slots) are refused. Needs feature level 13.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let gpu = client.pool("gpu/").await?;
    /// # gpu.release().await }
    /// ```
    pub fn pool(&self, prefix: impl Into<String>) -> LockAsk {
        self.lock(prefix).of_pool()
    }

    /// Requests a lease that several locks can be held under.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let lease = client.lease(std::time::Duration::from_secs(15)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn lease(&self, ttl: Duration) -> Result<Lease, Error> {
        if self.shared.cleanups.is_closing() {
            return Err(Error::Closed);
        }
        let ask = AcquireOptions { ttl: Some(ttl), ..AcquireOptions::new(Vec::new()) };
        let timing = timing_of(&self.shared, &ask)?;
        let span = tracing::debug_span!("lease", ttl = ?ttl);
        Ok(Lease { held: HeldLease::grant(&self.shared, timing).instrument(span).await? })
    }

    /// Requests a lock without queueing. Returns `None` if another client holds it.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let Some(guard) = client.try_lock("report").await? else { return Ok(()) };
    /// # guard.release().await }
    /// ```
    pub async fn try_lock(&self, lock: impl Into<String>) -> Result<Option<Guard>, Error> {
        self.lock(lock).try_acquire().await
    }

    /// Closes the client: takes no new requests for locks, ends those that wait, and waits until every guard is gone
    /// and the cluster has acknowledged every release. Call it before the program ends.
    ///
    /// The caller stops its work and drops its guards; this only waits for that. At the end of the time, returns
    /// [`Error::StillHeld`] if guards exist, and [`Error::Unknown`] if a release was not acknowledged; what is not
    /// released ends with its lease.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client, guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// drop(guard);
    /// client.close(std::time::Duration::from_secs(5)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn close(&self, within: Duration) -> Result<(), Error> {
        let (shared, began) = (&self.shared, Instant::now());
        shared.cleanups.close();
        let settled = shared.cleanups.changes(|| {
            let leases = shared.held();
            let idle = |lease: &HeldLease| lease.with_quietly(LeaseState::is_idle);
            let (idle, used): (Vec<_>, Vec<_>) = leases.into_iter().partition(|it| idle(it));
            idle.iter().for_each(|lease| lease.revoke_in_background());
            used.is_empty() && shared.cleanups.open() == 0
        });
        if tokio::time::timeout(within, settled).await.is_ok() {
            return Ok(());
        }
        let locks = |lease: &std::sync::Arc<HeldLease>| {
            lease.with_quietly(|state| state.in_use().map(str::to_owned).collect::<Vec<_>>())
        };
        let locks: Vec<String> = shared.held().iter().flat_map(locks).collect();
        Err(match locks.is_empty() {
            false => Error::StillHeld { locks },
            true => Error::Unknown { request: None, waited: began.elapsed() },
        })
    }

    /// Returns the client's name.
    ///
    /// ```no_run
    /// # fn example(client: tenure::Client) { println!("{}", client.name()); }
    /// ```
    pub fn name(&self) -> &str {
        &self.shared.settings.name
    }

    /// Returns the addresses that were tried, with their outcomes.
    ///
    /// ```no_run
    /// # fn example(client: tenure::Client) { assert!(!client.tried().is_empty()); }
    /// ```
    pub fn tried(&self) -> Vec<Tried> {
        tried(&self.shared)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Builder {
    /// Reads the environment: `TENURE_ADDR` has addresses separated by commas; `TENURE_CA`, `TENURE_CERT` and
    /// `TENURE_KEY` name the files of [`ca`](Self::ca) and [`identity`](Self::identity); `TENURE_API_KEY` is an
    /// [`api_key`](Self::api_key), or else `TENURE_API_KEY_FILE` names a file that has one, or else `TENURE_TOKEN_FILE`
    /// names a [`token_file`](Self::token_file).
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tenure::Error> {
    /// let client = tenure::Client::builder().from_env().name("worker-1").connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn from_env(self) -> Self {
        let file = |name| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
        let mut builder = self.addresses(&std::env::var(ADDRESSES).unwrap_or_default());
        let tls = &mut builder.settings.tls;
        tls.ca = file(CA).or(tls.ca.take());
        tls.identity = file(CERT).zip(file(KEY)).or(tls.identity.take());
        if let Some(key) = std::env::var(API_KEY).ok().filter(|key| !key.is_empty()) {
            return builder.api_key(key);
        }
        match (file(API_KEY_FILE), file(TOKEN_FILE)) {
            (Some(path), _) => match std::fs::read_to_string(&path) {
                Ok(key) => builder.api_key(key),
                Err(error) => {
                    builder.wrong_key = Some(format!("cannot read {}: {error}", path.display()));
                    builder
                }
            },
            (None, Some(path)) => builder.token_file(path),
            (None, None) => builder,
        }
    }

    /// Uses TLS with every member, and trusts certificates that this authority signed. The file is in PEM form. A
    /// member's certificate must name the host of its address. The client reads the file again for every connection.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tenure::Error> {
    /// let builder = tenure::Client::builder().address("https://a.example:7450").ca("/etc/tenure/ca.pem");
    /// let client = builder.connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.tls.ca = Some(path.into());
        self
    }

    /// Presents this certificate to members that ask for one. Both files are in PEM form; `key` is the private key of
    /// `cert`.
    ///
    /// ```
    /// let builder = tenure::Client::builder().ca("ca.pem").identity("me.pem", "me.key");
    /// ```
    pub fn identity(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.settings.tls.identity = Some((cert.into(), key.into()));
        self
    }

    /// Proves the client's identity with an API key (`tenure_…`). The client sends credentials only under TLS and on
    /// this machine, unless [`insecure_credentials`](Self::insecure_credentials) is set.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let key = std::fs::read_to_string("/etc/tenure/ci.key")?;
    /// let client = tenure::Client::builder().ca("/etc/tenure/ca.pem").api_key(key).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn api_key(mut self, key: impl AsRef<str>) -> Self {
        let insecure = self.settings.credentials.is_insecure();
        match Credentials::api_key(key.as_ref()) {
            Ok(credentials) => {
                self.settings.credentials = credentials.insecure(insecure);
                self.wrong_key = None;
            }
            Err(why) => self.wrong_key = Some(why.to_owned()),
        }
        self
    }

    /// Proves the client's identity with the bearer token (JWT) in a file. The client reads the file again when it
    /// changes, so a short-lived token, such as that of a Kubernetes service account, may be replaced at any time.
    ///
    /// ```
    /// let builder = tenure::Client::builder().token_file("/var/run/secrets/tokens/tenure");
    /// ```
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        let insecure = self.settings.credentials.is_insecure();
        self.settings.credentials = Credentials::token_file(path).insecure(insecure);
        self.wrong_key = None;
        self
    }

    /// For the project's own tools, which read credentials themselves.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.settings.credentials = credentials;
        self.wrong_key = None;
        self
    }

    /// Sends credentials to other machines in plain text too. Every machine on the way can read and use them then.
    ///
    /// ```
    /// let builder = tenure::Client::builder().address("10.0.0.11:7450").insecure_credentials(true);
    /// ```
    pub fn insecure_credentials(mut self, insecure: bool) -> Self {
        self.settings.credentials = self.settings.credentials.insecure(insecure);
        self
    }

    /// Adds the address of a member: `host:port`, or `https://host:port` to require TLS.
    ///
    /// ```
    /// let builder = tenure::Client::builder().address("10.0.0.11:7450");
    /// ```
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.settings.addresses.push(address.into());
        self
    }

    /// Adds several addresses, separated by commas.
    ///
    /// ```
    /// let builder = tenure::Client::builder().addresses("10.0.0.11:7450, 10.0.0.12:7450");
    /// ```
    pub fn addresses(mut self, addresses: &str) -> Self {
        let each = addresses.split(',').map(str::trim).filter(|it| !it.is_empty());
        self.settings.addresses.extend(each.map(str::to_owned));
        self
    }

    /// Sets the client's name. The default is the program, the host and the process id, as in `billing@web-3/4121`.
    ///
    /// ```
    /// let builder = tenure::Client::builder().name("ci-7/4121");
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// Sets how long a request may take, and how long the client looks for a member.
    ///
    /// ```
    /// let builder = tenure::Client::builder().timeout(std::time::Duration::from_secs(30));
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Sets how long [`connect`](Self::connect) keeps trying while every address refuses the connection. The default
    /// is the [`timeout`](Self::timeout), for programs that start together with the cluster.
    ///
    /// ```
    /// let builder = tenure::Client::builder().retry_refused(std::time::Duration::ZERO);
    /// ```
    pub fn retry_refused(mut self, time: Duration) -> Self {
        self.settings.retry_refused = Some(time);
        self
    }

    /// Sets the ttl of leases whose request does not set one.
    ///
    /// ```
    /// let builder = tenure::Client::builder().ttl(std::time::Duration::from_secs(30));
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// Sets how long leases are relied on after a renewal, unless a request sets it. The default is half of the ttl.
    ///
    /// ```
    /// let builder = tenure::Client::builder().window(std::time::Duration::from_secs(9));
    /// ```
    pub fn window(mut self, window: Duration) -> Self {
        self.settings.window = Some(window);
        self
    }

    /// Sets how long work takes to stop, unless a request sets it.
    ///
    /// ```
    /// let builder = tenure::Client::builder().grace(std::time::Duration::from_secs(2));
    /// ```
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// Sends the caller's trace context with its requests, for members that export traces.
    ///
    /// The client calls the hook for each request, on the task that makes the request, and sends what it returns as
    /// the W3C `traceparent` of that request. Requests of the client itself, such as renewals, run on tasks without a
    /// trace, where the hook returns `None`. The hook must be quick. The SDK depends on no tracing library: with
    /// OpenTelemetry, format the current span's context.
    ///
    /// ```
    /// fn traceparent() -> Option<String> {
    ///     // "00-" trace id "-" span id "-" flags, of the current span
    ///     Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned())
    /// }
    /// let builder = tenure::Client::builder().trace_context(traceparent);
    /// ```
    pub fn trace_context(
        mut self,
        hook: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.settings.trace = Some(TraceHook(Arc::new(hook)));
        self
    }

    /// Connects, and waits until a member has answered. Needs a Tokio runtime, on which the client's tasks will run.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tenure::Error> {
    /// let client = tenure::Client::builder().connect().await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(mut self) -> Result<Client, Error> {
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|_| Error::Setup("there is no Tokio runtime here".to_owned()))?;
        if self.settings.addresses.is_empty() {
            self.settings.addresses.push(LOOPBACK.to_owned());
        }
        if let Some(why) = self.wrong_key {
            return Err(Error::Setup(why));
        }
        let under_tls = self.settings.tls.ca.is_some();
        for address in &mut self.settings.addresses {
            let (bare, wants) = tls::split(address);
            // All sessions use TLS or none does: a mix would be worse than plain text everywhere.
            match (wants, under_tls) {
                (Some(true), false) => {
                    return Err(Error::Setup(format!("{address} needs an authority: `ca`")));
                }
                (Some(false), true) => {
                    return Err(Error::Setup(format!("{address} is in plain, but `ca` is set")));
                }
                _ => *address = bare.to_owned(),
            }
            self.settings.credentials.may_go_to(address, under_tls).map_err(Error::Setup)?;
        }
        let (began, timeout) = (Instant::now(), self.settings.timeout);
        let refused_for = self.settings.retry_refused.unwrap_or(timeout);
        let shared = ClientShared::start(self.settings, runtime)?;
        let session = tokio::select! {
            session = shared.session(began + timeout) => session,
            () = shared.refused(began + refused_for) => None,
        };
        match session {
            Some(_) => Ok(Client { shared }),
            None => Err(match shared.no_session() {
                Error::Unavailable => {
                    Error::Unreachable { waited: began.elapsed(), tried: tried(&shared) }
                }
                denied => denied,
            }),
        }
    }
}

fn tried(shared: &ClientShared) -> Vec<Tried> {
    let tried = shared.sessions.borrow().tried.clone();
    let one = |(address, outcome): &(String, String)| Tried {
        address: address.clone(),
        outcome: outcome.clone(),
    };
    tried.iter().map(one).collect()
}

/// The names of the program and the host, and the process id, as in `billing@web-3/4121`.
fn own_name() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(std::path::Path::file_name).unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let (program, host) = (name_part(&program.to_string_lossy()), name_part(&host));
    format!("{program}@{host}/{}", std::process::id())
}

/// A part of a name that the cluster accepts, whatever the file of the program is called: without control characters
/// and white space, and not too long.
fn name_part(text: &str) -> String {
    let part: String = text
        .chars()
        .filter(|c| !c.is_control() && !c.is_whitespace())
        .take(NAME_PART_MAX)
        .collect();
    if part.is_empty() { "unnamed".to_owned() } else { part }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_accepted_whatever_the_program_is_called() {
        assert_eq!(name_part("billing"), "billing");
        assert_eq!(name_part("bil\u{1b}[31ml\ning v2\u{85}"), "bil[31mlingv2");
        assert_eq!(name_part(" \n"), "unnamed");
        let longest = name_part(&"\u{10ffff}".repeat(300));
        let name = format!("{longest}@{longest}/{}", u32::MAX);
        assert!(tenure_types::Name::new(&name).is_ok(), "{}", name.len());
        assert!(tenure_types::Name::new(&own_name()).is_ok());
    }
}
