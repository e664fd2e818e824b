//! Defines the JSON of `/v1/keys` and its paths. Values travel as raw bytes there.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Decimal, Header, signed, some, text_or_base64};
use crate::v1;

/// `PUT /v1/keys/{key}`: the key was written.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyPut {
    /// The name of the key.
    pub key: String,
    /// How often it was written since it was created; 1 for the first time.
    pub version: u64,
    /// The revision that created it.
    pub created: Decimal,
    /// The member that answers. The revision is that of the key, for `If-Match`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
}

/// `DELETE /v1/keys/{key}`: the key does not exist any more.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyDeleted {
    /// The name of the key.
    pub key: String,
    /// Whether the key existed before.
    pub existed: bool,
    /// The member that answers, and its revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
}

/// A key and its value.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyShown {
    /// The name of the key.
    pub key: String,
    /// Its value, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Its value, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
    /// The revision that created it.
    pub created: Decimal,
    /// The revision that last wrote it.
    pub modified: Decimal,
    /// How often it was written since it was created.
    pub version: u64,
    /// The lease it ends with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Decimal>,
}

impl From<v1::KeyValue> for KeyShown {
    fn from(kv: v1::KeyValue) -> Self {
        let (value, value_base64) = text_or_base64(&kv.value);
        Self {
            key: kv.key,
            value,
            value_base64,
            created: signed(kv.create_revision),
            modified: signed(kv.mod_revision),
            version: kv.version,
            lease: some(kv.lease),
        }
    }
}

/// `GET /v1/keys?prefix=&limit=&after=`: a page of keys.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Keys {
    /// The keys, in the order of their names.
    pub keys: Vec<KeyShown>,
    /// Go on after this name; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The member that answers, and its revision.
    pub header: Header,
}
