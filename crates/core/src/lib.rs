//! Who holds, who waits, and when does a lease end?
//!
//! The state machine of Tenure as a pure function of the log: no clock, no randomness, no I/O, no
//! hash order. The same entries give byte-identical state on every member and every replay.
//! `docs/internals/machine.md` has the rules, exactly.
//!
//! Start reading at [`Machine::apply`].
#![no_std]

extern crate alloc;

#[macro_use]
mod plant;

pub mod codec;
mod command;
pub mod event;
mod invariant;
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
    //! Planted bugs, to show that the checks would find them.
    pub use crate::plant::{ALL, select};
}
pub use question::{
    Chain, ChainStep, Compacted, Events, Explained, Filter, Freed, Most, Record, Recorded, Records,
    Stats,
};
pub use restore::Stopped;
