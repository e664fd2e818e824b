//! Ends grants, for the holder or for another caller, with what keeps others out afterwards.

use std::collections::BTreeSet;

use tenure_core::event::{Cause, Event, FORCED_NOW, HOLDER_STOPPED, Previous};
use tenure_core::outcome::{Answer, Notice};
use tenure_core::request::{Hold, Purpose, Urgency};
use tenure_types::{LeaseId, Limit, Mode, Name, Quota, Refusal, Revision, Token};

use super::event::{held_event, name_and_reason, word};
use super::state::later;
use super::{Grant, GrantState, HandleOf, LEVEL_RECORDS, Model, NO_HANDLE, Verdict};

impl Model {
    pub(super) fn release(&mut self, hold: &Hold<'_>, handle_of: HandleOf<'_>) -> Verdict {
        let (lock, grant) = self.held_under(hold, handle_of)?;
        self.give_back(&lock, &grant, Cause::Released);
        self.pass_if_gone(&lock, grant.token);
        Ok(Answer::Released)
    }

    pub(super) fn downgrade(&mut self, hold: &Hold<'_>, handle_of: HandleOf<'_>) -> Verdict {
        let (lock, grant) = self.held_under(hold, handle_of)?;
        if grant.mode != Mode::Exclusive {
            return Err(Refusal::NotExclusive { lock });
        }
        if self.tokens_left() == 0 {
            return Err(Refusal::TokensExhausted);
        }
        let token = self.next_token();
        let changed = self.grant_mut(&lock, grant.token).expect("it was just found");
        changed.token = token;
        changed.mode = Mode::Shared;
        let changed = changed.clone();
        self.grant_event(&lock, held_event(Cause::Downgraded, &lock, &changed));
        self.grant_pass([lock]);
        Ok(Answer::Downgraded { token })
    }

    pub(super) fn update(
        &mut self,
        hold: &Hold<'_>,
        metadata: &[u8],
        handle_of: HandleOf<'_>,
    ) -> Verdict {
        self.within(Limit::MetadataBytes, metadata.len() as u64)?;
        let (lock, grant) = self.held_under(hold, handle_of)?;
        if metadata.len() > grant.metadata.len() {
            let more = (metadata.len() - grant.metadata.len()) as u64;
            self.within_quota(grant.owner.as_ref(), Quota::Bytes, more)?;
            self.room()?;
        }
        let modified = self.locks[&lock].modified;
        self.grant_mut(&lock, grant.token).expect("it was just found").metadata = metadata.to_vec();
        let previous = Previous { modified, value: grant.metadata.clone().into() };
        let event = Event {
            mode: None,
            slot: None,
            value: Some(metadata.into()),
            previous: Some(previous),
            ..held_event(Cause::Updated, &lock, &grant)
        };
        self.grant_event(&lock, event);
        Ok(Answer::Updated { version: self.locks[&lock].version })
    }

    /// The grant that a holder names.
    pub(super) fn held_under(
        &self,
        hold: &Hold<'_>,
        handle_of: HandleOf<'_>,
    ) -> Result<(Name, Grant), Refusal> {
        let lock = self.known_name(hold.lock)?;
        let lease = self.own(hold.lease, handle_of)?;
        let grant = self.grant(&lock, hold.token).cloned();
        match grant.filter(|grant| grant.is_held() && grant.lease == lease) {
            Some(grant) => Ok((lock, grant)),
            None => Err(Refusal::NotHolder { lock }),
        }
    }

    pub(super) fn force(
        &mut self,
        lock: &str,
        token: Token,
        said: (&str, &str),
        urgency: Urgency,
    ) -> Verdict {
        let lock = self.known_name(lock)?;
        self.can_be_said(said)?;
        let left_ms = match (self.grant(&lock, token).map(|grant| grant.state), urgency) {
            (Some(GrantState::Held), urgency) => {
                self.take_away(&lock, token, Cause::Forced, urgency, said)
            }
            (Some(GrantState::Cooling { until_ms }), Urgency::Cooling) => {
                Some(until_ms.saturating_sub(self.clock_ms))
            }
            (Some(GrantState::Cooling { .. }), Urgency::Now) => {
                let (by, reason) = said;
                let reason = if reason.is_empty() { FORCED_NOW } else { reason };
                self.cooling_over(&lock, token, (by, reason))
            }
            (Some(GrantState::Resting { .. }), _) => {
                let (by, reason) = said;
                let reason = if reason.is_empty() { FORCED_NOW } else { reason };
                self.min_hold_over(&lock, token, (by, reason));
                None
            }
            (Some(GrantState::Delayed { .. }) | None, _) => {
                let first = self.grants_of(&lock).into_iter().next();
                let holder = first.map(|grant| Box::new(self.show_holder(grant)));
                return Err(Refusal::TokenOutdated { lock, holder });
            }
        };
        self.pass_if_gone(&lock, token);
        Ok(Answer::Forced { left_ms: left_ms.unwrap_or(0) })
    }

    pub(super) fn stopped(
        &mut self,
        lease: LeaseId,
        created: Revision,
        lock: &str,
        token: Token,
    ) -> Verdict {
        let lock = self.known_name(lock)?;
        let cools = self.grant(&lock, token).is_some_and(|grant| {
            matches!(grant.state, GrantState::Cooling { .. })
                && grant.lease == lease
                && grant.lease_created == created
                && self.is_own(grant.owner.as_ref())
        });
        if !cools {
            return Err(Refusal::NotCooling { lock });
        }
        self.cooling_over(&lock, token, ("", HOLDER_STOPPED));
        self.pass_if_gone(&lock, token);
        Ok(Answer::Stopped)
    }

    fn pass_if_gone(&mut self, lock: &Name, token: Token) {
        let touched = self.if_gone(lock.clone(), token);
        self.grant_pass(touched);
    }

    /// The lock, if the grant is gone: only then is there room for another.
    pub(super) fn if_gone(&self, lock: Name, token: Token) -> BTreeSet<Name> {
        let gone = self.grant(&lock, token).is_none();
        gone.then_some(lock).into_iter().collect()
    }

    /// Takes a held lock away. Returns how much longer no other lease may have it, unless the grant is gone.
    pub(super) fn take_away(
        &mut self,
        lock: &Name,
        token: Token,
        cause: Cause,
        urgency: Urgency,
        told: (&str, &str),
    ) -> Option<u64> {
        let grant = self.grant(lock, token).expect("only what is held is taken away").clone();
        let until_ms = self.leases[&grant.lease].deadline_ms;
        let left_ms = if urgency == Urgency::Cooling && until_ms > self.clock_ms {
            self.note_vacancy(lock, &grant);
            let taken = self.grant_mut(lock, token).expect("it was just found");
            taken.state = GrantState::Cooling { until_ms };
            Some(until_ms - self.clock_ms)
        } else {
            self.delay_or_go(lock, token)
        };
        let (by, reason) = name_and_reason(word(told).as_deref());
        self.end_event(lock, Event { left_ms, by, reason, ..held_event(cause, lock, &grant) });
        self.end_upgrade(lock, grant.lease);
        self.lost(lock, &grant, cause, told);
        let revision = self.this_revision();
        let lease = self.leases.get_mut(&grant.lease).expect("who holds has a lease");
        lease.changed = revision;
        left_ms
    }

    /// Refuses an invalid name and a reason that is too long.
    pub(super) fn can_be_said(&self, (by, reason): (&str, &str)) -> Result<(), Refusal> {
        if !by.is_empty() {
            self.known_name(by)?;
        }
        self.within(Limit::MetadataBytes, reason.len() as u64)
    }

    /// Emits the notice to a lease that it lost a lock.
    pub(super) fn lost(&mut self, lock: &Name, grant: &Grant, cause: Cause, told: (&str, &str)) {
        self.notices.push(Notice::Lost {
            lease: NO_HANDLE,
            lock: lock.clone(),
            token: grant.token,
            revision: self.this_revision(),
            cause: Some(cause),
            word: word(told),
        });
    }

    /// Ends a cooling, and tells why if it was not due. Returns the length of the lock-delay that follows, if any.
    pub(super) fn cooling_over(
        &mut self,
        lock: &Name,
        token: Token,
        why: (&str, &str),
    ) -> Option<u64> {
        let grant = self.grant(lock, token).expect("only what cools is over").clone();
        let left_ms = self.delay_or_go(lock, token);
        let why = if self.level >= LEVEL_RECORDS { why } else { ("", "") };
        let (by, reason) = name_and_reason(word(why).as_deref());
        let event = held_event(Cause::Cooled, lock, &grant);
        self.grant_event(lock, Event { left_ms, by, reason, ..event });
        left_ms
    }

    /// Ends a lock-delay.
    pub(super) fn delay_over(&mut self, lock: &Name, token: Token) {
        let grant = self.grant(lock, token).expect("only what is delayed is over").clone();
        let left_ms = self.rest_or_go(lock, token);
        self.grant_event(lock, Event { left_ms, ..held_event(Cause::DelayOver, lock, &grant) });
    }

    /// Ends the rest of a min hold, and tells why if it was not due.
    pub(super) fn min_hold_over(&mut self, lock: &Name, token: Token, why: (&str, &str)) {
        let grant = self.grant(lock, token).expect("only what rests is over").clone();
        let (by, reason) = name_and_reason(word(why).as_deref());
        let event = held_event(Cause::MinHoldOver, lock, &grant);
        self.grant_event(lock, Event { by, reason, ..event });
        self.remove_grant(lock, token);
    }

    /// Ends a hold because the holder says so.
    pub(super) fn give_back(&mut self, lock: &Name, grant: &Grant, cause: Cause) {
        let left_ms = self.rest_or_go(lock, grant.token);
        self.end_event(lock, Event { left_ms, ..held_event(cause, lock, grant) });
        self.end_upgrade(lock, grant.lease);
    }

    /// Lets the lock rest until its min hold is over, or removes the grant. Returns the length of the rest.
    fn rest_or_go(&mut self, lock: &Name, token: Token) -> Option<u64> {
        let grant = self.grant(lock, token).expect("only what is there ends").clone();
        let until_ms = later(grant.since_ms, self.whole(grant.min_hold_ms));
        if until_ms <= self.clock_ms {
            self.end_held(lock, token);
            return None;
        }
        self.note_vacancy(lock, &grant);
        let resting = self.grant_mut(lock, token).expect("it was just found");
        resting.state = GrantState::Resting { until_ms };
        Some(until_ms - self.clock_ms)
    }

    /// Begins the lock-delay; without one, the rest; without either, removes the grant. Returns how long it lasts.
    pub(super) fn delay_or_go(&mut self, lock: &Name, token: Token) -> Option<u64> {
        let grant = self.grant(lock, token).expect("only what is there ends").clone();
        let until_ms = later(self.clock_ms, self.whole(grant.lock_delay_ms));
        if until_ms == self.clock_ms {
            return self.rest_or_go(lock, token);
        }
        self.note_vacancy(lock, &grant);
        let delayed = self.grant_mut(lock, token).expect("it was just found");
        delayed.state = GrantState::Delayed { until_ms };
        Some(until_ms - self.clock_ms)
    }

    /// Removes a grant without a pause.
    pub(super) fn end_held(&mut self, lock: &Name, token: Token) {
        let grant = self.grant(lock, token).expect("only what is there ends").clone();
        self.note_vacancy(lock, &grant);
        self.remove_grant(lock, token);
    }

    /// Records that an elected holder is gone. A grant that was only cooling was recorded before.
    fn note_vacancy(&mut self, lock: &Name, grant: &Grant) {
        if grant.is_held() && grant.purpose == Purpose::Election {
            self.vacated.insert(lock.clone());
        }
    }
}
