//! Defines the requests and commands that the machine executes.
//!
//! Requests borrow from the bytes they were decoded from. Apply reads each command once and copies only what becomes
//! state.

mod acquire;

use alloc::vec::Vec;
use tenure_types::{Handle, LeaseId, Limit, PlaceNumber, Revision, Token};

use crate::access::AccessChange;

pub use self::acquire::{Acquire, Ask, AskLease, AskWait, Asks, Purpose};
pub use crate::level::{
    LEVEL_ABANDON, LEVEL_ACCESS, LEVEL_ANY, LEVEL_FAIR_RECORDS, LEVEL_HAND_ON, LEVEL_MIN_HOLD,
    LEVEL_POLICY, LEVEL_PRIORITY, LEVEL_PRIORITY_RULES, LEVEL_PROGRESS, LEVEL_RECORDS,
    LEVEL_REOPENING, LEVEL_REPAIRED_SHARES, LEVEL_SETTERS, LEVEL_SHARES,
};

/// One command with the request id that makes it safe to send twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// The authenticated caller as the API identifies it; empty if it is anonymous. It separates the idempotency keys
    /// of different callers. From [`LEVEL_ACCESS`] on it owns the leases and keys that it creates, and once identity is
    /// enabled it decides what the command may do.
    pub principal: &'a str,
    /// How the machine recognises a repeated request.
    pub id: RequestId<'a>,
    /// The command to execute.
    pub command: Command<'a>,
}

/// How the machine recognises that it has seen a request before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestId<'a> {
    /// The machine does not recognise repetitions. The command is harmless to repeat, or its sender takes the risk.
    None,
    /// By a number that the client of a lease counts up.
    Seq {
        /// The lease that numbers the requests.
        lease: LeaseRef,
        /// The number of this request; the first is 1.
        seq: u64,
        /// The highest number up to which the client has an answer to every request or will never repeat it.
        done: u64,
    },
    /// By an idempotency key of the principal, remembered for ten minutes of the machine's clock.
    Key(&'a str),
}

/// How a command names a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseRef {
    /// By number: the lease that has this number now.
    Id(LeaseId),
    /// By slot and generation: this lease and no other.
    Handle(Handle),
}

/// Every way to change state, apart from the passing of time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// Grant a lease.
    GrantLease(NewLease<'a>),
    /// Renew leases: the ttl of each live one starts again.
    Renew(Vec<LeaseRef>),
    /// End a lease and everything bound to it.
    Revoke {
        /// The lease to end.
        lease: LeaseRef,
        /// The client or operator that revokes it.
        by: Revoker<'a>,
    },
    /// Acquire locks, all or none, or any one of them.
    Acquire(Acquire<'a>),
    /// Release a lock.
    Release(Hold<'a>),
    /// Leave the queue of this lock and of every other lock of the same acquire request.
    Leave {
        /// The lease that waits.
        lease: LeaseRef,
        /// One of the locks that the lease waits for.
        lock: &'a str,
    },
    /// Turn an exclusive hold into a shared one; the lock is never free in between.
    Downgrade(Hold<'a>),
    /// Replace the metadata of a held lock; in an election, the leader's value.
    Update {
        /// The grant to update.
        hold: Hold<'a>,
        /// The new metadata.
        metadata: &'a [u8],
    },
    /// Take a lock away from its holder.
    Force {
        /// The lock to take away.
        lock: &'a str,
        /// The token that the operator saw when deciding to take the lock away.
        token: Token,
        /// The name of the operator, for the event; empty if not given.
        by: &'a str,
        /// The operator's reason, for the event.
        reason: &'a str,
        /// Whether the holder gets time to stop first.
        urgency: Urgency,
    },
    /// Report that the holder of a lock that was taken away has stopped.
    Stopped {
        /// The lease that held the lock; it may have ended since.
        lease: LeaseId,
        /// The revision that created the lease.
        created: Revision,
        /// The lock that was taken away.
        lock: &'a str,
        /// The token under which the lease held it.
        token: Token,
    },
    /// Write a key.
    Put(Put<'a>),
    /// Delete a key. A key that does not exist is not an error.
    Delete {
        /// The key to delete.
        key: &'a str,
        /// The precondition on the key.
        expect: Expect<'a>,
        /// The lock that must be held, if any.
        guard: Option<WriteGuard<'a>>,
    },
    /// Set limits, all or none.
    SetLimits(Vec<(Limit, u64)>),
    /// Forget the history before a revision. From [`LEVEL_FAIR_RECORDS`] on the newest 1,000 revisions stay in any
    /// case.
    Compact {
        /// The oldest revision to keep.
        keep: Revision,
    },
    /// Make every member apply by the rules of a newer level.
    RaiseLevel {
        /// The new level.
        level: u16,
    },
    /// Take back one acquire request whose answer reached no caller. Available from [`LEVEL_ABANDON`] on.
    Abandon(Abandon<'a>),
    /// Change the access rules. Available from [`LEVEL_ACCESS`] on.
    SetAccess(AccessChange<'a>),
    /// Close a prefix: no lock below it is granted until it is opened. Available from [`LEVEL_POLICY`] on.
    Drain {
        /// The beginning of the names of the locks; empty for all of them.
        prefix: &'a str,
        /// The name of the operator; empty if not given.
        by: &'a str,
        /// The operator's reason, for those who wait.
        reason: &'a str,
    },
    /// Open a prefix that was closed. A prefix that is open is not an error. Available from [`LEVEL_POLICY`] on.
    Undrain {
        /// The prefix, exactly as it was closed.
        prefix: &'a str,
        /// The name of the operator, for the event; empty if not given.
        by: &'a str,
    },
    /// Report how far the work under a hold has come. Only a number larger than all before counts as progress.
    /// Available from [`LEVEL_PROGRESS`] on.
    Progress {
        /// One of the grants of the acquire request; the report counts for all of them.
        hold: Hold<'a>,
        /// The number.
        number: u64,
    },
    /// Turn a shared hold into an exclusive one; the lease holds the lock all the time. Available from
    /// [`LEVEL_HAND_ON`] on.
    Upgrade(Upgrade<'a>),
    /// Give a hold to a lease that waits for the lock, ahead of all others; the lock is never free in between. The
    /// giver has stopped its work. Available from [`LEVEL_HAND_ON`] on.
    HandOn {
        /// The hold to give.
        hold: Hold<'a>,
        /// The lease that waits.
        to: LeaseId,
    },
    /// Set how many slots a semaphore has, also while it is used, or leave that to the requests again. Available from
    /// [`LEVEL_SHARES`] on.
    Resize {
        /// The semaphore.
        lock: &'a str,
        /// How many slots it has from now on, whatever number a request names; `None` to leave it to the requests.
        slots: Option<u32>,
        /// The name of the operator, for the event; empty if not given.
        by: &'a str,
    },
}

/// The most slots of one semaphore that one acquire request may take.
pub const TAKE_MAX: u32 = 1_024;

/// The highest priority of an acquire request.
pub const PRIORITY_MAX: u8 = 9;

/// How much earlier a request counts as having asked, for each priority.
pub const PRIORITY_STEP_MS: u64 = 30_000;

/// The prefix of the keys that belong to the cluster itself; the APIs let no client write them.
pub const OWN_KEYS: &str = "tenure/";

impl Command<'_> {
    /// The level from which on the machine executes this command. Below it the machine refuses the command as a build
    /// that cannot decode it does: `Malformed`.
    pub fn level(&self) -> u16 {
        match self {
            Self::Abandon(_) => LEVEL_ABANDON,
            Self::SetAccess(change) => change.level(),
            Self::Acquire(acquire) if acquire.any || acquire.pool().is_some() => LEVEL_ANY,
            Self::Acquire(acquire) if acquire.takes_several() => LEVEL_SHARES,
            Self::Acquire(acquire) if acquire.progress_within_ms > 0 => LEVEL_PROGRESS,
            Self::Acquire(acquire) if acquire.priority > 0 => LEVEL_PRIORITY,
            Self::Acquire(acquire) if acquire.supersede.is_some() || acquire.resume => LEVEL_POLICY,
            Self::Acquire(acquire) if acquire.min_hold_ms > 0 => LEVEL_MIN_HOLD,
            Self::Drain { .. } | Self::Undrain { .. } => LEVEL_POLICY,
            Self::Progress { .. } => LEVEL_PROGRESS,
            Self::Upgrade(_) | Self::HandOn { .. } => LEVEL_HAND_ON,
            Self::Resize { .. } => LEVEL_SHARES,
            _ => 1,
        }
    }

    /// The lease for which a client sends this command; `None` if the command names none that exists already, or is
    /// about the lease of another client.
    pub(crate) fn lease(&self) -> Option<LeaseRef> {
        match self {
            Self::Acquire(Acquire { lease: AskLease::Existing(lease), .. })
            | Self::Leave { lease, .. }
            | Self::Revoke { lease, by: Revoker::Holder }
            | Self::Upgrade(Upgrade { lease, .. })
            | Self::Abandon(Abandon { lease, .. }) => Some(*lease),
            Self::Release(hold)
            | Self::Downgrade(hold)
            | Self::Update { hold, .. }
            | Self::Progress { hold, .. }
            | Self::HandOn { hold, .. } => Some(hold.lease),
            Self::Put(put) => put.lease,
            Self::Acquire(Acquire { lease: AskLease::New(_), .. })
            | Self::GrantLease(_)
            | Self::Renew(_)
            | Self::Revoke { by: Revoker::Other { .. }, .. }
            | Self::Force { .. }
            | Self::Stopped { .. }
            | Self::Delete { .. }
            | Self::SetLimits(_)
            | Self::Compact { .. }
            | Self::RaiseLevel { .. }
            | Self::SetAccess(_)
            | Self::Drain { .. }
            | Self::Undrain { .. }
            | Self::Resize { .. } => None,
        }
    }

    /// Whether this command may make the state larger, and is therefore refused while disks are nearly full. Commands
    /// that keep, end or free something stay allowed, and so do those that an operator needs to recover from a full
    /// disk.
    pub fn grows(&self) -> bool {
        match self {
            Self::GrantLease(_) | Self::Acquire(_) | Self::Upgrade(_) | Self::Update { .. } => true,
            // A semaphore whose size is set exists also while no client uses it.
            Self::Resize { slots, .. } => slots.is_some(),
            // The member directory: a member whose disk is full must be replaceable.
            Self::Put(put) => !put.key.starts_with(OWN_KEYS),
            Self::Renew(_)
            | Self::Revoke { .. }
            | Self::Release(_)
            | Self::Leave { .. }
            | Self::Downgrade(_)
            | Self::Force { .. }
            | Self::Stopped { .. }
            | Self::Delete { .. }
            | Self::SetLimits(_)
            | Self::Compact { .. }
            | Self::RaiseLevel { .. }
            | Self::Abandon(_)
            // An operator may have to revoke a principal to free space.
            | Self::SetAccess(_)
            // At most 1,000 prefixes can be closed, and a full disk may be the reason for the maintenance.
            | Self::Drain { .. }
            | Self::Undrain { .. }
            | Self::Progress { .. }
            | Self::HandOn { .. } => false,
        }
    }
}

/// A lease to be granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewLease<'a> {
    /// The lease's number, chosen by the client or drawn by the member that proposes.
    pub id: LeaseId,
    /// How long the lease lives after a renewal.
    pub ttl_ms: u64,
    /// The client's name.
    pub client: &'a str,
    /// Arbitrary bytes that the client attaches; may be empty.
    pub metadata: &'a [u8],
}

/// Who revokes a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Revoker<'a> {
    /// The lease's own client, which has stopped its work.
    Holder,
    /// Another caller: the locks of the lease cool first, because its client may still work.
    Other {
        /// The caller's name, for the event; empty if not given.
        name: &'a str,
        /// The caller's reason, for the event.
        reason: &'a str,
        /// Whether the holder gets time to stop first.
        urgency: Urgency,
    },
}

/// Whether a holder whose lock is taken away gets time to stop before the lock is granted again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// The lock cools until the holder confirms that it has stopped or its lease would have ended.
    Cooling,
    /// The lock is free at once. Only a fence protects the resource then.
    Now,
}

/// A shared hold to be turned into an exclusive one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upgrade<'a> {
    /// The lease that holds the lock.
    pub lease: LeaseRef,
    /// The lock.
    pub lock: &'a str,
    /// How long to wait until there is no other holder.
    pub wait: AskWait,
    /// Whether this only repeats a request that was queued before: it is answered `Ended` if the lease neither waits
    /// for the upgrade nor holds the lock exclusively any more.
    pub resume: bool,
    /// Whether the lease's other work continues while it waits.
    pub independent: bool,
}

/// One acquire request to take back, identified by its answer.
///
/// The sender must have seen the request answered `Acquired` or `Queued`. A request that was perhaps never applied has
/// added nothing to the count, so abandoning it would take back another request of the same caller. For the same reason
/// the sender sends an `Abandon` once, or under a request id of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abandon<'a> {
    /// The request id of the acquire request. Its principal is the principal of this request.
    pub ask: AskId<'a>,
    /// The lease in the answer.
    pub lease: LeaseRef,
    /// The place in the answer. Place numbers are never reused, so this identifies no other request.
    pub place: PlaceNumber,
}

/// The request id of an earlier acquire request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskId<'a> {
    /// The request had no id.
    None,
    /// A number counted by a lease.
    Seq {
        /// The lease that numbers the requests.
        lease: LeaseRef,
        /// The number of the request.
        seq: u64,
    },
    /// An idempotency key.
    Key(&'a str),
}

/// A held lock, identified by its token so that a late command cannot refer to another grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold<'a> {
    /// The holder.
    pub lease: LeaseRef,
    /// The lock.
    pub lock: &'a str,
    /// The token of the grant.
    pub token: Token,
}

/// A key to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Put<'a> {
    /// The key's name.
    pub key: &'a str,
    /// The new value.
    pub value: &'a [u8],
    /// The lease that the key ends with.
    pub lease: Option<LeaseRef>,
    /// The precondition on the key.
    pub expect: Expect<'a>,
    /// The lock that must be held, if any.
    pub guard: Option<WriteGuard<'a>>,
}

/// The precondition on a key for a write to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect<'a> {
    /// None: the key may have any value or not exist.
    Any,
    /// The key does not exist.
    Absent,
    /// The key was last modified at this revision.
    Modified(Revision),
    /// The key has this value.
    Value(&'a [u8]),
}

/// A lock that must be held under this token for a write to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteGuard<'a> {
    /// The lock.
    pub lock: &'a str,
    /// The token.
    pub token: Token,
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use tenure_types::Mode;

    use super::*;

    #[test]
    fn only_what_adds_to_the_state_grows_it() {
        let id = LeaseId::new(1).unwrap();
        let token = Token::new(tenure_types::Epoch::default(), 1).unwrap();
        let lease = LeaseRef::Id(id);
        let hold = Hold { lease, lock: "deploy", token };
        let new = NewLease { id, ttl_ms: 1_000, client: "ana", metadata: b"" };
        let put = |key| {
            let (expect, guard) = (Expect::Any, None);
            Command::Put(Put { key, value: b"", lease: None, expect, guard })
        };
        let acquire = Acquire {
            lease: AskLease::Existing(lease),
            locks: Asks::One(Ask { lock: "deploy", mode: Mode::Exclusive }),
            any: false,
            wait: AskWait::No,
            metadata: b"",
            lock_delay_ms: 0,
            max_hold_ms: None,
            min_hold_ms: 0,
            progress_within_ms: 0,
            supersede: None,
            resume: false,
            priority: 0,
            purpose: Purpose::Lock,
            independent: false,
        };
        let (reason, urgency) = ("", Urgency::Cooling);
        let (created, keep) = (Revision(1), Revision(1));
        let all = [
            (Command::GrantLease(new), true),
            (Command::Renew(vec![lease]), false),
            (Command::Revoke { lease, by: Revoker::Holder }, false),
            (Command::Revoke { lease, by: Revoker::Other { name: "ops", reason, urgency } }, false),
            (Command::Acquire(acquire.clone()), true),
            (Command::Acquire(Acquire { lease: AskLease::New(new), ..acquire }), true),
            (Command::Release(hold), false),
            (Command::Leave { lease, lock: "deploy" }, false),
            (Command::Downgrade(hold), false),
            (Command::Update { hold, metadata: b"more" }, true),
            (Command::Force { lock: "deploy", token, by: "ops", reason, urgency }, false),
            (Command::Stopped { lease: id, created, lock: "deploy", token }, false),
            (put("key"), true),
            (put("tenure/members/1"), false),
            (Command::Delete { key: "key", expect: Expect::Any, guard: None }, false),
            (Command::SetLimits(vec![]), false),
            (Command::Compact { keep }, false),
            (Command::RaiseLevel { level: 2 }, false),
            (Command::Abandon(Abandon { ask: AskId::None, lease, place: PlaceNumber(1) }), false),
            (Command::SetAccess(AccessChange::SetIdentity { enabled: true }), false),
            (Command::Drain { prefix: "db/", by: "ops", reason }, false),
            (Command::Undrain { prefix: "db/", by: "ops" }, false),
            (Command::Progress { hold, number: 1 }, false),
            (
                Command::Upgrade(Upgrade {
                    lease,
                    lock: "deploy",
                    wait: AskWait::No,
                    resume: false,
                    independent: false,
                }),
                true,
            ),
            (Command::HandOn { hold, to: id }, false),
            (Command::Resize { lock: "pool", slots: Some(3), by: "ops" }, true),
            (Command::Resize { lock: "pool", slots: None, by: "ops" }, false),
        ];
        for (command, grows) in &all {
            assert_eq!(command.grows(), *grows, "{command:?}");
        }
        let mut kinds: Vec<_> = all.iter().map(|(it, _)| core::mem::discriminant(it)).collect();
        kinds.dedup();
        assert_eq!(kinds.len(), 23, "every command is here, next to others of its kind");
    }
}
