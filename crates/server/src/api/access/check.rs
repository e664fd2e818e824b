//! Checks what requests to change access contain, as far as the machine does not.

use tenure_core::access::{Access, IssuerKeys, NewRule};
use tenure_core::request::PRIORITY_MAX;
use tenure_types::{InvalidName, Name, Quota, Quotas, Verb, VerbSet};
use tenure_wire::{Failure, v1};

use crate::credentials::certificate::check_pattern;
use crate::credentials::check_keys;

/// The most bytes of a text that is not a name: the purpose of a key, a pattern, an audience, an address.
const TEXT_MAX: usize = 1_024;
/// The most bytes of a JWKS document, as in the machine.
const JWKS_MAX: usize = 64 * 1024;
/// The digits of the id of an API key.
const KEY_DIGITS: usize = 16;
/// The id of the key of a member's own administrator, which is in no state.
const LOCAL_KEY: &str = "0000000000000000";
/// The longest life of an API key, and the longest overlap of two: a key that is to live longer has no expiry.
const LIFE_MAX_MS: u64 = 10 * 365 * 24 * 3_600 * 1_000;

pub(super) fn wrong(field: &'static str, problem: impl Into<String>) -> Failure {
    Failure::InvalidField { field, problem: problem.into() }
}

pub(super) fn missing(field: &'static str) -> Failure {
    wrong(field, "is missing")
}

/// Checks a name that the machine will check as well, so that the error says which field it is.
pub(super) fn name(field: &'static str, name: &str) -> Result<(), Failure> {
    let problem = match Name::check(name) {
        Ok(()) => return Ok(()),
        Err(InvalidName::Empty) => "is empty".to_owned(),
        Err(InvalidName::TooLong) => format!("has more than {} bytes", Name::LEN_MAX),
        Err(InvalidName::Control) => "has a control character".to_owned(),
    };
    Err(wrong(field, problem))
}

/// Checks the name of a principal.
pub(super) fn principal(field: &'static str, principal: &str) -> Result<(), Failure> {
    name(field, principal)?;
    if principal.starts_with("tenure/") {
        return Err(wrong(field, "begins with `tenure/`, as only members do"));
    }
    Ok(())
}

/// Checks a text that people or programs read.
pub(super) fn text(field: &'static str, text: &str, may_be_empty: bool) -> Result<(), Failure> {
    if text.is_empty() && !may_be_empty {
        return Err(missing(field));
    }
    if text.len() > TEXT_MAX {
        return Err(wrong(field, format!("has more than {TEXT_MAX} bytes")));
    }
    if text.chars().any(char::is_control) {
        return Err(wrong(field, "has a control character"));
    }
    Ok(())
}

pub(super) fn verb(verb: &str) -> Result<Verb, Failure> {
    let known = || Verb::ALL.map(Verb::name).join(", ");
    Verb::from_name(verb)
        .ok_or_else(|| wrong("verb", format!("is `{verb}`; there are {}", known())))
}

pub(super) fn rules(rules: &[v1::AccessRule]) -> Result<Vec<NewRule<'_>>, Failure> {
    if rules.is_empty() {
        return Err(wrong("rules", "is empty"));
    }
    rules.iter().map(rule).collect()
}

fn rule(rule: &v1::AccessRule) -> Result<NewRule<'_>, Failure> {
    let verbs = rule.verbs.iter().map(|name| verb(name)).collect::<Result<VerbSet, _>>()?;
    if verbs == VerbSet::default() {
        return Err(wrong("rules", "has a rule without verbs"));
    }
    if rule.prefix.len() > Name::LEN_MAX {
        return Err(wrong("rules", "has a prefix that is longer than every name"));
    }
    if rule.prefix.chars().any(char::is_control) {
        return Err(wrong("rules", "has a prefix with a control character"));
    }
    let priority = priority(rule.priority, "rules")?;
    if priority > 0 && !verbs.meets(URGENT) {
        return Err(wrong("rules", "has a rule with a priority and without acquire and elect"));
    }
    Ok(NewRule { verbs, prefix: &rule.prefix, priority })
}

/// The verbs whose requests have a priority.
pub(super) const URGENT: VerbSet = VerbSet::from_verbs(&[Verb::Acquire, Verb::Elect]);

pub(super) fn priority(number: u32, field: &'static str) -> Result<u8, Failure> {
    let known = u8::try_from(number).ok().filter(|priority| *priority <= PRIORITY_MAX);
    known.ok_or_else(|| {
        wrong(field, format!("has the priority {number}; 0 to {PRIORITY_MAX} are there"))
    })
}

pub(super) fn quotas(values: &[v1::QuotaValue]) -> Result<Quotas, Failure> {
    let mut quotas = Quotas::default();
    for it in values {
        let known = || Quota::ALL.map(Quota::name).join(", ");
        let unknown = || wrong("quotas", format!("has `{}`; there are {}", it.quota, known()));
        let quota = Quota::from_name(&it.quota).ok_or_else(unknown)?;
        if quotas.get(quota).is_some() {
            return Err(wrong("quotas", format!("has `{}` twice", it.quota)));
        }
        quotas.set(quota, Some(it.value));
    }
    Ok(quotas)
}

/// Checks the id of an API key.
pub(super) fn key(field: &'static str, key: &str) -> Result<(), Failure> {
    let digits = key.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
    if key.len() != KEY_DIGITS || !digits {
        return Err(wrong(field, "is not 16 lowercase hexadecimal digits"));
    }
    if key == LOCAL_KEY {
        return Err(wrong(field, "is the id of the members' own keys"));
    }
    Ok(())
}

/// The hash of a key's secret.
pub(super) fn hash(bytes: &[u8]) -> Result<[u8; 32], Failure> {
    <[u8; 32]>::try_from(bytes)
        .map_err(|_| wrong("hash", "is no SHA-256 hash: those have 32 bytes"))
}

/// When a key expires that does so in this time.
pub(super) fn expiry(
    field: &'static str,
    in_ms: Option<u64>,
    now_ms: u64,
) -> Result<Option<u64>, Failure> {
    match in_ms {
        None => Ok(None),
        Some(in_ms) if in_ms <= LIFE_MAX_MS => Ok(Some(now_ms.saturating_add(in_ms))),
        Some(_) => Err(wrong(field, "is longer than 10 years")),
    }
}

/// Checks the pattern of a certificate rule.
pub(super) fn pattern(pattern: &str) -> Result<(), Failure> {
    text("pattern", pattern, false)?;
    check_pattern(pattern).map_err(|why| wrong("pattern", format!("is not right: {why}")))
}

/// Checks where the keys of an issuer are.
pub(super) fn issuer_keys(issuer: &v1::Issuer) -> Result<(), Failure> {
    let (field, keys) = match (issuer.jwks.as_str(), issuer.jwks_url.as_str()) {
        ("", "") => return Err(wrong("jwks", "is missing, and so is `jwks_url`")),
        ("", url) => {
            text("jwks_url", url, false)?;
            ("jwks_url", IssuerKeys::Url(url))
        }
        (document, "") if document.len() <= JWKS_MAX => ("jwks", IssuerKeys::Jwks(document)),
        (_, "") => return Err(wrong("jwks", format!("has more than {JWKS_MAX} bytes"))),
        _ => return Err(wrong("jwks", "is given, and so is `jwks_url`: give one of them")),
    };
    check_keys(keys).map_err(|why| wrong(field, format!("is not right: {why}")))
}

/// Whether an enabled principal that may administer the cluster can prove who it is: by an API key that has not
/// expired, by a certificate rule, or by an issuer whose names begin like its name.
pub(super) fn administrable(access: &Access, now_ms: u64) -> bool {
    access.principals().any(|(name, record)| {
        let name: &str = name;
        let keys = record.credentials.iter();
        access.permission(name, Verb::Administer, "").is_some()
            && (keys.into_iter().any(|key| key.expires_ms.is_none_or(|expiry| expiry > now_ms))
                || access.certificate_rules().any(|(_, rule)| &*rule.principal == name)
                || access.issuers().any(|(_, issuer)| name.starts_with(&*issuer.prefix)))
    })
}
