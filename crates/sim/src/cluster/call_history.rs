//! Knows which grants callers without a session were told of, and which were taken back (N11).

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::event::{Cause, Event};
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::{AskLease, Command, LeaseRef, Request, RequestId};
use tenure_types::{LeaseId, Revision};

use super::caller::KEY;
use super::oracle::ensure;
use crate::invariant::CheckResult;

/// The level from which on the machine counts how often a place or a grant was asked for.
const COUNTED_LEVEL: u16 = 2;

/// The acquires of callers without a session, as the log has them.
#[derive(Default)]
pub(super) struct CallHistory {
    /// How often an acquire of a caller's lease was applied and got a grant or a place.
    applied: BTreeMap<LeaseId, u64>,
    /// The leases of which the machine did not count such an acquire.
    uncounted: BTreeSet<LeaseId>,
    /// Tokens that a caller was told of and has not given up.
    told: BTreeSet<u64>,
    /// Tokens that were taken back.
    taken_back: BTreeSet<u64>,
    /// Whether the machine counts the acquires of the entry at hand. What an uncounted one got is not taken back.
    counts: bool,
    /// The revisions of the entry at hand that took something back.
    revisions: BTreeSet<Revision>,
}

impl CallHistory {
    /// An entry is about to be applied at this level.
    pub(super) fn begin_entry(&mut self, level: u16) {
        self.counts = level >= COUNTED_LEVEL;
    }

    /// A command is applied.
    pub(super) fn applied(&mut self, request: &Request<'_>, outcome: &Outcome) {
        match (&request.command, request.id, &outcome.result) {
            (
                Command::Acquire(acquire),
                RequestId::Key(key),
                Ok(Answer::Acquired(_) | Answer::Queued(_)),
            ) if key.starts_with(KEY) => {
                if let AskLease::Existing(LeaseRef::Id(lease)) = acquire.lease {
                    *self.applied.entry(lease).or_default() += 1;
                    if !self.counts {
                        self.uncounted.insert(lease);
                    }
                }
            }
            (Command::Abandon(_), _, Ok(Answer::Abandoned { released: true })) => {
                self.revisions.insert(outcome.revision);
            }
            _ => {}
        }
    }

    /// N11: an event of the entry at hand takes nothing back that a caller was told of.
    pub(super) fn happened(&mut self, revision: Revision, event: &Event) -> CheckResult {
        if !self.revisions.contains(&revision) || event.cause != Cause::Released {
            return Ok(());
        }
        let Some(token) = event.token.map(tenure_types::Token::get) else { return Ok(()) };
        self.taken_back.insert(token);
        ensure(!self.told.contains(&token), "N11", || {
            format!("revision {revision} takes back token {token}, which a caller was told of")
        })
    }

    /// The entry at hand is over.
    pub(super) fn end_entry(&mut self) {
        self.revisions.clear();
    }

    /// N11: a caller is told of a grant, which was not taken back before.
    pub(super) fn tell(&mut self, token: u64) -> CheckResult {
        self.told.insert(token);
        ensure(!self.taken_back.contains(&token), "N11", || {
            format!("a caller is told of token {token}, which was taken back")
        })
    }

    /// A caller gives up what it was told of.
    pub(super) fn give_up(&mut self, token: u64) {
        self.told.remove(&token);
    }

    /// Whether the machine has applied and counted so many acquires of this lease that got a grant or a place.
    pub(super) fn has_counted(&self, lease: LeaseId, acquires: u64) -> bool {
        let applied = self.applied.get(&lease).copied().unwrap_or(0);
        applied == acquires && !self.uncounted.contains(&lease)
    }
}
