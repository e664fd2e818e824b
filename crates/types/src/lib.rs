//! Which words does every part of Tenure share?
//!
//! Ids, names, tokens, revisions and refusals, as distinct types, so that a lease id is never taken
//! for a token. Nothing here has behaviour beyond saying whether a value is possible.
#![no_std]

extern crate alloc;

mod id;
mod limit;
mod mode;
mod name;
mod refusal;

pub use id::{Epoch, Handle, LeaseId, PlaceNumber, Revision, Term, Token};
pub use limit::{Limit, Limits};
pub use mode::{HolderState, Mode};
pub use name::{InvalidName, Name};
pub use refusal::{Held, Holder, Refusal, RingLink};
