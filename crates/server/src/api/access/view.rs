//! Turns records of the access rules into messages. No message contains the hash of a secret.

use tenure_core::access::{
    Access, CertificateRule, Credential, Issuer, OwnedIssuerKeys, PrincipalRecord, Rule,
};
use tenure_types::{Quota, Quotas};
use tenure_wire::v1;

use super::{check, version};

/// The status; the counts only if the caller may see them, at this time of the wall clock.
pub(super) fn status(
    access: &Access,
    level: u16,
    who: &str,
    now_ms: Option<u64>,
) -> v1::AccessStatusResponse {
    let status = v1::AccessStatusResponse {
        enabled: access.is_enabled(),
        principal: who.to_owned(),
        level: level.into(),
        ..Default::default()
    };
    let Some(now_ms) = now_ms else { return status };
    let keys = access.principals().map(|(_, record)| record.credentials.len()).sum();
    v1::AccessStatusResponse {
        administrable: Some(check::administrable(access, now_ms)),
        default_quotas: quotas(access.default_quotas()),
        roles: number(access.roles().count()),
        principals: number(access.principals().count()),
        keys: number(keys),
        certificate_rules: number(access.certificate_rules().count()),
        issuers: number(access.issuers().count()),
        ..status
    }
}

pub(super) fn role(name: &str, rules: &[Rule]) -> v1::AccessRole {
    let rule = |rule: &Rule| v1::AccessRule {
        verbs: rule.verbs.iter().map(|verb| verb.name().to_owned()).collect(),
        prefix: rule.prefix.to_string(),
        priority: rule.priority.into(),
    };
    v1::AccessRole {
        role: name.to_owned(),
        rules: rules.iter().map(rule).collect(),
        version: version::of(&version::role(name, Some(rules))),
    }
}

pub(super) fn principal(name: &str, record: &PrincipalRecord, now_ms: u64) -> v1::PrincipalView {
    v1::PrincipalView {
        principal: name.to_owned(),
        enabled: record.enabled,
        roles: record.roles.iter().map(ToString::to_string).collect(),
        quotas: quotas(&record.quotas),
        keys: record.credentials.iter().map(|it| key(name, it, now_ms)).collect(),
        version: version::of(&version::principal(name, Some(record))),
    }
}

pub(super) fn key(principal: &str, credential: &Credential, now_ms: u64) -> v1::ApiKey {
    v1::ApiKey {
        key: credential.id.to_string(),
        principal: principal.to_owned(),
        name: credential.name.to_string(),
        expires_ms: credential.expires_ms,
        expired: credential.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms),
    }
}

pub(super) fn certificate_rule(name: &str, rule: &CertificateRule) -> v1::CertificateRule {
    v1::CertificateRule {
        rule: name.to_owned(),
        pattern: rule.pattern.to_string(),
        principal: rule.principal.to_string(),
    }
}

pub(super) fn issuer(name: &str, issuer: &Issuer) -> v1::Issuer {
    let (jwks, jwks_url) = match &issuer.keys {
        OwnedIssuerKeys::Jwks(document) => (document.to_string(), String::new()),
        OwnedIssuerKeys::Url(url) => (String::new(), url.to_string()),
    };
    v1::Issuer {
        issuer: name.to_owned(),
        audience: issuer.audience.to_string(),
        jwks,
        jwks_url,
        claim: issuer.claim.to_string(),
        prefix: issuer.prefix.to_string(),
    }
}

fn quotas(quotas: &Quotas) -> Vec<v1::QuotaValue> {
    let value = |quota: Quota| {
        Some(v1::QuotaValue { quota: quota.name().to_owned(), value: quotas.get(quota)? })
    };
    Quota::ALL.into_iter().filter_map(value).collect()
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
