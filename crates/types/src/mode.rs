//! Defines the modes in which a lock is held and the states of a grant.

/// The mode in which a lock is requested and held.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    /// Held alone.
    Exclusive,
    /// Held together with other shared holders, never with an exclusive one.
    Shared,
    /// One of `of` numbered slots of a semaphore. All requests must name the same `of`.
    Slot {
        /// How many slots the semaphore has.
        of: u32,
    },
}

impl Mode {
    /// How many slots the lock has in this mode; `None` for exclusive and shared ones.
    pub fn slots(self) -> Option<u32> {
        match self {
            Mode::Slot { of } => Some(of),
            Mode::Exclusive | Mode::Shared => None,
        }
    }
}

/// Whether a lease still holds a grant, or the grant only keeps other leases out for a while.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HolderState {
    /// The lease holds the lock.
    Held,
    /// The lock was taken away. It is not granted again before the holder confirms that it has stopped or its lease
    /// would have ended.
    Cooling {
        /// The longest remaining time, by the machine's clock.
        left_ms: u64,
    },
    /// The lock-delay that follows an end the holder did not ask for.
    Delayed {
        /// The remaining time, by the machine's clock.
        left_ms: u64,
    },
    /// No lease holds the lock, and its min hold since the grant is not over.
    Resting {
        /// The remaining time, by the machine's clock.
        left_ms: u64,
    },
}
