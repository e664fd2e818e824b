//! Lists the levels of the rules, as the model knows them: from which level on each rule holds.

/// The highest level that the rules define.
pub(super) const LEVEL_MAX: u16 = LEVEL_URGENT_ROLES;

/// The level from which on asks are counted and can be taken back.
pub(super) const LEVEL_COUNTED: u16 = 2;

/// The level from which on a promised time lasts a millisecond longer, because counts are rounded down.
pub(super) const LEVEL_WHOLE: u16 = 2;

/// The level from which on leases and keys have owners, and there are access rules.
pub(super) const LEVEL_OWNED: u16 = 3;

/// The level from which on events tell more about what they record: administrative ones name the caller.
pub(super) const LEVEL_RECORDS: u16 = 4;

/// The level from which on access rules have quotas of sessions, watches, requests and bytes in flight.
pub(super) const LEVEL_RATES: u16 = 4;

/// The level from which on it is recorded who set each quota.
pub(super) const LEVEL_SETTERS: u16 = 5;

/// The level from which on an ask may have a least time between its grant and the next one.
pub(super) const LEVEL_MIN_HOLD: u16 = 6;

/// The level from which on a prefix can be closed to new grants.
pub(super) const LEVEL_DRAINS: u16 = 7;

/// The level from which on an ask may replace older ones of its group.
pub(super) const LEVEL_GROUPS: u16 = 7;

/// The level from which on an ask may have a priority.
pub(super) const LEVEL_PRIORITY: u16 = 8;

/// The level from which on an ask may promise progress.
pub(super) const LEVEL_PROGRESS: u16 = 9;

/// The level from which on holds can be upgraded and handed on, and the search for deadlocks leaves out nothing.
pub(super) const LEVEL_HAND_ON: u16 = 10;

/// The level from which on an ask may take several slots, and the number of slots can be set.
pub(super) const LEVEL_SHARES: u16 = 11;

/// The level from which on the rules of shares, quotas, upgrades, sizes and handing on leave no gap known so far.
pub(super) const LEVEL_REPAIRED: u16 = 12;

/// The level from which on an ask may be for any of several locks.
pub(super) const LEVEL_ANY: u16 = 13;

/// The level from which on the queues that a prefix or the quiet period held back are served in slices, and the events
/// of settings tell what was set.
pub(super) const LEVEL_REOPENING: u16 = 14;

/// The level from which on owners have shares of the records with a key and pay for numbered requests, and a compaction
/// is recorded and keeps the newest revisions.
pub(super) const LEVEL_FAIR_RECORDS: u16 = 14;

/// The level from which on roles may permit priorities.
pub(super) const LEVEL_URGENT_ROLES: u16 = 15;
