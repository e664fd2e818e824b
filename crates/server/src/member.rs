//! Gives other threads and tasks a handle to one running member and its event loop.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tenure_core::{Frozen, Machine};
use tenure_node::{
    AdminRequest, Admission, CallId, CommandBatch, Control, Input, Join, KnownLeader, Lineage,
    Node, NodeFailure, Outcomes, PeerName, Permit, Principal, ReadConsistency, ReplyTo, Source,
};
use tenure_raft::{MemberId, Membership, Replica, ReplicaStatus, Stop};
use tenure_store::{LogId, PreparedSegment, SyncReport};
use tenure_types::Revision;
use tokio::sync::watch;

use crate::archive::Archive;
use crate::audit::AuditLog;
use crate::dispatch::Outbox;
use crate::identity::Identity;
use crate::inbox::{self, Inbox, InboxEvents, ReadTurn};
use crate::metrics::LockMetrics;
use crate::node_metrics::{NodeMeters, NodeMetrics};
use crate::os::{self, Clock};
use crate::peer::IncomingLink;
use crate::watch::Feed;

/// Added to the caller's timeout, so that a definite "not applied" arrives before the outcome is reported as unknown.
const ANSWER_GRACE: Duration = Duration::from_millis(150);

/// The member has ended.
pub(crate) struct MemberEnded;

/// An event that other threads send to the event loop.
pub(crate) enum LoopEvent {
    Input(Input),
    /// A batch whose answer is for a caller without a session.
    Call {
        call: CallId,
        batch: Box<CommandBatch>,
        done: OutcomesCallback,
    },
    Read(Box<ReadCall>),
    Admin {
        request: AdminRequest,
        principal: Principal,
        deadline_us: u64,
        done: AdminDone,
    },
    Join {
        request: Box<Join>,
        peer_name: PeerName,
        done: JoinDone,
    },
    Inspect {
        ask: NodeQuestion,
        source: Source,
    },
    Freeze {
        done: Sender<FrozenState>,
    },
    Prepared(Box<PreparedSegment>),
    Synced(SyncReport),
    /// A connection whose messages the event loop reads from now on.
    Incoming(Box<IncomingLink>),
    Leave {
        done: Sender<()>,
    },
    Die(End),
}

/// Every command moves one through the inbox, from the caller's processor to that of the event loop.
const _: () = assert!(size_of::<LoopEvent>() <= 96);

impl LoopEvent {
    /// An inspection of the node that the member makes for itself.
    pub(crate) fn inspect(ask: impl FnOnce(&Node) + Send + 'static) -> Self {
        Self::Inspect { ask: Box::new(ask), source: Source::default() }
    }
}

/// A read that waits until the machine is fresh enough.
pub(crate) struct ReadCall {
    pub(crate) question: Question,
    pub(crate) principal: Principal,
    pub(crate) fresh: ReadConsistency,
    pub(crate) deadline_us: u64,
    pub(crate) turn: ReadTurn,
}

/// Why the event loop has not taken an event at once.
pub(crate) enum TrySubmitError {
    /// The inbox is full. Carries the event back.
    Full(Box<LoopEvent>),
    /// The member has ended. Carries the event back, so that its caller gets an answer.
    Ended(Box<LoopEvent>),
}

impl TrySubmitError {
    /// The event, and why it was not taken.
    pub(crate) fn back(self) -> (LoopEvent, NodeFailure) {
        match self {
            Self::Full(event) => (*event, NodeFailure::Overloaded),
            Self::Ended(event) => (*event, NodeFailure::Stopping),
        }
    }
}

/// The frozen state of a machine, with the entry, the level and the revision that it is at.
pub(crate) type FrozenState = (LogId, u16, Revision, Frozen);

/// Called with the machine once it is fresh enough, or with the reason why the read failed.
pub(crate) type Question = Box<dyn FnOnce(Result<&Machine, NodeFailure>) + Send>;

/// Called with the node as it is.
pub(crate) type NodeQuestion = Box<dyn FnOnce(&Node) + Send>;

/// Called with the outcome of each command, in order.
pub(crate) type OutcomesCallback = Box<dyn FnOnce(Outcomes) + Send>;

/// Called with the answer to a request to join.
pub(crate) type JoinDone = Box<dyn FnOnce(Control) + Send>;

/// Called with the result of an admin request.
pub(crate) type AdminDone = Box<dyn FnOnce(Result<(), NodeFailure>) + Send>;

/// A handle to one running member.
#[derive(Clone)]
pub struct MemberHandle {
    id: MemberId,
    lineage: Arc<Lineage>,
    admission: Admission,
    clock: Arc<dyn Clock>,
    inbox: Inbox,
    /// Notified after each event put into the inbox, for an event loop that runs as a task.
    bell: Option<Arc<tokio::sync::Notify>>,
    over: Arc<EndState>,
    lead: Arc<watch::Sender<KnownLeader>>,
    outbox: Arc<Outbox>,
    /// Whether a backup is being taken.
    backing_up: Arc<AtomicBool>,
    feed: Arc<Feed>,
    meters: Arc<NodeMeters>,
    lock_metrics: Arc<LockMetrics>,
    archive: Arc<Archive>,
    audit: Arc<AuditLog>,
    identity: Arc<Identity>,
    /// The level of the machine as last published.
    level: Arc<AtomicU16>,
    /// The number of calls so far, which are numbered in this order.
    calls: Arc<AtomicU64>,
}

/// Whether a member has ended, and why.
#[derive(Default)]
pub(crate) struct EndState {
    ended: AtomicBool,
    cause: Mutex<Option<End>>,
}

/// How a member ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// The member was told to stop.
    #[error("stopped")]
    Told,
    /// The replica requires the member to stop, for the given reason.
    #[error("{0}")]
    Cluster(Stop),
    /// The member's disk failed.
    #[error("{0}")]
    Disk(String),
    /// A thread of the member panicked, in a build that unwinds. Other builds abort.
    #[error("panic in thread {thread}")]
    Panic {
        /// The name of the thread.
        thread: &'static str,
    },
}

impl End {
    /// Whether the state or the log is damaged. Callers then get `Corrupt` instead of `ShuttingDown`.
    pub fn is_corrupt(&self) -> bool {
        let damage = |stop: &Stop| {
            matches!(stop, Stop::Diverged { .. } | Stop::Forgot { .. } | Stop::Malformed { .. })
        };
        matches!(self, Self::Cluster(stop) if damage(stop))
    }
}

/// The member has ended, or could not answer in time. A read may be repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no quorum confirmed the leader in time")]
pub struct Gone;

/// A member's status.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// The member's id.
    pub id: MemberId,
    /// The status of the replica: term, leader, log.
    pub agreement: ReplicaStatus,
    /// The members of the cluster.
    pub members: Membership,
    /// The cluster, epoch and incarnation that the member belongs to.
    pub lineage: Lineage,
    /// The level of the machine's rules, and the highest level that this member knows.
    pub level: (u16, u16),
    /// The newest revision.
    pub revision: Revision,
    /// The rolling hash over everything applied and answered.
    pub hash: u128,
    /// The machine's clock.
    pub clock_ms: u64,
    /// The member's measurements of itself.
    pub metrics: NodeMetrics,
    /// The memory of the state's records and history, without indexes.
    pub state_bytes: u64,
}

impl MemberHandle {
    /// A member that uses this clock. `bell` is notified after each event put into its inbox.
    pub(crate) fn new(
        id: MemberId,
        lineage: Lineage,
        clock: Arc<dyn Clock>,
        bell: Option<Arc<tokio::sync::Notify>>,
    ) -> (Self, InboxEvents) {
        let (inbox, events) = inbox::inbox();
        let member = Self {
            id,
            lineage: Arc::new(lineage),
            admission: Admission::default(),
            clock,
            inbox,
            bell,
            over: Arc::default(),
            lead: Arc::new(watch::Sender::new(KnownLeader::default())),
            outbox: Arc::default(),
            backing_up: Arc::default(),
            feed: Arc::default(),
            meters: Arc::default(),
            lock_metrics: Arc::default(),
            archive: Arc::default(),
            audit: Arc::default(),
            identity: Arc::default(),
            level: Arc::default(),
            calls: Arc::default(),
        };
        (member, events)
    }

    /// The member's id.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// The cluster, epoch and incarnation that the member belongs to.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// The time of the member's clock.
    pub(crate) fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    /// The time left until a moment of the member's clock; zero if it has passed.
    pub(crate) fn until(&self, moment_us: u64) -> Duration {
        Duration::from_micros(moment_us.saturating_sub(self.now_us()))
    }

    /// The moment of the member's clock that is `within` from now.
    pub(crate) fn deadline_us(&self, within: Duration) -> u64 {
        self.now_us().saturating_add(os::micros(within))
    }

    /// The budget for requests in flight.
    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Submits commands in their log encoding and waits for the outcome of each.
    ///
    /// `linger` is how long they may wait to be proposed together with others. The outcome of a command that is not
    /// answered within `timeout` is unknown: it may still be applied.
    pub fn submit(&self, requests: Vec<Bytes>, linger: Duration, timeout: Duration) -> Outcomes {
        let commands = requests.len();
        let (sender, receiver) = channel();
        self.submit_then(requests, linger, timeout, move |outcomes| {
            let _ = sender.send(outcomes);
        });
        match receiver.recv_timeout(timeout + ANSWER_GRACE) {
            Ok(outcomes) => outcomes,
            Err(_) => vec![Err(NodeFailure::Unknown); commands],
        }
    }

    /// Submits commands and returns. The event loop calls `done`, which must be quick.
    pub fn submit_then(
        &self,
        requests: Vec<Bytes>,
        linger: Duration,
        timeout: Duration,
        done: impl FnOnce(Outcomes) + Send + 'static,
    ) {
        let (linger_us, deadline_us) = (os::micros(linger), self.deadline_us(timeout));
        let event = self.call(requests, linger_us, deadline_us, Permit::default(), Box::new(done));
        self.tell(event);
    }

    /// Builds the event that submits commands without a session.
    pub(crate) fn call(
        &self,
        requests: Vec<Bytes>,
        linger_us: u64,
        deadline_us: u64,
        permit: Permit,
        done: OutcomesCallback,
    ) -> LoopEvent {
        let (asked_at_us, requests) = (self.now_us(), requests.into());
        let call = CallId(self.calls.fetch_add(1, Ordering::Relaxed));
        let reply = ReplyTo::Call(call);
        let batch = CommandBatch { requests, linger_us, asked_at_us, deadline_us, reply, permit };
        LoopEvent::Call { call, batch: Box::new(batch), done }
    }

    /// Reads the machine in a state that is not older than the call. Fails if no quorum confirms the leader within
    /// `timeout`.
    pub fn read<T: Send + 'static>(
        &self,
        timeout: Duration,
        ask: impl FnOnce(&Machine) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        let (sender, receiver) = channel();
        let question: Question = Box::new(move |machine| {
            let _ = sender.send(machine.map(ask));
        });
        let (principal, deadline_us) = (Principal::member(), self.deadline_us(timeout));
        let (fresh, turn) = (ReadConsistency::Linearizable, ReadTurn::default());
        let read = ReadCall { question, principal, fresh, deadline_us, turn };
        self.tell(LoopEvent::Read(Box::new(read)));
        match receiver.recv_timeout(timeout + ANSWER_GRACE) {
            Ok(answer) => answer.map_err(|_| Gone),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(Gone),
        }
    }

    /// Reads this member's machine as it is, which may be old.
    pub fn read_stale<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Machine) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        self.inspect(move |replica| ask(replica.machine()))
    }

    /// Sends an admin request to the leader: to change the members or to transfer leadership.
    pub fn admin(&self, request: AdminRequest, timeout: Duration) -> Result<(), NodeFailure> {
        let (sender, receiver) = channel();
        let (principal, deadline_us) = (Principal::member(), self.deadline_us(timeout));
        let done: AdminDone = Box::new(move |result| {
            let _ = sender.send(result);
        });
        self.tell(LoopEvent::Admin { request, principal, deadline_us, done });
        receiver.recv_timeout(timeout + ANSWER_GRACE).unwrap_or(Err(NodeFailure::Unknown))
    }

    /// A receiver of the current leader and of every change of it.
    pub fn lead(&self) -> watch::Receiver<KnownLeader> {
        self.lead.subscribe()
    }

    pub(crate) fn set_lead(&self, lead: KnownLeader) {
        self.lead.send_replace(lead);
    }

    /// The outbox for answers and notices to sessions.
    pub(crate) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// The member's status.
    pub fn status(&self) -> Result<MemberStatus, Gone> {
        let metrics = self.metrics();
        let lineage = self.lineage().clone();
        self.inspect(move |replica| {
            let stats = replica.machine().stats();
            MemberStatus {
                id: replica.id(),
                lineage,
                level: (replica.machine().level(), replica.machine().level_known()),
                agreement: replica.status(),
                members: replica.members().clone(),
                revision: replica.machine().revision(),
                hash: replica.machine().rolling_hash(),
                clock_ms: replica.machine().clock_ms(),
                metrics,
                state_bytes: stats.record_bytes + stats.history_bytes,
            }
        })
    }

    /// The member's measurements of itself. Does not involve the event loop.
    pub fn metrics(&self) -> NodeMetrics {
        self.meters.read()
    }

    /// Runs a function on the replica in the event loop and returns its result.
    pub(crate) fn inspect<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Replica) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        let (sender, receiver) = channel();
        self.tell(LoopEvent::inspect(move |node| {
            let _ = sender.send(ask(node.replica()));
        }));
        receiver.recv().map_err(|_| Gone)
    }

    /// Freezes this member's state, so that it can be written while the machine goes on.
    pub(crate) fn freeze(&self) -> Result<FrozenState, Gone> {
        let (done, receiver) = channel();
        self.tell(LoopEvent::Freeze { done });
        receiver.recv().map_err(|_| Gone)
    }

    pub(crate) fn backing_up(&self) -> &Arc<AtomicBool> {
        &self.backing_up
    }

    /// Has the member hand over leadership if it leads, make everything durable, and end.
    pub fn leave(&self, timeout: Duration) {
        let (done, receiver) = channel();
        self.tell(LoopEvent::Leave { done });
        let _ = receiver.recv_timeout(timeout);
    }

    /// Why the member has ended; none while it runs.
    pub fn ended(&self) -> Option<End> {
        self.over.cause()
    }

    /// Sends the event loop an event and waits for room in its inbox. If the member has ended, the event is dropped
    /// with the reply channel in it.
    pub(crate) fn tell(&self, event: LoopEvent) {
        self.meters.sent(1);
        let _ = self.inbox.send(event);
        self.ring();
    }

    /// Sends the event loop an event if its inbox has room, for tasks that must not wait.
    pub(crate) fn try_tell(&self, event: LoopEvent) -> Result<(), TrySubmitError> {
        self.meters.sent(1);
        let sent = self.inbox.try_send(event);
        if sent.is_err() {
            self.meters.taken(1);
        }
        self.ring();
        sent
    }

    /// Wakes the event loop so that it checks again whether it may take more: a task has taken the answer to a page.
    pub(crate) fn wake(&self) {
        self.inbox.wake();
        self.ring();
    }

    /// Submits a batch for a task that must not wait. If the event loop does not take it, answers the batch at once:
    /// nothing was applied.
    pub(crate) fn try_submit(&self, event: LoopEvent) {
        let Err(not_taken) = self.try_tell(event) else { return };
        match not_taken.back() {
            (LoopEvent::Call { batch, done, .. }, failure) => done(batch.failed(failure)),
            (LoopEvent::Input(Input::Submit(batch)), failure) => {
                if let ReplyTo::Session { session, batch: number } = batch.reply {
                    let (outcomes, batch) = (batch.failed(failure), number);
                    self.outbox.send(crate::dispatch::Delivery::Answers {
                        session,
                        batch,
                        outcomes,
                    });
                }
            }
            _ => {}
        }
    }

    fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.notify_one();
        }
    }

    /// The feed of events to watches.
    pub(crate) fn feed(&self) -> &Feed {
        &self.feed
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// The meters that the event loop writes.
    pub(crate) fn meters(&self) -> &Arc<NodeMeters> {
        &self.meters
    }

    /// The metrics of locks, which the event loop feeds.
    pub(crate) fn lock_metrics(&self) -> &Arc<LockMetrics> {
        &self.lock_metrics
    }

    /// The archive of past events.
    pub(crate) fn archive(&self) -> &Arc<Archive> {
        &self.archive
    }

    /// The record of administrative acts and denied calls.
    pub(crate) fn audit(&self) -> &Arc<AuditLog> {
        &self.audit
    }

    /// The published access rules, by which the APIs recognise their callers.
    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Publishes the access rules and the level for the APIs. The event loop calls it before it answers the commands
    /// that changed them.
    pub(crate) fn publish(&self, machine: &Machine) {
        self.level.store(machine.level(), Ordering::Release);
        self.identity.publish(machine.shared_access());
    }

    /// The level of the machine as last published.
    pub(crate) fn level(&self) -> u16 {
        self.level.load(Ordering::Acquire)
    }

    pub(crate) fn over(&self) -> &Arc<EndState> {
        &self.over
    }
}

impl EndState {
    pub(crate) fn end(&self, cause: End) {
        let mut kept = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert(cause);
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn is(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn cause(&self) -> Option<End> {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
