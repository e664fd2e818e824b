//! Checks that a request takes effect at most once, however often it comes (S7).

use std::collections::BTreeMap;

use tenure_core::request::{Abandon, AskId, Command, Request, RequestId};

use super::handle::LeaseKey;
use super::{CheckResult, Handles, InvariantViolation, ObservedLedger};
use crate::observe::ObservedStep;

/// How long a request key is remembered, by the rules.
const REMEMBERED_MS: u64 = 600_000;

/// The requests that have taken effect.
#[derive(Default)]
pub(super) struct Once {
    seqs: BTreeMap<(LeaseKey, u64), u64>,
    keys: BTreeMap<(String, String), u64>,
}

impl Once {
    /// Counts a command that advanced the revision.
    pub(super) fn command(
        &mut self,
        ledger: &ObservedLedger,
        handles: &Handles,
        request: &Request<'_>,
        moved: bool,
    ) -> CheckResult {
        if let Command::Abandon(abandon) = &request.command {
            self.forget(ledger, handles, request.principal, abandon);
        }
        if !moved {
            return Ok(());
        }
        let clock = ledger.clock;
        match request.id {
            RequestId::None => Ok(()),
            RequestId::Seq { lease, seq, .. } => {
                let Some(lease) = handles.resolve(ledger, lease) else { return Ok(()) };
                match self.seqs.insert((lease, seq), clock) {
                    None => Ok(()),
                    Some(_) => Err(InvariantViolation::new(
                        "S7",
                        format!("request {seq} of {lease:?} ran twice"),
                    )),
                }
            }
            RequestId::Key(key) => {
                let name = (request.principal.to_owned(), key.to_owned());
                match self.keys.insert(name, clock) {
                    Some(first) if clock - first < REMEMBERED_MS => {
                        let detail = format!("key {key:?} of {:?} ran twice", request.principal);
                        Err(InvariantViolation::new("S7", detail))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// Looks for abandoned asks in an entry of which some events are unknown.
    pub(super) fn catch_up(
        &mut self,
        ledger: &ObservedLedger,
        handles: &Handles,
        seen: &ObservedStep<'_>,
    ) {
        for request in seen.requests.iter().flatten() {
            if let Command::Abandon(abandon) = &request.command {
                self.forget(ledger, handles, request.principal, abandon);
            }
        }
    }

    /// Forgets an ask that was taken back: it may run again.
    fn forget(
        &mut self,
        ledger: &ObservedLedger,
        handles: &Handles,
        principal: &str,
        abandon: &Abandon<'_>,
    ) {
        match abandon.ask {
            AskId::None => {}
            AskId::Seq { lease, seq } => {
                if let Some(lease) = handles.resolve(ledger, lease) {
                    self.seqs.remove(&(lease, seq));
                }
            }
            AskId::Key(key) => {
                self.keys.remove(&(principal.to_owned(), key.to_owned()));
            }
        }
    }
}
