//! Records the lease that each handle was given to, and checks that no handle is given to two leases (S5).

use std::collections::BTreeMap;

use tenure_core::outcome::{Answer, Effects, LeaseGrant};
use tenure_core::request::LeaseRef;
use tenure_types::{Handle, LeaseId, Revision};

use super::{CheckResult, InvariantViolation, ObservedLedger};
use crate::observe::ObservedState;

/// The identity of a lease: its id and the revision that created it.
pub(super) type LeaseKey = (LeaseId, Revision);

/// The handles given so far.
#[derive(Default)]
pub struct Handles {
    leases: BTreeMap<Handle, LeaseKey>,
    handles: BTreeMap<LeaseKey, Handle>,
}

impl Handles {
    /// Records the handles in answers. The caller must do this before it asks anything about the same entry.
    pub fn learn(&mut self, effects: &Effects) -> CheckResult {
        for outcome in &effects.outcomes {
            match &outcome.result {
                Ok(Answer::LeaseGranted(lease)) => self.learn_grant(lease)?,
                Ok(Answer::Acquired(acquired)) => self.learn_grant(&acquired.lease)?,
                Ok(Answer::Queued(queued)) => self.learn_grant(&queued.lease)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Records the handles in views.
    pub fn learn_view(&mut self, view: &ObservedState) -> CheckResult {
        for lease in &view.leases {
            self.learn_one((lease.id, lease.created), lease.handle)?;
        }
        Ok(())
    }

    /// The lease that a handle was given to.
    pub fn lease_of(&self, handle: Handle) -> Option<LeaseKey> {
        self.leases.get(&handle).copied()
    }

    /// The lease that a command names. A handle names the lease that it was given to, an id names the present lease.
    pub fn resolve(&self, ledger: &ObservedLedger, reference: LeaseRef) -> Option<LeaseKey> {
        match reference {
            LeaseRef::Handle(handle) => self.lease_of(handle),
            LeaseRef::Id(id) => ledger.leases.get(&id).map(|lease| (id, lease.created)),
        }
    }

    fn learn_grant(&mut self, lease: &LeaseGrant) -> CheckResult {
        self.learn_one((lease.id, lease.created), lease.handle)
    }

    fn learn_one(&mut self, lease: LeaseKey, handle: Handle) -> CheckResult {
        let before = *self.leases.entry(handle).or_insert(lease);
        let other = *self.handles.entry(lease).or_insert(handle);
        if before != lease || other != handle {
            let detail = format!("{handle:?} was given to {before:?} and to {lease:?} ({other:?})");
            return Err(InvariantViolation::new("S5", detail));
        }
        Ok(())
    }
}
