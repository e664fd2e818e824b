//! Waits for locks inside of another `tenure run`, so that a deadlock among such runs is refused.
//!
//! The run around this one waits for this one, which the cluster cannot know: each has a lease of its own. So while
//! this run waits, its lease holds a marker, a lock with a unique name, and the lease of the run around it waits for
//! that marker. The chain of waits in the cluster is then complete.

use std::time::Duration;

use serde_json::{Map, Value};
use tenure::{Client, Error, Guard, Lease, LockAsk, Refusal, RequestId};
use tenure_wire::v1;
use tokio::task::JoinSet;
use tokio::time::Instant;
use v1::lock_admin_service_client::LockAdminServiceClient;

use crate::connection_args::request_id;

use super::environment::{LEASE, LOCKS, held_around};

/// How long the lease of the run around this one may take to wait for the marker, and how often to check.
const JOIN: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The run around this one, as the environment tells of it.
pub(super) struct OuterRun {
    lease: i64,
    /// Its locks and those of the runs around it, with their tokens.
    locks: Map<String, Value>,
}

impl OuterRun {
    /// Reads the environment. `None` outside of a run.
    pub(super) fn read() -> Option<Self> {
        std::env::var_os(LOCKS)?;
        let lease = std::env::var(LEASE).ok()?.parse().ok().filter(|lease| *lease > 0)?;
        Some(Self { lease, locks: held_around() })
    }

    /// The first of these locks that a run around this one holds.
    pub(super) async fn holds<'a>(&self, client: &Client, locks: &'a [String]) -> Option<&'a str> {
        for lock in locks {
            let Some(token) = self.locks.get(lock).and_then(Value::as_str) else { continue };
            let Ok(Some(shown)) = client.show(lock).await else { continue };
            if shown.holders.iter().any(|holder| holder.token.to_string() == token) {
                return Some(lock);
            }
        }
        None
    }

    /// Acquires the locks that `ask` asks for under `lease`, and waits for them if `patient`. `first` is one of them.
    pub(super) async fn acquire(
        &self,
        client: &Client,
        lease: &Lease,
        first: &str,
        patient: bool,
        ask: impl Fn() -> LockAsk,
    ) -> Result<Guard, Error> {
        match ask().no_wait().await {
            Err(Error::Refused(Refusal::Held(_))) if patient => {}
            answered => return answered,
        }
        let name = format!("{first}/.nested/{}", lease.id());
        let marker = lease.lock(&name).await?;
        let mut around = JoinSet::new();
        let (joins, id, outer) = (client.clone(), request_id(None), self.lease);
        let asked = v1::AcquireRequest { lock: name.clone(), lease: outer, ..Default::default() };
        // The cluster takes the request back when this call is cut off.
        around.spawn(async move { join(&joins, &id, asked).await });
        let until = Instant::now() + JOIN;
        while Instant::now() < until && !around.is_empty() {
            if client.show(&name).await?.is_some_and(|it| it.waiting > 0) {
                break;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let waits = ask();
        let granted = tokio::select! {
            granted = waits.into_future() => granted,
            refused = refusal(&mut around) => Err(refused),
        };
        drop(around);
        let _ = marker.release().await;
        granted
    }
}

/// Lets the outer lease wait for the marker.
async fn join(client: &Client, id: &RequestId, asked: v1::AcquireRequest) -> Result<(), Error> {
    let mut request = tonic::Request::new(asked);
    if let Ok(key) = id.to_string().parse() {
        request.metadata_mut().insert("idempotency-key", key);
    }
    let call = async |channel| LockAdminServiceClient::new(channel).acquire(request).await;
    client.order(id, None, call).await.map(|_| ())
}

/// Waits until the cluster refuses the wait of the outer lease, which then closes the circle. Every other end only
/// means that a deadlock is not seen.
async fn refusal(around: &mut JoinSet<Result<(), Error>>) -> Error {
    match around.join_next().await {
        Some(Ok(Err(error @ Error::Refused(Refusal::Deadlock { .. })))) => error,
        _ => std::future::pending().await,
    }
}
