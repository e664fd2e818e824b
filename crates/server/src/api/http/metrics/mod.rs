//! Serves the metrics of a member for Prometheus.
//!
//! `metrics/` and `node_metrics.rs` count events where they happen; gauges are read when the metrics are requested.

mod labels;
mod resources;
mod walk;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tenure_raft::{MemberId, ReplicaStatus};
use tenure_types::{Revision, Verb};
use tenure_wire::Failure;
use tokio::sync::Mutex;

use super::Http;
use super::answer::HttpResult;
use crate::dispatch::Dispatch;
use crate::metrics::RequestClass;
use tenure_node::KnownLeader;

const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How long a request for metrics waits for the event loop.
const LOOP: Duration = Duration::from_secs(2);

type Number = Gauge<u64, AtomicU64>;

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, EncodeLabelSet)]
struct HeldLabels {
    prefix: String,
    mode: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfMember {
    member: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfPrincipal {
    principal: String,
}

/// The most principals whose requests are shown one by one.
const PRINCIPALS_MAX: usize = 20;

/// All metrics of a member.
pub(super) struct Metrics {
    shown: Mutex<MetricsReading>,
}

/// The gauges that are read at each request.
struct MetricsReading {
    registry: Registry,
    held: Family<HeldLabels, Number>,
    waiters: Family<HeldLabels, Number>,
    leader: Family<OfMember, Number>,
    member_lag: Family<OfMember, Number>,
    leases: Number,
    state_bytes: Number,
    revision: Number,
    apply_lag: Number,
    fsyncs: Counter,
    fsync_p99_us: Number,
    disk_free_bytes: Number,
    disk_short: Number,
    data_bytes: Number,
    in_flight: Number,
    watches: Number,
    watch_lag: Number,
    slow: Counter,
    silent: Number,
    audit_waits: Number,
    principals: Family<OfPrincipal, Counter>,
    resources: resources::Resources,
}

impl Metrics {
    /// The metrics of a member; counts changes of the leader from now on.
    pub(super) fn new(dispatch: &Dispatch) -> Self {
        let mut registry = Registry::with_prefix("tenure");
        let member = dispatch.member();
        dispatch.request_metrics().register(&mut registry);
        member.lock_metrics().register(&mut registry);
        member.meters().register(&mut registry);
        member.audit().register(&mut registry);
        member.archive().register(&mut registry);
        let leader_changes = Counter::default();
        let help = "How often another member, or none, came to lead";
        registry.register("leader_changes", help, leader_changes.clone());
        dispatch.runtime().spawn(count_leaders(member.lead(), leader_changes));
        Self { shown: Mutex::new(MetricsReading::new(registry)) }
    }
}

async fn count_leaders(mut lead: tokio::sync::watch::Receiver<KnownLeader>, changes: Counter) {
    let mut last = lead.borrow_and_update().by;
    while lead.changed().await.is_ok() {
        let now = lead.borrow_and_update().by;
        if now != last {
            changes.inc();
            last = now;
        }
    }
}

impl MetricsReading {
    fn new(mut registry: Registry) -> Self {
        let shown = Self {
            registry: Registry::default(),
            held: Family::default(),
            waiters: Family::default(),
            leader: Family::default(),
            member_lag: Family::default(),
            leases: Number::default(),
            state_bytes: Number::default(),
            revision: Number::default(),
            apply_lag: Number::default(),
            fsyncs: Counter::default(),
            fsync_p99_us: Number::default(),
            disk_free_bytes: Number::default(),
            disk_short: Number::default(),
            data_bytes: Number::default(),
            in_flight: Number::default(),
            watches: Number::default(),
            watch_lag: Number::default(),
            slow: Counter::default(),
            silent: Number::default(),
            audit_waits: Number::default(),
            principals: Family::default(),
            resources: resources::Resources::default(),
        };
        let to = &mut registry;
        to.register(
            "locks_held",
            "Grants in force, by the lock's first segment",
            shown.held.clone(),
        );
        let help = "Places in queues, by the lock's first segment and how they ask";
        to.register("waiters", help, shown.waiters.clone());
        to.register("leader", "Who leads, as this member knows it", shown.leader.clone());
        let help = "Entries that a member is behind the leader that is asked";
        to.register("member_lag_entries", help, shown.member_lag.clone());
        to.register("leases", "Leases", shown.leases.clone());
        to.register("state_bytes", "Weight of the state", shown.state_bytes.clone());
        to.register("revision", "The newest revision here", shown.revision.clone());
        let help = "Entries agreed on and not applied here yet";
        to.register("apply_lag_entries", help, shown.apply_lag.clone());
        to.register("fsyncs", "How often the log was made durable", shown.fsyncs.clone());
        let help = "What 99 of 100 recent syncs of the log took at most, in microseconds";
        to.register("fsync_p99_us", help, shown.fsync_p99_us.clone());
        to.register("disk_free_bytes", "Bytes free on the disk", shown.disk_free_bytes.clone());
        let help = "1 while the disk is so full that the state may not grow";
        to.register("disk_short", help, shown.disk_short.clone());
        let help = "Bytes of the log, the snapshots and the reserve";
        to.register("data_bytes", help, shown.data_bytes.clone());
        to.register("commands_in_flight", "Commands on their way", shown.in_flight.clone());
        to.register("watches", "Watches of this member", shown.watches.clone());
        let help = "Revisions that the slowest watch is behind";
        to.register("watch_lag_revisions", help, shown.watch_lag.clone());
        to.register("watches_too_slow", "Watches that were ended as too slow", shown.slow.clone());
        let help = "1 if the member did not answer in time, so that what it holds is as of before";
        to.register("silent", help, shown.silent.clone());
        let help = "How long the oldest audit record has waited to be on disk";
        to.register("audit_waiting_seconds", help, shown.audit_waits.clone());
        let help =
            "Requests of the principals that made the most, and of callers without a principal";
        to.register("principal_requests", help, shown.principals.clone());
        shown.resources.register(to);
        Self { registry, ..shown }
    }
}

/// What this member measures, for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "health", operation_id = "show_metrics",
    responses((status = 200, description = "The metrics, as text.", body = String,
        content_type = "application/openmetrics-text")),
)]
pub(super) async fn show(State(http): State<Http>) -> HttpResult {
    // One request at a time: each writes its values into the same cells.
    let shown = http.metrics.shown.lock().await;
    fill(&shown, &http).await;
    let mut text = String::new();
    if encode(&mut text, &shown.registry).is_err() {
        return Err(Failure::Internal.into());
    }
    // The health listener has no credentials: once identity is enabled, its callers see no names of locks.
    if !http.dispatch.member().identity().may(&http.who(), Verb::Operate, "") {
        text = labels::without_names(&text);
    }
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    Ok(response)
}

/// The values read from the event loop.
struct LoopReading {
    status: ReplicaStatus,
    members: BTreeSet<MemberId>,
    leases: u64,
    state_bytes: u64,
    revision: Revision,
}

async fn fill(shown: &MetricsReading, http: &Http) {
    shown.in_flight.set(http.dispatch.in_flight());
    shown.resources.fill(http.dispatch.member());
    shown.principals.clear();
    for (principal, requests) in http.dispatch.principals().busiest(PRINCIPALS_MAX) {
        shown.principals.get_or_create(&OfPrincipal { principal }).inc_by(requests);
    }
    let own = http.dispatch.member().metrics();
    shown.fsyncs.inc_by(own.syncs.saturating_sub(shown.fsyncs.get()));
    shown.fsync_p99_us.set(own.sync_p99_us);
    shown.disk_free_bytes.set(own.disk_free_bytes);
    shown.disk_short.set(u64::from(own.disk_short));
    shown.data_bytes.set(own.data_bytes);
    let member = http.dispatch.member();
    let audit_waits_us = member.audit().oldest_waits_us(crate::os::now_us());
    shown.audit_waits.set(audit_waits_us / 1_000_000);
    let metrics = http.dispatch.hub().metrics();
    shown.watches.set(metrics.watches as u64);
    shown.watch_lag.set(metrics.lag_worst);
    shown.slow.inc_by(metrics.slow.saturating_sub(shown.slow.get()));
    http.dispatch.member().lock_metrics().catch_up();
    // An event loop that waits for its disk does not answer, and that is when the other metrics matter most.
    match tokio::time::timeout(LOOP, read_loop(http)).await {
        Ok(Ok((read, walked))) => shown.set(read, walked),
        Ok(Err(_)) | Err(_) => {
            shown.silent.set(1);
        }
    }
}

async fn read_loop(http: &Http) -> Result<(LoopReading, walk::Walked), super::HttpError> {
    let read = http.dispatch.inspect(|replica| {
        let machine = replica.machine();
        LoopReading {
            status: replica.status(),
            members: replica.members().all().into_iter().collect(),
            leases: machine.stats().leases,
            state_bytes: machine.state_bytes(),
            revision: machine.revision(),
        }
    });
    Ok((read.await?, walk::walk(http).await?))
}

impl MetricsReading {
    fn set(&self, read: LoopReading, walked: walk::Walked) {
        let LoopReading { status, members, leases, state_bytes, revision } = read;
        self.silent.set(0);
        self.leases.set(leases);
        self.state_bytes.set(state_bytes);
        self.revision.set(revision.0);
        self.apply_lag.set(status.committed.saturating_sub(status.applied.index));
        self.leader.clear();
        self.member_lag.clear();
        for id in members {
            let member = OfMember { member: id.to_string() };
            self.leader.get_or_create(&member).set(u64::from(status.leader == Some(id)));
            if let Some(matched) = status.matched.get(&id).filter(|_| status.leading) {
                let behind = status.last.index.saturating_sub(*matched);
                self.member_lag.get_or_create(&member).set(behind);
            }
        }
        self.held.clear();
        self.waiters.clear();
        for (held, count) in walked.held {
            self.held.get_or_create(&held).set(count);
        }
        for (waiting, count) in walked.waiters {
            self.waiters.get_or_create(&waiting).set(count);
        }
    }
}

/// The class of a request, for the metrics.
pub(super) fn class(verb: &Method, path: &str) -> RequestClass {
    let mut parts = path.strip_prefix("/v1/").unwrap_or_default().splitn(3, '/');
    let resource = parts.next().unwrap_or_default();
    let more = parts.next() == Some("renew") || parts.next().is_some();
    match (resource, verb) {
        ("watch", _) => RequestClass::Watch,
        (_, &Method::GET | &Method::HEAD) | ("tickets", _) => RequestClass::Read,
        ("leases", &Method::POST) if more => RequestClass::Renew,
        ("leases", &Method::POST) => RequestClass::Grant,
        ("leases", _) => RequestClass::Revoke,
        ("locks" | "elections", &Method::POST) => RequestClass::Acquire,
        ("locks" | "elections", &Method::DELETE) => RequestClass::Release,
        ("locks" | "elections", _) => RequestClass::Update,
        ("force", _) => RequestClass::Force,
        ("keys", &Method::DELETE) => RequestClass::Delete,
        ("keys", _) => RequestClass::Put,
        _ => RequestClass::Admin,
    }
}

#[cfg(test)]
mod tests {
    use tenure_store::LogId;
    use tenure_types::Term;

    use super::*;

    /// Committed entries are applied in the same turn, so a test from outside can hardly observe a lag.
    #[test]
    fn entries_that_wait_to_be_applied_are_shown() {
        let shown = MetricsReading::new(Registry::default());
        let at = |index| LogId { index, term: 1 };
        let lag = |applied: u64| {
            let status = ReplicaStatus {
                term: Term(1),
                leader: None,
                leading: false,
                serving: false,
                applied: at(applied),
                committed: 12,
                last: at(12),
                base: at(0),
                unsynced: 0,
                asking: false,
                cut: None,
                dropped: Default::default(),
                matched: std::collections::BTreeMap::new(),
                silent_us: std::collections::BTreeMap::new(),
                settled: true,
            };
            let (members, revision) = (BTreeSet::new(), Revision(1));
            let read = LoopReading { status, members, leases: 0, state_bytes: 0, revision };
            shown.set(read, walk::Walked::default());
            let mut text = String::new();
            encode(&mut text, &shown.registry).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("apply_lag_entries "));
            line.unwrap().parse::<u64>().unwrap()
        };
        assert_eq!([lag(7), lag(12)], [5, 0]);
    }

    #[test]
    fn requests_are_counted_by_what_they_are_about() {
        assert_eq!(class(&Method::POST, "/v1/leases"), RequestClass::Grant);
        assert_eq!(class(&Method::POST, "/v1/leases/7/renew"), RequestClass::Renew);
        assert_eq!(class(&Method::POST, "/v1/leases/renew"), RequestClass::Renew);
        assert_eq!(class(&Method::POST, "/v1/locks/a/b"), RequestClass::Acquire);
        assert_eq!(class(&Method::DELETE, "/v1/locks/a"), RequestClass::Release);
        assert_eq!(class(&Method::GET, "/v1/locks/a"), RequestClass::Read);
        assert_eq!(class(&Method::GET, "/v1/watch"), RequestClass::Watch);
        assert_eq!(class(&Method::PUT, "/v1/keys/a"), RequestClass::Put);
        assert_eq!(class(&Method::PATCH, "/v1/limits"), RequestClass::Admin);
    }
}
