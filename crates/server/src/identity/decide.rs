//! Decides by the published access rules what a principal may do and see.

use tenure_core::access::Access;
use tenure_node::{NodeFailure, Principal, PrincipalAction, authorise};
use tenure_types::Verb;

use super::Identity;

impl Identity {
    /// Refuses a principal without a name if every caller must have one. The credentials of a request are checked
    /// before it is served; this refuses a request that was served without that check.
    pub(crate) fn check_known(&self, who: &Principal) -> Result<(), NodeFailure> {
        if who.name().is_empty() {
            self.published.decide(|access| self.known(access, who))
        } else {
            Ok(())
        }
    }

    fn known(&self, access: &Access, who: &Principal) -> Result<(), NodeFailure> {
        if who.name().is_empty() && self.is_required(access) {
            return Err(NodeFailure::Forbidden { verb: None });
        }
        Ok(())
    }

    /// Decides by the rules as last published whether a principal may do something.
    pub(crate) fn authorise<'a>(
        &self,
        who: &Principal,
        action: impl Into<PrincipalAction<'a>>,
    ) -> Result<(), NodeFailure> {
        self.published.decide(|access| {
            self.known(access, who)?;
            authorise(access, who.name(), action)
        })
    }

    /// Whether a principal may do something with a name, by the rules as last published.
    pub(crate) fn may(&self, who: &Principal, verb: Verb, name: &str) -> bool {
        let published = self.published.read();
        self.known(&published.access, who).is_ok() && published.access.may(who.name(), verb, name)
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
