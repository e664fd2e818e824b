//! Executes `Put` and `Delete` on the small fenced key-value store beside the locks.

use alloc::boxed::Box;
use tenure_types::{Limit, Quota, Refusal, Revision};

use super::name;
use crate::codec::{EventRef, SubjectRef};
use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::{Answer, KeyWritten};
use crate::request::{Expect, OWN_KEYS, Put, WriteGuard};
use crate::state::list::ListLink;
use crate::state::record::{IN_LEASE, Key};
use crate::state::slab::SlabIndex;

/// What a key weighs, without its name and value.
pub(crate) const KEY_BYTES: u64 = 96;

impl Machine {
    pub(super) fn put(&mut self, principal: &str, put: &Put<'_>) -> Result<Answer, Refusal> {
        self.check_name(put.key)?;
        self.check_limit(Limit::ValueBytes, put.value.len() as u64)?;
        self.check_guard(put.guard.as_ref())?;
        let lease = put.lease.map(|lease| self.own_lease(lease)).transpose()?;
        let found = self.keys_by_name.get(put.key.as_bytes()).copied();
        self.check_expected(found, put.expect)?;
        let bound_to = found.and_then(|slot| self.keys.at(slot).lease);
        if let Some(lease) = lease.filter(|&lease| bound_to != Some(lease)) {
            let keys = u64::from(self.leases.at(lease).keys.len);
            self.check_limit(Limit::KeysPerLease, keys + 1)?;
        }
        self.check_key_quotas(put, found)?;
        self.check_space()?;
        let revision = self.begin_revision();
        let previous = found.map(|slot| {
            let key = self.keys.at(slot);
            (key.modified, key.value.clone())
        });
        let slot = match found {
            Some(slot) => self.rewrite_key(slot, put.value, revision),
            None => self.create_key(put.key, put.value, revision),
        };
        self.bind_key(slot, lease);
        let principal = self.recorded_for(put.key, principal);
        let lease = lease.map(|lease| self.leases.at(lease));
        self.history.emit(
            revision,
            &EventRef {
                lease: lease.map(|lease| lease.id),
                client: lease.map(|lease| lease.client.as_bytes()),
                value: Some(put.value),
                previous: previous.as_ref().map(|(modified, value)| (*modified, &**value)),
                principal,
                ..EventRef::new(Cause::KeyPut, SubjectRef::Key(put.key.as_bytes()))
            },
        );
        let key = self.keys.at(slot);
        Ok(Answer::Put(KeyWritten { version: key.version, created: key.created }))
    }

    pub(super) fn delete(
        &mut self,
        principal: &str,
        key: &str,
        expect: Expect<'_>,
        guard: Option<&WriteGuard<'_>>,
    ) -> Result<Answer, Refusal> {
        self.check_known_name(key)?;
        self.check_guard(guard)?;
        let found = self.keys_by_name.get(key.as_bytes()).copied();
        self.check_expected(found, expect)?;
        if let Some(slot) = found {
            self.delete_key(slot, self.recorded_for(key, principal));
        }
        Ok(Answer::Deleted { existed: found.is_some() })
    }

    /// The caller that the event of a key names: only for keys of the cluster itself, which administrative acts change.
    fn recorded_for<'a>(&self, key: &str, principal: &'a str) -> Option<&'a [u8]> {
        let recorded = if key.starts_with(OWN_KEYS) { self.recorded(principal) } else { "" };
        (!recorded.is_empty()).then_some(recorded.as_bytes())
    }

    /// Deletes a key and emits the event, which names this caller.
    pub(super) fn delete_key(&mut self, slot: SlabIndex, principal: Option<&[u8]>) {
        let bound_to = self.keys.at(slot).lease;
        self.bind_key(slot, None);
        let key = self.keys.remove(slot);
        self.keys_by_name.remove(&key.name);
        self.state_bytes -= key.weight();
        self.owners.count(key.owner, |used| used.remove_key(key.owned_bytes()));
        let revision = self.begin_revision();
        let lease = bound_to.map(|lease| self.leases.at(lease));
        self.history.emit(
            revision,
            &EventRef {
                lease: lease.map(|lease| lease.id),
                client: lease.map(|lease| lease.client.as_bytes()),
                previous: Some((key.modified, &key.value)),
                principal,
                ..EventRef::new(Cause::KeyDeleted, SubjectRef::Key(key.name.as_bytes()))
            },
        );
    }

    fn create_key(&mut self, key: &str, value: &[u8], revision: Revision) -> SlabIndex {
        let owner = self.make_owner();
        let record = Key {
            name: name(key),
            value: Box::from(value),
            created: revision,
            modified: revision,
            version: 1,
            owner,
            lease: None,
            in_lease: ListLink::default(),
        };
        self.state_bytes += record.weight();
        self.owners.count(owner, |used| used.add_key(record.owned_bytes()));
        let index = record.name.clone();
        let slot = self.keys.insert(record);
        self.keys_by_name.insert(index, slot);
        slot
    }

    fn rewrite_key(&mut self, slot: SlabIndex, value: &[u8], revision: Revision) -> SlabIndex {
        let owner = self.make_owner();
        let key = self.keys.at_mut(slot);
        // In this order, or an owner that writes its only key again would be removed in between.
        let (old_owner, old_bytes) = (key.owner, key.owned_bytes());
        let new_bytes = (key.name.as_bytes().len() + value.len()) as u64;
        self.owners.count(owner, |used| used.add_key(new_bytes));
        self.owners.count(old_owner, |used| used.remove_key(old_bytes));
        key.owner = owner;
        self.state_bytes += value.len() as u64;
        self.state_bytes -= key.value.len() as u64;
        key.value = Box::from(value);
        key.modified = revision;
        key.version += 1;
        slot
    }

    /// Binds a key to this lease, so that it ends with this one and no other.
    fn bind_key(&mut self, slot: SlabIndex, lease: Option<SlabIndex>) {
        let old = self.keys.at(slot).lease;
        if old == lease {
            return;
        }
        if let Some(old) = old {
            self.leases.at_mut(old).keys.remove::<IN_LEASE, _>(&mut self.keys, slot);
        }
        if let Some(new) = lease {
            self.leases.at_mut(new).keys.push::<IN_LEASE, _>(&mut self.keys, slot);
        }
        self.keys.at_mut(slot).lease = lease;
    }

    /// A key counts for the principal that wrote it last, so that no principal can fill the quota of another.
    fn check_key_quotas(&self, put: &Put<'_>, found: Option<SlabIndex>) -> Result<(), Refusal> {
        let payer = self.caller_pays();
        let bytes = (put.key.len() + put.value.len()) as u64;
        let own = found.map(|slot| self.keys.at(slot)).filter(|key| self.is_callers(key.owner));
        match own {
            Some(key) => {
                self.check_quota(payer, Quota::Bytes, bytes.saturating_sub(key.owned_bytes()))
            }
            None => {
                self.check_quota(payer, Quota::Keys, 1)?;
                self.check_quota(payer, Quota::Bytes, bytes)
            }
        }
    }

    fn check_guard(&self, guard: Option<&WriteGuard<'_>>) -> Result<(), Refusal> {
        let Some(guard) = guard else { return Ok(()) };
        self.check_known_name(guard.lock)?;
        if self.is_guarded(guard.lock, guard.token) {
            return Ok(());
        }
        Err(Refusal::GuardFailed { lock: name(guard.lock) })
    }

    fn check_expected(&self, found: Option<SlabIndex>, expect: Expect<'_>) -> Result<(), Refusal> {
        let found = found.map(|slot| self.keys.at(slot));
        let as_expected = match expect {
            Expect::Any => true,
            Expect::Absent => found.is_none(),
            Expect::Modified(revision) => found.is_some_and(|key| key.modified == revision),
            Expect::Value(value) => found.is_some_and(|key| *key.value == *value),
        };
        if as_expected {
            return Ok(());
        }
        Err(Refusal::CompareFailed { modified: found.map(|key| key.modified) })
    }
}

impl Key {
    /// The key's share of the weight of the state.
    pub(crate) fn weight(&self) -> u64 {
        KEY_BYTES + (self.name.as_bytes().len() + self.value.len()) as u64
    }
}
