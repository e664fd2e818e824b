//! What can be measured?
//!
//! What happens often is counted in cells that are found without a lookup; what is true at a moment is read
//! when somebody asks.

use std::collections::BTreeMap;
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
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tenure_core::Machine;
use tenure_types::Mode;
use tenure_wire::Failure;
use tokio::sync::Mutex;

use super::Http;
use super::answer::{Answered, Reason};
use crate::edge::{Edge, Fresh, WITHIN};
use crate::member::Lead;

const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// First segments of names that are told apart; the rest is `other`.
const PREFIXES_MAX: usize = 100;
const OTHER: &str = "other";
/// Locks that are looked at in one go, and for one answer; what is beyond is `other`.
const PAGE: usize = 1_000;
const PAGES_MAX: usize = 100;

/// So long the loop may take to tell what it knows.
const LOOP_WITHIN: Duration = Duration::from_secs(1);

type Number = Gauge<u64, AtomicU64>;

/// What a request was about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Grant,
    Renew,
    Revoke,
    Acquire,
    Release,
    Force,
    Update,
    Put,
    Delete,
    Watch,
    Read,
    Admin,
}

const CLASSES: [(Class, &str); 12] = [
    (Class::Grant, "grant"),
    (Class::Renew, "renew"),
    (Class::Revoke, "revoke"),
    (Class::Acquire, "acquire"),
    (Class::Release, "release"),
    (Class::Force, "force"),
    (Class::Update, "update"),
    (Class::Put, "put"),
    (Class::Delete, "delete"),
    (Class::Watch, "watch"),
    (Class::Read, "read"),
    (Class::Admin, "admin"),
];

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Asked {
    door: &'static str,
    command: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Refusal {
    reason: String,
    door: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, EncodeLabelSet)]
struct Held {
    prefix: String,
    mode: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Prefix {
    prefix: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfMember {
    member: String,
}

/// Everything that is measured.
pub(super) struct Metrics {
    requests: [Histogram; CLASSES.len()],
    refusals: Family<Refusal, Counter>,
    shown: Mutex<Shown>,
}

/// What is read when somebody asks.
struct Shown {
    registry: Registry,
    held: Family<Held, Number>,
    waiters: Family<Prefix, Number>,
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
    loop_answers: Number,
    watches: Number,
    watch_lag: Number,
    slow: Counter,
}

/// A histogram from 100 µs to some 50 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 20))
}

impl Metrics {
    /// The metrics of a member; changes of the leader are counted from now on.
    pub(super) fn new(edge: &Edge) -> Self {
        let mut registry = Registry::with_prefix("tenure");
        let family = Family::<Asked, Histogram>::new_with_constructor(seconds);
        let cell = |(_, command)| family.get_or_create_owned(&Asked { door: "http", command });
        let requests = CLASSES.map(cell);
        let help = "From the head of a request to the head of its answer";
        registry.register_with_unit("request", help, Unit::Seconds, family);
        let refusals = Family::default();
        registry.register("refusals", "Answers that were not success", refusals.clone());
        let leader_changes = Counter::default();
        let help = "How often another member, or none, came to lead";
        registry.register("leader_changes", help, leader_changes.clone());
        edge.runtime().spawn(count_leaders(edge.member().lead(), leader_changes));
        Self { requests, refusals, shown: Mutex::new(Shown::new(registry)) }
    }

    /// Counts a request.
    pub(super) fn served(&self, class: Class, took_us: u64, response: &Response) {
        #[expect(clippy::cast_precision_loss, reason = "no request takes 2^53 microseconds")]
        self.requests[class as usize].observe(took_us as f64 / 1e6);
        if let Some(Reason(reason)) = response.extensions().get() {
            self.refusals.get_or_create(&Refusal { reason: reason.clone(), door: "http" }).inc();
        }
    }
}

async fn count_leaders(mut lead: tokio::sync::watch::Receiver<Lead>, changes: Counter) {
    let mut last = lead.borrow_and_update().by;
    while lead.changed().await.is_ok() {
        let now = lead.borrow_and_update().by;
        if now != last {
            changes.inc();
            last = now;
        }
    }
}

impl Shown {
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
            loop_answers: Number::default(),
            watches: Number::default(),
            watch_lag: Number::default(),
            slow: Counter::default(),
        };
        let to = &mut registry;
        to.register(
            "locks_held",
            "Grants in force, by the lock's first segment",
            shown.held.clone(),
        );
        to.register(
            "waiters",
            "Places in queues, by the lock's first segment",
            shown.waiters.clone(),
        );
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
        let help =
            "1 if the loop told what it knows; 0 if its figures are older because it did not";
        to.register("loop_answers", help, shown.loop_answers.clone());
        to.register("watches", "Watches of this member", shown.watches.clone());
        let help = "Revisions that the slowest watch is behind";
        to.register("watch_lag_revisions", help, shown.watch_lag.clone());
        to.register("watches_too_slow", "Watches that were ended as too slow", shown.slow.clone());
        Self { registry, ..shown }
    }
}

/// What this member measures, for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "health",
    responses((status = 200, description = "The figures, as text.", body = String,
        content_type = "application/openmetrics-text")),
)]
pub(super) async fn show(State(http): State<Http>) -> Answered {
    // One at a time: each puts its own figures into the same cells.
    let shown = http.metrics.shown.lock().await;
    fill_own(&shown, &http);
    // A loop that waits for its disk is when somebody looks: they get what is known without it.
    let answers = tokio::time::timeout(LOOP_WITHIN, fill(&shown, &http)).await;
    shown.loop_answers.set(u64::from(matches!(answers, Ok(Ok(())))));
    let mut text = String::new();
    if encode(&mut text, &shown.registry).is_err() {
        return Err(Failure::Internal.into());
    }
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    Ok(response)
}

/// What is known without asking the loop.
fn fill_own(shown: &Shown, http: &Http) {
    shown.in_flight.set(http.edge.in_flight());
    let own = http.edge.member().figures();
    shown.fsyncs.inc_by(own.syncs.saturating_sub(shown.fsyncs.get()));
    shown.fsync_p99_us.set(own.sync_p99_us);
    shown.disk_free_bytes.set(own.disk_free_bytes);
    shown.disk_short.set(u64::from(own.disk_short));
    shown.data_bytes.set(own.data_bytes);
    let figures = http.edge.hub().figures();
    shown.watches.set(figures.watches as u64);
    shown.watch_lag.set(figures.lag_worst);
    shown.slow.inc_by(figures.slow.saturating_sub(shown.slow.get()));
}

/// What the loop knows.
async fn fill(shown: &Shown, http: &Http) -> Result<(), super::Refused> {
    let look = http.edge.look(|replica| {
        let machine = replica.machine();
        let leases = machine.stats().leases;
        (
            replica.status(),
            leases,
            machine.state_bytes(),
            machine.revision(),
            replica.members().all(),
        )
    });
    let (status, leases, state_bytes, revision, members) = look.await?;
    shown.leases.set(leases);
    shown.state_bytes.set(state_bytes);
    shown.revision.set(revision.0);
    shown.apply_lag.set(status.committed.saturating_sub(status.applied.index));
    shown.leader.clear();
    shown.member_lag.clear();
    for id in members {
        let member = OfMember { member: id.to_string() };
        shown.leader.get_or_create(&member).set(u64::from(status.leader == Some(id)));
        if let Some(matched) = status.matched.get(&id).filter(|_| status.leading) {
            let behind = status.last.index.saturating_sub(*matched);
            shown.member_lag.get_or_create(&member).set(behind);
        }
    }
    let walked = walk(http).await?;
    shown.held.clear();
    shown.waiters.clear();
    for (held, count) in walked.held {
        shown.held.get_or_create(&held).set(count);
    }
    for (prefix, count) in walked.waiters {
        shown.waiters.get_or_create(&Prefix { prefix }).set(count);
    }
    Ok(())
}

/// Counts by the first segment of a lock's name.
#[derive(Clone, Default)]
struct Walked {
    held: BTreeMap<Held, u64>,
    waiters: BTreeMap<String, u64>,
}

impl Walked {
    fn add(&mut self, machine: &Machine, after: Option<&str>) -> Option<String> {
        let locks = machine.locks("", after, PAGE);
        for lock in &locks {
            let first = lock.lock.as_str().split('/').next().unwrap_or_default();
            let known = self.waiters.contains_key(first) || self.waiters.len() < PREFIXES_MAX;
            let prefix = if known { first } else { OTHER };
            *self.waiters.entry(prefix.to_owned()).or_default() += lock.waiting;
            for holder in &lock.holders {
                let held = Held { prefix: prefix.to_owned(), mode: mode(holder.mode) };
                *self.held.entry(held).or_default() += 1;
            }
        }
        locks.last().filter(|_| locks.len() == PAGE).map(|last| last.lock.as_str().to_owned())
    }
}

/// Goes through the locks, page by page, so that the loop has time for others between them.
async fn walk(http: &Http) -> Result<Walked, super::Refused> {
    let mut walked = Walked::default();
    let mut after = None;
    for _ in 0..PAGES_MAX {
        let (so_far, from) = (walked.clone(), after.clone());
        let page = move |machine: &Machine| {
            let mut walked = so_far.clone();
            let next = walked.add(machine, from.as_deref());
            (walked, next)
        };
        let (_, (more, next)) = http.read(Fresh::Stale, WITHIN, page).await?;
        walked = more;
        match next {
            Some(next) => after = Some(next),
            None => return Ok(walked),
        }
    }
    // More locks than anybody would go through for a figure: the rest is known only as a sum.
    let sums = |machine: &Machine| (machine.stats().grants, machine.stats().places);
    let (_, (grants, places)) = http.read(Fresh::Stale, WITHIN, sums).await?;
    let rest = grants.saturating_sub(walked.held.values().sum());
    *walked.held.entry(Held { prefix: OTHER.to_owned(), mode: "any" }).or_default() += rest;
    let rest = places.saturating_sub(walked.waiters.values().sum());
    *walked.waiters.entry(OTHER.to_owned()).or_default() += rest;
    Ok(walked)
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Slot { .. } => "slot",
    }
}

/// What a request is about.
pub(super) fn class(verb: &Method, path: &str) -> Class {
    let mut parts = path.strip_prefix("/v1/").unwrap_or_default().splitn(3, '/');
    let resource = parts.next().unwrap_or_default();
    let more = parts.next() == Some("renew") || parts.next().is_some();
    match (resource, verb) {
        ("watch", _) => Class::Watch,
        (_, &Method::GET | &Method::HEAD) | ("tickets", _) => Class::Read,
        ("leases", &Method::POST) if more => Class::Renew,
        ("leases", &Method::POST) => Class::Grant,
        ("leases", _) => Class::Revoke,
        ("locks" | "elections", &Method::POST) => Class::Acquire,
        ("locks" | "elections", &Method::DELETE) => Class::Release,
        ("locks" | "elections", _) => Class::Update,
        ("force", _) => Class::Force,
        ("keys", &Method::DELETE) => Class::Delete,
        ("keys", _) => Class::Put,
        _ => Class::Admin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_stand_where_their_numbers_say() {
        for (at, (class, _)) in CLASSES.iter().enumerate() {
            assert_eq!(*class as usize, at);
        }
    }

    #[test]
    fn requests_are_counted_by_what_they_are_about() {
        assert_eq!(class(&Method::POST, "/v1/leases"), Class::Grant);
        assert_eq!(class(&Method::POST, "/v1/leases/7/renew"), Class::Renew);
        assert_eq!(class(&Method::POST, "/v1/leases/renew"), Class::Renew);
        assert_eq!(class(&Method::POST, "/v1/locks/a/b"), Class::Acquire);
        assert_eq!(class(&Method::DELETE, "/v1/locks/a"), Class::Release);
        assert_eq!(class(&Method::GET, "/v1/locks/a"), Class::Read);
        assert_eq!(class(&Method::GET, "/v1/watch"), Class::Watch);
        assert_eq!(class(&Method::PUT, "/v1/keys/a"), Class::Put);
        assert_eq!(class(&Method::PATCH, "/v1/limits"), Class::Admin);
    }
}
