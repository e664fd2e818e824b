//! Defines the errors that keep a cluster from being restored, and the advice for each.

use std::io;
use std::path::PathBuf;

use tenure_raft::Stop;
use tenure_types::{Epoch, Token};

use crate::backup::BackupError;
use crate::error::StartError;

/// The reason a cluster was not restored. The backup or data directory it was to be restored from is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The backup cannot be used.
    #[error("cannot restore from {path:?}")]
    Backup {
        /// The backup file.
        path: PathBuf,
        /// The problem with the file.
        #[source]
        source: BackupError,
    },
    /// The source belongs to another cluster.
    #[error("this is a backup of cluster {found}, not of {expected}")]
    WrongCluster {
        /// The cluster of the source.
        found: String,
        /// The expected cluster.
        expected: String,
    },
    /// The directory holds no state of a cluster.
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
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The feature level of the state is above the highest one that this build knows.
    #[error(transparent)]
    Outgrown(Stop),
    /// The directory is not empty.
    #[error("data directory {path:?} is not empty: it has {name:?}")]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// The name of one file in it.
        name: String,
    },
    /// The epoch was given to another restore.
    #[error("epoch {} was given to another restore, says {ledger:?}", .epoch.get())]
    EpochUsed {
        /// The epoch.
        epoch: Epoch,
        /// The ledger that records it.
        ledger: PathBuf,
    },
    /// The epoch is too low: its tokens would not be larger than all tokens that were issued before.
    #[error("epoch {} is too low: {least} is the lowest that was never used", .epoch.get())]
    EpochTooLow {
        /// The epoch.
        epoch: Epoch,
        /// The lowest epoch that is allowed.
        least: u16,
    },
    /// The epoch has no tokens above the given one.
    #[error("no token of epoch {} is above {token}", .epoch.get())]
    TokenAbove {
        /// The token that new ones must be above.
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
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// No epoch was given, and the restore cannot choose one, because it could not record it: the ledger is not
    /// writable.
    #[error("cannot write down the epoch in ledger {path:?}: {reason}")]
    LedgerClosed {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
    /// The ledger belongs to another cluster.
    #[error("ledger {path:?} is of cluster {found}, the backup is of {expected}")]
    LedgerCluster {
        /// The file.
        path: PathBuf,
        /// The cluster of the ledger.
        found: String,
        /// The cluster of the backup.
        expected: String,
    },
    /// A line of the ledger cannot be parsed.
    #[error("ledger {path:?} line {line} is not `epoch incarnation cluster`")]
    LedgerLine {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: u64,
    },
    /// A directory cannot be read or written.
    #[error(transparent)]
    Directory(#[from] StartError),
}

impl RestoreError {
    /// Whether a change of settings would solve the problem.
    pub fn is_setting(&self) -> bool {
        match self {
            Self::NotEmpty { .. } | Self::LedgerClosed { .. } | Self::Ledger { .. } => true,
            Self::Directory(error) => error.is_setting(),
            Self::Backup { .. }
            | Self::WrongCluster { .. }
            | Self::Nothing { .. }
            | Self::Copy { .. }
            | Self::Outgrown(_)
            | Self::EpochUsed { .. }
            | Self::EpochTooLow { .. }
            | Self::TokenAbove { .. }
            | Self::NoEpochLeft
            | Self::LedgerCluster { .. }
            | Self::LedgerLine { .. } => false,
        }
    }

    /// The next step for the operator, in one line.
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
