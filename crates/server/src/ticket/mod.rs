//! Signs tickets, with which a holder proves to others that it was granted a lock.
//!
//! A ticket is a compact JWT that names the grant. The member that receives the request signs it outside of `apply`,
//! after a read no older than the request has shown that the grant is in force. The private key is a file of that
//! member and never leaves it. The public key is replicated, and the member signs nothing before that.

mod keep;
mod key;
mod overlap;
mod record;
mod tend;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use tenure_core::view::HolderView;
use tenure_types::Mode;

use tenure_node::Lineage;

pub(crate) use keep::SigningKeys;
pub(crate) use key::SigningKey;
pub(crate) use overlap::{read_after_moving, retires_ms};
pub(crate) use record::{KeyRecords, RecordKey, TicketKeyRecord, is_record};
pub(crate) use tend::tend;

/// How long tickets of a retired key stay valid by default: longer than most locks are held.
pub(crate) const OVERLAP_MS: u64 = 24 * 3_600 * 1_000;
/// The longest overlap.
pub(crate) const OVERLAP_MS_MAX: u64 = 30 * 24 * 3_600 * 1_000;

#[derive(Serialize)]
struct TicketHeader<'a> {
    alg: &'a str,
    kid: &'a str,
    typ: &'a str,
}

/// Numbers of 64 bits are strings, because many JSON readers round large numbers.
#[derive(Serialize)]
struct TicketClaims<'a> {
    iss: &'a str,
    epoch: u16,
    incarnation: String,
    lock: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<u32>,
    mode: &'a str,
    token: String,
    lease: String,
    holder: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'a str>,
}

/// Signs a ticket for a grant, which names the principal of the lease if the cluster knows it. The same grant and key
/// give the same text.
pub(crate) fn sign(
    key: &SigningKey,
    incarnation: &Lineage,
    lock: &str,
    grant: &HolderView,
    principal: Option<&str>,
) -> String {
    let header = TicketHeader { alg: "EdDSA", kid: key.id().as_str(), typ: "tenure-ticket+jwt" };
    let claims = TicketClaims {
        iss: &incarnation.cluster,
        epoch: incarnation.epoch.get(),
        incarnation: incarnation.incarnation.to_string(),
        lock,
        slot: grant.slot,
        mode: match grant.mode {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
            Mode::Slot { .. } => "slot",
        },
        token: grant.token.get().to_string(),
        lease: grant.lease.get().to_string(),
        holder: grant.client.as_str(),
        principal,
    };
    let signed = format!("{}.{}", encoded(&header), encoded(&claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

fn encoded(part: &impl Serialize) -> String {
    let json = serde_json::to_vec(part).expect("plain structs of texts and numbers can be written");
    URL_SAFE_NO_PAD.encode(json)
}
