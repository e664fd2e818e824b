//! Shows the model's state as views, and computes its weight.

use tenure_core::view::{HolderView, KeyView, LeaseView, LockView, WaiterView};
use tenure_types::{Holder, HolderState, Name};

use super::{
    Grant, GrantState, Lease, Lock, Model, NO_HANDLE, PRIORITY_MAX, PRIORITY_STEP_MS, Place,
};

impl Model {
    pub(super) fn view_locks(&self) -> Vec<LockView> {
        self.locks.iter().map(|(name, lock)| self.view_lock(name, lock)).collect()
    }

    fn view_lock(&self, name: &Name, lock: &Lock) -> LockView {
        LockView {
            lock: name.clone(),
            slots: lock.slots,
            sized: lock.sized,
            created: lock.created,
            modified: lock.modified,
            version: lock.version,
            holders: self.grants_of(name).into_iter().map(|it| self.view_grant(it)).collect(),
            more_holders: 0,
            waiting: self.queue_of(name).len() as u64,
        }
    }

    fn view_grant(&self, grant: &Grant) -> HolderView {
        HolderView {
            principal: grant.owner.as_ref().and_then(|(name, _)| Name::new(name).ok()),
            lease: grant.lease,
            lease_created: grant.lease_created,
            client: grant.client.clone(),
            token: grant.token,
            mode: grant.mode,
            slot: grant.slot,
            place: grant.place,
            held_ms: self.clock_ms - grant.since_ms,
            state: self.holder_state(grant),
            purpose: grant.purpose,
            metadata: grant.metadata.clone().into(),
            lock_delay_ms: grant.lock_delay_ms,
            max_hold_ms: grant.max_hold_ms,
            min_hold_ms: grant.min_hold_ms,
            progress: self.view_progress(grant),
        }
    }

    /// A holder as shown to a client that does not hold the lock.
    pub(super) fn show_holder(&self, grant: &Grant) -> Holder {
        Holder {
            lease: grant.lease,
            client: grant.client.clone(),
            token: grant.token,
            held_ms: self.clock_ms - grant.since_ms,
            state: self.holder_state(grant),
        }
    }

    fn holder_state(&self, grant: &Grant) -> HolderState {
        let left = |until_ms: u64| until_ms.saturating_sub(self.clock_ms);
        match grant.state {
            GrantState::Held => HolderState::Held,
            GrantState::Cooling { until_ms } => HolderState::Cooling { left_ms: left(until_ms) },
            GrantState::Delayed { until_ms } => HolderState::Delayed { left_ms: left(until_ms) },
            GrantState::Resting { until_ms } => HolderState::Resting { left_ms: left(until_ms) },
        }
    }

    pub(super) fn view_queue(&self, lock: &str) -> Vec<WaiterView> {
        let Ok(lock) = Name::new(lock) else { return Vec::new() };
        let queue = self.queue_of(&lock);
        let mut views = Vec::new();
        for (ahead, place) in queue.iter().enumerate() {
            views.push(WaiterView {
                place: place.number,
                lease: place.lease,
                client: place.client.clone(),
                mode: place.mode_of(&lock).expect("it stands in this queue"),
                created: place.created,
                ahead: ahead as u64,
                behind: ahead.checked_sub(1).map(|before| queue[before].number),
                waiting_ms: self.clock_ms - place.since_ms,
                left_ms: place.wait_until_ms.map(|until| until.saturating_sub(self.clock_ms)),
                purpose: place.purpose,
                priority: place.priority,
                passable_ms: match place.upgrade {
                    true => 0,
                    false => (place.since_ms
                        + u64::from(PRIORITY_MAX - place.priority) * PRIORITY_STEP_MS)
                        .saturating_sub(self.clock_ms),
                },
                group: place.group.clone(),
                principal: self.leases.get(&place.lease).and_then(|lease| {
                    lease.owner.as_ref().and_then(|(name, _)| Name::new(name).ok())
                }),
                locks: place.names(),
                any: place.any,
                pool: place.pool.clone(),
            });
        }
        views
    }

    pub(super) fn view_leases(&self) -> Vec<LeaseView> {
        let live = self.leases.values().filter(|lease| self.is_live(lease.id));
        live.map(|lease| self.view_lease(lease)).collect()
    }

    fn view_lease(&self, lease: &Lease) -> LeaseView {
        let mut waits = Vec::new();
        for place in self.places_of(lease.id) {
            waits.extend(place.names().into_iter().map(|lock| (place.number, lock)));
        }
        let held = self.held_by(lease.id).into_iter();
        LeaseView {
            id: lease.id,
            created: lease.created,
            handle: NO_HANDLE,
            ttl_ms: lease.ttl_ms,
            left_ms: lease.deadline_ms.saturating_sub(self.clock_ms),
            client: lease.client.clone(),
            metadata: lease.metadata.clone().into(),
            changed: lease.changed,
            holds: held.map(|(lock, grant)| (lock, grant.token)).collect(),
            waits,
            keys: self.keys_of(lease.id),
        }
    }

    pub(super) fn view_keys(&self) -> Vec<KeyView> {
        let keys = self.keys.iter();
        keys.map(|(name, key)| KeyView {
            key: name.clone(),
            value: key.value.clone().into(),
            created: key.created,
            modified: key.modified,
            version: key.version,
            lease: key.lease,
        })
        .collect()
    }

    /// The weight of the state, computed from scratch.
    pub(super) fn weigh(&self) -> u64 {
        let locks = self.locks.iter().map(|(name, lock)| {
            let grants = lock.grants.iter().map(|grant| 64 + grant.metadata.len());
            96 + name.len() + grants.sum::<usize>()
        });
        let place = |place: &Place| {
            let group = place.group.as_ref().map_or(0, |group| group.len());
            let pool = place.pool.as_ref().map_or(0, |pool| pool.len());
            64 + place.metadata.len() + group + pool + 32 * place.locks.len()
        };
        let lease = |lease: &Lease| {
            let records = lease.records.values().map(|record| 96 + record.names_len());
            128 + lease.client.len() + lease.metadata.len() + records.sum::<usize>()
        };
        let keys = self.keys.iter().map(|(name, key)| 96 + name.len() + key.value.len());
        let places = self.places.values().map(place);
        let leases = self.leases.values().map(lease);
        let records = locks.chain(places).chain(leases).chain(keys).sum::<usize>();
        (records + self.rules.weigh() + self.weigh_drains()) as u64
    }
}
