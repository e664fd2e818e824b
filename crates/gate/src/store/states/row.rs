//! Defines the rows of states: which lock guards one, who holds it, and which versions are kept.

use redb::TableDefinition;
use serde::{Deserialize, Serialize};

/// The states as JSON, by name.
pub(super) const STATES: TableDefinition<'_, &str, &str> = TableDefinition::new("states");
/// The versions as JSON, by name and number.
pub(super) const VERSIONS: TableDefinition<'_, (&str, u64), &str> =
    TableDefinition::new("state_versions");

/// A state, without its versions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct StateRow {
    /// The lock that guards it: the one under which it was first locked or written.
    pub(super) lock: String,
    /// The number of the newest version; 0 if there is none yet.
    pub(super) newest: u64,
    pub(super) held: Option<HeldState>,
}

/// Who holds a state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct HeldState {
    /// The id that the client drew for its lock.
    pub(super) id: String,
    /// What the client says about itself, in JSON.
    pub(super) info: String,
    pub(super) by: HeldBy,
    /// The token of the grant, unless the store alone keeps the lock.
    pub(super) token: Option<u64>,
}

/// Which process keeps the lock of a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HeldBy {
    /// The store, without a cluster.
    Store,
    /// The store, with a lease of its own at a cluster.
    Cluster,
    /// The client, which has shown the token of its grant.
    Client,
}

/// One version of a state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct VersionRow {
    /// The file with its content. `None` if the state was deleted.
    pub(super) file: Option<u64>,
    pub(super) bytes: u64,
    /// The MD5 sum of its content, in hexadecimal.
    pub(super) md5: String,
    pub(super) serial: u64,
    pub(super) lineage: String,
    /// The token under which it was written, if there was one.
    pub(super) token: Option<u64>,
    /// Who wrote it, as the lock's info says.
    pub(super) who: String,
    /// The wall clock, for readers. Nothing is decided by it.
    pub(super) at_unix_ms: u64,
}

/// What a client says about itself when it locks a state. The names are those of Terraform.
#[derive(Clone, Debug, Deserialize, Default)]
pub(super) struct LockInfo {
    #[serde(rename = "ID", default)]
    pub(super) id: String,
    #[serde(rename = "Who", default)]
    pub(super) who: String,
    #[serde(rename = "Operation", default)]
    pub(super) operation: String,
}

impl HeldState {
    /// Who holds it, as far as the info says.
    pub(super) fn who(&self) -> String {
        self.about().who
    }

    /// What the client said about itself, as far as it can be read.
    pub(super) fn about(&self) -> LockInfo {
        serde_json::from_str(&self.info).unwrap_or_default()
    }
}
