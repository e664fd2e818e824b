//! Defines the parameters and the JSON forms of the calls of states.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::lookup::ListedState;
use super::row::{StateRow, VersionRow};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StateParameters {
    /// The lock that guards the state. If it is absent: the one with the state's name.
    pub(super) lock: Option<String>,
    #[serde(rename = "ID")]
    pub(super) id: Option<String>,
    pub(super) version: Option<u64>,
    pub(super) versions: Option<bool>,
    pub(super) restore: Option<u64>,
    /// How many of the newest versions stay.
    pub(super) keep: Option<u64>,
}

impl StateParameters {
    /// The names of those that are given, beside the lock.
    pub(super) fn given(&self) -> impl Iterator<Item = &'static str> {
        let Self { lock: _, id, version, versions, restore, keep } = self;
        [
            ("ID", id.is_some()),
            ("version", version.is_some()),
            ("versions", versions.is_some()),
            ("restore", restore.is_some()),
            ("keep", keep.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, is_given)| is_given.then_some(name))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatesParameters {
    #[serde(default)]
    pub(super) prefix: String,
    pub(super) after: Option<String>,
    pub(super) limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct StatesAnswer {
    pub(super) states: Vec<StateAnswer>,
    pub(super) more: bool,
}

#[derive(Serialize)]
pub(super) struct StateAnswer {
    pub(super) state: String,
    pub(super) lock: String,
    pub(super) version: u64,
    pub(super) serial: Option<u64>,
    pub(super) bytes: u64,
    pub(super) at_unix_ms: Option<u64>,
    pub(super) token: Option<String>,
    pub(super) held: Option<Box<RawValue>>,
}

#[derive(Serialize)]
pub(super) struct VersionsAnswer {
    pub(super) versions: Vec<VersionAnswer>,
}

#[derive(Serialize)]
pub(super) struct VersionAnswer {
    pub(super) version: u64,
    pub(super) serial: u64,
    pub(super) lineage: String,
    pub(super) bytes: u64,
    pub(super) md5: String,
    pub(super) token: Option<String>,
    pub(super) who: String,
    pub(super) at_unix_ms: u64,
    pub(super) deleted: bool,
}

#[derive(Serialize)]
pub(super) struct WrittenAnswer {
    pub(super) version: u64,
    pub(super) serial: u64,
}

#[derive(Serialize)]
pub(super) struct DeletedAnswer {
    pub(super) deleted: bool,
}

#[derive(Serialize)]
pub(super) struct PurgedAnswer {
    pub(super) removed: u64,
    pub(super) bytes: u64,
}

/// The info of a holder that did not lock the state here, in the form of Terraform.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ForeignHolder<'a> {
    #[serde(rename = "ID")]
    pub(super) id: &'static str,
    pub(super) operation: &'static str,
    pub(super) info: &'a str,
    pub(super) who: &'a str,
    pub(super) version: &'static str,
    pub(super) created: &'static str,
    pub(super) path: &'a str,
}

impl From<ListedState> for StateAnswer {
    fn from((state, row, newest): ListedState) -> Self {
        let StateRow { lock, newest: version, held } = row;
        let newest = newest.filter(|newest| newest.file.is_some());
        Self {
            state,
            lock,
            version,
            serial: newest.as_ref().map(|newest| newest.serial),
            bytes: newest.as_ref().map_or(0, |newest| newest.bytes),
            at_unix_ms: newest.as_ref().map(|newest| newest.at_unix_ms),
            token: held.as_ref().and_then(|held| held.token).map(|token| token.to_string()),
            held: held.and_then(|held| RawValue::from_string(held.info).ok()),
        }
    }
}

impl From<(u64, VersionRow)> for VersionAnswer {
    fn from((version, row): (u64, VersionRow)) -> Self {
        let VersionRow { file, bytes, md5, serial, lineage, token, who, at_unix_ms } = row;
        let (token, deleted) = (token.map(|token| token.to_string()), file.is_none());
        Self { version, serial, lineage, bytes, md5, token, who, at_unix_ms, deleted }
    }
}
