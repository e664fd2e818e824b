//! Checks that only known principals act (A1), each on its own leases (A2), and none after it was revoked (A3).

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::event::{Cause, Event, Subject};
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::{AskLease, Command, LeaseRef, Request, RequestId, Revoker};
use tenure_types::{Name, Refusal};

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
        let refused = matches!(outcome.result, Err(Refusal::Forbidden { .. } | Refusal::Malformed));
        if !refused && principal != MEMBER && !self.active.contains(principal) {
            let detail = format!("{principal:?} is unknown and was answered {outcome:?}");
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
            (Subject::Settings, Cause::AccessChanged) => self.changed(event),
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
