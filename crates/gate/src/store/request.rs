//! Defines the requests of a store and their outcomes.

use bytes::Bytes;
use tenure_fence::{Claim, Floor, LockSlot, Refused};

use crate::answer::ErrorAnswer;
use crate::reason::Reason;

/// The size limits of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreLimits {
    /// The longest body of one request.
    pub body_bytes_max: usize,
    /// The longest value, which appends may reach.
    pub value_bytes_max: u64,
    /// The size of all data together, with the overhead of keeping it.
    pub bytes_max: u64,
}

impl Default for StoreLimits {
    fn default() -> Self {
        // A megabyte arrives quickly on any network. Values are read whole, so several must fit in memory.
        Self {
            body_bytes_max: 1024 * 1024,
            value_bytes_max: 8 * 1024 * 1024,
            bytes_max: 4 * 1024 * 1024 * 1024,
        }
    }
}

/// A request, with the lock and the claim it is made under.
#[derive(Clone, Debug)]
pub(super) struct StoreRequest {
    pub(super) lock: String,
    pub(super) slot: Option<u32>,
    pub(super) claim: Claim,
    pub(super) act: StoreAction,
}

#[derive(Clone, Debug)]
pub(super) enum StoreAction {
    Put {
        key: String,
        value: Bytes,
    },
    /// Appends to the value; with `at`, only if the value has this many bytes.
    Append {
        key: String,
        value: Bytes,
        at: Option<u64>,
    },
    Delete {
        key: String,
    },
    /// Reads the value, and raises the floor so that nothing older can write from then on.
    Read {
        key: String,
    },
    /// Raises the floor, so that nothing older can write from then on.
    Raise,
}

impl StoreRequest {
    pub(super) fn at(&self) -> LockSlot<'_> {
        LockSlot { lock: &self.lock, slot: self.slot }
    }

    /// The bytes that the request takes in the queue.
    pub(super) fn weight(&self) -> usize {
        match &self.act {
            StoreAction::Put { value, .. } | StoreAction::Append { value, .. } => value.len(),
            _ => 0,
        }
    }
}

impl StoreAction {
    pub(super) fn key(&self) -> Option<&str> {
        match self {
            Self::Put { key, .. }
            | Self::Append { key, .. }
            | Self::Delete { key }
            | Self::Read { key } => Some(key),
            Self::Raise => None,
        }
    }
}

/// The metadata of a key, without its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KeyInfo {
    pub(super) key: String,
    pub(super) lock: String,
    pub(super) slot: Option<u32>,
    /// The token of the last write.
    pub(super) token: u64,
    pub(super) bytes: u64,
    pub(super) pieces: u32,
}

impl KeyInfo {
    pub(super) fn from_row(key: &str, row: (&str, i64, u64, u64, u32)) -> Self {
        let (lock, slot, token, bytes, pieces) = row;
        // A negative number stands for no slot.
        Self {
            key: key.to_owned(),
            lock: lock.to_owned(),
            slot: slot.try_into().ok(),
            token,
            bytes,
            pieces,
        }
    }

    pub(super) fn at(&self) -> LockSlot<'_> {
        LockSlot { lock: &self.lock, slot: self.slot }
    }
}

/// A key and its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KeyRecord {
    pub(super) about: KeyInfo,
    pub(super) value: Bytes,
}

/// What was done. It is durable, and so is the floor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum StoreOutcome {
    Put {
        bytes: u64,
    },
    /// The length of the value before and after.
    Appended {
        at: u64,
        bytes: u64,
    },
    /// Whether the key existed.
    Deleted(bool),
    Read(Option<KeyRecord>),
    Raised(Floor),
}

/// Why nothing was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum StoreRefusal {
    Refused(Refused),
    /// The key belongs to another lock, whose tokens cannot be compared with ours.
    OtherLock {
        lock: String,
        slot: Option<u32>,
    },
    Compare {
        at: u64,
        bytes: u64,
    },
    ValueTooLong {
        bytes: u64,
        most: u64,
    },
    Full {
        most: u64,
    },
}

impl From<StoreRefusal> for ErrorAnswer {
    fn from(no: StoreRefusal) -> Self {
        match no {
            StoreRefusal::Refused(refused) => refused.into(),
            StoreRefusal::OtherLock { lock, slot } => {
                let at = LockSlot { lock: &lock, slot };
                Self::new(Reason::OtherLock, format!("the key belongs to lock {at}"))
            }
            StoreRefusal::Compare { at, bytes } => {
                let message = format!("the value has {bytes} bytes, not {at}");
                Self { bytes: Some(bytes), ..Self::new(Reason::CompareFailed, message) }
            }
            StoreRefusal::ValueTooLong { bytes, most } => {
                let message = format!("the value would have {bytes} bytes; {most} are allowed");
                Self::new(Reason::ValueTooLong, message)
            }
            StoreRefusal::Full { most } => Self::new(
                Reason::NoSpace,
                format!("the store may keep {most} bytes and has no room for more"),
            ),
        }
    }
}
