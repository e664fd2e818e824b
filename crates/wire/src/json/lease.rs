//! Defines the JSON of `/v1/leases` and its paths.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Decimal, Header, Holding, bytes_from, lease_number, signed, text_or_base64};
use crate::{Failure, v1};

/// `POST /v1/leases`: a lease to be granted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantLease {
    /// How long it lives after a renewal: 1 s to 1 h.
    pub ttl_ms: u64,
    /// The client's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The id asked for; absent to have one chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Decimal>,
    /// Whatever the client wants to be known by, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// The same, as base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_base64: Option<String>,
}

impl TryFrom<GrantLease> for v1::NewLease {
    type Error = Failure;

    fn try_from(lease: GrantLease) -> Result<Self, Failure> {
        Ok(Self {
            ttl_ms: lease.ttl_ms,
            lease: lease_number(lease.lease, "lease")?,
            client: lease.client.unwrap_or_default(),
            metadata: bytes_from("metadata", lease.metadata, lease.metadata_base64)?,
        })
    }
}

/// A lease that was granted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaseGranted {
    /// Its id.
    pub lease: Decimal,
    /// The revision that created it. Id and revision together are never used again.
    pub created: Decimal,
    /// How long it lives after a renewal.
    pub ttl_ms: u64,
    /// The member that answers, and its revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
}

impl From<v1::Lease> for LeaseGranted {
    fn from(lease: v1::Lease) -> Self {
        Self {
            lease: signed(lease.lease),
            created: signed(lease.created),
            ttl_ms: lease.ttl_ms,
            header: None,
        }
    }
}

/// `POST /v1/leases/{lease}/renew`: the lease lives on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaseRenewed {
    /// The id of the lease.
    pub lease: Decimal,
    /// How long it lives from now; 0, only where several are renewed at once, if it is unknown or has ended.
    pub ttl_ms: u64,
    /// The revision of the newest loss of a lock that was involuntary; `"0"` if none.
    pub changed: Decimal,
    /// The member that answers, and its revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
}

/// `POST /v1/leases/renew`: leases to be renewed with one command.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewLeases {
    /// The ids of the leases.
    #[schema(min_items = 1)]
    pub leases: Vec<Decimal>,
}

/// The result for each lease.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeasesRenewed {
    /// The results, in the order of the request.
    pub leases: Vec<LeaseRenewed>,
    /// The member that answers, and its revision.
    pub header: Header,
}

/// `GET /v1/leases/{lease}`: a lease and what is bound to it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaseShown {
    /// Its id.
    pub lease: Decimal,
    /// The revision that created it.
    pub created: Decimal,
    /// The name of its client.
    pub client: String,
    /// How long it lives after a renewal.
    pub ttl_ms: u64,
    /// How much longer it lives if it is not renewed.
    pub left_ms: u64,
    /// Its metadata, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// Its metadata, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_base64: Option<String>,
    /// The revision of the newest involuntary loss; `"0"` if none.
    pub changed: Decimal,
    /// The locks it holds.
    pub holds: Vec<Holding>,
    /// The locks it waits for.
    pub waits: Vec<Wait>,
    /// The keys that end with it.
    pub keys: Vec<String>,
    /// The member that answers, and its revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
}

/// A lock that a lease waits for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Wait {
    /// The place.
    pub place: Decimal,
    /// The lock.
    pub lock: String,
}

impl From<v1::LeaseView> for LeaseShown {
    fn from(view: v1::LeaseView) -> Self {
        let (metadata, metadata_base64) = text_or_base64(&view.metadata);
        let lease = view.lease.unwrap_or_default();
        let wait = |wait: v1::LockWait| Wait { place: Decimal(wait.place), lock: wait.lock };
        Self {
            lease: signed(lease.lease),
            created: signed(lease.created),
            client: view.client,
            ttl_ms: lease.ttl_ms,
            left_ms: view.left_ms,
            metadata,
            metadata_base64,
            changed: signed(view.changed),
            holds: view.holds.into_iter().map(Into::into).collect(),
            waits: view.waits.into_iter().map(wait).collect(),
            keys: view.keys,
            header: None,
        }
    }
}

/// `GET /v1/leases?limit=&after=`: a page of leases.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Leases {
    /// The leases, in the order of their ids.
    pub leases: Vec<LeaseShown>,
    /// Go on after this id; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Decimal>,
    /// The member that answers, and its revision.
    pub header: Header,
}

/// `DELETE /v1/leases/{lease}`: the lease has ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaseRevoked {
    /// The id of the lease.
    pub lease: Decimal,
    /// The member that answers, and its revision.
    pub header: Header,
}
