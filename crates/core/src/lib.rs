//! Implements the Tenure state machine: locks, queues and leases as a pure function of the log.
//!
//! The machine uses no clock, no randomness, no I/O and no hash order. The same entries give byte-identical state on
//! every member and every replay. `docs/internals/machine.md` has the exact rules.
//!
//! Start reading at [`Machine::apply`].
#![no_std]

extern crate alloc;

#[macro_use]
mod plant;

pub mod access;
pub mod codec;
mod command;
pub mod event;
mod invariant;
mod level;
mod machine;
pub mod outcome;
mod question;
pub mod request;
mod restore;
mod state;
pub mod view;

pub use codec::{BadSnapshot, Frozen, SnapshotReader};
pub use invariant::Violation;
pub use machine::{LEVEL_MAX, Machine};
#[cfg(mutants)]
pub mod mutants {
    //! Planted bugs, which show that the checks detect them.
    pub use crate::plant::{ALL, select, select_by_name};
}
pub use question::{
    Chain, ChainStep, Compacted, Events, Explained, Explanation, Filter, Freed, Most, Recorded,
    RevisionRecord, RevisionRecords, SortedLocks, Stats,
};
pub use restore::StoppedFor;
