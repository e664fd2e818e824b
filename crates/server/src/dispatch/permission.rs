//! Decides what a caller may read, watch and administer.

use tenure_core::Machine;
use tenure_node::{NodeFailure, Principal, PrincipalAction, authorise};
use tenure_types::Verb;

use super::{Dispatch, Failure, WITHIN};

/// What a read requires of its principal. Decided by the state that the read sees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ReadScope {
    /// That it is known. For what tells nothing of names, and for reads that answer with what the principal may see.
    Known,
    /// A verb for one name; the empty name stands for the cluster.
    Name(Verb, String),
    /// A verb for some name below a prefix. The read answers with what the principal may see.
    Below(Verb, String),
}

impl ReadScope {
    /// Permission to read one name.
    pub(crate) fn read(name: &str) -> Self {
        Self::Name(Verb::Read, name.to_owned())
    }

    /// Permission to read some name below a prefix.
    pub(crate) fn list(prefix: &str) -> Self {
        Self::Below(Verb::Read, prefix.to_owned())
    }

    fn action(&self) -> PrincipalAction<'_> {
        match self {
            Self::Known => PrincipalAction::Enter,
            Self::Name(verb, name) => PrincipalAction::Name(*verb, name),
            Self::Below(verb, prefix) => PrincipalAction::Below(*verb, prefix),
        }
    }

    /// Refuses a read whose principal lacks the permission in this state.
    pub(super) fn check(&self, machine: &Machine, who: &Principal) -> Result<(), NodeFailure> {
        authorise(machine.access(), who.name(), self.action())
    }
}

impl Dispatch {
    /// Authorises an action that is neither a command nor a read of the state.
    pub(crate) fn may(&self, who: &Principal, action: PrincipalAction<'_>) -> Result<(), Failure> {
        let decided = self.member().identity().authorise(who, action);
        decided.map_err(|failure| self.failure_to(who, failure, WITHIN))
    }

    /// Authorises a change of the cluster itself, its members or its files.
    pub(crate) fn may_operate(&self, who: &Principal) -> Result<(), Failure> {
        self.may(who, PrincipalAction::ADMIN)
    }

    /// Authorises a look at what administrators did.
    pub(crate) fn may_administer(&self, who: &Principal) -> Result<(), Failure> {
        self.may(who, PrincipalAction::Name(Verb::Administer, ""))
    }

    /// Converts a failure to one of the public contract, for this caller.
    pub(crate) fn failure_to(
        &self,
        who: &Principal,
        failure: NodeFailure,
        waited: std::time::Duration,
    ) -> Failure {
        match failure {
            // A caller without credentials lacks no verb but a name.
            NodeFailure::Forbidden { verb }
                if who.name().is_empty()
                    && (verb == Some(Verb::Administer) || self.requires_identity()) =>
            {
                Failure::Unauthenticated
            }
            failure => self.failure(failure, waited),
        }
    }

    fn requires_identity(&self) -> bool {
        let identity = self.member().identity();
        identity.is_required(&identity.access())
    }
}
