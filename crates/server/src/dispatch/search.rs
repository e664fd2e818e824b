//! Bounds the searches of the archive, which read files: a few at a time in sum, and one for each source.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Caller, Dispatch, Failure};

/// The most searches at a time. Each one reads up to 64 MiB and uses a thread for some tens of milliseconds, so this
/// many leave the processors and the disk to the event loop.
const SEARCHES_MAX: usize = 4;

/// The sources that search at present.
#[derive(Clone, Default)]
pub(super) struct SearchSlots(Arc<Mutex<BTreeSet<u64>>>);

/// A search that counts until this is dropped.
pub(crate) struct SearchSlot {
    of: SearchSlots,
    share: u64,
}

impl SearchSlots {
    /// A slot for a source; none if it searches already, or if there are too many searches.
    fn begin(&self, share: u64) -> Option<SearchSlot> {
        let mut searching = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = searching.len() < SEARCHES_MAX && searching.insert(share);
        begins.then(|| SearchSlot { of: self.clone(), share })
    }
}

impl Drop for SearchSlot {
    fn drop(&mut self) {
        self.of.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.share);
    }
}

impl Dispatch {
    /// Admits a search of the archive for the present caller.
    pub(crate) fn begin_search(&self) -> Result<SearchSlot, Failure> {
        self.inner.searches.begin(Caller::source().share).ok_or_else(|| self.overloaded())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_one_search_at_a_time_and_all_have_a_few() {
        let slots = SearchSlots::default();
        let first = slots.begin(1);
        assert!(first.is_some() && slots.begin(1).is_none());
        let others: Vec<_> = (2..=SEARCHES_MAX as u64).map(|share| slots.begin(share)).collect();
        assert!(others.iter().all(Option::is_some) && slots.begin(100).is_none());
        drop(first);
        assert!(slots.begin(100).is_some(), "what has ended counts no more");
        drop(others);
        assert!(slots.0.lock().unwrap().is_empty());
    }
}
