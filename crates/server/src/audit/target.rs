//! Writes audit records to a file or to stderr.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use super::record::{AuditOutcome, AuditRecord};

/// The act of the record after which records follow again.
pub(super) const REPEATED: &str = "repeated";

/// Makes durable what was written.
pub(super) trait SyncData {
    fn sync_data(&mut self) -> io::Result<()>;
}

impl SyncData for File {
    fn sync_data(&mut self) -> io::Result<()> {
        File::sync_data(self)
    }
}

/// Where the records are written, with those that are not written yet.
pub(super) enum AuditTarget<F> {
    Stderr(Vec<Arc<str>>),
    File(AuditFile<F>),
}

/// A file that gets records at its end.
pub(super) struct AuditFile<F> {
    file: F,
    /// Bytes that the file has not taken yet.
    unwritten: Vec<u8>,
    /// The records that the file has taken since the last sync.
    unsynced: Vec<u8>,
    /// Whether the last sync failed, so that records are written again.
    repeats: bool,
}

impl AuditTarget<File> {
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
        Ok(Self::File(AuditFile::new(file)))
    }
}

impl<F: Write + SyncData> AuditTarget<F> {
    /// Adds a record to those that the next [`AuditTarget::write`] writes.
    pub(super) fn add(&mut self, line: &Arc<str>) {
        match self {
            Self::Stderr(lines) => lines.push(line.clone()),
            Self::File(file) => file.unwritten.extend_from_slice(line.as_bytes()),
        }
    }

    /// Writes what was added, and returns how many records are lost. After an error no record is lost, and the next
    /// call goes on where this one ended.
    pub(super) fn write(&mut self) -> io::Result<u64> {
        match self {
            Self::Stderr(lines) => {
                Ok(lines.drain(..).filter(|line| !crate::log::print(line)).count() as u64)
            }
            Self::File(file) => file.write().map(|()| 0),
        }
    }

    /// Writes what was added and makes it durable. After an error no record is lost.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        match self {
            Self::Stderr(_) => Ok(()),
            Self::File(file) => file.write().and_then(|()| file.sync()),
        }
    }

    /// The bytes that are written and not known to be durable.
    pub(super) fn unsynced_bytes(&self) -> usize {
        match self {
            Self::Stderr(_) => 0,
            Self::File(file) => file.unsynced.len(),
        }
    }
}

impl<F: Write + SyncData> AuditFile<F> {
    pub(super) fn new(file: F) -> Self {
        Self { file, unwritten: Vec::new(), unsynced: Vec::new(), repeats: false }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.unwritten.is_empty() {
            match self.file.write(&self.unwritten) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                // A record of which only a part was written is completed by the next write.
                Ok(taken) => self.unsynced.extend(self.unwritten.drain(..taken)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes durable what was written. A system whose sync fails may drop the bytes and report success the next time,
    /// so a sync counts only for bytes that were written after the last failure: they are written again.
    fn sync(&mut self) -> io::Result<()> {
        if self.unsynced.is_empty() {
            return Ok(());
        }
        match self.file.sync_data() {
            Ok(()) => {
                self.unsynced.clear();
                self.repeats = false;
                Ok(())
            }
            Err(error) => {
                let mut again = Vec::new();
                if !self.repeats {
                    again = AuditRecord::new(REPEATED, AuditOutcome::Done).line().into_bytes();
                }
                again.append(&mut self.unsynced);
                again.append(&mut self.unwritten);
                (self.unwritten, self.repeats) = (again, true);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::VecDeque;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// What the next call of a file does.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(in crate::audit) enum Fault {
        /// The write takes only so many bytes.
        Short(usize),
        /// The write fails.
        Full,
        /// The sync fails, and the file forgets what it had not synced.
        NotSynced,
    }

    #[derive(Debug, Default)]
    struct Disk {
        faults: VecDeque<Fault>,
        written: Vec<u8>,
        durable: Vec<u8>,
    }

    /// A file that fails as it is told to.
    #[derive(Clone, Debug, Default)]
    pub(in crate::audit) struct FaultyFile(Arc<Mutex<Disk>>);

    impl FaultyFile {
        pub(in crate::audit) fn failing(faults: &[Fault]) -> Self {
            let faults = faults.iter().copied().collect();
            Self(Arc::new(Mutex::new(Disk { faults, ..Disk::default() })))
        }

        pub(in crate::audit) fn fail(&self, fault: Fault) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).faults.push_back(fault);
        }

        /// The lines that a power loss leaves.
        pub(in crate::audit) fn durable(&self) -> Vec<String> {
            let disk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            String::from_utf8(disk.durable.clone()).unwrap().lines().map(str::to_owned).collect()
        }
    }

    impl Write for FaultyFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let taken = match disk.faults.front() {
                Some(Fault::Short(taken)) => *taken,
                Some(Fault::Full) => {
                    disk.faults.pop_front();
                    return Err(io::ErrorKind::StorageFull.into());
                }
                Some(Fault::NotSynced) | None => {
                    disk.written.extend_from_slice(bytes);
                    return Ok(bytes.len());
                }
            };
            disk.faults.pop_front();
            disk.written.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl SyncData for FaultyFile {
        fn sync_data(&mut self) -> io::Result<()> {
            let mut disk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if disk.faults.front() == Some(&Fault::NotSynced) {
                disk.faults.pop_front();
                disk.written.clear();
                return Err(io::ErrorKind::Other.into());
            }
            let written = std::mem::take(&mut disk.written);
            disk.durable.extend(written);
            Ok(())
        }
    }

    fn target(faults: &[Fault]) -> (FaultyFile, AuditTarget<FaultyFile>) {
        let file = FaultyFile::failing(faults);
        (file.clone(), AuditTarget::File(AuditFile::new(file)))
    }

    #[test]
    fn a_record_of_which_a_part_was_written_is_completed() {
        let (file, mut target) = target(&[Fault::Short(3), Fault::Full]);
        target.add(&"{\"act\":\"force\"}\n".into());
        assert_eq!(target.write().unwrap_err().kind(), io::ErrorKind::StorageFull);
        target.add(&"{\"act\":\"drain\"}\n".into());
        target.sync().unwrap();
        assert_eq!(file.durable(), ["{\"act\":\"force\"}", "{\"act\":\"drain\"}"]);
    }

    #[test]
    fn a_write_that_takes_nothing_is_an_error() {
        let (file, mut target) = target(&[Fault::Short(0)]);
        target.add(&"{\"act\":\"force\"}\n".into());
        assert_eq!(target.write().unwrap_err().kind(), io::ErrorKind::WriteZero);
        target.sync().unwrap();
        assert_eq!(file.durable(), ["{\"act\":\"force\"}"]);
    }

    #[test]
    fn records_of_a_failed_sync_are_written_again_behind_a_mark() {
        let (file, mut target) = target(&[Fault::NotSynced, Fault::NotSynced]);
        target.add(&"{\"act\":\"force\"}\n".into());
        for _ in 0..2 {
            assert_eq!(target.sync().unwrap_err().kind(), io::ErrorKind::Other);
        }
        target.sync().unwrap();
        let lines = file.durable();
        assert_eq!((lines.len(), lines[1].as_str()), (2, "{\"act\":\"force\"}"), "{lines:?}");
        assert!(lines[0].contains("\"act\":\"repeated\""), "{lines:?}");
        // What a good sync has confirmed is not written again.
        file.fail(Fault::NotSynced);
        target.sync().unwrap();
        target.add(&"{\"act\":\"drain\"}\n".into());
        target.sync().unwrap_err();
        target.sync().unwrap();
        let after = file.durable().split_off(2);
        assert_eq!((after.len(), after[1].as_str()), (2, "{\"act\":\"drain\"}"), "{after:?}");
    }
}
