//! Lists and repairs the floors of a store that is stopped.
//!
//! A repair and its record are one transaction. The file is open in one process only, so the store must not run.

use std::io;
use std::path::Path;

use redb::{ReadableDatabase as _, ReadableTable as _, TableDefinition, TableError};
use tenure_fence::Floor;

use crate::listen::StartError;
use crate::repair::{FloorRepair, RepairRequest};

use super::engine::{Engine, EngineError, FILE, FLOORS, floor, number};

/// The repairs as JSON, in the order in which they were made.
const REPAIRS: TableDefinition<'_, u64, &str> = TableDefinition::new("repairs");

/// A floor of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KeptFloor {
    /// The lock.
    pub lock: String,
    /// The slot, if the lock is a semaphore.
    pub slot: Option<u32>,
    /// Its floor.
    pub floor: Floor,
}

/// Sets the floor of a lock, also to a lower token than before, and records who did so and why. Both are durable when
/// this returns. The store must be stopped.
pub fn repair_floor(data: &Path, ask: &RepairRequest<'_>) -> Result<FloorRepair, StartError> {
    ask.at.check().map_err(|invalid| StartError::Setting(format!("the lock: {invalid}")))?;
    if ask.reason.trim().is_empty() {
        return Err(StartError::Setting("--reason is empty".to_owned()));
    }
    let engine = existing(data)?;
    let repair = || -> Result<FloorRepair, EngineError> {
        let transaction = engine.database.begin_write()?;
        let record = {
            let mut floors = transaction.open_table(FLOORS)?;
            let (after, record) = ask.apply(floor(&floors, ask.at)?);
            floors.insert((ask.at.lock, number(ask.at)), after.to_text().as_str())?;
            let mut repairs = transaction.open_table(REPAIRS)?;
            let next = repairs.last()?.map_or(0, |(last, _)| last.value() + 1);
            let text = serde_json::to_string(&record).expect("texts and numbers are always JSON");
            repairs.insert(next, text.as_str())?;
            record
        };
        transaction.commit()?;
        Ok(record)
    };
    repair().map_err(|error| unreadable(data, &error))
}

/// Returns the repairs that were made, oldest first. The store must be stopped.
pub fn repairs(data: &Path) -> Result<Vec<FloorRepair>, StartError> {
    let engine = existing(data)?;
    let read = || -> Result<Vec<FloorRepair>, EngineError> {
        let transaction = engine.database.begin_read()?;
        let repairs = match transaction.open_table(REPAIRS) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            other => other?,
        };
        let mut found = Vec::new();
        for entry in repairs.iter()? {
            let (_, text) = entry?;
            let record = serde_json::from_str(text.value());
            found.push(record.map_err(|error| EngineError::Corrupted(error.to_string()))?);
        }
        Ok(found)
    };
    read().map_err(|error| unreadable(data, &error))
}

/// Returns every floor, ordered by lock and slot. The store must be stopped.
pub fn floors(data: &Path) -> Result<Vec<KeptFloor>, StartError> {
    let engine = existing(data)?;
    let read = || -> Result<Vec<KeptFloor>, EngineError> {
        let transaction = engine.database.begin_read()?;
        let mut found = Vec::new();
        for entry in transaction.open_table(FLOORS)?.iter()? {
            let (at, text) = entry?;
            let (lock, slot) = at.value();
            let floor = Floor::parse(text.value()).ok_or_else(|| {
                EngineError::Corrupted(format!("the floor of {lock} is {:?}", text.value()))
            })?;
            found.push(KeptFloor { lock: lock.to_owned(), slot: slot.try_into().ok(), floor });
        }
        Ok(found)
    };
    read().map_err(|error| unreadable(data, &error))
}

/// Opens a store that exists: a mistyped directory must not become a new store.
fn existing(data: &Path) -> Result<Engine, StartError> {
    let file = data.join(FILE);
    if !file.is_file() {
        let source = io::Error::new(io::ErrorKind::NotFound, "there is no store");
        return Err(StartError::Disk { what: file.display().to_string(), source });
    }
    Engine::open(data)
}

fn unreadable(data: &Path, error: &EngineError) -> StartError {
    StartError::Unreadable { what: data.join(FILE).display().to_string(), why: error.to_string() }
}
