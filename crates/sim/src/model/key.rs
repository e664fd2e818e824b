//! Writes and deletes keys, under the conditions of the rules.

use tenure_core::event::{Cause, Event, Previous, Subject};
use tenure_core::outcome::{Answer, KeyWritten};
use tenure_core::request::{Expect, Put, WriteGuard};
use tenure_types::{LeaseId, Limit, Name, Quota, Refusal};

use super::event::blank;
use super::{HandleOf, Key, Model, Verdict};

impl Model {
    pub(super) fn put(&mut self, put: &Put<'_>, handle_of: HandleOf<'_>) -> Verdict {
        let name = self.name(put.key)?;
        self.within(Limit::ValueBytes, put.value.len() as u64)?;
        self.check_guard(put.guard)?;
        let lease = match put.lease {
            Some(lease) => Some(self.own(lease, handle_of)?),
            None => None,
        };
        self.check_expect(&name, put.expect)?;
        let present = self.keys.get(&name).cloned();
        let bound_to = present.as_ref().and_then(|key| key.lease);
        if let Some(lease) = lease
            && bound_to != Some(lease)
        {
            self.within(Limit::KeysPerLease, self.keys_of(lease).len() as u64 + 1)?;
        }
        let caller = self.caller();
        let bytes = (name.len() + put.value.len()) as u64;
        match present.as_ref().filter(|key| caller.is_some() && key.owner == caller) {
            Some(own) => {
                let old = (name.len() + own.value.len()) as u64;
                self.within_quota(caller.as_ref(), Quota::Bytes, bytes.saturating_sub(old))?;
            }
            None => {
                self.within_quota(caller.as_ref(), Quota::Keys, 1)?;
                self.within_quota(caller.as_ref(), Quota::Bytes, bytes)?;
            }
        }
        self.room()?;

        let owner = self.number_caller();
        let revision = self.this_revision();
        let key = Key {
            value: put.value.to_vec(),
            created: present.as_ref().map_or(revision, |key| key.created),
            modified: revision,
            version: present.as_ref().map_or(0, |key| key.version) + 1,
            lease,
            owner,
        };
        let written = KeyWritten { version: key.version, created: key.created };
        let event = self.key_event(Cause::KeyPut, &name, lease, present);
        self.events.push(Event { value: Some(put.value.into()), ..event });
        self.keys.insert(name, key);
        Ok(Answer::Put(written))
    }

    pub(super) fn delete(
        &mut self,
        key: &str,
        expect: Expect<'_>,
        guard: Option<WriteGuard<'_>>,
    ) -> Verdict {
        let name = self.known_name(key)?;
        self.check_guard(guard)?;
        self.check_expect(&name, expect)?;
        let Some(key) = self.keys.remove(&name) else {
            return Ok(Answer::Deleted { existed: false });
        };
        let event = self.key_event(Cause::KeyDeleted, &name, key.lease, Some(key));
        self.events.push(event);
        Ok(Answer::Deleted { existed: true })
    }

    fn check_guard(&self, guard: Option<WriteGuard<'_>>) -> Result<(), Refusal> {
        let Some(guard) = guard else { return Ok(()) };
        let lock = self.known_name(guard.lock)?;
        let grant = self.grant(&lock, guard.token);
        let holds = |grant: &super::Grant| grant.is_held() && self.is_live(grant.lease);
        if grant.is_some_and(|grant| holds(grant) && self.is_own(grant.owner.as_ref())) {
            return Ok(());
        }
        Err(Refusal::GuardFailed { lock })
    }

    fn check_expect(&self, name: &Name, expect: Expect<'_>) -> Result<(), Refusal> {
        let key = self.keys.get(name);
        let holds = match expect {
            Expect::Any => true,
            Expect::Absent => key.is_none(),
            Expect::Modified(revision) => key.is_some_and(|key| key.modified == revision),
            Expect::Value(value) => key.is_some_and(|key| key.value == value),
        };
        if holds {
            return Ok(());
        }
        Err(Refusal::CompareFailed { modified: key.map(|key| key.modified) })
    }

    fn key_event(
        &self,
        cause: Cause,
        name: &Name,
        lease: Option<LeaseId>,
        previous: Option<Key>,
    ) -> Event {
        let previous =
            previous.map(|key| Previous { modified: key.modified, value: key.value.into() });
        Event {
            lease,
            client: lease.map(|lease| self.leases[&lease].client.clone()),
            previous,
            ..blank(cause, Subject::Key(name.clone()))
        }
    }
}
