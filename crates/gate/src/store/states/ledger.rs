//! Decides who may lock and write a state, and records both with the floor of its lock in one transaction.
//!
//! The content of a version is in a file that is durable before the row that names it. So a crash at any moment leaves
//! either the old version or the new one, and the floor never falls (D1).

use redb::{ReadableTable, Table, WriteTransaction};
use tenure_fence::{Claim, Floor, LockSlot, Refused, Token, Touch};

use crate::store::engine::{Engine, EngineError, FLOORS, TOTALS, floor, number};

use super::StateLimits;
use super::document::StateHead;
use super::row::{HeldBy, HeldState, STATES, StateRow, VERSIONS, VersionRow};

/// The key of the sum of all sizes.
const TOTAL: &str = "state_bytes";
/// What a state counts beside its versions: its names, and the info of its lock.
const ROW_BYTES: u64 = 20 * 1024;
/// What a version counts beside its content.
const VERSION_BYTES: u64 = 2 * 1024;
/// How much of its writer's description a version keeps, so that its row has no more than [`VERSION_BYTES`].
const WHO_CHARS_MAX: usize = 256;
/// The key of a mark: the store was about to write the first file of a state.
const USED: &str = "states_used";

/// Why nothing was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum StateRefusal {
    /// Another client holds it.
    Locked(HeldState),
    /// The request names a lock of the state that is no longer there.
    LockLost,
    /// The state is guarded by a lock of a cluster, and the request has no token of it.
    TokenRequired {
        lock: String,
    },
    Refused(Refused),
    /// Another lock guards the state.
    OtherLock {
        lock: String,
    },
    /// The state was changed since the writer read it.
    Stale {
        serial: u64,
        newest: u64,
    },
    OtherLineage {
        lineage: String,
    },
    NotFound,
    Full {
        most: u64,
    },
}

/// Who asks, for which state.
#[derive(Clone, Debug)]
pub(super) struct StateLockRequest {
    pub(super) name: String,
    pub(super) lock: String,
    /// The token that the client has shown.
    pub(super) claim: Option<Claim>,
}

/// What is to be written.
#[derive(Clone, Debug)]
pub(super) struct NewVersion {
    pub(super) file: u64,
    pub(super) bytes: u64,
    pub(super) md5: String,
    pub(super) head: StateHead,
    pub(super) at_unix_ms: u64,
}

/// What became of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Written {
    pub(super) version: u64,
    pub(super) serial: u64,
    /// Files that no row names any more; among them the new one, if this version was there already.
    pub(super) unused: Vec<u64>,
}

/// What became of an unlock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unlocked {
    /// The state was not locked.
    NotHeld,
    Released(HeldState),
}

/// Old versions that were removed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct RemovedVersions {
    pub(super) versions: u64,
    pub(super) bytes: u64,
    /// Files that no row names any more.
    pub(super) unused: Vec<u64>,
}

pub(super) type Decided<T> = Result<Result<T, StateRefusal>, EngineError>;

/// Runs a transaction. It is committed if it was not refused.
pub(super) fn change<T>(
    engine: &Engine,
    act: impl FnOnce(&mut StateTransaction<'_>) -> Decided<T>,
) -> Decided<T> {
    let transaction = engine.database.begin_write()?;
    let done = act(&mut StateTransaction::new(&transaction)?)?;
    match &done {
        Ok(_) => transaction.commit()?,
        Err(_) => transaction.abort()?,
    }
    Ok(done)
}

/// Records that files of states may exist from now on.
pub(super) fn mark_used(engine: &Engine) -> Result<(), EngineError> {
    let transaction = engine.database.begin_write()?;
    transaction.open_table(TOTALS)?.insert(USED, 1)?;
    transaction.commit()?;
    Ok(())
}

/// Whether files of states may exist.
pub(super) fn is_used(totals: &impl ReadableTable<&'static str, u64>) -> Result<bool, EngineError> {
    Ok(totals.get(USED)?.is_some())
}

/// One open transaction.
pub(super) struct StateTransaction<'t> {
    states: Table<'t, &'static str, &'static str>,
    versions: Table<'t, (&'static str, u64), &'static str>,
    floors: Table<'t, (&'static str, i64), &'static str>,
    totals: Table<'t, &'static str, u64>,
}

impl<'t> StateTransaction<'t> {
    fn new(transaction: &'t WriteTransaction) -> Result<Self, EngineError> {
        Ok(Self {
            states: transaction.open_table(STATES)?,
            versions: transaction.open_table(VERSIONS)?,
            floors: transaction.open_table(FLOORS)?,
            totals: transaction.open_table(TOTALS)?,
        })
    }

    /// Locks a state. A repetition with the same id succeeds. A token that is larger than the holder's proves that the
    /// cluster has granted the lock again since, so the holder is gone, and the new one takes its place.
    pub(super) fn lock(
        &mut self,
        ask: &StateLockRequest,
        id: &str,
        info: &str,
        by: HeldBy,
        limits: &StateLimits,
    ) -> Decided<()> {
        let row = get(&self.states, &ask.name)?;
        let is_new = row.is_none();
        let mut row =
            row.unwrap_or_else(|| StateRow { lock: ask.lock.clone(), newest: 0, held: None });
        if row.lock != ask.lock {
            return Ok(Err(StateRefusal::OtherLock { lock: row.lock }));
        }
        if let Some(held) = &row.held
            && held.id != id
            && !is_newer(ask.claim, held.token)
        {
            return Ok(Err(StateRefusal::Locked(held.clone())));
        }
        let kept = floor(&self.floors, LockSlot::from(ask.lock.as_str()))?;
        if let Err(no) = self.raise(ask, ask.claim, kept, Touch::Raise)? {
            return Ok(Err(no));
        }
        if is_new && let Err(no) = self.weigh(ROW_BYTES, limits)? {
            return Ok(Err(no));
        }
        let token = ask.claim.map(|claim| claim.token.get());
        row.held = Some(HeldState { id: id.to_owned(), info: info.to_owned(), by, token });
        self.put(&ask.name, &row)?;
        Ok(Ok(()))
    }

    /// Unlocks a state. Without an id it ends any hold. A repetition succeeds.
    pub(super) fn unlock(&mut self, ask: &StateLockRequest, id: Option<&str>) -> Decided<Unlocked> {
        let row = get(&self.states, &ask.name)?;
        let Some((row, held)) = row.and_then(|row| row.held.clone().map(|held| (row, held))) else {
            return Ok(Ok(Unlocked::NotHeld));
        };
        if row.lock != ask.lock {
            return Ok(Err(StateRefusal::OtherLock { lock: row.lock }));
        }
        if id.is_some_and(|id| id != held.id) {
            return Ok(Err(StateRefusal::Locked(held)));
        }
        let kept = floor(&self.floors, LockSlot::from(ask.lock.as_str()))?;
        if let Some(claim) = ask.claim
            && let Err(refused) = kept.admit(claim, Touch::Raise)
        {
            return Ok(Err(StateRefusal::Refused(refused)));
        }
        self.end_hold(&ask.name, row)?;
        Ok(Ok(Unlocked::Released(held)))
    }

    /// Records that no client holds the state.
    fn end_hold(&mut self, name: &str, mut row: StateRow) -> Result<(), EngineError> {
        row.held = None;
        if row.newest > 0 {
            return self.put(name, &row);
        }
        // Nothing was ever written: the name is free again, for any lock.
        self.states.remove(name)?;
        let total = self.total()?;
        self.totals.insert(TOTAL, total.saturating_sub(ROW_BYTES))?;
        Ok(())
    }

    /// Records the token of a new grant for the same holder. Returns whether it still holds the state.
    ///
    /// If a later holder of the lock was seen since, the client has lost the state: its work has overlapped with that
    /// holder's, and a new token would let it write.
    pub(super) fn regain(&mut self, name: &str, id: &str, claim: Claim) -> Decided<bool> {
        let Some(mut row) = get(&self.states, name)? else { return Ok(Ok(false)) };
        let lock = row.lock.clone();
        let Some(held) = row.held.as_mut().filter(|it| it.id == id && it.by == HeldBy::Cluster)
        else {
            return Ok(Ok(false));
        };
        let kept = floor(&self.floors, LockSlot::from(lock.as_str()))?;
        let before = held.token.and_then(Token::from_u64).map(Claim::new);
        if before.is_some_and(|before| kept.admit(before, Touch::Write).is_err()) {
            self.end_hold(name, row)?;
            return Ok(Ok(false));
        }
        held.token = Some(claim.token.get());
        let ask = StateLockRequest { name: name.to_owned(), lock, claim: Some(claim) };
        if let Err(no) = self.raise(&ask, ask.claim, kept, Touch::Raise)? {
            return Ok(Err(no));
        }
        self.put(name, &row)?;
        Ok(Ok(true))
    }

    /// Adds a version, and removes those that are no longer kept, or that have to make room for it.
    pub(super) fn write(
        &mut self,
        ask: &StateLockRequest,
        id: Option<&str>,
        new: &NewVersion,
        limits: &StateLimits,
    ) -> Decided<Written> {
        let (row, held) = match self.begin_write(ask, id)? {
            Ok(began) => began,
            Err(no) => return Ok(Err(no)),
        };
        if let Some(newest) = self.newest(&ask.name, &row)?.filter(|newest| newest.file.is_some()) {
            let same = newest.md5 == new.md5 && newest.bytes == new.bytes;
            if same && newest.serial == new.head.serial {
                // A repetition whose first answer did not arrive.
                let (version, serial) = (row.newest, newest.serial);
                return Ok(Ok(Written { version, serial, unused: vec![new.file] }));
            }
            if let Err(no) = follows(&newest, &new.head) {
                return Ok(Err(no));
            }
        }
        let serial = new.head.serial;
        let version = VersionRow {
            file: Some(new.file),
            bytes: new.bytes,
            md5: new.md5.clone(),
            serial,
            lineage: new.head.lineage.clone(),
            token: None,
            who: String::new(),
            at_unix_ms: new.at_unix_ms,
        };
        let added = self.add(ask, row, held, version, limits)?;
        Ok(added.map(|(version, unused)| Written { version, serial, unused }))
    }

    /// Adds a version that says that the state was deleted. Returns the files that are no longer named.
    pub(super) fn delete(
        &mut self,
        ask: &StateLockRequest,
        id: Option<&str>,
        at_unix_ms: u64,
        limits: &StateLimits,
    ) -> Decided<Vec<u64>> {
        let (row, held) = match self.begin_write(ask, id)? {
            Ok(began) => began,
            Err(no) => return Ok(Err(no)),
        };
        let Some(newest) = self.newest(&ask.name, &row)?.filter(|newest| newest.file.is_some())
        else {
            return Ok(Err(StateRefusal::NotFound));
        };
        let version = VersionRow {
            file: None,
            bytes: 0,
            md5: String::new(),
            token: None,
            who: String::new(),
            at_unix_ms,
            ..newest
        };
        // A deletion needs no room, because it removes none of the versions and adds a small one.
        let limits = StateLimits { total_bytes_max: u64::MAX, ..*limits };
        let added = self.add(ask, row, held, version, &limits)?;
        Ok(added.map(|(_, unused)| unused))
    }

    /// Removes all versions but the newest `keep`. It takes no lock: the holder of a state does not read them.
    pub(super) fn purge(&mut self, ask: &StateLockRequest, keep: u64) -> Decided<RemovedVersions> {
        let Some(row) = get(&self.states, &ask.name)? else {
            return Ok(Err(StateRefusal::NotFound));
        };
        if row.lock != ask.lock {
            return Ok(Err(StateRefusal::OtherLock { lock: row.lock }));
        }
        let kept = floor(&self.floors, LockSlot::from(ask.lock.as_str()))?;
        if let Some(claim) = ask.claim
            && let Err(refused) = kept.admit(claim, Touch::Raise)
        {
            return Ok(Err(StateRefusal::Refused(refused)));
        }
        let last = row.newest.saturating_sub(keep.max(1));
        Ok(Ok(self.remove_oldest(&ask.name, |number, _| number <= last)?))
    }

    /// Checks lock, id and token of a write, and raises the floor.
    fn begin_write(
        &mut self,
        ask: &StateLockRequest,
        id: Option<&str>,
    ) -> Decided<(StateRow, Option<HeldState>)> {
        let row = get(&self.states, &ask.name)?;
        let kept = floor(&self.floors, LockSlot::from(ask.lock.as_str()))?;
        let claim = match admit(row.as_ref(), kept, ask, id) {
            Ok(claim) => claim,
            Err(no) => return Ok(Err(no)),
        };
        if let Err(no) = self.raise(ask, claim, kept, Touch::Write)? {
            return Ok(Err(no));
        }
        let row = row.unwrap_or_else(|| StateRow { lock: ask.lock.clone(), newest: 0, held: None });
        let held = row.held.clone();
        Ok(Ok((row, held)))
    }

    fn add(
        &mut self,
        ask: &StateLockRequest,
        mut row: StateRow,
        held: Option<HeldState>,
        version: VersionRow,
        limits: &StateLimits,
    ) -> Decided<(u64, Vec<u64>)> {
        let is_new = self.states.get(ask.name.as_str())?.is_none();
        let grown = VERSION_BYTES + version.bytes + if is_new { ROW_BYTES } else { 0 };
        row.newest += 1;
        let beyond = row.newest.saturating_sub(limits.versions_max);
        let (total, room) = (self.total()?, limits.total_bytes_max.saturating_sub(grown));
        // The result of an apply is worth more than old versions of the same state.
        let is_over = |number, freed| number <= beyond || total.saturating_sub(freed) > room;
        let RemovedVersions { unused, .. } = self.remove_oldest(&ask.name, is_over)?;
        if let Err(no) = self.weigh(grown, limits)? {
            return Ok(Err(no));
        }
        let token = ask.claim.map(|claim| claim.token.get());
        let token = token.or_else(|| held.as_ref().and_then(|held| held.token));
        let who = held.as_ref().map(HeldState::who).unwrap_or_default();
        let who = who.chars().take(WHO_CHARS_MAX).collect();
        let version = VersionRow { token, who, ..version };
        self.versions.insert((ask.name.as_str(), row.newest), json(&version).as_str())?;
        self.put(&ask.name, &row)?;
        Ok(Ok((row.newest, unused)))
    }

    /// Removes versions of a state, oldest first, while `is_over` is true of the next number and the freed bytes.
    fn remove_oldest(
        &mut self,
        name: &str,
        is_over: impl Fn(u64, u64) -> bool,
    ) -> Result<RemovedVersions, EngineError> {
        let (mut removed, mut numbers) = (RemovedVersions::default(), Vec::new());
        for entry in self.versions.range((name, 0)..=(name, u64::MAX))? {
            let (key, text) = entry?;
            let (_, number) = key.value();
            if !is_over(number, removed.bytes) {
                break;
            }
            let old: VersionRow = parse(text.value())?;
            removed.versions += 1;
            removed.bytes += VERSION_BYTES + old.bytes;
            removed.unused.extend(old.file);
            numbers.push(number);
        }
        for number in numbers {
            self.versions.remove((name, number))?;
        }
        let total = self.total()?.saturating_sub(removed.bytes);
        self.totals.insert(TOTAL, total)?;
        Ok(removed)
    }

    fn newest(&self, name: &str, row: &StateRow) -> Result<Option<VersionRow>, EngineError> {
        let newest = self.versions.get((name, row.newest))?;
        newest.map(|text| parse(text.value())).transpose()
    }

    /// Raises the floor of the lock to this claim, if there is one.
    fn raise(
        &mut self,
        ask: &StateLockRequest,
        claim: Option<Claim>,
        kept: Floor,
        touch: Touch,
    ) -> Decided<()> {
        let Some(claim) = claim else {
            let required = || StateRefusal::TokenRequired { lock: ask.lock.clone() };
            return Ok(if kept == Floor::default() { Ok(()) } else { Err(required()) });
        };
        match kept.admit(claim, touch) {
            Err(refused) => return Ok(Err(StateRefusal::Refused(refused))),
            Ok(next) if next == kept => {}
            Ok(next) => {
                let at = LockSlot::from(ask.lock.as_str());
                self.floors.insert((at.lock, number(at)), next.to_text().as_str())?;
            }
        }
        Ok(Ok(()))
    }

    /// Adds to the sum of all sizes.
    fn weigh(&mut self, grown: u64, limits: &StateLimits) -> Decided<()> {
        let total = self.total()?.saturating_add(grown);
        if total > limits.total_bytes_max {
            return Ok(Err(StateRefusal::Full { most: limits.total_bytes_max }));
        }
        self.totals.insert(TOTAL, total)?;
        Ok(Ok(()))
    }

    fn total(&self) -> Result<u64, EngineError> {
        Ok(self.totals.get(TOTAL)?.map_or(0, |total| total.value()))
    }

    fn put(&mut self, name: &str, row: &StateRow) -> Result<(), EngineError> {
        self.states.insert(name, json(row).as_str())?;
        Ok(())
    }
}

/// Whether a token proves that the lock was granted again after this one.
fn is_newer(claim: Option<Claim>, held: Option<u64>) -> bool {
    claim.zip(held).is_some_and(|(claim, held)| claim.token.get() > held)
}

/// Returns the claim under which a write is judged, or why it is refused.
pub(super) fn admit(
    row: Option<&StateRow>,
    kept: Floor,
    ask: &StateLockRequest,
    id: Option<&str>,
) -> Result<Option<Claim>, StateRefusal> {
    if let Some(row) = row.filter(|row| row.lock != ask.lock) {
        return Err(StateRefusal::OtherLock { lock: row.lock.clone() });
    }
    let held = row.and_then(|row| row.held.as_ref());
    let claim = match (held, id) {
        (Some(held), Some(id)) if held.id == id => {
            let kept = held.token.and_then(Token::from_u64).map(Claim::new);
            ask.claim.or(kept)
        }
        (Some(held), _) => return Err(StateRefusal::Locked(held.clone())),
        (None, Some(_)) => return Err(StateRefusal::LockLost),
        (None, None) => ask.claim,
    };
    match claim {
        Some(claim) => kept.admit(claim, Touch::Write).map(drop).map_err(StateRefusal::Refused)?,
        None if kept != Floor::default() => {
            return Err(StateRefusal::TokenRequired { lock: ask.lock.clone() });
        }
        None => {}
    }
    Ok(claim)
}

/// Whether a state may replace the newest version: it has the same lineage and a larger serial, so its writer has read
/// that version or a later one.
pub(super) fn follows(newest: &VersionRow, head: &StateHead) -> Result<(), StateRefusal> {
    if newest.lineage != head.lineage {
        return Err(StateRefusal::OtherLineage { lineage: newest.lineage.clone() });
    }
    if head.serial <= newest.serial {
        return Err(StateRefusal::Stale { serial: head.serial, newest: newest.serial });
    }
    Ok(())
}

pub(super) fn get(
    table: &impl ReadableTable<&'static str, &'static str>,
    name: &str,
) -> Result<Option<StateRow>, EngineError> {
    table.get(name)?.map(|text| parse(text.value())).transpose()
}

pub(super) fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, EngineError> {
    serde_json::from_str(text).map_err(|error| EngineError::Corrupted(error.to_string()))
}

fn json(row: &impl serde::Serialize) -> String {
    serde_json::to_string(row).expect("texts and numbers are always JSON")
}
