//! Executes the commands of holders and waiters on what they have: release, leave, downgrade, update.

use tenure_types::{Limit, Mode, PlaceNumber, Quota, Refusal, Token};

use super::queue::GRANT_BYTES;
use super::{KeepOut, TakeAwayDetails, about, name};
use crate::codec::{EventRef, SubjectRef};
use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::Answer;
use crate::request::{Hold, LeaseRef};
use crate::state::due::DueKind;
use crate::state::record::{Grant, GrantMode, GrantState, IN_LEASE, IN_LOCK};
use crate::state::slab::SlabIndex;

impl Machine {
    pub(super) fn release(&mut self, hold: &Hold<'_>) -> Result<Answer, Refusal> {
        let grant = self.held(hold)?;
        let rest = self.rest_of(grant);
        self.give_back(grant, Cause::Released, rest);
        Ok(Answer::Released)
    }

    pub(super) fn leave(&mut self, lease: LeaseRef, lock: &str) -> Result<Answer, Refusal> {
        self.check_known_name(lock)?;
        let lease = self.own_lease(lease)?;
        let not_waiting = Refusal::NotWaiting { lock: name(lock) };
        let Some(slot) = self.lock_slot(lock) else { return Err(not_waiting) };
        if let Some(place) = self.place_of(lease, slot) {
            self.remove_place(place, Cause::Left);
            return Ok(Answer::Left);
        }
        let grant = self.grant_of(lease, slot).ok_or_else(|| not_waiting.clone())?;
        let place = self.grants.at(grant).place;
        self.grants_of_place(lease, place).map(Answer::AlreadyHeld).ok_or(not_waiting)
    }

    pub(super) fn downgrade(&mut self, hold: &Hold<'_>) -> Result<Answer, Refusal> {
        let slot = self.held(hold)?;
        let grant = self.grants.at(slot);
        if grant.mode != GrantMode::Exclusive {
            return Err(Refusal::NotExclusive { lock: name(hold.lock) });
        }
        if self.tokens_left() == 0 {
            return Err(Refusal::TokensExhausted);
        }
        let token = self.renew_token(slot);
        let revision = self.begin_revision();
        let grant = self.grants.at_mut(slot);
        grant.mode = GrantMode::Shared;
        let lock = grant.lock;
        self.tokens.insert(grant.mode, grant.token, slot);
        self.locks.at_mut(lock).change(revision);
        self.emit_grant(slot, Cause::Downgraded, None, TakeAwayDetails::default());
        self.touch(lock);
        Ok(Answer::Downgraded { token })
    }

    /// Gives a held grant the next token. Its deadlines stay as they are.
    pub(super) fn renew_token(&mut self, slot: SlabIndex) -> Token {
        let grant = self.grants.at(slot);
        let (old, deadlines) = (grant.token, self.deadlines_of(grant));
        let token = self.next_token();
        assert!(old < token || cfg!(mutants), "S2: tokens only grow");
        for (due_ms, kind) in deadlines.into_iter().flatten() {
            self.due.remove(due_ms, kind, old.get());
            self.due.insert(due_ms, kind, token.get(), Some(slot));
        }
        self.grants.at_mut(slot).token = token;
        token
    }

    pub(super) fn update(&mut self, hold: &Hold<'_>, metadata: &[u8]) -> Result<Answer, Refusal> {
        self.check_limit(Limit::MetadataBytes, metadata.len() as u64)?;
        let slot = self.held(hold)?;
        let old = self.grants.at(slot).options.clone();
        let owner = self.lease_of(slot).and_then(|lease| self.leases.at(lease).owner);
        let (new_bytes, old_bytes) = (metadata.len() as u64, old.metadata().len() as u64);
        if new_bytes > old_bytes {
            self.check_quota(self.owner_pays(owner), Quota::Bytes, new_bytes - old_bytes)?;
            self.check_space()?;
        }
        let revision = self.begin_revision();
        let grant = self.grants.at_mut(slot);
        grant.options = old.with_metadata(metadata);
        self.state_bytes += new_bytes;
        self.state_bytes -= old_bytes;
        self.owners.count(owner, |used| used.bytes = used.bytes - old_bytes + new_bytes);
        let (lock, token) = (grant.lock, grant.token);
        let lease = self.leases.at(self.lease_of(slot).expect("a held grant has a lease"));
        let record = self.locks.at_mut(lock);
        let modified = record.modified;
        record.change(revision);
        self.history.emit(
            revision,
            &EventRef {
                lease: Some(lease.id),
                client: Some(lease.client.as_bytes()),
                token: Some(token),
                value: Some(metadata),
                previous: Some((modified, old.metadata())),
                ..EventRef::new(Cause::Updated, SubjectRef::Lock(record.name.as_bytes()))
            },
        );
        Ok(Answer::Updated { version: record.version })
    }

    /// Returns the grant that a live lease holds under exactly this token.
    pub(crate) fn held(&self, hold: &Hold<'_>) -> Result<SlabIndex, Refusal> {
        self.check_known_name(hold.lock)?;
        let lease = self.own_lease(hold.lease)?;
        self.held_by(lease, hold)
    }

    /// The grant in force with this lease and the lock and token of the hold.
    pub(crate) fn held_by(&self, lease: SlabIndex, hold: &Hold<'_>) -> Result<SlabIndex, Refusal> {
        let found = |lock| match mutant!("release_without_token_check") {
            true => self.grant_of(lease, lock),
            false => self.grant_with_token(lock, hold.token),
        };
        self.lock_slot(hold.lock)
            .and_then(found)
            .filter(|&grant| self.lease_of(grant) == Some(lease))
            .ok_or_else(|| about(hold.lock, |lock| Refusal::NotHolder { lock }))
    }

    /// The grant of a lock with this token, whatever became of it.
    pub(super) fn grant_with_token(&self, lock: SlabIndex, token: Token) -> Option<SlabIndex> {
        let first = self.locks.at(lock).grants.first?;
        let grant = self.grants.at(first);
        let (found, grant) = match grant.mode {
            GrantMode::Exclusive => (first, grant),
            GrantMode::Shared | GrantMode::Slot(_) => {
                let found = self.tokens.find(token)?;
                (found, self.grants.get(found)?)
            }
        };
        (grant.lock == lock && grant.token == token).then_some(found)
    }

    /// Ends a grant at the request of its holder. The lock rests until the given time, if there is one.
    pub(super) fn give_back(&mut self, slot: SlabIndex, cause: Cause, rest: Option<KeepOut>) {
        let left_ms = rest.map(|rest| rest.until_ms - self.clock_ms);
        self.emit_grant(slot, cause, left_ms, TakeAwayDetails::default());
        let lease = self.detach(slot);
        self.keep_out(slot, lease, rest);
    }

    /// Removes a grant from the list of its lease, and returns the lease.
    pub(super) fn detach(&mut self, slot: SlabIndex) -> SlabIndex {
        let grant = self.grants.at(slot);
        let GrantState::Held(lease) = grant.state else {
            unreachable!("only a held grant is detached")
        };
        if !grant.options.is_plain() {
            for (due_ms, kind) in self.deadlines_of(grant).into_iter().flatten() {
                self.due.remove(due_ms, kind, grant.token.get());
            }
            if grant.is_election() {
                self.now.vacant.push(grant.lock);
            }
        }
        let (lock, bytes) = (grant.lock, grant.options.metadata().len() as u64);
        let may_upgrade = grant.mode == GrantMode::Shared;
        let record = self.leases.at_mut(lease);
        record.grants.remove::<IN_LEASE, _>(&mut self.grants, slot);
        self.owners.count(record.owner, |used| {
            used.locks -= 1;
            used.bytes -= bytes;
        });
        if may_upgrade {
            self.end_upgrade(lease, lock);
        }
        lease
    }

    /// Removes a grant that is in no lease's list any more, and marks its lock as touched.
    pub(super) fn remove_grant(&mut self, slot: SlabIndex) {
        let grant = self.grants.at(slot);
        let lock = grant.lock;
        self.tokens.remove(grant);
        self.state_bytes -= grant.weight();
        if let GrantState::Over(over) = &grant.state {
            let kept = self.kept_by_ended(grant);
            self.owners.count(over.owner, |used| used.remove_ended(kept));
        }
        self.locks.at_mut(lock).grants.remove::<IN_LOCK, _>(&mut self.grants, slot);
        self.grants.free(slot);
        self.touch(lock);
    }

    /// Emits an event about a grant, which counts as a change of its lock.
    pub(super) fn emit_grant(
        &mut self,
        slot: SlabIndex,
        cause: Cause,
        left_ms: Option<u64>,
        said: TakeAwayDetails<'_>,
    ) {
        self.emit_grant_to(slot, cause, left_ms, (said, None));
    }

    /// The same, with the place to which the grant goes.
    pub(super) fn emit_grant_to(
        &mut self,
        slot: SlabIndex,
        cause: Cause,
        left_ms: Option<u64>,
        (said, place): (TakeAwayDetails<'_>, Option<PlaceNumber>),
    ) {
        let revision = self.begin_revision();
        let grant = self.grants.at(slot);
        let (lease, client, life) = match &grant.state {
            GrantState::Held(lease) => {
                let lease = self.leases.at(*lease);
                let ends = cause != Cause::Downgraded;
                (lease.id, &lease.client, if ends { self.lease_life(lease) } else { None })
            }
            GrantState::Over(over) => (over.lease, &over.client, None),
        };
        let lock = self.locks.at_mut(grant.lock);
        if cause != Cause::Downgraded {
            lock.change(revision);
        }
        self.history.emit_inlined(
            revision,
            &EventRef {
                ttl_ms: life.map(|life| life.ttl_ms),
                renewed_ms: life.map(|life| life.renewed_ms),
                lease: Some(lease),
                client: Some(client.as_bytes()),
                token: Some(grant.token),
                mode: Some(grant.mode.asked(lock.slots)),
                slot: grant.mode.slot(),
                place,
                left_ms,
                by: said.by(),
                reason: said.reason(),
                principal: said.principal(),
                ..EventRef::new(cause, SubjectRef::Lock(lock.name.as_bytes()))
            },
        );
    }

    /// The lease that holds a grant.
    pub(crate) fn lease_of(&self, grant: SlabIndex) -> Option<SlabIndex> {
        match self.grants.at(grant).state {
            GrantState::Held(lease) => Some(lease),
            GrantState::Over(_) => None,
        }
    }

    /// When a held grant is taken away, for each reason for which that is due.
    pub(crate) fn deadlines_of(&self, grant: &Grant) -> [Option<(u64, DueKind)>; 2] {
        [
            self.max_hold_deadline(grant).map(|due_ms| (due_ms, DueKind::MaxHold)),
            self.progress_deadline(grant).map(|due_ms| (due_ms, DueKind::Progress)),
        ]
    }

    /// Enters when a new grant is taken away.
    #[inline(never)]
    pub(super) fn add_deadlines(&mut self, slot: SlabIndex) {
        let grant = self.grants.at(slot);
        let token = grant.token.get();
        for (due_ms, kind) in self.deadlines_of(grant).into_iter().flatten() {
            self.due.insert(due_ms, kind, token, Some(slot));
        }
    }

    /// When a held grant is taken away because it reached its longest hold.
    pub(crate) fn max_hold_deadline(&self, grant: &Grant) -> Option<u64> {
        let GrantState::Held(lease) = grant.state else { return None };
        let max_hold_ms = grant.options.max_hold_ms()?;
        let ttl_ms = u64::from(self.leases.at(lease).ttl_ms);
        Some(super::queue::max_hold_due(grant.since_ms, max_hold_ms, ttl_ms))
    }

    /// Whether a live lease of the principal of the command holds the lock under this token.
    pub(super) fn is_guarded(&self, lock: &str, token: tenure_types::Token) -> bool {
        let Some(lock) = self.lock_slot(lock) else { return false };
        let found = match mutant!("guard_ignores_token") {
            true => self.locks.at(lock).grants.first,
            false => self.grant_with_token(lock, token),
        };
        let holder = found.and_then(|grant| self.lease_of(grant));
        holder.is_some_and(|it| self.is_live(it) && self.is_own(self.leases.at(it).owner))
    }
}

impl Grant {
    /// The grant's share of the weight of the state.
    pub(crate) fn weight(&self) -> u64 {
        GRANT_BYTES + self.options.metadata().len() as u64
    }

    /// The mode that was requested.
    pub(crate) fn asked_mode(&self, slots: Option<core::num::NonZeroU32>) -> Mode {
        self.mode.asked(slots)
    }
}
