//! Keeps the keys of the store in memory: their owners, deadlines and watches.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure::{Moment, Token};
use tokio::sync::mpsc::UnboundedSender;

use crate::backend::{Owner, StoreError};

type To = UnboundedSender<Result<(), StoreError>>;

/// The state of the store. It has no clock: the caller passes the time.
#[derive(Default)]
pub(super) struct MemoryStore {
    keys: BTreeMap<String, MemoryKey>,
    revision: u64,
    watches: Vec<MemoryWatcher>,
}

struct MemoryKey {
    owner: Owner,
    token: Token,
    until: Moment,
}

struct MemoryWatcher {
    key: String,
    client: Arc<str>,
    to: To,
}

/// An event for one watch.
pub(super) struct WatchEvent {
    pub(super) client: Arc<str>,
    pub(super) to: To,
}

impl MemoryStore {
    /// Puts a key if it is absent. An expired key counts as present until `expire` has removed it, which sends an
    /// event.
    pub(super) fn put(&mut self, key: &str, owner: &Owner, until: Moment) -> Option<Token> {
        if self.keys.contains_key(key) {
            return None;
        }
        self.revision += 1;
        let token = Token::from_u64(self.revision).expect("counted from 1");
        self.keys.insert(key.to_owned(), MemoryKey { owner: owner.clone(), token, until });
        Some(token)
    }

    pub(super) fn swap(&mut self, key: &str, owner: &Owner, now: Moment, until: Moment) -> bool {
        let ours = self.keys.get_mut(key).filter(|it| it.owner == *owner && it.until > now);
        match ours {
            Some(entry) => {
                entry.until = entry.until.max(until);
                true
            }
            None => false,
        }
    }

    /// Deletes a key, of this owner or of any.
    pub(super) fn delete(&mut self, key: &str, owner: Option<&Owner>) -> (bool, Vec<WatchEvent>) {
        let ours =
            self.keys.get(key).is_some_and(|it| owner.is_none_or(|owner| it.owner == *owner));
        if !ours {
            return (false, Vec::new());
        }
        self.keys.remove(key);
        self.revision += 1;
        (true, self.told(key))
    }

    /// Removes the key if its time is over, and otherwise returns when it will be.
    pub(super) fn expire(&mut self, key: &str, now: Moment) -> (Option<Moment>, Vec<WatchEvent>) {
        match self.keys.get(key).map(|it| it.until) {
            Some(until) if until <= now => (None, self.delete(key, None).1),
            until => (until, Vec::new()),
        }
    }

    pub(super) fn holder(&self, key: &str, now: Moment) -> Option<Token> {
        self.keys.get(key).filter(|it| it.until > now).map(|it| it.token)
    }

    pub(super) fn watch(&mut self, key: String, client: Arc<str>, to: To) {
        self.watches.retain(|it| !it.to.is_closed());
        self.watches.push(MemoryWatcher { key, client, to });
    }

    pub(super) fn break_watches(&mut self, client: &str) {
        // Dropping the sender ends a watch.
        self.watches.retain(|it| *it.client != *client);
    }

    fn told(&self, key: &str) -> Vec<WatchEvent> {
        let mine = self.watches.iter().filter(|it| it.key == key);
        mine.map(|it| WatchEvent { client: it.client.clone(), to: it.to.clone() }).collect()
    }
}
