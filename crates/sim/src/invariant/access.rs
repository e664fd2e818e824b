//! Checks that only known principals act, with priorities that their roles permit (A1), each on its own leases (A2),
//! and none after it was revoked (A3).

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::access::AccessChange;
use tenure_core::event::{Cause, Event, Subject};
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::{
    Acquire, AskLease, Command, LeaseRef, Purpose, Request, RequestId, Revoker,
};
use tenure_types::{Name, Refusal, Verb, VerbSet};

use super::handle::LeaseKey;
use super::{CheckResult, Handles, InvariantViolation, ObservedLedger};
use crate::observe::{ObservedCommand, ObservedState};

/// The principal of the members.
const MEMBER: &str = "tenure/member";

/// The level from which on leases have owners.
const LEVEL_OWNED: u16 = 3;

/// The level from which on a member can act for a caller, whose name follows that of the member.
const LEVEL_RECORDS: u16 = 4;

/// The principal by whose rules a command is judged.
fn judged(principal: &str, level: u16) -> &str {
    let acts_for =
        principal.strip_prefix("tenure/member/").is_some_and(|caller| !caller.is_empty());
    if acts_for && level >= LEVEL_RECORDS { MEMBER } else { principal }
}

/// What events and requests tell of principals.
#[derive(Default)]
pub(super) struct AccessLedger {
    enabled: bool,
    /// The principals whose commands are accepted.
    active: BTreeSet<String>,
    /// The verbs, the prefix and the priority of every rule of each role.
    roles: BTreeMap<String, Vec<(VerbSet, String, u8)>>,
    /// The roles of each principal.
    roles_of: BTreeMap<String, Vec<String>>,
    owners: BTreeMap<LeaseKey, String>,
    revoked: BTreeSet<LeaseKey>,
    /// Whether events were lost, after which nothing of this is known for certain.
    doubtful: bool,
}

impl AccessLedger {
    /// Records that events were lost.
    pub(super) fn catch_up(&mut self) {
        self.doubtful = true;
    }

    /// Checks a command before its events.
    pub(super) fn before_command(
        &self,
        ledger: &ObservedLedger,
        handles: &Handles,
        request: &Request<'_>,
        outcome: &Outcome,
        moved: bool,
    ) -> CheckResult {
        if !self.enabled || self.doubtful {
            return Ok(());
        }
        let principal = judged(request.principal, ledger.level);
        let refused = matches!(
            outcome.result,
            Err(Refusal::Forbidden { .. } | Refusal::PriorityForbidden { .. } | Refusal::Malformed)
        );
        if !refused && principal != MEMBER && !self.active.contains(principal) {
            let detail = format!("{principal:?} is unknown and was answered {outcome:?}");
            return Err(InvariantViolation::new("A1", detail));
        }
        if let Command::Acquire(acquire) = &request.command
            && !refused
            && !self.may_be_so_urgent(principal, acquire)
        {
            let detail = format!("no role of {principal:?} permits the priority: {request:?}");
            return Err(InvariantViolation::new("A1", detail));
        }
        // A repeated answer may be older than the lease that has this number now.
        let repeated = request.id != RequestId::None && !moved;
        let Ok(answer) = outcome.result.as_ref() else { return Ok(()) };
        if repeated && !matches!(answer, Answer::Renewed(_)) {
            return Ok(());
        }
        for lease in acted_on(&request.command, answer) {
            let Some(key) = handles.resolve(ledger, lease) else { continue };
            if !self.may_use(principal, key) {
                let invariant = if self.revoked.contains(&key) { "A3" } else { "A2" };
                let owner = self.owners.get(&key);
                let detail = format!("{principal:?} acts on {key:?} of {owner:?}: {request:?}");
                return Err(InvariantViolation::new(invariant, detail));
            }
        }
        Ok(())
    }

    /// Checks an event, and records what it tells.
    pub(super) fn event(
        &mut self,
        ledger: &ObservedLedger,
        part: &ObservedCommand<'_>,
        event: &Event,
    ) -> CheckResult {
        let principal =
            judged(part.command.map_or("", |(request, _)| request.principal), ledger.level);
        match (&event.subject, event.cause) {
            (Subject::Lease(id), Cause::LeaseGranted) => {
                let owns = ledger.level >= LEVEL_OWNED && principal != MEMBER;
                if owns && Name::new(principal).is_ok() {
                    self.owners.insert((*id, part.revision), principal.to_owned());
                }
            }
            (Subject::Lock(_), Cause::Granted) => {
                let known = event.lease.and_then(|id| Some((id, ledger.leases.get(&id)?.created)));
                if known.is_some_and(|key| self.revoked.contains(&key)) && !self.doubtful {
                    let detail = format!("granted to a revoked principal: {event:?}");
                    return Err(InvariantViolation::new("A3", detail));
                }
            }
            (Subject::Settings, Cause::AccessChanged) => {
                self.changed(event);
                if let Some((Request { command: Command::SetAccess(change), .. }, _)) = part.command
                {
                    self.learn(change);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn changed(&mut self, event: &Event) {
        let value = event.value.as_deref().unwrap_or_default();
        let name = String::from_utf8_lossy(value).into_owned();
        match event.reason.as_deref() {
            Some("identity_enabled") => self.enabled = true,
            Some("identity_disabled") => self.enabled = false,
            Some("principal_put") => {
                self.active.insert(name);
            }
            Some("principal_disabled" | "principal_deleted") => {
                self.active.remove(&name);
                let own = self.owners.iter().filter(|(_, owner)| **owner == name);
                self.revoked.extend(own.map(|(key, _)| *key));
            }
            _ => {}
        }
    }

    /// Records the roles that a change gives.
    fn learn(&mut self, change: &AccessChange<'_>) {
        match change {
            AccessChange::PutRole { name, rules } => {
                let rules = rules.iter().map(|it| (it.verbs, it.prefix.to_owned(), it.priority));
                self.roles.insert((*name).to_owned(), rules.collect());
            }
            AccessChange::DeleteRole { name } => {
                self.roles.remove(*name);
            }
            AccessChange::PutPrincipal(new) => {
                let roles = new.roles.iter().map(|role| (*role).to_owned()).collect();
                self.roles_of.insert(new.name.to_owned(), roles);
            }
            AccessChange::DeletePrincipal { name } => {
                self.roles_of.remove(*name);
            }
            AccessChange::Replace(it) => self.learn(&it.change),
            _ => {}
        }
    }

    /// Whether the roles of the principal permit the priority of the request for each of its locks: with the verb of
    /// the request in a rule that permits this priority, or with the verb `force`.
    fn may_be_so_urgent(&self, principal: &str, acquire: &Acquire<'_>) -> bool {
        let roles = self.roles_of.get(principal).into_iter().flatten();
        let rules: Vec<_> = roles.filter_map(|role| self.roles.get(role)).flatten().collect();
        let verb = match acquire.purpose {
            Purpose::Lock => Verb::Acquire,
            Purpose::Election => Verb::Elect,
        };
        let permits = |name: &str| {
            rules.iter().any(|(verbs, prefix, most)| {
                let enough = verbs.contains(verb) && acquire.priority <= *most;
                name.starts_with(prefix.as_str()) && (enough || verbs.contains(Verb::Force))
            })
        };
        acquire.priority == 0 || acquire.locks.as_slice().iter().all(|ask| permits(ask.lock))
    }

    /// Checks that no lease of a revoked principal is shown as live.
    pub(super) fn views(&self, after: &ObservedState) -> CheckResult {
        let shown = after.leases.iter().find(|it| self.revoked.contains(&(it.id, it.created)));
        match shown.filter(|_| !self.doubtful) {
            None => Ok(()),
            Some(lease) => {
                let detail = format!("the principal of {lease:?} was revoked");
                Err(InvariantViolation::new("A3", detail))
            }
        }
    }

    /// Whether a principal can renew this lease, as far as principals decide it. `None` if that is not known.
    pub(super) fn renews(&self, principal: &str, lease: LeaseKey) -> Option<bool> {
        if self.doubtful {
            return None;
        }
        Some(!self.revoked.contains(&lease) && (!self.enabled || self.may_use(principal, lease)))
    }

    fn may_use(&self, principal: &str, lease: LeaseKey) -> bool {
        let own = self.owners.get(&lease).is_none_or(|owner| owner == principal);
        own && !self.revoked.contains(&lease)
    }
}

/// The leases that a command acted on in the name of their client.
fn acted_on(command: &Command<'_>, answer: &Answer) -> Vec<LeaseRef> {
    match (command, answer) {
        (Command::Renew(leases), Answer::Renewed(renewals)) => {
            let renewed = leases.iter().zip(renewals).filter(|(_, renewal)| renewal.is_some());
            renewed.map(|(lease, _)| *lease).collect()
        }
        (Command::Revoke { lease, by: Revoker::Holder } | Command::Leave { lease, .. }, _) => {
            vec![*lease]
        }
        (
            Command::Release(hold)
            | Command::Downgrade(hold)
            | Command::Update { hold, .. }
            | Command::Progress { hold, .. }
            | Command::HandOn { hold, .. },
            _,
        ) => vec![hold.lease],
        (Command::Upgrade(upgrade), _) => vec![upgrade.lease],
        (Command::Acquire(acquire), _) => match acquire.lease {
            AskLease::Existing(lease) => vec![lease],
            AskLease::New(_) => Vec::new(),
        },
        (Command::Put(put), _) => put.lease.into_iter().collect(),
        _ => Vec::new(),
    }
}
