//! Defines a request to an API, whichever it is, and the reply.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use tenure_wire::v1;
use tonic::Code;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) what: What,
    /// The request id, for requests without a sequence number under a lease.
    pub(crate) key: Option<String>,
    /// The sequence number under the lease, on sessions.
    pub(crate) seq: u64,
    pub(crate) deadline_ms: Option<u32>,
}

/// The content of a request: a command in the form of a session, or an operation that only some APIs have.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Command(v1::request::Command),
    Locks {
        prefix: String,
    },
    Keys {
        prefix: String,
    },
    Leases,
    Queue {
        lock: String,
    },
    History {
        lock: String,
        from: i64,
    },
    Limits(Vec<(String, u64)>),
    Compact {
        keep: i64,
    },
    Level(u32),
    Campaign {
        name: String,
        lease: i64,
        value: String,
        wait_ms: Option<u64>,
    },
    Proclaim {
        name: String,
        lease: i64,
        token: u64,
        value: String,
    },
    Leader {
        name: String,
    },
    /// The first message to an observer.
    Observe {
        name: String,
    },
    Resign {
        name: String,
        lease: i64,
        token: u64,
    },
    /// Watches a name until this many events have arrived.
    Watch {
        name: String,
        from: i64,
        events: usize,
    },
    Add {
        member: u64,
        name: String,
        hops: u32,
    },
    Promote(u64),
    Remove(u64),
    Ticket {
        lock: String,
        lease: i64,
        token: u64,
    },
    Rotate {
        overlap_ms: Option<u64>,
    },
    TicketKeys,
    /// A request that is not valid at all.
    Bad(Bad),
}

/// The defects of a request that none of our clients sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bad {
    Malformed,
    TooLarge,
    UnknownCall,
    UnknownVerb,
    Media,
    Headers,
    Host,
    Origin,
    OtherCluster,
    Restored,
    TooManyWatches,
    Half,
    Backup,
}

/// The reply to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Done(Reported),
    Refused(Fault),
    /// The API does not have this operation.
    NotHere,
}

/// The result of a successful request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reported {
    pub(crate) word: &'static str,
    pub(crate) facts: BTreeMap<&'static str, String>,
    /// The locks that are held now, with their tokens; a lock without a name is the requested one.
    pub(crate) grants: Vec<(String, u64)>,
    /// The lease that exists now, and the revision that created it.
    pub(crate) lease: Option<(i64, i64)>,
    pub(crate) revision: i64,
}

/// The reason a request was refused, and the form in which the API reported it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Fault {
    pub(crate) reason: String,
    pub(crate) effect: v1::Effect,
    pub(crate) message: String,
    /// The revision in the error, such as a floor.
    pub(crate) revision: Option<i64>,
    /// The bound in the error; 0 if it has none.
    pub(crate) bound: u64,
    /// The leader's address in the error.
    pub(crate) leader: String,
    /// What the error says besides: the client of the holder, the number of slots, the length of a ring, the limit.
    pub(crate) facts: BTreeMap<&'static str, String>,
    pub(crate) how: How,
}

/// The form in which an API reports a refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// A gRPC code.
    Code(Code),
    /// `acquired: false`, which is not an error.
    NotAcquired,
    /// An HTTP status.
    Status(u16),
    /// A message on a session, which goes on.
    Frame,
    /// The end of a gRPC session.
    Ends,
    /// The end of a WebSocket, with a code if it was closed properly.
    Close(Option<u16>),
    /// The upgrade was refused with this status.
    Upgrade(u16),
}

pub(crate) type Answered = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// One API of one member.
pub(crate) trait Api: Send + Sync {
    /// Sends a request, and waits for the lock if it has to.
    fn ask(&self, who: &str, ask: Ask) -> Answered;
}

impl Reported {
    pub(crate) fn new(word: &'static str) -> Self {
        Self { word, ..Self::default() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.facts.insert(name, value.to_string());
        self
    }
}

impl Fault {
    pub(crate) fn new(error: &v1::Error, how: How) -> Self {
        let facts = [
            ("holder", error.holder.as_ref().map(|it| it.client.clone())),
            ("slots", error.slots.map(|it| it.to_string())),
            ("ring", (!error.ring.is_empty()).then(|| error.ring.len().to_string())),
            ("limit", (!error.limit.is_empty()).then(|| error.limit.clone())),
        ];
        Self {
            facts: facts.into_iter().filter_map(|(name, it)| Some((name, it?))).collect(),
            reason: error.reason.clone(),
            effect: error.effect(),
            message: error.message.clone(),
            revision: error.revision,
            bound: error.bound,
            leader: error.leader.as_ref().map_or(String::new(), |it| it.address.clone()),
            how,
        }
    }
}

/// The result of a session's answer, or of a call with the same content. None while the request waits.
pub(crate) fn told(
    result: v1::answer::Result,
    revision: i64,
) -> Option<Result<Reported, v1::Error>> {
    use v1::answer::Result as Wire;
    let told = match result {
        Wire::Error(error) => return Some(Err(*error)),
        Wire::Queued(_) => return None,
        Wire::Acquired(it) => held(&it),
        Wire::Ended(_) => Reported::new("ended"),
        Wire::Released(_) => Reported::new("released"),
        Wire::Renewed(it) if it.ttl_ms == [0] => Reported::new("gone"),
        Wire::Renewed(it) => Reported::new("renewed").with("ttl_ms", it.ttl_ms[0]),
        Wire::LeaseGranted(it) => {
            Reported { lease: Some((it.lease, it.created)), ..Reported::new("granted") }
        }
        Wire::Revoked(_) => Reported::new("revoked"),
        Wire::Left(_) => Reported::new("left"),
        Wire::Stopped(_) => Reported::new("stopped"),
        Wire::Downgraded(it) => {
            Reported { grants: vec![(String::new(), it.token)], ..Reported::new("downgraded") }
        }
        Wire::HandedOn(_) => Reported::new("handed_on"),
        Wire::Progressed(it) => Reported::new("progressed").with("due", it.left_ms.is_some()),
        Wire::Updated(it) => Reported::new("updated").with("version", it.version),
        Wire::Forced(it) => Reported::new("forced").with("cools", it.left_ms > 0),
        Wire::Drained(_) => Reported::new("drained"),
        Wire::Resized(_) => Reported::new("resized"),
        Wire::Undrained(it) => Reported::new("undrained").with("existed", it.existed),
        Wire::Put(it) => Reported::new("put").with("version", it.version),
        Wire::Deleted(it) => Reported::new("deleted").with("existed", it.existed),
        Wire::Lease(it) => {
            let view = it.lease.unwrap_or_default();
            Reported::new("lease")
                .with("client", &view.client)
                .with("holds", view.holds.len())
                .with("waits", view.waits.len())
                .with("keys", view.keys.len())
        }
        Wire::Lock(it) => {
            let view = it.lock.unwrap_or_default();
            Reported::new("lock").with("holders", view.holders.len()).with("waiting", view.waiting)
        }
        Wire::Key(it) => match it.kv {
            Some(kv) => Reported::new("key").with("value", String::from_utf8_lossy(&kv.value)),
            None => Reported::new("nothing"),
        },
        Wire::Explained(it) => Reported::new("explained")
            .with("holders", it.lock.map_or(0, |lock| lock.holders.len()))
            .with("ahead", it.ahead.len())
            .with("drained", it.drained.is_some()),
    };
    Some(Ok(Reported { revision, ..told }))
}

fn held(it: &v1::AcquireResponse) -> Reported {
    let mut told = Reported::new("held");
    if let Some(slot) = it.slot {
        told = told.with("slot", slot);
    }
    told.grants = it.locks.iter().map(|grant| (grant.lock.clone(), grant.token)).collect();
    if told.grants.is_empty() {
        told.grants.push((String::new(), it.token));
    }
    told.lease = it.lease.as_ref().map(|lease| (lease.lease, lease.created));
    told
}
