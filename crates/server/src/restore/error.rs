//! Why is a cluster not restored, and what can be done about it?

use std::io;
use std::path::PathBuf;

use tenure_raft::Stop;
use tenure_types::{Epoch, Token};

use crate::backup::BackupError;
use crate::error::StartError;

/// Why a cluster was not restored. What it was to be restored from is untouched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The backup cannot be used.
    #[error("cannot restore from {path:?}")]
    Backup {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: BackupError,
    },
    /// It is of another cluster.
    #[error("this is a backup of cluster {found}, not of {expected}")]
    WrongCluster {
        /// What it is of.
        found: String,
        /// What was asked for.
        expected: String,
    },
    /// The directory is of a member that has no state.
    #[error("data directory {path:?} holds no state of a cluster")]
    Nothing {
        /// The directory.
        path: PathBuf,
    },
    /// The directory cannot be copied.
    #[error("cannot copy the log and snapshots of {path:?}")]
    Copy {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The rules of the state are not known here.
    #[error(transparent)]
    Outgrown(Stop),
    /// Something is in the directory.
    #[error("data directory {path:?} is not empty: it has {name:?}")]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// One thing that is in it.
        name: String,
    },
    /// The epoch belongs to another restore.
    #[error("epoch {} was given to another restore, says {ledger:?}", .epoch.get())]
    EpochUsed {
        /// The epoch.
        epoch: Epoch,
        /// Where it is written down.
        ledger: PathBuf,
    },
    /// The epoch would give tokens below those that were given.
    #[error("epoch {} is too low: {least} is the lowest that was never used", .epoch.get())]
    EpochTooLow {
        /// The epoch.
        epoch: Epoch,
        /// The lowest that would do.
        least: u16,
    },
    /// The epoch cannot have tokens above that one.
    #[error("no token of epoch {} is above {token}", .epoch.get())]
    TokenAbove {
        /// The token.
        token: Token,
        /// The epoch.
        epoch: Epoch,
    },
    /// All epochs are used.
    #[error("no epoch is left above the ones that were used: {} is the last", Epoch::MAX.get())]
    NoEpochLeft,
    /// The ledger cannot be read or written.
    #[error("cannot use ledger {path:?}")]
    Ledger {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Nothing can be added to the ledger.
    #[error("cannot write down the epoch in ledger {path:?}: {reason}")]
    LedgerClosed {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The ledger is of another cluster.
    #[error("ledger {path:?} is of cluster {found}, the backup is of {expected}")]
    LedgerCluster {
        /// The file.
        path: PathBuf,
        /// What it is of.
        found: String,
        /// What the backup is of.
        expected: String,
    },
    /// The ledger says something that is not understood.
    #[error("ledger {path:?} line {line} is not `epoch incarnation cluster`")]
    LedgerLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
    },
    /// A directory cannot be read or written.
    #[error(transparent)]
    Directory(#[from] StartError),
}

impl RestoreError {
    /// Whether another setting would do.
    pub fn is_setting(&self) -> bool {
        match self {
            Self::NotEmpty { .. } | Self::LedgerClosed { .. } | Self::Ledger { .. } => true,
            Self::Directory(error) => error.is_setting(),
            _ => false,
        }
    }

    /// What to do next, in one line.
    pub fn advice(&self) -> String {
        match self {
            Self::Backup { source: BackupError::Io(_), .. } => "the path of a backup".into(),
            Self::Backup { source: BackupError::Format(_) | BackupError::State(_), .. }
            | Self::Outgrown(_) => "the version of tenure that wrote it, or a later one".into(),
            Self::Backup { .. } => "another backup".into(),
            Self::WrongCluster { .. } => "a backup of that cluster".into(),
            Self::Nothing { .. } => "the directory of another member, or a backup".into(),
            Self::Copy { .. } => "again once the cause is gone".into(),
            Self::NotEmpty { .. } => "another directory with --data".into(),
            Self::EpochUsed { .. } => "no --epoch, to have the next one".into(),
            Self::EpochTooLow { least, .. } => format!("--epoch {least}, or no --epoch"),
            Self::TokenAbove { token, .. } => match token.epoch().map(Epoch::get) {
                Some(epoch) => format!("--epoch {}, or no --epoch", epoch + 1),
                None => "no --epoch".into(),
            },
            Self::NoEpochLeft => "a new cluster, with locks of other names".into(),
            Self::Ledger { .. } => "another file with --ledger".into(),
            Self::LedgerClosed { .. } => {
                "--ledger with a file that can be written, or --epoch with one never used".into()
            }
            Self::LedgerCluster { .. } => "the ledger of this cluster with --ledger".into(),
            Self::LedgerLine { .. } => "repairing it: every epoch in it must stay".into(),
            Self::Directory(error) => error.advice(),
        }
    }
}
