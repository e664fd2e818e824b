//! Lists the levels of the machine's rules: from which level on each rule holds.

/// The level from which on the machine counts acquire requests and executes
/// [`Command::Abandon`](crate::request::Command::Abandon). Below it the machine refuses that command as a build that
/// cannot decode it does: `Malformed`.
pub const LEVEL_ABANDON: u16 = 2;

/// The level from which on the machine knows who owns leases and keys, and executes
/// [`Command::SetAccess`](crate::request::Command::SetAccess). Below it the machine refuses that command as
/// `Malformed`.
pub const LEVEL_ACCESS: u16 = 3;

/// The level from which on what the cluster records about a command is complete enough to explain it later, and access
/// rules have the quotas that members count for themselves.
pub const LEVEL_RECORDS: u16 = 4;

/// The level from which on the access rules record who set each quota, and a refusal by a quota names them.
pub const LEVEL_SETTERS: u16 = 5;

/// The level from which on an acquire request may have a [`min_hold`](crate::request::Acquire::min_hold_ms). Below it
/// the machine refuses such a request as `Malformed`.
pub const LEVEL_MIN_HOLD: u16 = 6;

/// The level from which on a prefix can be drained, and a request can supersede older ones. Below it the machine
/// refuses [`Command::Drain`](crate::request::Command::Drain), [`Command::Undrain`](crate::request::Command::Undrain)
/// and a request with [`supersede`](crate::request::Acquire::supersede) or [`resume`](crate::request::Acquire::resume)
/// as `Malformed`.
pub const LEVEL_POLICY: u16 = 7;

/// The level from which on an acquire request may have a [`priority`](crate::request::Acquire::priority). Below it the
/// machine refuses such a request as `Malformed`.
pub const LEVEL_PRIORITY: u16 = 8;

/// The level from which on an acquire request may promise [`progress`](crate::request::Acquire::progress_within_ms).
/// Below it the machine refuses such a request and [`Command::Progress`](crate::request::Command::Progress) as
/// `Malformed`.
pub const LEVEL_PROGRESS: u16 = 9;

/// The level from which on shared holds can be upgraded and holds can be handed on, and from which on the search for
/// deadlocks of a request that passes others also visits the places before it, where these can be part of a new cycle.
/// Below it the machine refuses [`Command::Upgrade`](crate::request::Command::Upgrade) and
/// [`Command::HandOn`](crate::request::Command::HandOn) as `Malformed`.
pub const LEVEL_HAND_ON: u16 = 10;

/// The level from which on an acquire request may take several slots of a semaphore, and the number of slots can be
/// set. Below it the machine refuses such a request and [`Command::Resize`](crate::request::Command::Resize) as
/// `Malformed`.
pub const LEVEL_SHARES: u16 = 11;

/// The level from which on several slots cost no more than they must: names and metadata are written once for all slots
/// of a request, and grants count against the quotas of their owner until they are gone. From it on, too, an upgrade
/// that is granted at once is searched for deadlocks, a request is recognised after its semaphore was resized, and a
/// min hold lasts that was handed on.
pub const LEVEL_REPAIRED_SHARES: u16 = 12;

/// The level from which on an acquire request may ask for [any](crate::request::Acquire::any) of several locks, or for
/// any slot of a [pool](crate::request::Asks::Pool). Below it the machine refuses such a request as `Malformed`.
pub const LEVEL_ANY: u16 = 13;

/// The level from which on queues that may advance because a prefix was opened, or because the quiet period after a
/// restore is over, are served a bounded number at a time. Below it one entry serves all of them. From it on, too, the
/// events that record new limits and a new level tell their values.
pub const LEVEL_REOPENING: u16 = 14;

/// The level from which on each owner has a share of the records of requests with an idempotency key, numbered requests
/// count against the quota of bytes, and a compaction of the history is recorded and keeps the newest revisions.
pub const LEVEL_FAIR_RECORDS: u16 = LEVEL_REOPENING;

/// The level from which on a rule of a role may permit [priorities](crate::access::NewRule::priority), and the refusal
/// of a priority tells the greatest one that is permitted. Below it the machine refuses such a rule as `Malformed`, and
/// every priority requires `force`.
pub const LEVEL_PRIORITY_RULES: u16 = 15;
