//! Reads the newest state from the disk of a cluster's last member.
//!
//! The directory is only read: its log and snapshots are copied, and changes made by opening them happen in the copy. A
//! failed attempt can be repeated.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_core::Machine;
use tenure_raft::Stop;
use tenure_store::{
    DataDir, DirectoryIdentity, Disk, Log, LogOptions, Presence, RealDisk, Snapshots,
};

use super::{FormerState, RestoreError};
use crate::error::StartError;
use crate::os;
use tenure_node::{Incarnation, Lineage};

/// Reads the newest state in a member's directory; creates, uses and removes `scratch`.
pub(super) fn read(path: &Path, scratch: &Path, known: u16) -> Result<FormerState, RestoreError> {
    let _kept_out = DataDir::keep_out(path).map_err(StartError::from)?;
    let copy = Copy::of(path, scratch)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(&copy.path));
    let nothing = || RestoreError::Nothing { path: path.to_owned() };
    let identity =
        DirectoryIdentity::read(&*disk).map_err(StartError::from)?.ok_or_else(nothing)?;
    let cluster = identity.cluster.ok_or_else(nothing)?;
    let options =
        LogOptions { presence: Presence::MustExist, salt: os::random(), ..LogOptions::default() };
    let (mut log, _) = Log::open(disk.clone(), options).map_err(StartError::from)?;
    let snapshots = Snapshots::open(disk).map_err(StartError::from)?;
    let mut empty = Machine::new(Default::default());
    empty.know_level(known);
    let boot = tenure_raft::load(&mut log, &snapshots, empty).map_err(StartError::from)?;
    if boot.members.voters.is_empty() {
        return Err(nothing());
    }
    let committed = boot.hard_state.commit.max(boot.applied.index);
    let (machine, last) = tenure_raft::replay(boot);
    if let Some(level) = machine.outgrown() {
        return Err(RestoreError::Outgrown(Stop::Outgrown { level, known }));
    }
    let incarnation = Incarnation(identity.incarnation);
    let lineage = Lineage { cluster, epoch: machine.epoch(), incarnation };
    let unsure = last.index.saturating_sub(committed);
    Ok(FormerState { lineage, machine, index: last.index, unsure })
}

/// A copy of the identity, log and snapshots of a data directory, removed when the value is dropped.
struct Copy {
    path: PathBuf,
}

impl Copy {
    fn of(from: &Path, to: &Path) -> Result<Self, RestoreError> {
        let failed = |source| RestoreError::Copy { path: from.to_owned(), source };
        fs::create_dir(to).map_err(failed)?;
        let copy = Self { path: to.to_owned() };
        match fs::copy(from.join("identity.toml"), to.join("identity.toml")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(RestoreError::Nothing { path: from.to_owned() });
            }
            copied => copied.map_err(failed)?,
        };
        for dir in ["log", "snapshots"] {
            let names = match fs::read_dir(from.join(dir)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                names => names.map_err(failed)?,
            };
            fs::create_dir(to.join(dir)).map_err(failed)?;
            for found in names {
                let found = found.map_err(failed)?;
                if found.file_type().map_err(failed)?.is_file() {
                    let name = to.join(dir).join(found.file_name());
                    fs::copy(found.path(), name).map_err(failed)?;
                }
            }
        }
        Ok(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // A copy that cannot be removed only takes space: checks of data directories ignore it.
        let _ = fs::remove_dir_all(&self.path);
    }
}
