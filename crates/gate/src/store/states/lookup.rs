//! Reads states and their versions.

use std::collections::BTreeSet;

use redb::{ReadableDatabase as _, ReadableTable as _};
use tenure_fence::{LockSlot, Touch};

use crate::store::engine::{Engine, EngineError, FLOORS, TOTALS, floor};

use super::document::StateHead;
use super::ledger::{Decided, StateLockRequest, StateRefusal, admit, follows, get, is_used, parse};
use super::row::{HeldBy, STATES, StateRow, VERSIONS, VersionRow};

/// States with their names.
pub(super) type NamedRows = Vec<(String, StateRow)>;

/// What the engine knows when the store starts.
pub(super) struct KnownStates {
    /// The files that rows name.
    pub(super) files: BTreeSet<u64>,
    /// Whether there may be files beside them.
    pub(super) is_used: bool,
    /// The states that the store holds at the cluster.
    pub(super) held: NamedRows,
}

/// Creates the tables, and reads what is known.
pub(super) fn open(engine: &Engine) -> Result<KnownStates, EngineError> {
    let transaction = engine.database.begin_write()?;
    {
        transaction.open_table(STATES)?;
        transaction.open_table(VERSIONS)?;
    }
    transaction.commit()?;
    let transaction = engine.database.begin_read()?;
    let mut files = BTreeSet::new();
    for entry in transaction.open_table(VERSIONS)?.iter()? {
        files.extend(parse::<VersionRow>(entry?.1.value())?.file);
    }
    let mut held = Vec::new();
    for entry in transaction.open_table(STATES)?.iter()? {
        let (name, text) = entry?;
        let row: StateRow = parse(text.value())?;
        if row.held.as_ref().is_some_and(|held| held.by == HeldBy::Cluster) {
            held.push((name.value().to_owned(), row));
        }
    }
    let is_used = is_used(&transaction.open_table(TOTALS)?)?;
    Ok(KnownStates { files, is_used, held })
}

/// Reads a state.
pub(super) fn row(engine: &Engine, name: &str) -> Result<Option<StateRow>, EngineError> {
    let transaction = engine.database.begin_read()?;
    get(&transaction.open_table(STATES)?, name)
}

/// Reads a version of a state; the newest if there is no number.
pub(super) fn version(
    engine: &Engine,
    name: &str,
    number: Option<u64>,
) -> Result<Option<(u64, VersionRow)>, EngineError> {
    let transaction = engine.database.begin_read()?;
    let Some(row) = get(&transaction.open_table(STATES)?, name)? else { return Ok(None) };
    let number = number.unwrap_or(row.newest);
    let row = transaction.open_table(VERSIONS)?.get((name, number))?;
    row.map(|row| Ok((number, parse(row.value())?))).transpose()
}

/// Reads all versions of a state, oldest first.
pub(super) fn versions(engine: &Engine, name: &str) -> Result<Vec<(u64, VersionRow)>, EngineError> {
    let transaction = engine.database.begin_read()?;
    let versions = transaction.open_table(VERSIONS)?;
    let mut found = Vec::new();
    for entry in versions.range((name, 0)..=(name, u64::MAX))? {
        let (key, text) = entry?;
        found.push((key.value().1, parse(text.value())?));
    }
    Ok(found)
}

/// A state in a list: its name, its row and its newest version.
pub(super) type ListedState = (String, StateRow, Option<VersionRow>);

/// The most bytes of rows in one list. Each may have the info of a holder.
const LIST_BYTES_MAX: usize = 1024 * 1024;

/// Lists the states that start with `prefix`, behind `after`, in order, and whether there are more.
pub(super) fn list(
    engine: &Engine,
    prefix: &str,
    after: Option<&str>,
    most: usize,
) -> Result<(Vec<ListedState>, bool), EngineError> {
    let transaction = engine.database.begin_read()?;
    let (states, versions) = (transaction.open_table(STATES)?, transaction.open_table(VERSIONS)?);
    let from = after.filter(|after| *after >= prefix).unwrap_or(prefix);
    let (mut found, mut bytes) = (Vec::new(), 0);
    for entry in states.range(from..)? {
        let (name, text) = entry?;
        let name = name.value();
        if !name.starts_with(prefix) {
            break;
        }
        if after.is_some_and(|after| name <= after) {
            continue;
        }
        bytes += name.len() + text.value().len();
        if found.len() == most || (bytes > LIST_BYTES_MAX && !found.is_empty()) {
            return Ok((found, true));
        }
        let row: StateRow = parse(text.value())?;
        let newest = versions.get((name, row.newest))?;
        let newest = newest.map(|text| parse(text.value())).transpose()?;
        found.push((name.to_owned(), row, newest));
    }
    Ok((found, false))
}

/// Whether a client that has shown a token may read the state: the token is of the lock that guards it, and not too
/// old. A ticket does not expire, so without the second condition every former holder could read for ever.
pub(super) fn may_read(engine: &Engine, ask: &StateLockRequest) -> Decided<()> {
    let transaction = engine.database.begin_read()?;
    let row = get(&transaction.open_table(STATES)?, &ask.name)?;
    if let Some(row) = row.filter(|row| row.lock != ask.lock) {
        return Ok(Err(StateRefusal::OtherLock { lock: row.lock }));
    }
    let kept = floor(&transaction.open_table(FLOORS)?, LockSlot::from(ask.lock.as_str()))?;
    let admitted = ask.claim.map(|claim| kept.admit(claim, Touch::Raise)).transpose();
    Ok(admitted.map(drop).map_err(StateRefusal::Refused))
}

/// Whether the writer may write this version now, without any change. The transaction decides again.
pub(super) fn may_write(
    engine: &Engine,
    ask: &StateLockRequest,
    id: Option<&str>,
    head: &StateHead,
) -> Decided<()> {
    let transaction = engine.database.begin_read()?;
    let row = get(&transaction.open_table(STATES)?, &ask.name)?;
    let kept = floor(&transaction.open_table(FLOORS)?, LockSlot::from(ask.lock.as_str()))?;
    if let Err(no) = admit(row.as_ref(), kept, ask, id) {
        return Ok(Err(no));
    }
    let Some(row) = row else { return Ok(Ok(())) };
    let newest = transaction.open_table(VERSIONS)?.get((ask.name.as_str(), row.newest))?;
    let newest = newest.map(|text| parse::<VersionRow>(text.value())).transpose()?;
    // Whether it is a repetition is found out with its content.
    match newest.filter(|newest| newest.file.is_some() && newest.serial != head.serial) {
        Some(newest) => Ok(follows(&newest, head)),
        None => Ok(Ok(())),
    }
}
