//! Defines the constants and the configuration of a replica.

use crate::member::MemberId;

/// How often the engine ticks; the event loop turns at least this often.
pub const TICK_US: u64 = 50_000;
/// How late a turn of the event loop may be and still be counted.
pub const GRACE_US: u64 = TICK_US;
/// How much doubtful time a leader may leave uncounted.
pub const CREDIT_US: u64 = 60_000_000;
/// The most counted time that may be lost with a leader, while a deadline is pending.
pub const CHECKPOINT_US: u64 = 1_000_000;
/// How long a quorum's answer counts as proof that there is one: three heartbeats.
pub const FRESH_US: u64 = 3 * HEARTBEAT_TICKS as u64 * TICK_US;
/// How long a renewal may wait to share an entry with others.
pub const BATCH_US: u64 = 50_000;
/// How long a leader without new entries waits before it sends the commit index to the other members. A client that
/// sends one command after the other sends the next within this time.
pub const COMMIT_US: u64 = 1_000;
/// How long after a command that another member forwarded the leader sends it at once. A client renews its lease more
/// often, unless its ttl is long.
pub const COMMIT_AT_ONCE_US: u64 = 60_000_000;
/// The most commands in one entry.
pub const ENTRY_COMMANDS_MAX: usize = 1_024;
/// The most bytes of commands batched into one entry. A single command may be larger.
pub const ENTRY_BYTES_MAX: usize = 256 * 1024;
/// How long a read waits for an answer before it asks again, under a new context.
pub const READ_RETRY_US: u64 = 300_000;
/// How often a read asks before it fails.
pub const READ_TRIES_MAX: u32 = 8;
/// How often a member whose disk is nearly full reports so to its leader.
pub const SHORT_US: u64 = 1_000_000;
/// How long that report counts: the time of three further reports.
pub const SHORT_KEPT_US: u64 = 3 * SHORT_US;
/// The most read contexts in flight. Further reads wait for one of them and share the next: each context costs a
/// message to every member and its answer, and with more in flight each would serve fewer reads.
pub const READS_IN_FLIGHT_MAX: usize = 2;
/// The most waiting reads; beyond that a read fails at once.
pub const READS_WAITING_MAX: usize = 65_536;

/// How long a started member waits for the others to report its promises before it takes part. With a member down, a
/// restart takes this much longer.
pub const ASK_US: u64 = 600_000;

/// How often it asks again while it waits.
pub(crate) const ASK_AGAIN_US: u64 = 100_000;
/// How long to wait after a failed snapshot, and between snapshots for lack of space.
pub(crate) const SNAPSHOT_PAUSE_US: u64 = 10_000_000;
/// How often a started member asks the others after that.
pub(crate) const GREETINGS: u32 = 10;
/// The interval of these requests.
pub(crate) const GREET_US: u64 = 1_000_000;
/// How far above the present term the term of a message may be. Only the votes of a majority raise the term of a
/// cluster: a member would have to be away for this many elections.
pub const TERM_JUMP_MAX: u64 = 1 << 24;
/// The highest term, so that adding to one never overflows.
pub const TERM_MAX: u64 = u64::MAX / 4;
/// The highest index.
pub const INDEX_MAX: u64 = u64::MAX / 4;
/// The most bytes in the context of a read or an election; [`crate::Replica`] writes 24.
pub(crate) const CONTEXT_BYTES_MAX: usize = 64;
/// The most ids that other members vouch for.
pub(crate) const VOUCHED_MAX: usize = 1_024;
pub(crate) const HEARTBEAT_TICKS: usize = 1;
/// An election starts after 300 to 600 ms without a leader.
pub(crate) const ELECTION_TICKS_MIN: usize = 6;
pub(crate) const ELECTION_TICKS_MAX: usize = 12;
/// A follower whose connection to the leader has ended starts an election after 50 to 250 ms. By then it has dialled
/// again if only the connection broke.
pub(crate) const UNLINKED_TICKS_MIN: usize = 2;
pub(crate) const UNLINKED_TICKS_MAX: usize = 6;
/// The approximate bytes of entries in one message.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 1024 * 1024;
/// Messages with entries sent ahead of their acknowledgement, to each member.
pub(crate) const MESSAGES_IN_FLIGHT_MAX: usize = 256;
/// The most bytes of entries proposed and not committed; more are refused.
pub(crate) const UNCOMMITTED_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The most bytes of entries that a leader has written and that are not durable there. Beyond it the leader proposes
/// nothing more until they are.
pub(crate) const UNSYNCED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The most commands that may wait for that; more are refused.
pub(crate) const WAITING_MAX: usize = 16 * ENTRY_COMMANDS_MAX;
/// The most bytes of entries applied before the replica handles other inputs.
pub(crate) const APPLY_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Settings that differ between members and clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaConfig {
    /// The id of this member.
    pub id: MemberId,
    /// The approximate bytes of entries written to the log as one batch: well below the size of a log segment. An entry
    /// of several commands is no larger.
    pub batch_bytes: usize,
    /// The bytes of entries after which a snapshot is taken.
    pub snapshot_bytes: u64,
    /// The number of entries after which a snapshot is taken. For each snapshot a member draws between a half and all
    /// of both values. If its state is larger than `snapshot_bytes`, it takes none more often than once per size of the
    /// state in bytes of entries.
    pub snapshot_entries: u64,
    /// Whether it lets every other member win an election first.
    pub reluctant: bool,
    /// The interval of indexes at which members compare the hashes of their states.
    pub hash_every: u64,
    /// The newest level of the machine that this build knows.
    pub level_known: u16,
}

impl ReplicaConfig {
    /// The default settings.
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

    /// The extra election timeout of a reluctant member: until all others would have requested votes.
    pub(crate) fn extra_election_ticks(&self) -> usize {
        if self.reluctant { ELECTION_TICKS_MAX } else { 0 }
    }
}
