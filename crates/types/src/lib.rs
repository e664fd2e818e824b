//! Defines the types of the domain that all crates share.
//!
//! Ids, names, tokens, revisions and refusals are distinct types, so that a lease id is never mistaken for a token.
//! They have no behaviour beyond validating values.
#![no_std]

extern crate alloc;

mod access;
mod hosts;
mod id;
mod limit;
mod mode;
mod name;
mod plant;
mod refusal;

pub use access::{Quota, QuotaSetter, QuotaSource, Quotas, Verb, VerbSet};
pub use hosts::OwnHosts;
pub use id::{Epoch, Handle, LeaseId, PlaceNumber, Revision, Term, Token};
pub use limit::{Limit, Limits, RENEW_MAX};
pub use mode::{HolderState, Mode};
pub use name::{InvalidName, Name};
pub use refusal::{Draining, Held, Holder, QuotaOrigin, Refusal, RingLink, SupersededBy};
