//! Verifies bearer tokens: signed JWTs (RFC 7519) of issuers that the cluster trusts.
//!
//! The verifier is our own, on `ring`, which TLS and tickets use already.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};
use tenure_core::access::Issuer;
use tenure_types::Name;

use super::jwks::{Algorithm, KeySet};
use super::principal_name;

/// The longest token. Those of Kubernetes have about 1 KiB; those with many groups up to 10 KiB.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// By how much the clocks of issuer and member may differ, in seconds.
const LEEWAY_S: u64 = 30;
/// The claim that names the principal, if the issuer's record names none.
const SUBJECT: &str = "sub";

/// Why a token was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenError {
    /// It is longer than any token that is accepted.
    TooLong,
    /// It is not a signed JWT.
    Malformed,
    /// Its algorithm is `none`, symmetric or unknown.
    Algorithm,
    /// It uses an extension that the verifier would have to understand.
    Critical,
    /// The cluster does not trust its issuer.
    Issuer,
    /// The keys of the issuer could not be read yet, or not for too long.
    NoKeys,
    /// The issuer has no key with this id for this algorithm, or several.
    UnknownKey,
    /// The signature is not the issuer's.
    Signature,
    /// It is for others.
    Audience,
    /// It has expired.
    Expired,
    /// It is not valid yet.
    NotYetValid,
    /// The claim that names the principal is missing or unusable.
    Unnamed,
}

impl TokenError {
    /// What the caller is told.
    pub(crate) fn problem(self) -> &'static str {
        match self {
            Self::TooLong => "the token is too long",
            Self::Malformed => {
                "the token is no signed JWT with an issuer, an audience and an expiry"
            }
            Self::Algorithm => "the token is not signed by an algorithm that is accepted",
            Self::Critical => "the token has a critical extension, which is not supported",
            Self::Issuer => "the token is of an issuer that the cluster does not trust",
            Self::NoKeys => "the keys of the token's issuer are not available",
            Self::UnknownKey => "the issuer has no key of the token's id and algorithm",
            Self::Signature => "the signature of the token is wrong",
            Self::Audience => "the token is for another audience",
            Self::Expired => "the token has expired",
            Self::NotYetValid => "the token is not valid yet",
            Self::Unnamed => "the token does not name a principal",
        }
    }
}

/// What a verified token says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct VerifiedToken {
    /// The principal.
    pub(crate) principal: Name,
    /// The second of the wall clock, since 1970, from which on the token is refused.
    pub(crate) expires_s: u64,
}

/// A token whose parts were read. Nothing in it is to be believed before its signature was verified.
pub(crate) struct UnverifiedToken<'a> {
    signed: &'a str,
    signature: Vec<u8>,
    algorithm: Algorithm,
    key_id: Option<String>,
    claims: Claims,
}

#[derive(Deserialize)]
struct JwtHeader {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audiences,
    exp: Number,
    nbf: Option<Number>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Several(Vec<String>),
}

impl<'a> UnverifiedToken<'a> {
    /// Reads the parts of a token.
    pub(crate) fn read(token: &'a str) -> Result<Self, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let header: JwtHeader = part(header)?;
        let algorithm = Algorithm::parse(&header.alg).ok_or(TokenError::Algorithm)?;
        if header.crit.is_some() {
            return Err(TokenError::Critical);
        }
        // Header fields that bring or name a key (`jwk`, `jku`, `x5c`, `x5u`) are not read: only the issuer's own keys
        // count.
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Malformed)?;
        Ok(Self { signed, signature, algorithm, key_id: header.kid, claims: part(claims)? })
    }

    /// The issuer that the token names.
    pub(crate) fn issuer(&self) -> &str {
        &self.claims.iss
    }

    /// Whether the key that the token names is among these.
    pub(crate) fn has_key(&self, keys: &KeySet) -> bool {
        keys.has(self.key_id.as_deref(), self.algorithm)
    }

    /// Verifies the token against the record and the keys of its issuer, at a second of the wall clock since 1970.
    pub(crate) fn verify(
        &self,
        issuer: &Issuer,
        keys: &KeySet,
        now_s: u64,
    ) -> Result<VerifiedToken, TokenError> {
        if !self.has_key(keys) {
            return Err(TokenError::UnknownKey);
        }
        let id = self.key_id.as_deref();
        if !keys.verifies(id, self.algorithm, self.signed.as_bytes(), &self.signature) {
            return Err(TokenError::Signature);
        }
        let claims = &self.claims;
        let expires_s = seconds(&claims.exp)?.saturating_add(LEEWAY_S);
        if now_s >= expires_s {
            return Err(TokenError::Expired);
        }
        if let Some(from) = &claims.nbf
            && now_s.saturating_add(LEEWAY_S) < seconds(from)?
        {
            return Err(TokenError::NotYetValid);
        }
        // An issuer without an audience would accept tokens that were made for other services.
        if issuer.audience.is_empty() || !claims.aud.names(&issuer.audience) {
            return Err(TokenError::Audience);
        }
        let claim = if issuer.claim.is_empty() { SUBJECT } else { &issuer.claim };
        let value = match claim {
            "iss" => Some(claims.iss.as_str()),
            claim => find(&claims.others, claim).and_then(Value::as_str),
        };
        let principal = value.and_then(|value| principal_name(&issuer.prefix, value));
        Ok(VerifiedToken { principal: principal.ok_or(TokenError::Unnamed)?, expires_s })
    }
}

impl Audiences {
    fn names(&self, audience: &str) -> bool {
        match self {
            Self::One(one) => one == audience,
            Self::Several(several) => several.iter().any(|one| one == audience),
        }
    }
}

fn part<T: DeserializeOwned>(text: &str) -> Result<T, TokenError> {
    let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| TokenError::Malformed)
}

/// A number of seconds since 1970, which may have a fraction.
fn seconds(number: &Number) -> Result<u64, TokenError> {
    let whole = number.as_u64().or_else(|| {
        let seconds = number.as_f64().filter(|it| (0.0..=9_007_199_254_740_992.0).contains(it))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Some(seconds as u64)
    });
    whole.ok_or(TokenError::Malformed)
}

/// The claim of this name. A name may lead into nested claims: `kubernetes.io.namespace` is the member `namespace` of
/// the claim `kubernetes.io`. Of several ways to read it, the one with the longest first name counts.
fn find<'v>(claims: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    if let Some(found) = claims.get(name) {
        return Some(found);
    }
    let dots = name.rmatch_indices('.');
    let nested = dots.filter_map(|(at, _)| Some((claims.get(&name[..at])?, &name[at + 1..])));
    let (Value::Object(inner), rest) = nested.into_iter().next()? else { return None };
    find(inner, rest)
}
