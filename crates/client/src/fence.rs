//! Raises the fence at a resource before the new holder starts to work.
//!
//! A fence learns of a token when the token is first used. Until the new holder's first write, it still accepts a late
//! write of the old holder. A holder that reads before it writes needs the fence to be closed earlier, so the client
//! raises the floor as soon as the lock is granted.

use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;

use tenure_types::Refusal;
use tokio::time::Instant;

use crate::ask::LockAsk;
use crate::error::Error;
use crate::guard::{Guard, Lock};

/// An error of a fence, as the fence reports it.
///
/// ```
/// let error: tenure::FenceError = std::io::Error::other("no disk").into();
/// assert_eq!(error.to_string(), "no disk");
/// ```
pub type FenceError = Box<dyn StdError + Send + Sync>;

/// Raises the floor at the resource that a lock protects.
///
/// Any function of a [`Lock`] implements it. Each fence of `tenure-fence` has a `raise` method, and any other store of
/// floors can offer one. The function has to know the mode in which the lock was requested, which a token does not
/// tell: for a shared holder it raises the floor with a shared claim.
///
/// ```no_run
/// use std::sync::Arc;
/// use tenure_fence::files::FileFence;
/// # async fn example(client: tenure::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let files = Arc::new(FileFence::open("/var/lib/ledger")?);
/// let raise = move |lock: tenure::Lock| {
///     let files = files.clone();
///     async move { files.raise((lock.name.as_str(), lock.slot), lock.token) }
/// };
/// let guard = client.lock("ledger").fence(raise).await?;     // nothing older is accepted from here on
/// # Ok(()) }
/// ```
///
/// To present a ticket instead of the number, implement the trait for a type and ask the guard:
///
/// ```
/// use std::pin::Pin;
/// use tenure::{Fence, FenceError, Guard};
///
/// struct Demanding;
///
/// impl Fence for Demanding {
///     fn raise<'a>(
///         &'a self,
///         guard: &'a Guard,
///     ) -> Pin<Box<dyn Future<Output = Result<(), FenceError>> + Send + 'a>> {
///         Box::pin(async move {
///             let ticket = guard.ticket().await?;
///             println!("PUT /v1/floors/ledger with Fencing-Token: {ticket}");
///             Ok(())
///         })
///     }
/// }
/// ```
pub trait Fence: Send + Sync {
    /// Raises the floor of every lock that the guard stands for. After this returns, the resource accepts nothing
    /// older.
    fn raise<'a>(
        &'a self,
        guard: &'a Guard,
    ) -> Pin<Box<dyn Future<Output = Result<(), FenceError>> + Send + 'a>>;
}

/// Calls the function once for each lock of the guard, in the order of their names.
impl<F, W, E> Fence for F
where
    F: Fn(Lock) -> W + Send + Sync,
    W: Future<Output = Result<(), E>> + Send,
    E: Into<FenceError>,
{
    fn raise<'a>(
        &'a self,
        guard: &'a Guard,
    ) -> Pin<Box<dyn Future<Output = Result<(), FenceError>> + Send + 'a>> {
        let locks: Vec<Lock> = guard.locks().cloned().collect();
        Box::pin(async move {
            for lock in locks {
                self(lock).await.map_err(Into::into)?;
            }
            Ok(())
        })
    }
}

impl LockAsk {
    /// Raises the floor at the resource after the lock is granted and before the guard is returned: from then on the
    /// previous holder cannot write. If that fails, or takes longer than the client's timeout, the client releases the
    /// lock and returns [`Error::Fence`]. If it takes longer than the request's own [`timeout`](Self::timeout), the
    /// error is that of the end of a wait, [`Refusal::WaitTimeout`](crate::Refusal::WaitTimeout). If the lock is lost
    /// meanwhile, the error is [`Error::Lost`], whatever the fence reports. If no member can be reached for the
    /// release, the lock ends with its lease.
    ///
    /// ```no_run
    /// # async fn raise(lock: tenure::Lock) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("ledger").fence(raise).await?;
    /// # guard.release().await }
    /// ```
    pub fn fence(mut self, fence: impl Fence + 'static) -> Self {
        self.fence = Some(Arc::new(fence));
        self
    }
}

impl Guard {
    /// Raises the floor at one more resource that the same lock protects.
    ///
    /// ```no_run
    /// # async fn raise(lock: tenure::Lock) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn example(guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// guard.fence(&raise).await?;
    /// # Ok(()) }
    /// ```
    pub async fn fence(&self, fence: &dyn Fence) -> Result<(), Error> {
        self.run(fence.raise(self)).await?.map_err(|why| Error::Fence(why.into()))
    }
}

/// Returns the guard if the fence accepts its token, and releases the lock otherwise.
pub(crate) async fn fenced(
    guard: Guard,
    fence: &dyn Fence,
    until: Option<Instant>,
) -> Result<Guard, Error> {
    let within = guard.held().shared.settings.timeout;
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let limit = left.filter(|left| *left < within);
    let raised = match tokio::time::timeout(limit.unwrap_or(within), guard.fence(fence)).await {
        Ok(raised) => raised,
        Err(_) if limit.is_some() => Err(Error::Refused(Refusal::WaitTimeout)),
        Err(_) => {
            let why: FenceError = format!("no answer within {within:.1?}").into();
            Err(Error::Fence(why.into()))
        }
    };
    match raised {
        Ok(()) => Ok(guard),
        Err(error) => {
            // Return why the work does not begin rather than why the release failed: the lock ends with its lease
            // anyway.
            if let Err(kept) = guard.release().await {
                tracing::debug!(error = %kept, "a lock was not given back; its lease will run out");
            }
            Err(error)
        }
    }
}
