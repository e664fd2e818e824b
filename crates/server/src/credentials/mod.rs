//! Turns what a caller presents, a bearer token or a client certificate, into the name of a principal.
//!
//! Nothing here decides what a principal may do. The replicated access rules say which issuers and certificates are
//! trusted; `docs/internals/access.md` has the exact rules.

pub(crate) mod certificate;
mod issuer;
mod jwks;
mod jwks_url;
mod jwt;
mod refresh;
#[cfg(test)]
mod tests;

use tenure_core::access::MEMBER;
use tenure_types::Name;

pub use issuer::ServerAuthority;
pub(crate) use issuer::check_keys;
pub(crate) use issuer::{MissingKeys, TrustedIssuers};
#[cfg(test)]
use jwt::TokenError;

/// The name of a principal from a rule's prefix and a value that a credential contains. None if that is no name, or a
/// name that only members have: no credential makes a client a member.
fn principal_name(prefix: &str, value: &str) -> Option<Name> {
    let reserved = MEMBER.split_inclusive('/').next().unwrap_or(MEMBER);
    let name = format!("{prefix}{value}");
    Name::new(&name).ok().filter(|_| !value.is_empty() && !name.starts_with(reserved))
}
