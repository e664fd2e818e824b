//! Counts the acquire requests that rely on a place, and takes back one whose answer reached no caller.
//!
//! A request handler whose caller disconnected must not decide alone that the grant is unwanted: the caller may have
//! repeated the request and another handler may have answered with the same grant. So every acquire request adds one to
//! the count, every abandoned one subtracts one, and only the last one gives up the place or the grants.

use alloc::boxed::Box;
use alloc::vec::Vec;
use tenure_types::{Name, PlaceNumber, Token};

use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::{Answer, Outcome};
use crate::request::{Abandon, AskId, LeaseRef};
use crate::state::record::{AskRecord, IN_LEASE, Remembered};
use crate::state::slab::SlabIndex;

impl Machine {
    pub(super) fn abandon(&mut self, principal: &str, abandon: &Abandon<'_>) -> Answer {
        self.abandon_record(principal, abandon);
        let released = match self.own_lease(abandon.lease) {
            Ok(lease) => self.abandon_place(lease, abandon.place),
            Err(_) => false,
        };
        Answer::Abandoned { released }
    }

    /// Subtracts one from the record of the request id. At zero the record is removed, so that a request with the same
    /// id is executed as a new one.
    fn abandon_record(&mut self, principal: &str, abandon: &Abandon<'_>) {
        match abandon.ask {
            AskId::None => {}
            AskId::Seq { lease, seq } => {
                let Ok(lease) = self.own_lease(lease) else { return };
                let (_, Some(found)) = self.find_numbered(lease, seq) else { return };
                match self.seq_requests.at(found).answer.less(abandon.place) {
                    Less::Other => {}
                    Less::Left(answer) => self.seq_requests.at_mut(found).answer = answer,
                    Less::Last => self.forget_numbered(lease, found),
                }
            }
            AskId::Key(key) => {
                let Ok(key) = Name::new(key) else { return };
                let index = (Box::from(principal), key);
                let Some(&found) = self.key_requests_by_key.get(&index) else { return };
                match self.key_requests.at(found).answer.less(abandon.place) {
                    Less::Other => {}
                    Less::Left(answer) => self.key_requests.at_mut(found).answer = answer,
                    Less::Last => self.forget_key(found),
                }
            }
        }
    }

    /// Subtracts one from the count of a place or of its grants. Returns whether it was the last one and they are given
    /// up.
    fn abandon_place(&mut self, lease: SlabIndex, number: PlaceNumber) -> bool {
        if let Some(place) = self.find_place(lease, number) {
            return match self.places.at(place).asks.less() {
                Some(asks) => {
                    self.places.at_mut(place).asks = asks;
                    false
                }
                None => {
                    self.remove_place(place, Cause::Left);
                    true
                }
            };
        }
        let grants = self.held_of(lease, number);
        let mut released = false;
        for (_, _, grant) in grants {
            match self.grants.at(grant).asks.less() {
                Some(asks) => self.grants.at_mut(grant).asks = asks,
                None => {
                    // Its holder never knew of it, so nothing began that its min hold could keep apart.
                    self.give_back(grant, Cause::Released, None);
                    released = true;
                }
            }
        }
        released
    }

    /// Adds one to the count of a place or of its grants.
    pub(super) fn count_ask(&mut self, lease: SlabIndex, number: PlaceNumber) {
        if mutant!("grant_given_back_although_a_retry_was_told") {
            return;
        }
        if let Some(place) = self.find_place(lease, number) {
            let asks = self.places.at(place).asks;
            if asks.more() != asks {
                self.places.at_mut(place).asks = asks.more();
            }
            return;
        }
        for (_, _, grant) in self.held_of(lease, number) {
            let asks = self.grants.at(grant).asks;
            if asks.more() != asks {
                self.grants.at_mut(grant).asks = asks.more();
            }
        }
    }

    /// Counts an acquire request that was answered again because its request id was known. Returns the new record if it
    /// differs.
    pub(super) fn count_repeated(
        &mut self,
        ask: AskRecord,
        outcome: &Outcome,
    ) -> Option<AskRecord> {
        if !matches!(outcome.result, Ok(Answer::Acquired(_) | Answer::Queued(_))) {
            return None;
        }
        let lease = self.live_lease(LeaseRef::Id(ask.lease)).ok()?;
        self.count_ask(lease, ask.place);
        let asks = ask.asks.more();
        (asks != ask.asks).then_some(AskRecord { asks, ..ask })
    }

    /// The grants of a place that are held, in the order of their locks' names and of tokens.
    fn held_of(&self, lease: SlabIndex, number: PlaceNumber) -> Vec<(Name, Token, SlabIndex)> {
        let grants = self.leases.at(lease).grants;
        let mut found: Vec<(Name, Token, SlabIndex)> = grants
            .iter::<IN_LEASE, _>(&self.grants)
            .filter(|(_, grant)| grant.place == number)
            .map(|(slot, grant)| (self.locks.at(grant.lock).name.clone(), grant.token, slot))
            .collect();
        found.sort_unstable();
        found
    }
}

/// What is left of a remembered acquire request after one was subtracted.
enum Less {
    /// The record is not of an acquire request, or is of one for another place.
    Other,
    Left(Remembered),
    Last,
}

impl Remembered {
    fn less(&self, place: PlaceNumber) -> Less {
        match self.ask().filter(|ask| ask.place == place) {
            None => Less::Other,
            Some(ask) => match ask.asks.less() {
                Some(asks) => Less::Left(Remembered::Ask(AskRecord { asks, ..ask })),
                None => Less::Last,
            },
        }
    }
}
