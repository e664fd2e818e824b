//! Imitates a cluster whose locks guard states.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tenure_fence::Token;
use tenure_gate::store::{LockRefused, Settings, StateCluster, StateFuture, StateHold};
use tokio::sync::watch;

/// A cluster of one lock table, whose locks can be taken away.
#[derive(Default)]
pub(crate) struct FakeCluster {
    pub(crate) tokens: AtomicU64,
    pub(crate) is_down: AtomicBool,
    /// Whether grants are answered late: not before this is false again.
    pub(crate) is_late: watch::Sender<bool>,
    /// How often it was asked, and the notes of what it granted.
    pub(crate) asked: AtomicU64,
    pub(crate) notes: Mutex<Vec<String>>,
    pub(crate) held: Mutex<BTreeMap<String, (u64, watch::Sender<bool>)>>,
}

pub(crate) struct FakeHold {
    of: Arc<FakeCluster>,
    lock: String,
    token: u64,
    lost: watch::Receiver<bool>,
}

/// The cluster as the store sees it.
struct Reached(Arc<FakeCluster>);

impl FakeCluster {
    pub(crate) fn take(self: &Arc<Self>, lock: &str) -> Option<FakeHold> {
        let mut held = self.held.lock().unwrap();
        if held.contains_key(lock) {
            return None;
        }
        let token = 100 + self.tokens.fetch_add(1, Ordering::SeqCst);
        let (tell, lost) = watch::channel(false);
        held.insert(lock.to_owned(), (token, tell));
        Some(FakeHold { of: Arc::clone(self), lock: lock.to_owned(), token, lost })
    }

    /// Ends the lease of the holder of the lock.
    pub(crate) fn expire(&self, lock: &str) {
        if let Some((_, tell)) = self.held.lock().unwrap().remove(lock) {
            let _ = tell.send(true);
        }
    }

    pub(crate) fn is_held(&self, lock: &str) -> bool {
        self.held.lock().unwrap().contains_key(lock)
    }
}

impl StateCluster for Reached {
    fn acquire<'a>(
        &'a self,
        lock: &'a str,
        note: &'a str,
    ) -> StateFuture<'a, Result<Box<dyn StateHold>, LockRefused>> {
        Box::pin(async move {
            self.0.asked.fetch_add(1, Ordering::SeqCst);
            if self.0.is_down.load(Ordering::SeqCst) {
                return Err(LockRefused::Failed("no leader".to_owned()));
            }
            match self.0.take(lock) {
                Some(hold) => {
                    self.0.notes.lock().unwrap().push(note.to_owned());
                    let mut is_late = self.0.is_late.subscribe();
                    let _ = is_late.wait_for(|is_late| !is_late).await;
                    Ok(Box::new(hold) as Box<dyn StateHold>)
                }
                None => Err(LockRefused::Held {
                    client: "ana".to_owned(),
                    words: "held by ana".to_owned(),
                }),
            }
        })
    }
}

impl StateHold for FakeHold {
    fn token(&self) -> Token {
        Token::from_u64(self.token).unwrap()
    }

    fn lost(&self) -> StateFuture<'_, ()> {
        let mut lost = self.lost.clone();
        Box::pin(async move {
            let _ = lost.wait_for(|lost| *lost).await;
        })
    }

    fn release(self: Box<Self>) -> StateFuture<'static, ()> {
        Box::pin(async move {
            let mut held = self.of.held.lock().unwrap();
            if held.get(&self.lock).is_some_and(|(token, _)| *token == self.token) {
                held.remove(&self.lock);
            }
        })
    }
}

pub(crate) fn with_cluster(settings: &mut Settings, cluster: &Arc<FakeCluster>) {
    settings.cluster = Some(Arc::new(Reached(Arc::clone(cluster))));
}
