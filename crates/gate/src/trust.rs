//! Selects which tokens the store and the proxy accept, and verifies them.

use std::path::Path;
use std::sync::Arc;

use tenure_fence::http::{BareTokens, Unproven, Verify};
use tenure_fence::ticket::Resource;
use tenure_fence::{Claim, LockSlot};

use crate::answer::ErrorAnswer;
use crate::key_source::KeySourceTls;
use crate::keys::VerificationKeys;
use crate::listen::{RunningService, StartError};

/// Receives messages for the operator: one when a problem begins, and one when it ends.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// Which tokens to accept.
#[derive(Clone)]
pub enum Believe {
    /// Every number. That stops late writers, not writers that lie.
    Numbers,
    /// Signed tickets and nothing else.
    Tickets {
        /// Where the cluster's public keys are: `http://host:port` or `https://host:port` of a member, a whole URL, or
        /// a file. The first source that has them is used.
        keys: Vec<String>,
        /// The certificates to use under `https://`.
        tls: Option<KeySourceTls>,
        /// Receives a message when newer keys cannot be read.
        tell: Tell,
    },
    /// What this verifier accepts.
    Other(Arc<dyn Verify>),
}

/// The verifier that is in effect. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Judge {
    Verify(Arc<dyn Verify>),
    Tickets(Arc<VerificationKeys>),
}

impl Believe {
    /// Reads the keys, if any are needed. The set that was used last is kept in the directory `data`.
    pub(crate) fn open(self, data: &Path) -> Result<Judge, StartError> {
        Ok(match self {
            Self::Numbers => Judge::Verify(Arc::new(BareTokens)),
            Self::Other(verify) => Judge::Verify(verify),
            Self::Tickets { keys, tls, tell } => {
                Judge::Tickets(Arc::new(VerificationKeys::open(&keys, tls.as_ref(), data, tell)?))
            }
        })
    }
}

impl Judge {
    /// Returns what a text proves for this lock and slot, and for this client if the request names one.
    pub(crate) async fn claim(
        &self,
        text: &str,
        at: LockSlot<'_>,
        client: Option<&str>,
    ) -> Result<Claim, ErrorAnswer> {
        match self {
            Self::Verify(verify) => {
                verify.verify(text, at).map_err(|unproven| ErrorAnswer::unproven(&unproven))
            }
            Self::Tickets(keys) => {
                let resource = Resource::new(at);
                let resource = client.map_or(resource, |client| resource.holder(client));
                let ticket = keys.check(text, &resource).await;
                ticket.map(|ticket| ticket.claim()).map_err(|forged| ErrorAnswer::forged(&forged))
            }
        }
    }

    /// Prepares to verify a text at once: reads newer keys if the text names an unknown one.
    pub(crate) async fn prepare(&self, text: &str, at: LockSlot<'_>) {
        if let Self::Tickets(keys) = self {
            // The fence decides afterwards what the text proves.
            let _ = keys.check(text, &Resource::new(at)).await;
        }
    }

    /// Keeps the keys up to date for as long as the service runs.
    pub(crate) fn tend(&self, running: &RunningService) {
        if let Self::Tickets(keys) = self {
            running.beside(Arc::clone(keys).tend());
        }
    }
}

impl Verify for Judge {
    fn verify(&self, text: &str, at: LockSlot<'_>) -> Result<Claim, Unproven> {
        match self {
            Self::Verify(verify) => verify.verify(text, at),
            Self::Tickets(keys) => keys.tickets().verify(text, at),
        }
    }
}
