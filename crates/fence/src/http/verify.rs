//! Defines how the fence verifies the token header.

use crate::claim::{Claim, LockSlot};
use crate::text::parse_token;

/// Parses the header `Fencing-Token`, and decides whether to trust it.
///
/// ```
/// use tenure_fence::http::{Unproven, Verify};
/// use tenure_fence::{Claim, LockSlot, parse_token};
///
/// /// Tokens with a shared password. (A signature would be better.)
/// struct Password;
///
/// impl Verify for Password {
///     fn verify(&self, text: &str, _: LockSlot<'_>) -> Result<Claim, Unproven> {
///         let token = text.strip_prefix("friend:").ok_or(Unproven::Forged("no friend".to_owned()))?;
///         parse_token(token).map(Claim::new).map_err(|_| Unproven::Malformed)
///     }
/// }
/// ```
pub trait Verify: Send + Sync + 'static {
    /// Returns the claim for this lock and slot that the text proves.
    fn verify(&self, text: &str, at: LockSlot<'_>) -> Result<Claim, Unproven>;
}

/// Why a text proves nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unproven {
    /// The text does not have the form of a token.
    #[error("this is not a token")]
    Malformed,
    /// The text claims what it does not prove, for the reason given.
    #[error("the token is not proven: {0}")]
    Forged(String),
}

/// Accepts every number. Enough where all clients are honest: it stops late writers, not writers that lie.
#[derive(Clone, Copy, Debug)]
pub struct BareTokens;

impl Verify for BareTokens {
    fn verify(&self, text: &str, _: LockSlot<'_>) -> Result<Claim, Unproven> {
        parse_token(text).map(Claim::new).map_err(|_| Unproven::Malformed)
    }
}
