//! Holds which principal a caller is, and reports when its credentials no longer hold.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tenure_node::Principal;
use tenure_wire::Failure;
use tokio::sync::watch;

use super::{Identity, PeerCertificate, Presented, Published, Resolved, rejected};
use crate::os;

/// The longest sleep until credentials expire: after it, the wall clock may have been set.
const CLOCK_CHECK: Duration = Duration::from_secs(30);

/// A caller whose credentials were resolved. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CallerIdentity(Arc<Inner>);

struct Inner {
    identity: Arc<Identity>,
    presented: Presented,
    resolved: Resolved,
    /// The generation of the access rules by which it was resolved.
    generation: u64,
}

impl CallerIdentity {
    /// Resolves credentials by the access rules as they are now.
    pub(crate) fn resolve(identity: &Arc<Identity>, presented: Presented) -> Result<Self, Failure> {
        let published = identity.published();
        let resolved = identity.resolve(&published.access, &presented)?;
        let (identity, generation) = (Arc::clone(identity), published.generation);
        Ok(Self(Arc::new(Inner { identity, presented, resolved, generation })))
    }

    /// Its principal.
    pub(crate) fn principal(&self) -> &Principal {
        &self.0.resolved.principal
    }

    /// Waits until the credentials no longer hold: see [`CredentialWatch::ended`].
    pub(crate) async fn ended(&self) -> Failure {
        self.watch().ended().await
    }

    /// A watch over the credentials, for work that goes on.
    pub(crate) fn watch(&self) -> CredentialWatch {
        let rules = self.0.identity.published.subscribe();
        let unchecked = rules.borrow().generation != self.0.generation;
        CredentialWatch {
            caller: self.clone(),
            rules,
            unchecked,
            expires_ms: self.0.resolved.expires_ms,
        }
    }

    /// Whether it was resolved by the present rules and has not expired.
    fn is_current(&self) -> bool {
        let Inner { identity, resolved, generation, .. } = &*self.0;
        let expired = resolved.expires_ms.is_some_and(|expires_ms| expires_ms <= os::wall_ms());
        !expired && identity.published.borrow().generation == *generation
    }
}

/// Watches over the credentials of one caller.
pub(crate) struct CredentialWatch {
    caller: CallerIdentity,
    rules: watch::Receiver<Published>,
    /// Whether the rules have changed since the credentials were last compared with them.
    unchecked: bool,
    expires_ms: Option<u64>,
}

impl CredentialWatch {
    /// Waits until the credentials stand for the principal no longer: they were revoked or have expired, the principal
    /// was disabled, or identity was enabled and there are none. Safe to cancel and to call again.
    pub(crate) async fn ended(&mut self) -> Failure {
        loop {
            // The sender lives as long as the identity that the caller refers to.
            if self.unchecked || self.rules.has_changed().unwrap_or(false) {
                self.unchecked = true;
                if let Err(failure) = self.check() {
                    return failure;
                }
                self.unchecked = false;
            }
            let expires_ms = self.expires_ms;
            let expiry = async {
                match expires_ms {
                    None => std::future::pending().await,
                    Some(expires_ms) => until(expires_ms).await,
                }
            };
            tokio::select! {
                _ = self.rules.changed() => self.unchecked = true,
                () = expiry => return rejected("the credentials have expired"),
            }
        }
    }

    /// Compares the credentials with the rules as they are now.
    fn check(&mut self) -> Result<(), Failure> {
        let access = Arc::clone(&self.rules.borrow_and_update().access);
        let Inner { identity, presented, resolved, .. } = &*self.caller.0;
        let now = identity.resolve(&access, presented)?;
        if now.principal != resolved.principal {
            return Err(rejected("the credentials stand for another principal now"));
        }
        self.expires_ms = now.expires_ms;
        Ok(())
    }
}

/// Waits until the wall clock has passed a moment.
async fn until(moment_ms: u64) {
    loop {
        let left = Duration::from_millis(moment_ms.saturating_sub(os::wall_ms()));
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(CLOCK_CHECK)).await;
    }
}

/// The caller of the last request of a connection. Most connections have one caller, whose credentials need not be
/// hashed and verified again for each request.
#[derive(Clone, Default)]
pub(crate) struct IdentityCache(Arc<Mutex<Option<Cached>>>);

struct Cached {
    /// The value of the authorization header.
    authorization: Option<http::HeaderValue>,
    caller: CallerIdentity,
}

impl IdentityCache {
    /// The caller of a request.
    pub(crate) fn resolve(
        &self,
        identity: &Arc<Identity>,
        headers: &HeaderMap,
        certificate: Option<&PeerCertificate>,
    ) -> Result<CallerIdentity, Failure> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (authorization, is_only) = (values.next(), values.next().is_none());
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last
            && is_only
            && last.authorization.as_ref() == authorization
            && last.caller.is_current()
        {
            return Ok(last.caller.clone());
        }
        let presented = Presented::of_request(headers, certificate.cloned())?;
        let caller = CallerIdentity::resolve(identity, presented)?;
        *last = Some(Cached { authorization: authorization.cloned(), caller: caller.clone() });
        Ok(caller)
    }
}
