//! Defines the JSON of `/v1/access` and its paths.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Header, is_false};
use crate::{Failure, v1};

/// `GET /v1/access`: whether identity is enabled, and who the caller is. An administrator also gets the rest.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessStatus {
    /// Whether callers must have an identity.
    pub enabled: bool,
    /// The principal that the caller is; absent for a caller without credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The feature level in force. Access can be administered from feature level 3 on.
    pub level: u32,
    /// Fields that only administrators see.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub counts: Option<AccessCounts>,
    /// The member that answers, and its revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
}

/// The number of records of each kind of access rule.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessCounts {
    /// Whether an enabled principal that may administer the cluster can prove who it is.
    pub administrable: bool,
    /// The quotas of principals that have no value of their own.
    pub default_quotas: Quotas,
    /// The number of roles.
    pub roles: u32,
    /// The number of principals.
    pub principals: u32,
    /// API keys.
    pub keys: u32,
    /// Rules for client certificates.
    pub certificate_rules: u32,
    /// Trusted issuers of bearer tokens.
    pub issuers: u32,
}

impl From<v1::AccessStatusResponse> for AccessStatus {
    fn from(status: v1::AccessStatusResponse) -> Self {
        let counts = status.administrable.map(|administrable| AccessCounts {
            administrable,
            default_quotas: status.default_quotas.into(),
            roles: status.roles,
            principals: status.principals,
            keys: status.keys,
            certificate_rules: status.certificate_rules,
            issuers: status.issuers,
        });
        Self {
            enabled: status.enabled,
            principal: (!status.principal.is_empty()).then_some(status.principal),
            level: status.level,
            counts,
            header: status.header.map(Into::into),
        }
    }
}

/// `PUT /v1/access/identity`: switches the checks of identity on or off.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetIdentity {
    /// Whether callers must have an identity.
    pub enabled: bool,
}

/// Quotas of a principal, or the default quotas. Those that are absent are not set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Quotas {
    /// The most leases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leases: Option<u64>,
    /// Queue positions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub places: Option<u64>,
    /// Locks held or awaited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locks: Option<u64>,
    /// The most keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// Bytes of the names and values of keys, and of metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Sessions at one member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    /// Watches at one member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watches: Option<u64>,
    /// Requests at one member in one second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
    /// Bytes of requests that one member has not answered yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_in_flight: Option<u64>,
}

impl Quotas {
    fn each(&self) -> [(&'static str, Option<u64>); 9] {
        [
            ("leases", self.leases),
            ("places", self.places),
            ("locks", self.locks),
            ("keys", self.keys),
            ("bytes", self.bytes),
            ("sessions", self.sessions),
            ("watches", self.watches),
            ("requests_per_second", self.requests_per_second),
            ("bytes_in_flight", self.bytes_in_flight),
        ]
    }
}

impl From<Vec<v1::QuotaValue>> for Quotas {
    fn from(values: Vec<v1::QuotaValue>) -> Self {
        let mut quotas = Self::default();
        for v1::QuotaValue { quota, value } in values {
            let place = match quota.as_str() {
                "leases" => &mut quotas.leases,
                "places" => &mut quotas.places,
                "locks" => &mut quotas.locks,
                "keys" => &mut quotas.keys,
                "bytes" => &mut quotas.bytes,
                "sessions" => &mut quotas.sessions,
                "watches" => &mut quotas.watches,
                "requests_per_second" => &mut quotas.requests_per_second,
                "bytes_in_flight" => &mut quotas.bytes_in_flight,
                _ => continue,
            };
            *place = Some(value);
        }
        quotas
    }
}

impl From<Quotas> for Vec<v1::QuotaValue> {
    fn from(quotas: Quotas) -> Self {
        let value = |(quota, value): (&str, Option<u64>)| {
            Some(v1::QuotaValue { quota: quota.to_owned(), value: value? })
        };
        quotas.each().into_iter().filter_map(value).collect()
    }
}

/// One rule of a role.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The verbs that it permits.
    pub verbs: Vec<Verb>,
    /// The names that it is about begin with this. Empty: every name, and the cluster itself.
    pub prefix: String,
    /// With acquire or elect: the greatest priority of requests that it permits for these names, 0 to 9. Above 0 from
    /// feature level 15 on.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(minimum = 0, maximum = 9)]
    pub priority: u8,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// A verb that a rule can permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AccessVerb)]
pub enum Verb {
    /// Read locks, queues, keys and their history.
    Read,
    /// Acquire locks.
    Acquire,
    /// Write and delete keys.
    Keys,
    /// Run for leadership.
    Elect,
    /// Watch, and follow elections.
    Observe,
    /// Get signed tickets for held locks.
    Sign,
    /// Take locks away and end the leases of others.
    Force,
    /// Operate the cluster: limits, levels, compaction, backups, members.
    Operate,
    /// Change roles, principals, credentials and quotas.
    Administer,
}

impl Verb {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Acquire => "acquire",
            Self::Keys => "keys",
            Self::Elect => "elect",
            Self::Observe => "observe",
            Self::Sign => "sign",
            Self::Force => "force",
            Self::Operate => "operate",
            Self::Administer => "administer",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        use Verb::{Acquire, Administer, Elect, Force, Keys, Observe, Operate, Read, Sign};
        [Read, Acquire, Keys, Elect, Observe, Sign, Force, Operate, Administer]
            .into_iter()
            .find(|verb| verb.name() == name)
    }
}

impl From<Rule> for v1::AccessRule {
    fn from(rule: Rule) -> Self {
        let verbs = rule.verbs.into_iter().map(|verb| verb.name().to_owned()).collect();
        Self { verbs, prefix: rule.prefix, priority: rule.priority.into() }
    }
}

impl From<v1::AccessRule> for Rule {
    fn from(rule: v1::AccessRule) -> Self {
        let verbs = rule.verbs.iter().filter_map(|verb| Verb::from_name(verb)).collect();
        let priority = u8::try_from(rule.priority).unwrap_or(u8::MAX);
        Self { verbs, prefix: rule.prefix, priority }
    }
}

/// `PUT /v1/access/roles/{role}`: the rules of a role.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutRole {
    /// All its rules.
    pub rules: Vec<Rule>,
    /// Refuse unless the role has this version; `none` if it must not exist yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_version: Option<String>,
}

/// A role.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessRole {
    /// Its name.
    pub role: String,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// Its version: another text whenever the rules are others.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}

impl From<v1::AccessRole> for AccessRole {
    fn from(role: v1::AccessRole) -> Self {
        let rules = role.rules.into_iter().map(Into::into).collect();
        Self { role: role.role, rules, version: role.version }
    }
}

/// `PUT /v1/access/principals/{principal}`: the roles and quotas of a principal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutPrincipal {
    /// All its roles, which must exist.
    pub roles: Vec<String>,
    /// All its own quotas.
    #[serde(default)]
    pub quotas: Quotas,
    /// Whether its calls are accepted. Absent: as before, and true for a new principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Refuse unless the principal has this version; `none` if it must not exist yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_version: Option<String>,
}

/// `PATCH /v1/access/principals/{principal}`: enables or disables a principal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnablePrincipal {
    /// Whether its calls are accepted. Disabling a principal ends its leases.
    pub enabled: bool,
}

/// A principal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Principal {
    /// Its name.
    pub principal: String,
    /// Whether its calls are accepted.
    pub enabled: bool,
    /// The names of its roles.
    pub roles: Vec<String>,
    /// Its own quotas.
    pub quotas: Quotas,
    /// Its API keys, without secrets and hashes.
    pub keys: Vec<ApiKey>,
    /// Its version: another text whenever its state, roles or quotas are others.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The member that answers, and its revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
}

impl From<v1::PrincipalView> for Principal {
    fn from(it: v1::PrincipalView) -> Self {
        Self {
            principal: it.principal,
            enabled: it.enabled,
            roles: it.roles,
            quotas: it.quotas.into(),
            keys: it.keys.into_iter().map(Into::into).collect(),
            version: it.version,
            header: None,
        }
    }
}

/// An API key without its secret.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ApiKey {
    /// Its id: the part of the key between the underscores.
    pub key: String,
    /// The principal that it stands for.
    pub principal: String,
    /// The purpose of the key.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// When it expires, in milliseconds since 1970 by the wall clock; absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// Whether it has expired.
    #[serde(default, skip_serializing_if = "is_false")]
    pub expired: bool,
}

impl From<v1::ApiKey> for ApiKey {
    fn from(it: v1::ApiKey) -> Self {
        Self {
            key: it.key,
            principal: it.principal,
            name: it.name,
            expires_ms: it.expires_ms,
            expired: it.expired,
        }
    }
}

/// `PUT /v1/access/keys/{key}`: an API key of which the caller has drawn id and secret. The secret is not sent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateApiKey {
    /// The principal that it stands for.
    pub principal: String,
    /// The SHA-256 hash of the text of the secret, in 64 hexadecimal digits.
    pub hash: String,
    /// The purpose of the key.
    #[serde(default)]
    pub name: String,
    /// In how many milliseconds it expires; absent for a key that does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

/// `POST /v1/access/keys/{key}/rotate`: a new API key in the place of this one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateApiKey {
    /// The id of the new key: 16 random lowercase hexadecimal digits.
    pub key: String,
    /// The hash of the new key's secret, in 64 hexadecimal digits.
    pub hash: String,
    /// What the new key is for; absent: as the old one.
    #[serde(default)]
    pub name: String,
    /// In how many milliseconds the new key expires; absent for a key that does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// For how many more milliseconds the old key is accepted.
    pub overlap_ms: u64,
}

/// Reads a hash from its hexadecimal digits.
pub fn hash_from(digits: &str) -> Result<bytes::Bytes, Failure> {
    let digit = |it: u8| char::from(it).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?);
    let read: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
    read.filter(|bytes| bytes.len() == 32).map(Into::into).ok_or_else(|| Failure::InvalidField {
        field: "hash",
        problem: "is no SHA-256 hash: those have 64 hexadecimal digits".to_owned(),
    })
}

/// The new API key and the old one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ApiKeyRotated {
    /// The new key.
    pub key: ApiKey,
    /// The old key, with the time until which it is accepted.
    pub old_key: ApiKey,
    /// The member that answers, and its revision.
    pub header: Header,
}

/// A rule by which a client certificate stands for a principal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CertificateRule {
    /// Its name. Rules are tried in the order of their names.
    pub rule: String,
    /// `cn:NAME`, `dns:NAME` or `uri:URI`.
    pub pattern: String,
    /// The principal.
    pub principal: String,
}

impl From<v1::CertificateRule> for CertificateRule {
    fn from(it: v1::CertificateRule) -> Self {
        Self { rule: it.rule, pattern: it.pattern, principal: it.principal }
    }
}

/// `PUT /v1/access/certificate-rules/{rule}`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutCertificateRule {
    /// `cn:NAME`, `dns:NAME` or `uri:URI`: a name that the certificate must have. A `*` stands for characters of one
    /// part of the name.
    pub pattern: String,
    /// The principal that the certificate then stands for.
    pub principal: String,
}

/// An issuer of bearer tokens that the cluster trusts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Issuer {
    /// The issuer, as its tokens name it in `iss`.
    pub issuer: String,
    /// The audience that a token must name in `aud`.
    pub audience: String,
    /// Its public keys: the text of a JWKS document. Either this or `jwks_url`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jwks: String,
    /// The address of its JWKS document.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jwks_url: String,
    /// The claim that names the principal.
    pub claim: String,
    /// What is put before the claim's value to get the name of the principal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// `PUT /v1/access/issuers/{issuer}`: what tokens of an issuer must have, and where its public keys are.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutIssuer {
    /// The audience that a token must name in `aud`.
    pub audience: String,
    /// Its public keys: the text of a JWKS document. Either this or `jwks_url`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jwks: String,
    /// The address of its JWKS document.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jwks_url: String,
    /// The claim that names the principal; absent: `sub`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// What is put before the claim's value to get the name of the principal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

impl From<v1::Issuer> for Issuer {
    fn from(it: v1::Issuer) -> Self {
        let v1::Issuer { issuer, audience, jwks, jwks_url, claim, prefix } = it;
        Self { issuer, audience, jwks, jwks_url, claim, prefix }
    }
}

/// Whether a principal may do something with a name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Can {
    /// The principal; empty for a caller without credentials.
    pub principal: String,
    /// Whether it may, with identity enabled.
    pub allowed: bool,
    /// The first role that permits it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// The reason, as a sentence.
    pub why: String,
    /// Of acquire and elect: the greatest priority that it may use.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority_max: u8,
    /// Whether identity is enabled. While it is not, every caller may do everything but change access rules.
    pub enabled: bool,
    /// The member that answers, and its revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
}

impl From<v1::CanResponse> for Can {
    fn from(it: v1::CanResponse) -> Self {
        Self {
            principal: it.principal,
            allowed: it.allowed,
            role: it.role,
            why: it.why,
            priority_max: u8::try_from(it.priority_max).unwrap_or(u8::MAX),
            enabled: it.enabled,
            header: it.header.map(Into::into),
        }
    }
}

/// A change was made.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessChanged {
    /// Of a deletion: whether there was something to delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<bool>,
    /// The member that answers, and its revision.
    pub header: Header,
}

/// Roles, principals or API keys.
macro_rules! lists {
    ($($(#[$doc:meta])* $list:ident { $field:ident: $record:ident })+) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
        pub struct $list {
            /// In the order of their names.
            pub $field: Vec<$record>,
            /// Where to go on with `after`; absent if this was all.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub next: Option<String>,
            /// The member that answers, and its revision.
            pub header: Header,
        }
    )+};
}

lists! {
    /// `GET /v1/access/roles`.
    Roles { roles: AccessRole }
    /// `GET /v1/access/principals`.
    Principals { principals: Principal }
    /// `GET /v1/access/keys`.
    ApiKeys { keys: ApiKey }
    /// `GET /v1/access/certificate-rules`.
    CertificateRules { rules: CertificateRule }
    /// `GET /v1/access/issuers`.
    Issuers { issuers: Issuer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_and_quotas_are_those_of_the_rules() {
        for verb in tenure_types::Verb::ALL {
            assert_eq!(Verb::from_name(verb.name()).map(Verb::name), Some(verb.name()));
        }
        let each = Quotas::default().each().map(|(name, _)| name);
        assert_eq!(each, tenure_types::Quota::ALL.map(tenure_types::Quota::name));
    }

    #[test]
    fn a_hash_has_64_hexadecimal_digits() {
        assert_eq!(hash_from(&"0f".repeat(32)).unwrap()[..], [0x0f; 32]);
        for bad in ["", "0", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"é".repeat(32)] {
            assert!(hash_from(bad).is_err(), "{bad}");
        }
    }
}
