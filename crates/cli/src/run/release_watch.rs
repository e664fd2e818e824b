//! Notices that another process released a lock of this run or handed it on, as `tenure unlock` and `tenure hand-on` in
//! the command do.
//!
//! The SDK is told of every loss that its own lease did not ask for. A release under the lease and the token of this
//! run is none to the cluster, whichever process sent it.

use std::convert::Infallible;
use std::time::Duration;

use tenure::{Client, Error, Guard, LeaseId, Refusal, Revision};
use tenure_wire::{convert, v1};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use v1::answer::Result as Answer;
use v1::request::Command;

/// How often a client that may not watch its lock asks what its lease holds, per ttl.
const QUESTIONS: u32 = 6;

/// How another process ended the hold of this run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GivenBack {
    Released,
    HandedOn,
    /// One of the two: a client that may not watch the lock sees only that its lease no longer holds it.
    Either,
}

/// A watch over all locks of a guard. Dropping it ends the watch.
pub(super) struct ReleaseWatch {
    _tasks: JoinSet<()>,
    ended: UnboundedReceiver<(String, GivenBack)>,
}

impl GivenBack {
    /// What was done to the lock.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::HandedOn => "handed on",
            Self::Either => "released or handed on",
        }
    }

    /// The command of `tenure` that does this.
    pub(super) fn command(self) -> &'static str {
        match self {
            Self::Released | Self::Either => "unlock",
            Self::HandedOn => "hand-on",
        }
    }

    /// The cause of this loss in events.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Released | Self::Either => "released",
            Self::HandedOn => "handed_on",
        }
    }
}

impl ReleaseWatch {
    /// Watches every lock of the guard from its grant on.
    pub(super) fn start(client: &Client, guard: &Guard, ttl: Duration) -> Self {
        let (tell, ended) = unbounded_channel();
        let mut tasks = JoinSet::new();
        for lock in guard.locks().cloned() {
            let (client, tell) = (client.clone(), tell.clone());
            let (lease, from) = (guard.lease(), guard.revision());
            tasks.spawn(async move {
                let mut token = lock.token.get();
                let how = match watched(&client, &lock.name, lease, from, &mut token).await {
                    Ok(how) => how,
                    Err(_) => {
                        polled(&client, token, lease, ttl / QUESTIONS).await;
                        GivenBack::Either
                    }
                };
                let _ = tell.send((lock.name, how));
            });
        }
        Self { _tasks: tasks, ended }
    }

    /// Waits until one of the locks was given back, and returns its name.
    pub(super) async fn given_back(&mut self) -> (String, GivenBack) {
        match self.ended.recv().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }
}

/// Returns when the history shows that the hold was given back. Keeps the token of the hold up to date.
async fn watched(
    client: &Client,
    lock: &str,
    lease: LeaseId,
    from: Revision,
    token: &mut u64,
) -> Result<GivenBack, Error> {
    let mut watch = client.watch(lock).from(from.next()).await?;
    while let Some(batch) = watch.next_raw().await? {
        for event in &batch.events {
            // The same hold goes on under a new token.
            if matches!(event.cause(), v1::Cause::Upgraded | v1::Cause::Downgraded)
                && event.lease == convert::lease(lease)
            {
                *token = event.token;
            }
            if let Some(how) = given_back(event).filter(|_| event.token == *token) {
                return Ok(how);
            }
        }
    }
    Err(Error::Unavailable)
}

fn given_back(event: &v1::Event) -> Option<GivenBack> {
    match event.cause() {
        v1::Cause::Released => Some(GivenBack::Released),
        v1::Cause::HandedOn => Some(GivenBack::HandedOn),
        // Below level 4 this is also the cause of a lock that goes with the lease of its own client.
        v1::Cause::Revoked if event.by.is_none() && event.left_ms.is_none() => {
            Some(GivenBack::Released)
        }
        _ => None,
    }
}

/// Returns when the lease no longer holds the lock, for clients that may not watch it.
async fn polled(client: &Client, token: u64, lease: LeaseId, every: Duration) {
    let lease = convert::lease(lease);
    loop {
        tokio::time::sleep(every).await;
        let ask = v1::GetLeaseRequest { lease, ..Default::default() };
        match client.ask(Command::GetLease(ask), None).await {
            Ok((Answer::Lease(it), _)) => {
                let holds = it.lease.map(|lease| lease.holds).unwrap_or_default();
                if !holds.iter().any(|it| it.token == token) {
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
