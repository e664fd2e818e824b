//! Verifies that a token was granted by the cluster and not invented.
//!
//! On request a member issues a grant as a *ticket*: a compact JWT, signed with EdDSA (Ed25519) by that member, which
//! names cluster, epoch, incarnation, lock, slot, mode, token, lease, holder and, if the cluster authenticates its
//! clients, the principal. This module verifies it offline, with
//! the set of public keys that every member serves at `/.well-known/jwks.json`. A ticket has no expiry; the fence
//! decides by its token whether it is stale.
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
//! With the feature `http`, [`Tickets`] is a verifier for the layer: `FenceLayer::new(…)?.verify(tickets)`. The layer
//! answers an unproven token with 403.

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

/// What a ticket states about a grant, after its signature was verified.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Ticket {
    /// The cluster that granted the lock.
    pub cluster: String,
    /// How often the cluster was restored.
    pub epoch: Epoch,
    /// The incarnation of the cluster after its last restore.
    pub incarnation: Incarnation,
    /// The lock's name.
    pub lock: String,
    /// The slot of a semaphore, counted from 0.
    pub slot: Option<u32>,
    /// The mode of the hold. The holder of a slot is alone in it.
    pub mode: Mode,
    /// The fencing token.
    pub token: Token,
    /// The id of the holder's lease.
    pub lease: u64,
    /// The holder's client name, as the client gave it.
    pub holder: String,
    /// The principal that the lease belongs to: the identity that the cluster authenticated. `None` if the ticket names
    /// none, as in a cluster without identities.
    pub principal: Option<String>,
    /// The id of the key that signed.
    pub key: String,
}

impl Ticket {
    /// Returns the claim for a fence: token, mode and incarnation, all of them proven.
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
