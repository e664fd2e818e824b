//! Decides by the published access rules what a principal may do and see.

use tenure_core::access::{Access, MEMBER};
use tenure_core::request::Command;
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

    /// Whether a principal may change the access rules: the local administrator of a member, or a principal that has a
    /// role for it. Decided as if identity were enabled: otherwise the first stranger who reaches a new cluster could
    /// make itself the only administrator and enable identity.
    fn administers(&self, who: &Principal) -> bool {
        let name = who.name();
        name == MEMBER
            || self.published.read().access.permission(name, Verb::Administer, "").is_some()
    }

    /// Decides by the rules as last published whether a principal may do something.
    pub(crate) fn authorise<'a>(
        &self,
        who: &Principal,
        action: impl Into<PrincipalAction<'a>>,
    ) -> Result<(), NodeFailure> {
        let action = action.into();
        if matches!(action, PrincipalAction::Command(Command::SetAccess(_)))
            && !self.administers(who)
        {
            return Err(NodeFailure::Forbidden { verb: Some(Verb::Administer) });
        }
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
