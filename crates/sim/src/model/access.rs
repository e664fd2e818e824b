//! Restates who may do what, who owns what, and how much each principal may have.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::access::{AccessChange, IssuerKeys};
use tenure_core::event::{Cause, Event, Subject};
use tenure_core::outcome::Answer;
use tenure_core::request::{Command, Hold, LeaseRef, Purpose, Request, Revoker, Upgrade};
use tenure_types::{
    LeaseId, Name, Quota, QuotaSetter, QuotaSource, Quotas, Refusal, Verb, VerbSet,
};

use super::event::blank;
use super::{
    Grant, GrantState, HandleOf, LEVEL_FAIR_RECORDS, LEVEL_OWNED, LEVEL_RECORDS, LEVEL_REPAIRED,
    LEVEL_SETTERS, LEVEL_URGENT_ROLES, Model, Verdict,
};

/// The principal of the members.
const MEMBER: &str = "tenure/member";

/// The prefix of what belongs to the cluster.
const OWN: &str = "tenure/";

/// The reason that is given when a lease ends with its principal.
pub(super) const REVOKED: &str = "principal revoked";

/// A principal that owns something: its name, and how often it was revoked while it had leases.
pub(super) type OwnerKey = (String, u64);

/// Who set each quota that has a value.
type Setters = BTreeMap<Quota, QuotaSetter>;

/// A rule of a role: its verbs, its prefix, and the highest priority that it permits.
pub(super) type RoleRule = (VerbSet, String, u8);

/// The access rules.
#[derive(Clone, Default)]
pub(super) struct Rules {
    enabled: bool,
    defaults: Quotas,
    default_setters: Setters,
    roles: BTreeMap<String, Vec<RoleRule>>,
    principals: BTreeMap<String, Principal>,
    certificates: BTreeMap<String, (String, String)>,
    issuers: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Default, PartialEq)]
struct Principal {
    enabled: bool,
    roles: Vec<String>,
    quotas: Quotas,
    setters: Setters,
    /// Id, name, hash and expiry of each credential, oldest first.
    credentials: Vec<(String, String, [u8; 32], Option<u64>)>,
}

/// The owners, and those that were revoked.
#[derive(Clone, Default)]
pub(super) struct Owned {
    /// The principal of the present command.
    caller: String,
    /// The numbers of the owners that have something.
    numbers: BTreeMap<u32, OwnerKey>,
    /// How often each principal was revoked while it had leases.
    revocations: BTreeMap<String, u64>,
    /// When each revoked owner was revoked.
    revoked_ms: BTreeMap<OwnerKey, u64>,
}

impl Rules {
    pub(super) fn may(&self, principal: &str, verb: Verb, name: &str) -> bool {
        if !self.enabled {
            return true;
        }
        if principal == MEMBER {
            return match verb {
                Verb::Keys => name.starts_with(OWN),
                Verb::Acquire | Verb::Elect | Verb::Force => false,
                _ => true,
            };
        }
        if verb == Verb::Keys && name.starts_with(OWN) {
            return false;
        }
        self.rules_of(principal).iter().any(|rule| permits(rule, verb, name))
    }

    pub(super) fn rules_of(&self, principal: &str) -> Vec<&RoleRule> {
        let Some(known) = self.principals.get(principal).filter(|known| known.enabled) else {
            return Vec::new();
        };
        known.roles.iter().filter_map(|role| self.roles.get(role)).flatten().collect()
    }

    fn knows(&self, principal: &str) -> bool {
        principal == MEMBER || self.principals.get(principal).is_some_and(|known| known.enabled)
    }

    /// The verb that is missing for a command, if one is.
    fn missing(&self, principal: &str, command: &Command<'_>) -> Option<Verb> {
        let may = |verb, name: &str| (!self.may(principal, verb, name)).then_some(verb);
        match command {
            Command::GrantLease(_) | Command::Renew(_) => {
                let of_use = [Verb::Acquire, Verb::Keys, Verb::Elect];
                let rules = self.rules_of(principal);
                let any = of_use.iter().any(|verb| rules.iter().any(|rule| rule.0.contains(*verb)));
                (!any).then_some(Verb::Acquire)
            }
            Command::Revoke { .. }
            | Command::Release(_)
            | Command::Leave { .. }
            | Command::Stopped { .. }
            | Command::Abandon(_) => (!self.knows(principal)).then_some(Verb::Acquire),
            Command::Acquire(ask) => {
                let verb = match ask.purpose {
                    Purpose::Lock => Verb::Acquire,
                    Purpose::Election => Verb::Elect,
                };
                let each = |verb| {
                    let mut asks = ask.locks.as_slice().iter();
                    let all = asks.all(|one| self.may(principal, verb, one.lock));
                    (!all || !self.knows(principal)).then_some(verb)
                };
                each(verb)
            }
            Command::Downgrade(Hold { lock, .. })
            | Command::Update { hold: Hold { lock, .. }, .. }
            | Command::Progress { hold: Hold { lock, .. }, .. }
            | Command::HandOn { hold: Hold { lock, .. }, .. }
            | Command::Upgrade(Upgrade { lock, .. }) => {
                may(Verb::Acquire, lock).and(may(Verb::Elect, lock)).map(|_| Verb::Acquire)
            }
            Command::Force { lock, .. } => may(Verb::Force, lock),
            Command::Put(put) => may(Verb::Keys, put.key),
            Command::Delete { key, .. } => may(Verb::Keys, key),
            Command::SetLimits(_) | Command::Compact { .. } | Command::RaiseLevel { .. } => {
                may(Verb::Operate, "")
            }
            Command::SetAccess(_) => may(Verb::Administer, ""),
            Command::Drain { prefix, .. } | Command::Undrain { prefix, .. } => {
                may(Verb::Operate, prefix)
            }
            Command::Resize { lock, .. } => may(Verb::Operate, lock),
        }
    }

    /// The weight of all rules.
    pub(super) fn weigh(&self) -> usize {
        let role = |(name, rules): (&String, &Vec<RoleRule>)| {
            96 + name.len() + rules.iter().map(|rule| 32 + rule.1.len()).sum::<usize>()
        };
        let principal = |(name, known): (&String, &Principal)| {
            let roles: usize = known.roles.iter().map(|role| 32 + role.len()).sum();
            let keys = known.credentials.iter().map(|key| 96 + key.0.len() + key.1.len());
            let setters = known.setters.values();
            let setters = setters.map(|it| 32 + it.principal.as_ref().map_or(0, |name| name.len()));
            96 + name.len() + roles + keys.sum::<usize>() + setters.sum::<usize>()
        };
        let certificate = |(name, rule): (&String, &(String, String))| {
            96 + name.len() + rule.0.len() + rule.1.len()
        };
        let issuer = |(name, texts): (&String, &Vec<String>)| {
            96 + name.len() + texts[1..].iter().map(String::len).sum::<usize>()
        };
        self.roles.iter().map(role).sum::<usize>()
            + self.principals.iter().map(principal).sum::<usize>()
            + self.certificates.iter().map(certificate).sum::<usize>()
            + self.issuers.iter().map(issuer).sum::<usize>()
    }

    /// Makes a change. Returns whether anything is different.
    fn change(
        &mut self,
        change: &AccessChange<'_>,
        setter: Option<&QuotaSetter>,
    ) -> Result<bool, Refusal> {
        let valid = |name: &str| Name::new(name).map(|_| name.to_owned());
        let valid = |name: &str| valid(name).map_err(|_| Refusal::InvalidName);
        let at_most = |len: usize, max: usize| {
            if len > max { Err(Refusal::TooManyInCommand { max: max as u64 }) } else { Ok(()) }
        };
        let text = |text: &str| at_most(text.len(), 65_536).map(|()| text.to_owned());
        Ok(match change {
            AccessChange::Replace(it) => {
                // The condition holds if its change would be one that changes nothing.
                if self.clone().change(&it.seen, setter) != Ok(false) {
                    return Err(Refusal::AccessChanged);
                }
                return self.change(&it.change, setter);
            }
            AccessChange::PutRole { name, rules } => {
                let name = valid(name)?;
                at_most(rules.len(), 64)?;
                let mut set = Vec::new();
                for rule in rules {
                    set.push((rule.verbs, text(rule.prefix)?, rule.priority));
                }
                self.roles.insert(name, set.clone()) != Some(set)
            }
            AccessChange::DeleteRole { name } => self.roles.remove(*name).is_some(),
            AccessChange::PutPrincipal(new) => {
                let name = valid(new.name)?;
                if name.starts_with(OWN) {
                    return Err(Refusal::InvalidName);
                }
                at_most(new.roles.len(), 16)?;
                let roles = new.roles.iter().map(|role| valid(role)).collect::<Result<_, _>>()?;
                let old = self.principals.get(&name).cloned();
                let Principal { quotas, setters, credentials, .. } =
                    old.clone().unwrap_or_default();
                let record = Principal {
                    enabled: new.enabled,
                    roles,
                    quotas: new.quotas,
                    setters: setters_after((&quotas, setters), &new.quotas, setter),
                    credentials,
                };
                self.principals.insert(name, record.clone());
                old != Some(record)
            }
            AccessChange::DeletePrincipal { name } => self.principals.remove(*name).is_some(),
            AccessChange::PutCredential(new) => {
                let id = valid(new.id)?;
                let name = text(new.name)?;
                let Some(known) = self.principals.get(new.principal) else {
                    return Err(Refusal::PrincipalNotFound);
                };
                let others = known.credentials.iter().filter(|key| key.0 != id).count();
                if others >= 4 {
                    return Err(Refusal::AccessFull { max: 4 });
                }
                let credential = (id, name, new.hash, new.expires_ms);
                if known.credentials.contains(&credential) {
                    return Ok(false);
                }
                self.forget_credential(new.id);
                let known = self.principals.get_mut(new.principal).expect("it was just there");
                known.credentials.push(credential);
                true
            }
            AccessChange::DeleteCredential { id } => self.forget_credential(id),
            AccessChange::PutCertificateRule(new) => {
                let name = valid(new.name)?;
                let rule = (text(new.pattern)?, text(new.principal)?);
                self.certificates.insert(name, rule.clone()) != Some(rule)
            }
            AccessChange::DeleteCertificateRule { name } => {
                self.certificates.remove(*name).is_some()
            }
            AccessChange::PutIssuer(new) => {
                let name = valid(new.issuer)?;
                let (kind, keys) = match new.keys {
                    IssuerKeys::Jwks(keys) => ("jwks", text(keys)?),
                    IssuerKeys::Url(url) => ("url", text(url)?),
                };
                let texts = vec![
                    kind.to_owned(),
                    keys,
                    text(new.audience)?,
                    text(new.claim)?,
                    text(new.prefix)?,
                ];
                self.issuers.insert(name, texts.clone()) != Some(texts)
            }
            AccessChange::DeleteIssuer { issuer } => self.issuers.remove(*issuer).is_some(),
            AccessChange::SetIdentity { enabled } => {
                std::mem::replace(&mut self.enabled, *enabled) != *enabled
            }
            AccessChange::SetDefaultQuotas(quotas) => {
                let old = std::mem::replace(&mut self.defaults, *quotas);
                let setters = std::mem::take(&mut self.default_setters);
                self.default_setters = setters_after((&old, setters), quotas, setter);
                old != *quotas
            }
        })
    }

    fn forget_credential(&mut self, id: &str) -> bool {
        let mut found = false;
        for known in self.principals.values_mut() {
            let before = known.credentials.len();
            known.credentials.retain(|key| key.0 != id);
            found |= known.credentials.len() < before;
        }
        found
    }
}

/// Whether a rule permits a verb with a name.
pub(super) fn permits(rule: &RoleRule, verb: Verb, name: &str) -> bool {
    rule.0.contains(verb) && name.starts_with(&rule.1)
}

/// Who set each quota after a change: of those that have another value than before, the principal that changed them.
fn setters_after(
    (old, mut setters): (&Quotas, Setters),
    new: &Quotas,
    setter: Option<&QuotaSetter>,
) -> Setters {
    for quota in Quota::ALL.into_iter().filter(|quota| old.get(*quota) != new.get(*quota)) {
        setters.remove(&quota);
        if let (Some(_), Some(setter)) = (new.get(quota), setter) {
            setters.insert(quota, setter.clone());
        }
    }
    setters
}

/// Whether a change sets one of the quotas that members count.
pub(super) fn sets_rates(change: &AccessChange<'_>) -> bool {
    let quotas = match change {
        AccessChange::PutPrincipal(new) => new.quotas,
        AccessChange::SetDefaultQuotas(quotas) => *quotas,
        _ => return false,
    };
    let rates = [Quota::Sessions, Quota::Watches, Quota::RequestsPerSecond, Quota::BytesInFlight];
    rates.into_iter().any(|quota| quotas.get(quota).is_some())
}

impl Model {
    /// Remembers the principal of a request, and refuses one that may not run it.
    pub(super) fn admit(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let principal = self.decides(request.principal);
        if self.rules.enabled
            && let Some(verb) = self.rules.missing(principal, &request.command)
        {
            return Err(Refusal::Forbidden { verb });
        }
        if self.rules.enabled
            && let Some((asked, most)) = self.rules.too_urgent(principal, &request.command)
        {
            return Err(match self.level < LEVEL_URGENT_ROLES {
                true => Refusal::Forbidden { verb: Verb::Force },
                false => Refusal::PriorityForbidden { asked, most },
            });
        }
        let owns = self.level >= LEVEL_OWNED && principal != MEMBER && Name::new(principal).is_ok();
        self.owned.caller = if owns { principal.to_owned() } else { String::new() };
        Ok(())
    }

    /// The principal by whose rules a command is judged.
    fn decides<'a>(&self, principal: &'a str) -> &'a str {
        if self.for_whom(principal).is_some() { MEMBER } else { principal }
    }

    /// The caller for which a member acts.
    fn for_whom<'a>(&self, principal: &'a str) -> Option<&'a str> {
        let caller = principal.strip_prefix("tenure/member/").filter(|caller| !caller.is_empty());
        caller.filter(|_| self.level >= LEVEL_RECORDS)
    }

    /// The caller as what an administrator did records it.
    pub(super) fn named(&self, principal: &str) -> Option<Name> {
        let caller = Name::new(self.for_whom(principal).unwrap_or(principal)).ok();
        caller.filter(|_| self.level >= LEVEL_RECORDS)
    }

    /// Writes the caller into the events of an administrative command that has just run.
    pub(super) fn name_caller(&mut self, principal: &str, command: &Command<'_>) {
        let Some(caller) = self.named(principal) else { return };
        for event in &mut self.events {
            let names = match (command, event.cause, &event.subject) {
                (Command::Force { .. }, Cause::Forced | Cause::Cooled | Cause::MinHoldOver, _)
                | (Command::SetLimits(_), Cause::LimitsSet, _)
                | (Command::RaiseLevel { .. }, Cause::LevelRaised, _)
                | (Command::Compact { .. }, Cause::HistoryCompacted, _)
                | (Command::Drain { .. }, Cause::Drained, _)
                | (Command::Undrain { .. }, Cause::Undrained, _)
                | (Command::Resize { .. }, Cause::Resized, _) => true,
                (
                    Command::Revoke { by: Revoker::Other { .. }, .. },
                    Cause::Revoked,
                    Subject::Lease(_),
                ) => true,
                (Command::Put(_), Cause::KeyPut, Subject::Key(key))
                | (Command::Delete { .. }, Cause::KeyDeleted, Subject::Key(key)) => {
                    key.starts_with(OWN)
                }
                _ => false,
            };
            if names {
                event.principal = Some(caller.clone());
            }
        }
    }

    /// Whether the principal may end any lease.
    pub(super) fn may_force_all(&self, principal: &str) -> bool {
        self.rules.may(self.decides(principal), Verb::Force, "")
    }

    /// A refusal without what the principal may not read.
    pub(super) fn blanked(&self, principal: &str, mut refusal: Refusal) -> Refusal {
        let principal = self.decides(principal);
        let reads = |lock: &Name| self.rules.may(principal, Verb::Read, lock);
        match &mut refusal {
            Refusal::Held(held) if !reads(&held.lock) => held.holder = None,
            Refusal::TokenOutdated { lock, holder } if !reads(lock) => *holder = None,
            Refusal::Deadlock { ring } => {
                let first = ring.first().cloned();
                ring.retain(|link| Some(link) == first.as_ref() || reads(&link.lock));
            }
            _ => {}
        }
        refusal
    }

    /// The owner that the principal of the present command is.
    pub(super) fn caller(&self) -> Option<OwnerKey> {
        let name = &self.owned.caller;
        let times = self.owned.revocations.get(name).copied().unwrap_or(0);
        (!name.is_empty()).then(|| (name.clone(), times))
    }

    /// Gives the owner of the present command a number, because it is about to own something.
    pub(super) fn number_caller(&mut self) -> Option<OwnerKey> {
        let caller = self.caller()?;
        if !self.owned.numbers.values().any(|owner| *owner == caller) {
            let last = self.owned.numbers.last_key_value().map_or(0, |(number, _)| *number);
            self.owned.numbers.insert(last + 1, caller.clone());
        }
        Some(caller)
    }

    /// Forgets the owners that have nothing any more.
    pub(super) fn forget_owners(&mut self) {
        let leases = self.leases.values().filter_map(|lease| lease.owner.clone());
        let keys = self.keys.values().filter_map(|key| key.owner.clone());
        let grants = self.locks.values().flat_map(|lock| &lock.grants);
        let over = grants.filter(|grant| grant.state != GrantState::Held);
        let over = over.filter_map(|grant| grant.owner.clone());
        let used: BTreeSet<OwnerKey> = leases.chain(keys).chain(over).collect();
        self.owned.numbers.retain(|_, owner| used.contains(owner));
    }

    pub(super) fn is_own(&self, owner: Option<&OwnerKey>) -> bool {
        !self.rules.enabled || owner.is_none() || owner == self.caller().as_ref()
    }

    /// The live lease that a reference names, if it belongs to the principal of the command.
    pub(super) fn own(&self, lease: LeaseRef, handle_of: HandleOf<'_>) -> Result<LeaseId, Refusal> {
        let id = self.live(lease, handle_of)?;
        let owner = self.leases[&id].owner.as_ref();
        if self.is_own(owner) { Ok(id) } else { Err(Refusal::LeaseNotFound) }
    }

    pub(super) fn is_revoked(&self, lease: LeaseId) -> bool {
        let owner = self.leases.get(&lease).and_then(|lease| lease.owner.as_ref());
        owner.is_some_and(|owner| self.owned.revoked_ms.contains_key(owner))
    }

    /// The leases of an owner, in the order of their creation.
    pub(super) fn leases_of(&self, owner: &OwnerKey) -> Vec<LeaseId> {
        let mut own: Vec<_> =
            self.leases.values().filter(|lease| lease.owner.as_ref() == Some(owner)).collect();
        own.sort_by_key(|lease| lease.created);
        own.into_iter().map(|lease| lease.id).collect()
    }

    /// The revoked owners that still have leases: when each was revoked, its number, its leases.
    pub(super) fn ending(&self) -> Vec<(u64, u64, Vec<LeaseId>)> {
        let mut ending = Vec::new();
        for (number, owner) in &self.owned.numbers {
            let leases = self.leases_of(owner);
            if let Some(since_ms) = self.owned.revoked_ms.get(owner)
                && !leases.is_empty()
            {
                ending.push((*since_ms, u64::from(*number), leases));
            }
        }
        ending
    }

    pub(super) fn set_access(&mut self, principal: &str, change: &AccessChange<'_>) -> Verdict {
        let mut rules = self.rules.clone();
        let caller = Name::new(self.for_whom(principal).unwrap_or(principal)).ok();
        let unix_ms = self.label.map(|label| label.wall.unix_ms);
        let setter = QuotaSetter { principal: caller.clone(), unix_ms };
        let setter = Some(&setter).filter(|_| self.level >= LEVEL_SETTERS);
        let changed = rules.change(change, setter)?;
        self.rules = rules;
        let made = match change {
            AccessChange::Replace(it) => &it.change,
            change => change,
        };
        let revoked = match made {
            AccessChange::DeletePrincipal { name } => self.revoke_principal(name),
            AccessChange::PutPrincipal(new) if !new.enabled => self.revoke_principal(new.name),
            _ => false,
        };
        if changed || revoked {
            let (word, name) = change.summary();
            self.events.push(Event {
                by: caller,
                reason: Some(word.into()),
                value: (!name.is_empty()).then(|| name.as_bytes().into()),
                ..blank(Cause::AccessChanged, Subject::Settings)
            });
        }
        Ok(Answer::AccessSet)
    }

    fn revoke_principal(&mut self, name: &str) -> bool {
        let times = self.owned.revocations.get(name).copied().unwrap_or(0);
        let owner = (name.to_owned(), times);
        if self.leases_of(&owner).is_empty() {
            return false;
        }
        self.owned.revoked_ms.insert(owner, self.clock_ms);
        self.owned.revocations.insert(name.to_owned(), times + 1);
        true
    }

    /// Refuses what would take an owner beyond a quota.
    pub(super) fn within_quota(
        &self,
        owner: Option<&OwnerKey>,
        quota: Quota,
        more: u64,
    ) -> Result<(), Refusal> {
        let Some(owner) = owner else { return Ok(()) };
        let known = self.rules.principals.get(&owner.0);
        let own = known.and_then(|known| Some((known.quotas.get(quota)?, &known.setters)));
        let (bound, set_by, setters) = match (own, self.rules.defaults.get(quota)) {
            (Some((bound, setters)), _) => (bound, QuotaSource::Principal, setters),
            (None, Some(bound)) => (bound, QuotaSource::Default, &self.rules.default_setters),
            (None, None) => return Ok(()),
        };
        let asked = self.used(owner, quota).saturating_add(more);
        if more > 0 && asked > bound {
            let setter = setters.get(&quota).cloned().map(Box::new);
            return Err(Refusal::Quota { quota, set_by, bound, asked, setter });
        }
        Ok(())
    }

    /// How much an owner has.
    pub(super) fn used(&self, owner: &OwnerKey, quota: Quota) -> u64 {
        let leases = self.leases_of(owner);
        let places = self.places.values().filter(|place| leases.contains(&place.lease));
        let places: Vec<_> = places.collect();
        let grants = self.locks.values().flat_map(|lock| &lock.grants);
        // A grant that is over counts until it is gone, whether its lease is there or not.
        let over =
            |grant: &Grant| self.level >= LEVEL_REPAIRED && grant.owner.as_ref() == Some(owner);
        let grants = grants.filter(|grant| match grant.is_held() {
            true => leases.contains(&grant.lease),
            false => over(grant),
        });
        let grants: Vec<_> = grants.collect();
        let keys = self.keys.iter().filter(|(_, key)| key.owner.as_ref() == Some(owner));
        let keys: Vec<_> = keys.collect();
        let used = match quota {
            Quota::Leases => leases.len(),
            Quota::Places => places.len(),
            Quota::Locks => grants.len() + places.iter().map(|place| place.slots()).sum::<usize>(),
            Quota::Keys => keys.len(),
            Quota::Bytes => {
                let of_leases = leases.iter().map(|id| self.leases[id].metadata.len());
                let of_places = places.iter().map(|it| it.metadata.len() * it.slots());
                let of_grants = grants.iter().map(|grant| grant.metadata.len());
                let of_keys = keys.iter().map(|(name, key)| name.len() + key.value.len());
                let records = leases.iter().flat_map(|id| self.leases[id].records.values());
                let records = records.map(|record| 96 + record.names_len());
                let paid = if self.level >= LEVEL_FAIR_RECORDS { records.sum() } else { 0 };
                paid + of_leases.chain(of_places).chain(of_grants).chain(of_keys).sum::<usize>()
            }
            // Members count these, and the state does not.
            Quota::Sessions | Quota::Watches | Quota::RequestsPerSecond | Quota::BytesInFlight => 0,
        };
        used as u64
    }
}
