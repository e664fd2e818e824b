//! Defines what a store must be able to do, and what its grants are worth.

use std::fmt;
use std::time::Duration;

use tenure::Token;

/// A store that locks can be built on.
///
/// Every method may be called again after it failed, and its future may be dropped before it is done: then it may or
/// may not have taken effect. An [`Owner`] is drawn for one [`put_if_absent`](Backend::put_if_absent) and never used
/// for a second.
///
/// ```
/// use tenure_backends::{Backend, Locks};
/// // Works with every store.
/// async fn nightly<B: Backend>(locks: &Locks<B>) -> Result<(), tenure_backends::Error> {
///     locks.run("nightly", async |_guard| { println!("working"); Ok(()) }).await
/// }
/// ```
pub trait Backend: Send + Sync + 'static {
    /// What a grant is worth: [`Fenced`] or [`EfficiencyOnly`].
    type Promise: Promise;
    /// The type that [`Backend::watch`] returns.
    type Watch: Watch;

    /// Puts the owner's name under the key for `ttl`, if the key is absent. The ttl begins when the store executes
    /// this, which is not before the call.
    fn put_if_absent(
        &self,
        key: &str,
        owner: &Owner,
        ttl: Duration,
    ) -> impl Future<Output = Result<Put<Self::Promise>, StoreError>> + Send;

    /// Restarts the ttl if the key still has the owner's name, and returns whether it has. An earlier call that arrives
    /// late must not shorten the time again.
    fn compare_and_swap(
        &self,
        key: &str,
        owner: &Owner,
        ttl: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Deletes the key if it still has the owner's name, and returns whether it had.
    fn compare_and_delete(
        &self,
        key: &str,
        owner: &Owner,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Starts to watch a key. When this returns, the watch has begun: it reports every later end of a hold.
    fn watch(&self, key: &str) -> impl Future<Output = Result<Self::Watch, StoreError>> + Send;
}

/// A watch on one key. Dropping it ends it.
///
/// ```
/// # use tenure_backends::{Backend, Watch};
/// async fn freed<B: Backend>(store: &B) -> Result<(), tenure_backends::StoreError> {
///     store.watch("deploy").await?.changed().await
/// }
/// ```
pub trait Watch: Send {
    /// Waits until the key may have become free since the last call, or since the watch began. An error means that the
    /// watch has ended, and may have missed something.
    fn changed(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The outcome of a [`Backend::put_if_absent`].
///
/// ```
/// # use tenure_backends::{EfficiencyOnly, NoToken, Put};
/// let put: Put<EfficiencyOnly> = Put::Done(NoToken);
/// ```
#[derive(Debug)]
pub enum Put<P: Promise> {
    /// The key was put. The lock is ours.
    Done(P::Token),
    /// Another owner has the key.
    Taken {
        /// If the owner does not renew it, the key is free after this time; `None` if the watch reports that, too.
        free_within: Option<Duration>,
    },
}

/// What a grant of a store is worth.
///
/// ```
/// use tenure_backends::{Backend, Fenced, Locks};
/// // Compiles only with stores that have tokens.
/// async fn migrate<B: Backend<Promise = Fenced>>(locks: &Locks<B>) -> Result<(), tenure_backends::Error> {
///     let guard = locks.lock("migrate").await?;
///     println!("token {}", guard.token());
///     guard.release().await
/// }
/// ```
pub trait Promise: sealed::Sealed + Send + Sync + 'static {
    /// What comes with a grant.
    type Token: Copy + fmt::Debug + Send + Sync + 'static;
}

/// Every grant has a token larger than all before it, also across crashes: the protected resource can refuse late
/// writers.
///
/// ```
/// fn needs_tokens<B: tenure_backends::Backend<Promise = tenure_backends::Fenced>>(_: B) {}
/// needs_tokens(tenure_backends::Memory::new());
/// ```
#[derive(Debug)]
pub enum Fenced {}

/// Usually there is one holder, and nothing protects the resource from two. Good for work that is wasteful to do twice;
/// wrong for work that must not be done twice.
///
/// ```compile_fail,E0271
/// fn needs_tokens<B: tenure_backends::Backend<Promise = tenure_backends::Fenced>>(_: B) {}
/// needs_tokens(tenure_backends::Redis::new("127.0.0.1:6379"));
/// ```
#[derive(Debug)]
pub enum EfficiencyOnly {}

/// The token type of a store without tokens.
///
/// ```
/// assert_eq!(format!("{:?}", tenure_backends::NoToken), "NoToken");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoToken;

impl Promise for Fenced {
    type Token = Token;
}

impl Promise for EfficiencyOnly {
    type Token = NoToken;
}

mod sealed {
    #[doc(hidden)]
    pub trait Sealed {}
    impl Sealed for super::Fenced {}
    impl Sealed for super::EfficiencyOnly {}
}

/// The owner of a key: a random name that no other attempt draws.
///
/// ```
/// # use tenure_backends::Owner;
/// assert_ne!(Owner::draw(), Owner::draw());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Owner(String);

impl Owner {
    /// Draws a new name.
    ///
    /// ```
    /// assert_eq!(tenure_backends::Owner::draw().as_str().len(), 32);
    /// ```
    pub fn draw() -> Self {
        Self(format!("{:016x}{:016x}", tenure::engine::random(), tenure::engine::random()))
    }

    /// Returns the name as the store keeps it.
    ///
    /// ```
    /// # use tenure_backends::Owner;
    /// assert!(Owner::draw().as_str().is_ascii());
    /// ```
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The store did not execute a request, or did not answer.
///
/// ```
/// let error = tenure_backends::StoreError::new("connection refused");
/// assert_eq!(error.to_string(), "connection refused");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    message: String,
}

impl StoreError {
    /// Creates an error with a message for people.
    ///
    /// ```
    /// # use tenure_backends::StoreError;
    /// assert_eq!(StoreError::new("no route").to_string(), "no route");
    /// ```
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
