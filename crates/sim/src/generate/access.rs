//! Generates changes of the access rules, and the principals of requests.

use tenure_core::access::{
    AccessChange, IssuerKeys, NewCertificateRule, NewCredential, NewIssuer, NewPrincipal, NewRule,
    Replacement,
};
use tenure_core::request::LeaseRef;
use tenure_types::{Quota, Quotas, Verb, VerbSet};

use super::Generator;
use super::memory::pick;
use super::step::{OwnedAskLease, OwnedCommand, OwnedRequest};
use crate::observe::ObservedState;

/// The principals: two that hold leases, one that changes the rules, one without a record at first.
const PRINCIPALS: [&str; 4] = ["ana", "bob", "root", "eve"];

/// The roles.
const ROLES: [&str; 4] = ["all", "some", "few", "none"];

/// [`AccessChange`], owned.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "variants and fields are those of the borrowed type")]
pub enum OwnedAccess {
    PutRole { name: String, rules: Vec<(VerbSet, String, u8)> },
    DeleteRole { name: String },
    PutPrincipal { name: String, enabled: bool, roles: Vec<String>, quotas: Quotas },
    DeletePrincipal { name: String },
    PutCredential { principal: String, id: String, hash: u8 },
    DeleteCredential { id: String },
    PutCertificateRule { name: String, pattern: String },
    DeleteCertificateRule { name: String },
    PutIssuer { issuer: String, url: bool, keys: String },
    DeleteIssuer { issuer: String },
    SetIdentity { enabled: bool },
    SetDefaultQuotas(Quotas),
    Replace { seen: Box<OwnedAccess>, change: Box<OwnedAccess> },
}

impl OwnedAccess {
    /// The change in the machine's types.
    pub fn lend(&self) -> AccessChange<'_> {
        match self {
            Self::PutRole { name, rules } => AccessChange::PutRole {
                name,
                rules: rules
                    .iter()
                    .map(|(verbs, prefix, priority)| NewRule {
                        verbs: *verbs,
                        prefix,
                        priority: *priority,
                    })
                    .collect(),
            },
            Self::DeleteRole { name } => AccessChange::DeleteRole { name },
            Self::PutPrincipal { name, enabled, roles, quotas } => {
                let roles = roles.iter().map(String::as_str).collect();
                let (enabled, quotas) = (*enabled, *quotas);
                AccessChange::PutPrincipal(NewPrincipal { name, enabled, roles, quotas })
            }
            Self::DeletePrincipal { name } => AccessChange::DeletePrincipal { name },
            Self::PutCredential { principal, id, hash } => {
                AccessChange::PutCredential(NewCredential {
                    principal,
                    id,
                    name: "a key",
                    hash: [*hash; 32],
                    expires_ms: (*hash > 1).then_some(5),
                })
            }
            Self::DeleteCredential { id } => AccessChange::DeleteCredential { id },
            Self::PutCertificateRule { name, pattern } => {
                AccessChange::PutCertificateRule(NewCertificateRule {
                    name,
                    pattern,
                    principal: "ana",
                })
            }
            Self::DeleteCertificateRule { name } => AccessChange::DeleteCertificateRule { name },
            Self::PutIssuer { issuer, url, keys } => AccessChange::PutIssuer(NewIssuer {
                issuer,
                audience: "tenure",
                keys: if *url { IssuerKeys::Url(keys) } else { IssuerKeys::Jwks(keys) },
                claim: "sub",
                prefix: "ci/",
            }),
            Self::DeleteIssuer { issuer } => AccessChange::DeleteIssuer { issuer },
            Self::SetIdentity { enabled } => AccessChange::SetIdentity { enabled: *enabled },
            Self::SetDefaultQuotas(quotas) => AccessChange::SetDefaultQuotas(*quotas),
            Self::Replace { seen, change } => AccessChange::Replace(Box::new(Replacement {
                seen: seen.lend(),
                change: change.lend(),
            })),
        }
    }
}

/// The changes with which a sequence with identity begins.
pub(super) fn first(made: &mut Generator) -> Vec<OwnedCommand> {
    let rule = |verbs, prefix: &str| vec![(verbs, prefix.to_owned(), 0)];
    let role = |name: &str, rules| OwnedAccess::PutRole { name: name.to_owned(), rules };
    let principal = |name: &str, roles: &[&str]| OwnedAccess::PutPrincipal {
        name: name.to_owned(),
        enabled: true,
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        quotas: Quotas::default(),
    };
    let most = [Verb::Acquire, Verb::Elect, Verb::Keys].into_iter().collect();
    let mut some = rule(most, "");
    if made.swarm.priority > 0 {
        // Some locks are for requests that are more urgent than others may be.
        some[0].2 = permitted(&mut made.rng);
        let prefix = ["a/", "db/", "job"][made.rng.usize(..3)];
        some.push((most, prefix.to_owned(), permitted(&mut made.rng)));
    }
    let mut changes = vec![
        role("all", rule(VerbSet::ALL, "")),
        role("some", some),
        role("few", rule(VerbSet::ALL, "a")),
        principal("root", &["all"]),
        principal("ana", &["some", "few"]),
        principal("bob", &["some"]),
    ];
    // Almost as many as a principal may have.
    changes.extend((0..4).map(|number| OwnedAccess::PutCredential {
        principal: "root".to_owned(),
        id: format!("key-{number}"),
        hash: 0,
    }));
    // In some sequences owners are known, but nothing is checked.
    if made.rng.u32(..5) > 0 {
        changes.push(OwnedAccess::SetIdentity { enabled: true });
    }
    changes.into_iter().map(OwnedCommand::SetAccess).collect()
}

/// A change of the rules.
pub(super) fn change(made: &mut Generator) -> OwnedCommand {
    let (rng, with_priorities) = (&mut made.rng, made.swarm.priority > 0);
    let priority = |rng: &mut fastrand::Rng| if with_priorities { permitted(rng) } else { 0 };
    let name = |rng: &mut fastrand::Rng| PRINCIPALS[rng.usize(..4)].to_owned();
    let role = |rng: &mut fastrand::Rng| ROLES[rng.usize(..4)].to_owned();
    let change = match rng.u32(..22) {
        20 | 21 => {
            // Roles of a size that a sequence has, so that conditions hold now and then.
            let role = |rng: &mut fastrand::Rng| {
                let name = ROLES[rng.usize(1..4)].to_owned();
                match rng.bool() {
                    true => OwnedAccess::DeleteRole { name },
                    false => {
                        let prefix = ["", "a"][rng.usize(..2)].to_owned();
                        let rules = vec![(VerbSet::ALL, prefix, priority(rng))];
                        OwnedAccess::PutRole { name, rules }
                    }
                }
            };
            OwnedAccess::Replace { seen: Box::new(role(rng)), change: Box::new(role(rng)) }
        }
        0 | 1 => {
            let many = if rng.u32(..30) == 0 { 65 } else { rng.usize(..3) };
            let rule = |rng: &mut fastrand::Rng| {
                let verbs = VerbSet::from_bits(rng.u16(..512)).unwrap_or(VerbSet::ALL);
                (verbs, ["", "a", "db/", "k"][rng.usize(..4)].to_owned(), priority(rng))
            };
            // The role of the one that changes the rules stays, or the sequence ends up refused.
            let name = ROLES[rng.usize(1..4)].to_owned();
            OwnedAccess::PutRole { name, rules: (0..many).map(|_| rule(rng)).collect() }
        }
        2 => OwnedAccess::DeleteRole { name: ROLES[rng.usize(1..4)].to_owned() },
        3..=6 => {
            let name = match rng.u32(..20) {
                0 => "tenure/x".to_owned(),
                1 => String::new(),
                _ => PRINCIPALS[rng.usize(..2)].to_owned(),
            };
            let many = if rng.u32(..30) == 0 { 17 } else { rng.usize(1..3) };
            let roles = (0..many).map(|_| role(rng)).collect();
            let enabled = rng.u32(..4) > 0;
            OwnedAccess::PutPrincipal { name, enabled, roles, quotas: quotas(rng) }
        }
        7 | 8 => OwnedAccess::DeletePrincipal { name: PRINCIPALS[rng.usize(..2)].to_owned() },
        9..=11 => {
            let id = format!("key-{}", rng.u32(..6));
            OwnedAccess::PutCredential { principal: name(rng), id, hash: rng.u8(..3) }
        }
        12 => OwnedAccess::DeleteCredential { id: format!("key-{}", rng.u32(..6)) },
        13 => {
            let name = if rng.u32(..10) == 0 { String::new() } else { "rule".to_owned() };
            OwnedAccess::PutCertificateRule { name, pattern: "CN=*".repeat(rng.usize(..3)) }
        }
        14 => OwnedAccess::DeleteCertificateRule { name: "rule".to_owned() },
        15 => {
            let keys = "k".repeat(if rng.u32(..20) == 0 { 65_537 } else { rng.usize(..9) });
            OwnedAccess::PutIssuer { issuer: "https://ci".to_owned(), url: rng.bool(), keys }
        }
        16 => OwnedAccess::DeleteIssuer { issuer: "https://ci".to_owned() },
        17 => OwnedAccess::SetDefaultQuotas(quotas(rng)),
        _ => OwnedAccess::SetIdentity { enabled: rng.u32(..4) > 0 },
    };
    OwnedCommand::SetAccess(change)
}

/// The greatest priority that a rule permits, mostly one that some requests stay within and others do not.
fn permitted(rng: &mut fastrand::Rng) -> u8 {
    [0, 1, 1, 2, 9][rng.usize(..5)]
}

fn quotas(rng: &mut fastrand::Rng) -> Quotas {
    let mut quotas = Quotas::default();
    if rng.bool() {
        let quota = Quota::OF_STATE[rng.usize(..5)];
        let most = if quota == Quota::Bytes { 12 } else { 3 };
        let value = rng.u64(..=most);
        // Room for a few records of numbered requests, or for none.
        let is_wide = quota == Quota::Bytes && rng.bool();
        let value = if is_wide { value * 40 } else { value };
        // A few of the quotas that members count, which the state keeps from level 4 on.
        let quota = match (quota, value) {
            (Quota::Keys, 3) => Quota::Sessions,
            (Quota::Bytes, 12) => Quota::BytesInFlight,
            (quota, _) => quota,
        };
        quotas.set(quota, Some(value));
    }
    quotas
}

/// Gives a request its principal: mostly the one that owns the lease that the command is about.
pub(super) fn sign(made: &mut Generator, view: &ObservedState, request: &mut OwnedRequest) {
    let number = |lease: &LeaseRef| match lease {
        LeaseRef::Id(id) => Some(id.get()),
        LeaseRef::Handle(handle) => {
            view.leases.iter().find(|lease| lease.handle == *handle).map(|lease| lease.id.get())
        }
    };
    let lease = match &request.command {
        OwnedCommand::GrantLease(new) => Some(new.id.get()),
        OwnedCommand::Renew(leases) => leases.first().and_then(number),
        OwnedCommand::Revoke { lease, .. }
        | OwnedCommand::Leave { lease, .. }
        | OwnedCommand::Abandon { lease, .. } => number(lease),
        OwnedCommand::Acquire(acquire) => match &acquire.lease {
            OwnedAskLease::Existing(lease) => number(lease),
            OwnedAskLease::New(new) => Some(new.id.get()),
        },
        OwnedCommand::Release(hold)
        | OwnedCommand::Downgrade(hold)
        | OwnedCommand::Update { hold, .. }
        | OwnedCommand::Progress { hold, .. }
        | OwnedCommand::HandOn { hold, .. } => number(&hold.lease),
        OwnedCommand::Upgrade { lease, .. } => number(lease),
        OwnedCommand::Stopped { lease, .. } => Some(lease.get()),
        OwnedCommand::Put { lease, .. } => lease.as_ref().and_then(number).or(Some(1)),
        OwnedCommand::Delete { .. } => Some(1),
        OwnedCommand::Force { .. }
        | OwnedCommand::SetLimits(_)
        | OwnedCommand::Compact { .. }
        | OwnedCommand::RaiseLevel { .. }
        | OwnedCommand::SetAccess(_)
        | OwnedCommand::Drain { .. }
        | OwnedCommand::Undrain { .. }
        | OwnedCommand::Resize { .. } => None,
    };
    let own = lease.map_or("root", |number| PRINCIPALS[(number % 10 % 2) as usize]);
    let others = ["", "ana", "bob", "root", "eve", "tenure/member", "tenure/member/root"];
    request.principal = match made.rng.u32(..8) {
        0 => pick(&mut made.rng, &others).copied().unwrap_or_default().to_owned(),
        _ => own.to_owned(),
    };
}
