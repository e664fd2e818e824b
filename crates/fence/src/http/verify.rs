//! What does the text in the header prove?

use crate::claim::{Claim, LockSlot};
use crate::text::parse_token;

/// Reads the header `Fencing-Token`, and says whether to believe it.
///
/// ```
/// use tenure_fence::http::{Unproven, Verify};
/// use tenure_fence::{Claim, LockSlot, parse_token};
///
/// /// Tokens with a word that only friends know. (A signature would be better.)
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
    /// The claim for this lock and slot that the text proves.
    fn verify(&self, text: &str, at: LockSlot<'_>) -> Result<Claim, Unproven>;
}

/// Why a text proves nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unproven {
    /// It is not even of the form.
    #[error("this is not a token")]
    Malformed,
    /// It claims what it does not prove, for the reason given.
    #[error("the token is not proven: {0}")]
    Forged(String),
}

/// Believes every number. Enough where all clients are honest: it stops those that are late, not those that lie.
#[derive(Clone, Copy, Debug)]
pub struct BareTokens;

impl Verify for BareTokens {
    fn verify(&self, text: &str, _: LockSlot<'_>) -> Result<Claim, Unproven> {
        parse_token(text).map(Claim::new).map_err(|_| Unproven::Malformed)
    }
}
