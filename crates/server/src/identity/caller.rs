//! Holds which principal a caller is, and reports when its credentials no longer hold.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tenure_node::Principal;
use tenure_wire::Failure;
use tokio::time::Sleep;

use super::rules::WaitingPlace;
use super::throttle::{AuthThrottle, Fingerprint};
use super::{Identity, PeerCertificate, Presented, Resolved, rejected};
use crate::os;

/// The longest sleep until credentials expire: after it, the wall clock may have been set.
const CLOCK_CHECK: Duration = Duration::from_secs(30);

/// A caller whose credentials were resolved. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CallerIdentity(Arc<ResolvedCaller>);

struct ResolvedCaller {
    identity: Arc<Identity>,
    presented: Presented,
    resolved: Resolved,
    /// The generation of the access rules by which it was resolved.
    generation: u64,
    /// The list that its waiting work is in.
    list: usize,
}

impl CallerIdentity {
    /// Resolves credentials by the access rules as they are now.
    pub(crate) fn resolve(identity: &Arc<Identity>, presented: Presented) -> Result<Self, Failure> {
        let published = identity.published();
        let resolved = identity.resolve(&published.access, &presented)?;
        let (generation, list) = (published.generation, identity.published.next_list());
        let identity = Arc::clone(identity);
        Ok(Self(Arc::new(ResolvedCaller { identity, presented, resolved, generation, list })))
    }

    /// Its principal.
    pub(crate) fn principal(&self) -> &Principal {
        &self.0.resolved.principal
    }

    /// Waits until the credentials no longer hold: see [`CredentialWatch::ended`].
    #[cfg(test)]
    pub(crate) async fn ended(&self) -> Failure {
        self.watch().ended().await
    }

    /// A watch over the credentials, for work that goes on. It costs nothing until it is waited for.
    pub(crate) fn watch(&self) -> CredentialWatch {
        let ResolvedCaller { generation, resolved, .. } = &*self.0;
        let (checked, expires_ms) = (*generation, resolved.expires_ms);
        CredentialWatch { caller: self.clone(), checked, expires_ms, expiry: None, place: None }
    }

    /// How long its credentials hold at least, unless the rules change or its session is ended; none if for ever.
    fn left(&self, expires_ms: Option<u64>) -> Option<Duration> {
        let ResolvedCaller { identity, presented, .. } = &*self.0;
        // Requests make a session last longer, so it is looked at again then.
        let session = presented
            .session
            .as_ref()
            .map(|session| identity.console.left(session, os::now_us()).unwrap_or(Duration::ZERO));
        expires_ms.map(left).into_iter().chain(session).min()
    }

    /// Whether it was resolved by the present rules and has not expired.
    fn is_current(&self) -> bool {
        let ResolvedCaller { identity, resolved, generation, .. } = &*self.0;
        identity.published.generation() == *generation && !is_over(resolved.expires_ms)
    }
}

/// Watches over the credentials of one caller.
pub(crate) struct CredentialWatch {
    caller: CallerIdentity,
    /// The generation of the rules that the credentials were last compared with.
    checked: u64,
    expires_ms: Option<u64>,
    /// Runs while work waits, if the credentials or their session expire.
    expiry: Option<Pin<Box<Sleep>>>,
    /// Where the work waits to be woken.
    place: Option<WaitingPlace>,
}

impl CredentialWatch {
    /// Waits until the credentials stand for the principal no longer: they were revoked or have expired, the principal
    /// was disabled, identity was enabled and there are none, or their session of the console has ended. Safe to cancel
    /// and to call again.
    pub(crate) async fn ended(&mut self) -> Failure {
        std::future::poll_fn(|context| self.poll_ended(context)).await
    }

    /// Returns the failure if the credentials have ended; otherwise wakes the task when they may have.
    pub(crate) fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<Failure> {
        let ResolvedCaller { identity, list, .. } = &*self.caller.0;
        self.place = Some(identity.published.wait(*list, self.place, context.waker()));
        // After the registration: a change in between has woken nothing.
        if let Err(failure) = self.check() {
            return Poll::Ready(failure);
        }
        loop {
            let expiry = match &mut self.expiry {
                Some(expiry) => expiry,
                none => {
                    let Some(left) = self.caller.left(self.expires_ms) else {
                        return Poll::Pending;
                    };
                    none.insert(Box::pin(tokio::time::sleep(left)))
                }
            };
            ready!(expiry.as_mut().poll(context));
            self.expiry = None;
            if let Err(failure) = self.check() {
                return Poll::Ready(failure);
            }
        }
    }

    /// Returns an error if the credentials have ended. Compares them with the rules only if those are others than the
    /// last time.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        let ResolvedCaller { identity, presented, resolved, .. } = &*self.caller.0;
        if let Some(session) = &presented.session
            && identity.console.left(session, os::now_us()).is_none()
        {
            return Err(session_over());
        }
        if identity.published.generation() != self.checked {
            let published = identity.published();
            let now = identity.resolve(&published.access, presented)?;
            if now.principal != resolved.principal {
                return Err(rejected("the credentials stand for another principal now"));
            }
            if now.expires_ms != self.expires_ms {
                (self.expires_ms, self.expiry) = (now.expires_ms, None);
            }
            self.checked = published.generation;
        }
        if is_over(self.expires_ms) { Err(expired()) } else { Ok(()) }
    }
}

impl Drop for CredentialWatch {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.caller.0.identity.published.leave(place);
        }
    }
}

fn expired() -> Failure {
    rejected("the credentials have expired")
}

fn session_over() -> Failure {
    rejected("the session of the console has ended: sign in again")
}

/// Whether this moment of the wall clock has come.
fn is_over(expires_ms: Option<u64>) -> bool {
    expires_ms.is_some_and(|expires_ms| expires_ms <= os::wall_ms())
}

/// How long to sleep until a moment of the wall clock, at the most.
fn left(moment_ms: u64) -> Duration {
    Duration::from_millis(moment_ms.saturating_sub(os::wall_ms())).min(CLOCK_CHECK)
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
        throttle: &AuthThrottle,
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
        let fingerprint = authorization.map(|value| Fingerprint::of(value.as_bytes()));
        if let Some(fingerprint) = fingerprint {
            throttle.check(os::now_us(), fingerprint)?;
        }
        let presented = Presented::of_request(headers, certificate.cloned())?;
        let caller = CallerIdentity::resolve(identity, presented)?;
        fingerprint.into_iter().for_each(|fingerprint| throttle.succeeded(fingerprint));
        *last = Some(Cached { authorization: authorization.cloned(), caller: caller.clone() });
        Ok(caller)
    }
}
