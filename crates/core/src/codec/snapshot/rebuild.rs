//! Rebuilds lists, indexes and sums from the records of a snapshot.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use tenure_types::{Name, PlaceNumber, Token};

use super::read::BadSnapshot;
use crate::machine::Machine;
use crate::state::due::DueKind;
use crate::state::record::{GrantState, IN_LEASE, IN_LOCK, IN_ORDER, IN_QUEUE};
use crate::state::slab::SlabIndex;

impl Machine {
    /// Links the records and rebuilds everything derived. Rejects a snapshot in which a record refers to one that does
    /// not exist, or occurs twice where it may occur once.
    pub(super) fn rebuild(&mut self, key_request_order: &[SlabIndex]) -> Result<(), BadSnapshot> {
        self.index_leases()?;
        self.index_locks()?;
        self.link_grants()?;
        self.link_places()?;
        self.link_keys()?;
        self.link_requests(key_request_order)?;
        self.link_owners()?;
        if let Some(until_ms) = self.quiet_until_ms {
            self.due.insert(until_ms, DueKind::Quiet, 0, None);
        }
        if let Some(reopening) = self.reopening {
            self.due.insert(reopening.since_ms, DueKind::Reopening, 0, None);
        }
        self.state_bytes = self.weigh();
        Ok(())
    }

    /// Computes the weight of the state from its records.
    pub(crate) fn weigh(&self) -> u64 {
        use crate::command::weight::WAIT_BYTES;
        let leases: u64 = self.leases.iter().map(|(_, lease)| lease.weight()).sum();
        let locks: u64 = self.locks.iter().map(|(_, lock)| lock.weight()).sum();
        let grants: u64 = self.grants.iter().map(|(_, grant)| grant.weight()).sum();
        let places: u64 = self.places.iter().map(|(_, place)| place.weight()).sum();
        let waits = self.waits.len() as u64 * WAIT_BYTES;
        let keys: u64 = self.keys.iter().map(|(_, key)| key.weight()).sum();
        let requests: u64 = self.seq_requests.iter().map(|(_, request)| request.weight()).sum();
        let settings = self.access.bytes + self.drains.weight();
        leases + locks + grants + places + waits + keys + requests + settings
    }

    fn index_leases(&mut self) -> Result<(), BadSnapshot> {
        for (slot, lease) in self.leases.iter() {
            if self.leases_by_id.insert(lease.id, slot).is_some() {
                return Err(BadSnapshot::Inconsistent);
            }
            self.due.insert(lease.deadline_ms, DueKind::Lease, lease.id.get(), Some(slot));
        }
        Ok(())
    }

    fn index_locks(&mut self) -> Result<(), BadSnapshot> {
        for (slot, lock) in self.locks.iter() {
            if self.names.find(&self.locks, lock.name.as_bytes()).is_some() {
                return Err(BadSnapshot::Inconsistent);
            }
            self.names.insert_unordered(&self.locks, slot);
            if self.locks.at(slot).sized {
                self.sized.insert(self.locks.at(slot).name.clone(), slot);
            }
        }
        self.names.settle_all(&self.locks);
        Ok(())
    }

    fn link_grants(&mut self) -> Result<(), BadSnapshot> {
        // Holders are ordered by slot or, without slots, by token.
        let mut order: Vec<(Option<u32>, Token, SlabIndex)> = self
            .grants
            .iter()
            .map(|(slot, grant)| (grant.mode.slot(), grant.token, slot))
            .collect();
        order.sort_unstable();
        let mut tokens: Vec<Token> = order.iter().map(|(_, token, _)| *token).collect();
        tokens.sort_unstable();
        if tokens.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(BadSnapshot::Inconsistent);
        }
        for (_, token, slot) in order {
            let grant = self.grants.at(slot);
            let (lock, state) = (grant.lock, grant.state.clone());
            if self.locks.get(lock).is_none() {
                return Err(BadSnapshot::Inconsistent);
            }
            self.tokens.insert(grant.mode, grant.token, slot);
            self.locks.at_mut(lock).grants.push::<IN_LOCK, _>(&mut self.grants, slot);
            match state {
                GrantState::Held(lease) => {
                    if self.leases.get(lease).is_none() {
                        return Err(BadSnapshot::Inconsistent);
                    }
                    self.leases.at_mut(lease).grants.push::<IN_LEASE, _>(&mut self.grants, slot);
                    if let Some(due_ms) = self.max_hold_deadline(self.grants.at(slot)) {
                        self.due.insert(due_ms, DueKind::MaxHold, token.get(), Some(slot));
                    }
                    if let Some(due_ms) = self.progress_deadline(self.grants.at(slot)) {
                        self.due.insert(due_ms, DueKind::Progress, token.get(), Some(slot));
                    }
                }
                GrantState::Over(over) => {
                    let kind = over.phase.due();
                    self.due.insert(over.until_ms, kind, token.get(), Some(slot));
                }
            }
        }
        Ok(())
    }

    fn link_places(&mut self) -> Result<(), BadSnapshot> {
        let mut waits: Vec<(PlaceNumber, Name, SlabIndex)> = Vec::new();
        for (slot, wait) in self.waits.iter() {
            let (Some(place), Some(lock)) =
                (self.places.get(wait.place), self.locks.get(wait.lock))
            else {
                return Err(BadSnapshot::Inconsistent);
            };
            waits.push((place.number, lock.name.clone(), slot));
        }
        waits.sort_unstable();
        let mut places: Vec<(PlaceNumber, SlabIndex)> =
            self.places.iter().map(|(slot, place)| (place.number, slot)).collect();
        places.sort_unstable();
        if places.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(BadSnapshot::Inconsistent);
        }
        let mut rest = waits.as_slice();
        let mut order = Vec::new();
        for (number, place) in places {
            let count = rest.iter().take_while(|wait| wait.0 == number).count();
            let (own, after) = rest.split_at(count);
            rest = after;
            let Some((_, _, first)) = own.first() else { return Err(BadSnapshot::Inconsistent) };
            if own.windows(2).any(|pair| pair[0].1 == pair[1].1) {
                return Err(BadSnapshot::Inconsistent);
            }
            self.places.at_mut(place).first = *first;
            for (at, (_, _, slot)) in own.iter().enumerate() {
                let wait = self.waits.at_mut(*slot);
                wait.next = own.get(at + 1).map(|(_, _, next)| *next);
            }
            order.extend(own.iter().map(|(_, _, slot)| (self.places.at(place).rank(), *slot)));
            let record = self.places.at(place);
            let (lease, until_ms) = (record.lease, record.until_ms);
            if self.leases.get(lease).is_none() {
                return Err(BadSnapshot::Inconsistent);
            }
            let mut grants = 0u64;
            for (_, _, slot) in own {
                grants += u64::from(self.waits.at(*slot).mode.grants());
            }
            let lease = self.leases.at_mut(lease);
            let waits = u64::from(lease.waits) + grants;
            lease.waits = u32::try_from(waits).map_err(|_| BadSnapshot::Inconsistent)?;
            lease.places.push::<IN_LEASE, _>(&mut self.places, place);
            if let Some(until_ms) = until_ms {
                self.due.insert(until_ms.get(), DueKind::WaitLimit, number.0, Some(place));
            }
            // At most one request of a group waits for a lock.
            if self.group_keys(place).any(|key| self.groups.contains_key(&key)) {
                return Err(BadSnapshot::Inconsistent);
            }
            self.join_group(place);
            self.join_pool(place);
        }
        order.sort_unstable();
        let mut ranked = BTreeSet::new();
        for (_, slot) in order {
            let wait = self.waits.at(slot);
            let (lock, place) = (wait.lock, self.places.at(wait.place));
            if place.priority > 0 || place.any {
                ranked.insert(lock);
            }
            self.locks.at_mut(lock).queue.push::<IN_QUEUE, _>(&mut self.waits, slot);
        }
        for lock in ranked {
            self.rank_queue(lock);
        }
        Ok(())
    }

    fn link_keys(&mut self) -> Result<(), BadSnapshot> {
        let keys: Vec<(Name, SlabIndex, Option<SlabIndex>)> =
            self.keys.iter().map(|(slot, key)| (key.name.clone(), slot, key.lease)).collect();
        for (name, slot, lease) in keys {
            if self.keys_by_name.insert(name, slot).is_some() {
                return Err(BadSnapshot::Inconsistent);
            }
            let Some(lease) = lease else { continue };
            if self.leases.get(lease).is_none() {
                return Err(BadSnapshot::Inconsistent);
            }
            self.leases.at_mut(lease).keys.push::<IN_LEASE, _>(&mut self.keys, slot);
        }
        Ok(())
    }

    fn link_owners(&mut self) -> Result<(), BadSnapshot> {
        self.owners = self.count_owners().ok_or(BadSnapshot::Inconsistent)?;
        for (id, owner) in self.owners.iter() {
            let ending = owner.revoked_ms.filter(|_| owner.used.leases > 0);
            if let Some(since_ms) = ending {
                self.due.insert(since_ms, DueKind::Revoked, u64::from(id.number()), None);
            }
        }
        Ok(())
    }

    fn link_requests(&mut self, order: &[SlabIndex]) -> Result<(), BadSnapshot> {
        let mut numbered: Vec<(SlabIndex, u64, SlabIndex)> = self
            .seq_requests
            .iter()
            .map(|(slot, request)| (request.lease, request.seq, slot))
            .collect();
        numbered.sort_unstable();
        if numbered.windows(2).any(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1)) {
            return Err(BadSnapshot::Inconsistent);
        }
        for (lease, _, slot) in numbered {
            if self.leases.get(lease).is_none() {
                return Err(BadSnapshot::Inconsistent);
            }
            let list = &mut self.leases.at_mut(lease).requests;
            list.push::<IN_LEASE, _>(&mut self.seq_requests, slot);
        }
        if order.len() != self.key_requests.len() {
            return Err(BadSnapshot::Inconsistent);
        }
        for &slot in order {
            let Some(request) = self.key_requests.get(slot) else {
                return Err(BadSnapshot::Inconsistent);
            };
            let index = (request.principal.clone(), request.key.clone());
            self.key_request_shares.add(request);
            if self.key_requests_by_key.insert(index, slot).is_some() {
                return Err(BadSnapshot::Inconsistent);
            }
            self.key_request_order.push::<IN_ORDER, _>(&mut self.key_requests, slot);
        }
        Ok(())
    }
}
