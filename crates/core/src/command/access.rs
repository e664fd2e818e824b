//! Executes `SetAccess`, and checks what the principal of a command may do and see.

use alloc::sync::Arc;
use tenure_types::{Name, QuotaSetter, Refusal, Verb};

use crate::access::{Access, AccessChange, Missing, acting, required};
use crate::codec::{EventRef, SubjectRef};
use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::Answer;
use crate::request::{LEVEL_PRIORITY_RULES, LEVEL_RECORDS, LEVEL_SETTERS, Request};
use crate::state::due::DueKind;

/// The reason in the events and notices of leases that end with their principal.
pub(super) const PRINCIPAL_REVOKED: &str = "principal revoked";

impl Machine {
    /// The access rules.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The access rules, shared. A change of them makes another value, so a copy of this stays as it is.
    pub fn shared_access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Whether the principal of this name may do something with a name, as the state is now. The empty name stands for
    /// the cluster itself.
    pub fn may(&self, principal: &str, verb: Verb, name: &str) -> bool {
        self.access.may(principal, verb, name)
    }

    /// Refuses a command whose principal may not run it.
    pub(super) fn authorise(&self, request: &Request<'_>) -> Result<(), Refusal> {
        if !self.access.is_enabled() || mutant!("permission_not_checked_in_apply") {
            return Ok(());
        }
        self.check_permission(request)
    }

    #[inline(never)]
    fn check_permission(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let requirement = required(&request.command);
        let checked = match &self.now.known {
            Some(known) => requirement.check(known),
            None => self.access.check(self.deciding(request.principal), requirement),
        };
        checked.map_err(|missing| match missing {
            Missing::Priority { asked, most } if self.level >= LEVEL_PRIORITY_RULES => {
                Refusal::PriorityForbidden { asked, most }
            }
            missing => Refusal::Forbidden { verb: missing.verb() },
        })
    }

    /// Removes from a refusal what tells of the leases of others, for each lock that the principal of the command may
    /// not read.
    #[cold]
    #[inline(never)]
    pub(super) fn redact(&self, principal: &str, mut refusal: Refusal) -> Refusal {
        let principal = self.deciding(principal);
        let hidden = |lock: &str| !self.may(principal, Verb::Read, lock);
        match &mut refusal {
            Refusal::Held(held) if hidden(&held.lock) => held.holder = None,
            Refusal::TokenOutdated { lock, holder } if hidden(lock) => *holder = None,
            // The first step is the caller's own.
            Refusal::Deadlock { ring } => {
                let mut first = true;
                ring.retain(|link| core::mem::take(&mut first) || !hidden(&link.lock));
            }
            _ => {}
        }
        refusal
    }

    pub(super) fn set_access(
        &mut self,
        principal: &str,
        change: &AccessChange<'_>,
    ) -> Result<Answer, Refusal> {
        let old_bytes = self.access.bytes;
        let setter = self.quota_setter(principal);
        // First, so that no way out of here leaves a copy of the old rules.
        self.now.known = None;
        let changed = Arc::make_mut(&mut self.access).change_by(change, setter.as_ref())?;
        self.state_bytes = self.state_bytes - old_bytes + self.access.bytes;
        let revoked = change.revokes().is_some_and(|name| self.revoke_principal(name));
        if changed || revoked {
            let (word, name) = change.summary();
            let caller = if self.level >= LEVEL_RECORDS { acting(principal).1 } else { principal };
            self.emit(&EventRef {
                by: Name::check(caller).is_ok().then_some(caller.as_bytes()),
                reason: Some(word),
                value: (!name.is_empty()).then_some(name.as_bytes()),
                ..EventRef::new(Cause::AccessChanged, SubjectRef::Settings)
            });
        }
        Ok(Answer::AccessSet)
    }

    /// What is recorded of the principal of a command that sets quotas; `None` at a level without such records.
    fn quota_setter(&self, principal: &str) -> Option<QuotaSetter> {
        let principal = Name::new(self.recorded(principal)).ok();
        let unix_ms = self.history.label().map(|label| label.wall.unix_ms);
        (self.level >= LEVEL_SETTERS).then_some(QuotaSetter { principal, unix_ms })
    }

    /// Ends the standing of every lease of a principal at once. The entries that follow end the leases themselves, a
    /// bounded number of objects each. Returns whether it had leases.
    fn revoke_principal(&mut self, name: &str) -> bool {
        if mutant!("revoked_principal_keeps_leases") {
            return false;
        }
        let Some(id) = self.owners.revoke(name.as_bytes(), self.clock_ms) else { return false };
        self.due.insert(self.clock_ms, DueKind::Revoked, u64::from(id.number()), None);
        true
    }
}
