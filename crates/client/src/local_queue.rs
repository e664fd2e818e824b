//! Queues requests of one process for the same lock under the same lease, before they reach the cluster.

use std::sync::Arc;

use tenure_types::{Held as HeldBy, Name, Refusal};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::ask::{AcquireOptions, WaitLimit};
use crate::error::Error;
use crate::held_lease::HeldLease;
use crate::wait::{FAR, gone, lost};

/// The local permits of one request. Usually there is one.
#[derive(Default)]
pub(crate) struct LocalPermits {
    first: Option<OwnedSemaphorePermit>,
    more: Vec<OwnedSemaphorePermit>,
}

impl LocalPermits {
    pub(crate) fn add(&mut self, permit: OwnedSemaphorePermit) {
        match &self.first {
            None => self.first = Some(permit),
            Some(_) => self.more.push(permit),
        }
    }

    /// Keeps the permits of those locks that were granted, of a request that got permits for all of `asked`.
    pub(crate) fn keep<'a>(&mut self, asked: &[String], granted: impl Iterator<Item = &'a str>) {
        let granted: Vec<&str> = granted.collect();
        let all = self.first.take().into_iter().chain(std::mem::take(&mut self.more));
        for (name, permit) in in_order(asked).into_iter().zip(all) {
            if granted.contains(&name) {
                self.add(permit);
            }
        }
    }
}

/// Returns the permit for a single lock, if no other request of this process holds or awaits it.
pub(crate) fn now(held: &Arc<HeldLease>, locks: &[String]) -> Option<LocalPermits> {
    let [only] = locks else { return None };
    let first = held.local_queue(only).try_acquire_owned().ok()?;
    Some(LocalPermits { first: Some(first), more: Vec::new() })
}

/// Waits until no other request of this process holds or awaits any of the locks under this lease.
pub(crate) async fn wait(
    held: &Arc<HeldLease>,
    ask: &AcquireOptions,
    until: Option<Instant>,
) -> Result<LocalPermits, Error> {
    let mut permits = LocalPermits::default();
    for name in in_order(&ask.locks) {
        let queue = held.local_queue(name);
        if let Ok(free) = queue.clone().try_acquire_owned() {
            permits.add(free);
            continue;
        }
        if ask.wait == WaitLimit::No {
            let lock = Name::new(name).map_err(|_| Error::Refused(Refusal::InvalidName))?;
            let here = HeldBy { lock, holder: None, ahead: 0 };
            return Err(Error::Refused(Refusal::Held(Box::new(here))));
        }
        let until = until.unwrap_or_else(|| Instant::now() + FAR);
        let mut standing = held.standing();
        tokio::select! {
            permit = queue.acquire_owned() => permits.add(permit.expect("it is never closed")),
            () = lost(&mut standing) => return Err(gone(held)),
            () = tokio::time::sleep_until(until) => return Err(Error::Refused(Refusal::WaitTimeout)),
        }
    }
    Ok(permits)
}

/// Sorts and deduplicates the locks, so that two requests never wait for each other.
fn in_order(locks: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = locks.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names
}
