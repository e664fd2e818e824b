//! Connects the APIs to the event loop.
//!
//! An API decodes a request and passes it to [`Dispatch`], which authorises it, admits it against the member's budget,
//! and sends it to the event loop. The node decides how the request reaches the leader and what its outcome is:
//!
//! ```text
//! API ─► Dispatch::call, Dispatch::acquire, ClientSession ─► inbox ─► event loop, Node
//! API ◄─ outcome or Failure ◄─ Mailbox, oneshot ◄─ route ◄─ Outbox ◄─ event loop
//! ```

mod acquire;
mod admit;
mod caller;
mod leave;
mod membership;
mod memory;
mod outbox;
mod permission;
mod quota;
mod read;
mod search;
mod session;
mod source;
mod ticket;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_core::codec::encode_request;
use tenure_core::outcome::Outcome;
use tenure_core::request::{Command, Request, RequestId};
use tenure_node::{AdminRequest, GIVE_UP_GRACE_US, KnownLeader, Permit, ReplyTo, TTL_MIN_MS};
use tenure_raft::RejectReason;
use tenure_wire::v1;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) use caller::{Caller, WATCHES_MAX, WatchCount};
#[cfg(test)]
pub(crate) use memory::CONNECTION_BYTES_MAX;
pub(crate) use memory::{Charge, ConnectionMemory, MemberMemory};
pub(crate) use outbox::{Delivery, Outbox};
pub(crate) use permission::ReadScope;
pub(crate) use session::ClientSession;
pub(crate) use source::{ConnectionSources, PrincipalSources, RequestSource};
pub(crate) use tenure_node::{
    AcquireTerms, ClusterView, PlaceFate, Principal, ReadConsistency, SessionMessage,
};
pub(crate) use tenure_wire::Failure;
pub(crate) use ticket::Signed;

use crate::member::{End, LoopEvent, MemberHandle};
use crate::metrics::{self, RequestMetrics};
use crate::peer::Net;
use crate::ticket::SigningKeys;
use crate::traces::{self, FollowedBatch, SpanSteps, Traces};
use crate::watch::Hub;

/// How long a call may take if its caller sets no limit.
pub(crate) const WITHIN: Duration = Duration::from_secs(10);
/// Added to a caller's deadline, so that a definite "not applied" arrives before the outcome is reported as unknown.
const ANSWER_GRACE: Duration = Duration::from_micros(GIVE_UP_GRACE_US);

/// Everything that an API needs of a member. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Dispatch {
    inner: Arc<DispatchShared>,
}

struct DispatchShared {
    member: MemberHandle,
    net: Arc<Net>,
    runtime: Handle,
    cluster: String,
    hub: Hub,
    request_metrics: Arc<RequestMetrics>,
    insecure: bool,
    keys: SigningKeys,
    read_slots: read::ReadSlots,
    searches: search::SearchSlots,
    principals: PrincipalSources,
}

impl Dispatch {
    /// The dispatch of a running member. Its tasks run on `runtime`.
    pub(crate) fn new(
        member: MemberHandle,
        net: Arc<Net>,
        cluster: String,
        insecure: bool,
        keys: SigningKeys,
        runtime: Handle,
    ) -> Self {
        member.outbox().attend();
        runtime.spawn(outbox::route(member.outbox().clone(), member.clone()));
        let hub = Hub::start(member.clone(), &runtime);
        member.lock_metrics().attend();
        runtime.spawn(metrics::count(member.lock_metrics().clone()));
        let request_metrics = Arc::default();
        let read_slots = read::ReadSlots::default();
        let inner = DispatchShared {
            member,
            net,
            runtime,
            cluster,
            hub,
            request_metrics,
            insecure,
            keys,
            read_slots,
            searches: search::SearchSlots::default(),
            principals: PrincipalSources::default(),
        };
        let dispatch = Self { inner: Arc::new(inner) };
        dispatch.runtime().spawn(crate::ticket::tend(dispatch.clone()));
        dispatch
    }

    /// The member that it dispatches to.
    pub(crate) fn member(&self) -> &MemberHandle {
        &self.inner.member
    }

    /// The principals that have or had connections.
    pub(crate) fn principals(&self) -> &PrincipalSources {
        &self.inner.principals
    }

    /// The id of the cluster that the member belongs to.
    pub(crate) fn cluster(&self) -> &str {
        &self.inner.cluster
    }

    /// Whether clients on other machines may connect without authentication.
    pub(crate) fn is_insecure(&self) -> bool {
        self.inner.insecure
    }

    /// The hub that serves watches.
    pub(crate) fn hub(&self) -> &Hub {
        &self.inner.hub
    }

    /// The metrics of requests.
    pub(crate) fn request_metrics(&self) -> &Arc<RequestMetrics> {
        &self.inner.request_metrics
    }

    /// The leader, as far as this member knows.
    pub(crate) fn lead(&self) -> KnownLeader {
        *self.inner.member.lead().borrow()
    }

    /// The runtime of its tasks.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.inner.runtime
    }

    /// The number of admitted commands that have no outcome yet.
    pub(crate) fn in_flight(&self) -> u64 {
        self.member().admission().commands()
    }

    /// The time of the member's clock.
    pub(crate) fn now_us(&self) -> u64 {
        self.member().now_us()
    }

    /// The time left until a moment of the member's clock; zero if it has passed.
    pub(crate) fn until(&self, moment_us: u64) -> Duration {
        self.member().until(moment_us)
    }

    /// The moment of the member's clock that is `within` from now.
    pub(crate) fn deadline_us(&self, within: Duration) -> u64 {
        self.member().deadline_us(within)
    }

    /// Runs a future to its end as work for the present caller, also if the caller goes away.
    fn spawn_for_caller<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let work = traces::as_present(work);
        match Caller::current() {
            Some(caller) => self.runtime().spawn(caller.run(work)),
            None => self.runtime().spawn(work),
        }
    }

    /// Runs one command and waits for its outcome.
    pub(crate) async fn call(
        &self,
        who: &Principal,
        id: RequestId<'_>,
        command: Command<'_>,
        within: Duration,
    ) -> Result<Outcome, Failure> {
        let linger_us = linger_us(&command);
        let (request, permit) = self.admitted(who, id, command)?;
        self.run(request, permit, linger_us, within).await
    }

    /// Runs a command on behalf of the member itself.
    async fn run_own(&self, command: Command<'_>, within: Duration) -> Result<Outcome, Failure> {
        let request = encode(&Principal::member(), RequestId::None, command);
        self.run(request, Permit::default(), 0, within).await
    }

    async fn run(
        &self,
        request: Bytes,
        permit: Permit,
        linger_us: u64,
        within: Duration,
    ) -> Result<Outcome, Failure> {
        let outcome = self.submit(request, permit, linger_us, within).await;
        outcome.map_err(|failure| self.failure(failure, within))
    }

    async fn submit(
        &self,
        request: Bytes,
        permit: Permit,
        linger_us: u64,
        within: Duration,
    ) -> Result<Outcome, tenure_node::NodeFailure> {
        let (done, outcome) = oneshot::channel();
        let done = Box::new(move |outcomes: tenure_node::Outcomes| {
            let _ = done.send(outcomes.into_iter().next());
        });
        let (member, deadline_us) = (self.member(), self.deadline_us(within));
        let event = member.call(vec![request], linger_us, deadline_us, permit, done);
        let _followed = match &event {
            LoopEvent::Call { batch, .. } => self.follow(batch.reply, traces::present()),
            _ => None,
        };
        member.try_submit(event);
        let unknown = tenure_node::NodeFailure::Unknown;
        match tokio::time::timeout(within + ANSWER_GRACE, outcome).await {
            Ok(Ok(Some(outcome))) => outcome,
            // The answer may still come, but the caller's time is over.
            Ok(Ok(None) | Err(_)) | Err(_) => Err(unknown),
        }
    }

    /// Records the steps of a batch for the spans of its requests, until the returned value is dropped.
    pub(crate) fn follow(
        &self,
        reply: ReplyTo,
        steps: impl IntoIterator<Item = Arc<SpanSteps>>,
    ) -> Option<FollowedBatch> {
        self.traces().follow(reply, steps.into_iter().collect())
    }

    /// The traces of the member.
    pub(crate) fn traces(&self) -> &Arc<Traces> {
        &self.member().meters().traces
    }

    /// Converts a failure to one of the public contract, for a caller that was willing to wait for `waited`.
    pub(crate) fn failure(&self, failure: tenure_node::NodeFailure, waited: Duration) -> Failure {
        use tenure_node::NodeFailure as Node;
        if failure.effect() == tenure_node::Effect::None
            && let Some(end) = self.member().ended()
        {
            return (&end).into();
        }
        match failure {
            Node::NoLeader => Failure::NoLeader,
            Node::NotLeader { leader } => Failure::NotLeader { leader: Some(self.hint(leader)) },
            Node::Expired => Failure::Deadline,
            Node::Overloaded => self.overloaded(),
            Node::TooLarge { bound } => Failure::TooLarge { bound },
            Node::Forbidden { verb } => {
                // Only a member of a version without access rules does not name the verb. That version forbids one
                // thing: that a client writes the cluster's own keys.
                let verb = verb.unwrap_or(tenure_types::Verb::Keys);
                Failure::PermissionDenied { verb: verb.name() }
            }
            Node::PriorityForbidden { asked, most } => Failure::PriorityDenied { asked, most },
            Node::Stopping => Failure::ShuttingDown,
            Node::Unknown => Failure::UnknownOutcome { waited_ms: millis(waited) },
            Node::Rejected(why) => self.rejected(why),
        }
    }

    fn rejected(&self, why: RejectReason) -> Failure {
        match why {
            RejectReason::NotLeader { .. }
            | RejectReason::Transferring
            | RejectReason::Replaced => match self.lead().by {
                Some(leader) if leader != self.member().id() => {
                    Failure::NotLeader { leader: Some(self.hint(leader)) }
                }
                _ => Failure::NoLeader,
            },
            RejectReason::Busy => self.overloaded(),
            RejectReason::DiskFull => Failure::DiskFull,
            RejectReason::Expired => Failure::Deadline,
            RejectReason::ChangeUnderWay => Failure::MembershipChanging,
            RejectReason::Impossible => Failure::QuorumAtRisk,
            RejectReason::NotCaughtUp { behind } => Failure::NotCaughtUp { behind },
            RejectReason::LevelNotKnown { level, member, .. } => {
                Failure::LevelNotKnown { level, member: member.to_string() }
            }
            RejectReason::Retired => Failure::InvalidField {
                field: "member_id",
                problem: "was removed, and no id comes back".to_owned(),
            },
        }
    }

    fn hint(&self, leader: tenure_raft::MemberId) -> v1::LeaderHint {
        self.inner.net.hint(leader)
    }

    /// The failure for callers of a member that has ended.
    pub(crate) fn farewell(&self) -> Failure {
        self.member().ended().map_or(Failure::ShuttingDown, |end| (&end).into())
    }

    /// Sends an admin request to the leader: to change the members or to transfer leadership.
    async fn admin(
        &self,
        who: &Principal,
        request: AdminRequest,
        within: Duration,
    ) -> Result<(), tenure_node::NodeFailure> {
        let (done, result) = oneshot::channel();
        let done = Box::new(move |answer| {
            let _ = done.send(answer);
        });
        let (principal, deadline_us) = (who.clone(), self.deadline_us(within));
        let event = LoopEvent::Admin { request, principal, deadline_us, done };
        if let Err(not_taken) = self.member().try_tell(event) {
            return Err(not_taken.back().1);
        }
        match tokio::time::timeout(within + ANSWER_GRACE, result).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(_) => Err(tenure_node::NodeFailure::Unknown),
        }
    }
}

impl From<&End> for Failure {
    fn from(end: &End) -> Self {
        if end.is_corrupt() { Self::Corrupt } else { Self::ShuttingDown }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Encodes a command for the log.
pub(crate) fn encode(who: &Principal, id: RequestId<'_>, command: Command<'_>) -> Bytes {
    let mut bytes = Vec::new();
    encode_request(&Request { principal: who.name(), id, command }, &mut bytes);
    bytes.into()
}

/// How long a command without a session may wait to be proposed together with others.
fn linger_us(command: &Command<'_>) -> u64 {
    match command {
        Command::Renew(_) => tenure_node::renewal_linger_us(TTL_MIN_MS),
        _ => 0,
    }
}
