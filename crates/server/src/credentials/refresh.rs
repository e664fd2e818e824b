//! Keeps the keys of one issuer fresh: reads them from their address now and then, and soon after an unknown key id.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::jwks::KeySet;
use super::jwks_url::{JwksUrl, ServerAuthority};

/// How long a request waits for keys that are being read. An attempt may take longer; the caller tries again then.
const WAIT: Duration = Duration::from_secs(2);

/// When keys are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefreshTimes {
    /// How often they are read again.
    pub(crate) every: Duration,
    /// How soon they are read again after an attempt failed.
    pub(crate) retry: Duration,
    /// The shortest time between two attempts. Callers can ask for attempts with ids that they invent.
    pub(crate) apart: Duration,
    /// How long they are used after the issuer has stopped answering. It bounds how long a key that the issuer has
    /// withdrawn is accepted.
    pub(crate) stale: Duration,
}

impl Default for RefreshTimes {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(300),
            retry: Duration::from_secs(30),
            apart: Duration::from_secs(10),
            stale: Duration::from_secs(3_600),
        }
    }
}

/// The keys of one issuer, read by a task that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct RefreshedKeys {
    shared: Arc<Shared>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    newest: watch::Sender<Newest>,
    wanted: Notify,
}

/// The result of the attempts so far.
#[derive(Clone, Debug, Default)]
struct Newest {
    keys: Option<Arc<KeySet>>,
    /// The time before which no attempt is made; none before the first attempt has ended.
    not_before: Option<Instant>,
}

impl RefreshedKeys {
    /// Starts to read the keys.
    pub(crate) fn start(
        runtime: &Handle,
        url: JwksUrl,
        authority: ServerAuthority,
        times: RefreshTimes,
    ) -> Self {
        let newest = watch::Sender::new(Newest::default());
        let shared = Arc::new(Shared { newest, wanted: Notify::new() });
        let task = runtime.spawn(keep(Arc::clone(&shared), url, authority, times)).abort_handle();
        Self { shared, task }
    }

    /// The keys as they were read last; none if they could not be read, or not for too long.
    pub(crate) fn current(&self) -> Option<Arc<KeySet>> {
        self.shared.newest.borrow().keys.clone()
    }

    /// Whether the keys are being read, or may be read again now.
    pub(crate) fn may_read(&self) -> bool {
        let not_before = self.shared.newest.borrow().not_before;
        not_before.is_none_or(|at| Instant::now() >= at)
    }

    /// Reads the keys once more, and waits for the result for a moment.
    pub(crate) async fn read(&self) {
        let mut newest = self.shared.newest.subscribe();
        if self.may_read() {
            self.shared.wanted.notify_one();
            let _ = timeout(WAIT, newest.changed()).await;
        }
    }
}

impl Drop for RefreshedKeys {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep(shared: Arc<Shared>, url: JwksUrl, authority: ServerAuthority, times: RefreshTimes) {
    let mut read_at: Option<Instant> = None;
    let mut failing = false;
    loop {
        let started = Instant::now();
        let read = url.read(&authority).await;
        let not_before = Some(Instant::now() + times.apart);
        let next = match read {
            Ok(keys) => {
                if failing {
                    tracing::info!(%url, "the keys of an issuer can be read again");
                }
                (failing, read_at) = (false, Some(started));
                shared.newest.send_replace(Newest { keys: Some(Arc::new(keys)), not_before });
                started + times.every
            }
            Err(why) => {
                if !failing {
                    tracing::warn!(%url, why, "the keys of an issuer cannot be read");
                }
                failing = true;
                let stale = read_at.is_none_or(|at| started.duration_since(at) >= times.stale);
                shared.newest.send_modify(|newest| {
                    newest.not_before = not_before;
                    if stale {
                        newest.keys = None;
                    }
                });
                started + times.retry
            }
        };
        // Ids asked for during the attempt or just after it do not cause another one.
        if let Some(at) = not_before {
            sleep_until(at).await;
        }
        tokio::select! {
            () = sleep_until(next) => {}
            () = shared.wanted.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::jwks::Algorithm;
    use crate::credentials::tests::{answer, document, key, serve};

    const LONG: Duration = Duration::from_secs(60);

    fn start(url: &str, times: RefreshTimes) -> RefreshedKeys {
        let url = JwksUrl::parse(url).unwrap();
        RefreshedKeys::start(&Handle::current(), url, ServerAuthority::System, times)
    }

    async fn until(keys: &RefreshedKeys, what: &str, is_so: impl Fn(Option<&KeySet>) -> bool) {
        let mut newest = keys.shared.newest.subscribe();
        let waited = newest.wait_for(|newest| is_so(newest.keys.as_deref()));
        timeout(LONG, waited).await.unwrap_or_else(|_| panic!("{what}")).unwrap();
    }

    fn has(id: &str) -> impl Fn(Option<&KeySet>) -> bool {
        move |keys| keys.is_some_and(|keys| keys.has(Some(id), Algorithm::EdDsa))
    }

    #[tokio::test]
    async fn new_keys_replace_the_old_ones_and_withdrawn_ones_are_gone() {
        let answers = [vec![key(1, "a")], vec![key(1, "a"), key(2, "b")], vec![key(2, "b")]];
        let answers = answers.iter().map(|keys| answer(&document(keys)));
        let (url, _) = serve(answers.collect()).await;
        let soon = Duration::from_millis(20);
        let times = RefreshTimes { every: soon, apart: soon, ..RefreshTimes::default() };
        let keys = start(&url, times);
        until(&keys, "the first key", has("a")).await;
        until(&keys, "the second key", has("b")).await;
        until(&keys, "the first key is gone", |keys| has("b")(keys) && !has("a")(keys)).await;
    }

    #[tokio::test]
    async fn an_unknown_id_reads_the_keys_before_their_time() {
        let answers = [vec![key(1, "a")], vec![key(1, "a"), key(2, "b")]];
        let answers = answers.iter().map(|keys| answer(&document(keys)));
        let (url, _) = serve(answers.collect()).await;
        let times = RefreshTimes { apart: Duration::ZERO, ..RefreshTimes::default() };
        let keys = start(&url, times);
        until(&keys, "the first key", has("a")).await;
        keys.read().await;
        until(&keys, "the second key", has("b")).await;
    }

    #[tokio::test]
    async fn keys_outlive_the_silence_of_their_issuer_for_a_while() {
        let gone = "HTTP/1.1 500 Gone\r\ncontent-length: 0\r\n\r\n".to_owned();
        let (url, count) = serve(vec![answer(&document(&[key(1, "a")])), gone]).await;
        let soon = Duration::from_millis(20);
        let stale = Duration::from_millis(400);
        let keys = start(&url, RefreshTimes { every: soon, retry: soon, apart: soon, stale });
        until(&keys, "the key", has("a")).await;
        until(&keys, "the key is used no more", |keys| keys.is_none()).await;
        let attempts = count.load(std::sync::atomic::Ordering::SeqCst);
        assert!(attempts > 2, "it was kept over failed attempts: {attempts}");
    }
}
