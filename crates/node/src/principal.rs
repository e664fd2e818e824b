//! Names the caller of a request and decides what it may do.

use std::sync::Arc;

use tenure_core::access::MEMBER;
use tenure_core::request::Command;

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

    /// Its name; empty for a caller without credentials.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// What a principal wants to do.
#[derive(Clone, Copy, Debug)]
pub enum PrincipalAction<'a> {
    /// Run a command.
    Command(&'a Command<'a>),
    /// Read the state once.
    Read,
    /// Be told of every change.
    Watch,
    /// Change the members or transfer leadership.
    Admin,
}

impl<'a> From<&'a Command<'a>> for PrincipalAction<'a> {
    fn from(command: &'a Command<'a>) -> Self {
        PrincipalAction::Command(command)
    }
}

/// Decides whether the principal of this name may do something. Callers without credentials may do everything
/// but write the cluster's own keys.
pub fn authorise<'a>(
    principal: &str,
    action: impl Into<PrincipalAction<'a>>,
) -> Result<(), NodeFailure> {
    let key = match action.into() {
        PrincipalAction::Command(Command::Put(put)) => put.key,
        PrincipalAction::Command(Command::Delete { key, .. }) => key,
        PrincipalAction::Command(_)
        | PrincipalAction::Read
        | PrincipalAction::Watch
        | PrincipalAction::Admin => return Ok(()),
    };
    if key.starts_with(directory::RESERVED) && principal != MEMBER {
        return Err(NodeFailure::Forbidden);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tenure_core::request::Expect;

    use super::*;

    #[test]
    fn only_members_write_the_keys_of_the_cluster() {
        let (anyone, member) = (Principal::anyone(), Principal::member());
        let delete = |key| Command::Delete { key, expect: Expect::Any, guard: None };
        let (own, other) = (delete(directory::FOUNDERS), delete("config/a"));
        assert_eq!(authorise(anyone.name(), &own), Err(NodeFailure::Forbidden));
        assert_eq!(authorise(member.name(), &own), Ok(()));
        assert_eq!(authorise(anyone.name(), &other), Ok(()));
    }

    #[test]
    fn no_client_gets_the_name_of_a_member() {
        assert_eq!(Principal::named("ana").as_ref().map(Principal::name), Some("ana"));
        assert_eq!(Principal::named(""), None);
        assert_eq!(Principal::named(Principal::member().name()), None);
    }

    #[test]
    fn callers_without_credentials_read_watch_and_administer() {
        let anyone = Principal::anyone();
        for action in [PrincipalAction::Read, PrincipalAction::Watch, PrincipalAction::Admin] {
            assert_eq!(authorise(anyone.name(), action), Ok(()), "{action:?}");
        }
    }
}
