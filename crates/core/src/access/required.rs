//! Lists what each command requires of its principal. This is the only such table.

use tenure_types::{Verb, VerbSet};

use super::{Access, Permissions};
use crate::request::{Ask, Command, PRIORITY_MAX, Purpose, Revoker};

/// What a command requires of its principal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requirement<'a> {
    /// That the principal exists and is enabled. For commands that only give up what the caller already has.
    Known,
    /// One of these verbs, for some name. For commands on a lease, which has no name.
    Somewhere(VerbSet),
    /// One of these verbs, for this name.
    Name(VerbSet, &'a str),
    /// This verb, for the name of every lock.
    Each(Verb, &'a [Ask<'a>]),
    /// This verb, for the name of every lock, and the permission to use this priority with it.
    EachUrgent(Verb, u8, &'a [Ask<'a>]),
    /// This verb, for the cluster itself.
    Cluster(Verb),
}

/// What a principal lacks for a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// A verb.
    Verb(Verb),
    /// The permission to use the priority of the request.
    Priority {
        /// The priority of the request.
        asked: u8,
        /// The greatest priority that it may use for all locks of the request.
        most: u8,
    },
}

impl Missing {
    /// The missing verb. For a priority it is the one with which every priority is permitted.
    pub fn verb(self) -> Verb {
        match self {
            Self::Verb(verb) => verb,
            Self::Priority { .. } => Verb::Force,
        }
    }
}

/// The verbs for which a lease is of use.
const LEASED: VerbSet = VerbSet::from_verbs(&[Verb::Acquire, Verb::Keys, Verb::Elect]);

/// The verbs for which a lock is held.
const HELD: VerbSet = VerbSet::from_verbs(&[Verb::Acquire, Verb::Elect]);

/// What this command requires of its principal.
pub fn required<'c>(command: &'c Command<'c>) -> Requirement<'c> {
    let one = |verb| VerbSet::default().with(verb);
    match command {
        Command::GrantLease(_) | Command::Renew(_) => Requirement::Somewhere(LEASED),
        Command::Acquire(acquire) => {
            let verb = match acquire.purpose {
                Purpose::Lock => Verb::Acquire,
                Purpose::Election => Verb::Elect,
            };
            let asks = acquire.locks.as_slice();
            match acquire.priority {
                0 => Requirement::Each(verb, asks),
                priority => Requirement::EachUrgent(verb, priority, asks),
            }
        }
        // The command itself compares the principal with that of the lease. Ending the lease of another principal
        // requires `force` for the cluster.
        Command::Revoke { by: Revoker::Holder | Revoker::Other { .. }, .. }
        | Command::Release(_)
        | Command::Leave { .. }
        | Command::Stopped { .. }
        | Command::Abandon(_) => Requirement::Known,
        Command::Downgrade(hold)
        | Command::Update { hold, .. }
        | Command::Progress { hold, .. }
        | Command::HandOn { hold, .. } => Requirement::Name(HELD, hold.lock),
        Command::Upgrade(upgrade) => Requirement::Name(HELD, upgrade.lock),
        Command::Force { lock, .. } => Requirement::Name(one(Verb::Force), lock),
        Command::Put(put) => Requirement::Name(one(Verb::Keys), put.key),
        Command::Delete { key, .. } => Requirement::Name(one(Verb::Keys), key),
        Command::SetLimits(_) | Command::Compact { .. } | Command::RaiseLevel { .. } => {
            Requirement::Cluster(Verb::Operate)
        }
        Command::SetAccess(_) => Requirement::Cluster(Verb::Administer),
        // A rule that permits the prefix as a name permits all names that begin with it.
        Command::Drain { prefix, .. } | Command::Undrain { prefix, .. } => {
            Requirement::Name(one(Verb::Operate), prefix)
        }
        Command::Resize { lock, .. } => Requirement::Name(one(Verb::Operate), lock),
    }
}

impl Access {
    /// Checks a requirement. Returns what is missing as an error.
    pub fn check(&self, principal: &str, requirement: Requirement<'_>) -> Result<(), Missing> {
        requirement.check(&LookedUpPrincipal { access: self, principal })
    }
}

/// A principal whose rules are looked up for every question.
struct LookedUpPrincipal<'a> {
    access: &'a Access,
    principal: &'a str,
}

impl Permissions for LookedUpPrincipal<'_> {
    fn knows(&self) -> bool {
        self.access.knows(self.principal)
    }

    fn may(&self, verb: Verb, name: &str) -> bool {
        self.access.may(self.principal, verb, name)
    }

    fn priority(&self, verb: Verb, name: &str) -> u8 {
        self.access.priority(self.principal, verb, name)
    }

    fn may_somewhere(&self, verbs: VerbSet) -> bool {
        self.access.may_somewhere(self.principal, verbs)
    }
}

impl Requirement<'_> {
    /// Checks the requirement. Returns what is missing as an error.
    #[inline]
    pub(crate) fn check(self, principal: &impl Permissions) -> Result<(), Missing> {
        let (allowed, verb) = match self {
            // A refusal must name a verb. There is none for "known", so it names this one.
            Requirement::Known => (principal.knows(), Verb::Acquire),
            Requirement::Somewhere(verbs) => (principal.may_somewhere(verbs), first(verbs)),
            Requirement::Name(verbs, name) => {
                (verbs.iter().any(|verb| principal.may(verb, name)), first(verbs))
            }
            Requirement::Each(verb, asks) => {
                let each = asks.iter().all(|ask| principal.may(verb, ask.lock));
                // A command without any lock is refused for that reason later, but only if its caller is known. With
                // locks, a caller that may acquire them is known.
                let known = !asks.is_empty() || principal.knows();
                (each && known, verb)
            }
            Requirement::EachUrgent(verb, asked, asks) => {
                Requirement::Each(verb, asks).check(principal)?;
                let most = permitted_priority(verb, asks, principal);
                return if asked <= most { Ok(()) } else { Err(Missing::Priority { asked, most }) };
            }
            Requirement::Cluster(verb) => (principal.may(verb, ""), verb),
        };
        if allowed { Ok(()) } else { Err(Missing::Verb(verb)) }
    }
}

/// The greatest priority that the principal may use for all of these locks.
fn permitted_priority(verb: Verb, asks: &[Ask<'_>], principal: &impl Permissions) -> u8 {
    let each = asks.iter().map(|ask| principal.priority(verb, ask.lock));
    let most = if mutant!("priority_of_one_lock_is_enough") { each.max() } else { each.min() };
    most.unwrap_or(PRIORITY_MAX)
}

fn first(verbs: VerbSet) -> Verb {
    verbs.iter().next().unwrap_or(Verb::Acquire)
}
