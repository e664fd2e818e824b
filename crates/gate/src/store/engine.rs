//! Stores floors and data so that they change together.
//!
//! Both are in one file of an embedded transactional engine. One [`Transaction`] evaluates each request
//! after the effects of those before it. When it ends, either everything that it admitted is durable, or none of it.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use bytes::Bytes;
use redb::{
    Database, DatabaseError, ReadableDatabase as _, ReadableTable, ReadableTableMetadata as _,
    Table, TableDefinition, WriteTransaction,
};
use tenure_fence::{Floor, LockSlot, Touch};

use crate::listen::StartError;

use super::request::{
    KeyInfo, KeyRecord, StoreAction, StoreLimits, StoreOutcome, StoreRefusal, StoreRequest,
};

/// The floors as text, by lock and slot; the slot is -1 if the lock has none.
pub(super) const FLOORS: TableDefinition<'_, (&str, i64), &str> = TableDefinition::new("floors");
/// The records by key: lock, slot and token of the last write, bytes of the value, number of pieces.
const RECORDS: TableDefinition<'_, &str, (&str, i64, u64, u64, u32)> =
    TableDefinition::new("records");
/// The values in pieces, by key and number. Appending to a long value does not rewrite all of it.
const PIECES: TableDefinition<'_, (&str, u32), &[u8]> = TableDefinition::new("pieces");
/// The format version, and the totals.
pub(super) const TOTALS: TableDefinition<'_, &str, u64> = TableDefinition::new("totals");

const FORMAT: u64 = 1;
pub(super) const FILE: &str = "store.redb";
/// A piece shorter than this is appended to; a longer one is left as it is.
const PIECE: usize = 64 * 1024;
/// Enough for the pages that are read again and again; the system caches the rest.
const CACHE_BYTES: usize = 64 * 1024 * 1024;
/// The size of a floor or a record beside its names and its value.
const OVERHEAD: u64 = 128;

/// An error of the engine. The transaction that it concerns may have been committed.
pub(super) type EngineError = redb::Error;

/// The open file.
pub(super) struct Engine {
    pub(super) database: Database,
}

/// How much the store contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Totals {
    pub(super) keys: u64,
    pub(super) floors: u64,
    pub(super) bytes: u64,
}

impl Engine {
    /// Opens the file in a directory, or creates it.
    pub(super) fn open(dir: &Path) -> Result<Self, StartError> {
        let disk = |source| StartError::Disk { what: dir.display().to_string(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(disk)?;
        let path = dir.join(FILE);
        let unreadable = |error: EngineError| StartError::Unreadable {
            what: path.display().to_string(),
            why: error.to_string(),
        };
        let database = Database::builder().set_cache_size(CACHE_BYTES).create(&path);
        let database = database.map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => StartError::Disk {
                what: path.display().to_string(),
                source: std::io::Error::new(
                    std::io::ErrorKind::ResourceBusy,
                    "another store uses it",
                ),
            },
            other => unreadable(other.into()),
        })?;
        // The file's name must survive a power failure as well as its content.
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(disk)?;
        let engine = Self { database };
        match engine.begin().map_err(unreadable)? {
            FORMAT => Ok(engine),
            other => Err(StartError::Unreadable {
                what: path.display().to_string(),
                why: format!("it is of format {other}, and this version knows {FORMAT}"),
            }),
        }
    }

    /// Creates the tables if they do not exist, and returns the format version.
    fn begin(&self) -> Result<u64, EngineError> {
        let transaction = self.database.begin_write()?;
        let format = {
            let mut totals = transaction.open_table(TOTALS)?;
            let format = totals.get("format")?.map(|format| format.value());
            if format.is_none() {
                totals.insert("format", FORMAT)?;
                totals.insert("bytes", 0)?;
                transaction.open_table(FLOORS)?;
                transaction.open_table(RECORDS)?;
                transaction.open_table(PIECES)?;
            }
            format.unwrap_or(FORMAT)
        };
        transaction.commit()?;
        Ok(format)
    }

    /// Executes the requests in order, in one transaction. The results are durable once this has returned.
    pub(super) fn turn(
        &self,
        limits: &StoreLimits,
        asks: &[StoreRequest],
    ) -> Result<Vec<Result<StoreOutcome, StoreRefusal>>, EngineError> {
        let transaction = self.database.begin_write()?;
        let mut turn = Transaction::new(&transaction, limits)?;
        let answers = asks.iter().map(|ask| turn.act(ask)).collect::<Result<Vec<_>, _>>()?;
        let changed = turn.end()?;
        if changed {
            transaction.commit()?;
        } else {
            transaction.abort()?;
        }
        Ok(answers)
    }

    pub(super) fn read(&self, key: &str) -> Result<Option<KeyRecord>, EngineError> {
        let transaction = self.database.begin_read()?;
        let (records, pieces) = (transaction.open_table(RECORDS)?, transaction.open_table(PIECES)?);
        let Some(about) = about(&records, key)? else { return Ok(None) };
        Ok(Some(KeyRecord { value: value(&pieces, key, &about)?, about }))
    }

    pub(super) fn floor(&self, at: LockSlot<'_>) -> Result<Floor, EngineError> {
        let transaction = self.database.begin_read()?;
        floor(&transaction.open_table(FLOORS)?, at)
    }

    /// Returns the keys that start with `prefix`, behind `after`, in order, and whether there are more.
    pub(super) fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<(Vec<KeyInfo>, bool), EngineError> {
        let transaction = self.database.begin_read()?;
        let records = transaction.open_table(RECORDS)?;
        let from = after.filter(|after| *after >= prefix).unwrap_or(prefix);
        let mut found = Vec::new();
        for entry in records.range(from..)? {
            let (key, row) = entry?;
            let key = key.value();
            if !key.starts_with(prefix) {
                break;
            }
            if after.is_some_and(|after| key <= after) {
                continue;
            }
            if found.len() == most {
                return Ok((found, true));
            }
            found.push(KeyInfo::from_row(key, row.value()));
        }
        Ok((found, false))
    }

    pub(super) fn totals(&self) -> Result<Totals, EngineError> {
        let transaction = self.database.begin_read()?;
        let keys = transaction.open_table(RECORDS)?.len()?;
        let floors = transaction.open_table(FLOORS)?.len()?;
        let bytes = transaction.open_table(TOTALS)?.get("bytes")?.map_or(0, |bytes| bytes.value());
        Ok(Totals { keys, floors, bytes })
    }
}

/// One open transaction.
struct Transaction<'t> {
    floors: Table<'t, (&'static str, i64), &'static str>,
    records: Table<'t, &'static str, (&'static str, i64, u64, u64, u32)>,
    pieces: Table<'t, (&'static str, u32), &'static [u8]>,
    totals: Table<'t, &'static str, u64>,
    limits: &'t StoreLimits,
    bytes: u64,
    changed: bool,
}

impl<'t> Transaction<'t> {
    fn new(
        transaction: &'t WriteTransaction,
        limits: &'t StoreLimits,
    ) -> Result<Self, EngineError> {
        let totals = transaction.open_table(TOTALS)?;
        let bytes = totals.get("bytes")?.map_or(0, |bytes| bytes.value());
        Ok(Self {
            floors: transaction.open_table(FLOORS)?,
            records: transaction.open_table(RECORDS)?,
            pieces: transaction.open_table(PIECES)?,
            totals,
            limits,
            bytes,
            changed: false,
        })
    }

    /// Returns whether the transaction has to be committed.
    fn end(mut self) -> Result<bool, EngineError> {
        if self.changed {
            self.totals.insert("bytes", self.bytes)?;
        }
        Ok(self.changed)
    }

    /// Executes one request. Everything that can be refused is checked before anything changes.
    fn act(
        &mut self,
        ask: &StoreRequest,
    ) -> Result<Result<StoreOutcome, StoreRefusal>, EngineError> {
        let at = ask.at();
        let kept = floor(&self.floors, at)?;
        let touch = match ask.act {
            StoreAction::Read { .. } | StoreAction::Raise => Touch::Raise,
            _ => Touch::Write,
        };
        let next = match kept.admit(ask.claim, touch) {
            Ok(next) => next,
            Err(refused) => return Ok(Err(StoreRefusal::Refused(refused))),
        };
        let key = ask.act.key();
        let before = match key {
            Some(key) => about(&self.records, key)?,
            None => None,
        };
        if let Some(before) = before.as_ref().filter(|before| before.at() != at) {
            let other = before.at();
            return Ok(Err(StoreRefusal::OtherLock {
                lock: other.lock.to_owned(),
                slot: other.slot,
            }));
        }
        let grown = match self.weigh(ask, kept, before.as_ref()) {
            Ok(grown) => grown,
            Err(no) => return Ok(Err(no)),
        };
        if next != kept {
            self.floors.insert((at.lock, number(at)), next.to_text().as_str())?;
            self.changed = true;
        }
        self.changed |= grown != self.bytes;
        self.bytes = grown;
        self.change(ask, before, next).map(Ok)
    }

    /// Returns the total size after the request, or why it is refused.
    fn weigh(
        &self,
        ask: &StoreRequest,
        kept: Floor,
        before: Option<&KeyInfo>,
    ) -> Result<u64, StoreRefusal> {
        let had = before.map_or(0, |before| before.bytes);
        let has = match &ask.act {
            StoreAction::Put { value, .. } => value.len() as u64,
            StoreAction::Append { value, at, .. } => {
                if let Some(at) = at.filter(|at| *at != had) {
                    return Err(StoreRefusal::Compare { at, bytes: had });
                }
                had + value.len() as u64
            }
            _ => had,
        };
        if has > self.limits.value_bytes_max && has > had {
            return Err(StoreRefusal::ValueTooLong {
                bytes: has,
                most: self.limits.value_bytes_max,
            });
        }
        let weight = |key: &str, bytes: u64| OVERHEAD + (key.len() + ask.lock.len()) as u64 + bytes;
        let record = ask.act.key().map_or(0, |key| before.map_or(0, |_| weight(key, had)));
        let after = match &ask.act {
            StoreAction::Put { key, .. } | StoreAction::Append { key, .. } => weight(key, has),
            StoreAction::Delete { .. } => 0,
            StoreAction::Read { .. } | StoreAction::Raise => record,
        };
        let floor = if kept == Floor::default() { OVERHEAD + ask.lock.len() as u64 } else { 0 };
        let grown = self.bytes.saturating_sub(record) + after + floor;
        if grown > self.limits.bytes_max && grown > self.bytes {
            return Err(StoreRefusal::Full { most: self.limits.bytes_max });
        }
        Ok(grown)
    }

    /// Changes the data, after the floor has admitted the request.
    fn change(
        &mut self,
        ask: &StoreRequest,
        before: Option<KeyInfo>,
        floor: Floor,
    ) -> Result<StoreOutcome, EngineError> {
        Ok(match &ask.act {
            StoreAction::Raise => StoreOutcome::Raised(floor),
            StoreAction::Read { key } => StoreOutcome::Read(match before {
                Some(about) => Some(KeyRecord { value: value(&self.pieces, key, &about)?, about }),
                None => None,
            }),
            StoreAction::Delete { key } => {
                if let Some(before) = &before {
                    self.clear(key, before)?;
                    self.records.remove(key.as_str())?;
                    self.changed = true;
                }
                StoreOutcome::Deleted(before.is_some())
            }
            StoreAction::Put { key, value } => {
                if let Some(before) = &before {
                    self.clear(key, before)?;
                }
                self.pieces.insert((key.as_str(), 0), &value[..])?;
                let bytes = value.len() as u64;
                self.note(ask, key, bytes, 1)?;
                StoreOutcome::Put { bytes }
            }
            StoreAction::Append { key, value, .. } => {
                let (at, mut pieces) =
                    before.map_or((0, 0), |before| (before.bytes, before.pieces));
                let mut piece = Vec::new();
                if let Some(last) = pieces.checked_sub(1)
                    && let Some(last) = self.pieces.get((key.as_str(), last))?
                    && last.value().len() < PIECE
                {
                    piece.extend_from_slice(last.value());
                    pieces -= 1;
                }
                piece.extend_from_slice(value);
                self.pieces.insert((key.as_str(), pieces), &piece[..])?;
                let bytes = at + value.len() as u64;
                self.note(ask, key, bytes, pieces + 1)?;
                StoreOutcome::Appended { at, bytes }
            }
        })
    }

    /// Writes the record of a key: its last writer, and its size.
    fn note(
        &mut self,
        ask: &StoreRequest,
        key: &str,
        bytes: u64,
        pieces: u32,
    ) -> Result<(), EngineError> {
        let row = (ask.lock.as_str(), number(ask.at()), ask.claim.token.get(), bytes, pieces);
        self.records.insert(key, row)?;
        self.changed = true;
        Ok(())
    }

    fn clear(&mut self, key: &str, before: &KeyInfo) -> Result<(), EngineError> {
        for piece in 0..before.pieces {
            self.pieces.remove((key, piece))?;
        }
        Ok(())
    }
}

/// The slot in a column: -1 if the lock has none.
pub(super) fn number(at: LockSlot<'_>) -> i64 {
    at.slot.map_or(-1, i64::from)
}

pub(super) fn floor(
    table: &impl ReadableTable<(&'static str, i64), &'static str>,
    at: LockSlot<'_>,
) -> Result<Floor, EngineError> {
    let Some(text) = table.get((at.lock, number(at)))? else { return Ok(Floor::default()) };
    // Treating an unreadable floor as none would admit every token.
    Floor::parse(text.value())
        .ok_or_else(|| EngineError::Corrupted(format!("the floor of {at} is {:?}", text.value())))
}

fn about(
    table: &impl ReadableTable<&'static str, (&'static str, i64, u64, u64, u32)>,
    key: &str,
) -> Result<Option<KeyInfo>, EngineError> {
    Ok(table.get(key)?.map(|row| KeyInfo::from_row(key, row.value())))
}

fn value(
    table: &impl ReadableTable<(&'static str, u32), &'static [u8]>,
    key: &str,
    about: &KeyInfo,
) -> Result<Bytes, EngineError> {
    let mut value = Vec::with_capacity(usize::try_from(about.bytes).unwrap_or(0));
    for piece in 0..about.pieces {
        let piece = table.get((key, piece))?;
        value.extend_from_slice(piece.as_ref().map(redb::AccessGuard::value).unwrap_or_default());
    }
    if value.len() as u64 != about.bytes {
        return Err(EngineError::Corrupted(format!(
            "of {} bytes of `{key}` {} are there",
            about.bytes,
            value.len()
        )));
    }
    Ok(value.into())
}
