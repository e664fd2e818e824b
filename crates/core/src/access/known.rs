//! Copies what the access rules say of one principal, so that checks of its next commands need no lookup.

use alloc::vec::Vec;
use tenure_types::{Quota, QuotaSource, Verb, VerbSet};

use super::{Access, Rule, greatest_priority};
use crate::request::{OWN_KEYS, PRIORITY_MAX};

/// The most rules that are copied: callers that alternate would have them copied for every second command.
const RULES_MAX: usize = 32;

/// What one principal may do, if identity is enabled.
pub(crate) trait Permissions {
    /// Whether its commands are accepted at all.
    fn knows(&self) -> bool;

    /// Whether it may do something with a name. The empty name stands for the cluster itself.
    fn may(&self, verb: Verb, name: &str) -> bool;

    /// The greatest priority that it may use for requests with this verb and name.
    fn priority(&self, verb: Verb, name: &str) -> u8;

    /// Whether it may do one of these things with some name.
    fn may_somewhere(&self, verbs: VerbSet) -> bool;
}

/// The rules and quotas of one principal that is no member. A copy, so it is outdated when the access rules change.
pub(crate) struct KnownPrincipal {
    is_active: bool,
    /// The rules of all its roles.
    rules: Vec<Rule>,
    quotas: [Option<(u64, QuotaSource)>; Quota::OF_STATE.len()],
}

impl KnownPrincipal {
    /// The copy for a principal; `None` if it has so many rules that copying them would cost more than it saves.
    pub(crate) fn of(access: &Access, principal: &str) -> Option<Self> {
        if access.rules(principal).take(RULES_MAX + 1).count() > RULES_MAX {
            return None;
        }
        Some(Self {
            is_active: access.active(principal).is_some(),
            rules: access.rules(principal).cloned().collect(),
            quotas: Quota::OF_STATE.map(|quota| access.quota(principal, quota)),
        })
    }

    /// The value of a quota of the state, and where it was set; `None` if there is no bound.
    #[inline]
    pub(crate) fn quota(&self, quota: Quota) -> Option<(u64, QuotaSource)> {
        self.quotas.get(quota as usize).copied().flatten()
    }
}

impl Permissions for KnownPrincipal {
    #[inline]
    fn knows(&self) -> bool {
        self.is_active
    }

    #[inline]
    fn may(&self, verb: Verb, name: &str) -> bool {
        !(verb == Verb::Keys && name.starts_with(OWN_KEYS))
            && self.rules.iter().any(|rule| rule.allows(verb, name))
    }

    fn priority(&self, verb: Verb, name: &str) -> u8 {
        match self.may(Verb::Force, name) {
            true => PRIORITY_MAX,
            false => greatest_priority(self.rules.iter(), verb, name),
        }
    }

    fn may_somewhere(&self, verbs: VerbSet) -> bool {
        self.rules.iter().any(|rule| rule.verbs.meets(verbs))
    }
}
