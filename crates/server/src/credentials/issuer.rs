//! Holds the issuers that the cluster trusts, each with its keys, and verifies their tokens.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use tenure_core::access::{Issuer, IssuerKeys, OwnedIssuerKeys};
use tenure_types::Name;
use tokio::runtime::Handle;

use super::jwks::KeySet;
use super::jwks_url::JwksUrl;
pub use super::jwks_url::ServerAuthority;
use super::jwt::{TokenError, UnverifiedToken, VerifiedToken};
use super::refresh::{RefreshTimes, RefreshedKeys};

/// The trusted issuers of the newest access rules.
#[derive(Clone)]
pub(crate) struct TrustedIssuers {
    inner: Arc<IssuersShared>,
}

struct IssuersShared {
    runtime: Handle,
    authority: ServerAuthority,
    issuers: RwLock<BTreeMap<Name, Arc<TrustedIssuer>>>,
}

struct TrustedIssuer {
    record: Issuer,
    keys: IssuerKeySource,
}

enum IssuerKeySource {
    /// The document in the access rules.
    Document(Arc<KeySet>),
    /// An address, which this member reads on its own.
    Address(RefreshedKeys),
    /// Neither of them can be used.
    Unusable,
}

/// The keys of an issuer that a token needs.
pub(crate) struct MissingKeys(Arc<TrustedIssuer>);

/// Checks what an administrator says about the keys of an issuer. Returns what is wrong with it.
pub(crate) fn check_keys(keys: IssuerKeys<'_>) -> Result<(), &'static str> {
    match keys {
        IssuerKeys::Jwks(document) => KeySet::parse(document).map(drop),
        IssuerKeys::Url(url) => JwksUrl::parse(url).map(drop),
    }
}

impl TrustedIssuers {
    /// No issuer yet. Keys at addresses are read on this runtime, from servers with certificates of this authority.
    pub(crate) fn new(runtime: Handle, authority: ServerAuthority) -> Self {
        Self { inner: Arc::new(IssuersShared { runtime, authority, issuers: RwLock::default() }) }
    }

    /// Trusts these issuers and no others. Keys of issuers that have not changed are kept.
    pub(crate) fn replace<'a>(&self, records: impl Iterator<Item = (&'a Name, &'a Issuer)>) {
        let mut issuers = self.inner.issuers.write().unwrap_or_else(PoisonError::into_inner);
        let next = records.map(|(name, record)| {
            let kept = issuers.get(name).filter(|known| known.record == *record);
            let trusted = kept.map_or_else(|| Arc::new(self.trust(name, record)), Arc::clone);
            (name.clone(), trusted)
        });
        *issuers = next.collect();
    }

    fn trust(&self, name: &Name, record: &Issuer) -> TrustedIssuer {
        let unusable = |why: &str| {
            tracing::warn!(issuer = name.as_str(), why, "the keys of an issuer cannot be used");
            IssuerKeySource::Unusable
        };
        let keys = match &record.keys {
            OwnedIssuerKeys::Jwks(document) => match KeySet::parse(document) {
                Ok(keys) => IssuerKeySource::Document(Arc::new(keys)),
                Err(why) => unusable(why),
            },
            OwnedIssuerKeys::Url(url) => match JwksUrl::parse(url) {
                Ok(url) => {
                    let IssuersShared { runtime, authority, .. } = &*self.inner;
                    let (authority, times) = (authority.clone(), RefreshTimes::default());
                    IssuerKeySource::Address(RefreshedKeys::start(runtime, url, authority, times))
                }
                Err(why) => unusable(why),
            },
        };
        TrustedIssuer { record: record.clone(), keys }
    }

    /// Verifies a token with the keys at hand, at a second of the wall clock since 1970.
    pub(crate) fn verify(&self, token: &str, now_s: u64) -> Result<VerifiedToken, TokenError> {
        let token = UnverifiedToken::read(token)?;
        self.issuer(&token)?.verify(&token, now_s)
    }

    /// The keys to wait for, if a token cannot be verified because its key is not at hand, and the keys can be read
    /// again now.
    pub(crate) fn missing_keys(&self, token: &str) -> Option<MissingKeys> {
        let token = UnverifiedToken::read(token).ok()?;
        let issuer = self.issuer(&token).ok()?;
        let IssuerKeySource::Address(keys) = &issuer.keys else { return None };
        let has_key = keys.current().is_some_and(|keys| token.has_key(&keys));
        (!has_key && keys.may_read()).then(|| MissingKeys(issuer))
    }

    fn issuer(&self, token: &UnverifiedToken<'_>) -> Result<Arc<TrustedIssuer>, TokenError> {
        let issuers = self.inner.issuers.read().unwrap_or_else(PoisonError::into_inner);
        issuers.get(token.issuer().as_bytes()).cloned().ok_or(TokenError::Issuer)
    }
}

impl MissingKeys {
    /// Reads the keys, and waits for the result for a moment.
    pub(crate) async fn read(self) {
        if let IssuerKeySource::Address(keys) = &self.0.keys {
            keys.read().await;
        }
    }
}

impl TrustedIssuer {
    fn verify(&self, token: &UnverifiedToken<'_>, now_s: u64) -> Result<VerifiedToken, TokenError> {
        let keys = match &self.keys {
            IssuerKeySource::Document(keys) => Some(Arc::clone(keys)),
            IssuerKeySource::Address(keys) => keys.current(),
            IssuerKeySource::Unusable => None,
        };
        let keys = keys.ok_or(TokenError::NoKeys)?;
        token.verify(&self.record, &keys, now_s)
    }
}
