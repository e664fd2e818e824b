//! Keeps locks in etcd, whose revisions are the fencing tokens.
//!
//! A client puts the key under a lease, if the key does not exist. The revision of that put is the token. Revisions of
//! etcd only grow, so each token is larger than all before it. A renewal grants a new lease and moves the key to it; a
//! quorum agrees on both. A keep-alive would be cheaper, but a member that wrongly believes that it leads would answer
//! it, too.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::Token;
use tenure::engine::random;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status, Streaming};

use crate::backend::{Backend, Fenced, Owner, Put, StoreError, Watch};

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod wire {
    tonic::include_proto!("etcdserverpb");
}

use wire::compare::{CompareResult, CompareTarget, TargetUnion};
use wire::kv_client::KvClient;
use wire::lease_client::LeaseClient;
use wire::request_op;
use wire::watch_client::WatchClient;
use wire::watch_create_request::FilterType;
use wire::watch_request::RequestUnion;

/// The default prefix of keys.
const PREFIX: &str = "tenure/";
/// The idle time after which the client sends a keep-alive ping. etcd rejects clients that ping much more often.
const QUIET: Duration = Duration::from_secs(10);
/// How long the peer may take to answer the ping before the connection is closed.
const SILENT: Duration = Duration::from_secs(3);
/// The maximum time to connect.
const DIAL: Duration = Duration::from_secs(2);
/// How often a swap is tried again because the key was moved to another lease meanwhile. Only other attempts of the
/// same owner move it.
const SWAPS_MAX: u32 = 4;

/// Locks in etcd, version 3.4 or later.
///
/// etcd counts in whole seconds, rounded up, and extends short ttls (by default to 2 s). That is safe, but a crash is
/// noticed later.
///
/// ```no_run
/// # use tenure_backends::{Error, Etcd, Locks};
/// # async fn example() -> Result<(), Error> {
/// let etcd = Etcd::new("http://10.0.0.11:2379,http://10.0.0.12:2379")?;
/// let guard = Locks::new(etcd)?.lock("deploy").await?;
/// println!("token {}", guard.token());
/// guard.release().await
/// # }
/// ```
#[derive(Clone)]
pub struct Etcd {
    members: Arc<EtcdMembers>,
    prefix: Arc<str>,
}

struct EtcdMembers {
    channels: Vec<Channel>,
    /// The index of the member to ask.
    turn: AtomicUsize,
}

/// The certificate files of an etcd under TLS, all in PEM form.
///
/// ```
/// let tls = tenure_backends::EtcdTls::new("/etc/etcd/ca.pem");
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is read until it is used"]
pub struct EtcdTls {
    ca: PathBuf,
    identity: Option<(PathBuf, PathBuf)>,
}

impl EtcdTls {
    /// Trusts certificates that this authority signed.
    ///
    /// ```
    /// let tls = tenure_backends::EtcdTls::new("/etc/etcd/ca.pem");
    /// ```
    pub fn new(ca: impl Into<PathBuf>) -> Self {
        Self { ca: ca.into(), identity: None }
    }

    /// Presents this certificate; `key` is its private key.
    ///
    /// ```
    /// let tls = tenure_backends::EtcdTls::new("ca.pem").identity("me.pem", "me.key");
    /// ```
    pub fn identity(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((cert.into(), key.into()));
        self
    }

    fn read(&self) -> Result<ClientTlsConfig, crate::Error> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error| {
                crate::Error::Setup(format!("cannot read {}: {error}", path.display()))
            })
        };
        let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&self.ca)?));
        Ok(match &self.identity {
            Some((cert, key)) => config.identity(Identity::from_pem(read(cert)?, read(key)?)),
            None => config,
        })
    }
}

/// A watch on a key in etcd.
///
/// ```no_run
/// # use tenure_backends::{Backend, Etcd, StoreError, Watch};
/// # async fn example(etcd: Etcd) -> Result<(), StoreError> {
/// etcd.watch("deploy").await?.changed().await
/// # }
/// ```
pub struct EtcdWatch {
    from: Streaming<wire::WatchResponse>,
    // The stream ends when its sending half is closed.
    _to: mpsc::UnboundedSender<wire::WatchRequest>,
}

impl Etcd {
    /// Creates locks in the etcd that has members at these addresses, separated by commas. Connects on first use, and
    /// must be called inside a Tokio runtime.
    ///
    /// ```
    /// # use tenure_backends::Etcd;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # let _inside = runtime.enter();
    /// assert!(Etcd::new("http://127.0.0.1:2379").is_ok());
    /// assert!(Etcd::new("no address").is_err());
    /// ```
    pub fn new(addresses: &str) -> Result<Self, crate::Error> {
        Self::connect(addresses, None)
    }

    /// Does the same under TLS, for clusters that require it. Addresses begin with `https://`.
    ///
    /// ```no_run
    /// # use tenure_backends::{Etcd, EtcdTls};
    /// # fn example() -> Result<(), tenure_backends::Error> {
    /// let tls = EtcdTls::new("/etc/etcd/ca.pem").identity("/etc/etcd/me.pem", "/etc/etcd/me.key");
    /// let etcd = Etcd::secured("https://10.0.0.11:2379,https://10.0.0.12:2379", &tls)?;
    /// # Ok(()) }
    /// ```
    pub fn secured(addresses: &str, tls: &EtcdTls) -> Result<Self, crate::Error> {
        Self::connect(addresses, Some(tls.read()?))
    }

    fn connect(addresses: &str, tls: Option<ClientTlsConfig>) -> Result<Self, crate::Error> {
        let setup = |address: &str| crate::Error::Setup(format!("`{address}` is no address"));
        let each = addresses.split(',').map(str::trim).filter(|it| !it.is_empty());
        let channel = |address: &str| {
            let whole = address.contains("://");
            let address = if whole { address.to_owned() } else { format!("http://{address}") };
            let endpoint = Endpoint::from_shared(address.clone()).map_err(|_| setup(&address))?;
            let endpoint = match &tls {
                Some(tls) => endpoint.tls_config(tls.clone()).map_err(|error| {
                    crate::Error::Setup(format!("the certificates cannot be used: {error}"))
                })?,
                None => endpoint,
            };
            let endpoint = endpoint
                .connect_timeout(DIAL)
                .tcp_nodelay(true)
                .http2_keep_alive_interval(QUIET)
                .keep_alive_timeout(SILENT)
                .keep_alive_while_idle(true);
            Ok(endpoint.connect_lazy())
        };
        let channels: Vec<Channel> = each.map(channel).collect::<Result<_, crate::Error>>()?;
        if channels.is_empty() {
            return Err(setup(addresses));
        }
        let members = EtcdMembers { channels, turn: AtomicUsize::new(0) };
        Ok(Self { members: Arc::new(members), prefix: Arc::from(PREFIX) })
    }

    /// Sets the prefix of keys. The default is `tenure/`.
    ///
    /// ```no_run
    /// # use tenure_backends::Etcd;
    /// # fn example(etcd: Etcd) {
    /// let etcd = etcd.prefix("billing/locks/");
    /// # }
    /// ```
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = Arc::from(prefix);
        self
    }

    fn key(&self, lock: &str) -> Vec<u8> {
        format!("{}{lock}", self.prefix).into_bytes()
    }

    /// Asks one member. If it fails, or if the caller stops waiting, the next call asks the next member.
    async fn ask<T, F>(&self, ask: impl FnOnce(Channel) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut turn = MemberRotation { members: &self.members, at: 0, good: false };
        turn.at = self.members.turn.load(Ordering::Relaxed);
        let channel = self.members.channels[turn.at % self.members.channels.len()].clone();
        let asked = ask(channel).await;
        turn.good = match &asked {
            Ok(_) => true,
            Err(status) => status.code() == tonic::Code::NotFound,
        };
        asked.map_err(|status| StoreError::new(format!("etcd: {}", status.message())))
    }

    async fn txn(&self, txn: wire::TxnRequest) -> Result<wire::TxnResponse, StoreError> {
        let asked = self.ask(|channel| async move { KvClient::new(channel).txn(led(txn)).await });
        Ok(asked.await?.into_inner())
    }

    /// Reads the key linearizably.
    async fn get(&self, key: &[u8]) -> Result<Option<wire::KeyValue>, StoreError> {
        let range = wire::RangeRequest { key: key.to_vec() };
        let asked =
            self.ask(|channel| async move { KvClient::new(channel).range(led(range)).await });
        Ok(asked.await?.into_inner().kvs.into_iter().next())
    }

    /// Grants a new lease, with an id drawn here.
    async fn lease(&self, ttl: Duration) -> Result<i64, StoreError> {
        let id = i64::try_from(random() >> 1).unwrap_or(1).max(1);
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let ttl = i64::try_from(seconds).unwrap_or(i64::MAX);
        let grant = wire::LeaseGrantRequest { ttl, id };
        let asked = self
            .ask(|channel| async move { LeaseClient::new(channel).lease_grant(led(grant)).await });
        let granted = asked.await?.into_inner();
        if granted.error.is_empty() { Ok(granted.id) } else { Err(StoreError::new(granted.error)) }
    }

    /// Revokes a lease in the background, when no key is attached to it any more. If that fails, the lease expires.
    fn revoke(&self, id: i64) {
        if id == 0 {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            let revoke = wire::LeaseRevokeRequest { id };
            let asked = this.ask(|channel| async move {
                LeaseClient::new(channel).lease_revoke(led(revoke)).await
            });
            let _ = tokio::time::timeout(QUIET, asked).await;
        });
    }
}

/// Switches to the next member on drop, unless this one answered.
struct MemberRotation<'a> {
    members: &'a EtcdMembers,
    at: usize,
    good: bool,
}

impl Drop for MemberRotation<'_> {
    fn drop(&mut self) {
        if !self.good {
            let next = self.at.wrapping_add(1);
            // A task that noticed the failure at the same time may have switched already.
            let _ = self.members.turn.compare_exchange(
                self.at,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }
}

/// Asks a member to report that it knows no leader, instead of waiting for one.
fn led<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
    request
}

fn equal(key: &[u8], target: CompareTarget, value: TargetUnion) -> wire::Compare {
    wire::Compare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key: key.to_vec(),
        target_union: Some(value),
    }
}

fn put(key: &[u8], owner: &Owner, lease: i64) -> wire::RequestOp {
    let put = wire::PutRequest { key: key.to_vec(), value: owner.as_str().into(), lease };
    wire::RequestOp { request: Some(request_op::Request::RequestPut(put)) }
}

fn if_then(compare: wire::Compare, then: wire::RequestOp) -> wire::TxnRequest {
    wire::TxnRequest { compare: vec![compare], success: vec![then], failure: Vec::new() }
}

impl Backend for Etcd {
    type Promise = Fenced;
    type Watch = EtcdWatch;

    async fn put_if_absent(
        &self,
        lock: &str,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Put<Fenced>, StoreError> {
        let key = self.key(lock);
        // Read first, so that clients that only wait write nothing.
        if self.get(&key).await?.is_some() {
            return Ok(Put::Taken { free_within: None });
        }
        let lease = self.lease(ttl).await?;
        let absent = equal(&key, CompareTarget::Create, TargetUnion::CreateRevision(0));
        let done = self.txn(if_then(absent, put(&key, owner, lease))).await?;
        if !done.succeeded {
            self.revoke(lease);
            return Ok(Put::Taken { free_within: None });
        }
        let revision = done.header.map_or(0, |header| header.revision);
        let token = u64::try_from(revision).ok().and_then(Token::from_u64);
        token.map(Put::Done).ok_or_else(|| StoreError::new("etcd: a revision that is none"))
    }

    async fn compare_and_swap(
        &self,
        lock: &str,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let key = self.key(lock);
        let lease = self.lease(ttl).await?;
        for _ in 0..SWAPS_MAX {
            let found = self.get(&key).await?;
            let Some(found) = found.filter(|it| it.value == owner.as_str().as_bytes()) else {
                self.revoke(lease);
                return Ok(false);
            };
            // Compare the revision that was read: a late attempt must not move the key back to an older lease.
            let seen = TargetUnion::ModRevision(found.mod_revision);
            let unmoved = equal(&key, CompareTarget::Mod, seen);
            if self.txn(if_then(unmoved, put(&key, owner, lease))).await?.succeeded {
                self.revoke(found.lease);
                return Ok(true);
            }
        }
        self.revoke(lease);
        Err(StoreError::new("etcd: the key did not stand still"))
    }

    async fn compare_and_delete(&self, lock: &str, owner: &Owner) -> Result<bool, StoreError> {
        let key = self.key(lock);
        let value = TargetUnion::Value(owner.as_str().into());
        let ours = equal(&key, CompareTarget::Value, value);
        let delete = wire::DeleteRangeRequest { key, prev_kv: true };
        let delete = request_op::Request::RequestDeleteRange(delete);
        let done = self.txn(if_then(ours, wire::RequestOp { request: Some(delete) })).await?;
        for response in done.responses {
            if let Some(wire::response_op::Response::ResponseDeleteRange(it)) = response.response {
                it.prev_kvs.iter().for_each(|kv| self.revoke(kv.lease));
            }
        }
        Ok(done.succeeded)
    }

    async fn watch(&self, lock: &str) -> Result<EtcdWatch, StoreError> {
        let (to, requests) = mpsc::unbounded_channel();
        let create = wire::WatchCreateRequest {
            key: self.key(lock),
            start_revision: 0,
            // Renewals are puts, and no client waits for those.
            filters: vec![FilterType::Noput.into()],
        };
        let create = RequestUnion::CreateRequest(create);
        // The receiver is used below, so the send cannot fail.
        let _ = to.send(wire::WatchRequest { request_union: Some(create) });
        let requests = UnboundedReceiverStream::new(requests);
        let started = self.ask(|channel| async move {
            let mut from = WatchClient::new(channel).watch(led(requests)).await?.into_inner();
            // After this response, the server sends every event.
            match from.message().await? {
                Some(first) if first.created && !first.canceled => Ok(from),
                Some(first) => Err(Status::unavailable(first.cancel_reason)),
                None => Err(Status::unavailable("the watch ended before it began")),
            }
        });
        Ok(EtcdWatch { from: started.await?, _to: to })
    }
}

impl Watch for EtcdWatch {
    async fn changed(&mut self) -> Result<(), StoreError> {
        loop {
            match self.from.message().await {
                Ok(Some(said)) if said.canceled => return Err(StoreError::new(said.cancel_reason)),
                Ok(Some(said)) if !said.events.is_empty() => return Ok(()),
                Ok(Some(_)) => {}
                Ok(None) => return Err(StoreError::new("etcd: the watch ended")),
                Err(status) => return Err(StoreError::new(format!("etcd: {}", status.message()))),
            }
        }
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.members.channels.len();
        f.debug_struct("Etcd").field("members", &members).field("prefix", &self.prefix).finish()
    }
}

impl fmt::Debug for EtcdWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdWatch").finish_non_exhaustive()
    }
}
