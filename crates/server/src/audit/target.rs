//! Writes audit records to a file or to stderr.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where the records are written, with those that are not written yet.
pub(super) enum AuditTarget {
    Stderr(Vec<Arc<str>>),
    File(AuditFile),
}

/// A file that gets records at its end.
pub(super) struct AuditFile {
    file: File,
    /// Bytes that the file has not taken yet.
    unwritten: Vec<u8>,
    is_synced: bool,
}

impl AuditTarget {
    /// Opens an audit file at its end. A line that a crash has cut is ended first.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // Only the owner may read it: reasons and names are not for everyone.
        let mut options = OpenOptions::new();
        let mut file = options.append(true).read(true).create(true).mode(0o600).open(path)?;
        let mut last = [b'\n'];
        if file.metadata()?.len() > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        if last != [b'\n'] {
            file.write_all(b"\n")?;
        }
        Ok(Self::File(AuditFile { file, unwritten: Vec::new(), is_synced: true }))
    }

    /// Adds a record to those that the next [`AuditTarget::write`] writes.
    pub(super) fn add(&mut self, line: &Arc<str>) {
        match self {
            Self::Stderr(lines) => lines.push(line.clone()),
            Self::File(file) => file.unwritten.extend_from_slice(line.as_bytes()),
        }
    }

    /// Writes what was added, and returns how many records are lost. A file that does not take them, for example
    /// because its disk is full, is tried again after each pause until it does.
    pub(super) fn write(&mut self, pause: Duration) -> u64 {
        match self {
            Self::Stderr(lines) => {
                lines.drain(..).filter(|line| !crate::log::print(line)).count() as u64
            }
            Self::File(file) => {
                file.write(pause);
                0
            }
        }
    }

    /// Makes durable what was written.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) if !file.is_synced => {
                file.file.sync_data()?;
                file.is_synced = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl AuditFile {
    fn write(&mut self, pause: Duration) {
        let mut has_failed = false;
        while !self.unwritten.is_empty() {
            self.is_synced = false;
            match self.file.write(&self.unwritten) {
                Ok(0) => {}
                // A record of which only a part was written is completed by the next write.
                Ok(taken) => {
                    self.unwritten.drain(..taken);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if !has_failed => {
                    let bytes = self.unwritten.len();
                    tracing::error!(cause = %error, bytes, "cannot write the audit log; trying again");
                    has_failed = true;
                }
                Err(_) => {}
            }
            std::thread::sleep(pause);
        }
        if has_failed {
            tracing::warn!("the file of the audit log takes records again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails as a full disk does, until it has room.
    #[test]
    fn what_a_full_disk_does_not_take_is_written_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let unwritten = b"{\"act\":\"force\"}\n".to_vec();
        let mut stuck = AuditFile { file: full, unwritten, is_synced: true };
        let (goes_on, room) = std::sync::mpsc::channel::<File>();
        std::thread::scope(|scope| {
            let written = scope.spawn(move || {
                // One failed attempt, and then the disk has room.
                assert!(stuck.file.write(&stuck.unwritten).is_err());
                stuck.file = room.recv().unwrap();
                stuck.write(Duration::from_millis(1));
                stuck.unwritten.len()
            });
            goes_on.send(File::create(&path).unwrap()).unwrap();
            assert_eq!(written.join().unwrap(), 0);
        });
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"act\":\"force\"}\n");
    }
}
