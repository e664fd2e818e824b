//! Remembers what the machine answered, for use in later commands.
//!
//! Later commands reuse these tokens, leases and handles, so that some commands arrive after what they name has ended.

use fastrand::Rng;
use tenure_core::outcome::{Answer, Effects, LeaseGrant};
use tenure_types::{Handle, LeaseId, PlaceNumber, Revision, Token};

use super::step::{OwnedId, OwnedRequest, SequenceStep, StepCommand};
use crate::observe::ObservedState;

/// How many past items are kept: enough for late commands, and few enough that many commands still name something that
/// exists.
const KEPT: usize = 24;

/// A past grant.
#[derive(Clone, Debug)]
pub(super) struct PastGrant {
    /// The name of the lock.
    pub lock: String,
    /// The token of the grant.
    pub token: Token,
    /// The id of the lease.
    pub lease: LeaseId,
    /// The revision that created the lease.
    pub created: Revision,
}

/// An ask that was granted or queued.
#[derive(Clone, Debug)]
pub(super) struct PastAcquire {
    /// The principal that asked.
    pub principal: String,
    /// The request id.
    pub id: OwnedId,
    /// The lease and its handle.
    pub lease: (LeaseId, Handle),
    /// The place number.
    pub place: PlaceNumber,
}

/// The generator's memory.
#[derive(Default)]
pub(super) struct GeneratorMemory {
    /// Grants, the newest last.
    pub grants: Vec<PastGrant>,
    /// Leases, the newest last.
    pub leases: Vec<(LeaseId, Revision, Handle)>,
    /// Requests worth repeating: those with an id, and asks.
    pub requests: Vec<OwnedRequest>,
    /// Asks, the newest last; an ask that was answered twice appears twice.
    pub asks: Vec<PastAcquire>,
    /// For each lease, the next number of its requests.
    pub seqs: Vec<(LeaseId, Revision, u64)>,
    /// The next key of a request.
    pub next_key: u64,
}

impl GeneratorMemory {
    /// Records the effects of a step.
    pub(super) fn learn(&mut self, step: &SequenceStep, effects: &Effects, after: &ObservedState) {
        if let SequenceStep::Entry { items, .. } = step {
            for item in items {
                if let StepCommand::Request(request) = item {
                    let asks = matches!(request.command, super::step::OwnedCommand::Acquire(_));
                    if request.id != super::step::OwnedId::None || asks {
                        push(&mut self.requests, (**request).clone());
                    }
                }
            }
        }
        self.learn_asks(step, effects);
        for outcome in &effects.outcomes {
            match &outcome.result {
                Ok(Answer::LeaseGranted(lease)) => self.learn_lease(lease),
                Ok(Answer::Acquired(acquired)) => self.learn_lease(&acquired.lease),
                Ok(Answer::Queued(queued)) => self.learn_lease(&queued.lease),
                _ => {}
            }
        }
        for lock in &after.locks {
            for holder in &lock.holders {
                if self.grants.iter().all(|past| past.token != holder.token) {
                    push(
                        &mut self.grants,
                        PastGrant {
                            lock: lock.lock.as_str().to_owned(),
                            token: holder.token,
                            lease: holder.lease,
                            created: holder.lease_created,
                        },
                    );
                }
            }
        }
    }

    fn learn_asks(&mut self, step: &SequenceStep, effects: &Effects) {
        let SequenceStep::Entry { items, .. } = step else { return };
        for (item, outcome) in items.iter().zip(&effects.outcomes) {
            let StepCommand::Request(request) = item else { continue };
            let (lease, place) = match &outcome.result {
                Ok(Answer::Acquired(acquired)) => (&acquired.lease, acquired.place),
                Ok(Answer::Queued(queued)) => (&queued.lease, queued.place),
                _ => continue,
            };
            let ask = PastAcquire {
                principal: request.principal.clone(),
                id: request.id.clone(),
                lease: (lease.id, lease.handle),
                place,
            };
            push(&mut self.asks, ask);
        }
    }

    fn learn_lease(&mut self, lease: &LeaseGrant) {
        let known = (lease.id, lease.created, lease.handle);
        if !self.leases.contains(&known) {
            push(&mut self.leases, known);
        }
    }

    /// The next request number of a lease.
    pub(super) fn next_seq(&mut self, lease: LeaseId, created: Revision) -> u64 {
        let found = self.seqs.iter_mut().find(|(id, since, _)| (*id, *since) == (lease, created));
        if let Some((_, _, next)) = found {
            *next += 1;
            return *next;
        }
        push(&mut self.seqs, (lease, created, 1));
        1
    }

    /// A random past grant.
    pub(super) fn grant(&self, rng: &mut Rng) -> Option<&PastGrant> {
        pick(rng, &self.grants)
    }
}

/// A random element.
pub(super) fn pick<'a, T>(rng: &mut Rng, all: &'a [T]) -> Option<&'a T> {
    if all.is_empty() { None } else { all.get(rng.usize(..all.len())) }
}

fn push<T>(list: &mut Vec<T>, item: T) {
    if list.len() >= KEPT {
        list.remove(0);
    }
    list.push(item);
}
