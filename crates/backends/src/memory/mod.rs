//! Implements a store in memory, behind a network that a script controls.
//!
//! For tests of programs, and of this crate: a test can delay or lose every request, answer and event, and can cut
//! clients off. Time is that of the locks themselves, virtual or real.

mod script;
mod store;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::Token;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

pub use script::{Action, Call, Fate, Way};

use crate::backend::{Backend, Fenced, Owner, Put, StoreError, Watch};
use script::ScriptedNetwork;
use store::MemoryStore;

/// A store in memory. Clones are other handles of the same client; [`Memory::client`] makes another client of the same
/// store.
///
/// ```
/// # use tenure_backends::{Error, Locks, Memory};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let store = Memory::new();
/// let (a, b) = (Locks::new(store.client("a"))?, Locks::new(store.client("b"))?);
/// let first = a.lock("deploy").await?;
/// let token = first.token();
/// first.release().await?;
/// assert!(b.lock("deploy").await?.token() > token);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Memory {
    client: Arc<str>,
    store: Arc<Mutex<MemoryStore>>,
    network: Arc<ScriptedNetwork>,
}

/// A watch on a key in memory.
///
/// ```
/// # use tenure_backends::{Backend, Memory, StoreError, Watch};
/// # async fn example(store: Memory) -> Result<(), StoreError> {
/// store.watch("deploy").await?.changed().await
/// # }
/// ```
#[derive(Debug)]
pub struct MemoryWatch {
    events: mpsc::UnboundedReceiver<Result<(), StoreError>>,
}

impl Memory {
    /// Creates an empty store and its first client.
    ///
    /// ```
    /// let store = tenure_backends::Memory::new();
    /// ```
    pub fn new() -> Self {
        Self {
            client: Arc::from("client"),
            store: Arc::default(),
            network: Arc::new(ScriptedNetwork::default()),
        }
    }

    /// Creates another client of the same store.
    ///
    /// ```
    /// let other = tenure_backends::Memory::new().client("other");
    /// ```
    pub fn client(&self, name: &str) -> Self {
        Self { client: Arc::from(name), ..self.clone() }
    }

    /// Sets a script that decides, from now on, what happens to every request, its answer, and every event.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure_backends::{Action, Fate, Memory};
    /// let store = Memory::new();
    /// store.script(|call| match call.action {
    ///     Action::Swap => Fate::lost(),                                  // no renewal arrives
    ///     _ => Fate::after(Duration::from_millis(5)),
    /// });
    /// ```
    pub fn script(&self, script: impl Fn(&Call<'_>) -> Fate + Send + Sync + 'static) {
        self.network.set_script(Box::new(script));
    }

    /// Cuts this client off: nothing that it sends arrives, and it receives nothing. Messages on their way are lost.
    ///
    /// ```
    /// # use tenure_backends::Memory;
    /// let store = Memory::new();
    /// store.partition();
    /// store.heal();
    /// ```
    pub fn partition(&self) {
        self.network.cut(&self.client);
    }

    /// Ends [`Memory::partition`]. Watches that were cut off end with an error, as connections do.
    ///
    /// ```
    /// # use tenure_backends::Memory;
    /// Memory::new().heal();
    /// ```
    pub fn heal(&self) {
        self.network.heal(&self.client);
        self.lock().break_watches(&self.client);
    }

    /// Deletes a lock's key, as any client with access to the store can. Returns whether it existed.
    ///
    /// ```
    /// # use tenure_backends::Memory;
    /// assert!(!Memory::new().delete("deploy"), "no client has it");
    /// ```
    pub fn delete(&self, key: &str) -> bool {
        let (gone, events) = self.lock().delete(key, None);
        self.notify(events);
        gone
    }

    /// Returns the token of the current holder, according to the store.
    ///
    /// ```
    /// # use tenure_backends::Memory;
    /// assert_eq!(Memory::new().holder("deploy"), None);
    /// ```
    pub fn holder(&self, key: &str) -> Option<Token> {
        self.lock().holder(key, tenure::engine::now())
    }

    fn lock(&self) -> MutexGuard<'_, MemoryStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers a request, executes it, and delivers the answer. Once it was sent, the request arrives whether or not
    /// the caller still waits.
    async fn travel<T: Send + 'static>(
        &self,
        action: Action,
        act: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let (this, fate) = (self.clone(), self.network.fate(&self.client, action));
        tokio::spawn(async move {
            if !this.network.arrives(&this.client, fate.there).await {
                return;
            }
            let done = act(&this);
            if this.network.arrives(&this.client, fate.back).await {
                // The caller may have stopped waiting.
                let _ = answer.send(done);
            }
        });
        match answered.await {
            Ok(done) => Ok(done),
            // The answer was lost; the caller is not told.
            Err(_) => std::future::pending().await,
        }
    }

    /// Sends events.
    fn notify(&self, events: Vec<store::WatchEvent>) {
        for told in events {
            let fate = self.network.fate(&told.client, Action::Event);
            let network = self.network.clone();
            tokio::spawn(async move {
                // A lost event is reported as a broken connection.
                let arrived = network.arrives(&told.client, fate.there).await;
                let event = if arrived { Ok(()) } else { Err(broken()) };
                let _ = told.to.send(event);
            });
        }
    }

    /// Ends a hold when its time is over, unless it was renewed.
    fn expire_later(&self, key: String, ttl: Duration) {
        let this = self.clone();
        tokio::spawn(async move {
            let mut left = ttl;
            loop {
                sleep(left).await;
                let now = tenure::engine::now();
                let (next, events) = this.lock().expire(&key, now);
                this.notify(events);
                match next {
                    // The hold was renewed, or the timer fired early. Each renewal starts an expiry task of its own.
                    Some(due) if due.since(now) <= Duration::from_millis(2) => {
                        left = due.since(now);
                    }
                    _ => return,
                }
            }
        });
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Backend for Memory {
    type Promise = Fenced;
    type Watch = MemoryWatch;

    async fn put_if_absent(
        &self,
        key: &str,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Put<Fenced>, StoreError> {
        let (key, owner) = (key.to_owned(), owner.clone());
        let putting = self.travel(Action::Put, move |this| {
            let put = this.lock().put(&key, &owner, tenure::engine::now() + ttl);
            if put.is_some() {
                this.expire_later(key, ttl);
            }
            put
        });
        Ok(putting.await?.map_or(Put::Taken { free_within: None }, Put::Done))
    }

    async fn compare_and_swap(
        &self,
        key: &str,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let (key, owner) = (key.to_owned(), owner.clone());
        let swapping = self.travel(Action::Swap, move |this| {
            let now = tenure::engine::now();
            let ours = this.lock().swap(&key, &owner, now, now + ttl);
            if ours {
                this.expire_later(key, ttl);
            }
            ours
        });
        swapping.await
    }

    async fn compare_and_delete(&self, key: &str, owner: &Owner) -> Result<bool, StoreError> {
        let (key, owner) = (key.to_owned(), owner.clone());
        let deleting = self.travel(Action::Delete, move |this| {
            let (gone, events) = this.lock().delete(&key, Some(&owner));
            this.notify(events);
            gone
        });
        deleting.await
    }

    async fn watch(&self, key: &str) -> Result<MemoryWatch, StoreError> {
        let key = key.to_owned();
        let starting = self.travel(Action::Watch, move |this| {
            let (to, events) = mpsc::unbounded_channel();
            this.lock().watch(key, this.client.clone(), to);
            MemoryWatch { events }
        });
        starting.await
    }
}

impl Watch for MemoryWatch {
    async fn changed(&mut self) -> Result<(), StoreError> {
        self.events.recv().await.unwrap_or_else(|| Err(broken()))
    }
}

fn broken() -> StoreError {
    StoreError::new("the connection broke")
}
