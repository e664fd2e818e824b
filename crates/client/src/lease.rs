//! Defines the lease of a client: several locks can be held under it.

use std::fmt;
use std::sync::Arc;

use tenure_types::LeaseId;
use tokio::sync::watch;

use crate::ask::LockAsk;
use crate::cancellation::Cancellation;
use crate::clock;
use crate::error::Error;
use crate::held_lease::HeldLease;
use crate::lease_state::{Lost, Standing};

/// A client's lease in the cluster, kept alive until it and all its guards are dropped.
///
/// Several locks can be held under one lease; they are lost together. Cloning it is cheap.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// use std::time::Duration;
/// let lease = client.lease(Duration::from_secs(15)).await?;
/// let reader = lease.lock("cache").shared().await?;
/// let permit = lease.lock("workers").slots(8).await?;
/// println!("worker {:?} with token {}", permit.slot(), permit.token());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Lease {
    pub(crate) held: Arc<HeldLease>,
}

impl Lease {
    /// Requests a lock under this lease. Awaiting it waits in the queue.
    ///
    /// ```no_run
    /// # async fn example(lease: tenure::Lease) -> Result<(), tenure::Error> {
    /// let guard = lease.lock("deploy").await?;
    /// # guard.release().await }
    /// ```
    pub fn lock(&self, lock: impl Into<String>) -> LockAsk {
        LockAsk::on(self.held.clone(), vec![lock.into()])
    }

    /// Requests several locks, all or none. The guard stands for all of them.
    ///
    /// ```no_run
    /// # async fn example(lease: tenure::Lease) -> Result<(), tenure::Error> {
    /// let both = lease.lock_all(["accounts/7", "accounts/9"]).await?;
    /// assert_eq!(both.locks().count(), 2);
    /// # both.release().await }
    /// ```
    pub fn lock_all<I>(&self, locks: I) -> LockAsk
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        LockAsk::on(self.held.clone(), locks.into_iter().map(Into::into).collect())
    }

    /// Requests any one of several locks: the first, in the order of names, that is free. Until then the request waits
    /// in the queues of all of them and keeps its turn in each. [`Guard::name`](crate::Guard::name) tells which one it
    /// is. A second request of the same lease for one of these locks waits for the first guard. Needs feature level 13.
    ///
    /// ```no_run
    /// # async fn example(lease: tenure::Lease) -> Result<(), tenure::Error> {
    /// let gpu = lease.lock_any(["gpu/0", "gpu/1", "gpu/2"]).await?;
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

    /// Returns the lease's id.
    ///
    /// ```no_run
    /// # fn example(lease: tenure::Lease) { println!("lease {}", lease.id()); }
    /// ```
    pub fn id(&self) -> LeaseId {
        self.held.id
    }

    /// Returns the current standing.
    ///
    /// ```no_run
    /// # fn example(lease: tenure::Lease) {
    /// if lease.standing() == tenure::Standing::Doubtful { println!("hurry") }
    /// # }
    /// ```
    pub fn standing(&self) -> Standing {
        let now = clock::read();
        self.held.with(|state| state.standing(now))
    }

    /// Checks that the lease can be relied on at this moment.
    ///
    /// ```no_run
    /// # fn example(lease: tenure::Lease) -> Result<(), tenure::Error> {
    /// lease.check()?;
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        let now = clock::read();
        self.held.with(|state| state.check(now)).map_err(Error::Lost)
    }

    /// Subscribes to changes of the standing. The receiver holds the current one from the start.
    ///
    /// ```no_run
    /// # async fn example(lease: tenure::Lease) {
    /// let mut standings = lease.standings();
    /// while standings.changed().await.is_ok() {
    ///     println!("{:?}", *standings.borrow_and_update());
    /// }
    /// # }
    /// ```
    pub fn standings(&self) -> watch::Receiver<Standing> {
        self.held.standing()
    }

    /// Waits until the lease is lost, and returns why and by whom.
    ///
    /// ```no_run
    /// # async fn example(lease: tenure::Lease) {
    /// println!("lost: {}", lease.lost().await);
    /// # }
    /// ```
    pub async fn lost(&self) -> Lost {
        self.held.lost().wait().await
    }

    /// Returns a handle that tells work when to stop: when the lease is lost.
    ///
    /// ```no_run
    /// # fn example(lease: tenure::Lease) {
    /// assert!(!lease.cancellation().is_cancelled());
    /// # }
    /// ```
    pub fn cancellation(&self) -> Cancellation {
        Cancellation::of(self.held.lost().clone())
    }

    /// Ends the lease now. Its guards must be gone, because the work under it must have stopped; while any guard
    /// exists, this fails with `LEASE_IN_USE`.
    ///
    /// ```no_run
    /// # async fn example(lease: tenure::Lease) -> Result<(), tenure::Error> {
    /// lease.revoke().await
    /// # }
    /// ```
    pub async fn revoke(self) -> Result<(), Error> {
        if !self.held.with(|state| state.is_idle()) {
            return Err(Error::Failed {
                reason: "LEASE_IN_USE".to_owned(),
                message: "the lease has guards".to_owned(),
            });
        }
        match self.held.revoke().await {
            // It had ended before.
            Err(Error::Lost(_)) => Ok(()),
            revoked => revoked,
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("id", &self.held.id).finish_non_exhaustive()
    }
}
