//! Counts the records of requests with an idempotency key, for each owner and in total.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use tenure_types::LeaseId;

use super::record::KeyRequest;

/// The owner of a record: the one whose share it takes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum RecordOwner {
    /// A principal; the empty one stands for all callers without principal and lease.
    Principal(Box<str>),
    /// The lease that a caller without a principal named.
    Lease(LeaseId),
}

impl RecordOwner {
    pub(crate) fn new(principal: &str, lease: Option<LeaseId>) -> Self {
        lease.map_or_else(|| Self::Principal(Box::from(principal)), Self::Lease)
    }
}

/// A number of records and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RecordCount {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// How many records each owner has. Derived from the records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RecordShares {
    total: RecordCount,
    owners: BTreeMap<RecordOwner, RecordCount>,
}

impl RecordShares {
    /// The records of all owners.
    pub(crate) fn total(&self) -> RecordCount {
        self.total
    }

    /// The records of one owner.
    pub(crate) fn of(&self, owner: &RecordOwner) -> RecordCount {
        self.owners.get(owner).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, record: &KeyRequest) {
        for count in [&mut self.total, self.owners.entry(record.owner()).or_default()] {
            count.records += 1;
            count.bytes += record.weight();
        }
    }

    pub(crate) fn remove(&mut self, record: &KeyRequest) {
        let owner = record.owner();
        let left = self.owners.get_mut(&owner).expect("S7: a record is counted for its owner");
        for count in [&mut self.total, left] {
            count.records -= 1;
            count.bytes -= record.weight();
        }
        if self.of(&owner).records == 0 {
            self.owners.remove(&owner);
        }
    }
}
