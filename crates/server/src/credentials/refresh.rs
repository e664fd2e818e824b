//! Keeps the keys of one issuer fresh: reads them from their address now and then, and soon after an unknown key id.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::jwks::KeySet;
use super::jwks_url::{IssuerAuthority, JwksUrl};

/// How often keys are read again.
const REFRESH: Duration = Duration::from_secs(300);
/// How soon they are read again after an attempt failed.
const RETRY: Duration = Duration::from_secs(30);
/// The shortest time between two attempts. Callers can ask for attempts with ids that they invent.
const APART: Duration = Duration::from_secs(10);
/// How long keys are used after the issuer has stopped answering. It bounds how long a key that the issuer has
/// withdrawn is accepted.
const STALE_MAX: Duration = Duration::from_secs(3_600);
/// How long a request waits for keys that are being read. An attempt may take longer; the caller tries again then.
const WAIT: Duration = Duration::from_secs(2);

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
    pub(crate) fn start(runtime: &Handle, url: JwksUrl, authority: IssuerAuthority) -> Self {
        let newest = watch::Sender::new(Newest::default());
        let shared = Arc::new(Shared { newest, wanted: Notify::new() });
        let task = runtime.spawn(keep(Arc::clone(&shared), url, authority)).abort_handle();
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

async fn keep(shared: Arc<Shared>, url: JwksUrl, authority: IssuerAuthority) {
    let mut read_at: Option<Instant> = None;
    let mut failing = false;
    loop {
        let started = Instant::now();
        let read = url.read(&authority).await;
        let not_before = Some(Instant::now() + APART);
        let next = match read {
            Ok(keys) => {
                if failing {
                    tracing::info!(%url, "the keys of an issuer can be read again");
                }
                (failing, read_at) = (false, Some(started));
                shared.newest.send_replace(Newest { keys: Some(Arc::new(keys)), not_before });
                started + REFRESH
            }
            Err(why) => {
                if !failing {
                    tracing::warn!(%url, why, "the keys of an issuer cannot be read");
                }
                failing = true;
                let stale = read_at.is_none_or(|at| started.duration_since(at) >= STALE_MAX);
                shared.newest.send_modify(|newest| {
                    newest.not_before = not_before;
                    if stale {
                        newest.keys = None;
                    }
                });
                started + RETRY
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
