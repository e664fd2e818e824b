//! Defines the events of a watch, independent of the wire format.

use std::time::SystemTime;

use bytes::Bytes;
use tenure_types::{LeaseId, Revision, Token};
use tenure_wire::{convert, v1};

use crate::history::time;
use crate::view::Mode;

/// What an event is about.
///
/// ```
/// assert_ne!(tenure::Subject::Lock, tenure::Subject::Key);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Subject {
    /// A lock, or an election.
    Lock,
    /// A key.
    Key,
    /// A lease.
    Lease,
    /// The cluster's settings.
    Settings,
}

/// The change that the event reports.
///
/// ```
/// # use tenure::EventCause;
/// fn is_loss(cause: EventCause) -> bool {
///     matches!(cause, EventCause::Expired | EventCause::Revoked | EventCause::Forced | EventCause::MaxHold)
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum EventCause {
    /// A lock was granted.
    Granted,
    /// The holder released the lock.
    Released,
    /// The lease was not renewed in time.
    Expired,
    /// The lease was revoked.
    Revoked,
    /// The lock was taken away.
    Forced,
    /// The lock was held for its maximum hold time.
    MaxHold,
    /// The holder did not report a larger number in the time that it promised; [`Event::reason`] tells the number.
    NoProgress,
    /// A shared hold became an exclusive one, under a new token.
    Upgraded,
    /// The holder gave its hold to a client that waited; the grant to that client follows.
    HandedOn,
    /// The former holder has stopped, or its lease would have ended: the lock can be granted again.
    RevokeEnded,
    /// The lock-delay is over.
    DelayEnded,
    /// The [`min_hold`](crate::LockAsk::min_hold) since the grant is over, and no client holds the lock any more.
    MinHoldEnded,
    /// An exclusive hold became a shared one.
    Downgraded,
    /// The holder replaced the metadata.
    Updated,
    /// A client queued for the lock.
    Queued,
    /// A client left the queue.
    Left,
    /// A client left the queue because its wait was over.
    WaitTimeout,
    /// A newer request of the same group has replaced a client in the queue: [`Event::by`] is its client,
    /// [`Event::reason`] the group.
    Superseded,
    /// A client left the queue because it asks for more slots than its semaphore has since it was resized.
    TooManySlots,
    /// A waiter left the queue because another of its locks was granted: it had asked for any of them.
    GrantedElsewhere,
    /// A client was refused, because its wait would have been a deadlock.
    Deadlock,
    /// An election has no leader.
    Vacant,
    /// A key was written.
    KeyPut,
    /// A key was deleted.
    KeyDeleted,
    /// A lease was granted.
    LeaseGranted,
    /// Limits were set.
    LimitsSet,
    /// The feature level was raised.
    LevelRaised,
    /// The history was compacted by command: [`Event::value`] is the oldest revision that is left.
    HistoryCompacted,
    /// The access rules were changed.
    AccessChanged,
    /// An operator closed a prefix to new grants: [`Event::value`] is the prefix.
    Drained,
    /// An operator opened a prefix again: [`Event::value`] is the prefix.
    Undrained,
    /// An operator set the number of slots of a semaphore: [`Event::mode`] has it; without a mode, requests decide.
    Resized,
    /// Something that this version of the client does not know.
    Other,
}

/// One change of a lock, a key, a lease or the settings.
///
/// ```no_run
/// # fn example(batch: tenure::Batch) {
/// for event in &batch.events { println!("{:?} {} by {}", event.cause, event.name, event.client); }
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Event {
    /// What the event is about.
    pub subject: Subject,
    /// The change that the event reports.
    pub cause: EventCause,
    /// The name of the lock or key; empty in events about leases and settings.
    pub name: String,
    /// Whether something is there after the event: the key has a value, the lock has this holder.
    pub exists: bool,
    /// The value of the key, or the metadata of the lock.
    pub value: Bytes,
    /// What was there before, if the watch asked for it.
    pub previous: Option<Bytes>,
    /// The lease that holds, held, waits or owns.
    pub lease: Option<LeaseId>,
    /// The client of that lease.
    pub client: String,
    /// The fencing token of the grant.
    pub token: Option<Token>,
    /// How the lock is held or asked for.
    pub mode: Option<Mode>,
    /// The slot of a semaphore.
    pub slot: Option<u32>,
    /// Who took a lock away or revoked a lease.
    pub by: Option<String>,
    /// The reason that was given for that.
    pub reason: Option<String>,
    /// When it happened, by the wall clock of the leader of that moment. A label for people: clocks jump and differ.
    pub at: Option<SystemTime>,
}

/// All events of one revision.
///
/// ```no_run
/// # fn example(batch: tenure::Batch) {
/// for event in &batch.events { println!("{}: {:?}", batch.revision, event.cause); }
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Batch {
    /// The revision of the events.
    pub revision: Revision,
    /// The events, in order.
    pub events: Vec<Event>,
}

/// A batch with the events as the wire has them, for the project's own tools.
#[cfg(feature = "internals")]
#[doc(hidden)]
#[derive(Clone, PartialEq, Debug)]
pub struct RawBatch {
    /// The revision of the events.
    pub revision: Revision,
    /// The events, in order.
    pub events: Vec<v1::Event>,
}

impl EventCause {
    fn of(cause: v1::Cause) -> Self {
        match cause {
            v1::Cause::Unspecified => Self::Other,
            v1::Cause::Granted => Self::Granted,
            v1::Cause::Released => Self::Released,
            v1::Cause::Expired => Self::Expired,
            v1::Cause::Revoked => Self::Revoked,
            v1::Cause::Forced => Self::Forced,
            v1::Cause::MaxHold => Self::MaxHold,
            v1::Cause::NoProgress => Self::NoProgress,
            v1::Cause::Upgraded => Self::Upgraded,
            v1::Cause::HandedOn => Self::HandedOn,
            v1::Cause::Cooled => Self::RevokeEnded,
            v1::Cause::DelayOver => Self::DelayEnded,
            v1::Cause::MinHoldOver => Self::MinHoldEnded,
            v1::Cause::Downgraded => Self::Downgraded,
            v1::Cause::Updated => Self::Updated,
            v1::Cause::Queued => Self::Queued,
            v1::Cause::Left => Self::Left,
            v1::Cause::WaitTimeout => Self::WaitTimeout,
            v1::Cause::Superseded => Self::Superseded,
            v1::Cause::TooManySlots => Self::TooManySlots,
            v1::Cause::GrantedElsewhere => Self::GrantedElsewhere,
            v1::Cause::Resized => Self::Resized,
            v1::Cause::Deadlock => Self::Deadlock,
            v1::Cause::Vacant => Self::Vacant,
            v1::Cause::KeyPut => Self::KeyPut,
            v1::Cause::KeyDeleted => Self::KeyDeleted,
            v1::Cause::LeaseGranted => Self::LeaseGranted,
            v1::Cause::LimitsSet => Self::LimitsSet,
            v1::Cause::LevelRaised => Self::LevelRaised,
            v1::Cause::HistoryCompacted => Self::HistoryCompacted,
            v1::Cause::AccessChanged => Self::AccessChanged,
            v1::Cause::Drained => Self::Drained,
            v1::Cause::Undrained => Self::Undrained,
            // The wire may have more than this client knows.
            #[allow(unreachable_patterns, reason = "the wire may grow a cause first")]
            _ => Self::Other,
        }
    }
}

impl Event {
    pub(crate) fn of(it: v1::Event) -> Self {
        let mode = it.mode.map(|_| Mode::of(it.mode(), it.slots));
        let (cause, exists) = (EventCause::of(it.cause()), it.r#type() == v1::EventType::Put);
        let subject = match it.subject() {
            v1::Subject::Lock => Subject::Lock,
            v1::Subject::Key => Subject::Key,
            v1::Subject::Lease => Subject::Lease,
            v1::Subject::Settings => Subject::Settings,
        };
        let kv = it.kv.unwrap_or_default();
        Self {
            subject,
            cause,
            name: kv.key,
            exists,
            value: kv.value,
            previous: it.prev_kv.map(|kv| kv.value),
            lease: convert::lease_from(it.lease),
            client: it.client,
            token: Token::from_u64(it.token),
            mode,
            slot: it.slot,
            by: it.by,
            reason: it.reason,
            at: it.at_unix_ms.map(time),
        }
    }
}
