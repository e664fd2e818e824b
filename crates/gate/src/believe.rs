//! Whose tokens are believed?

use std::path::Path;
use std::sync::Arc;

use tenure_fence::http::{BareTokens, Unproven, Verify};
use tenure_fence::ticket::Resource;
use tenure_fence::{Claim, LockSlot};

use crate::answer::Said;
use crate::keys::Keys;
use crate::listen::{Running, StartError};
use crate::place::Tls;

/// Hears what somebody should know who looks after the process. Said once when something begins, and once when it ends.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// Whose tokens to believe.
#[derive(Clone)]
pub enum Believe {
    /// Every number. That stops those that are late, not those that lie.
    Numbers,
    /// Signed tickets and nothing else.
    Tickets {
        /// Where the cluster's public keys are: `http://host:port` or `https://host:port` of a member, a whole URL, or
        /// a file. The first that has them counts.
        keys: Vec<String>,
        /// Whom to believe under `https://`.
        tls: Option<Tls>,
        /// Hears when no newer keys can be had.
        tell: Tell,
    },
    /// Whoever this one believes.
    Other(Arc<dyn Verify>),
}

/// What decides, once it is known how. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Judge {
    Verify(Arc<dyn Verify>),
    Tickets(Arc<Keys>),
}

impl Believe {
    /// Reads the keys, if there are any to read. What was used last is kept in this directory.
    pub(crate) fn open(self, data: &Path) -> Result<Judge, StartError> {
        Ok(match self {
            Self::Numbers => Judge::Verify(Arc::new(BareTokens)),
            Self::Other(verify) => Judge::Verify(verify),
            Self::Tickets { keys, tls, tell } => {
                Judge::Tickets(Arc::new(Keys::open(&keys, tls.as_ref(), data, tell)?))
            }
        })
    }
}

impl Judge {
    /// What a text proves for this lock and slot, and for this client if it has said who it is.
    pub(crate) async fn claim(
        &self,
        text: &str,
        at: LockSlot<'_>,
        client: Option<&str>,
    ) -> Result<Claim, Said> {
        match self {
            Self::Verify(verify) => {
                verify.verify(text, at).map_err(|unproven| Said::unproven(&unproven))
            }
            Self::Tickets(keys) => {
                let resource = Resource::new(at);
                let resource = client.map_or(resource, |client| resource.holder(client));
                let ticket = keys.check(text, &resource).await;
                ticket.map(|ticket| ticket.claim()).map_err(|forged| Said::forged(&forged))
            }
        }
    }

    /// Makes ready to verify a text at once: newer keys are read if it names one that is not known.
    pub(crate) async fn prepare(&self, text: &str, at: LockSlot<'_>) {
        if let Self::Tickets(keys) = self {
            // What it proves is decided afterwards.
            let _ = keys.check(text, &Resource::new(at)).await;
        }
    }

    /// Brings newer keys for as long as the service runs.
    pub(crate) fn tend(&self, running: &Running) {
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
