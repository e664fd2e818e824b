//! Defines the refusals of the machine, with a stable reason and advice for each.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::{
    HolderState, LeaseId, Limit, Name, Quota, QuotaSetter, QuotaSource, Revision, Token, Verb,
};

/// A holder of a lock, as shown to other clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The lease that holds the lock, or held it before it was taken away.
    pub lease: LeaseId,
    /// The client of that lease.
    pub client: Name,
    /// The token of the grant.
    pub token: Token,
    /// How long the lease has held the lock, by the machine's clock.
    pub held_ms: u64,
    /// Whether the lease still holds the lock, or the grant only keeps other leases out.
    pub state: HolderState,
}

/// One step of a cycle of waits: this lease waits for this lock, and the lease of the next step holds it or is ahead in
/// its queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingLink {
    /// The lease that waits.
    pub lease: LeaseId,
    /// The client of that lease.
    pub client: Name,
    /// The lock that it waits for.
    pub lock: Name,
}

/// The machine refused the command. None of its effects happened.
///
/// [`Refusal::reason`] is the stable word for programs, `Display` the sentence for people, [`Refusal::advice`] what to
/// do next.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// A leader of another term sealed the entry; none of its commands happened.
    #[error("the leader changed before this was agreed on")]
    NotLeader,
    /// The bytes are not a command.
    #[error("the command cannot be read")]
    Malformed,
    /// The level is below the present one, or this member does not know it.
    #[error("the feature level can be raised from {from} up to {to}")]
    InvalidLevel {
        /// The present level.
        from: u16,
        /// The highest level that this member knows; the present level if the requested one is below it.
        to: u16,
    },
    /// A name is empty or has a control character.
    #[error("a name is empty or has control characters")]
    InvalidName,
    /// A limit of the cluster would be exceeded.
    #[error("`{}` is limited to {bound}, asked for {asked}", limit.name())]
    Limit {
        /// The limit.
        limit: Limit,
        /// Its value.
        bound: u64,
        /// The value that the command would have needed.
        asked: u64,
    },
    /// A limit cannot be set to this value.
    #[error("`{}` can be set to {} up to {}, not {asked}", limit.name(), limit.range().start(), limit.range().end())]
    InvalidLimit {
        /// The limit.
        limit: Limit,
        /// The value in the command.
        asked: u64,
    },
    /// The command has too many items.
    #[error("at most {max} in one command")]
    TooManyInCommand {
        /// The bound.
        max: u64,
    },
    /// No live lease has this id or handle.
    #[error("the lease is unknown or has ended")]
    LeaseNotFound,
    /// The id is in use by a lease with another client, ttl or metadata.
    #[error("lease {lease} exists")]
    LeaseExists {
        /// The id.
        lease: LeaseId,
    },
    /// Another lease holds the lock, and the request does not wait.
    #[error("lock `{}` is held", .0.lock)]
    Held(Box<Held>),
    /// The wait limit passed; the place is gone.
    #[error("timed out waiting for the lock")]
    WaitTimeout,
    /// The lease holds or awaits some of these locks, in another mode or together with other locks.
    #[error("the lease already holds or awaits lock `{lock}` in another way")]
    Overlap {
        /// The first such lock.
        lock: Name,
    },
    /// One request names the same lock twice.
    #[error("lock `{lock}` is listed twice in one acquire request")]
    Duplicate {
        /// The lock.
        lock: Name,
    },
    /// The lock is a semaphore with another number of slots, or is not a semaphore.
    #[error("lock `{lock}` has {} slots", slots.unwrap_or(0))]
    OtherKind {
        /// The lock.
        lock: Name,
        /// How many slots it has now; `None` for a plain lock.
        slots: Option<u32>,
    },
    /// No semaphore whose number of slots an operator has set has a name that begins with this prefix, or none has as
    /// many slots as the request takes.
    #[error("pool `{pool}` has no slot for this request")]
    PoolEmpty {
        /// The prefix.
        pool: Name,
    },
    /// Waiting would close a cycle of leases that wait for each other.
    #[error("waiting would close a ring of {} waits", .ring.len())]
    Deadlock {
        /// The cycle, starting with the requesting lease; the first 32 steps of a longer one.
        ring: Vec<RingLink>,
    },
    /// The lease does not hold this lock under this token.
    #[error("lock `{lock}` is not held by this lease with this token")]
    NotHolder {
        /// The lock.
        lock: Name,
    },
    /// The lease does not wait for this lock.
    #[error("the lease does not wait for lock `{lock}`")]
    NotWaiting {
        /// The lock.
        lock: Name,
    },
    /// Only an exclusive grant can be downgraded.
    #[error("lock `{lock}` is not held exclusively")]
    NotExclusive {
        /// The lock.
        lock: Name,
    },
    /// No grant of the lock has the token that the operator saw.
    #[error("lock `{lock}` is not held under this token")]
    TokenOutdated {
        /// The lock.
        lock: Name,
        /// The present holder, if any.
        holder: Option<Box<Holder>>,
    },
    /// No grant cools under this lease, lock and token.
    #[error("no grant of lock `{lock}` is revoking under this token")]
    NotCooling {
        /// The lock.
        lock: Name,
    },
    /// `max_hold` must exceed the ttl, because the lock is taken away one ttl early.
    #[error("max_hold must be more than the ttl of {ttl_ms} ms")]
    MaxHoldTooShort {
        /// The ttl of the lease.
        ttl_ms: u64,
    },
    /// The key does not meet the precondition.
    #[error("the key is not as expected")]
    CompareFailed {
        /// The revision that last changed the key; `None` if it does not exist.
        modified: Option<Revision>,
    },
    /// No live grant of the guarding lock has the token.
    #[error("write rejected: the guarding token does not hold lock `{lock}`")]
    GuardFailed {
        /// The lock.
        lock: Name,
    },
    /// The client declared before that it has the answer to this request or will not repeat it.
    #[error("the request was answered or given up before")]
    RequestStale,
    /// The same request id came with another command.
    #[error("the request id was used for another command")]
    RequestConflict,
    /// Too many requests of the lease are unanswered.
    #[error("at most {window} requests of a lease may be unanswered")]
    RequestWindow {
        /// The bound.
        window: u64,
    },
    /// Every token of this epoch is used.
    #[error("every token of this epoch is used")]
    TokensExhausted,
    /// The cluster was restored and waits until every old lease would have ended.
    #[error("the cluster was restored; locks are granted in {} s", .left_ms.div_ceil(1_000))]
    Quiet {
        /// The remaining time, by the machine's clock.
        left_ms: u64,
    },
    /// The revision has not been reached.
    #[error("revision {asked} has not been reached; the newest is {newest}")]
    FutureRevision {
        /// The requested revision.
        asked: Revision,
        /// The newest revision.
        newest: Revision,
    },
    /// The principal is unknown or disabled, or may not do this.
    #[error("the principal lacks the permission `{}`", verb.name())]
    Forbidden {
        /// The verb that the command needs.
        verb: Verb,
    },
    /// The principal may not use such a priority for these locks.
    #[error(
        "priority {asked} is not permitted: the roles of the principal allow up to {most} for this"
    )]
    PriorityForbidden {
        /// The priority of the request.
        asked: u8,
        /// The greatest priority that the principal may use for all locks of the request.
        most: u8,
    },
    /// A quota of the principal would be exceeded.
    #[error(
        "the quota `{}` of the principal is {bound}{}, asked for {asked}",
        quota.name(), QuotaOrigin(*set_by, setter.as_deref())
    )]
    Quota {
        /// The quota.
        quota: Quota,
        /// Where its value was set.
        set_by: QuotaSource,
        /// Its value.
        bound: u64,
        /// The value that the command would have needed.
        asked: u64,
        /// Who set the value; `None` if the cluster did not record it.
        setter: Option<Box<QuotaSetter>>,
    },
    /// The roles, principals and other parts of the access rules have no room for more.
    #[error("the access rules have room for {max} of these")]
    AccessFull {
        /// The bound.
        max: u64,
    },
    /// No principal has this name.
    #[error("the principal does not exist")]
    PrincipalNotFound,
    /// The role or principal is no longer as it was when the change was prepared.
    #[error("another call has changed it meanwhile")]
    AccessChanged,
    /// The lock is below a drained prefix, and the request does not wait.
    #[error("{0}")]
    Draining(Box<Draining>),
    /// A newer request of the same group has replaced this one; the place is gone.
    #[error("{0}")]
    Superseded(Box<SupersededBy>),
    /// As many prefixes are drained as can be.
    #[error("at most {max} prefixes can be drained")]
    DrainsFull {
        /// The bound.
        max: u64,
    },
}

/// Prints where the value of a quota comes from, as it follows the value in a message.
#[derive(Clone, Copy, Debug)]
pub struct QuotaOrigin<'a>(pub QuotaSource, pub Option<&'a QuotaSetter>);

impl fmt::Display for QuotaOrigin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let principal = self.1.and_then(|setter| setter.principal.as_ref());
        match (self.0, principal) {
            (QuotaSource::Default, None) => f.write_str(" by default"),
            (QuotaSource::Default, Some(by)) => write!(f, " by default, set by `{by}`"),
            (QuotaSource::Principal, None) => f.write_str(", set for it"),
            (QuotaSource::Principal, Some(by)) => write!(f, ", set for it by `{by}`"),
        }
    }
}

/// Details of [`Refusal::Held`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// The lock that was not free.
    pub lock: Name,
    /// Its holder; `None` if the lock is free but other leases wait ahead.
    pub holder: Option<Holder>,
    /// How many places are in its queue already.
    pub ahead: u64,
}

/// The request that has replaced an older one of its group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SupersededBy {
    /// The client of the newer request.
    pub client: Name,
    /// Its lease.
    pub lease: LeaseId,
}

impl fmt::Display for SupersededBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "superseded by a newer request of {}, lease {}", self.client, self.lease)
    }
}

/// Details of [`Refusal::Draining`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draining {
    /// The lock.
    pub lock: Name,
    /// The drained prefix that it is below; empty if all locks are.
    pub prefix: Box<str>,
    /// Who drained it, if the cluster knows.
    pub by: Option<Name>,
    /// The reason that the operator gave; may be empty.
    pub reason: Box<str>,
}

impl fmt::Display for Draining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock `{}` is not granted: ", self.lock)?;
        match &*self.prefix {
            "" => f.write_str("the cluster is drained")?,
            prefix => write!(f, "`{prefix}` is drained")?,
        }
        if let Some(by) = &self.by {
            write!(f, " by {by}")?;
        }
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock `{}` is held", self.lock)?;
        if let Some(Holder { client, token, held_ms, .. }) = &self.holder {
            let seconds = held_ms / 1_000;
            let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
            write!(f, " by {client} for ")?;
            match (hours, minutes) {
                (0, 0) => write!(f, "{seconds}s")?,
                (0, _) => write!(f, "{minutes}m{seconds:02}s")?,
                _ => write!(f, "{hours}h{minutes:02}m")?,
            }
            write!(f, ", token {token}")?;
        }
        match self.ahead {
            0 => Ok(()),
            ahead => write!(f, ", {ahead} waiting"),
        }
    }
}

impl Refusal {
    /// How many bytes of names the refusal carries, which is what a record of it weighs.
    pub fn name_bytes(&self) -> u64 {
        let holder = |holder: &Holder| holder.client.as_bytes().len();
        let bytes = match self {
            Refusal::Held(held) => {
                held.lock.as_bytes().len() + held.holder.as_ref().map_or(0, holder)
            }
            Refusal::TokenOutdated { lock, holder: found } => {
                lock.as_bytes().len() + found.as_deref().map_or(0, holder)
            }
            Refusal::Deadlock { ring } => ring
                .iter()
                .map(|link| link.client.as_bytes().len() + link.lock.as_bytes().len())
                .sum(),
            Refusal::PoolEmpty { pool: lock }
            | Refusal::Overlap { lock }
            | Refusal::Duplicate { lock }
            | Refusal::OtherKind { lock, .. }
            | Refusal::NotHolder { lock }
            | Refusal::NotWaiting { lock }
            | Refusal::NotExclusive { lock }
            | Refusal::NotCooling { lock }
            | Refusal::GuardFailed { lock } => lock.as_bytes().len(),
            Refusal::Quota { setter: Some(setter), .. } => {
                setter.principal.as_ref().map_or(0, |principal| principal.as_bytes().len())
            }
            Refusal::Superseded(by) => by.client.as_bytes().len(),
            Refusal::Draining(draining) => {
                let by = draining.by.as_ref().map_or(0, |by| by.as_bytes().len());
                draining.lock.as_bytes().len() + draining.prefix.len() + by + draining.reason.len()
            }
            _ => 0,
        };
        bytes as u64
    }

    /// The stable word for programs, the same in every API.
    pub fn reason(&self) -> &'static str {
        match self {
            Refusal::NotLeader => "NOT_LEADER",
            Refusal::Malformed => "MALFORMED",
            Refusal::InvalidLevel { .. } => "INVALID_LEVEL",
            Refusal::InvalidName => "INVALID_NAME",
            Refusal::Limit { limit, .. } => limit.reason(),
            Refusal::InvalidLimit { .. } => "INVALID_LIMIT",
            Refusal::TooManyInCommand { .. } => "TOO_MANY_IN_COMMAND",
            Refusal::LeaseNotFound => "LEASE_NOT_FOUND",
            Refusal::LeaseExists { .. } => "LEASE_EXISTS",
            Refusal::Held(_) => "HELD",
            Refusal::WaitTimeout => "WAIT_TIMEOUT",
            Refusal::Overlap { .. } => "OVERLAP",
            Refusal::Duplicate { .. } => "DUPLICATE_LOCK",
            Refusal::OtherKind { .. } => "OTHER_KIND",
            Refusal::PoolEmpty { .. } => "POOL_EMPTY",
            Refusal::Deadlock { .. } => "DEADLOCK",
            Refusal::NotHolder { .. } => "NOT_HOLDER",
            Refusal::NotWaiting { .. } => "NOT_WAITING",
            Refusal::NotExclusive { .. } => "NOT_EXCLUSIVE",
            Refusal::TokenOutdated { .. } => "TOKEN_OUTDATED",
            Refusal::NotCooling { .. } => "NOT_COOLING",
            Refusal::MaxHoldTooShort { .. } => "MAX_HOLD_TOO_SHORT",
            Refusal::CompareFailed { .. } => "COMPARE_FAILED",
            Refusal::GuardFailed { .. } => "GUARD_FAILED",
            Refusal::RequestStale => "REQUEST_STALE",
            Refusal::RequestConflict => "REQUEST_ID_CONFLICT",
            Refusal::RequestWindow { .. } => "REQUEST_WINDOW",
            Refusal::TokensExhausted => "TOKENS_EXHAUSTED",
            Refusal::Quiet { .. } => "QUIET",
            Refusal::FutureRevision { .. } => "FUTURE_REVISION",
            Refusal::Forbidden { .. } | Refusal::PriorityForbidden { .. } => "FORBIDDEN",
            Refusal::Quota { .. } => "QUOTA_EXCEEDED",
            Refusal::AccessFull { .. } => "ACCESS_FULL",
            Refusal::PrincipalNotFound => "PRINCIPAL_NOT_FOUND",
            Refusal::AccessChanged => "ACCESS_CHANGED",
            Refusal::Draining(_) => "DRAINING",
            Refusal::Superseded(_) => "SUPERSEDED",
            Refusal::DrainsFull { .. } => "DRAINS_FULL",
        }
    }

    /// What to do next, in a few words.
    pub fn advice(&self) -> &'static str {
        match self {
            Refusal::NotLeader => "send it again; nothing happened",
            Refusal::Malformed => {
                "correct what the message names, or use a client that is not newer than the cluster"
            }
            Refusal::InvalidLevel { .. } => "name a feature level in this range",
            Refusal::InvalidName => "use 1 to 512 bytes of UTF-8 without control characters",
            Refusal::Limit { limit, .. } => match limit {
                Limit::StateBytes => "release locks, delete keys, or raise the limit",
                Limit::WaitersPerLock => "try again later, or split the lock",
                Limit::Leases | Limit::LocksPerLease | Limit::KeysPerLease => {
                    "end what is not needed, or raise the limit"
                }
                Limit::Requests | Limit::RequestBytes => "try again later",
                Limit::LocksPerAsk => {
                    "name fewer locks; each slot of a pool counts, so divide a large pool by longer prefixes"
                }
                _ => "stay within the limit, or raise it",
            },
            Refusal::InvalidLimit { .. } => "name a value in this range",
            Refusal::TooManyInCommand { .. } => "split the command",
            Refusal::LeaseNotFound => "stop the work, take a new lease and ask again",
            Refusal::LeaseExists { .. } => "ask for another id, or let one be chosen",
            Refusal::Held(_) => "wait in the queue",
            Refusal::WaitTimeout => "ask again, or wait longer",
            Refusal::Overlap { .. } => "release or leave first, or use another lease",
            Refusal::Duplicate { .. } => "name each lock once",
            Refusal::OtherKind { .. } => "ask with the slots the lock has",
            Refusal::PoolEmpty { .. } => "add a slot, as `tenure resize gpu/0 1` does for `gpu/`",
            Refusal::Deadlock { .. } => "release what you hold, then ask for all at once",
            Refusal::NotHolder { .. } => "stop the work; the lock is not yours",
            Refusal::NotWaiting { .. } => "nothing: the queue position is gone",
            Refusal::NotExclusive { .. } => "nothing: it is shared already, or a semaphore",
            Refusal::TokenOutdated { .. } => "look at the holder, then name its token",
            Refusal::NotCooling { .. } => "nothing: the lock has gone on",
            Refusal::MaxHoldTooShort { .. } => "use a longer max_hold or a shorter ttl",
            Refusal::CompareFailed { .. } => "read the key again",
            Refusal::GuardFailed { .. } => "stop the work; the lock is not yours",
            Refusal::RequestStale => "use a new request id",
            Refusal::RequestConflict => "use a new request id",
            Refusal::RequestWindow { .. } => "wait for earlier answers",
            Refusal::TokensExhausted => "back up and restore with a new epoch",
            Refusal::Quiet { .. } => "wait in the queue",
            Refusal::FutureRevision { .. } => "name a revision that exists",
            Refusal::Forbidden { .. } => "ask an administrator for the verb that is named",
            Refusal::PriorityForbidden { .. } => {
                "use a priority that is permitted, or ask an administrator for a greater one"
            }
            Refusal::Quota { .. } => "give something back, or ask an administrator for more",
            Refusal::AccessFull { .. } => "delete what is not needed",
            Refusal::PrincipalNotFound => "create the principal first",
            Refusal::AccessChanged => "read it again, then change what is there now",
            Refusal::Draining(_) => "wait in the queue, or ask again after the maintenance",
            Refusal::Superseded(_) => "nothing: the newer request does the work",
            Refusal::DrainsFull { .. } => "open what is done, or drain a shorter prefix",
        }
    }
}
