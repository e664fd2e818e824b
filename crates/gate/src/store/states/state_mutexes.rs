//! Serializes the requests that lock and unlock one state at a cluster.
//!
//! A lock is several steps: read the row, acquire the lock at the cluster, commit the row, start the task that keeps
//! the lock. A second request for the same state must see either none of them or all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The mutexes, by the name of the state. An entry without users is removed.
#[derive(Default)]
pub(super) struct StateMutexes(Mutex<BTreeMap<String, Weak<StateMutex>>>);

/// The right to lock or unlock one state.
pub(super) type StateMutex = tokio::sync::Mutex<()>;

impl StateMutexes {
    /// Returns the mutex of a state. Requests lock it in the order in which they ask.
    pub(super) fn of(&self, name: &str) -> Arc<StateMutex> {
        let mut mutexes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mutex) = mutexes.get(name).and_then(Weak::upgrade) {
            return mutex;
        }
        mutexes.retain(|_, mutex| mutex.strong_count() > 0);
        let mutex = Arc::new(StateMutex::default());
        mutexes.insert(name.to_owned(), Arc::downgrade(&mutex));
        mutex
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_one_state_share_a_mutex_that_goes_with_the_last_of_them() {
        let mutexes = StateMutexes::default();
        let (one, other) = (mutexes.of("a"), mutexes.of("b"));
        assert!(Arc::ptr_eq(&one, &mutexes.of("a")) && !Arc::ptr_eq(&one, &other));
        let held = one.try_lock_owned().unwrap();
        assert!(mutexes.of("a").try_lock().is_err());
        drop((held, other));
        drop(mutexes.of("c"));
        drop(mutexes.of("d"));
        assert_eq!(mutexes.0.lock().unwrap().len(), 1);
    }
}
