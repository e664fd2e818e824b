//! Restores a cluster from a backup or from the disk of its last member, under a new epoch.
//!
//! The restore creates a cluster of one in an empty directory; others join it. The cluster keeps its id and its keys.
//! Holders from before the restore may still be at work. Three things make that safe: the epoch is higher than any
//! before, so every new token is above every old one; all leases are ended; and nothing is granted until the longest
//! lease that a client can have, and the longest lock-delay, would have run out.

mod error;
mod ledger;
mod survivor;

use std::path::{Path, PathBuf};

use tenure_core::Machine;
use tenure_core::codec::{encode_request, seal_entry};
use tenure_core::outcome::Effects;
use tenure_core::request::{Command, Expect, Request, RequestId};
use tenure_raft::MemberId;
use tenure_types::{Epoch, Revision, Term, Token};

use crate::backup::Verified;
use crate::data_home::{DataHome, FileSizes};
pub use error::RestoreError;
use ledger::EpochLedger;
pub(crate) use ledger::is_ledger_line;
pub use tenure_core::StoppedFor;
use tenure_node::directory::{self, MemberNames};
use tenure_node::{Incarnation, Lineage};

/// The directory for the copy of a survivor's log and snapshots, below the new data directory.
const SCRATCH: &str = "copied";
/// The files that a directory counted as empty may contain: the lock of a refused restore, and what some file systems
/// create.
const NOTHING: [&str; 2] = ["in-use", "lost+found"];

/// The source of a restore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RestoreOrigin {
    /// A file that `tenure backup` wrote.
    Backup(PathBuf),
    /// The data directory of a member that does not run. The restore does not change it.
    Data(PathBuf),
}

/// The parameters of a restore.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// The source.
    pub from: RestoreOrigin,
    /// The empty directory in which the cluster is created.
    pub data: PathBuf,
    /// The cluster that the source must belong to; without it, any.
    pub cluster: Option<String>,
    /// The epoch; without it, the first one that was never used.
    pub epoch: Option<Epoch>,
    /// A token that every new token must be above.
    pub above: Option<Token>,
    /// The ledger, if it is not beside the source.
    pub ledger: Option<PathBuf>,
    /// How long all clients from before the restore are known to have stopped.
    pub stopped: StoppedFor,
    /// The member's name and addresses, if they are known already.
    pub names: Option<MemberNames>,
    /// Size of log segments.
    pub segment_bytes: u32,
}

/// The result of a restore.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The restored cluster, its epoch and its incarnation.
    pub lineage: Lineage,
    /// The cluster, epoch and incarnation of the source.
    pub before: Lineage,
    /// The only member of the restored cluster.
    pub member: MemberId,
    /// The last log entry of the source that is in the state.
    pub index: u64,
    /// The number of last entries that the survivor did not know to be committed.
    pub unsure: u64,
    /// The newest revision.
    pub revision: Revision,
    /// The number of keys, including the cluster's own.
    pub keys: u64,
    /// How long nothing is granted once the member leads.
    pub quiet_ms: Option<u64>,
    /// The ledger that records the epoch; none if it could not be written.
    pub ledger: Option<PathBuf>,
}

/// A state from before the restore.
struct FormerState {
    lineage: Lineage,
    machine: Machine,
    index: u64,
    unsure: u64,
}

/// Creates a cluster of one. After an error no member can start from the directory, and the epoch may be used up.
pub fn restore(wanted: &RestoreOptions) -> Result<Restored, RestoreError> {
    let RestoreOptions { from, data, .. } = wanted;
    check_names(wanted.names.as_ref())?;
    check_empty(data)?;
    // A backup is read before anything is written. The copy of a survivor needs the directory first.
    let mut source = match from {
        RestoreOrigin::Backup(path) => Some(from_backup(path)?),
        RestoreOrigin::Data(_) => None,
    };
    let (dir, _) = tenure_store::DataDir::open_or_create(data).map_err(crate::StartError::from)?;
    // Check again: another process may have held the lock just before.
    check_empty(data)?;
    if let RestoreOrigin::Data(path) = from {
        source = Some(survivor::read(path, &data.join(SCRATCH), tenure_core::LEVEL_MAX)?);
    }
    let source = source.expect("it comes from one or the other");
    let before = source.lineage.clone();
    if let Some(expected) = wanted.cluster.clone().filter(|wanted| *wanted != before.cluster) {
        return Err(RestoreError::WrongCluster { found: before.cluster, expected });
    }
    let (RestoreOrigin::Backup(beside) | RestoreOrigin::Data(beside)) = from;
    let path = wanted.ledger.clone().unwrap_or_else(|| EpochLedger::beside(beside));
    let mut ledger = EpochLedger::open(&path, &before.cluster)?;
    let epoch = choose_epoch(wanted, before.epoch, &ledger)?;
    let lineage = Lineage {
        cluster: before.cluster.clone(),
        epoch,
        incarnation: Incarnation::draw(crate::os::random),
    };
    ledger.append(&lineage)?;
    let written_down = ledger.is_closed().is_none().then(|| ledger.path().to_owned());
    let member = DataHome::draw_member();
    let FormerState { mut machine, index, unsure, .. } = source;
    if !machine.restore(epoch, wanted.stopped) {
        return Err(RestoreError::EpochTooLow { epoch, least: before.epoch.get() + 1 });
    }
    rewrite_directory(&mut machine, member, wanted.names.as_ref());
    let sizes = FileSizes { segment_bytes: wanted.segment_bytes, reserve_bytes: 0 };
    DataHome::lay_down(dir, sizes, member, lineage.clone(), &machine)?;
    Ok(Restored {
        lineage,
        before,
        member,
        index,
        unsure,
        revision: machine.revision(),
        keys: machine.stats().keys,
        quiet_ms: machine.quiet_ms(),
        ledger: written_down,
    })
}

fn from_backup(path: &Path) -> Result<FormerState, RestoreError> {
    let failed = |source| RestoreError::Backup { path: path.to_owned(), source };
    let Verified { head, machine, .. } =
        Verified::read(path, tenure_core::LEVEL_MAX).map_err(failed)?;
    Ok(FormerState { lineage: head.lineage, machine, index: head.index, unsure: 0 })
}

/// Returns the requested epoch if it is allowed, or the first one that was never used.
fn choose_epoch(
    wanted: &RestoreOptions,
    before: Epoch,
    ledger: &EpochLedger,
) -> Result<Epoch, RestoreError> {
    let token = wanted.above;
    let above = match token {
        Some(token) => Some(token.epoch().ok_or(RestoreError::NoEpochLeft)?),
        None => None,
    };
    let given = ledger.epochs().iter().max().copied();
    let highest = [Some(before), above, given].into_iter().flatten().max().unwrap_or(before);
    let next = highest.get().checked_add(1).and_then(Epoch::new);
    let Some(epoch) = wanted.epoch else {
        if let Some(why) = ledger.is_closed() {
            let (path, reason) = (ledger.path().to_owned(), why.to_string());
            return Err(RestoreError::LedgerClosed { path, reason });
        }
        return next.ok_or(RestoreError::NoEpochLeft);
    };
    if ledger.epochs().contains(&epoch) {
        return Err(RestoreError::EpochUsed { epoch, ledger: ledger.path().to_owned() });
    }
    if let Some(token) = token.filter(|_| above.is_some_and(|above| above >= epoch)) {
        return Err(RestoreError::TokenAbove { token, epoch });
    }
    if epoch <= highest {
        return Err(RestoreError::EpochTooLow { epoch, least: highest.get() + 1 });
    }
    Ok(epoch)
}

fn check_names(names: Option<&MemberNames>) -> Result<(), RestoreError> {
    let words = names.into_iter().flat_map(|names| [&names.name, &names.members, &names.clients]);
    match words.into_iter().find(|word| !directory::is_word(word)) {
        Some(word) => Err(crate::StartError::Word { word: word.clone() }.into()),
        None => Ok(()),
    }
}

fn check_empty(data: &Path) -> Result<(), RestoreError> {
    // A path that does not exist or is no directory is reported by the code that opens it.
    let Ok(found) = std::fs::read_dir(data) else { return Ok(()) };
    for name in found.flatten().map(|found| found.file_name()) {
        if !NOTHING.iter().any(|nothing| name == *nothing) {
            let name = name.to_string_lossy().into_owned();
            return Err(RestoreError::NotEmpty { path: data.to_owned(), name });
        }
    }
    Ok(())
}

/// Removes the former members from the member directory and adds the new one.
fn rewrite_directory(machine: &mut Machine, member: MemberId, names: Option<&MemberNames>) {
    let keys = directory::read(machine).into_keys().map(directory::key);
    let mut requests: Vec<Vec<u8>> = keys.map(|key| delete(&key)).collect();
    // If the command is refused for lack of room, the member repeats it when it starts.
    requests.extend(names.map(|names| directory::put(&directory::key(member), &names.to_string())));
    let term = Term(tenure_raft::FIRST.term);
    let entry = seal_entry(term, 0, requests.iter().map(Vec::as_slice));
    machine.apply(term, Some(&entry), &mut Effects::default());
}

fn delete(key: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let command = Command::Delete { key, expect: Expect::Any, guard: None };
    // The keys of the cluster are written by members only.
    let principal = tenure_core::access::MEMBER;
    encode_request(&Request { principal, id: RequestId::None, command }, &mut bytes);
    bytes
}
