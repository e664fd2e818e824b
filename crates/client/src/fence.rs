//! How is a resource told of a new holder before anybody works under the lock?
//!
//! A fence learns of a token when it is used: until the new holder's first write, a late one of the old holder is still
//! accepted. Whoever reads first and writes then wants it closed before: the floor is raised as soon as the lock is
//! granted.

use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;

use crate::ask::LockAsk;
use crate::error::Error;
use crate::guard::{Guard, Lock};

/// What went wrong at a fence, in the fence's own words.
///
/// ```
/// let error: tenure::FenceError = std::io::Error::other("no disk").into();
/// assert_eq!(error.to_string(), "no disk");
/// ```
pub type FenceError = Box<dyn StdError + Send + Sync>;

/// Raises the floor at whatever a lock protects.
///
/// Any function of a [`Lock`] does: the fences of `tenure-fence` have a `raise` each, and so has whatever else keeps
/// floors. It knows how the lock was asked for, which a token does not tell: a shared holder raises as a shared one.
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
/// With a ticket in the place of the number, implement it for a type and ask the guard:
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
    /// Raises the floor of everything that the guard stands for. When this returns nothing older is accepted.
    fn raise<'a>(
        &'a self,
        guard: &'a Guard,
    ) -> Pin<Box<dyn Future<Output = Result<(), FenceError>> + Send + 'a>>;
}

/// Called once for each lock of the guard, in the order of their names.
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
    /// Raises the floor at the resource once the lock is granted, before the guard is handed out: whoever held the lock
    /// before cannot write any more. If that fails, or takes longer than the client's timeout, the lock is given back,
    /// or left to its lease if nobody can be reached, and the answer is [`Error::Fence`].
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
    /// Raises the floor at one more resource of the same lock.
    ///
    /// ```no_run
    /// # async fn raise(lock: tenure::Lock) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn example(guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// guard.fence(&raise).await?;
    /// # Ok(()) }
    /// ```
    pub async fn fence(&self, fence: &dyn Fence) -> Result<(), Error> {
        self.run(fence.raise(self)).await?.map_err(Error::Fence)
    }
}

/// Hands out a guard that its fence has let in, or gives the lock back.
pub(crate) async fn fenced(guard: Guard, fence: &dyn Fence) -> Result<Guard, Error> {
    let within = guard.held().shared.settings.timeout;
    let raised = match tokio::time::timeout(within, guard.fence(fence)).await {
        Ok(raised) => raised,
        Err(_) => Err(Error::Fence(format!("no answer within {within:.1?}").into())),
    };
    match raised {
        Ok(()) => Ok(guard),
        Err(error) => {
            // Why the work does not begin is worth more than what became of the lock, which ends with its lease.
            if let Err(kept) = guard.release().await {
                tracing::debug!(error = %kept, "a lock was not given back; its lease will run out");
            }
            Err(error)
        }
    }
}
