//! Resolves the credentials of callers to principals, for all APIs.
//!
//! The event loop publishes the replicated access rules after every change. The APIs resolve the credentials of each
//! request against the published copy, by the wall clock, and end work in progress once its credentials no longer hold:
//!
//! ```text
//! event loop ─► Identity::publish ─► published rules ─► Identity::resolve ◄─ Presented ◄─ headers, certificate
//!                                                   └─► CallerIdentity::ended ─► sessions, streams, waiting calls
//! ```

mod api_key;
mod caller;
pub(crate) mod console;
mod decide;
mod local_key;
mod marker;
mod presented;
mod rules;
mod throttle;

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderValue};
use rustls::pki_types::CertificateDer;
use tenure_core::access::Access;
use tenure_node::Principal;
use tenure_wire::Failure;

pub use api_key::NewApiKey;
use api_key::PresentedKey;
pub(crate) use caller::{CallerIdentity, CredentialWatch, IdentityCache};
pub use console::ConsoleMode;
use console::ConsoleSessions;
use marker::IdentityMarker;
pub(crate) use presented::{Bearer, PeerCertificate, Presented, rejected};
use rules::{Published, PublishedRules};
pub(crate) use throttle::{AuthThrottle, Fingerprint};

use crate::credentials::{MissingKeys, TrustedIssuers, certificate};
use crate::os;

/// The access rules as this member has applied them, and everything else with which the member compares credentials.
#[derive(Default)]
pub(crate) struct Identity {
    published: PublishedRules,
    /// The hash of the local administrator's key; none inside a test without a disk.
    local: OnceLock<[u8; 32]>,
    marker: IdentityMarker,
    /// The issuers of bearer tokens; none inside a test without a network.
    issuers: OnceLock<TrustedIssuers>,
    /// Set if the settings of this member require credentials of every caller.
    known_only: OnceLock<()>,
    console: ConsoleSessions,
}

/// What credentials stand for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Resolved {
    pub(crate) principal: Principal,
    /// When the credentials expire, by the wall clock.
    pub(crate) expires_ms: Option<u64>,
}

impl Identity {
    /// Publishes the access rules if they differ from the published ones. The event loop calls it before it answers the
    /// commands that changed them.
    pub(crate) fn publish(&self, access: &Arc<Access>) {
        if let Some(issuers) = self.issuers.get()
            && !Arc::ptr_eq(&self.published.read().access, access)
        {
            // Replaced before the rules are published, so that a caller that sees the new rules sees their issuers.
            issuers.replace(access.issuers());
        }
        if self.published.publish(access) {
            self.marker.follow(access.is_enabled());
        }
    }

    /// Reports that the member has applied everything that was in its log at the start.
    pub(crate) fn caught_up(&self) {
        if self.marker.is_held() {
            self.marker.release(self.access().is_enabled());
        }
    }

    /// Uses the data directory from now on: to remember that identity is enabled, and for the key of the local
    /// administrator, which it replaces.
    pub(crate) fn open(&self, data: &Path) -> io::Result<()> {
        self.marker.open(data)?;
        let hash = local_key::write(data)?;
        self.local.set(hash).map_err(|_| io::Error::other("the data directory is opened twice"))
    }

    /// How the console is served, and its sessions.
    pub(crate) fn console(&self) -> &ConsoleSessions {
        &self.console
    }

    /// Ends the session of the console that a request belongs to, with its streams and waiting calls. Returns the value
    /// of the header that removes its cookie.
    pub(crate) fn end_session(&self, headers: &HeaderMap) -> HeaderValue {
        let cookie = self.console.end(headers);
        self.published.wake();
        cookie
    }

    /// Whether callers need credentials by these rules.
    pub(crate) fn is_required(&self, access: &Access) -> bool {
        access.is_enabled() || self.marker.is_held() || self.known_only.get().is_some()
    }

    /// The access rules as last published.
    pub(crate) fn access(&self) -> Arc<Access> {
        Arc::clone(&self.published.read().access)
    }

    /// The generation of the published rules. The rules may be newer already when the caller reads them.
    pub(crate) fn generation(&self) -> u64 {
        self.published.generation()
    }

    /// The published rules and their generation.
    pub(crate) fn published(&self) -> Published {
        self.published.read().clone()
    }

    /// The number of tasks that are woken when the rules change.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.published.waiting()
    }

    /// The principal that credentials stand for, by these rules and the wall clock.
    pub(crate) fn resolve(
        &self,
        access: &Access,
        presented: &Presented,
    ) -> Result<Resolved, Failure> {
        let anyone = || Resolved { principal: Principal::anyone(), expires_ms: None };
        match (&presented.bearer, &presented.certificate) {
            (Some(Bearer::ApiKey(key)), _) => self.by_api_key(access, key),
            (Some(Bearer::Token(token)), _) => self.by_token(access, token),
            (None, Some(certificate)) => match Self::by_certificate(access, certificate) {
                Ok(Some(resolved)) => Ok(resolved),
                Ok(None) if self.is_required(access) => {
                    Err(rejected("no certificate rule matches the client certificate"))
                }
                Err(failure) if self.is_required(access) => Err(failure),
                // Without identity a certificate only admits the connection.
                Ok(None) | Err(_) => Ok(anyone()),
            },
            (None, None) if self.is_required(access) => Err(Failure::Unauthenticated),
            (None, None) => Ok(anyone()),
        }
    }

    fn by_api_key(&self, access: &Access, key: &PresentedKey) -> Result<Resolved, Failure> {
        if &*key.id == local_key::ID {
            let local = self.local.get().is_some_and(|hash| key.matches(hash));
            let resolved = Resolved { principal: Principal::member(), expires_ms: None };
            return local.then_some(resolved).ok_or_else(unknown_key);
        }
        let found = access.find_credential(&key.id);
        let (name, credential) = found
            .filter(|(_, credential)| key.matches(&credential.hash))
            .ok_or_else(unknown_key)?;
        if credential.expires_ms.is_some_and(|expires_ms| expires_ms <= os::wall_ms()) {
            return Err(rejected("the API key has expired"));
        }
        active(access, name.as_str(), credential.expires_ms)
    }

    /// Refuses callers without credentials from now on, also while identity is disabled.
    pub(crate) fn admit_known_only(&self) {
        let _ = self.known_only.set(());
    }

    /// Verifies bearer tokens with the keys of these issuers from now on.
    pub(crate) fn verify_tokens(&self, issuers: TrustedIssuers) {
        issuers.replace(self.access().issuers());
        let _ = self.issuers.set(issuers);
    }

    /// The keys to wait for before these credentials can be verified, if there are any.
    pub(crate) fn missing_keys(&self, presented: &Presented) -> Option<MissingKeys> {
        match &presented.bearer {
            Some(Bearer::Token(token)) => self.issuers.get()?.missing_keys(token),
            Some(Bearer::ApiKey(_)) | None => None,
        }
    }

    /// The principal of a bearer token.
    fn by_token(&self, access: &Access, token: &str) -> Result<Resolved, Failure> {
        let issuers = self.issuers.get();
        let issuers =
            issuers.ok_or_else(|| rejected("bearer tokens of issuers are not accepted"))?;
        let verified = issuers.verify(token, os::wall_ms() / 1_000);
        let verified = verified.map_err(|error| rejected(error.problem()))?;
        let expires_ms = verified.expires_s.saturating_mul(1_000);
        active(access, verified.principal.as_str(), Some(expires_ms))
    }

    /// The principal of a client certificate; none if no rule matches it.
    fn by_certificate(
        access: &Access,
        certificate: &PeerCertificate,
    ) -> Result<Option<Resolved>, Failure> {
        let der = CertificateDer::from(certificate.der());
        let name = certificate::principal(access.certificate_rules(), &der);
        name.map(|name| active(access, name.as_str(), None)).transpose()
    }
}

/// The principal of this name, if it exists and is enabled.
fn active(access: &Access, name: &str, expires_ms: Option<u64>) -> Result<Resolved, Failure> {
    let record = access.principal(name).ok_or_else(|| rejected("the principal does not exist"))?;
    if !record.enabled {
        return Err(rejected("the principal is disabled"));
    }
    // The name of a record is never one of the members' own.
    let principal =
        Principal::named(name).ok_or_else(|| rejected("the principal does not exist"))?;
    Ok(Resolved { principal, expires_ms })
}

/// One failure for a key that does not exist and for a wrong secret.
fn unknown_key() -> Failure {
    rejected("the API key is unknown or was revoked")
}

/// Bytes as lowercase hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
