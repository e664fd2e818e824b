//! Defines the JSON of the plain lock protocol at `/v1/lock-socket`.

use serde::{Deserialize, Serialize};

/// The smallest token that a JSON reader may round.
const ROUNDED_FROM: u64 = 1 << 53;

/// A command: 0 acquires, 1 releases.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainRequest {
    /// 0 acquires, 1 releases; [`PlainRequest::command`] refuses any other value.
    #[serde(rename = "commandType")]
    pub command_type: u64,
    /// The lock.
    pub key: String,
    /// The client's name. Together with the key it identifies one lease, which any member can find again.
    #[serde(rename = "clientID")]
    pub client_id: String,
    /// How many seconds the lock may be held. A release does not need it.
    #[serde(default)]
    pub ttl: u64,
    /// `Bearer` and an API key or a token, for browsers, which cannot set the header of the upgrade. Only the first
    /// message may have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<String>,
}

/// The command in a [`PlainRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlainCommand {
    /// Acquire the lock.
    Acquire,
    /// Release the lock.
    Release,
}

impl PlainRequest {
    /// Returns the command; `None` if it is unknown.
    pub fn command(&self) -> Option<PlainCommand> {
        match self.command_type {
            0 => Some(PlainCommand::Acquire),
            1 => Some(PlainCommand::Release),
            _ => None,
        }
    }
}

/// The response.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlainReply {
    /// Whether the command succeeded.
    pub success: bool,
    /// The token, after a successful acquire.
    #[serde(rename = "fencingToken", skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<PlainToken>,
    /// The reason from the table of errors, if the command failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A fencing token, as a JSON number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlainToken {
    /// The lock.
    pub key: String,
    /// The token; always below 2^53.
    pub value: u64,
}

impl PlainToken {
    /// Creates a token; `None` if a JSON reader may round it.
    pub fn new(key: String, token: u64) -> Option<Self> {
        (token < ROUNDED_FROM).then_some(Self { key, value: token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_would_be_rounded_is_none() {
        assert!(PlainToken::new("l1".to_owned(), (1 << 53) - 1).is_some());
        assert!(PlainToken::new("l1".to_owned(), 1 << 53).is_none());
    }

    #[test]
    fn a_command_that_is_not_known_is_none() {
        let text = r#"{"commandType":2,"key":"l1","clientID":"client1","ttl":60}"#;
        let request: PlainRequest = serde_json::from_str(text).unwrap();
        assert_eq!(request.command(), None);
        let negative = r#"{"commandType":0,"key":"l1","clientID":"client1","ttl":-1}"#;
        assert!(serde_json::from_str::<PlainRequest>(negative).is_err());
    }
}
