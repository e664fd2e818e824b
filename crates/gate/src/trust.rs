//! Selects which tokens the store and the proxy accept, and verifies them.

use std::path::Path;
use std::sync::Arc;

use tenure_fence::http::{BareTokens, Unproven, Verify};
use tenure_fence::ticket::{Forged, Resource, Ticket};
use tenure_fence::{Claim, LockSlot};

use crate::answer::ErrorAnswer;
use crate::key_source::KeySourceTls;
use crate::keys::VerificationKeys;
use crate::listen::{RunningService, StartError};

/// Receives messages for the operator: one when a problem begins, and one when it ends.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// Which tokens to accept.
#[derive(Clone)]
pub enum TokenPolicy {
    /// Every number. That stops late writers, not writers that lie.
    Numbers,
    /// Signed tickets and nothing else.
    Tickets {
        /// Where the cluster's public keys are: `http://host:port` or `https://host:port` of a member, a whole URL, or
        /// a file. The first source that has them is used.
        keys: Vec<String>,
        /// The certificates to use under `https://`.
        tls: Option<KeySourceTls>,
        /// The principals whose tickets are accepted; empty for all of them, and for tickets without one.
        principals: Vec<String>,
        /// Receives a message when newer keys cannot be read.
        tell: Tell,
    },
    /// What this verifier accepts.
    Other(Arc<dyn Verify>),
}

/// The verifier that is in effect. Cheap to clone.
#[derive(Clone)]
pub(crate) enum TokenVerifier {
    Verify {
        verify: Arc<dyn Verify>,
        /// Whether every number is accepted, so that a token proves nothing about its sender.
        believes_numbers: bool,
    },
    Tickets(Arc<VerificationKeys>, Arc<[String]>),
}

impl TokenPolicy {
    /// Reads the keys, if any are needed. The set that was used last is kept in the directory `data`.
    pub(crate) fn open(self, data: &Path) -> Result<TokenVerifier, StartError> {
        Ok(match self {
            Self::Numbers => {
                TokenVerifier::Verify { verify: Arc::new(BareTokens), believes_numbers: true }
            }
            Self::Other(verify) => TokenVerifier::Verify { verify, believes_numbers: false },
            Self::Tickets { keys, tls, principals, tell } => {
                let keys = VerificationKeys::open(&keys, tls.as_ref(), data, tell)?;
                TokenVerifier::Tickets(Arc::new(keys), principals.into())
            }
        })
    }
}

impl TokenVerifier {
    /// Returns what a text proves for this lock and slot, and for this client if the request names one.
    pub(crate) async fn claim(
        &self,
        text: &str,
        at: LockSlot<'_>,
        client: Option<&str>,
    ) -> Result<Claim, ErrorAnswer> {
        match self {
            Self::Verify { verify, .. } => {
                verify.verify(text, at).map_err(|unproven| ErrorAnswer::unproven(&unproven))
            }
            Self::Tickets(keys, principals) => {
                let resource = Resource::new(at);
                let resource = client.map_or(resource, |client| resource.holder(client));
                let ticket = keys.check(text, &resource).await;
                let ticket = ticket.and_then(|ticket| among(ticket, principals));
                ticket.map(|ticket| ticket.claim()).map_err(|forged| ErrorAnswer::forged(&forged))
            }
        }
    }

    /// Prepares to verify a text at once: reads newer keys if the text names an unknown one. Returns the principal
    /// that the text proves.
    pub(crate) async fn prepare(&self, text: &str, at: LockSlot<'_>) -> Option<String> {
        let Self::Tickets(keys, principals) = self else { return None };
        // The fence decides afterwards whether the text is accepted.
        let ticket = keys.check(text, &Resource::new(at)).await;
        ticket.and_then(|ticket| among(ticket, principals)).ok()?.principal.clone()
    }

    /// Whether every number is accepted as a token.
    pub(crate) fn believes_numbers(&self) -> bool {
        matches!(self, Self::Verify { believes_numbers: true, .. })
    }

    /// Keeps the keys up to date for as long as the service runs.
    pub(crate) fn tend(&self, running: &RunningService) {
        if let Self::Tickets(keys, _) = self {
            running.beside(Arc::clone(keys).tend());
        }
    }
}

impl Verify for TokenVerifier {
    fn verify(&self, text: &str, at: LockSlot<'_>) -> Result<Claim, Unproven> {
        match self {
            Self::Verify { verify, .. } => verify.verify(text, at),
            Self::Tickets(keys, principals) => {
                let ticket = keys.tickets().check(text, &Resource::new(at));
                let ticket = ticket.and_then(|ticket| among(ticket, principals));
                let unproven = |forged: Forged| format!("{}: {forged}", forged.reason());
                ticket
                    .map(|ticket| ticket.claim())
                    .map_err(|forged| Unproven::Forged(unproven(forged)))
            }
        }
    }
}

/// Accepts a ticket whose principal is one of these, and every ticket if there are none.
fn among(ticket: Arc<Ticket>, principals: &[String]) -> Result<Arc<Ticket>, Forged> {
    let is = |wanted: &String| ticket.principal.as_ref() == Some(wanted);
    if principals.is_empty() || principals.iter().any(is) {
        return Ok(ticket);
    }
    let wanted = principals.join("`, `");
    Err(Forged::OtherPrincipal { said: ticket.principal.clone(), wanted })
}
