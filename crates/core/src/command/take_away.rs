//! Takes locks away from their holders and keeps other leases out during cooling, lock-delay and min hold.

use alloc::boxed::Box;
use tenure_types::{Holder, HolderState, LeaseId, Limit, Refusal, Revision, Token};

use super::name;
use crate::event::{Cause, FORCED_NOW, HOLDER_STOPPED};
use crate::machine::Machine;
use crate::outcome::{Answer, Notice, TakenBy};
use crate::request::{LEVEL_RECORDS, Urgency};
use crate::state::due::CLOCK_MAX;
use crate::state::record::{EndedGrant, Grant, GrantPhase, GrantState, IN_LOCK};
use crate::state::slab::SlabIndex;

/// The caller's name and reason for taking something away, and its principal; empty if not given or not recorded.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct TakeAwayDetails<'a> {
    pub(super) by: &'a str,
    pub(super) reason: &'a str,
    pub(super) principal: &'a str,
}

/// Why and until when a grant that has ended keeps other leases out.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepOut {
    phase: GrantPhase,
    pub(super) until_ms: u64,
}

impl Machine {
    pub(super) fn force(
        &mut self,
        lock: &str,
        token: Token,
        said: TakeAwayDetails<'_>,
        urgency: Urgency,
    ) -> Result<Answer, Refusal> {
        self.check_known_name(lock)?;
        self.check_said(said)?;
        let outdated = |machine: &Self, slot: Option<SlabIndex>| Refusal::TokenOutdated {
            lock: name(lock),
            holder: slot.and_then(|slot| machine.first_holder(slot)).map(Box::new),
        };
        let Some(slot) = self.lock_slot(lock) else { return Err(outdated(self, None)) };
        let found = self
            .grant_with_token(slot, token)
            .filter(|&grant| self.grants.at(grant).phase() != Some(GrantPhase::Delayed));
        let Some(grant) = found else { return Err(outdated(self, Some(slot))) };
        let left_ms = match (self.grants.at(grant).phase(), urgency) {
            (None, _) => self.take_away(grant, Cause::Forced, said, urgency),
            // There is no holder to wait for.
            (Some(GrantPhase::Resting), _) => {
                self.min_hold_over(grant, said.or_reason(FORCED_NOW));
                None
            }
            (Some(_), Urgency::Now) => self.cooled(grant, said.or_reason(FORCED_NOW)),
            (Some(_), Urgency::Cooling) => Some(self.left_ms(grant)),
        };
        Ok(Answer::Forced { left_ms: left_ms.unwrap_or(0) })
    }

    pub(super) fn stopped(
        &mut self,
        lease: LeaseId,
        created: Revision,
        lock: &str,
        token: Token,
    ) -> Result<Answer, Refusal> {
        self.check_known_name(lock)?;
        let cools = |grant: &Grant| match &grant.state {
            GrantState::Over(over) => {
                over.phase == GrantPhase::Cooling
                    && (over.lease, over.created) == (lease, created)
                    && self.is_own(over.owner)
            }
            GrantState::Held(_) => false,
        };
        let found = self.lock_slot(lock).and_then(|slot| {
            if mutant!("stopped_without_token_check") {
                let grants = self.locks.at(slot).grants;
                let mut grants = grants.iter::<IN_LOCK, _>(&self.grants);
                return grants
                    .find(|(_, grant)| grant.phase() == Some(GrantPhase::Cooling))
                    .map(|g| g.0);
            }
            self.grant_with_token(slot, token).filter(|&grant| cools(self.grants.at(grant)))
        });
        let grant = found.ok_or_else(|| Refusal::NotCooling { lock: name(lock) })?;
        let early = TakeAwayDetails { reason: HOLDER_STOPPED, ..TakeAwayDetails::default() };
        self.cooled(grant, early);
        Ok(Answer::Stopped)
    }

    /// Refuses a name or reason that is invalid or too long.
    pub(super) fn check_said(&self, said: TakeAwayDetails<'_>) -> Result<(), Refusal> {
        if !said.by.is_empty() {
            self.check_known_name(said.by)?;
        }
        self.check_limit(Limit::MetadataBytes, said.reason.len() as u64)
    }

    /// Takes a grant away from its holder. Returns for how much longer the lock stays unavailable.
    pub(super) fn take_away(
        &mut self,
        slot: SlabIndex,
        cause: Cause,
        said: TakeAwayDetails<'_>,
        urgency: Urgency,
    ) -> Option<u64> {
        let lease = self.lease_of(slot).expect("only a held grant is taken away");
        // The cooling ends at the deadline that the lease has at this entry. A later renewal does not extend it.
        let cooling_until_ms = self.leases.at(lease).deadline_ms;
        let cools = urgency == Urgency::Cooling
            && cooling_until_ms > self.clock_ms
            && !mutant!("force_frees_at_once");
        let cooling = KeepOut { phase: GrantPhase::Cooling, until_ms: cooling_until_ms };
        let keep_out = if cools { Some(cooling) } else { self.pause_of(slot) };
        self.lose(slot, cause, said, keep_out)
    }

    /// Ends a grant because its lease was not renewed.
    pub(super) fn expire_grant(&mut self, slot: SlabIndex) {
        let keep_out = self.pause_of(slot);
        self.lose(slot, Cause::Expired, TakeAwayDetails::default(), keep_out);
    }

    /// Ends the cooling of a grant, for the given reason if it ends before its deadline. Returns for how much longer
    /// its lock-delay or its min hold keeps other leases out.
    pub(super) fn cooled(&mut self, slot: SlabIndex, early: TakeAwayDetails<'_>) -> Option<u64> {
        let is_told = self.level >= LEVEL_RECORDS;
        let early = if is_told { early } else { TakeAwayDetails::default() };
        let pause = self.pause_of(slot);
        self.end_phase(slot, Cause::Cooled, early, pause)
    }

    /// Ends the lock-delay of a grant.
    pub(super) fn delay_over(&mut self, slot: SlabIndex) {
        let rest = self.rest_of(slot);
        self.end_phase(slot, Cause::DelayOver, TakeAwayDetails::default(), rest);
    }

    /// Ends the rest of a grant, for the given reason if it ends before its deadline.
    pub(super) fn min_hold_over(&mut self, slot: SlabIndex, early: TakeAwayDetails<'_>) {
        self.end_phase(slot, Cause::MinHoldOver, early, None);
    }

    /// Ends what keeps other leases out, for this cause. The next phase follows, or the grant is gone. Returns how long
    /// the next phase lasts.
    fn end_phase(
        &mut self,
        slot: SlabIndex,
        cause: Cause,
        early: TakeAwayDetails<'_>,
        next: Option<KeepOut>,
    ) -> Option<u64> {
        let left_ms = next.map(|next| next.until_ms - self.clock_ms);
        self.emit_grant(slot, cause, left_ms, early);
        let grant = self.grants.at_mut(slot);
        let (token, GrantState::Over(over)) = (grant.token, &mut grant.state) else {
            unreachable!("a grant that keeps others out is over")
        };
        self.due.remove(over.until_ms, over.phase.due(), token.get());
        match next {
            Some(KeepOut { phase, until_ms }) => {
                over.phase = phase;
                over.until_ms = until_ms;
                self.due.insert(until_ms, phase.due(), token.get(), Some(slot));
            }
            None => self.remove_grant(slot),
        }
        left_ms
    }

    /// What keeps other leases out from now on, after an end that the holder did not ask for and after the cooling: the
    /// lock-delay, or else the rest of the min hold.
    fn pause_of(&self, slot: SlabIndex) -> Option<KeepOut> {
        let delay_ms = self.grants.at(slot).options.lock_delay_ms();
        let until_ms = self.deadline(delay_ms);
        // Without a lock-delay, and at `CLOCK_MAX`, the deadline is not later than the clock.
        let waits = until_ms > self.clock_ms && !mutant!("lock_delay_forgotten");
        let delay = waits.then_some(KeepOut { phase: GrantPhase::Delayed, until_ms });
        delay.or_else(|| self.rest_of(slot))
    }

    /// The rest of the min hold, if it is not over.
    pub(super) fn rest_of(&self, slot: SlabIndex) -> Option<KeepOut> {
        let until_ms = self.min_hold_deadline(self.grants.at(slot));
        let rests = until_ms > self.clock_ms && !mutant!("min_hold_ends_with_the_hold");
        rests.then_some(KeepOut { phase: GrantPhase::Resting, until_ms })
    }

    /// Until when the min hold of a grant lasts. Without one this is not later than the clock.
    pub(crate) fn min_hold_deadline(&self, grant: &Grant) -> u64 {
        let least_ms = self.promised_ms(grant.options.min_hold_ms());
        let since_ms =
            if mutant!("min_hold_since_the_end") { self.clock_ms } else { grant.since_ms };
        since_ms.saturating_add(least_ms).min(CLOCK_MAX)
    }

    fn lose(
        &mut self,
        slot: SlabIndex,
        cause: Cause,
        said: TakeAwayDetails<'_>,
        keep_out: Option<KeepOut>,
    ) -> Option<u64> {
        let left_ms = keep_out.map(|out| out.until_ms - self.clock_ms);
        self.emit_grant(slot, cause, left_ms, said);
        let revision = self.revision;
        let lease = self.lease_of(slot).expect("only a held grant is lost");
        let handle = self.handle(lease);
        self.leases.at_mut(lease).changed = revision;
        self.detach(slot);
        let grant = self.grants.at(slot);
        let (lock, token) = (grant.lock, grant.token);
        self.now.notices.push(Notice::Lost {
            lease: handle,
            lock: self.locks.at(lock).name.clone(),
            token,
            revision,
            cause: Some(cause),
            word: said.word(),
        });
        self.keep_out(slot, lease, keep_out);
        left_ms
    }

    /// Keeps other leases out after the hold of this lease, or removes the grant if nothing does.
    pub(super) fn keep_out(&mut self, slot: SlabIndex, lease: SlabIndex, out: Option<KeepOut>) {
        let Some(KeepOut { phase, until_ms }) = out else { return self.remove_grant(slot) };
        let lease = self.leases.at(lease);
        let kept = self.kept_by_ended(self.grants.at(slot));
        let grant = self.grants.at_mut(slot);
        grant.state = GrantState::Over(Box::new(EndedGrant {
            phase,
            until_ms,
            lease: lease.id,
            created: lease.created,
            client: lease.client.clone(),
            owner: lease.owner,
        }));
        self.owners.count(lease.owner, |used| used.add_ended(kept));
        self.due.insert(until_ms, phase.due(), grant.token.get(), Some(slot));
    }

    fn left_ms(&self, slot: SlabIndex) -> u64 {
        match &self.grants.at(slot).state {
            GrantState::Over(over) => over.until_ms.saturating_sub(self.clock_ms),
            GrantState::Held(_) => 0,
        }
    }

    /// The first holder of a lock, as a refusal shows it.
    pub(super) fn first_holder(&self, lock: SlabIndex) -> Option<Holder> {
        self.locks.at(lock).grants.first.map(|first| self.shown_holder(first))
    }

    /// A holder, as a refusal shows it.
    pub(super) fn shown_holder(&self, slot: SlabIndex) -> Holder {
        let grant = self.grants.at(slot);
        let (lease, client) = match &grant.state {
            GrantState::Held(lease) => {
                let lease = self.leases.at(*lease);
                (lease.id, lease.client.clone())
            }
            GrantState::Over(over) => (over.lease, over.client.clone()),
        };
        let held_ms = self.clock_ms.saturating_sub(grant.since_ms);
        Holder { lease, client, token: grant.token, held_ms, state: self.holder_state(slot) }
    }

    pub(crate) fn holder_state(&self, grant: SlabIndex) -> HolderState {
        let left_ms = self.left_ms(grant);
        match self.grants.at(grant).phase() {
            None => HolderState::Held,
            Some(GrantPhase::Cooling) => HolderState::Cooling { left_ms },
            Some(GrantPhase::Delayed) => HolderState::Delayed { left_ms },
            Some(GrantPhase::Resting) => HolderState::Resting { left_ms },
        }
    }
}

impl<'a> TakeAwayDetails<'a> {
    /// The same with another reason, if none was given.
    fn or_reason(self, reason: &'a str) -> Self {
        if self.reason.is_empty() { Self { reason, ..self } } else { self }
    }

    /// The name and reason for the notice to the former holder; `None` if neither was given.
    pub(super) fn word(self) -> Option<Box<TakenBy>> {
        let said = !self.by.is_empty() || !self.reason.is_empty();
        said.then(|| {
            Box::new(TakenBy {
                by: (!self.by.is_empty()).then(|| name(self.by)),
                reason: self.reason().map(Box::from),
            })
        })
    }

    /// The name for the event.
    pub(super) fn by(self) -> Option<&'a [u8]> {
        (!self.by.is_empty()).then_some(self.by.as_bytes())
    }

    /// The principal for the event.
    pub(super) fn principal(self) -> Option<&'a [u8]> {
        (!self.principal.is_empty()).then_some(self.principal.as_bytes())
    }

    /// The reason for the event.
    pub(super) fn reason(self) -> Option<&'a str> {
        (!self.reason.is_empty()).then_some(self.reason)
    }
}

impl Grant {
    /// The phase after the hold; `None` while the grant is held.
    pub(crate) fn phase(&self) -> Option<GrantPhase> {
        match &self.state {
            GrantState::Held(_) => None,
            GrantState::Over(over) => Some(over.phase),
        }
    }
}
