//! Tests every gRPC call through the leader and through a follower: effects, refusals and error details.

mod admin;
mod bad;
#[path = "../support/bounded.rs"]
mod bounded;
mod calls;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod election;
mod faults;
mod session;
mod watch;

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tenure_wire::status::{EFFECT, REASON, error_from};
use tenure_wire::v1;
use tenure_wire::v1::cluster_service_client::ClusterServiceClient;
use tenure_wire::v1::election_service_client::ElectionServiceClient;
use tenure_wire::v1::key_service_client::KeyServiceClient;
use tenure_wire::v1::lease_service_client::LeaseServiceClient;
use tenure_wire::v1::lock_admin_service_client::LockAdminServiceClient;
use tenure_wire::v1::lock_service_client::LockServiceClient;
use tenure_wire::v1::maintenance_service_client::MaintenanceServiceClient;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

/// A client of every service at one member.
#[derive(Clone)]
struct Clients {
    lock: LockServiceClient<Channel>,
    locks: LockAdminServiceClient<Channel>,
    leases: LeaseServiceClient<Channel>,
    keys: KeyServiceClient<Channel>,
    elections: ElectionServiceClient<Channel>,
    cluster: ClusterServiceClient<Channel>,
    care: MaintenanceServiceClient<Channel>,
}

impl Clients {
    fn new(channel: &Channel) -> Self {
        Self {
            lock: LockServiceClient::new(channel.clone()),
            locks: LockAdminServiceClient::new(channel.clone()),
            leases: LeaseServiceClient::new(channel.clone()),
            keys: KeyServiceClient::new(channel.clone()),
            elections: ElectionServiceClient::new(channel.clone()),
            cluster: ClusterServiceClient::new(channel.clone()),
            care: MaintenanceServiceClient::new(channel.clone()),
        }
    }

    /// Grants a lease of its own, for a minute.
    async fn lease(&mut self, client: &str) -> i64 {
        let grant = v1::LeaseGrantRequest { ttl: 60, client_id: client.into(), ..nothing() };
        self.lock.lease_grant(grant).await.unwrap().into_inner().id
    }

    /// Acquires a free lock.
    async fn take(&mut self, name: &str, lease_id: i64) -> u64 {
        let ask = v1::TryLockRequest { name: name.into(), lease_id, ..nothing() };
        let taken = self.lock.try_lock(ask).await.unwrap().into_inner();
        assert!(taken.acquired, "{taken:?}");
        taken.fencing_token
    }

    /// The number of waiters of a lock.
    async fn waiting(&mut self, lock: &str) -> u64 {
        let ask = v1::GetLockRequest { lock: lock.into(), ..nothing() };
        self.locks.get(ask).await.unwrap().into_inner().lock.map_or(0, |lock| lock.waiting)
    }
}

fn nothing<T: Default>() -> T {
    T::default()
}

/// A name that no other test uses.
fn name(what: &str) -> String {
    static NEXT: AtomicI64 = AtomicI64::new(1);
    format!("{what}/{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A request with a timeout.
fn within<T>(time: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(time);
    request
}

/// A request that may be sent twice.
fn keyed<T>(key: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("idempotency-key", key.parse().unwrap());
    request
}

/// Checks a refused call: its code, the reason and the effect in the metadata, and the same in the details.
#[track_caller]
fn refused<T: std::fmt::Debug>(
    answer: Result<Response<T>, Status>,
    code: Code,
    reason: &str,
) -> v1::Error {
    let status = answer.map(Response::into_inner).expect_err(reason);
    told(&status, code, reason)
}

#[track_caller]
fn told(status: &Status, code: Code, reason: &str) -> v1::Error {
    let error = error_from(status).unwrap_or_else(|| panic!("no details: {status:?}"));
    assert_eq!((status.code(), &*error.reason), (code, reason), "{status:?}");
    assert_eq!(status.metadata().get(REASON).unwrap(), reason);
    let effect = if error.effect() == v1::Effect::None { "none" } else { "unknown" };
    assert_eq!(status.metadata().get(EFFECT).unwrap(), effect);
    assert_eq!(status.message(), error.message);
    assert!(!error.next.is_empty());
    error
}

/// Checks the header that every response has, and returns its revision.
#[track_caller]
fn heads(header: Option<&v1::Header>, member: u64) -> i64 {
    let header = header.expect("a header");
    assert_eq!(header.member_id, member);
    assert!(header.cluster_id != 0 && header.raft_term > 0, "{header:?}");
    header.revision
}
