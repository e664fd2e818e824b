//! Removes from a watch what its principal may not observe.
//!
//! The decision is made when a step is delivered, by the published access rules. The event loop publishes them before
//! it offers the revisions of a turn, so an event is never judged by rules that are older than the event.

use std::sync::Arc;

use tenure_core::access::Access;
use tenure_core::event::{Cause, Event, Subject};
use tenure_node::{Principal, PrincipalAction};
use tenure_types::Verb;

use super::reader::WatchStep;
use super::shared::{OwnedFilter, SharedBatch};
use crate::identity::Identity;

impl OwnedFilter {
    /// What a watch with this filter requires of its principal.
    pub(crate) fn action(&self) -> PrincipalAction<'_> {
        match self {
            Self::All => PrincipalAction::Below(Verb::Observe, ""),
            Self::Exact(name) => PrincipalAction::Name(Verb::Observe, name),
            Self::Prefix(prefix) => PrincipalAction::Below(Verb::Observe, prefix),
        }
    }

    /// How much of the filter a principal may observe.
    fn sight(&self, access: &Access, principal: &str) -> WatchVisibility {
        let (name, only) = match self {
            Self::All => ("", false),
            Self::Exact(name) => (name.as_str(), true),
            Self::Prefix(prefix) => (prefix.as_str(), false),
        };
        if access.may(principal, Verb::Observe, name) {
            WatchVisibility::Everything
        } else if !only && access.may_below(principal, Verb::Observe, name) {
            WatchVisibility::Part
        } else {
            WatchVisibility::Nothing
        }
    }
}

/// How much of a watch its principal may observe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WatchVisibility {
    Everything,
    Part,
    Nothing,
}

/// The principal of a watch, and how much it may observe.
pub(super) struct EventObserver {
    who: Principal,
    /// The generation of the rules, and what they mean for this watch.
    known: Option<(u64, WatchVisibility)>,
}

impl EventObserver {
    pub(super) fn new(who: Principal) -> Self {
        Self { who, known: None }
    }

    /// The step as the principal may see it; none if nothing of it is left. A watch of which nothing may be observed
    /// any more ends.
    pub(super) fn permit(
        &mut self,
        identity: &Identity,
        filter: &OwnedFilter,
        step: WatchStep,
    ) -> Option<WatchStep> {
        let ends = !matches!(step, WatchStep::Batch(_) | WatchStep::Progress(_));
        let permitted = identity.with_rules(|generation, access| {
            let sight = match self.known {
                Some((known, sight)) if known == generation => sight,
                _ => filter.sight(access, self.who.name()),
            };
            self.known = Some((generation, sight));
            match (sight, &step) {
                (WatchVisibility::Nothing, _) if !ends => Some(WatchStep::Forbidden),
                (WatchVisibility::Part, WatchStep::Batch(batch)) => {
                    batch_for(batch, access, self.who.name()).map(WatchStep::Batch)
                }
                _ => Some(step.clone()),
            }
        });
        permitted.unwrap_or(Some(step))
    }
}

/// The events of a batch that a principal may observe. A batch that it may observe as a whole stays shared.
fn batch_for(batch: &Arc<SharedBatch>, access: &Access, who: &str) -> Option<Arc<SharedBatch>> {
    let seen = |event: &Event| {
        let name = match &event.subject {
            Subject::Lock(name) | Subject::Key(name) => name.as_str(),
            // A drained prefix concerns every principal that may observe a name below it.
            Subject::Settings if matches!(event.cause, Cause::Drained | Cause::Undrained) => {
                let prefix = event.value.as_deref().and_then(|prefix| str::from_utf8(prefix).ok());
                return prefix.is_some_and(|it| access.may_below(who, Verb::Observe, it));
            }
            // Only the whole cluster covers what has no name.
            Subject::Lease(_) | Subject::Settings => "",
        };
        access.may(who, Verb::Observe, name)
    };
    if batch.events.iter().all(seen) { Some(batch.clone()) } else { batch.only(seen) }
}
