//! Defines the JSON of `/v1/tickets`, `/v1/cluster/keys/rotate` and `/.well-known/jwks.json`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Decimal, Header, signed};
use crate::v1;

/// `POST /v1/tickets`: a ticket for a lock that is held.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AskTicket {
    /// The lock.
    pub lock: String,
    /// The lease that holds it.
    pub lease: Decimal,
    /// The token of the grant.
    pub token: Decimal,
}

/// A ticket.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TicketSigned {
    /// The lock.
    pub lock: String,
    /// The ticket: a compact JWT, signed with EdDSA.
    pub ticket: String,
    /// The key that signed it.
    pub key: String,
    /// The member that answers, and its revision.
    pub header: Header,
}

/// `POST /v1/cluster/keys/rotate`: a new key for the member that is asked.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateKey {
    /// How long tickets of the old key are still believed: 24 hours if absent, 30 days at most. With 0 every older key
    /// of the member is taken out of the set at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap_ms: Option<u64>,
}

/// The member has a new key.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyRotated {
    /// The new key.
    pub key: String,
    /// The member that answers, and its revision.
    pub header: Header,
}

/// `GET /.well-known/jwks.json`: the public keys that verify tickets, as RFC 7517 has them, of this life of a cluster.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeySet {
    /// The cluster: what tickets call their issuer.
    pub cluster: String,
    /// The epoch.
    pub epoch: u32,
    /// Which restore made this life of the cluster: sixteen hexadecimal digits.
    pub incarnation: String,
    /// The newest revision that the set is based on. Of two sets of one life, the one with the lower revision is older.
    pub revision: Decimal,
    /// The keys.
    pub keys: Vec<Jwk>,
}

/// A public key, as RFC 8037 has it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Jwk {
    /// `OKP`.
    pub kty: String,
    /// `Ed25519`.
    pub crv: String,
    /// `EdDSA`.
    pub alg: String,
    /// `sig`.
    #[serde(rename = "use")]
    pub usage: String,
    /// Its id: the thumbprint of RFC 7638.
    pub kid: String,
    /// The key, as base64url.
    pub x: String,
    /// The member that signs with it.
    pub member_id: Decimal,
    /// The epoch of its tickets.
    pub epoch: u32,
    /// The incarnation of its tickets.
    pub incarnation: String,
    /// Nothing is signed with it any more; so long from now it is taken out of the set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retires_in_ms: Option<u64>,
}

impl From<v1::TicketKeysResponse> for KeySet {
    fn from(set: v1::TicketKeysResponse) -> Self {
        let incarnation = format!("{:016x}", set.incarnation);
        let revision = signed(set.header.unwrap_or_default().revision);
        let jwk = |key: v1::TicketKey| Jwk {
            kty: "OKP".to_owned(),
            crv: "Ed25519".to_owned(),
            alg: "EdDSA".to_owned(),
            usage: "sig".to_owned(),
            kid: key.key,
            x: URL_SAFE_NO_PAD.encode(&key.public),
            member_id: Decimal(key.member_id),
            epoch: set.epoch,
            incarnation: incarnation.clone(),
            retires_in_ms: key.retires_in_ms,
        };
        let keys = set.keys.into_iter().map(jwk).collect();
        Self { cluster: set.cluster, epoch: set.epoch, incarnation, revision, keys }
    }
}
