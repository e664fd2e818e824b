//! How does an HTTP service demand tickets?

use std::sync::Arc;

use super::{Forged, Resource, Tickets};
use crate::claim::{Claim, LockSlot};
use crate::http::{Unproven, Verify};

impl Verify for Tickets {
    /// Only a ticket proves anything here: a bare number is refused with 403 as well.
    fn verify(&self, text: &str, at: LockSlot<'_>) -> Result<Claim, Unproven> {
        let ticket = self.check(text, &Resource::new(at)).map_err(unproven)?;
        Ok(ticket.claim())
    }
}

/// Shared, so that somebody else can bring newer keys.
impl Verify for Arc<Tickets> {
    fn verify(&self, text: &str, at: LockSlot<'_>) -> Result<Claim, Unproven> {
        (**self).verify(text, at)
    }
}

fn unproven(forged: Forged) -> Unproven {
    Unproven::Forged(format!("{}: {forged}", forged.reason()))
}
