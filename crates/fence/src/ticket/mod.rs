//! How does a resource know that a token was given, and not invented?
//!
//! On request a grant comes as a *ticket*: a compact JWT, signed with EdDSA (Ed25519) by the member that was asked,
//! naming cluster, epoch, incarnation, lock, slot, mode, token, lease and holder. It is verified here, offline, with
//! the set of public keys that every member serves at `/.well-known/jwks.json`. It has no expiry: whether it is stale
//! is the token's business.
//!
//! ```
//! # fn example(jwks: &str, from_the_request: &str) -> Result<(), Box<dyn std::error::Error>> {
//! use tenure_fence::ticket::{KeySet, Resource, Tickets};
//! let tickets = Tickets::new(KeySet::parse(jwks)?);
//! let ticket = tickets.check(from_the_request, &Resource::new("ledger").exclusive())?;
//! let claim = ticket.claim();                                 // for any fence: floor.admit(claim, …)
//! # Ok(()) }
//! ```
//!
//! With the feature `http`, [`Tickets`] says for a layer whom to believe: `FenceLayer::new(…)?.verify(tickets)`. What
//! is not proven is answered 403.

mod cache;
mod forged;
#[cfg(feature = "http")]
mod layer;
mod read;
mod set;
#[cfg(test)]
mod tests;
mod verify;

pub use forged::Forged;
pub use set::{BadSet, KeySet};
pub use verify::{Resource, Tickets};

use tenure_types::{Epoch, Token};

use crate::claim::{Claim, Incarnation, Mode};

/// The longest ticket that is read: the longest names that a lock and a client can have, with room to spare.
pub const TICKET_BYTES_MAX: usize = 4_096;

/// What a ticket says of a grant, once its signature is known to be good.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Ticket {
    /// The cluster that gave the lock.
    pub cluster: String,
    /// How often it was restored.
    pub epoch: Epoch,
    /// Which restore made it.
    pub incarnation: Incarnation,
    /// The lock.
    pub lock: String,
    /// Which slot of a semaphore, counted from 0.
    pub slot: Option<u32>,
    /// How it is held. The holder of a slot is alone in it.
    pub mode: Mode,
    /// The fencing token.
    pub token: Token,
    /// The lease that holds.
    pub lease: u64,
    /// The client of the lease, by the name it gave.
    pub holder: String,
    /// The key that signed.
    pub key: String,
}

impl Ticket {
    /// What a fence is to be told: token, mode and incarnation, all of them proven.
    ///
    /// ```
    /// # fn example(ticket: &tenure_fence::ticket::Ticket) -> Result<(), tenure_fence::Refused> {
    /// use tenure_fence::{Floor, Touch};
    /// let floor = Floor::default().admit(ticket.claim(), Touch::Write)?;
    /// # Ok(()) }
    /// ```
    pub fn claim(&self) -> Claim {
        let claim = Claim::new(self.token).incarnation(self.incarnation);
        if self.mode == Mode::Shared { claim.shared() } else { claim }
    }
}
