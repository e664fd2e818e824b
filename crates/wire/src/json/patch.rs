//! The JSON forms of a change of a held lock.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Decimal, Header, LockMode};

/// `PATCH /v1/locks/{lock}`: new metadata for a held lock, `"mode":"shared"` to downgrade it, a report of progress,
/// or the lease that gets it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// The lease that holds.
    pub lease: Decimal,
    /// The token of the grant.
    pub token: Decimal,
    /// The new metadata, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// The same, as base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_base64: Option<String>,
    /// `shared`: hold the lock shared from now on, without a gap. Not together with metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<LockMode>,
    /// How far the work has come. Only a number larger than all before counts. Not together with metadata or mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Decimal>,
    /// The lease that gets the hold. It must wait for this lock alone, in the same mode. The caller has stopped its
    /// work. Not together with metadata, mode or progress. From feature level 10 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hand_on_to: Option<Decimal>,
}

/// The lock was changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Patched {
    /// The name of the lock.
    pub lock: String,
    /// After new metadata: the lock's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// After a downgrade: the new token. After the hold was handed on: the token of the new holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Decimal>,
    /// After a report of progress: in how much time a larger number is due; absent if none was promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// The member that answers, and its revision.
    pub header: Header,
}
