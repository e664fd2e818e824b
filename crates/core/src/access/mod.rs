//! Holds the replicated access rules and decides what a principal may do.
//!
//! `docs/internals/access.md` has the exact rules.

mod change;
mod known;
mod required;
mod scope;
mod setters;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use tenure_types::{Name, Quota, QuotaSetter, QuotaSource, Quotas, Verb, VerbSet};

pub use change::{
    AccessChange, CREDENTIALS_PER_PRINCIPAL, IssuerKeys, NewCertificateRule, NewCredential,
    NewIssuer, NewPrincipal, NewRule, ROLES_PER_PRINCIPAL, RULES_PER_ROLE, Replacement,
};
pub(crate) use known::{KnownPrincipal, Permissions};
pub use required::{Missing, Requirement, required};
pub use setters::QuotaSetters;

use crate::request::{OWN_KEYS, PRIORITY_MAX};

/// The principal of the members themselves. No client can have it, and no record can have this name.
pub const MEMBER: &str = "tenure/member";

/// What the principal of a member begins with when the member acts for a caller. The caller's name follows. Commands
/// have such a principal from [`LEVEL_RECORDS`](crate::request::LEVEL_RECORDS) on.
pub const MEMBER_FOR: &str = "tenure/member/";

/// Splits the principal of a command into the one that decides what it may do, and the caller for the records.
pub fn acting(principal: &str) -> (&str, &str) {
    match principal.strip_prefix(MEMBER_FOR) {
        Some(caller) if !caller.is_empty() => (MEMBER, caller),
        _ => (principal, principal),
    }
}

/// Who may do what: roles, principals, and how callers prove which principal they are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Access {
    pub(crate) enabled: bool,
    pub(crate) default_quotas: Quotas,
    pub(crate) default_setters: QuotaSetters,
    pub(crate) roles: BTreeMap<Name, Vec<Rule>>,
    pub(crate) principals: BTreeMap<Name, PrincipalRecord>,
    pub(crate) certificate_rules: BTreeMap<Name, CertificateRule>,
    pub(crate) issuers: BTreeMap<Name, Issuer>,
    /// The principal of each credential, by the id of the credential. Derived.
    pub(crate) credentials: BTreeMap<Name, Name>,
    /// The weight of all records in `state_bytes`. Derived.
    pub(crate) bytes: u64,
}

/// One rule of a role: these verbs, for names with this prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The verbs.
    pub verbs: VerbSet,
    /// The prefix. An empty one matches every name and the cluster itself.
    pub prefix: Box<str>,
    /// The greatest priority of a request that it permits, with these names and the verb `acquire` or `elect`.
    pub priority: u8,
}

impl Rule {
    /// The rule as a change that creates it has it.
    pub fn lend(&self) -> NewRule<'_> {
        NewRule { verbs: self.verbs, prefix: &self.prefix, priority: self.priority }
    }

    /// Whether the rule permits this with the name.
    #[inline]
    fn allows(&self, verb: Verb, name: &str) -> bool {
        self.verbs.contains(verb) && name.starts_with(&*self.prefix)
    }
}

/// A principal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrincipalRecord {
    /// Whether commands of the principal are accepted.
    pub enabled: bool,
    /// The names of its roles. A role that does not exist permits nothing.
    pub roles: Vec<Name>,
    /// Its API keys, oldest first.
    pub credentials: Vec<Credential>,
    /// Its own quotas.
    pub quotas: Quotas,
    /// Who set each of these quotas, and when.
    pub setters: QuotaSetters,
}

/// An API key, without its secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credential {
    /// The public part of the key, by which it is found.
    pub id: Name,
    /// What it is for, in words.
    pub name: Box<str>,
    /// The SHA-256 hash of the secret.
    pub hash: [u8; 32],
    /// When it expires, in milliseconds of the wall clock since 1970. Only the APIs look at it.
    pub expires_ms: Option<u64>,
}

/// A rule by which a client certificate stands for a principal. The APIs interpret it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateRule {
    /// A pattern for the subject or an alternative name.
    pub pattern: Box<str>,
    /// The principal.
    pub principal: Box<str>,
}

/// An issuer of bearer tokens that the cluster trusts. The APIs interpret it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issuer {
    /// The audience that a token must name.
    pub audience: Box<str>,
    /// Where the keys of the issuer are.
    pub keys: OwnedIssuerKeys,
    /// The claim that names the principal.
    pub claim: Box<str>,
    /// What is put before the claim's value to get the name of the principal.
    pub prefix: Box<str>,
}

/// The public keys of an issuer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnedIssuerKeys {
    /// A JWKS document.
    Jwks(Box<str>),
    /// The address of a JWKS document.
    Url(Box<str>),
}

impl Access {
    /// Whether the cluster checks who its callers are.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Whether the principal of this name may do something with a name. The empty name stands for the cluster itself.
    pub fn may(&self, principal: &str, verb: Verb, name: &str) -> bool {
        if !self.enabled {
            return true;
        }
        if principal == MEMBER {
            return member_may(verb, name);
        }
        if verb == Verb::Keys && name.starts_with(OWN_KEYS) {
            return false;
        }
        self.rules(principal).any(|rule| rule.allows(verb, name))
    }

    /// The greatest priority that the principal of this name may use for requests with a verb and a name that it may
    /// use them with.
    pub fn priority(&self, principal: &str, verb: Verb, name: &str) -> u8 {
        if self.may(principal, Verb::Force, name) {
            return PRIORITY_MAX;
        }
        greatest_priority(self.rules(principal), verb, name)
    }

    /// The first role, in the principal's own order, that permits this, and its rule. Decides as if identity were
    /// enabled. For the members' own principal there is no such role.
    pub fn permission(&self, principal: &str, verb: Verb, name: &str) -> Option<(&Name, &Rule)> {
        if verb == Verb::Keys && name.starts_with(OWN_KEYS) {
            return None;
        }
        self.find_rule(principal, |rule| rule.allows(verb, name))
    }

    /// The first role, in the principal's own order, that permits a request with this verb, name and priority as far as
    /// the priority decides it, and its rule. Decides as if identity were enabled.
    pub fn priority_permission(
        &self,
        principal: &str,
        verb: Verb,
        name: &str,
        priority: u8,
    ) -> Option<(&Name, &Rule)> {
        self.find_rule(principal, |rule| {
            rule.allows(Verb::Force, name) || rule.allows(verb, name) && rule.priority >= priority
        })
    }

    /// The rules of a role.
    pub fn role(&self, name: &str) -> Option<&[Rule]> {
        self.roles.get(name.as_bytes()).map(Vec::as_slice)
    }

    /// Whether the principal of this name may do one of these things with some name.
    pub fn may_somewhere(&self, principal: &str, verbs: VerbSet) -> bool {
        !self.enabled || self.rules(principal).any(|rule| rule.verbs.meets(verbs))
    }

    /// Whether commands of this principal are accepted at all.
    pub fn knows(&self, principal: &str) -> bool {
        !self.enabled || principal == MEMBER || self.active(principal).is_some()
    }

    /// The record of a principal.
    pub fn principal(&self, name: &str) -> Option<&PrincipalRecord> {
        self.principals.get(name.as_bytes())
    }

    /// All principals, in the order of their names.
    pub fn principals(&self) -> impl Iterator<Item = (&Name, &PrincipalRecord)> {
        self.principals.iter()
    }

    /// All roles, in the order of their names.
    pub fn roles(&self) -> impl Iterator<Item = (&Name, &[Rule])> {
        self.roles.iter().map(|(name, rules)| (name, rules.as_slice()))
    }

    /// All rules for client certificates, in the order of their names.
    pub fn certificate_rules(&self) -> impl Iterator<Item = (&Name, &CertificateRule)> {
        self.certificate_rules.iter()
    }

    /// All trusted issuers, in the order of their names.
    pub fn issuers(&self) -> impl Iterator<Item = (&Name, &Issuer)> {
        self.issuers.iter()
    }

    /// The quotas of principals that have no value of their own.
    pub fn default_quotas(&self) -> &Quotas {
        &self.default_quotas
    }

    /// The credential with this id and the name of its principal. The caller compares the hash and the expiry.
    pub fn find_credential(&self, id: &str) -> Option<(&Name, &Credential)> {
        let principal = self.credentials.get(id.as_bytes())?;
        let record = self.principals.get(principal)?;
        let credential = record.credentials.iter().find(|it| it.id.as_bytes() == id.as_bytes())?;
        Some((principal, credential))
    }

    /// The value of a quota of a principal, and where it was set; `None` if there is no bound.
    pub fn quota(&self, principal: &str, quota: Quota) -> Option<(u64, QuotaSource)> {
        let own = self.principal(principal).and_then(|record| record.quotas.get(quota));
        match own {
            Some(bound) => Some((bound, QuotaSource::Principal)),
            None => self.default_quotas.get(quota).map(|bound| (bound, QuotaSource::Default)),
        }
    }

    /// Who set the value of a quota of a principal, if that was recorded.
    pub fn quota_setter(
        &self,
        principal: &str,
        quota: Quota,
        set_by: QuotaSource,
    ) -> Option<&QuotaSetter> {
        match set_by {
            QuotaSource::Principal => self.principal(principal)?.setters.get(quota),
            QuotaSource::Default => self.default_setters.get(quota),
        }
    }

    fn find_rule(
        &self,
        principal: &str,
        matches: impl Fn(&Rule) -> bool,
    ) -> Option<(&Name, &Rule)> {
        let roles = self.active(principal).map_or(&[][..], |record| &record.roles);
        let find = |role| self.roles.get(role)?.iter().find(|rule| matches(rule));
        roles.iter().find_map(|role| Some((role, find(role)?)))
    }

    fn active(&self, principal: &str) -> Option<&PrincipalRecord> {
        self.principal(principal).filter(|record| record.enabled)
    }

    fn rules(&self, principal: &str) -> impl Iterator<Item = &Rule> {
        let roles = self.active(principal).map_or(&[][..], |record| &record.roles);
        roles.iter().filter_map(|role| self.roles.get(role)).flatten()
    }
}

/// The greatest priority that one of these rules permits.
fn greatest_priority<'a>(rules: impl Iterator<Item = &'a Rule>, verb: Verb, name: &str) -> u8 {
    let permits =
        |rule: &&Rule| rule.allows(verb, name) || mutant!("priority_of_a_rule_for_other_locks");
    rules.filter(permits).map(|rule| rule.priority).max().unwrap_or(0)
}

/// What a member may do for itself: keep the cluster's own keys, and what an operator on its machine may do.
fn member_may(verb: Verb, name: &str) -> bool {
    match verb {
        Verb::Keys => name.starts_with(OWN_KEYS),
        Verb::Read | Verb::Observe | Verb::Sign | Verb::Operate | Verb::Administer => true,
        Verb::Acquire | Verb::Elect | Verb::Force => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn access() -> Access {
        let mut access = Access { enabled: true, ..Access::default() };
        let rule =
            |verb, prefix| NewRule { verbs: VerbSet::default().with(verb), prefix, priority: 0 };
        let rules = vec![rule(Verb::Acquire, "jobs/"), rule(Verb::Keys, "")];
        access.change(&AccessChange::PutRole { name: "worker", rules }).unwrap();
        let roles = vec!["worker", "no such role"];
        let quotas = Quotas::default();
        let ana = NewPrincipal { name: "ana", enabled: true, roles, quotas };
        access.change(&AccessChange::PutPrincipal(ana.clone())).unwrap();
        let bob = NewPrincipal { name: "bob", enabled: false, ..ana };
        access.change(&AccessChange::PutPrincipal(bob)).unwrap();
        access
    }

    #[test]
    fn a_rule_permits_its_verbs_below_its_prefix_only() {
        let access = access();
        assert!(access.may("ana", Verb::Acquire, "jobs/x"));
        assert!(!access.may("ana", Verb::Acquire, "job"));
        assert!(!access.may("ana", Verb::Read, "jobs/x"));
        assert!(!access.may("ana", Verb::Acquire, ""), "the cluster needs an empty prefix");
        for other in ["", "bob", "eve", MEMBER] {
            assert!(!access.may(other, Verb::Acquire, "jobs/x"), "{other}");
        }
    }

    #[test]
    fn only_members_write_the_keys_of_the_cluster() {
        let access = access();
        assert!(access.may("ana", Verb::Keys, "config"));
        assert!(!access.may("ana", Verb::Keys, "tenure/members/1"));
        assert!(access.may(MEMBER, Verb::Keys, "tenure/members/1"));
        assert!(!access.may(MEMBER, Verb::Keys, "config"));
    }

    #[test]
    fn without_identity_everyone_may_do_everything() {
        let access = Access { enabled: false, ..access() };
        assert!(access.may("", Verb::Administer, ""));
        assert!(access.knows("eve"));
    }
}
