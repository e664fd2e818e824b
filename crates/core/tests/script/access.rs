//! Builds the changes of the access rules that a script names.

use tenure_core::access::{AccessChange, NewCredential, NewPrincipal, NewRule, Replacement};
use tenure_types::{Quota, Quotas, Verb, VerbSet};

use super::words::{Words, number};

/// The change that the words stand for: `role worker acquire,read@jobs/`, `principal ana worker leases=2`. With
/// `seen=read@jobs/`, `seen=worker` or `seen=none` it is made only if the role or principal is so. A rule
/// `acquire@jobs/@3` permits priorities up to 3.
pub(super) fn change(words: &Words) -> AccessChange<'_> {
    let change = plain(words);
    let Some(seen) = words.option("seen") else { return change };
    let name = words.at(1);
    let seen = match (words.at(0), seen) {
        ("role" | "unrole", "none") => AccessChange::DeleteRole { name },
        ("role" | "unrole", seen) => AccessChange::PutRole { name, rules: vec![rule(seen)] },
        (_, "none") => AccessChange::DeletePrincipal { name },
        (_, role) => {
            let (roles, quotas) = (vec![role], Quotas::default());
            AccessChange::PutPrincipal(NewPrincipal { name, enabled: true, roles, quotas })
        }
    };
    AccessChange::Replace(Box::new(Replacement { seen, change }))
}

fn plain(words: &Words) -> AccessChange<'_> {
    let name = words.plain.get(1).map_or("", String::as_str);
    match words.at(0) {
        "role" => {
            let rules = words.plain[2..].iter().map(|word| rule(word)).collect();
            AccessChange::PutRole { name, rules }
        }
        "unrole" => AccessChange::DeleteRole { name },
        "principal" => {
            let enabled = !words.plain.iter().any(|word| word == "off");
            let roles = words.plain[2..].iter().map(String::as_str).filter(|it| *it != "off");
            let (roles, quotas) = (roles.collect(), quotas(words));
            AccessChange::PutPrincipal(NewPrincipal { name, enabled, roles, quotas })
        }
        "unprincipal" => AccessChange::DeletePrincipal { name },
        "credential" => AccessChange::PutCredential(NewCredential {
            principal: name,
            id: words.at(2),
            name: "for a test",
            hash: [7; 32],
            expires_ms: None,
        }),
        "uncredential" => AccessChange::DeleteCredential { id: name },
        "identity" => AccessChange::SetIdentity { enabled: name == "on" },
        "quotas" => AccessChange::SetDefaultQuotas(quotas(words)),
        word => panic!("`{word}` changes no access rule"),
    }
}

fn rule(word: &str) -> NewRule<'_> {
    let (verbs, rest) = word.split_once('@').expect("`verbs@prefix`");
    let (prefix, priority) = rest.split_once('@').unwrap_or((rest, "0"));
    let priority = priority.parse().expect("a priority");
    let verb = |name| match name {
        "all" => VerbSet::ALL,
        name => VerbSet::default().with(Verb::from_name(name).expect("a verb")),
    };
    let bits = verbs.split(',').fold(0, |bits, name| bits | verb(name).bits());
    NewRule { verbs: VerbSet::from_bits(bits).expect("only verbs"), prefix, priority }
}

fn quotas(words: &Words) -> Quotas {
    let mut quotas = Quotas::default();
    for (name, value) in words.options() {
        if let Some(quota) = Quota::from_name(name) {
            quotas.set(quota, Some(number(value)));
        }
    }
    quotas
}
