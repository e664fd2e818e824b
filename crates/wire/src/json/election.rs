//! Defines the JSON of `/v1/elections/{name}`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Decimal, Header, bytes_from, lease_number, signed, text_or_base64};
use crate::{Failure, v1};

/// `POST`: a candidacy. `?wait=` says how long to wait; without it: not at all.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Campaign {
    /// The candidate's lease.
    pub lease: Decimal,
    /// The value that leads, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The same, as base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
}

impl Campaign {
    /// Converts to the wire request. `wait_ms` is absent for no limit.
    pub fn to_wire(
        self,
        name: String,
        wait_ms: Option<u64>,
    ) -> Result<v1::CampaignRequest, Failure> {
        Ok(v1::CampaignRequest {
            name,
            lease: lease_number(Some(self.lease), "lease")?,
            value: bytes_from("value", self.value, self.value_base64)?,
            wait_ms,
        })
    }
}

/// `PUT`: a leader's value to be replaced.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Proclaim {
    /// The leader's lease.
    pub lease: Decimal,
    /// The token of its leadership.
    pub token: Decimal,
    /// The new value, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The same, as base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
}

impl Proclaim {
    /// Converts to the wire request.
    pub fn to_wire(self, name: String) -> Result<v1::ProclaimRequest, Failure> {
        Ok(v1::ProclaimRequest {
            name,
            lease: lease_number(Some(self.lease), "lease")?,
            token: self.token.0,
            value: bytes_from("value", self.value, self.value_base64)?,
        })
    }
}

/// Who leads: `GET`, the answer to `POST`, and with `view=observe` the data of `event: leader` and `event: vacant`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Election {
    /// The election.
    pub name: String,
    /// The leader; absent while the election is vacant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leadership>,
    /// The member that answers, and its revision.
    pub header: Header,
}

/// A leader.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Leadership {
    /// The leader's client.
    pub client: String,
    /// The fencing token.
    pub token: Decimal,
    /// The leader's lease.
    pub lease: Decimal,
    /// The leader's value, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The leader's value, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
    /// For how long it leads.
    pub held_ms: u64,
}

impl From<v1::Leadership> for Leadership {
    fn from(leader: v1::Leadership) -> Self {
        let (value, value_base64) = text_or_base64(&leader.value);
        Self {
            client: leader.client,
            token: Decimal(leader.token),
            lease: signed(leader.lease),
            value,
            value_base64,
            held_ms: leader.held_ms,
        }
    }
}

/// `PUT` and `DELETE`: done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ElectionDone {
    /// The election.
    pub name: String,
    /// The member that answers, and its revision.
    pub header: Header,
}
