//! Records which principal owns leases and keys, and how much each one uses.

use alloc::collections::{BTreeMap, BTreeSet};
use core::num::NonZeroU32;
use tenure_types::{Name, Quota, Revision};

use super::slab::SlabIndex;

/// The number of an owner. It may be used again when nothing belongs to its owner any more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct OwnerId(NonZeroU32);

impl OwnerId {
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    pub(crate) fn number(self) -> u32 {
        self.0.get()
    }
}

/// A principal that owns something. A principal that was revoked and created again is another owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) name: Name,
    /// The clock when the principal was revoked. Its leases are not live from then on.
    pub(crate) revoked_ms: Option<u64>,
    pub(crate) used: Usage,
}

/// How much an owner uses. Derived from the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) leases: u64,
    pub(crate) places: u64,
    /// Locks that its leases hold or wait for and, from a level on, of which a grant still keeps other leases out.
    pub(crate) locks: u64,
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
    /// Grants that are over and still keep other leases out.
    pub(crate) ended: u64,
}

/// What a grant that is over counts against the quotas of its owner.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct EndedUsage {
    pub(crate) locks: u64,
    pub(crate) bytes: u64,
}

impl Usage {
    pub(crate) fn of(&self, quota: Quota) -> u64 {
        match quota {
            Quota::Leases => self.leases,
            Quota::Places => self.places,
            Quota::Locks => self.locks,
            Quota::Keys => self.keys,
            Quota::Bytes => self.bytes,
            Quota::Sessions | Quota::Watches | Quota::RequestsPerSecond | Quota::BytesInFlight => 0,
        }
    }

    pub(crate) fn add_key(&mut self, bytes: u64) {
        self.keys += 1;
        self.bytes += bytes;
    }

    pub(crate) fn remove_key(&mut self, bytes: u64) {
        self.keys -= 1;
        self.bytes -= bytes;
    }

    /// Counts a grant that is over and keeps other leases out.
    pub(crate) fn add_ended(&mut self, kept: EndedUsage) {
        self.ended += 1;
        self.locks += kept.locks;
        self.bytes += kept.bytes;
    }

    /// Counts a grant that was over and is gone.
    pub(crate) fn remove_ended(&mut self, kept: EndedUsage) {
        self.ended -= 1;
        self.locks -= kept.locks;
        self.bytes -= kept.bytes;
    }

    fn is_unused(&self) -> bool {
        self.leases == 0 && self.keys == 0 && self.ended == 0
    }
}

/// All owners.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Owners {
    all: BTreeMap<OwnerId, Owner>,
    /// The owners that are not revoked. Derived.
    by_name: BTreeMap<Name, OwnerId>,
    /// The leases of each owner, in the order of their creation. Derived.
    leases: BTreeSet<(OwnerId, Revision, SlabIndex)>,
    /// How many revoked owners have leases. Derived.
    ending: usize,
}

impl Owners {
    pub(crate) fn find(&self, name: &[u8]) -> Option<OwnerId> {
        self.by_name.get(name).copied()
    }

    // Out of line: it is a search in a tree, and many commands have no owner to look up.
    #[inline(never)]
    pub(crate) fn get(&self, id: OwnerId) -> Option<&Owner> {
        self.all.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (OwnerId, &Owner)> {
        self.all.iter().map(|(id, owner)| (*id, owner))
    }

    /// Adds an owner without any use. Returns `false` if its number or name is in use.
    pub(crate) fn insert(&mut self, id: OwnerId, name: Name, revoked_ms: Option<u64>) -> bool {
        let named = revoked_ms.is_none().then(|| self.by_name.insert(name.clone(), id)).flatten();
        let owner = Owner { name, revoked_ms, used: Usage::default() };
        self.all.insert(id, owner).is_none() && named.is_none()
    }

    /// The owner of this name, created if it does not exist.
    pub(crate) fn make(&mut self, name: &Name) -> OwnerId {
        if let Some(id) = self.find(name.as_bytes()) {
            return id;
        }
        let next = self.all.last_key_value().map_or(1, |(last, _)| last.number().wrapping_add(1));
        // After the largest number, the smallest free one. There are fewer owners than numbers.
        let id = OwnerId::from_number(next).unwrap_or_else(|| {
            let free = |number: &u32| self.all.keys().all(|id| id.number() != *number);
            let number = (1..u32::MAX).find(free).expect("there are fewer owners than numbers");
            OwnerId::from_number(number).expect("it is not zero")
        });
        self.insert(id, name.clone(), None);
        id
    }

    /// Whether the leases of an owner have lost their standing.
    #[inline]
    pub(crate) fn is_revoked(&self, id: Option<OwnerId>) -> bool {
        // In the common case nothing is looked up.
        self.ending > 0
            && id.and_then(|id| self.get(id)).is_some_and(|owner| owner.revoked_ms.is_some())
    }

    /// Revokes the owner of this name, if it has leases. Returns its number.
    pub(crate) fn revoke(&mut self, name: &[u8], clock_ms: u64) -> Option<OwnerId> {
        let id = self.find(name)?;
        let owner = self.all.get_mut(&id).filter(|owner| owner.used.leases > 0)?;
        owner.revoked_ms = Some(clock_ms);
        self.by_name.remove(name);
        self.ending += 1;
        Some(id)
    }

    /// Changes what an owner uses. Removes an owner that uses nothing any more.
    #[inline]
    pub(crate) fn count(&mut self, id: Option<OwnerId>, change: impl FnOnce(&mut Usage)) {
        if let Some(id) = id {
            self.count_of(id, change);
        }
    }

    #[inline(never)]
    fn count_of(&mut self, id: OwnerId, change: impl FnOnce(&mut Usage)) {
        let Some(owner) = self.all.get_mut(&id) else { return };
        change(&mut owner.used);
        if owner.used.is_unused()
            && let Some((_, gone)) = self.all.remove_entry(&id)
            && gone.revoked_ms.is_none()
        {
            self.by_name.remove(&gone.name);
        }
    }

    /// Counts a new lease.
    pub(crate) fn add_lease(
        &mut self,
        id: OwnerId,
        created: Revision,
        lease: SlabIndex,
        bytes: u64,
    ) {
        self.leases.insert((id, created, lease));
        let revoked = self.get(id).is_some_and(|owner| owner.revoked_ms.is_some());
        self.count(Some(id), |used| {
            used.leases += 1;
            used.bytes += bytes;
        });
        let first = self.get(id).is_some_and(|owner| owner.used.leases == 1);
        self.ending += usize::from(revoked && first);
    }

    /// Counts a lease that has ended. Returns the clock of the revocation if the owner was revoked and this was its
    /// last lease.
    pub(crate) fn remove_lease(
        &mut self,
        id: OwnerId,
        created: Revision,
        lease: SlabIndex,
        bytes: u64,
    ) -> Option<u64> {
        self.leases.remove(&(id, created, lease));
        let owner = self.get(id)?;
        let last = owner.revoked_ms.filter(|_| owner.used.leases == 1);
        self.ending -= usize::from(last.is_some());
        self.count(Some(id), |used| {
            used.leases -= 1;
            used.bytes -= bytes;
        });
        last
    }

    /// How many revoked owners have leases.
    pub(crate) fn ending(&self) -> usize {
        self.ending
    }

    /// The leases of an owner, in the order of their creation.
    pub(crate) fn leases(&self, id: OwnerId) -> impl Iterator<Item = SlabIndex> {
        let from = (id, Revision(0), SlabIndex::FIRST);
        self.leases.range(from..).take_while(move |(of, _, _)| *of == id).map(|it| it.2)
    }
}
