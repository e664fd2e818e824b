//! Defines the errors of the log, and what the caller may conclude from each.

use std::io;

/// Why a log could not be opened. A failed open changes nothing that the next open would not change again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The disk failed while the log was being read or prepared. Trying again may help.
    #[error("cannot {doing} `{name}`")]
    Io {
        /// The operation that failed, for the message.
        doing: &'static str,
        /// The file or directory.
        name: String,
        /// The error of the disk.
        #[source]
        source: io::Error,
    },
    /// Something that was durable has changed. The member must not serve from this disk: cutting the log here could
    /// drop what it has promised to others.
    #[error("log is corrupt at segment {segment}, offset {offset}, index {index}: {damage}")]
    Corrupt {
        /// The segment that is damaged or missing.
        segment: u64,
        /// The first byte that cannot be trusted.
        offset: u64,
        /// The first index that cannot be trusted.
        index: u64,
        /// What is wrong there.
        damage: Damage,
    },
    /// An unknown version of this program wrote the segments.
    #[error("segment {segment} has format {found}, this program knows format 1")]
    Format {
        /// The segment.
        segment: u64,
        /// The version that the segment names.
        found: u32,
    },
    /// The caller required an existing log, and there is none.
    #[error("the log is missing")]
    Absent,
    /// A setting is outside its bounds.
    #[error("segment_bytes is {found}, must be between {min} and {max}, a multiple of 512")]
    SegmentBytes {
        /// The setting.
        found: u32,
        /// Its smallest value.
        min: u32,
        /// Its largest value.
        max: u32,
    },
}

/// What is wrong with a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The header of a segment does not match its checksum.
    #[error("bad segment header")]
    Header,
    /// A segment is shorter or longer than its header says.
    #[error("wrong segment size")]
    Size,
    /// A segment carries the name of another segment.
    #[error("segment is a copy of segment {0}")]
    Copy(u64),
    /// A file in the log's directory is named almost like a segment.
    #[error("misnamed segment file")]
    Name,
    /// A segment is absent, though others prove that it existed.
    #[error("missing segment")]
    Missing,
    /// A record cannot be read, and a later record proves that it was durable.
    #[error("bad record before the durable mark")]
    Record,
    /// A record is readable, and its content is one that no correct member writes.
    #[error("impossible record")]
    Impossible,
    /// Entries between the start of the log and the first one found are absent.
    #[error("missing entries")]
    Gap,
}

/// The disk failed, and it is unknown which writes lasted. **The process must stop at once.**
///
/// The caller must neither retry nor answer anything: after a failed sync the kernel may call pages clean that were
/// never written, so a second sync that succeeds proves nothing. The log refuses every further call. On the next start
/// recovery reads what is really on the disk, and makes it durable before trusting it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fatal {
    /// This call met the failure.
    #[error("disk failed to {doing}; the process must stop")]
    Disk {
        /// The operation that failed, for the message.
        doing: &'static str,
        /// The error of the disk.
        #[source]
        source: io::Error,
    },
    /// An earlier call met the failure.
    #[error("disk failed earlier; the process must stop")]
    Stopped,
}

/// Why a batch was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The batch breaks a rule of the log. Nothing was written; the caller has a bug.
    #[error("batch breaks a rule of the log")]
    Rejected(#[source] Rejection),
    /// There is no space. Nothing was written and the log is unchanged: this failure is definite. A smaller batch may
    /// succeed, and so may the same one once there is room.
    #[error("no space left on the disk")]
    NoSpace,
    /// The process must stop.
    #[error(transparent)]
    Fatal(#[from] Fatal),
}

/// The rule that a batch breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The indexes have a hole.
    #[error("entry {found} where {expected} was expected")]
    Gap {
        /// The index that would continue the log.
        expected: u64,
        /// The index given.
        found: u64,
    },
    /// An entry would replace a committed one.
    #[error("entry {index} would replace one at or below the commit index {commit}")]
    BelowCommit {
        /// The entry's index.
        index: u64,
        /// The commit index.
        commit: u64,
    },
    /// Terms of entries never go back.
    #[error("entry {index} has term {term} after term {before}")]
    EntryTermBack {
        /// The entry's index.
        index: u64,
        /// Term of the entry before it.
        before: u64,
        /// The entry's term.
        term: u64,
    },
    /// The term never goes back.
    #[error("term goes back from {from} to {to}")]
    TermBack {
        /// The term now.
        from: u64,
        /// The term given.
        to: u64,
    },
    /// A member votes once in a term.
    #[error("second vote in term {term}")]
    SecondVote {
        /// The term.
        term: u64,
    },
    /// The commit index never goes back.
    #[error("commit index goes back from {from} to {to}")]
    CommitBack {
        /// The commit index now.
        from: u64,
        /// The commit index given.
        to: u64,
    },
    /// Only what is in the log can be committed.
    #[error("commit index {commit} beyond the last entry {last}")]
    CommitBeyond {
        /// The commit index given.
        commit: u64,
        /// The last index.
        last: u64,
    },
    /// A snapshot never takes the log behind what is committed.
    #[error("snapshot at {index} is behind the commit index {commit}")]
    SnapshotBelowCommit {
        /// The snapshot's index.
        index: u64,
        /// The commit index.
        commit: u64,
    },
    /// Only committed entries can be dropped.
    #[error("cannot compact to {index}, beyond the commit index {commit}")]
    CompactBeyondCommit {
        /// The index given.
        index: u64,
        /// The commit index.
        commit: u64,
    },
    /// The entry has already been dropped.
    #[error("index {index} is below the start of the log at {base}")]
    Compacted {
        /// The index given.
        index: u64,
        /// The point the log starts after.
        base: u64,
    },
    /// A batch must fit in a segment.
    #[error("batch needs {bytes} bytes, a segment takes {max}")]
    TooLarge {
        /// The bytes that the batch needs on disk.
        bytes: u64,
        /// The bytes that fit in a segment.
        max: u64,
    },
}

/// Why entries could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The first requested entry has been dropped.
    #[error("entries up to {base} were compacted")]
    Compacted {
        /// The point the log starts after.
        base: u64,
    },
    /// The requested range reaches beyond the end of the log.
    #[error("the log ends at {last}")]
    Beyond {
        /// The last index.
        last: u64,
    },
    /// The disk failed to read. A later attempt may succeed.
    #[error("cannot read segment {segment}")]
    Io {
        /// The segment.
        segment: u64,
        /// The error of the disk.
        #[source]
        source: io::Error,
    },
    /// An entry differs from what was written. The member must stop serving from this disk.
    #[error("entry {index} is corrupt at segment {segment}, offset {offset}")]
    Corrupt {
        /// The segment.
        segment: u64,
        /// The offset of the entry in the segment.
        offset: u64,
        /// The entry's index.
        index: u64,
    },
    /// The process must stop.
    #[error(transparent)]
    Fatal(#[from] Fatal),
}

impl ReadError {
    /// Whether the log lacks what it should have, or has something else. A disk that failed to read has not lost it.
    pub fn is_corrupt(&self) -> bool {
        match self {
            Self::Compacted { .. } | Self::Beyond { .. } | Self::Corrupt { .. } => true,
            Self::Io { .. } | Self::Fatal(_) => false,
        }
    }
}
