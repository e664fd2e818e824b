//! The JSON forms of a semaphore's number of slots that is set.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Header;
use crate::v1;

/// `PUT /v1/semaphores/{lock}`: how many slots a semaphore has from now on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSize {
    /// The number of slots, whatever number a request names.
    #[schema(minimum = 1)]
    pub slots: u32,
    /// Who decided this, for the record.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

/// `resize` on a session: how many slots a semaphore has from now on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// The name of the semaphore.
    pub lock: String,
    /// The number of slots, whatever number a request names; 0 leaves it to the requests again.
    pub slots: u32,
    /// Who decided this, for the record.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

impl From<Resize> for v1::ResizeRequest {
    fn from(resize: Resize) -> Self {
        let Resize { lock, slots, by } = resize;
        Self { lock, slots, by }
    }
}

/// `PUT` and `DELETE /v1/semaphores/{lock}`: the number of slots is set, or left to the requests.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Resized {
    /// The name of the semaphore.
    pub lock: String,
    /// The number of slots that was set; absent if it is left to the requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// The member that answers, and its revision.
    pub header: Header,
}
