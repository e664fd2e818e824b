//! What is between the doors and the loop?
//!
//! A door decodes what a client wants and hands it to the [`Edge`], which sees to it that it is allowed,
//! that there is room for it, that it reaches whoever leads, and that its answer comes back:
//!
//! ```text
//! door ─► Edge::call, Edge::acquire, Session ─► here: loop · there: link to the leader · nobody: wait
//! door ◄─ outcome, or Failure ◄─ Mailbox ◄─ spread ◄─ Outbox ◄─ loop, links
//! ```
//!
//! Nothing here runs on the loop but closures that put something into a box.

mod acquire;
mod admit;
mod load;
mod membership;
mod outbox;
mod read;
mod session;
mod submit;
mod ticket;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_core::codec::encode_request;
use tenure_core::outcome::Outcome;
use tenure_core::request::{Command, Request, RequestId};
use tenure_raft::{MemberId, Why, Wish};
use tenure_wire::v1;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub(crate) use acquire::Turn;
pub(crate) use admit::Principal;
pub(crate) use membership::Cluster;
pub(crate) use outbox::{Delivery, Mail, Outbox};
pub(crate) use read::Fresh;
pub(crate) use session::Session;
pub(crate) use ticket::Signed;

use crate::member::{End, Lead, Member, Undone};
use crate::meter::{self, Asked};
use crate::os;
use crate::peer::Net;
use crate::ticket::Keys;
use crate::watch::Hub;
use load::Load;
use submit::{Batch, Reply};

/// How long a call may take if its caller does not say.
pub(crate) const WITHIN: Duration = Duration::from_secs(10);
/// A command that waits for a leader is given up at its deadline, with the word that nothing happened.
/// Whoever waits for that word waits a little longer, or it would come too late to be believed.
pub(crate) const LAST_WORD_US: u64 = 100_000;
const LAST_WORD: Duration = Duration::from_micros(LAST_WORD_US);
/// A renewal waits for others at most this long, and at most a sixtieth of its ttl.
const GATHER_US: u64 = 50_000;
/// The shortest ttl there is, for renewals of leases that a session has not seen granted.
pub(crate) const TTL_MIN_MS: u64 = 1_000;

/// Everything a door needs of a member. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Edge {
    inner: Arc<Inner>,
}

struct Inner {
    member: Member,
    net: Arc<Net>,
    runtime: Handle,
    load: Load,
    cluster: String,
    hub: Hub,
    asked: Arc<Asked>,
    insecure: bool,
    keys: Keys,
}

/// Why there is no outcome.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Nothing happened: nobody led, or no quorum answered, until the caller's time was over.
    #[error("no leader was found in time")]
    Unavailable,
    /// Nothing happened: another member leads, and did not hear of it in time.
    #[error("this member does not lead")]
    NotLeader {
        /// Where that one's doors are.
        leader: Box<v1::LeaderHint>,
    },
    /// Nothing happened: the member did not get to it before the caller's time was over.
    #[error("the time was over before anything was done")]
    Deadline,
    /// Nothing happened: the member has ended.
    #[error("{0}")]
    Ended(End),
    /// Nothing happened: something else has to end first, or the member is the wrong one.
    #[error("{0}")]
    NotDone(Why),
    /// It may have happened.
    #[error("no answer in time, it may have happened")]
    Unknown,
    /// Nothing happened: too much is on its way.
    #[error("too much is on its way")]
    Overloaded {
        /// When to try again.
        retry_after_ms: u64,
    },
    /// Nothing happened: a command is larger than the log takes.
    #[error("a command has at most {bound} bytes")]
    TooLarge {
        /// The most there may be.
        bound: u64,
    },
    /// Nothing happened: the caller may not do this.
    #[error("{why}")]
    Forbidden {
        /// Why not.
        why: String,
    },
}

impl Edge {
    /// The edge of a running member; `runtime` carries its tasks.
    pub(crate) fn new(
        member: Member,
        net: Arc<Net>,
        cluster: String,
        insecure: bool,
        keys: Keys,
        runtime: Handle,
    ) -> Self {
        member.outbox().attend();
        runtime.spawn(outbox::spread(member.outbox().clone(), member.clone()));
        let hub = Hub::start(member.clone(), &runtime);
        member.tally().attend();
        runtime.spawn(meter::count(member.tally().clone()));
        let (load, asked) = (Load::default(), Arc::default());
        let inner = Inner { member, net, runtime, load, cluster, hub, asked, insecure, keys };
        let edge = Self { inner: Arc::new(inner) };
        edge.runtime().spawn(crate::ticket::tend(edge.clone()));
        edge
    }

    /// The member behind it.
    pub(crate) fn member(&self) -> &Member {
        &self.inner.member
    }

    /// The cluster it belongs to.
    pub(crate) fn cluster(&self) -> &str {
        &self.inner.cluster
    }

    /// Whether strangers may come in, from elsewhere.
    pub(crate) fn is_insecure(&self) -> bool {
        self.inner.insecure
    }

    /// Where watches are.
    pub(crate) fn hub(&self) -> &Hub {
        &self.inner.hub
    }

    /// Where requests are counted.
    pub(crate) fn asked(&self) -> &Arc<Asked> {
        &self.inner.asked
    }

    /// Who leads, as far as this member knows.
    pub(crate) fn lead(&self) -> Lead {
        *self.inner.member.lead().borrow()
    }

    /// Where its tasks run.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.inner.runtime
    }

    /// Commands on their way.
    pub(crate) fn in_flight(&self) -> u64 {
        self.inner.load.commands()
    }

    /// Runs one command and waits for its outcome.
    pub(crate) async fn call(
        &self,
        who: &Principal,
        id: RequestId<'_>,
        command: Command<'_>,
        within: Duration,
    ) -> Result<Outcome, Failure> {
        self.admit(who, &command)?;
        let patience_us = patience_us(&command, TTL_MIN_MS);
        let request = encode(who, id, command);
        self.run(request, patience_us, within).await
    }

    async fn run(
        &self,
        request: Bytes,
        patience_us: u64,
        within: Duration,
    ) -> Result<Outcome, Failure> {
        let (done, fates) = oneshot::channel();
        let deadline_us = deadline_us(within);
        let reply = Reply::Call(done);
        self.submit(Batch { requests: vec![request], patience_us, deadline_us, reply });
        match tokio::time::timeout(within + LAST_WORD, fates).await {
            Ok(Ok(fates)) => fates.into_iter().next().unwrap_or(Err(Undone::Unknown)),
            // The answer may come yet; the caller's time is over.
            Ok(Err(_)) | Err(_) => Err(Undone::Unknown),
        }
        .map_err(|undone| self.failure(undone))
    }

    /// Why there is no outcome, as this member sees it now.
    pub(crate) fn failure(&self, undone: Undone) -> Failure {
        let Undone::NotDone(why) = undone else { return undone.into() };
        if let Some(end) = self.member().ended() {
            return Failure::Ended(end);
        }
        match (why, self.lead().by) {
            (Why::NotLeader { .. } | Why::Transferring | Why::Replaced, Some(leader))
                if leader != self.member().id() =>
            {
                Failure::NotLeader { leader: Box::new(self.inner.net.hint(leader)) }
            }
            _ => undone.into(),
        }
    }

    /// What those are told who ask a member that has ended.
    pub(crate) fn farewell(&self) -> tenure_wire::Failure {
        self.member().ended().map_or(tenure_wire::Failure::ShuttingDown, |end| (&end).into())
    }

    /// Wants something of the leader: other members, or another leader.
    pub(crate) async fn wish(&self, wish: Wish, within: Duration) -> Result<(), Failure> {
        let deadline_us = deadline_us(within);
        loop {
            let (done, result) = oneshot::channel();
            match self.lead().by {
                Some(id) if id == self.inner.member.id() => {
                    self.inner.member.wish_then(wish.clone(), move |result| {
                        let _ = done.send(result.map_err(Undone::NotDone));
                    });
                }
                Some(leader) => self.forward_wish(leader, &wish, done),
                None => drop(done.send(Err(Undone::NotDone(Why::NotLeader { leader: None })))),
            }
            let result = match tokio::time::timeout(os::until(deadline_us), result).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) | Err(_) => Err(Undone::Unknown),
            };
            match result {
                Err(Undone::NotDone(Why::NotLeader { .. } | Why::Transferring))
                    if os::now_us() < deadline_us =>
                {
                    tokio::time::sleep(read::PAUSE).await;
                }
                other => return other.map_err(|undone| self.failure(undone)),
            }
        }
    }

    fn forward_wish(
        &self,
        leader: MemberId,
        wish: &Wish,
        done: oneshot::Sender<Result<(), Undone>>,
    ) {
        self.inner.net.forward_wish(
            leader,
            wish,
            Box::new(move |result| {
                let _ = done.send(result);
            }),
        );
    }
}

impl From<Undone> for Failure {
    fn from(undone: Undone) -> Self {
        match undone {
            Undone::Unknown => Failure::Unknown,
            Undone::NotDone(Why::NotLeader { .. } | Why::Transferring | Why::Replaced) => {
                Failure::Unavailable
            }
            Undone::NotDone(Why::Busy) => {
                Failure::Overloaded { retry_after_ms: load::RETRY_AFTER_MS }
            }
            Undone::NotDone(why) => Failure::NotDone(why),
            Undone::TooLarge { bound } => Failure::TooLarge { bound },
        }
    }
}

impl From<Failure> for tenure_wire::Failure {
    fn from(failure: Failure) -> Self {
        use tenure_wire::Failure as Wire;
        match failure {
            Failure::Unavailable => Wire::NoLeader,
            Failure::NotLeader { leader } => Wire::NotLeader { leader: Some(*leader) },
            Failure::Deadline => Wire::Deadline,
            Failure::Ended(end) => (&end).into(),
            Failure::Unknown => {
                Wire::UnknownOutcome { waited_ms: WITHIN.as_millis().try_into().unwrap_or(0) }
            }
            Failure::Overloaded { retry_after_ms } => Wire::Overloaded { retry_after_ms },
            Failure::TooLarge { bound } => Wire::TooLarge { bound },
            Failure::Forbidden { .. } => Wire::PermissionDenied { verb: "admin" },
            Failure::NotDone(Why::ChangeUnderWay) => Wire::MembershipChanging,
            Failure::NotDone(Why::DiskFull) => Wire::DiskFull,
            Failure::NotDone(Why::Impossible) => Wire::QuorumAtRisk,
            Failure::NotDone(Why::NotCaughtUp { behind }) => Wire::NotCaughtUp { behind },
            Failure::NotDone(Why::LevelNotKnown { level, member, .. }) => {
                Wire::LevelNotKnown { level, member: member.to_string() }
            }
            Failure::NotDone(Why::Retired) => Wire::InvalidField {
                field: "member_id",
                problem: "was removed, and no id comes back".to_owned(),
            },
            Failure::NotDone(_) => Wire::NoQuorum,
        }
    }
}

impl From<&End> for tenure_wire::Failure {
    fn from(end: &End) -> Self {
        if end.is_corrupt() { Self::Corrupt } else { Self::ShuttingDown }
    }
}

impl From<Failure> for v1::Error {
    fn from(failure: Failure) -> Self {
        tenure_wire::Failure::from(failure).into()
    }
}

/// A command in the form of the log.
pub(crate) fn encode(who: &Principal, id: RequestId<'_>, command: Command<'_>) -> Bytes {
    let mut bytes = Vec::new();
    encode_request(&Request { principal: who.name(), id, command }, &mut bytes);
    bytes.into()
}

/// How long a command may wait for others.
pub(crate) fn patience_us(command: &Command<'_>, ttl_min_ms: u64) -> u64 {
    match command {
        Command::Renew(_) => GATHER_US.min(ttl_min_ms * 1_000 / 60),
        _ => 0,
    }
}

/// The moment a time from now is over, by [`os::now_us`].
pub(crate) fn deadline_us(within: Duration) -> u64 {
    os::now_us().saturating_add(u64::try_from(within.as_micros()).unwrap_or(u64::MAX))
}
