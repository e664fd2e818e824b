//! Keeps one lock on several independent Redis servers, by the rules known as Redlock.
//!
//! The lock is held if a majority of the servers has the key. A server that restarts without its memory, or whose clock
//! jumps, breaks the rules, and no fence can be built on them: [`EfficiencyOnly`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure::engine::{jittered, random};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::backend::{Backend, EfficiencyOnly, NoToken, Owner, Put, StoreError, Watch};
use crate::redis::{KeyOwner, Redis};

/// The maximum wait for one server: far less than any ttl, so that a server that is down costs little.
const EACH_MAX: Duration = Duration::from_millis(500);
/// The maximum wait for one server as a part of the ttl: a twentieth.
const EACH_PART: u32 = 20;
/// The bound on the random delay before a client that got some servers but no majority tries again.
const SPLIT: Duration = Duration::from_millis(100);
/// The maximum wait for a holder that has a majority only if a silent server counts for it.
const UNSURE: Duration = Duration::from_secs(1);

/// Locks on several Redis servers, held if a majority agrees: for efficiency only.
///
/// ```no_run
/// # use tenure_backends::{Error, Locks, Redlock};
/// # async fn example() -> Result<(), Error> {
/// let redlock = Redlock::new(["10.0.0.5:6379", "10.0.0.6:6379", "10.0.0.7:6379"]);
/// locks_of(Locks::new(redlock)?).await
/// # }
/// # async fn locks_of(locks: Locks<Redlock>) -> Result<(), Error> {
/// #     locks.run("thumbnails", async |_| Ok::<(), Error>(())).await
/// # }
/// ```
#[derive(Clone)]
pub struct Redlock {
    servers: Arc<Vec<Redis>>,
}

/// A watch on a key of several Redis servers.
///
/// ```no_run
/// # use tenure_backends::{Backend, Redlock, StoreError, Watch};
/// # async fn example(redlock: Redlock) -> Result<(), StoreError> {
/// redlock.watch("thumbnails").await?.changed().await
/// # }
/// ```
pub struct RedlockWatch {
    events: mpsc::Receiver<Result<(), StoreError>>,
    /// How many more servers may fail before the watch ends.
    spare: usize,
    _tasks: JoinSet<()>,
}

/// The servers' answers to the same request.
struct ServerAnswers<T> {
    answers: Vec<T>,
    last: Option<StoreError>,
}

impl Redlock {
    /// Creates locks on the servers at these addresses.
    ///
    /// ```
    /// let redlock = tenure_backends::Redlock::new(["10.0.0.5:6379", "10.0.0.6:6379", "10.0.0.7:6379"]);
    /// ```
    pub fn new<I>(addresses: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        Self::over(addresses.into_iter().map(Redis::new).collect())
    }

    /// Creates locks on servers that were configured one by one.
    ///
    /// ```
    /// use tenure_backends::{Redis, Redlock};
    /// let redlock = Redlock::over(vec![Redis::new("10.0.0.5:6379").login(None, "secret")]);
    /// ```
    ///
    /// # Panics
    ///
    /// If there are no servers.
    pub fn over(servers: Vec<Redis>) -> Self {
        assert!(!servers.is_empty(), "at least one server is needed");
        Self { servers: Arc::new(servers) }
    }

    fn quorum(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    /// Asks all servers at once, and waits for each at most `answer_timeout`.
    async fn each<T, F>(
        &self,
        answer_timeout: Duration,
        ask: impl Fn(Redis) -> F,
    ) -> ServerAnswers<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let mut asked = JoinSet::new();
        for server in self.servers.iter() {
            let asking = ask(server.clone());
            asked.spawn(async move {
                let silent = || Err(StoreError::new("redis: no answer in time"));
                timeout(answer_timeout, asking).await.unwrap_or_else(|_| silent())
            });
        }
        let mut said = ServerAnswers { answers: Vec::new(), last: None };
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(answer)) => said.answers.push(answer),
                Ok(Err(error)) => said.last = Some(error),
                Err(error) => said.last = Some(StoreError::new(error.to_string())),
            }
        }
        said
    }

    /// Returns when to try again if no event comes.
    fn free_within(&self, found: &[KeyOwner]) -> Duration {
        let mut holders: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
        for it in found {
            if let KeyOwner::Theirs { whose, left } = it {
                holders.entry(whose).or_default().push(*left);
            }
        }
        // A client one server short of a majority may have another that did not answer.
        let silent = self.servers.len() - found.len();
        let holder = holders.into_values().find(|it| it.len() + silent >= self.quorum());
        // No client has a majority: several came at once, and all of them give up. Each tries again at a random moment.
        let Some(mut left) = holder else { return jittered(SPLIT) };
        // The lock is free when so many keys have expired that the holder has no majority any more.
        left.sort_unstable();
        let sure = left.len() >= self.quorum();
        let enough = (left.len() + silent).saturating_sub(self.quorum());
        let alone = Duration::from_millis(random() % 20);
        let free = left.get(enough).map_or_else(|| jittered(SPLIT), |left| *left + alone);
        // Two clients that came at once may each take the other for the holder of a silent server, and both give up.
        if sure { free } else { free.min(jittered(UNSURE)) }
    }

    /// Returns the majority's answer, or an error if too few servers answered.
    fn verdict(&self, said: &ServerAnswers<bool>) -> Result<bool, StoreError> {
        let yes = said.answers.iter().filter(|yes| **yes).count();
        let no = said.answers.len() - yes;
        if yes >= self.quorum() {
            Ok(true)
        } else if no > self.servers.len() - self.quorum() {
            Ok(false)
        } else {
            Err(said.too_few(self.servers.len()))
        }
    }
}

impl<T> ServerAnswers<T> {
    fn too_few(&self, of: usize) -> StoreError {
        let why = self.last.as_ref().map_or_else(String::new, |last| format!("; {last}"));
        StoreError::new(format!("{} of {of} servers answered{why}", self.answers.len()))
    }
}

fn answer_timeout(ttl: Duration) -> Duration {
    EACH_MAX.min(ttl / EACH_PART)
}

impl Backend for Redlock {
    type Promise = EfficiencyOnly;
    type Watch = RedlockWatch;

    async fn put_if_absent(
        &self,
        lock: &str,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Put<EfficiencyOnly>, StoreError> {
        let asked = self.each(answer_timeout(ttl), |server| {
            let (lock, owner) = (lock.to_owned(), owner.clone());
            async move { server.put(&lock, &owner, ttl).await }
        });
        let said = asked.await;
        let ours = said.answers.iter().filter(|found| matches!(found, KeyOwner::Ours)).count();
        if ours >= self.quorum() {
            return Ok(Put::Done(NoToken));
        }
        // Also on servers that did not answer: the put may have taken effect there.
        let forgotten = self.each(answer_timeout(ttl), |server| {
            let (lock, owner) = (lock.to_owned(), owner.clone());
            async move { server.forget(&lock, &owner).await }
        });
        forgotten.await;
        if said.answers.len() < self.quorum() {
            return Err(said.too_few(self.servers.len()));
        }
        Ok(Put::Taken { free_within: Some(self.free_within(&said.answers)) })
    }

    async fn compare_and_swap(
        &self,
        lock: &str,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let asked = self.each(answer_timeout(ttl), |server| {
            let (lock, owner) = (lock.to_owned(), owner.clone());
            async move { server.compare_and_swap(&lock, &owner, ttl).await }
        });
        let said = asked.await;
        self.verdict(&said)
    }

    async fn compare_and_delete(&self, lock: &str, owner: &Owner) -> Result<bool, StoreError> {
        let asked = self.each(EACH_MAX, |server| {
            let (lock, owner) = (lock.to_owned(), owner.clone());
            async move { server.compare_and_delete(&lock, &owner).await }
        });
        let said = asked.await;
        self.verdict(&said)
    }

    async fn watch(&self, lock: &str) -> Result<RedlockWatch, StoreError> {
        let asked = self.each(EACH_MAX, |server| {
            let lock = lock.to_owned();
            async move { server.watch(&lock).await }
        });
        let said = asked.await;
        if said.answers.len() < self.quorum() {
            return Err(said.too_few(self.servers.len()));
        }
        let spare = said.answers.len() - self.quorum();
        // One queued event per server suffices: any event makes the client try again.
        let (to, events) = mpsc::channel(self.servers.len());
        let mut tasks = JoinSet::new();
        for mut watch in said.answers {
            let to = to.clone();
            tasks.spawn(async move {
                loop {
                    let changed = watch.changed().await;
                    let over = changed.is_err();
                    if to.send(changed).await.is_err() || over {
                        return;
                    }
                }
            });
        }
        Ok(RedlockWatch { events, spare, _tasks: tasks })
    }
}

impl Watch for RedlockWatch {
    async fn changed(&mut self) -> Result<(), StoreError> {
        loop {
            match self.events.recv().await {
                Some(Ok(())) => return Ok(()),
                // The remaining watches still include a server of every majority, so no release is missed.
                Some(Err(_)) if self.spare > 0 => self.spare -= 1,
                Some(Err(error)) => return Err(error),
                None => return Err(StoreError::new("redis: the watch ended")),
            }
        }
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock").field("servers", &self.servers).finish()
    }
}

impl fmt::Debug for RedlockWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockWatch").field("spare", &self.spare).finish_non_exhaustive()
    }
}
