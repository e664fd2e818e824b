//! Names the caller of a request and decides what it may do.

use std::sync::Arc;

use tenure_core::access::{Access, MEMBER, MEMBER_FOR, Missing, acting, required};
use tenure_core::request::{Command, LEVEL_RECORDS};
use tenure_types::Verb;

use crate::directory;
use crate::failure::NodeFailure;

/// The caller, as the API or the link that took the request knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Principal {
    name: Arc<str>,
}

impl Principal {
    /// A caller without credentials.
    pub fn anyone() -> Self {
        Self { name: "".into() }
    }

    /// A caller that proved to be the principal of this name; `None` for the name of no client.
    pub fn named(name: &str) -> Option<Self> {
        let client = !name.is_empty() && !name.starts_with(directory::RESERVED);
        client.then(|| Self { name: name.into() })
    }

    /// A member of the cluster, for what it does by itself.
    pub fn member() -> Self {
        Self { name: MEMBER.into() }
    }

    /// A member that acts for a caller: it may do what a member may do, and the history names the caller. Below the
    /// level that records callers, and for a caller without a name, it is the member alone.
    pub fn member_for(caller: &Principal, level: u16) -> Self {
        if level < LEVEL_RECORDS || caller.name.is_empty() || *caller.name == *MEMBER {
            return Self::member();
        }
        Self { name: format!("{MEMBER_FOR}{}", caller.name).into() }
    }

    /// Its name; empty for a caller without credentials.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name; none for a caller without credentials.
    pub fn known(&self) -> Option<&str> {
        (!self.name.is_empty()).then_some(&*self.name)
    }
}

/// What a principal wants to do.
#[derive(Clone, Copy, Debug)]
pub enum PrincipalAction<'a> {
    /// Run a command.
    Command(&'a Command<'a>),
    /// Read what every principal may read, as the members and the limits. Requires that the principal is known.
    Enter,
    /// Use a verb on this name. The empty name stands for the cluster itself.
    Name(Verb, &'a str),
    /// Use a verb on names that begin with this prefix. Requires permission for one such name at least; the caller
    /// sees only the names that it has permission for.
    Below(Verb, &'a str),
}

impl PrincipalAction<'_> {
    /// Change the members or transfer leadership.
    pub const ADMIN: PrincipalAction<'static> = PrincipalAction::Name(Verb::Operate, "");
}

impl<'a> From<&'a Command<'a>> for PrincipalAction<'a> {
    fn from(command: &'a Command<'a>) -> Self {
        PrincipalAction::Command(command)
    }
}

/// Decides by these access rules whether the principal of this name may do something. As long as identity is not
/// enabled, every principal may do everything but write the cluster's own keys.
///
/// For a command this is the first of two decisions: `apply` makes the second, in the order of the log.
pub fn authorise<'a>(
    access: &Access,
    principal: &str,
    action: impl Into<PrincipalAction<'a>>,
) -> Result<(), NodeFailure> {
    let (action, (principal, _)) = (action.into(), acting(principal));
    let missing = if access.is_enabled() {
        missing(access, principal, action)
    } else {
        reserved(principal, action)
    };
    missing.map_or(Ok(()), |missing| {
        Err(match missing {
            Missing::Verb(verb) => NodeFailure::Forbidden { verb: Some(verb) },
            Missing::Priority { asked, most } => NodeFailure::PriorityForbidden { asked, most },
        })
    })
}

/// What a principal lacks, once identity is enabled.
fn missing(access: &Access, principal: &str, action: PrincipalAction<'_>) -> Option<Missing> {
    let (allowed, verb) = match action {
        PrincipalAction::Command(command) => {
            return access.check(principal, required(command)).err();
        }
        // There is no verb for this. `read` is the least that a principal can be given.
        PrincipalAction::Enter => (access.knows(principal), Verb::Read),
        PrincipalAction::Name(verb, name) => (access.may(principal, verb, name), verb),
        PrincipalAction::Below(verb, prefix) => (access.may_below(principal, verb, prefix), verb),
    };
    (!allowed).then_some(Missing::Verb(verb))
}

/// The verb that a principal lacks if the action writes one of the cluster's own keys.
fn reserved(principal: &str, action: PrincipalAction<'_>) -> Option<Missing> {
    let command = match action {
        PrincipalAction::Command(command) => command,
        PrincipalAction::Enter | PrincipalAction::Name(..) | PrincipalAction::Below(..) => {
            return None;
        }
    };
    let key = match command {
        Command::Put(put) => put.key,
        Command::Delete { key, .. } => key,
        // These write no key.
        Command::GrantLease(_)
        | Command::Renew(_)
        | Command::Revoke { .. }
        | Command::Acquire(_)
        | Command::Release(_)
        | Command::Leave { .. }
        | Command::Downgrade(_)
        | Command::Update { .. }
        | Command::Force { .. }
        | Command::Stopped { .. }
        | Command::SetLimits(_)
        | Command::Compact { .. }
        | Command::RaiseLevel { .. }
        | Command::Abandon(_)
        | Command::SetAccess(_)
        | Command::Drain { .. }
        | Command::Undrain { .. }
        | Command::Progress { .. }
        | Command::Upgrade(_)
        | Command::HandOn { .. }
        | Command::Resize { .. } => return None,
    };
    let is_foreign = key.starts_with(directory::RESERVED) && principal != MEMBER;
    is_foreign.then_some(Missing::Verb(Verb::Keys))
}

#[cfg(test)]
mod tests {
    use tenure_core::access::{AccessChange, NewPrincipal, NewRule};
    use tenure_core::request::{Acquire, Ask, AskLease, AskWait, Asks, Expect, LeaseRef, Purpose};
    use tenure_types::{LeaseId, Mode, Quotas, VerbSet};

    use super::*;

    fn forbidden(verb: Verb) -> Result<(), NodeFailure> {
        Err(NodeFailure::Forbidden { verb: Some(verb) })
    }

    /// The rules with identity enabled: ana may acquire and read below `a/`, olga may operate the cluster.
    fn teams() -> Access {
        let mut access = Access::default();
        let rule = |verbs: &[Verb], prefix| NewRule {
            verbs: VerbSet::from_verbs(verbs),
            prefix,
            priority: 0,
        };
        for (name, rules) in [
            ("a", vec![rule(&[Verb::Acquire, Verb::Read], "a/")]),
            ("ops", vec![rule(&[Verb::Operate], "")]),
        ] {
            access.change(&AccessChange::PutRole { name, rules }).unwrap();
        }
        for (name, role) in [("ana", "a"), ("olga", "ops")] {
            let (roles, quotas) = (vec![role], Quotas::default());
            let new = NewPrincipal { name, enabled: true, roles, quotas };
            access.change(&AccessChange::PutPrincipal(new)).unwrap();
        }
        access.change(&AccessChange::SetIdentity { enabled: true }).unwrap();
        access
    }

    #[test]
    fn only_members_write_the_keys_of_the_cluster() {
        let (anyone, member) = (Principal::anyone(), Principal::member());
        let delete = |key| Command::Delete { key, expect: Expect::Any, guard: None };
        let (own, other) = (delete(directory::INITIAL_MEMBERS), delete("config/a"));
        for access in [Access::default(), teams()] {
            assert_eq!(authorise(&access, anyone.name(), &own), forbidden(Verb::Keys));
            assert_eq!(authorise(&access, member.name(), &own), Ok(()));
        }
        assert_eq!(authorise(&Access::default(), anyone.name(), &other), Ok(()));
    }

    #[test]
    fn a_member_that_acts_for_a_caller_may_do_what_a_member_may() {
        let ana = Principal::named("ana").unwrap();
        let delete = |key| Command::Delete { key, expect: Expect::Any, guard: None };
        let own = delete(directory::INITIAL_MEMBERS);
        for level in [3, 4] {
            let acting = Principal::member_for(&ana, level);
            assert_eq!(
                acting.name(),
                ["tenure/member", "tenure/member/ana"][usize::from(level) - 3]
            );
            for access in [Access::default(), teams()] {
                assert_eq!(authorise(&access, acting.name(), &own), Ok(()));
            }
            assert_eq!(Principal::named(acting.name()), None, "no client has this name");
        }
        for caller in [Principal::anyone(), Principal::member()] {
            assert_eq!(Principal::member_for(&caller, 4), Principal::member());
        }
    }

    #[test]
    fn no_client_gets_the_name_of_a_member() {
        assert_eq!(Principal::named("ana").as_ref().map(Principal::name), Some("ana"));
        assert_eq!(Principal::named(""), None);
        assert_eq!(Principal::named(Principal::member().name()), None);
    }

    const ACTIONS: [PrincipalAction<'static>; 5] = [
        PrincipalAction::Enter,
        PrincipalAction::Name(Verb::Read, "x"),
        PrincipalAction::Below(Verb::Observe, ""),
        PrincipalAction::Name(Verb::Administer, ""),
        PrincipalAction::ADMIN,
    ];

    #[test]
    fn without_identity_callers_without_credentials_read_watch_and_administer() {
        let anyone = Principal::anyone();
        for action in ACTIONS {
            assert_eq!(authorise(&Access::default(), anyone.name(), action), Ok(()), "{action:?}");
        }
    }

    #[test]
    fn with_identity_strangers_may_do_nothing() {
        let access = teams();
        for (action, stranger) in ACTIONS.into_iter().zip(["", "eve"].into_iter().cycle()) {
            let refused = authorise(&access, stranger, action);
            assert!(matches!(refused, Err(NodeFailure::Forbidden { .. })), "{action:?}");
        }
        let member = Principal::member();
        for action in ACTIONS {
            assert_eq!(authorise(&access, member.name(), action), Ok(()), "{action:?}");
        }
    }

    #[test]
    fn with_identity_a_principal_may_do_what_its_roles_permit() {
        let access = teams();
        let lock = |lock| acquire(Asks::One(Ask { lock, mode: Mode::Exclusive }));
        assert_eq!(authorise(&access, "ana", &lock("a/x")), Ok(()));
        assert_eq!(authorise(&access, "ana", &lock("b/x")), forbidden(Verb::Acquire));
        assert_eq!(authorise(&access, "ana", PrincipalAction::Enter), Ok(()));
        let read = |name| authorise(&access, "ana", PrincipalAction::Name(Verb::Read, name));
        assert_eq!((read("a/x"), read("b/x")), (Ok(()), forbidden(Verb::Read)));
        let list = |prefix| authorise(&access, "ana", PrincipalAction::Below(Verb::Read, prefix));
        assert_eq!((list(""), list("a/b"), list("b")), (Ok(()), Ok(()), forbidden(Verb::Read)));
        assert_eq!(authorise(&access, "ana", PrincipalAction::ADMIN), forbidden(Verb::Operate));
        assert_eq!(authorise(&access, "olga", PrincipalAction::ADMIN), Ok(()));
    }

    fn acquire(locks: Asks<'static>) -> Command<'static> {
        let lease = AskLease::Existing(LeaseRef::Id(LeaseId::new(1).unwrap()));
        Command::Acquire(Acquire {
            lease,
            locks,
            any: false,
            wait: AskWait::Unlimited,
            metadata: &[],
            lock_delay_ms: 0,
            max_hold_ms: None,
            min_hold_ms: 0,
            progress_within_ms: 0,
            supersede: None,
            resume: false,
            priority: 0,
            purpose: Purpose::Lock,
            independent: false,
        })
    }
}
