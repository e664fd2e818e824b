//! Finds the names that a principal may do something with, as prefixes.

use alloc::vec::Vec;
use tenure_types::Verb;

use super::Access;

impl Access {
    /// The prefixes of all names below `prefix` that the principal may do `verb` with: in order, and none of them
    /// begins with another. Empty if there are none.
    ///
    /// A list that reads these prefixes one after the other reads only what the principal may see, in order.
    pub fn prefixes<'a>(&'a self, principal: &str, verb: Verb, prefix: &'a str) -> Vec<&'a str> {
        // A rule that permits the prefix as a name permits all names that begin with it.
        if self.may(principal, verb, prefix) {
            return Vec::from([prefix]);
        }
        let rules = self.rules(principal).filter(|rule| rule.verbs.contains(verb));
        let mut below: Vec<&str> =
            rules.map(|rule| &*rule.prefix).filter(|it| it.starts_with(prefix)).collect();
        below.sort_unstable();
        // A prefix comes directly before all that begin with it.
        below.dedup_by(|later, kept| later.starts_with(*kept));
        below
    }

    /// Whether the principal may do `verb` with some name that begins with `prefix`.
    pub fn may_below(&self, principal: &str, verb: Verb, prefix: &str) -> bool {
        !self.enabled || !self.prefixes(principal, verb, prefix).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AccessChange, MEMBER, NewPrincipal, NewRule};
    use super::*;
    use alloc::vec;
    use tenure_types::{Quotas, VerbSet};

    fn access(prefixes: &[&str]) -> Access {
        let mut access = Access { enabled: true, ..Access::default() };
        let verbs = VerbSet::default().with(Verb::Read);
        let rules = prefixes.iter().map(|prefix| NewRule { verbs, prefix, priority: 0 }).collect();
        access.change(&AccessChange::PutRole { name: "reader", rules }).unwrap();
        let (roles, quotas) = (vec!["reader"], Quotas::default());
        let ana = NewPrincipal { name: "ana", enabled: true, roles, quotas };
        access.change(&AccessChange::PutPrincipal(ana)).unwrap();
        access
    }

    #[test]
    fn prefixes_are_ordered_and_none_contains_another() {
        let access = access(&["jobs/b", "jobs/a/", "jobs/a/x", "jobs/b", "other/", "jobs/ab"]);
        let of = |prefix| access.prefixes("ana", Verb::Read, prefix);
        assert_eq!(of(""), ["jobs/a/", "jobs/ab", "jobs/b", "other/"]);
        assert_eq!(of("jobs/a"), ["jobs/a/", "jobs/ab"]);
        assert_eq!(of("jobs/a/x/y"), ["jobs/a/x/y"]);
        assert_eq!(of("none"), [""; 0]);
        assert!(
            access.may_below("ana", Verb::Read, "jo") && !access.may_below("ana", Verb::Read, "k")
        );
        assert!(!access.may_below("bob", Verb::Read, "") && !access.may_below("", Verb::Read, ""));
        assert!(access.may_below(MEMBER, Verb::Read, "anything"));
        assert_eq!(access.prefixes("ana", Verb::Observe, ""), [""; 0]);
    }

    #[test]
    fn a_rule_for_everything_is_one_prefix() {
        let access = access(&["b", "", "a"]);
        assert_eq!(access.prefixes("ana", Verb::Read, ""), [""]);
        assert_eq!(access.prefixes("ana", Verb::Read, "a"), ["a"]);
    }

    #[test]
    fn without_identity_everything_is_in_reach() {
        let access = Access { enabled: false, ..access(&[]) };
        assert_eq!(access.prefixes("", Verb::Read, "x"), ["x"]);
        assert!(access.may_below("", Verb::Observe, "x"));
    }
}
