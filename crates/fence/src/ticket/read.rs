//! Parses a ticket, before anything in it is trusted.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use tenure_types::{Epoch, Name};

use super::{Forged, Ticket};
use crate::claim::{Incarnation, Mode};
use crate::text::parse_token;

/// The only accepted signature algorithm.
const ALGORITHM: &str = "EdDSA";
/// The type in a ticket's header.
const KIND: &str = "tenure-ticket+jwt";
/// The length of a signature.
pub(super) const SIGNATURE_BYTES: usize = 64;

/// A parsed ticket.
pub(super) struct Parts<'a> {
    /// The signed text: header and claims.
    pub(super) signed: &'a str,
    pub(super) signature: Vec<u8>,
    pub(super) ticket: Ticket,
}

/// Denies unknown fields: `crit`, `jwk` or `jku` would have to be obeyed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JwtHeader {
    alg: String,
    kid: String,
    typ: String,
}

/// Only the algorithm, so that an error can name it even if the rest of the header is invalid.
#[derive(Deserialize)]
struct Algorithm {
    alg: String,
}

/// Unknown claims are ignored, so that later versions can add some. A duplicate claim is refused.
#[derive(Deserialize)]
struct Claims {
    iss: String,
    epoch: u16,
    incarnation: String,
    lock: String,
    slot: Option<u32>,
    mode: HeldMode,
    token: String,
    lease: String,
    holder: String,
    principal: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HeldMode {
    Exclusive,
    Shared,
    Slot,
}

/// Parses a ticket. The algorithm is always EdDSA, whatever the ticket asks for.
pub(super) fn read(text: &str) -> Result<Parts<'_>, Forged> {
    let not = Forged::NotATicket;
    let (signed, signature) = text.rsplit_once('.').ok_or(not("it has no three parts"))?;
    let (header, claims) = signed.split_once('.').ok_or(not("it has no three parts"))?;
    if claims.contains('.') {
        return Err(not("it has more than three parts"));
    }
    let header = decoded(header).ok_or(not("its header is not base64url"))?;
    let said: Algorithm =
        serde_json::from_slice(&header).map_err(|_| not("its header names no algorithm"))?;
    if said.alg != ALGORITHM {
        return Err(Forged::Algorithm { said: said.alg.chars().take(32).collect() });
    }
    let header: JwtHeader =
        serde_json::from_slice(&header).map_err(|_| not("its header is not that of a ticket"))?;
    // The header was parsed twice, and both results must agree.
    if header.typ != KIND || header.alg != ALGORITHM {
        return Err(not("its header is not that of a ticket"));
    }
    let claims = decoded(claims).ok_or(not("its claims are not base64url"))?;
    let claims: Claims =
        serde_json::from_slice(&claims).map_err(|_| not("its claims are not those of a ticket"))?;
    let ticket = claims.ticket(header.kid).ok_or(not("its claims cannot be as they are"))?;
    let signature = decoded(signature).ok_or(not("its signature is not base64url"))?;
    Ok(Parts { signed, signature, ticket })
}

impl Claims {
    fn ticket(self, key: String) -> Option<Ticket> {
        let token = parse_token(&self.token).ok()?;
        let epoch = Epoch::new(self.epoch)?;
        let slotted = self.mode == HeldMode::Slot;
        let fits = token.epoch() == Some(epoch) && slotted == self.slot.is_some();
        Name::check(&self.lock).ok().filter(|()| fits)?;
        // An empty name would be the principal of clients that were not authenticated.
        if self.principal.as_deref().is_some_and(str::is_empty) {
            return None;
        }
        Some(Ticket {
            cluster: self.iss,
            epoch,
            incarnation: Incarnation::parse(&self.incarnation)?,
            lock: self.lock,
            slot: self.slot,
            mode: if self.mode == HeldMode::Shared { Mode::Shared } else { Mode::Exclusive },
            token,
            lease: self.lease.parse().ok().filter(|lease| *lease > 0)?,
            holder: self.holder,
            principal: self.principal,
            key,
        })
    }
}

/// Decodes strictly: without padding, and with zeros in the unused bits.
pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
