//! Defines the modes in which a lock is held and the states of a grant.

/// The mode in which a lock is requested and held.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    /// Held alone.
    Exclusive,
    /// Held together with other shared holders, never with an exclusive one.
    Shared,
    /// One or more of `of` numbered slots of a semaphore. Unless an operator has set the number of slots, all requests
    /// must name the same `of`.
    Slot {
        /// How many slots the semaphore has.
        of: u32,
        /// How many of them are requested together. A grant is of one slot.
        take: u32,
    },
}

impl Mode {
    /// One of `of` slots.
    pub const fn slot(of: u32) -> Mode {
        Mode::Slot { of, take: 1 }
    }

    /// How many slots the lock has in this mode; `None` for exclusive and shared ones.
    pub fn slots(self) -> Option<u32> {
        match self {
            Mode::Slot { of, .. } => Some(of),
            Mode::Exclusive | Mode::Shared => None,
        }
    }

    /// How many grants a request in this mode becomes: one for each slot, or one.
    pub fn grants(self) -> u32 {
        match self {
            Mode::Slot { take, .. } => take,
            Mode::Exclusive | Mode::Shared => 1,
        }
    }

    /// The same mode, of a semaphore with this number of slots.
    #[must_use]
    pub fn resized(self, slots: u32) -> Mode {
        match self {
            Mode::Slot { take, .. } => Mode::Slot { of: slots, take },
            Mode::Exclusive | Mode::Shared => self,
        }
    }

    /// The mode of one grant of a request in this mode.
    #[must_use]
    pub fn of_grant(self) -> Mode {
        match self {
            Mode::Slot { of, .. } => Mode::slot(of),
            Mode::Exclusive | Mode::Shared => self,
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
