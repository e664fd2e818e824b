//! Serializes the requests that lock and unlock one state at a cluster.
//!
//! A lock is several steps: read the row, acquire the lock at the cluster, commit the row, start the task that keeps
//! the lock. A second request for the same state must see either none of them or all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The turns, by state. An entry without users is removed.
#[derive(Default)]
pub(super) struct StateTurns(Mutex<BTreeMap<String, Weak<StateTurn>>>);

/// The right to lock or unlock one state.
pub(super) type StateTurn = tokio::sync::Mutex<()>;

impl StateTurns {
    /// Returns the turn of a state. Requests get it in the order in which they ask.
    pub(super) fn of(&self, name: &str) -> Arc<StateTurn> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(name).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(StateTurn::default());
        turns.insert(name.to_owned(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_one_state_share_a_turn_that_goes_with_the_last_of_them() {
        let turns = StateTurns::default();
        let (one, other) = (turns.of("a"), turns.of("b"));
        assert!(Arc::ptr_eq(&one, &turns.of("a")) && !Arc::ptr_eq(&one, &other));
        let held = one.try_lock_owned().unwrap();
        assert!(turns.of("a").try_lock().is_err());
        drop((held, other));
        drop(turns.of("c"));
        drop(turns.of("d"));
        assert_eq!(turns.0.lock().unwrap().len(), 1);
    }
}
