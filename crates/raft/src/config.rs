//! Which numbers does a replica live by?

use crate::member::MemberId;

/// How often the engine ticks, and how often a loop turns at least.
pub const TICK_US: u64 = 50_000;
/// Lateness of a loop that is still counted.
pub const GRACE_US: u64 = TICK_US;
/// How much doubtful time a leader may leave uncounted.
pub const CREDIT_US: u64 = 60_000_000;
/// How much counted time may be lost with a leader, while a deadline is pending.
pub const CHECKPOINT_US: u64 = 1_000_000;
/// How long the answer of a quorum proves that there is one: three heartbeats.
pub const FRESH_US: u64 = 3 * HEARTBEAT_TICKS as u64 * TICK_US;
/// How long a renewal may wait for others.
pub const BATCH_US: u64 = 50_000;
/// Commands joined into one entry, at most.
pub const ENTRY_COMMANDS_MAX: usize = 1_024;
/// Bytes joined into one entry, at most. A single command may be larger.
pub const ENTRY_BYTES_MAX: usize = 256 * 1024;
/// After so long without an answer a read asks again, under a new context.
pub const READ_RETRY_US: u64 = 300_000;
/// How often a read asks before it fails.
pub const READ_TRIES_MAX: u32 = 8;
/// How often a member whose disk is nearly full says so to its leader.
pub const SHORT_US: u64 = 1_000_000;
/// How long that counts: until it was said three times more.
pub const SHORT_KEPT_US: u64 = 3 * SHORT_US;
/// Read contexts under way at once, at most. Further reads wait for one of them.
pub const READS_IN_FLIGHT_MAX: usize = 8;
/// Reads waiting, at most: beyond that a caller is told at once.
pub const READS_WAITING_MAX: usize = 65_536;

/// How long a member that has started waits for the others' word on what it has promised, before it
/// takes part: with a member down, this is what a restart costs.
pub const ASK_US: u64 = 600_000;

/// While it waits, it asks again this often.
pub(crate) const ASK_AGAIN_US: u64 = 100_000;
/// After a snapshot that failed, and between those for lack of space: how long until the next.
pub(crate) const SNAPSHOT_PAUSE_US: u64 = 10_000_000;
/// A member that has started asks the others this often afterwards,
pub(crate) const GREETINGS: u32 = 10;
/// and so far apart.
pub(crate) const GREET_US: u64 = 1_000_000;
/// How far above the present term a message may be. Only the votes of a majority raise the term of a
/// cluster: a member would have to be away for this many elections.
pub const TERM_JUMP_MAX: u64 = 1 << 24;
/// No term is ever above this, so that adding to one never overflows.
pub const TERM_MAX: u64 = u64::MAX / 4;
/// No index is ever above this.
pub const INDEX_MAX: u64 = u64::MAX / 4;
/// Bytes of the context of a read or an election, at most: what [`crate::Replica`] writes are 24.
pub(crate) const CONTEXT_BYTES_MAX: usize = 64;
/// Ids that others vouch for, at most.
pub(crate) const VOUCHED_MAX: usize = 1_024;
pub(crate) const HEARTBEAT_TICKS: usize = 1;
/// An election starts after 300 to 600 ms without a leader.
pub(crate) const ELECTION_TICKS_MIN: usize = 6;
pub(crate) const ELECTION_TICKS_MAX: usize = 12;
/// Bytes of entries in one message, about.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 1024 * 1024;
/// Messages with entries sent ahead of their acknowledgement, to each member.
pub(crate) const MESSAGES_IN_FLIGHT_MAX: usize = 256;
/// Bytes of entries proposed and not committed; more are refused.
pub(crate) const UNCOMMITTED_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of entries written by a leader and not durable there; until then nothing more is proposed.
pub(crate) const UNSYNCED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Commands that may wait for that; more are refused.
pub(crate) const WAITING_MAX: usize = 16 * ENTRY_COMMANDS_MAX;
/// Bytes of entries applied between two looks at the outside.
pub(crate) const APPLY_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What differs from member to member and from cluster to cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Who this member is.
    pub id: MemberId,
    /// Bytes of entries written to the log as one batch, about: well below what a segment of the log
    /// takes.
    pub batch_bytes: usize,
    /// A snapshot is wanted after so many bytes of entries.
    pub snapshot_bytes: u64,
    /// Or after so many entries. Each member draws, each time anew, between a half and all of both, and
    /// takes none more often than once per size of its state in bytes of entries.
    pub snapshot_entries: u64,
    /// Whether it lets every other member win an election first.
    pub reluctant: bool,
    /// Members compare the hash of their state whenever the index is a multiple of this.
    pub hash_every: u64,
    /// The newest level of the machine's rules that this build knows.
    pub level_known: u16,
}

impl Config {
    /// The usual settings.
    pub fn new(id: MemberId) -> Self {
        Self {
            id,
            batch_bytes: 16 * 1024 * 1024,
            snapshot_bytes: 64 * 1024 * 1024,
            snapshot_entries: 1_000_000,
            reluctant: false,
            hash_every: 1_000,
            level_known: tenure_core::LEVEL_MAX,
        }
    }

    /// A reluctant member waits until all others would have asked for votes.
    pub(crate) fn patience_ticks(&self) -> usize {
        if self.reluctant { ELECTION_TICKS_MAX } else { 0 }
    }
}
