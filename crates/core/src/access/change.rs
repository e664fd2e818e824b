//! Defines the changes of the access rules, and applies them within their bounds.

use alloc::boxed::Box;
use alloc::vec::Vec;
use tenure_types::{InvalidName, Name, QuotaSetter, Quotas, Refusal, VerbSet};

use super::{
    Access, CertificateRule, Credential, Issuer, OwnedIssuerKeys, PrincipalRecord, QuotaSetters,
    Rule,
};
use crate::request::{LEVEL_ACCESS, LEVEL_PRIORITY_RULES, LEVEL_RECORDS, OWN_KEYS};

/// The most rules of one role.
pub const RULES_PER_ROLE: usize = 64;
/// The most roles of one principal.
pub const ROLES_PER_PRINCIPAL: usize = 16;
/// The most API keys of one principal: enough to rotate with overlap.
pub const CREDENTIALS_PER_PRINCIPAL: usize = 4;
/// The most roles.
const ROLES_MAX: usize = 1_024;
/// The most principals.
const PRINCIPALS_MAX: usize = 10_000;
/// The most rules for client certificates. Every TLS handshake tries them in order.
const CERTIFICATE_RULES_MAX: usize = 256;
/// The most trusted issuers.
const ISSUERS_MAX: usize = 32;
/// The longest text in a record. A JWKS document is the longest of them.
const TEXT_MAX: usize = 64 * 1024;
/// The most bytes of all records: each snapshot writes them into its first frame.
const BYTES_MAX: u64 = 8 << 20;

/// What a record weighs, without its texts.
const RECORD_BYTES: u64 = 96;

/// One change of the access rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AccessChange<'a> {
    /// Create a role, or replace its rules.
    PutRole {
        /// The name of the role.
        name: &'a str,
        /// Its rules.
        rules: Vec<NewRule<'a>>,
    },
    /// Delete a role. Principals that have it lose its permissions.
    DeleteRole {
        /// The name of the role.
        name: &'a str,
    },
    /// Create a principal, or replace its roles, quotas and whether it is enabled. Its credentials stay.
    PutPrincipal(NewPrincipal<'a>),
    /// Delete a principal and its credentials.
    DeletePrincipal {
        /// The name of the principal.
        name: &'a str,
    },
    /// Give a principal an API key. A credential with the same id is replaced, whichever principal had it.
    PutCredential(NewCredential<'a>),
    /// Delete an API key.
    DeleteCredential {
        /// The id of the key.
        id: &'a str,
    },
    /// Create or replace a rule for client certificates.
    PutCertificateRule(NewCertificateRule<'a>),
    /// Delete a rule for client certificates.
    DeleteCertificateRule {
        /// The name of the rule.
        name: &'a str,
    },
    /// Trust an issuer of bearer tokens, or replace what is known of it.
    PutIssuer(NewIssuer<'a>),
    /// Trust an issuer no more.
    DeleteIssuer {
        /// The issuer.
        issuer: &'a str,
    },
    /// Switch the checks of identity on or off.
    SetIdentity {
        /// Whether callers must be known.
        enabled: bool,
    },
    /// Set the quotas of principals that have no value of their own.
    SetDefaultQuotas(Quotas),
    /// Make a change if a role or principal is as the caller has seen it. Available from
    /// [`LEVEL_RECORDS`](crate::request::LEVEL_RECORDS) on.
    Replace(Box<Replacement<'a>>),
}

/// A change that depends on the present state of a role or principal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replacement<'a> {
    /// A put or delete of a role or principal. It must be without effect: the object is already so, or does not exist.
    pub seen: AccessChange<'a>,
    /// The change to make; no replacement itself.
    pub change: AccessChange<'a>,
}

/// A rule of a role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewRule<'a> {
    /// The verbs.
    pub verbs: VerbSet,
    /// The prefix of the names.
    pub prefix: &'a str,
    /// The greatest priority of a request that the rule permits, with the names and the verb `acquire` or `elect` that
    /// it permits. Not 0 from [`LEVEL_PRIORITY_RULES`](crate::request::LEVEL_PRIORITY_RULES) on only.
    pub priority: u8,
}

impl NewRule<'_> {
    /// Whether any of these rules permits priorities.
    pub(crate) fn any_priority(rules: &[Self]) -> bool {
        rules.iter().any(|rule| rule.priority > 0)
    }
}

/// A principal to be created or replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPrincipal<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether its commands are accepted.
    pub enabled: bool,
    /// The names of its roles.
    pub roles: Vec<&'a str>,
    /// Its own quotas.
    pub quotas: Quotas,
}

/// An API key to be added to a principal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewCredential<'a> {
    /// The principal.
    pub principal: &'a str,
    /// The public part of the key.
    pub id: &'a str,
    /// What it is for, in words.
    pub name: &'a str,
    /// The SHA-256 hash of the secret.
    pub hash: [u8; 32],
    /// When it expires, by the wall clock.
    pub expires_ms: Option<u64>,
}

/// A rule for client certificates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewCertificateRule<'a> {
    /// The name of the rule.
    pub name: &'a str,
    /// A pattern for the subject or an alternative name.
    pub pattern: &'a str,
    /// The principal.
    pub principal: &'a str,
}

/// An issuer of bearer tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewIssuer<'a> {
    /// The issuer, as tokens name it.
    pub issuer: &'a str,
    /// The audience that a token must name.
    pub audience: &'a str,
    /// Its public keys.
    pub keys: IssuerKeys<'a>,
    /// The claim that names the principal.
    pub claim: &'a str,
    /// What is put before the claim's value.
    pub prefix: &'a str,
}

/// The public keys of an issuer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IssuerKeys<'a> {
    /// A JWKS document.
    Jwks(&'a str),
    /// The address of a JWKS document.
    Url(&'a str),
}

impl<'a> AccessChange<'a> {
    /// Whether this can be the condition of a [`Replacement`].
    pub(crate) fn is_condition(&self) -> bool {
        matches!(
            self,
            Self::PutRole { .. }
                | Self::DeleteRole { .. }
                | Self::PutPrincipal(_)
                | Self::DeletePrincipal { .. }
        )
    }

    /// The word and the name of the changed object, for the event. Neither contains a secret.
    pub fn summary(&self) -> (&'static str, &'a str) {
        match self {
            Self::PutRole { name, .. } => ("role_put", name),
            Self::DeleteRole { name } => ("role_deleted", name),
            Self::PutPrincipal(new) if new.enabled => ("principal_put", new.name),
            Self::PutPrincipal(new) => ("principal_disabled", new.name),
            Self::DeletePrincipal { name } => ("principal_deleted", name),
            Self::PutCredential(new) => ("credential_put", new.id),
            Self::DeleteCredential { id } => ("credential_deleted", id),
            Self::PutCertificateRule(new) => ("certificate_rule_put", new.name),
            Self::DeleteCertificateRule { name } => ("certificate_rule_deleted", name),
            Self::PutIssuer(new) => ("issuer_put", new.issuer),
            Self::DeleteIssuer { issuer } => ("issuer_deleted", issuer),
            Self::SetIdentity { enabled: true } => ("identity_enabled", ""),
            Self::SetIdentity { enabled: false } => ("identity_disabled", ""),
            Self::SetDefaultQuotas(_) => ("default_quotas_set", ""),
            Self::Replace(it) => it.change.summary(),
        }
    }

    /// The level from which on the machine makes this change.
    pub fn level(&self) -> u16 {
        let quotas = match self {
            Self::PutPrincipal(new) => Some(&new.quotas),
            Self::SetDefaultQuotas(quotas) => Some(quotas),
            Self::PutRole { rules, .. } if NewRule::any_priority(rules) => {
                return LEVEL_PRIORITY_RULES;
            }
            Self::Replace(it) => {
                return LEVEL_RECORDS.max(it.seen.level()).max(it.change.level());
            }
            _ => None,
        };
        match quotas {
            Some(quotas) if quotas.counts_at_members() => LEVEL_RECORDS,
            _ => LEVEL_ACCESS,
        }
    }

    /// The principal whose leases end with this change.
    pub(crate) fn revokes(&self) -> Option<&'a str> {
        match self {
            Self::DeletePrincipal { name } => Some(name),
            Self::PutPrincipal(new) if !new.enabled => Some(new.name),
            Self::Replace(it) => it.change.revokes(),
            _ => None,
        }
    }
}

impl Access {
    /// Makes a change of which nothing is recorded. Returns whether anything is different now.
    pub fn change(&mut self, change: &AccessChange<'_>) -> Result<bool, Refusal> {
        self.change_by(change, None)
    }

    /// Makes a change, and records who sets the quotas that it changes.
    pub(crate) fn change_by(
        &mut self,
        change: &AccessChange<'_>,
        setter: Option<&QuotaSetter>,
    ) -> Result<bool, Refusal> {
        match change {
            AccessChange::PutRole { name, rules } => self.put_role(name, rules),
            AccessChange::DeleteRole { name } => Ok(self.delete_role(name)),
            AccessChange::PutPrincipal(new) => self.put_principal(new, setter),
            AccessChange::DeletePrincipal { name } => Ok(self.delete_principal(name)),
            AccessChange::PutCredential(new) => self.put_credential(new),
            AccessChange::DeleteCredential { id } => Ok(self.delete_credential(id)),
            AccessChange::PutCertificateRule(new) => self.put_certificate_rule(new),
            AccessChange::DeleteCertificateRule { name } => {
                let gone = self.certificate_rules.remove(name.as_bytes());
                self.bytes -= gone.as_ref().map_or(0, |rule| rule.weight(name));
                Ok(gone.is_some())
            }
            AccessChange::PutIssuer(new) => self.put_issuer(new),
            AccessChange::DeleteIssuer { issuer } => {
                let gone = self.issuers.remove(issuer.as_bytes());
                self.bytes -= gone.as_ref().map_or(0, |known| known.weight(issuer));
                Ok(gone.is_some())
            }
            AccessChange::SetIdentity { enabled } => {
                Ok(core::mem::replace(&mut self.enabled, *enabled) != *enabled)
            }
            AccessChange::SetDefaultQuotas(quotas) => {
                let old = core::mem::replace(&mut self.default_quotas, *quotas);
                // One for each quota at most, so they are not weighed.
                self.default_setters = self.default_setters.after(&old, quotas, setter);
                Ok(old != *quotas)
            }
            AccessChange::Replace(it) if !self.is_so(&it.seen) => Err(Refusal::AccessChanged),
            AccessChange::Replace(it) => self.change_by(&it.change, setter),
        }
    }

    /// Sets who set the quotas of each principal, in the order of their names, as it was read.
    pub(crate) fn set_setters<E>(
        &mut self,
        mut read: impl FnMut(&Quotas) -> Result<QuotaSetters, E>,
    ) -> Result<(), E> {
        for record in self.principals.values_mut() {
            self.bytes -= record.setters.weight();
            record.setters = read(&record.quotas)?;
            self.bytes += record.setters.weight();
        }
        Ok(())
    }

    /// Whether a put or delete of a role or principal would be without effect. API keys of a principal do not count.
    pub fn is_so(&self, seen: &AccessChange<'_>) -> bool {
        match seen {
            AccessChange::PutRole { name, rules } => self
                .role(name)
                .is_some_and(|known| known.iter().map(Rule::lend).eq(rules.iter().copied())),
            AccessChange::DeleteRole { name } => self.role(name).is_none(),
            AccessChange::PutPrincipal(new) => self.principal(new.name).is_some_and(|known| {
                let roles = known.roles.iter().map(Name::as_str);
                known.enabled == new.enabled
                    && known.quotas == new.quotas
                    && roles.eq(new.roles.iter().copied())
            }),
            AccessChange::DeletePrincipal { name } => self.principal(name).is_none(),
            _ => false,
        }
    }

    fn put_role(&mut self, name: &str, rules: &[NewRule<'_>]) -> Result<bool, Refusal> {
        let name = checked(name)?;
        at_most(rules.len(), RULES_PER_ROLE)?;
        for rule in rules {
            text(rule.prefix)?;
        }
        let rules: Vec<Rule> = rules
            .iter()
            .map(|rule| Rule {
                verbs: rule.verbs,
                prefix: Box::from(rule.prefix),
                priority: rule.priority,
            })
            .collect();
        room(self.roles.contains_key(&name), self.roles.len(), ROLES_MAX)?;
        let (added, old) = (role_weight(&name, &rules), self.roles.get(&name));
        let removed = old.map_or(0, |old| role_weight(&name, old));
        self.weigh(added, removed)?;
        let old = self.roles.insert(name.clone(), rules);
        Ok(old.as_ref() != self.roles.get(&name))
    }

    fn delete_role(&mut self, name: &str) -> bool {
        let gone = self.roles.remove_entry(name.as_bytes());
        self.bytes -= gone.as_ref().map_or(0, |(name, rules)| role_weight(name, rules));
        gone.is_some()
    }

    fn put_principal(
        &mut self,
        new: &NewPrincipal<'_>,
        setter: Option<&QuotaSetter>,
    ) -> Result<bool, Refusal> {
        let name = checked(new.name)?;
        // These names belong to the members.
        if new.name.starts_with(OWN_KEYS) {
            return Err(Refusal::InvalidName);
        }
        at_most(new.roles.len(), ROLES_PER_PRINCIPAL)?;
        let roles: Vec<Name> =
            new.roles.iter().map(|role| checked(role)).collect::<Result<_, _>>()?;
        let old = self.principals.get(&name);
        room(old.is_some(), self.principals.len(), PRINCIPALS_MAX)?;
        let no_setters = QuotaSetters::default();
        let (quotas, setters) =
            old.map_or((Quotas::default(), &no_setters), |old| (old.quotas, &old.setters));
        let record = PrincipalRecord {
            enabled: new.enabled,
            roles,
            credentials: old.map_or(Vec::new(), |old| old.credentials.clone()),
            quotas: new.quotas,
            setters: setters.after(&quotas, &new.quotas, setter),
        };
        let (added, removed) = (record.weight(&name), old.map_or(0, |old| old.weight(&name)));
        self.weigh(added, removed)?;
        let old = self.principals.insert(name.clone(), record);
        Ok(old.as_ref() != self.principals.get(&name))
    }

    fn delete_principal(&mut self, name: &str) -> bool {
        let Some((name, gone)) = self.principals.remove_entry(name.as_bytes()) else {
            return false;
        };
        self.bytes -= gone.weight(&name);
        for credential in gone.credentials {
            self.credentials.remove(&credential.id);
        }
        true
    }

    fn put_credential(&mut self, new: &NewCredential<'_>) -> Result<bool, Refusal> {
        let id = checked(new.id)?;
        text(new.name)?;
        let Some(record) = self.principals.get(new.principal.as_bytes()) else {
            return Err(Refusal::PrincipalNotFound);
        };
        let others = record.credentials.iter().filter(|it| it.id != id).count();
        room(false, others, CREDENTIALS_PER_PRINCIPAL)?;
        let credential = Credential {
            id: id.clone(),
            name: Box::from(new.name),
            hash: new.hash,
            expires_ms: new.expires_ms,
        };
        if record.credentials.contains(&credential) {
            return Ok(false);
        }
        let added = credential.weight();
        let old = self.find_credential(new.id).map_or(0, |(_, old)| old.weight());
        self.weigh(added, old)?;
        // `weigh` has counted the old one already.
        self.bytes += old;
        self.delete_credential(new.id);
        let (principal, _) =
            self.principals.get_key_value(new.principal.as_bytes()).expect("it was found before");
        let principal = principal.clone();
        let record = self.principals.get_mut(&principal).expect("it was found before");
        record.credentials.push(credential);
        self.credentials.insert(id, principal);
        Ok(true)
    }

    fn delete_credential(&mut self, id: &str) -> bool {
        let Some(principal) = self.credentials.remove(id.as_bytes()) else { return false };
        if let Some(record) = self.principals.get_mut(&principal) {
            let bytes = &mut self.bytes;
            record.credentials.retain(|credential| {
                let keeps = credential.id.as_bytes() != id.as_bytes();
                *bytes -= if keeps { 0 } else { credential.weight() };
                keeps
            });
        }
        true
    }

    fn put_certificate_rule(&mut self, new: &NewCertificateRule<'_>) -> Result<bool, Refusal> {
        let name = checked(new.name)?;
        text(new.pattern)?;
        text(new.principal)?;
        let old = self.certificate_rules.get(&name);
        room(old.is_some(), self.certificate_rules.len(), CERTIFICATE_RULES_MAX)?;
        let rule = CertificateRule {
            pattern: Box::from(new.pattern),
            principal: Box::from(new.principal),
        };
        let (added, removed) = (rule.weight(&name), old.map_or(0, |old| old.weight(&name)));
        self.weigh(added, removed)?;
        let old = self.certificate_rules.insert(name.clone(), rule);
        Ok(old.as_ref() != self.certificate_rules.get(&name))
    }

    fn put_issuer(&mut self, new: &NewIssuer<'_>) -> Result<bool, Refusal> {
        let name = checked(new.issuer)?;
        let keys = match new.keys {
            IssuerKeys::Jwks(keys) => OwnedIssuerKeys::Jwks(text(keys)?),
            IssuerKeys::Url(url) => OwnedIssuerKeys::Url(text(url)?),
        };
        let issuer = Issuer {
            audience: text(new.audience)?,
            keys,
            claim: text(new.claim)?,
            prefix: text(new.prefix)?,
        };
        let old = self.issuers.get(&name);
        room(old.is_some(), self.issuers.len(), ISSUERS_MAX)?;
        let (added, removed) = (issuer.weight(&name), old.map_or(0, |old| old.weight(&name)));
        self.weigh(added, removed)?;
        let old = self.issuers.insert(name.clone(), issuer);
        Ok(old.as_ref() != self.issuers.get(&name))
    }

    /// Counts the bytes of a new record in place of an old one. Refuses what grows beyond the bound.
    fn weigh(&mut self, added: u64, removed: u64) -> Result<(), Refusal> {
        let bytes = self.bytes - removed + added;
        if bytes > BYTES_MAX && added > removed {
            return Err(Refusal::AccessFull { max: BYTES_MAX });
        }
        self.bytes = bytes;
        Ok(())
    }
}

fn checked(text: &str) -> Result<Name, Refusal> {
    Name::new(text).map_err(|invalid| match invalid {
        InvalidName::Empty | InvalidName::TooLong | InvalidName::Control => Refusal::InvalidName,
    })
}

fn text(text: &str) -> Result<Box<str>, Refusal> {
    if text.len() > TEXT_MAX {
        return Err(Refusal::TooManyInCommand { max: TEXT_MAX as u64 });
    }
    Ok(Box::from(text))
}

fn at_most(len: usize, max: usize) -> Result<(), Refusal> {
    if len > max { Err(Refusal::TooManyInCommand { max: max as u64 }) } else { Ok(()) }
}

fn room(replaces: bool, len: usize, max: usize) -> Result<(), Refusal> {
    if !replaces && len >= max { Err(Refusal::AccessFull { max: max as u64 }) } else { Ok(()) }
}

fn role_weight(name: &str, rules: &[Rule]) -> u64 {
    let rules: usize = rules.iter().map(|rule| 32 + rule.prefix.len()).sum();
    RECORD_BYTES + (name.len() + rules) as u64
}

impl PrincipalRecord {
    fn weight(&self, name: &str) -> u64 {
        let roles: usize = self.roles.iter().map(|role| 32 + role.as_bytes().len()).sum();
        let credentials: u64 = self.credentials.iter().map(Credential::weight).sum();
        RECORD_BYTES + (name.len() + roles) as u64 + credentials + self.setters.weight()
    }
}

impl Credential {
    fn weight(&self) -> u64 {
        RECORD_BYTES + (self.id.as_bytes().len() + self.name.len()) as u64
    }
}

impl CertificateRule {
    fn weight(&self, name: &str) -> u64 {
        RECORD_BYTES + (name.len() + self.pattern.len() + self.principal.len()) as u64
    }
}

impl Issuer {
    fn weight(&self, name: &str) -> u64 {
        let keys = match &self.keys {
            OwnedIssuerKeys::Jwks(text) | OwnedIssuerKeys::Url(text) => text.len(),
        };
        let texts = self.audience.len() + self.claim.len() + self.prefix.len();
        RECORD_BYTES + (name.len() + keys + texts) as u64
    }
}
