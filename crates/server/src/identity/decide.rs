//! Decides by the published access rules what a principal may do and see.

use tenure_core::access::Access;
use tenure_node::{NodeFailure, Principal, PrincipalAction, authorise};
use tenure_types::Verb;

use super::Identity;

impl Identity {
    /// Decides by the rules as last published whether a principal may do something.
    pub(crate) fn authorise<'a>(
        &self,
        who: &Principal,
        action: impl Into<PrincipalAction<'a>>,
    ) -> Result<(), NodeFailure> {
        self.published.decide(|access| authorise(access, who.name(), action))
    }

    /// Whether a principal may do something with a name, by the rules as last published.
    pub(crate) fn may(&self, who: &Principal, verb: Verb, name: &str) -> bool {
        self.published.read().access.may(who.name(), verb, name)
    }

    /// The rules as last published, if identity is enabled, and their generation.
    pub(crate) fn with_rules<T>(&self, with: impl FnOnce(u64, &Access) -> T) -> Option<T> {
        if !self.published.is_enabled() {
            return None;
        }
        let published = self.published.read();
        published.access.is_enabled().then(|| with(published.generation, &published.access))
    }
}
