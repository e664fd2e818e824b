//! Notices that another process released a lock of this run, as `tenure unlock` in the command does.
//!
//! The SDK is told of every loss that its own lease did not ask for. A release under the lease and the token of this
//! run is none to the cluster, whichever process sent it.

use std::convert::Infallible;
use std::time::Duration;

use tenure::{Client, Error, Guard, LeaseId, Lock, Refusal, Revision};
use tenure_wire::{convert, v1};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use v1::answer::Result as Answer;
use v1::request::Command;

/// How often a client that may not watch its lock asks what its lease holds, per ttl.
const QUESTIONS: u32 = 6;

/// A watch over all locks of a guard. Dropping it ends the watch.
pub(super) struct ReleaseWatch {
    _tasks: JoinSet<()>,
    released: UnboundedReceiver<String>,
}

impl ReleaseWatch {
    /// Watches every lock of the guard from its grant on.
    pub(super) fn start(client: &Client, guard: &Guard, ttl: Duration) -> Self {
        let (tell, released) = unbounded_channel();
        let mut tasks = JoinSet::new();
        for lock in guard.locks().cloned() {
            let (client, tell) = (client.clone(), tell.clone());
            let (lease, from) = (guard.lease(), guard.revision());
            tasks.spawn(async move {
                if watched(&client, &lock, from).await.is_err() {
                    polled(&client, &lock, lease, ttl / QUESTIONS).await;
                }
                let _ = tell.send(lock.name);
            });
        }
        Self { _tasks: tasks, released }
    }

    /// Waits until one of the locks was released, and returns its name.
    pub(super) async fn released(&mut self) -> String {
        match self.released.recv().await {
            Some(lock) => lock,
            None => std::future::pending().await,
        }
    }
}

/// Returns when the history shows the release.
async fn watched(client: &Client, lock: &Lock, from: Revision) -> Result<(), Error> {
    let mut watch = client.watch(&lock.name).from(from.next()).await?;
    while let Some(batch) = watch.next_raw().await? {
        if batch.events.iter().any(|event| is_release(event, lock)) {
            return Ok(());
        }
    }
    Err(Error::Unavailable)
}

fn is_release(event: &v1::Event, lock: &Lock) -> bool {
    let given_back = match event.cause() {
        v1::Cause::Released => true,
        // Below level 4 this is also the cause of a lock that goes with the lease of its own client.
        v1::Cause::Revoked => event.by.is_none() && event.left_ms.is_none(),
        _ => false,
    };
    given_back && event.token == lock.token.get()
}

/// Returns when the lease no longer holds the lock, for clients that may not watch it.
async fn polled(client: &Client, lock: &Lock, lease: LeaseId, every: Duration) {
    let lease = convert::lease(lease);
    loop {
        tokio::time::sleep(every).await;
        let ask = v1::GetLeaseRequest { lease, ..Default::default() };
        match client.ask(Command::GetLease(ask), None).await {
            Ok((Answer::Lease(it), _)) => {
                let holds = it.lease.map(|lease| lease.holds).unwrap_or_default();
                if !holds.iter().any(|it| it.token == lock.token.get()) {
                    return;
                }
            }
            // The SDK learns of the end of its lease by itself.
            Err(Error::Refused(Refusal::LeaseNotFound)) => {
                let _: Infallible = std::future::pending().await;
            }
            _ => {}
        }
    }
}
