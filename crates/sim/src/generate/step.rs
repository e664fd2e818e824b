//! Defines one step of a sequence, in a form that can be kept and run again.
//!
//! Requests borrow from the bytes that they were decoded from. The types here own their data, so that a failing
//! sequence can be run again with some of its steps left out.

pub use super::access::OwnedAccess;
use tenure_core::StoppedFor;
use tenure_core::codec;
use tenure_core::request::{
    Abandon, Acquire, Ask, AskId, AskLease, AskWait, Asks, Command, Expect, Hold, LeaseRef,
    NewLease, Purpose, Put, Request, RequestId, Revoker, Upgrade, Urgency, WriteGuard,
};
use tenure_types::{LeaseId, Limit, Mode, PlaceNumber, Revision, Token};

/// One step.
#[derive(Clone, Debug)]
pub enum SequenceStep {
    /// An entry with a payload.
    Entry {
        /// The term of the entry in the log.
        log_term: u64,
        /// The term inside the payload.
        payload_term: u64,
        /// The leader's count.
        count_ms: u64,
        /// Its commands.
        items: Vec<StepCommand>,
    },
    /// An entry of the log itself.
    Empty {
        /// Its term.
        log_term: u64,
    },
    /// An entry whose frame cannot be read.
    Unreadable {
        /// Its term.
        log_term: u64,
        /// The bytes: too few for any frame.
        payload: Vec<u8>,
    },
    /// Decode a snapshot of the machine, and let both continue.
    Snapshot,
    /// Turn the state into the first one of a new incarnation.
    Restore {
        /// The new epoch.
        epoch: u16,
        /// How long the earlier clients are known to have stopped.
        stopped: StoppedFor,
    },
}

impl SequenceStep {
    /// The number of commands in the step.
    pub fn commands(&self) -> usize {
        match self {
            SequenceStep::Entry { items, .. } => items.len(),
            _ => 0,
        }
    }
}

/// One command of an entry.
#[derive(Clone, Debug)]
pub enum StepCommand {
    /// A request.
    Request(Box<OwnedRequest>),
    /// Bytes that may or may not be a request.
    Raw(Vec<u8>),
}

impl StepCommand {
    /// The command in the form of the log.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            StepCommand::Request(request) => {
                let mut out = Vec::new();
                codec::encode_request(&request.lend(), &mut out);
                out
            }
            StepCommand::Raw(bytes) => bytes.clone(),
        }
    }
}

/// A request that owns its parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedRequest {
    /// The principal.
    pub principal: String,
    /// The id by which a repetition is recognised.
    pub id: OwnedId,
    /// The command.
    pub command: OwnedCommand,
}

/// [`RequestId`], owned.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of the borrowed type")]
pub enum OwnedId {
    /// No id.
    None,
    /// A request number of a lease.
    Seq { lease: LeaseRef, seq: u64, done: u64 },
    /// A request key of the principal.
    Key(String),
}

/// [`NewLease`], owned.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of the borrowed type")]
pub struct OwnedLease {
    pub id: LeaseId,
    pub ttl_ms: u64,
    pub client: String,
    pub metadata: Vec<u8>,
}

/// [`AskLease`], owned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnedAskLease {
    /// A lease that exists.
    Existing(LeaseRef),
    /// A new lease.
    New(OwnedLease),
}

/// [`Acquire`], owned.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of the borrowed type")]
pub struct OwnedAcquire {
    pub lease: OwnedAskLease,
    pub locks: Vec<(String, Mode)>,
    pub any: bool,
    /// Whether the first of the locks is the prefix of a pool.
    pub pool: bool,
    pub wait: AskWait,
    pub metadata: Vec<u8>,
    pub lock_delay_ms: u64,
    pub max_hold_ms: Option<u64>,
    pub min_hold_ms: u64,
    pub progress_within_ms: u64,
    pub supersede: Option<String>,
    pub resume: bool,
    pub priority: u8,
    pub purpose: Purpose,
    pub independent: bool,
}

/// [`Hold`], owned.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of the borrowed type")]
pub struct OwnedHold {
    pub lease: LeaseRef,
    pub lock: String,
    pub token: Token,
}

impl OwnedHold {
    fn lend(&self) -> Hold<'_> {
        Hold { lease: self.lease, lock: &self.lock, token: self.token }
    }
}

/// [`Expect`], owned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnedExpect {
    /// No condition.
    Any,
    /// The key is absent.
    Absent,
    /// The key was last changed at this revision.
    Modified(Revision),
    /// The key has this value.
    Value(Vec<u8>),
}

impl OwnedExpect {
    fn lend(&self) -> Expect<'_> {
        match self {
            OwnedExpect::Any => Expect::Any,
            OwnedExpect::Absent => Expect::Absent,
            OwnedExpect::Modified(revision) => Expect::Modified(*revision),
            OwnedExpect::Value(value) => Expect::Value(value),
        }
    }
}

/// A lock and the token that must hold it.
pub type OwnedGuard = (String, Token);

/// [`Command`], owned.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "variants and fields are those of the borrowed type")]
pub enum OwnedCommand {
    GrantLease(OwnedLease),
    Renew(Vec<LeaseRef>),
    Revoke {
        lease: LeaseRef,
        /// The name and the reason of another caller; `None` for the holder itself.
        other: Option<(String, String, Urgency)>,
    },
    Acquire(OwnedAcquire),
    Release(OwnedHold),
    Leave {
        lease: LeaseRef,
        lock: String,
    },
    Downgrade(OwnedHold),
    Progress {
        hold: OwnedHold,
        number: u64,
    },
    Upgrade {
        lease: LeaseRef,
        lock: String,
        wait: AskWait,
        resume: bool,
        independent: bool,
    },
    HandOn {
        hold: OwnedHold,
        to: LeaseId,
    },
    Resize {
        lock: String,
        slots: Option<u32>,
        by: String,
    },
    Update {
        hold: OwnedHold,
        metadata: Vec<u8>,
    },
    Force {
        lock: String,
        token: Token,
        by: String,
        reason: String,
        urgency: Urgency,
    },
    Stopped {
        lease: LeaseId,
        created: Revision,
        lock: String,
        token: Token,
    },
    Put {
        key: String,
        value: Vec<u8>,
        lease: Option<LeaseRef>,
        expect: OwnedExpect,
        guard: Option<OwnedGuard>,
    },
    Delete {
        key: String,
        expect: OwnedExpect,
        guard: Option<OwnedGuard>,
    },
    SetLimits(Vec<(Limit, u64)>),
    Compact {
        keep: Revision,
    },
    RaiseLevel {
        level: u16,
    },
    SetAccess(OwnedAccess),
    Drain {
        prefix: String,
        by: String,
        reason: String,
    },
    Undrain {
        prefix: String,
        by: String,
    },
    Abandon {
        ask: OwnedId,
        lease: LeaseRef,
        place: PlaceNumber,
    },
}

impl OwnedRequest {
    /// A request without an id.
    pub fn plain(command: OwnedCommand) -> Self {
        Self { principal: String::new(), id: OwnedId::None, command }
    }

    /// The request in the machine's types.
    pub fn lend(&self) -> Request<'_> {
        Request {
            principal: &self.principal,
            id: match &self.id {
                OwnedId::None => RequestId::None,
                OwnedId::Seq { lease, seq, done } => {
                    RequestId::Seq { lease: *lease, seq: *seq, done: *done }
                }
                OwnedId::Key(key) => RequestId::Key(key),
            },
            command: self.command.lend(),
        }
    }
}

impl OwnedCommand {
    fn lend(&self) -> Command<'_> {
        match self {
            OwnedCommand::GrantLease(lease) => Command::GrantLease(lend_lease(lease)),
            OwnedCommand::Renew(leases) => Command::Renew(leases.clone()),
            OwnedCommand::Revoke { lease, other } => Command::Revoke {
                lease: *lease,
                by: match other {
                    None => Revoker::Holder,
                    Some((name, reason, urgency)) => {
                        Revoker::Other { name, reason, urgency: *urgency }
                    }
                },
            },
            OwnedCommand::Acquire(acquire) => Command::Acquire(lend_acquire(acquire)),
            OwnedCommand::Release(hold) => Command::Release(hold.lend()),
            OwnedCommand::Leave { lease, lock } => Command::Leave { lease: *lease, lock },
            OwnedCommand::Downgrade(hold) => Command::Downgrade(hold.lend()),
            OwnedCommand::Progress { hold, number } => {
                Command::Progress { hold: hold.lend(), number: *number }
            }
            OwnedCommand::Upgrade { lease, lock, wait, resume, independent } => {
                let (lease, wait) = (*lease, *wait);
                let (resume, independent) = (*resume, *independent);
                Command::Upgrade(Upgrade { lease, lock, wait, resume, independent })
            }
            OwnedCommand::HandOn { hold, to } => Command::HandOn { hold: hold.lend(), to: *to },
            OwnedCommand::Resize { lock, slots, by } => Command::Resize { lock, slots: *slots, by },
            OwnedCommand::Update { hold, metadata } => {
                Command::Update { hold: hold.lend(), metadata }
            }
            OwnedCommand::Force { lock, token, by, reason, urgency } => {
                Command::Force { lock, token: *token, by, reason, urgency: *urgency }
            }
            OwnedCommand::Stopped { lease, created, lock, token } => {
                Command::Stopped { lease: *lease, created: *created, lock, token: *token }
            }
            OwnedCommand::Put { key, value, lease, expect, guard } => Command::Put(Put {
                key,
                value,
                lease: *lease,
                expect: expect.lend(),
                guard: lend_guard(guard.as_ref()),
            }),
            OwnedCommand::Delete { key, expect, guard } => {
                Command::Delete { key, expect: expect.lend(), guard: lend_guard(guard.as_ref()) }
            }
            OwnedCommand::SetLimits(limits) => Command::SetLimits(limits.clone()),
            OwnedCommand::Compact { keep } => Command::Compact { keep: *keep },
            OwnedCommand::RaiseLevel { level } => Command::RaiseLevel { level: *level },
            OwnedCommand::SetAccess(change) => Command::SetAccess(change.lend()),
            OwnedCommand::Drain { prefix, by, reason } => Command::Drain { prefix, by, reason },
            OwnedCommand::Undrain { prefix, by } => Command::Undrain { prefix, by },
            OwnedCommand::Abandon { ask, lease, place } => Command::Abandon(Abandon {
                ask: match ask {
                    OwnedId::None => AskId::None,
                    OwnedId::Seq { lease, seq, .. } => AskId::Seq { lease: *lease, seq: *seq },
                    OwnedId::Key(key) => AskId::Key(key),
                },
                lease: *lease,
                place: *place,
            }),
        }
    }
}

fn lend_lease(lease: &OwnedLease) -> NewLease<'_> {
    NewLease {
        id: lease.id,
        ttl_ms: lease.ttl_ms,
        client: &lease.client,
        metadata: &lease.metadata,
    }
}

fn lend_guard(guard: Option<&OwnedGuard>) -> Option<WriteGuard<'_>> {
    guard.map(|(lock, token)| WriteGuard { lock, token: *token })
}

fn lend_acquire(acquire: &OwnedAcquire) -> Acquire<'_> {
    Acquire {
        lease: match &acquire.lease {
            OwnedAskLease::Existing(lease) => AskLease::Existing(*lease),
            OwnedAskLease::New(lease) => AskLease::New(lend_lease(lease)),
        },
        // A single lock has only one form, so that equal commands have equal bytes.
        locks: match acquire.locks.as_slice() {
            [(lock, mode), ..] if acquire.pool => Asks::Pool(Ask { lock, mode: *mode }),
            [(lock, mode)] => Asks::One(Ask { lock, mode: *mode }),
            many => Asks::Many(many.iter().map(|(lock, mode)| Ask { lock, mode: *mode }).collect()),
        },
        any: acquire.any,
        wait: acquire.wait,
        metadata: &acquire.metadata,
        lock_delay_ms: acquire.lock_delay_ms,
        max_hold_ms: acquire.max_hold_ms,
        min_hold_ms: acquire.min_hold_ms,
        progress_within_ms: acquire.progress_within_ms,
        supersede: acquire.supersede.as_deref(),
        resume: acquire.resume,
        priority: acquire.priority,
        purpose: acquire.purpose,
        independent: acquire.independent,
    }
}
