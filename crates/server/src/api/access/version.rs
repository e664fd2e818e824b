//! Makes changes of roles and principals depend on the state that their caller has seen.
//!
//! The version of a role or principal is a hash of its content. A caller that has read the object names its version in
//! a change, and the change is refused if the object has changed since. The machine compares the content itself
//! ([`Replacement`]), in the order of the log, so two administrators never overwrite each other's changes unknowingly.

use ring::digest::{SHA256, digest};
use tenure_core::access::{AccessChange, NewPrincipal, PrincipalRecord, Replacement, Rule};
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, LEVEL_RECORDS, Request, RequestId};
use tenure_types::Refusal;

/// The version of an object that does not exist.
pub(super) const NONE: &str = "none";

/// How many bytes of the hash are in a version: enough to tell the versions of one object apart.
const BYTES: usize = 8;

/// Describes a role by the change that would give it its present content: a put, or a delete if it does not exist.
pub(super) fn role<'a>(name: &'a str, rules: Option<&'a [Rule]>) -> AccessChange<'a> {
    let Some(rules) = rules else { return AccessChange::DeleteRole { name } };
    AccessChange::PutRole { name, rules: rules.iter().map(Rule::lend).collect() }
}

/// Describes a principal by the change that would give it its present content: a put, or a delete if it does not exist.
pub(super) fn principal<'a>(
    name: &'a str,
    record: Option<&'a PrincipalRecord>,
) -> AccessChange<'a> {
    let Some(record) = record else { return AccessChange::DeletePrincipal { name } };
    AccessChange::PutPrincipal(NewPrincipal {
        name,
        enabled: record.enabled,
        roles: record.roles.iter().map(|role| &**role).collect(),
        quotas: record.quotas,
    })
}

/// Returns the version that an object has after this change.
pub(super) fn of(seen: &AccessChange<'_>) -> String {
    if matches!(seen, AccessChange::DeleteRole { .. } | AccessChange::DeletePrincipal { .. }) {
        return NONE.to_owned();
    }
    let mut bytes = Vec::new();
    let command = Command::SetAccess(seen.clone());
    encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
    let hash = digest(&SHA256, &bytes);
    hash.as_ref()[..BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decides whether a change may be made to an object with the content `seen`, and returns the change to propose.
///
/// A change to the content that the object already has is no conflict: the caller repeats a call whose answer it did
/// not get.
pub(super) fn conditional<'a>(
    level: u16,
    expected: Option<&str>,
    seen: AccessChange<'a>,
    change: AccessChange<'a>,
) -> Result<AccessChange<'a>, Refusal> {
    match expected {
        None => Ok(change),
        Some(version) if version != of(&seen) && seen != change => Err(Refusal::AccessChanged),
        // Below this level the machine cannot apply a condition, so only the comparison above protects the change.
        Some(_) if level < LEVEL_RECORDS => Ok(change),
        Some(_) => Ok(AccessChange::Replace(Box::new(Replacement { seen, change }))),
    }
}

#[cfg(test)]
mod tests {
    use tenure_types::{Quota, Quotas, VerbSet};

    use super::*;

    #[test]
    fn every_difference_makes_another_version_and_keys_make_none() {
        let record = PrincipalRecord {
            enabled: true,
            roles: vec![tenure_types::Name::new("a").unwrap()],
            credentials: Vec::new(),
            quotas: Quotas::default(),
            setters: tenure_core::access::QuotaSetters::default(),
        };
        let version = |record: Option<&PrincipalRecord>| of(&principal("ana", record));
        assert_eq!(version(None), NONE);
        let mut seen = vec![version(Some(&record))];
        seen.push(version(Some(&PrincipalRecord { enabled: false, ..record.clone() })));
        seen.push(version(Some(&PrincipalRecord { roles: Vec::new(), ..record.clone() })));
        let mut quotas = Quotas::default();
        quotas.set(Quota::Leases, Some(1));
        seen.push(version(Some(&PrincipalRecord { quotas, ..record })));
        let rule = |prefix: &str| Rule { verbs: VerbSet::ALL, prefix: prefix.into(), priority: 0 };
        seen.push(of(&role("ana", Some(&[rule("")]))));
        seen.push(of(&role("ana", Some(&[rule("a")]))));
        seen.push(of(&role("ana", Some(&[]))));
        let count = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), count, "{seen:?}");
        assert!(seen.iter().all(|version| version.len() == 2 * BYTES));
    }

    #[test]
    fn a_change_is_refused_if_the_object_is_another_one_unless_it_is_made_already() {
        let rule =
            |prefix: &str| [Rule { verbs: VerbSet::ALL, prefix: prefix.into(), priority: 0 }];
        let (old, new, other) = (rule("a"), rule("b"), rule("c"));
        let [old, new, other] = [&old, &new, &other].map(|rules| role("x", Some(&rules[..])));
        let version = of(&old);
        let condition = |seen: &AccessChange<'_>| {
            conditional(4, Some(&version), seen.clone(), new.clone()).map(drop)
        };
        assert_eq!(condition(&old), Ok(()));
        assert_eq!(condition(&other), Err(Refusal::AccessChanged));
        assert_eq!(condition(&new), Ok(()));
        assert_eq!(condition(&role("x", None)), Err(Refusal::AccessChanged));
        let made = conditional(4, Some(&version), old.clone(), new.clone()).unwrap();
        assert!(matches!(made, AccessChange::Replace(_)));
        assert_eq!(conditional(3, Some(&version), old.clone(), new.clone()).unwrap(), new);
        assert_eq!(conditional(4, None, other, new.clone()).unwrap(), new);
    }
}
