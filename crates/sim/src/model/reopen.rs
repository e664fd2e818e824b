//! Serves, lease by lease and slice by slice, the queues that a drained prefix or the quiet period held back.

use std::collections::BTreeSet;

use tenure_types::{LeaseId, Limit, Name};

use super::{Model, Place};

/// The queues of these leases have been served since the time at which the prefix was opened or the quiet period ended.
#[derive(Clone)]
pub(super) struct ModelReopening {
    pub(super) since_ms: u64,
    done: Option<LeaseId>,
}

impl Model {
    /// Notes that the queues of every lease are to be served.
    pub(super) fn begin_reopening(&mut self) {
        let since_ms = self.reopening.as_ref().map_or(self.clock_ms, |old| old.since_ms);
        self.reopening = Some(ModelReopening { since_ms, done: None });
    }

    /// Serves one slice.
    pub(super) fn reopen(&mut self) {
        let Some(ModelReopening { since_ms, mut done }) = self.reopening.take() else { return };
        let most = self.limits.get(Limit::EndsPerEntry);
        let mut objects = 0;
        while objects < most {
            let after = |id: &&LeaseId| done.is_none_or(|done| **id > done);
            let Some(lease) = self.leases.keys().find(after).copied() else { return };
            done = Some(lease);
            let tokens_before = self.tokens_used;
            let places = self.places_of(lease);
            objects += 1 + places.len() as u64;
            let locks: BTreeSet<Name> = places.iter().flat_map(Place::names).collect();
            self.grant_pass(locks);
            objects += self.tokens_used - tokens_before;
        }
        self.reopening = Some(ModelReopening { since_ms, done });
    }
}
