//! Writes the whole state of a running cluster to one file, and reads and verifies such a file.
//!
//! ```text
//! 8 bytes "tenurbak", u32 format, u32 length of the head
//! head    text, one `name value` per line, see `BackupHead`
//! state   as many bytes as the head says: a snapshot of the machine
//! u32     CRC-32C of everything before it
//! ```
//!
//! Numbers are little-endian. [`take`] runs in the member and [`Verified::read`] in the process that has the file. Only
//! bytes pass between them, so any API can carry them.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::{BadSnapshot, Frozen, Machine, SnapshotReader};
use tenure_types::Revision;

use crate::audit::{AuditOutcome, AuditRecord};
use crate::member::{Gone, MemberHandle};
use tenure_node::Lineage;

const MAGIC: &[u8; 8] = b"tenurbak";
const FORMAT: u32 = 1;
/// The most bytes of a head, which is seven short lines of text.
const HEAD_BYTES_MAX: usize = 4096;
const CHECKSUM_BYTES: usize = 4;
/// The most bytes read at once.
const STEP_BYTES: usize = 256 * 1024;

/// The head of a backup, which describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackupHead {
    /// The cluster, epoch and incarnation that it was taken from.
    pub lineage: Lineage,
    /// The last log entry that it contains.
    pub index: u64,
    /// The newest revision that it contains.
    pub revision: Revision,
    /// The level of the machine's rules.
    pub level: u16,
    /// The length of the state in bytes.
    pub state_bytes: u64,
}

/// The state of a cluster at one moment. The cluster goes on while it is written.
pub struct Backup {
    head: BackupHead,
    frozen: Frozen,
    _one: BackupSlot,
}

/// The reason no backup was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TakeError {
    /// No leader confirmed that this state is the newest.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// Another backup is in progress. Each backup keeps a copy of everything that changes meanwhile, so a member takes
    /// one at a time.
    #[error("another backup is being taken from this member")]
    Busy,
}

/// The reason a file cannot be used as a backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The file cannot be read.
    #[error("cannot read it")]
    Io(#[from] io::Error),
    /// The file is not a backup.
    #[error("it is not a backup")]
    Other,
    /// A later version wrote the file.
    #[error("it has format {0}, this version of tenure knows format {FORMAT}")]
    Format(u32),
    /// The bytes are not those that were written.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// The bytes are intact, but the state in them cannot be used.
    #[error("its state cannot be used")]
    State(#[from] BadSnapshot),
}

/// A backup that was read to its end and found intact.
pub struct Verified {
    /// The head of the backup.
    pub head: BackupHead,
    /// The state in the backup.
    pub machine: Machine,
    /// The length of the file.
    pub bytes: u64,
}

/// Takes a backup of the cluster. It contains everything that was acknowledged before this call.
///
/// Every member that reaches a leader can take one. The call blocks until a quorum confirms the leader, then for one
/// pass over the state; asynchronous callers make it on a thread.
pub fn take(member: &MemberHandle, timeout: Duration) -> Result<Backup, TakeError> {
    take_for(member, timeout, None)
}

/// Takes a backup for this principal, which the audit log names; for none if its caller has no credentials.
pub(crate) fn take_for(
    member: &MemberHandle,
    timeout: Duration,
    principal: Option<&str>,
) -> Result<Backup, TakeError> {
    let one = BackupSlot::begin(member.backing_up()).ok_or(TakeError::Busy)?;
    // From here on, the member's applied state is at least as new as the start of this call, and it never goes back.
    member.read(timeout, |_| ())?;
    let (point, level, revision, frozen) = member.freeze()?;
    let mut state_bytes = 0;
    frozen.write(&mut |part| state_bytes += part.len() as u64);
    let lineage = member.lineage().clone();
    let record = AuditRecord::new("backup", AuditOutcome::Done).with("revision", revision.0);
    let record = record.principal(principal);
    member.audit().record(&record.with("state_bytes", state_bytes));
    let head = BackupHead { lineage, index: point.index, revision, level, state_bytes };
    Ok(Backup { head, frozen, _one: one })
}

impl Backup {
    /// The head of the backup.
    pub fn head(&self) -> &BackupHead {
        &self.head
    }

    /// The length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.head.file_bytes()
    }

    /// Writes the file. If that fails, the bytes written so far are not a backup and read as damaged.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut out = Checked { to, checksum: 0, failed: None };
        out.put(&self.head.encode());
        self.frozen.write(&mut |part| out.put(part));
        let checksum = out.checksum.to_le_bytes();
        out.put(&checksum);
        match out.failed {
            Some(error) => Err(error),
            None => to.flush(),
        }
    }
}

impl Verified {
    /// Reads a whole file and the state in it. `level_known` is the highest level of the machine's rules that the
    /// caller knows.
    pub fn read(path: &Path, level_known: u16) -> Result<Self, BackupError> {
        // First check that the bytes are those that were written, then decode them, so that damage is reported as
        // damage and not as a bad state.
        let bytes = File::open(path)?.metadata()?.len();
        let head = scan(path, bytes, &mut |_| Ok(()))?;
        let mut state = SnapshotReader::knowing(level_known);
        let again = scan(path, bytes, &mut |part| state.push(part))?;
        if again != head {
            return Err(BackupError::Damaged("it changes while it is read"));
        }
        let machine = state.finish()?;
        let agrees = machine.epoch() == head.lineage.epoch && machine.revision() == head.revision;
        if !agrees {
            return Err(BackupError::Damaged("its head and its state disagree"));
        }
        Ok(Self { head, machine, bytes })
    }
}

/// Reads a file once, passes its state on piece by piece, and checks its length and checksum.
fn scan(
    path: &Path,
    bytes: u64,
    each: &mut dyn FnMut(&[u8]) -> Result<(), BadSnapshot>,
) -> Result<BackupHead, BackupError> {
    let mut file = BufReader::new(File::open(path)?);
    let (head, start) = BackupHead::read(&mut file)?;
    let mut checksum = crc32c::crc32c(&start);
    let expected = (start.len() as u64)
        .checked_add(head.state_bytes)
        .and_then(|sum| sum.checked_add(CHECKSUM_BYTES as u64));
    if expected != Some(bytes) {
        return Err(BackupError::Damaged("its length is not what it says"));
    }
    let mut left = head.state_bytes;
    let mut buffer = vec![0; STEP_BYTES];
    while left > 0 {
        let step = usize::try_from(left).unwrap_or(STEP_BYTES).min(STEP_BYTES);
        file.read_exact(&mut buffer[..step]).map_err(cut_short)?;
        checksum = crc32c::crc32c_append(checksum, &buffer[..step]);
        each(&buffer[..step])?;
        left -= step as u64;
    }
    let mut last = [0; CHECKSUM_BYTES];
    file.read_exact(&mut last).map_err(cut_short)?;
    if u32::from_le_bytes(last) != checksum {
        return Err(BackupError::Damaged("its checksum does not match"));
    }
    Ok(head)
}

impl BackupHead {
    fn encode(&self) -> Vec<u8> {
        let mut lines = self.lineage.lines().to_vec();
        lines.push(format!("index {}", self.index));
        lines.push(format!("revision {}", self.revision));
        lines.push(format!("level {}", self.level));
        lines.push(format!("state_bytes {}", self.state_bytes));
        let text = lines.join("\n") + "\n";
        let length = u32::try_from(text.len()).expect("the head is a few lines");
        [&MAGIC[..], &FORMAT.to_le_bytes(), &length.to_le_bytes(), text.as_bytes()].concat()
    }

    /// Reads the head; returns it with the bytes it was read from. Reads no further than the head.
    pub fn read(from: &mut impl Read) -> Result<(Self, Vec<u8>), BackupError> {
        let mut fixed = [0; 16];
        from.read_exact(&mut fixed).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => BackupError::Other,
            _ => error.into(),
        })?;
        let word = |at: usize| {
            u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        if fixed[..8] != *MAGIC {
            return Err(BackupError::Other);
        }
        if word(8) != FORMAT {
            return Err(BackupError::Format(word(8)));
        }
        let damaged = || BackupError::Damaged("its head cannot be read");
        let length = word(12) as usize;
        if length > HEAD_BYTES_MAX {
            return Err(damaged());
        }
        let mut text = vec![0; length];
        from.read_exact(&mut text).map_err(cut_short)?;
        let head = str::from_utf8(&text).ok().and_then(Self::parse).ok_or_else(damaged)?;
        Ok((head, [&fixed[..], &text].concat()))
    }

    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<_> = text.lines().filter_map(|line| line.split_once(' ')).collect();
        let field = |name: &str| fields.iter().find(|field| field.0 == name).map(|field| field.1);
        Some(Self {
            lineage: Lineage::parse(field)?,
            index: field("index")?.parse().ok()?,
            revision: Revision(field("revision")?.parse().ok()?),
            level: field("level")?.parse().ok()?,
            state_bytes: field("state_bytes")?.parse().ok()?,
        })
    }

    /// The length of the whole file with this head.
    pub fn file_bytes(&self) -> u64 {
        (self.encode().len() as u64)
            .saturating_add(self.state_bytes)
            .saturating_add(CHECKSUM_BYTES as u64)
    }
}

fn cut_short(error: io::Error) -> BackupError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => BackupError::Damaged("it is cut short"),
        _ => error.into(),
    }
}

/// Writes bytes and updates the checksum; after an error it writes nothing more.
struct Checked<'a> {
    to: &'a mut dyn Write,
    checksum: u32,
    failed: Option<io::Error>,
}

impl Checked<'_> {
    fn put(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.checksum = crc32c::crc32c_append(self.checksum, bytes);
            self.failed = self.to.write_all(bytes).err();
        }
    }
}

/// The permit for the one backup that a member takes at a time.
struct BackupSlot(Arc<AtomicBool>);

impl BackupSlot {
    fn begin(busy: &Arc<AtomicBool>) -> Option<Self> {
        (!busy.swap(true, Ordering::AcqRel)).then(|| Self(busy.clone()))
    }
}

impl Drop for BackupSlot {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
