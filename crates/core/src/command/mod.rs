//! Executes commands: one file per command, or per group of commands that share their rules.
//!
//! A hand-over executes about as much code as the processor's instruction cache holds. So what acquire and release
//! requests rarely need is marked `#[inline(never)]`, and also `#[cold]` if it is a refusal or an exception: its code
//! would lie between the code that they execute (docs/internals/speed.md).

mod abandon;
mod access;
mod acquire;
mod any;
mod deadlock;
mod drain;
mod end_due;
mod exactly_once;
mod hand_on;
mod hold;
mod key;
mod lease;
mod owner;
mod place;
mod pool;
mod priority;
mod progress;
mod queue;
mod reopen;
mod resize;
mod settings;
mod slots;
mod standing;
mod supersede;
mod take_away;
mod upgrade;

use tenure_types::{InvalidName, Limit, Name, Refusal};

use crate::codec::decode_with_command;
use crate::machine::Machine;
use crate::outcome::{Answer, Outcome};
use crate::request::{Command, LeaseRef, Request};
use crate::state::record::Lease;
use crate::state::slab::SlabIndex;

pub(crate) use exactly_once::SEQ_WINDOW;
pub(crate) use pool::PoolKey;
pub(crate) use reopen::Reopening;
pub(crate) use supersede::GroupKey;
use take_away::{KeepOut, TakeAwayDetails};

/// What records weigh, without names and metadata.
pub(crate) mod weight {
    pub(crate) use super::queue::WAIT_BYTES;
}

/// The most settings in one command.
const SETTINGS_MAX: usize = 32;

impl Machine {
    /// Executes one encoded request.
    pub(crate) fn execute(&mut self, bytes: &[u8]) -> Outcome {
        // Borrowed and not moved: a request has some 300 bytes.
        let outcome = match &decode_with_command(bytes) {
            // The same refusal as from a build that does not know the command: it must change nothing.
            Ok((request, _)) if self.level < request.command.level() => Err(Refusal::Malformed),
            Ok((request, command)) => {
                self.set_caller(request.principal);
                // A request of a stranger is not remembered, or strangers could fill the memory of requests.
                self.authorise(request).and_then(|()| self.execute_once(request, command))
            }
            Err(_) => Err(Refusal::Malformed),
        };
        outcome.unwrap_or_else(|refusal| self.dated(Err(refusal)))
    }

    /// Builds an outcome with the present revision.
    fn dated(&self, result: Result<Answer, Refusal>) -> Outcome {
        Outcome { revision: self.revision, result }
    }

    /// Executes a command without looking for an earlier execution.
    fn run(&mut self, request: &Request<'_>) -> Result<Answer, Refusal> {
        let result = match &request.command {
            Command::GrantLease(lease) => self.grant_lease(lease),
            Command::Renew(leases) => self.renew(leases),
            Command::Revoke { lease, by } => self.revoke(request.principal, *lease, *by),
            Command::Acquire(acquire) => self.acquire(acquire),
            Command::Release(hold) => self.release(hold),
            Command::Leave { lease, lock } => self.leave(*lease, lock),
            Command::Downgrade(hold) => self.downgrade(hold),
            Command::Update { hold, metadata } => self.update(hold, metadata),
            Command::Force { lock, token, by, reason, urgency } => {
                let principal = self.recorded(request.principal);
                self.force(lock, *token, TakeAwayDetails { by, reason, principal }, *urgency)
            }
            Command::Stopped { lease, created, lock, token } => {
                self.stopped(*lease, *created, lock, *token)
            }
            Command::Put(put) => self.put(request.principal, put),
            Command::Delete { key, expect, guard } => {
                self.delete(request.principal, key, *expect, guard.as_ref())
            }
            Command::SetLimits(limits) => self.set_limits(request.principal, limits),
            Command::Compact { keep } => self.compact(request.principal, *keep),
            Command::RaiseLevel { level } => self.raise_level(request.principal, *level),
            Command::Abandon(abandon) => Ok(self.abandon(request.principal, abandon)),
            Command::SetAccess(change) => self.set_access(request.principal, change),
            Command::Drain { prefix, by, reason } => {
                let principal = self.recorded(request.principal);
                self.drain(prefix, TakeAwayDetails { by, reason, principal })
            }
            Command::Progress { hold, number } => self.progress(hold, *number),
            Command::Upgrade(upgrade) => self.upgrade(upgrade),
            Command::HandOn { hold, to } => self.hand_on(hold, *to),
            Command::Resize { lock, slots, by } => {
                let principal = self.recorded(request.principal);
                self.resize(lock, *slots, TakeAwayDetails { by, reason: "", principal })
            }
            Command::Undrain { prefix, by } => {
                let principal = self.recorded(request.principal);
                self.undrain(prefix, TakeAwayDetails { by, reason: "", principal })
            }
        };
        self.finish();
        result.map_err(|refusal| self.redact(request.principal, refusal))
    }

    /// Returns the live lease that a command names.
    pub(crate) fn live_lease(&self, lease: LeaseRef) -> Result<SlabIndex, Refusal> {
        self.find_lease(lease).map(|(slot, _)| slot).ok_or(Refusal::LeaseNotFound)
    }

    /// The live lease that a command names, with its record.
    fn find_lease(&self, lease: LeaseRef) -> Option<(SlabIndex, &Lease)> {
        let (slot, record) = match lease {
            LeaseRef::Id(id) => {
                let slot = *self.leases_by_id.get(&id)?;
                (slot, self.leases.at(slot))
            }
            LeaseRef::Handle(handle) => {
                let slot = SlabIndex::from_number(handle.slot)?;
                let record = self.leases.get(slot).filter(|lease| {
                    lease.generation == handle.generation || mutant!("handle_ignores_generation")
                });
                (slot, record?)
            }
        };
        self.lives(record).then_some((slot, record))
    }

    /// Returns the live lease that a command names, if the principal of the command owns it. The lease of another
    /// principal is refused like one that does not exist.
    pub(crate) fn own_lease(&self, lease: LeaseRef) -> Result<SlabIndex, Refusal> {
        let found = self.find_lease(lease).filter(|(_, lease)| self.is_own(lease.owner));
        found.map(|(slot, _)| slot).ok_or(Refusal::LeaseNotFound)
    }

    /// Whether a lease has not reached its deadline and its principal was not revoked.
    pub(crate) fn is_live(&self, lease: SlabIndex) -> bool {
        self.lives(self.leases.at(lease))
    }

    fn lives(&self, lease: &Lease) -> bool {
        lease.deadline_ms > self.clock_ms && !self.owners.is_revoked(lease.owner)
    }

    /// The lock of this name, if it exists.
    pub(crate) fn lock_slot(&self, lock: &str) -> Option<SlabIndex> {
        self.names.find(&self.locks, lock.as_bytes())
    }

    /// Refuses a name that is not valid for a new object.
    fn check_name(&self, name: &str) -> Result<(), Refusal> {
        self.check_limit(Limit::NameBytes, name.len() as u64)?;
        self.check_known_name(name)
    }

    /// Refuses text that cannot be the name of an existing object. An object that was named while longer names were
    /// allowed can still be released, taken away and deleted.
    pub(crate) fn check_known_name(&self, name: &str) -> Result<(), Refusal> {
        let (limit, asked) = (Limit::NameBytes, name.len() as u64);
        match Name::check(name) {
            Ok(()) => Ok(()),
            Err(InvalidName::TooLong) => Err(over_limit(limit, self.limits.get(limit), asked)),
            Err(InvalidName::Empty | InvalidName::Control) => Err(Refusal::InvalidName),
        }
    }

    /// Refuses a value above a limit.
    fn check_limit(&self, limit: Limit, asked: u64) -> Result<(), Refusal> {
        let bound = self.limits.get(limit);
        if asked > bound { Err(over_limit(limit, bound, asked)) } else { Ok(()) }
    }

    /// Refuses growth when the state is full. Releases and renewals are never refused.
    fn check_space(&self) -> Result<(), Refusal> {
        let bound = self.limits.get(Limit::StateBytes);
        let asked = self.state_bytes;
        if asked >= bound {
            return Err(over_limit(Limit::StateBytes, bound, asked));
        }
        Ok(())
    }
}

/// The refusal of more than a limit allows.
#[cold]
#[inline(never)]
fn over_limit(limit: Limit, bound: u64, asked: u64) -> Refusal {
    Refusal::Limit { limit, bound, asked }
}

/// A refusal that names a lock.
#[cold]
#[inline(never)]
fn about(lock: &str, refusal: impl FnOnce(Name) -> Refusal) -> Refusal {
    refusal(name(lock))
}

/// Converts text that was checked before into a name.
fn name(text: &str) -> Name {
    Name::from_checked(text)
}
