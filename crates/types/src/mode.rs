//! In which ways can a lock be held?

/// How a lock is asked for and held.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    /// One holder, nobody else.
    Exclusive,
    /// Together with other shared holders, never with an exclusive one.
    Shared,
    /// One of `of` numbered slots of a semaphore. All who ask must name the same `of`.
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

/// Whether a grant is still its holder's, or only keeps others out for a while.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HolderState {
    /// The lease has the lock.
    Held,
    /// The lock was taken away; nobody may start before the holder confirms that it has stopped,
    /// or its lease would have ended.
    Cooling {
        /// For how much longer at most, by the machine's clock.
        left_ms: u64,
    },
    /// The lock-delay that follows an end the holder did not ask for.
    Delayed {
        /// For how much longer, by the machine's clock.
        left_ms: u64,
    },
}
