//! Serves, lease by lease and slice by slice, the queues that a drained prefix or the quiet period held back.

use std::collections::BTreeSet;

use tenure_core::view::ReopeningView;
use tenure_types::{LeaseId, Limit, Name};

use super::{Model, Place};

/// The queues of these leases have been served since the time at which the prefix was opened or the quiet period ended.
#[derive(Clone)]
pub(super) struct ModelReopening {
    pub(super) since_ms: u64,
    done: Option<LeaseId>,
    /// Whether a prefix was opened after this round began, so that another one follows.
    again: bool,
}

impl Model {
    /// Notes that the queues of every lease are to be served.
    pub(super) fn begin_reopening(&mut self) {
        match &mut self.reopening {
            Some(round) => round.again = round.again || round.done.is_some(),
            None => {
                let since_ms = self.clock_ms;
                self.reopening = Some(ModelReopening { since_ms, done: None, again: false });
            }
        }
    }

    /// Serves one slice, unless this entry has served one.
    pub(super) fn reopen(&mut self) {
        if self.sliced {
            return;
        }
        self.sliced = true;
        let Some(ModelReopening { since_ms, mut done, mut again }) = self.reopening.take() else {
            return;
        };
        let most = self.limits.get(Limit::EndsPerEntry);
        let mut objects = 0;
        while objects < most {
            let after = |id: &&LeaseId| done.is_none_or(|done| **id > done);
            let Some(lease) = self.leases.keys().find(after).copied() else {
                if !again {
                    return;
                }
                (done, again) = (None, false);
                continue;
            };
            done = Some(lease);
            let tokens_before = self.tokens_used;
            let places = self.places_of(lease);
            objects += 1 + places.len() as u64;
            let locks: BTreeSet<Name> = places.iter().flat_map(Place::names).collect();
            self.grant_pass(locks);
            objects += self.tokens_used - tokens_before;
        }
        self.reopening = Some(ModelReopening { since_ms, done, again });
    }

    /// Which queues are still to be served.
    pub fn reopening(&self) -> Option<ReopeningView> {
        let ModelReopening { since_ms, done, again } = self.reopening.clone()?;
        Some(ReopeningView { for_ms: self.clock_ms - since_ms, after: done, again })
    }
}
