//! Records which epochs were given to restores of a cluster.
//!
//! The ledger is a text file beside the backup with one line per restore: `epoch incarnation cluster`. Two restores of
//! one backup have no other way to know of each other, and must not use the same epoch: they would issue the same
//! tokens.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tenure_types::Epoch;

use super::RestoreError;
use tenure_node::{Incarnation, Lineage};

/// The largest size of a ledger. Each restore adds a line of some 60 bytes, so a larger file is not a ledger.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The ledger of one cluster, locked until it is dropped.
pub(super) struct EpochLedger {
    path: PathBuf,
    /// The file opened for writing, or the error if it cannot be written.
    file: Result<File, io::Error>,
    epochs: Vec<Epoch>,
    /// The offset at which the last whole line ends.
    end: u64,
}

impl EpochLedger {
    /// The path of the ledger beside a backup or a data directory.
    pub(super) fn beside(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(".ledger");
        name.into()
    }

    /// Reads the whole ledger and locks it. A missing file counts as empty.
    pub(super) fn open(path: &Path, cluster: &str) -> Result<Self, RestoreError> {
        let io = |source| RestoreError::Ledger { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let opened = options.open(path);
        let mut text = String::new();
        let file = match opened {
            Ok(file) => {
                file.lock().map_err(io)?;
                (&file).take(BYTES_MAX).read_to_string(&mut text).map_err(io)?;
                Ok(file)
            }
            Err(why) => {
                if let Ok(file) = File::open(path) {
                    file.take(BYTES_MAX).read_to_string(&mut text).map_err(io)?;
                }
                Err(why)
            }
        };
        // Text after the last newline is a write that was cut short, so no later line follows it.
        let end = text.rfind('\n').map_or(0, |at| at + 1);
        let mut epochs = Vec::new();
        for (at, line) in text[..end].lines().enumerate() {
            let malformed =
                || RestoreError::LedgerLine { path: path.to_owned(), line: at as u64 + 1 };
            let entry = parse(line).ok_or_else(malformed)?;
            if entry.cluster != cluster {
                let (found, expected) = (entry.cluster, cluster.to_owned());
                let path = path.to_owned();
                return Err(RestoreError::LedgerCluster { path, found, expected });
            }
            epochs.push(entry.epoch);
        }
        Ok(Self { path: path.to_owned(), file, epochs, end: end as u64 })
    }

    /// The epochs already given to restores.
    pub(super) fn epochs(&self) -> &[Epoch] {
        &self.epochs
    }

    /// The reason the ledger cannot be written, if it cannot.
    pub(super) fn is_closed(&self) -> Option<&io::Error> {
        self.file.as_ref().err()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Records the epoch as used, for good. It is durable when this returns.
    pub(super) fn append(&mut self, lineage: &Lineage) -> Result<(), RestoreError> {
        let Ok(file) = &mut self.file else { return Ok(()) };
        let Lineage { cluster, epoch, incarnation } = lineage;
        let line = format!("{} {incarnation} {cluster}\n", epoch.get());
        let written = file
            .set_len(self.end)
            .and_then(|()| file.seek(SeekFrom::Start(self.end)))
            .and_then(|_| file.write_all(line.as_bytes()))
            .and_then(|()| file.sync_all())
            .and_then(|()| File::open(directory(&self.path))?.sync_all());
        written.map_err(|source| RestoreError::Ledger { path: self.path.clone(), source })
    }
}

/// The directory of a file.
fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn parse(line: &str) -> Option<Lineage> {
    let mut words = line.split(' ');
    let epoch = Epoch::new(words.next()?.parse().ok()?)?;
    let incarnation = Incarnation::parse(words.next()?)?;
    let cluster = words.next().filter(|cluster| !cluster.is_empty())?.to_owned();
    words.next().is_none().then_some(Lineage { cluster, epoch, incarnation })
}

/// Whether a line is a valid ledger entry.
pub(crate) fn is_ledger_line(line: &str) -> bool {
    parse(line).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lineage(epoch: u16) -> Lineage {
        let (epoch, incarnation) = (Epoch::new(epoch).unwrap(), Incarnation(u64::from(epoch) + 7));
        Lineage { cluster: "c".into(), epoch, incarnation }
    }

    #[test]
    fn what_was_given_away_stays_so_and_a_torn_line_was_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = EpochLedger::beside(&dir.path().join("backup"));
        assert_eq!(path, dir.path().join("backup.ledger"));
        let mut ledger = EpochLedger::open(&path, "c").unwrap();
        assert_eq!(ledger.epochs(), []);
        ledger.append(&lineage(3)).unwrap();
        drop(ledger);
        let mut text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "3 000000000000000a c\n");
        text.push_str("4 0000");
        std::fs::write(&path, text).unwrap();
        let mut ledger = EpochLedger::open(&path, "c").unwrap();
        assert_eq!(ledger.epochs(), [lineage(3).epoch]);
        ledger.append(&lineage(5)).unwrap();
        drop(ledger);
        let ledger = EpochLedger::open(&path, "c").unwrap();
        assert_eq!(ledger.epochs(), [lineage(3).epoch, lineage(5).epoch]);
    }

    #[test]
    fn a_ledger_of_another_cluster_or_of_nonsense_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        std::fs::write(&path, "3 000000000000000a d\n").unwrap();
        let error = EpochLedger::open(&path, "c").err().unwrap();
        assert!(matches!(error, RestoreError::LedgerCluster { .. }), "{error}");
        for bad in ["\n", "3 1 c\n", "99999 000000000000000a c\n", "3 000000000000000a c d\n"] {
            std::fs::write(&path, bad).unwrap();
            let error = EpochLedger::open(&path, "c").err().unwrap();
            assert!(matches!(error, RestoreError::LedgerLine { line: 1, .. }), "{bad:?}: {error}");
        }
        let nowhere = dir.path().join("missing").join("ledger");
        assert!(EpochLedger::open(&nowhere, "c").unwrap().is_closed().is_some());
    }
}
