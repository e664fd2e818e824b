//! Encodes and decodes changes of the access rules, and the rules themselves.
//!
//! A snapshot contains the rules as the changes that create them, in one order, so that equal rules have equal bytes.

use alloc::boxed::Box;
use alloc::vec::Vec;
use tenure_types::{Name, Quota, QuotaSetter, Quotas, VerbSet};

use super::{Malformed, Reader, Writer};
use crate::access::{
    Access, AccessChange, IssuerKeys, NewCertificateRule, NewCredential, NewIssuer, NewPrincipal,
    NewRule, OwnedIssuerKeys, QuotaSetters, Replacement,
};
use crate::request::{LEVEL_SETTERS, PRIORITY_MAX};

pub(super) fn put_change(out: &mut Vec<u8>, change: &AccessChange<'_>) {
    match change {
        AccessChange::PutRole { name, rules } => {
            let is_urgent = NewRule::any_priority(rules);
            out.put_u8(if is_urgent { PUT_ROLE_WITH_PRIORITIES } else { 1 });
            out.put_bytes(name.as_bytes());
            out.put(rules.len() as u64);
            for rule in rules {
                out.put(u64::from(rule.verbs.bits()));
                out.put_bytes(rule.prefix.as_bytes());
                if is_urgent {
                    out.put_u8(rule.priority);
                }
            }
        }
        AccessChange::DeleteRole { name } => {
            out.put_u8(2);
            out.put_bytes(name.as_bytes());
        }
        AccessChange::PutPrincipal(new) => {
            out.put_u8(if new.quotas.counts_at_members() { 13 } else { 3 });
            out.put_bytes(new.name.as_bytes());
            out.put_u8(u8::from(new.enabled));
            out.put(new.roles.len() as u64);
            new.roles.iter().for_each(|role| out.put_bytes(role.as_bytes()));
            put_quotas(out, &new.quotas);
        }
        AccessChange::DeletePrincipal { name } => {
            out.put_u8(4);
            out.put_bytes(name.as_bytes());
        }
        AccessChange::PutCredential(new) => {
            out.put_u8(5);
            out.put_bytes(new.principal.as_bytes());
            out.put_bytes(new.id.as_bytes());
            out.put_bytes(new.name.as_bytes());
            out.put_raw(&new.hash);
            out.put_optional(new.expires_ms);
        }
        AccessChange::DeleteCredential { id } => {
            out.put_u8(6);
            out.put_bytes(id.as_bytes());
        }
        AccessChange::PutCertificateRule(new) => {
            out.put_u8(7);
            out.put_bytes(new.name.as_bytes());
            out.put_bytes(new.pattern.as_bytes());
            out.put_bytes(new.principal.as_bytes());
        }
        AccessChange::DeleteCertificateRule { name } => {
            out.put_u8(8);
            out.put_bytes(name.as_bytes());
        }
        AccessChange::PutIssuer(new) => {
            out.put_u8(9);
            out.put_bytes(new.issuer.as_bytes());
            out.put_bytes(new.audience.as_bytes());
            let (kind, keys) = match new.keys {
                IssuerKeys::Jwks(keys) => (0, keys),
                IssuerKeys::Url(url) => (1, url),
            };
            out.put_u8(kind);
            out.put_bytes(keys.as_bytes());
            out.put_bytes(new.claim.as_bytes());
            out.put_bytes(new.prefix.as_bytes());
        }
        AccessChange::DeleteIssuer { issuer } => {
            out.put_u8(10);
            out.put_bytes(issuer.as_bytes());
        }
        AccessChange::SetIdentity { enabled } => {
            out.put_u8(11);
            out.put_u8(u8::from(*enabled));
        }
        AccessChange::SetDefaultQuotas(quotas) => {
            out.put_u8(if quotas.counts_at_members() { 14 } else { 12 });
            put_quotas(out, quotas);
        }
        AccessChange::Replace(it) => {
            out.put_u8(REPLACE);
            put_change(out, &it.seen);
            put_change(out, &it.change);
        }
    }
}

/// The number of [`AccessChange::PutRole`] if any rule permits priorities: builds below their level know rules without
/// them.
const PUT_ROLE_WITH_PRIORITIES: u8 = 15;

/// The number of [`AccessChange::Replace`].
const REPLACE: u8 = 32;

pub(super) fn get_change<'a>(reader: &mut Reader<'a>) -> Result<AccessChange<'a>, Malformed> {
    let number = reader.u8()?;
    if number != REPLACE {
        return get_plain_change(number, reader);
    }
    let mut plain = || get_plain_change(reader.u8()?, reader);
    let (seen, change) = (plain()?, plain()?);
    if !seen.is_condition() {
        return Err(Malformed);
    }
    Ok(AccessChange::Replace(Box::new(Replacement { seen, change })))
}

/// Decodes a change without a condition: one level, so that bytes cannot make the decoder recurse.
fn get_plain_change<'a>(
    number: u8,
    reader: &mut Reader<'a>,
) -> Result<AccessChange<'a>, Malformed> {
    Ok(match number {
        1 | PUT_ROLE_WITH_PRIORITIES => {
            let is_urgent = number == PUT_ROLE_WITH_PRIORITIES;
            let name = reader.text()?;
            let len = reader.len(if is_urgent { 3 } else { 2 })?;
            let rule = |reader: &mut Reader<'a>| {
                let verbs = VerbSet::from_bits(reader.u16()?).ok_or(Malformed)?;
                let prefix = reader.text()?;
                let priority = if is_urgent { reader.u8()? } else { 0 };
                if priority > PRIORITY_MAX {
                    return Err(Malformed);
                }
                Ok(NewRule { verbs, prefix, priority })
            };
            let rules = (0..len).map(|_| rule(reader)).collect::<Result<Vec<_>, _>>()?;
            // There is one encoding of each change.
            if NewRule::any_priority(&rules) != is_urgent {
                return Err(Malformed);
            }
            AccessChange::PutRole { name, rules }
        }
        2 => AccessChange::DeleteRole { name: reader.text()? },
        3 | 13 => {
            let (name, enabled) = (reader.text()?, reader.flag()?);
            let len = reader.len(1)?;
            let roles = (0..len).map(|_| reader.text()).collect::<Result<_, _>>()?;
            let quotas = get_quotas(reader, number == 13)?;
            AccessChange::PutPrincipal(NewPrincipal { name, enabled, roles, quotas })
        }
        4 => AccessChange::DeletePrincipal { name: reader.text()? },
        5 => AccessChange::PutCredential(NewCredential {
            principal: reader.text()?,
            id: reader.text()?,
            name: reader.text()?,
            hash: reader.raw(32)?.try_into().map_err(|_| Malformed)?,
            expires_ms: reader.optional()?,
        }),
        6 => AccessChange::DeleteCredential { id: reader.text()? },
        7 => AccessChange::PutCertificateRule(NewCertificateRule {
            name: reader.text()?,
            pattern: reader.text()?,
            principal: reader.text()?,
        }),
        8 => AccessChange::DeleteCertificateRule { name: reader.text()? },
        9 => {
            let (issuer, audience) = (reader.text()?, reader.text()?);
            let keys = match (reader.u8()?, reader.text()?) {
                (0, keys) => IssuerKeys::Jwks(keys),
                (1, url) => IssuerKeys::Url(url),
                _ => return Err(Malformed),
            };
            let (claim, prefix) = (reader.text()?, reader.text()?);
            AccessChange::PutIssuer(NewIssuer { issuer, audience, keys, claim, prefix })
        }
        10 => AccessChange::DeleteIssuer { issuer: reader.text()? },
        11 => AccessChange::SetIdentity { enabled: reader.flag()? },
        12 | 14 => AccessChange::SetDefaultQuotas(get_quotas(reader, number == 14)?),
        _ => return Err(Malformed),
    })
}

/// Encodes quotas. Those that members count for themselves follow only if one is set, which the kind of the change
/// tells: builds below their level know changes without them.
fn put_quotas(out: &mut Vec<u8>, quotas: &Quotas) {
    Quota::OF_STATE.into_iter().for_each(|quota| out.put_optional(quotas.get(quota)));
    if quotas.counts_at_members() {
        Quota::OF_MEMBER.into_iter().for_each(|quota| out.put_optional(quotas.get(quota)));
    }
}

fn get_quotas(reader: &mut Reader<'_>, counts_at_members: bool) -> Result<Quotas, Malformed> {
    let mut quotas = Quotas::default();
    for quota in Quota::OF_STATE {
        quotas.set(quota, reader.optional()?);
    }
    if counts_at_members {
        for quota in Quota::OF_MEMBER {
            quotas.set(quota, reader.optional()?);
        }
    }
    // There is one encoding of each change.
    if quotas.counts_at_members() == counts_at_members { Ok(quotas) } else { Err(Malformed) }
}

pub(super) fn put_quota_setter(out: &mut Vec<u8>, setter: &QuotaSetter) {
    out.put_bytes(setter.principal.as_ref().map_or(&[], |principal| principal.as_bytes()));
    out.put_optional(setter.unix_ms);
}

pub(super) fn get_quota_setter(reader: &mut Reader<'_>) -> Result<QuotaSetter, Malformed> {
    let principal = match reader.text()? {
        "" => None,
        name => Some(Name::new(name).map_err(|_| Malformed)?),
    };
    Ok(QuotaSetter { principal, unix_ms: reader.optional()? })
}

fn put_setters(out: &mut Vec<u8>, setters: &QuotaSetters) {
    out.put(setters.iter().len() as u64);
    for (quota, setter) in setters.iter() {
        out.put_u8(quota as u8);
        put_quota_setter(out, setter);
    }
}

/// Decodes the setters of quotas. Each of these quotas has a value.
fn get_setters(reader: &mut Reader<'_>, quotas: &Quotas) -> Result<QuotaSetters, Malformed> {
    let mut setters = QuotaSetters::default();
    for _ in 0..reader.len(2)? {
        let quota = Quota::from_number(reader.u8()?).ok_or(Malformed)?;
        let is_next = setters.iter().last().is_none_or(|(last, _)| last < quota);
        if !is_next || quotas.get(quota).is_none() {
            return Err(Malformed);
        }
        setters.insert(quota, get_quota_setter(reader)?);
    }
    Ok(setters)
}

/// Encodes the access rules of a state at this level.
pub(in crate::codec) fn put_access(out: &mut Vec<u8>, access: &Access, level: u16) {
    put_rules(out, access);
    if level >= LEVEL_SETTERS {
        put_setters(out, &access.default_setters);
        access.principals().for_each(|(_, record)| put_setters(out, &record.setters));
    }
}

/// Decodes the access rules of a state at this level. Only their one encoding is accepted.
pub(in crate::codec) fn get_access(
    reader: &mut Reader<'_>,
    level: u16,
) -> Result<Access, Malformed> {
    let mut access = get_rules(reader)?;
    if level >= LEVEL_SETTERS {
        access.default_setters = get_setters(reader, &access.default_quotas)?;
        access.set_setters(|quotas| get_setters(reader, quotas))?;
    }
    Ok(access)
}

fn put_rules(out: &mut Vec<u8>, access: &Access) {
    let changes = changes(access);
    out.put(changes.len() as u64);
    changes.iter().for_each(|change| put_change(out, change));
}

fn get_rules(reader: &mut Reader<'_>) -> Result<Access, Malformed> {
    let mut access = Access::default();
    let mut bytes = Vec::new();
    let len = reader.len(2)?;
    let mut read = Vec::new();
    read.put(len as u64);
    for _ in 0..len {
        let change = get_change(reader)?;
        put_change(&mut read, &change);
        access.change(&change).map_err(|_| Malformed)?;
    }
    put_rules(&mut bytes, &access);
    if bytes == read { Ok(access) } else { Err(Malformed) }
}

/// The changes that create these rules from none.
fn changes(access: &Access) -> Vec<AccessChange<'_>> {
    let mut changes = Vec::from([
        AccessChange::SetIdentity { enabled: access.enabled },
        AccessChange::SetDefaultQuotas(access.default_quotas),
    ]);
    for (name, rules) in access.roles() {
        let kept = |rule: NewRule<'_>| match mutant!("priority_of_rules_not_in_snapshot") {
            true => 0,
            false => rule.priority,
        };
        let rules = rules.iter().map(|rule| NewRule { priority: kept(rule.lend()), ..rule.lend() });
        let rules = rules.collect();
        changes.push(AccessChange::PutRole { name, rules });
    }
    for (name, record) in access.principals() {
        let roles = record.roles.iter().map(tenure_types::Name::as_str).collect();
        let (enabled, quotas) = (record.enabled, record.quotas);
        changes.push(AccessChange::PutPrincipal(NewPrincipal { name, enabled, roles, quotas }));
        for credential in &record.credentials {
            changes.push(AccessChange::PutCredential(NewCredential {
                principal: name,
                id: &credential.id,
                name: &credential.name,
                hash: credential.hash,
                expires_ms: credential.expires_ms,
            }));
        }
    }
    for (name, rule) in access.certificate_rules() {
        let (pattern, principal) = (&*rule.pattern, &*rule.principal);
        changes.push(AccessChange::PutCertificateRule(NewCertificateRule {
            name,
            pattern,
            principal,
        }));
    }
    for (issuer, known) in access.issuers() {
        changes.push(AccessChange::PutIssuer(NewIssuer {
            issuer,
            audience: &known.audience,
            keys: match &known.keys {
                OwnedIssuerKeys::Jwks(keys) => IssuerKeys::Jwks(keys),
                OwnedIssuerKeys::Url(url) => IssuerKeys::Url(url),
            },
            claim: &known.claim,
            prefix: &known.prefix,
        }));
    }
    changes
}
