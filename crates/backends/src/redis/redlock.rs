//! How is one lock kept on several Redis servers that know nothing of each other?
//!
//! It is held if most of them say so, by the rules that are known as Redlock. A server that restarts without
//! its memory, or whose clock jumps, breaks them, and no fence can be built on them: [`EfficiencyOnly`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure::engine::{jittered, random};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::backend::{Backend, EfficiencyOnly, NoToken, Owner, Put, StoreError, Watch};
use crate::redis::{Found, Redis};

/// One server is waited for so long, at most: far less than any ttl, so that one that is down costs little.
const EACH_MAX: Duration = Duration::from_millis(500);
/// And so much of the ttl.
const EACH_PART: u32 = 20;
/// Whoever got some servers and not most tries again within this, at a moment of his own.
const SPLIT: Duration = Duration::from_millis(100);
/// Who has most servers only if a silent one is his is not waited for longer than this.
const UNSURE: Duration = Duration::from_secs(1);

/// Locks on several Redis servers, held if most of them say so: for efficiency only.
///
/// ```no_run
/// # use tenure_backends::{Error, Locks, Redlock};
/// # async fn example() -> Result<(), Error> {
/// let redlock = Redlock::new(["10.0.0.5:6379", "10.0.0.6:6379", "10.0.0.7:6379"]);
/// locks_of(Locks::new(redlock)?).await
/// # }
/// # async fn locks_of(locks: Locks<Redlock>) -> Result<(), Error> { locks.run("thumbnails", async |_| ()).await }
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
    /// How many servers may still fall silent.
    spare: usize,
    _tasks: JoinSet<()>,
}

/// What servers said to the same question.
struct Said<T> {
    answers: Vec<T>,
    last: Option<StoreError>,
}

impl Redlock {
    /// Locks on the servers at these addresses.
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

    /// Locks on servers that were set up one by one.
    ///
    /// ```
    /// use tenure_backends::{Redis, Redlock};
    /// let redlock = Redlock::over(vec![Redis::new("10.0.0.5:6379").login(None, "secret")]);
    /// ```
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn over(servers: Vec<Redis>) -> Self {
        assert!(!servers.is_empty(), "somebody has to be asked");
        Self { servers: Arc::new(servers) }
    }

    fn quorum(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    /// Asks all servers at once, and waits for each only so long.
    async fn each<T, F>(&self, patience: Duration, ask: impl Fn(Redis) -> F) -> Said<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let mut asked = JoinSet::new();
        for server in self.servers.iter() {
            let asking = ask(server.clone());
            asked.spawn(async move {
                let silent = || Err(StoreError::new("redis: no answer in time"));
                timeout(patience, asking).await.unwrap_or_else(|_| silent())
            });
        }
        let mut said = Said { answers: Vec::new(), last: None };
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(answer)) => said.answers.push(answer),
                Ok(Err(error)) => said.last = Some(error),
                Err(error) => said.last = Some(StoreError::new(error.to_string())),
            }
        }
        said
    }

    /// When to try again if nothing is heard.
    fn free_within(&self, found: &[Found]) -> Duration {
        let mut holders: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
        for it in found {
            if let Found::Theirs { whose, left } = it {
                holders.entry(whose).or_default().push(*left);
            }
        }
        // Who has one server less than most may have another that did not answer.
        let silent = self.servers.len() - found.len();
        let holder = holders.into_values().find(|it| it.len() + silent >= self.quorum());
        // Nobody has most of them: some who came at once, and all give up. Each tries again at a moment of his own.
        let Some(mut left) = holder else { return jittered(SPLIT) };
        // It is free when so many have run out that he does not have most any more.
        left.sort_unstable();
        let sure = left.len() >= self.quorum();
        let enough = (left.len() + silent).saturating_sub(self.quorum());
        let alone = Duration::from_millis(random() % 20);
        let free = left.get(enough).map_or_else(|| jittered(SPLIT), |left| *left + alone);
        // Two who came at once each take the other for one who has a silent server, too, and both give up.
        if sure { free } else { free.min(jittered(UNSURE)) }
    }

    /// What most servers say; an error if too few say anything.
    fn verdict(&self, said: &Said<bool>) -> Result<bool, StoreError> {
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

impl<T> Said<T> {
    fn too_few(&self, of: usize) -> StoreError {
        let why = self.last.as_ref().map_or_else(String::new, |last| format!("; {last}"));
        StoreError::new(format!("{} of {of} servers answered{why}", self.answers.len()))
    }
}

fn patience(ttl: Duration) -> Duration {
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
        let asked = self.each(patience(ttl), |server| {
            let (lock, owner) = (lock.to_owned(), owner.clone());
            async move { server.put(&lock, &owner, ttl).await }
        });
        let said = asked.await;
        let ours = said.answers.iter().filter(|found| matches!(found, Found::Ours)).count();
        if ours >= self.quorum() {
            return Ok(Put::Done(NoToken));
        }
        // Also where nothing was answered: it may have been done all the same.
        let forgotten = self.each(patience(ttl), |server| {
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
        let asked = self.each(patience(ttl), |server| {
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
        // More events than servers need not wait: one is enough to try again.
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
                // With the watches that are left, nobody can give a lock back unheard.
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
