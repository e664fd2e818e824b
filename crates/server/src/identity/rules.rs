//! Publishes the access rules to the APIs, and wakes the work whose credentials have to be compared with new ones.
//!
//! Every request reads the rules, and almost none sees them change. So a request begins with one atomic load: whether
//! the rules are those by which its caller was resolved, and whether identity is enabled. Only work that waits
//! registers to be woken, and only requests with identity enabled take the lock of the rules.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::task::Waker;

use tenure_core::access::Access;

/// The number of lists of waiting work. The connections of a member are spread over them, so that its threads seldom
/// wait for each other.
const LISTS: usize = 16;

/// One state of the access rules. Each has another generation.
#[derive(Clone, Default)]
pub(crate) struct Published {
    pub(crate) generation: u64,
    pub(crate) access: Arc<Access>,
}

/// The rules as last published, and the work that waits for others.
#[derive(Default)]
pub(super) struct PublishedRules {
    /// Twice the generation of the rules, and one more if identity is enabled.
    state: AtomicU64,
    rules: RwLock<Published>,
    /// Rules without identity, by which requests are decided while it is disabled.
    without_identity: Access,
    lists: [Mutex<WaitingList>; LISTS],
    callers: AtomicUsize,
}

/// The wakers of work that waits. A place stays the same until it is left.
#[derive(Default)]
struct WaitingList {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

/// A place in one of the lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WaitingPlace {
    list: usize,
    at: usize,
}

impl PublishedRules {
    /// Publishes rules if they are others than before, and returns whether they are. Only the event loop calls it.
    pub(super) fn publish(&self, access: &Arc<Access>) -> bool {
        // The published copy keeps the old rules alive, so equal addresses mean equal rules.
        if Arc::ptr_eq(&self.read().access, access) {
            return false;
        }
        {
            let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
            let generation = rules.generation + 1;
            *rules = Published { generation, access: Arc::clone(access) };
            let state = generation * 2 + u64::from(access.is_enabled());
            self.state.store(state, Ordering::Release);
        }
        self.wake();
        true
    }

    /// Wakes all work that waits, to compare its credentials again.
    pub(super) fn wake(&self) {
        for list in 0..LISTS {
            // Work that registers after this sees what changed before it: the lock orders the two.
            let wakers: Vec<Waker> = self.list(list).wakers.iter().flatten().cloned().collect();
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// The generation of the rules.
    pub(super) fn generation(&self) -> u64 {
        self.state.load(Ordering::Acquire) / 2
    }

    /// Whether identity is enabled.
    pub(super) fn is_enabled(&self) -> bool {
        self.state.load(Ordering::Acquire) % 2 == 1
    }

    /// The rules.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Published> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides by the rules. Takes no lock while identity is disabled.
    pub(super) fn decide<T>(&self, by: impl FnOnce(&Access) -> T) -> T {
        if self.is_enabled() { by(&self.read().access) } else { by(&self.without_identity) }
    }

    /// The list for the work of another caller.
    pub(super) fn next_list(&self) -> usize {
        self.callers.fetch_add(1, Ordering::Relaxed) % LISTS
    }

    /// Registers work to be woken when the rules change, or replaces its waker.
    pub(super) fn wait(
        &self,
        list: usize,
        place: Option<WaitingPlace>,
        by: &Waker,
    ) -> WaitingPlace {
        let mut waiting = self.list(place.map_or(list, |place| place.list));
        if let Some(place) = place {
            let waker = &mut waiting.wakers[place.at];
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(by)) {
                *waker = Some(by.clone());
            }
            return place;
        }
        let waker = Some(by.clone());
        if let Some(at) = waiting.free.pop() {
            waiting.wakers[at] = waker;
            return WaitingPlace { list, at };
        }
        waiting.wakers.push(waker);
        WaitingPlace { list, at: waiting.wakers.len() - 1 }
    }

    /// Leaves a place.
    pub(super) fn leave(&self, place: WaitingPlace) {
        let mut waiting = self.list(place.list);
        let waker = waiting.wakers[place.at].take();
        waiting.free.push(place.at);
        drop(waiting);
        // The waker may be the last reference to a task, whose end would leave another place.
        drop(waker);
    }

    fn list(&self, list: usize) -> MutexGuard<'_, WaitingList> {
        self.lists[list].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much work waits.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        (0..LISTS).map(|list| self.list(list).wakers.iter().flatten().count()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use tenure_core::access::AccessChange;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn enabled(enabled: bool) -> Arc<Access> {
        let mut access = Access::default();
        access.change(&AccessChange::SetIdentity { enabled }).unwrap();
        Arc::new(access)
    }

    #[test]
    fn everything_that_waits_is_woken_until_it_leaves_its_place() {
        let rules = PublishedRules::default();
        let (one, other) = (Arc::<Woken>::default(), Arc::<Woken>::default());
        let counts = || (one.0.load(Ordering::Relaxed), other.0.load(Ordering::Relaxed));
        let first = rules.wait(3, None, &one.clone().into());
        let second = rules.wait(3, None, &other.clone().into());
        assert_ne!(first, second);
        assert_eq!(rules.wait(5, Some(first), &one.clone().into()), first);
        assert!(rules.publish(&enabled(true)));
        assert_eq!(counts(), (1, 1));
        rules.leave(first);
        assert!(rules.publish(&enabled(false)));
        assert_eq!(counts(), (1, 2));
        let third = rules.wait(3, None, &one.clone().into());
        assert_eq!(third, first, "a place that was left is used again");
        rules.leave(second);
        rules.leave(third);
        assert_eq!(rules.waiting(), 0);
    }

    #[test]
    fn while_identity_is_disabled_a_decision_takes_no_lock() {
        let rules = PublishedRules::default();
        let locked = rules.rules.write().unwrap();
        assert!(!rules.decide(Access::is_enabled));
        drop(locked);
        rules.publish(&enabled(true));
        assert!(rules.decide(Access::is_enabled));
    }

    #[test]
    fn equal_rules_are_published_once_and_wake_nothing() {
        let (rules, woken) = (PublishedRules::default(), Arc::<Woken>::default());
        let access = enabled(true);
        assert!(rules.publish(&access) && rules.is_enabled());
        rules.wait(0, None, &woken.clone().into());
        assert!(!rules.publish(&access));
        assert_eq!((woken.0.load(Ordering::Relaxed), rules.generation()), (0, 1));
        assert!(rules.publish(&enabled(false)) && !rules.is_enabled());
        assert_eq!(rules.generation(), 2);
    }
}
