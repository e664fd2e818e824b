//! Defines the limits of a cluster, their defaults and their allowed ranges.

/// The maximum number of leases in one renewal, in the state machine and in every API. A client with more leases sends
/// several renewals. It is a constant, not a limit of the cluster, because clients split renewals before they know a
/// cluster's limits.
pub const RENEW_MAX: usize = 4_096;

/// One named setting of the replicated state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Limit {
    /// Bytes in the name of a lock, key, client or principal.
    NameBytes = 0,
    /// Bytes of metadata of a lock or lease.
    MetadataBytes = 1,
    /// Bytes in the value of a key.
    ValueBytes = 2,
    /// The shortest ttl that a lease may have.
    TtlMinMs = 3,
    /// The longest ttl that a lease may have.
    TtlMaxMs = 4,
    /// The longest wait limit that an acquire may set.
    WaitMs = 5,
    /// The longest lock-delay.
    LockDelayMs = 6,
    /// The longest `max_hold`.
    MaxHoldMs = 7,
    /// Locks in one acquire request.
    LocksPerAsk = 8,
    /// Slots of one semaphore.
    Slots = 9,
    /// Waiters in the queue of one lock.
    WaitersPerLock = 10,
    /// Locks that one lease holds or waits for.
    LocksPerLease = 11,
    /// Keys bound to one lease.
    KeysPerLease = 12,
    /// Leases in the cluster.
    Leases = 13,
    /// Weight of the whole state without its history; the reference lists the weights.
    StateBytes = 14,
    /// Revisions kept in the history.
    HistoryRevisions = 15,
    /// Bytes kept in the history.
    HistoryBytes = 16,
    /// Records of requests with an idempotency key.
    Requests = 17,
    /// Bytes of the records of requests with an idempotency key.
    RequestBytes = 18,
    /// Objects (leases, locks, places, keys) that one entry ends because they are due; also how many leases, places and
    /// grants it goes through after a prefix was opened.
    EndsPerEntry = 19,
}

/// Name, default, range of a limit, and the refusal reason for exceeding it.
struct LimitInfo {
    limit: Limit,
    name: &'static str,
    default: u64,
    range: core::ops::RangeInclusive<u64>,
    reason: &'static str,
}

const HOUR_MS: u64 = 3_600_000;
const MIB: u64 = 1 << 20;

macro_rules! limit_info {
    ($($limit:ident $name:literal $default:expr, $min:expr => $max:expr, $reason:literal;)+) => {
        [$(LimitInfo {
            limit: Limit::$limit,
            name: $name,
            default: $default,
            range: $min..=$max,
            reason: $reason,
        }),+]
    };
}

const LIMIT_INFO: [LimitInfo; 20] = limit_info! {
    NameBytes        "name_bytes"         512,           1 => 512,                "INVALID_NAME";
    MetadataBytes    "metadata_bytes"     4_096,         0 => 65_536,             "METADATA_TOO_LONG";
    ValueBytes       "value_bytes"        32_768,        0 => MIB,                "VALUE_TOO_LONG";
    TtlMinMs         "ttl_min_ms"         1_000,         1 => HOUR_MS,            "INVALID_TTL";
    TtlMaxMs         "ttl_max_ms"         HOUR_MS,       1_000 => 24 * HOUR_MS,   "INVALID_TTL";
    WaitMs           "wait_ms"            24 * HOUR_MS,  1 => 365 * 24 * HOUR_MS, "INVALID_WAIT";
    LockDelayMs      "lock_delay_ms"      60_000,        0 => HOUR_MS,            "INVALID_LOCK_DELAY";
    MaxHoldMs        "max_hold_ms"        7 * 24 * HOUR_MS, 1_000 => 365 * 24 * HOUR_MS, "INVALID_MAX_HOLD";
    LocksPerAsk      "locks_per_ask"      64,            1 => 64,                 "TOO_MANY_LOCKS_IN_ASK";
    Slots            "slots"              1_024,         1 => 65_536,             "INVALID_SLOTS";
    WaitersPerLock   "waiters_per_lock"   10_000,        0 => 10_000_000,         "QUEUE_FULL";
    LocksPerLease    "locks_per_lease"    1_000,         1 => 10_000_000,         "TOO_MANY_LOCKS";
    KeysPerLease     "keys_per_lease"     1_000,         0 => 10_000_000,         "TOO_MANY_KEYS";
    Leases           "leases"             1_000_000,     1 => 100_000_000,        "TOO_MANY_LEASES";
    StateBytes       "state_bytes"        1_024 * MIB,   65_536 => 1 << 36,       "NO_SPACE";
    HistoryRevisions "history_revisions"  100_000,       1 => 100_000_000,        "COMPACTED";
    HistoryBytes     "history_bytes"      64 * MIB,      4_096 => 1 << 34,        "COMPACTED";
    Requests         "requests"           100_000,       0 => 10_000_000,         "REQUESTS_FULL";
    RequestBytes     "request_bytes"      64 * MIB,      0 => 1 << 34,            "REQUESTS_FULL";
    EndsPerEntry     "ends_per_entry"     4_096,         1 => 1_000_000,          "OVERLOADED";
};

impl Limit {
    /// All limits, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Limit> {
        LIMIT_INFO.iter().map(|info| info.limit)
    }

    /// Returns the limit with this number.
    pub fn from_number(number: u8) -> Option<Limit> {
        LIMIT_INFO.get(usize::from(number)).map(|info| info.limit)
    }

    /// Returns the limit with this name.
    pub fn from_name(name: &str) -> Option<Limit> {
        LIMIT_INFO.iter().find(|info| info.name == name).map(|info| info.limit)
    }

    /// Its name in configuration and status.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Its value in a new cluster.
    pub fn default_value(self) -> u64 {
        self.info().default
    }

    /// The values it may be set to. The upper end protects the members' memory from a mistaken command.
    pub fn range(self) -> core::ops::RangeInclusive<u64> {
        self.info().range.clone()
    }

    /// The refusal reason of a command that exceeds it.
    pub fn reason(self) -> &'static str {
        self.info().reason
    }

    fn info(self) -> &'static LimitInfo {
        &LIMIT_INFO[self as usize]
    }
}

/// The values of all limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits([u64; LIMIT_INFO.len()]);

impl Default for Limits {
    fn default() -> Self {
        let mut values = [0; LIMIT_INFO.len()];
        for info in &LIMIT_INFO {
            values[info.limit as usize] = info.default;
        }
        Self(values)
    }
}

impl Limits {
    /// The value of one limit.
    #[inline]
    pub fn get(&self, limit: Limit) -> u64 {
        self.0[limit as usize]
    }

    /// Sets one limit. Returns `false` and changes nothing if the value is outside its range.
    #[must_use]
    pub fn set(&mut self, limit: Limit, value: u64) -> bool {
        let allowed = limit.range().contains(&value);
        if allowed {
            self.0[limit as usize] = value;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ordered_by_number_and_every_default_is_allowed() {
        for (number, info) in LIMIT_INFO.iter().enumerate() {
            assert_eq!(info.limit as usize, number);
            assert!(info.range.contains(&info.default), "{}", info.name);
            assert_eq!(Limit::from_name(info.name), Some(info.limit));
        }
    }

    #[test]
    fn a_value_outside_the_range_changes_nothing() {
        let mut limits = Limits::default();
        assert!(!limits.set(Limit::Slots, 0));
        assert_eq!(limits, Limits::default());
        assert!(limits.set(Limit::Slots, 8));
        assert_eq!(limits.get(Limit::Slots), 8);
    }
}
