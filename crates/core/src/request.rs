//! What can the machine be asked to do?
//!
//! Requests borrow from the bytes they were read from: a command is looked at once, in apply, and
//! nothing of it is copied unless it becomes state.

use alloc::vec::Vec;
use tenure_types::{Handle, LeaseId, Limit, Mode, PlaceNumber, Revision, Token};

/// One command with what makes it safe to send twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// Who asks, as the door knows them; empty for nobody in particular. Only idempotency keys are
    /// kept apart by it.
    pub principal: &'a str,
    /// How the machine recognises a repetition.
    pub id: RequestId<'a>,
    /// What is asked.
    pub command: Command<'a>,
}

/// How the machine recognises that it has seen a request before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestId<'a> {
    /// It does not; the command is harmless to repeat, or its sender takes the risk.
    None,
    /// By a number that the holder of a lease counts up.
    Seq {
        /// Whose numbers.
        lease: LeaseRef,
        /// This one; the first is 1.
        seq: u64,
        /// Every request up to this one is answered or given up for ever.
        done: u64,
    },
    /// By a key of the principal, remembered for ten minutes of the machine's clock.
    Key(&'a str),
}

/// How a command names a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseRef {
    /// By number: whichever lease has it now.
    Id(LeaseId),
    /// By place and generation: this lease and no other.
    Handle(Handle),
}

/// Everything that changes state, apart from the passing of time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// Grant a lease.
    GrantLease(NewLease<'a>),
    /// Renew leases: each live one counts its ttl anew.
    Renew(Vec<LeaseRef>),
    /// End a lease and everything bound to it.
    Revoke {
        /// Which.
        lease: LeaseRef,
        /// On whose word.
        by: Revoker<'a>,
    },
    /// Acquire locks, all or none.
    Acquire(Acquire<'a>),
    /// Give a lock back.
    Release(Hold<'a>),
    /// Leave the queue, with every lock of the ask that this one belongs to.
    Leave {
        /// Whose place.
        lease: LeaseRef,
        /// One of the locks it waits for.
        lock: &'a str,
    },
    /// Turn an exclusive hold into a shared one, without a gap.
    Downgrade(Hold<'a>),
    /// Replace the metadata of a held lock; in an election, the leader's value.
    Update {
        /// Of which grant.
        hold: Hold<'a>,
        /// The new metadata.
        metadata: &'a [u8],
    },
    /// Take a lock away from its holder.
    Force {
        /// Which lock.
        lock: &'a str,
        /// The token that was shown to whoever decided this.
        token: Token,
        /// Who decided this, for the record; empty if they did not say.
        by: &'a str,
        /// Why, for the record.
        reason: &'a str,
        /// Whether the holder may stop first.
        urgency: Urgency,
    },
    /// The holder of a lock that was taken away says that it has stopped.
    Stopped {
        /// The lease that held, which may have ended since.
        lease: LeaseId,
        /// The revision that created it.
        created: Revision,
        /// Which lock.
        lock: &'a str,
        /// Under which token.
        token: Token,
    },
    /// Write a key.
    Put(Put<'a>),
    /// Delete a key; one that does not exist is no error.
    Delete {
        /// Which.
        key: &'a str,
        /// Only if it is so.
        expect: Expect<'a>,
        /// Only while this lock is held.
        guard: Option<Guard<'a>>,
    },
    /// Set limits, all or none.
    SetLimits(Vec<(Limit, u64)>),
    /// Forget the history before a revision.
    Compact {
        /// The oldest revision to keep.
        keep: Revision,
    },
    /// Let every member apply by a newer rule book.
    RaiseLevel {
        /// The new level.
        level: u16,
    },
    /// Take back one ask whose answer reached no caller. From [`LEVEL_ABANDON`] on.
    Abandon(Abandon<'a>),
}

/// The level from which on asks are counted and [`Command::Abandon`] is a command. Below it the
/// command is answered as a build answers that cannot read it: `Malformed`.
pub const LEVEL_ABANDON: u16 = 2;

/// Keys that begin like this are the cluster's own; doors let nobody else write them.
pub const OWN_KEYS: &str = "tenure/";

impl Command<'_> {
    /// Whether this may make the state larger, and so is refused while disks are nearly full. What
    /// keeps, ends or frees something goes on, and so does what an operator needs to get out of it.
    pub fn grows(&self) -> bool {
        match self {
            Self::GrantLease(_) | Self::Acquire(_) | Self::Update { .. } => true,
            // Where members live: one whose disk is full must be replaceable.
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
            | Self::Abandon(_) => false,
        }
    }
}

/// A lease to be granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewLease<'a> {
    /// Its number, asked for or drawn by whoever proposes.
    pub id: LeaseId,
    /// How long it lives after a renewal.
    pub ttl_ms: u64,
    /// The client's name.
    pub client: &'a str,
    /// Whatever the client wants to be known by; may be empty.
    pub metadata: &'a [u8],
}

/// On whose word a lease is revoked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Revoker<'a> {
    /// Its own client, which has stopped its work.
    Holder,
    /// Somebody else: its locks cool first.
    Other {
        /// Who, for the record; empty if they did not say.
        name: &'a str,
        /// Why, for the record.
        reason: &'a str,
        /// Whether the holder may stop first.
        urgency: Urgency,
    },
}

/// Whether a holder whose lock is taken away may stop before others start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// The lock cools until the holder confirms or its lease would have ended.
    Cooling,
    /// At once. Only a fence protects the resource then.
    Now,
}

/// Locks to be acquired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acquire<'a> {
    /// For whom.
    pub lease: AskLease<'a>,
    /// Which locks, in which modes, in any order.
    pub locks: Asks<'a>,
    /// How long to wait.
    pub wait: Wait,
    /// What the grants will carry; in an election, the candidate's value. May be empty.
    pub metadata: &'a [u8],
    /// How long nobody may have the lock after an end that the holder did not ask for.
    pub lock_delay_ms: u64,
    /// How long the lock may be held at most.
    pub max_hold_ms: Option<u64>,
    /// Whether this is a lock or a candidacy.
    pub purpose: Purpose,
    /// Whether the lease's other work goes on while it waits, so that this wait closes no ring.
    pub independent: bool,
}

/// One ask that is taken back, named by what its answer said.
///
/// The sender must have seen its ask answered `Acquired` or `Queued`: an ask that was perhaps never
/// applied has added nothing, and taking it back would take from another ask of the same caller.
/// For the same reason it is sent once, or under a request id of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abandon<'a> {
    /// The request id that the ask had; its principal is the one of this request.
    pub ask: AskId<'a>,
    /// The lease of the answer.
    pub lease: LeaseRef,
    /// The place of the answer. Place numbers are never used again, so this means no other ask.
    pub place: PlaceNumber,
}

/// The request id of an earlier ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskId<'a> {
    /// It had none.
    None,
    /// A number of a lease.
    Seq {
        /// Whose numbers.
        lease: LeaseRef,
        /// Which.
        seq: u64,
    },
    /// An idempotency key.
    Key(&'a str),
}

/// For which lease locks are acquired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskLease<'a> {
    /// One that exists.
    Existing(LeaseRef),
    /// One that is granted by the same command.
    New(NewLease<'a>),
}

/// The locks of one ask. One is the common case and needs no allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asks<'a> {
    /// One lock.
    One(Ask<'a>),
    /// Any other number of them.
    Many(Vec<Ask<'a>>),
}

impl<'a> Asks<'a> {
    /// The locks, as a slice.
    pub fn as_slice(&self) -> &[Ask<'a>] {
        match self {
            Asks::One(ask) => core::slice::from_ref(ask),
            Asks::Many(asks) => asks,
        }
    }
}

/// One lock of an ask.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ask<'a> {
    /// Which.
    pub lock: &'a str,
    /// How.
    pub mode: Mode,
}

/// How long an ask waits for its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until it is granted.
    Unlimited,
    /// At most so long, by the machine's clock. Zero is [`Wait::No`].
    Limit {
        /// So long.
        ms: u64,
    },
}

/// What a grant is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A lock.
    Lock,
    /// Leadership: observers see when it is vacant.
    Election,
}

/// A held lock, named so exactly that no late command can mean another grant.
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
    /// Which.
    pub key: &'a str,
    /// The new value.
    pub value: &'a [u8],
    /// The lease that the key ends with.
    pub lease: Option<LeaseRef>,
    /// Only if the key is so.
    pub expect: Expect<'a>,
    /// Only while this lock is held.
    pub guard: Option<Guard<'a>>,
}

/// How a key must be for a write to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect<'a> {
    /// In any way.
    Any,
    /// Not there.
    Absent,
    /// Last changed at this revision.
    Modified(Revision),
    /// Of this value.
    Value(&'a [u8]),
}

/// A lock that must be held, under this token, for a write to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guard<'a> {
    /// The lock.
    pub lock: &'a str,
    /// The token.
    pub token: Token,
}

#[cfg(test)]
mod tests {
    use alloc::vec;

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
            wait: Wait::No,
            metadata: b"",
            lock_delay_ms: 0,
            max_hold_ms: None,
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
        ];
        for (command, grows) in &all {
            assert_eq!(command.grows(), *grows, "{command:?}");
        }
        let mut kinds: Vec<_> = all.iter().map(|(it, _)| core::mem::discriminant(it)).collect();
        kinds.dedup();
        assert_eq!(kinds.len(), 16, "every command is here, next to others of its kind");
    }
}
