//! Counts and times requests by API and command, and counts refusals by reason.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use tenure_wire::v1::request::Command;
use tenure_wire::{reason, v1};

use super::{Histogram, Scale};
use crate::audit::{AuditLog, AuditOutcome, AuditRecord};
use crate::dispatch::Caller;
use crate::log::Limiter;

/// The API that a request came through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Api {
    /// Single gRPC calls.
    Grpc,
    /// HTTP/JSON.
    Http,
    /// A session over gRPC.
    Session,
    /// A session in JSON, over a WebSocket.
    Ws,
    /// The plain lock protocol.
    LockSocket,
}

const APIS: [(Api, &str); 5] = [
    (Api::Grpc, "grpc"),
    (Api::Http, "http"),
    (Api::Session, "session"),
    (Api::Ws, "ws"),
    (Api::LockSocket, "lock_socket"),
];

/// The class of a request, for the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestClass {
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

const CLASSES: [(RequestClass, &str); 12] = [
    (RequestClass::Grant, "grant"),
    (RequestClass::Renew, "renew"),
    (RequestClass::Revoke, "revoke"),
    (RequestClass::Acquire, "acquire"),
    (RequestClass::Release, "release"),
    (RequestClass::Force, "force"),
    (RequestClass::Update, "update"),
    (RequestClass::Put, "put"),
    (RequestClass::Delete, "delete"),
    (RequestClass::Watch, "watch"),
    (RequestClass::Read, "read"),
    (RequestClass::Admin, "admin"),
];

impl Api {
    /// Its name in metrics and traces.
    pub(crate) fn name(self) -> &'static str {
        APIS[self as usize].1
    }
}

impl RequestClass {
    /// Its name in metrics and traces.
    pub(crate) fn name(self) -> &'static str {
        CLASSES[self as usize].1
    }

    /// The class of a session's request.
    pub(crate) fn of_request(request: &v1::Request) -> Self {
        match &request.command {
            Some(Command::GrantLease(_)) => RequestClass::Grant,
            Some(Command::Renew(_)) => RequestClass::Renew,
            Some(Command::Revoke(_)) => RequestClass::Revoke,
            Some(Command::Acquire(_)) => RequestClass::Acquire,
            Some(Command::Release(_) | Command::Leave(_) | Command::HandOn(_)) => {
                RequestClass::Release
            }
            Some(Command::Force(_)) => RequestClass::Force,
            Some(Command::Drain(_) | Command::Undrain(_) | Command::Resize(_)) => {
                RequestClass::Admin
            }
            Some(
                Command::Update(_)
                | Command::Downgrade(_)
                | Command::Progress(_)
                | Command::Stopped(_),
            ) => RequestClass::Update,
            Some(Command::Put(_)) => RequestClass::Put,
            Some(Command::Delete(_)) => RequestClass::Delete,
            Some(
                Command::GetLease(_)
                | Command::GetLock(_)
                | Command::GetKey(_)
                | Command::Explain(_),
            )
            | None => RequestClass::Read,
        }
    }

    /// The class of a gRPC call; none for streams whose requests are counted one by one, or not at all.
    pub(crate) fn of_call(path: &str) -> Option<Self> {
        let (service, method) = path.strip_prefix("/tenure.v1.")?.split_once('/')?;
        Some(match (service, method) {
            ("SessionService", _) | (_, "LeaseKeepAlive") => return None,
            ("ClusterService" | "MaintenanceService" | "AccessService", _) | (_, "RotateKey") => {
                RequestClass::Admin
            }
            (_, "Watch" | "Observe") => RequestClass::Watch,
            (_, "LeaseGrant") => RequestClass::Grant,
            (_, "LeaseRevoke" | "Revoke") => RequestClass::Revoke,
            (_, "Lock" | "TryLock" | "Acquire" | "Campaign") => RequestClass::Acquire,
            (_, "Unlock" | "Release" | "Resign" | "Leave" | "HandOn") => RequestClass::Release,
            (_, "Drain" | "Undrain" | "Resize") => RequestClass::Admin,
            (_, "Force") => RequestClass::Force,
            (_, "Update" | "Downgrade" | "Progress" | "Stopped" | "Proclaim") => {
                RequestClass::Update
            }
            (_, "Put") => RequestClass::Put,
            (_, "Delete") => RequestClass::Delete,
            _ => RequestClass::Read,
        })
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfRequest {
    api: &'static str,
    command: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfRefusal {
    reason: &'static str,
    api: &'static str,
}

/// Requests by API. A cell is created when it is first needed, and found without a lookup from then on.
pub(crate) struct RequestMetrics {
    cells: [[OnceLock<Histogram>; CLASSES.len()]; APIS.len()],
    requests: Family<OfRequest, Histogram, fn() -> Histogram>,
    refusals: Family<OfRefusal, Counter>,
    /// Requests that take at least this long are logged; `None` logs none.
    slow: OnceLock<Option<Duration>>,
    slow_requests: Counter,
    slow_lines: Limiter,
    audit: OnceLock<Arc<AuditLog>>,
}

/// The reasons of refusals that are recorded as denied: the caller may not do what it asked for.
const DENIED: [&str; 4] = ["FORBIDDEN", "PERMISSION_DENIED", "UNAUTHENTICATED", "HOST_NOT_ALLOWED"];

impl Default for RequestMetrics {
    fn default() -> Self {
        Self {
            cells: APIS.map(|_| CLASSES.map(|_| OnceLock::new())),
            requests: Family::new_with_constructor(|| Histogram::new(Scale::QUICK)),
            refusals: Family::default(),
            slow: OnceLock::new(),
            slow_requests: Counter::default(),
            slow_lines: Limiter::default(),
            audit: OnceLock::new(),
        }
    }
}

/// The most characters of a denied call that are recorded: the longest name and the path around it.
const CALL_CHARS_MAX: usize = 640;

impl RequestMetrics {
    /// Registers the metrics.
    pub(crate) fn register(&self, to: &mut Registry) {
        let help = "From a request to the first of its answer";
        to.register_with_unit("request", help, Unit::Seconds, self.requests.clone());
        to.register("refusals", "Answers that were not success", self.refusals.clone());
        let help = "Requests that took longer than is logged as slow; waits for locks are left out";
        to.register("slow_requests", help, self.slow_requests.clone());
    }

    /// Logs requests that take at least `slow`, and records denied ones, from now on.
    pub(crate) fn watch(&self, slow: Option<Duration>, audit: Arc<AuditLog>) {
        let _ = self.slow.set(slow);
        let _ = self.audit.set(audit);
    }

    /// Records the duration of an answered request, whatever the response.
    pub(crate) fn served(&self, api: Api, class: RequestClass, took_us: u64) {
        let (at_api, at_class) = (api as usize, class as usize);
        let cell = self.cells[at_api][at_class].get_or_init(|| {
            let of = OfRequest { api: APIS[at_api].1, command: CLASSES[at_class].1 };
            self.requests.get_or_create_owned(&of)
        });
        cell.observe(took_us);
        // An acquire may wait for its lock, and a watch for its first event, as long as the caller likes.
        if let Some(slow) = self.slow.get().copied().flatten()
            && u128::from(took_us) >= slow.as_micros()
            && !matches!(class, RequestClass::Acquire | RequestClass::Watch)
        {
            self.slow_requests.inc();
            let (api, command) = (APIS[at_api].1, CLASSES[at_class].1);
            let message = "slow request";
            if let Some(pass) = self.slow_lines.pass(message, api, command) {
                let (took_ms, suppressed) = (took_us / 1_000, pass.suppressed);
                let who = Caller::principal();
                let principal = (!who.name().is_empty()).then(|| who.name());
                tracing::warn!(api, command, took_ms, principal, suppressed, "{message}");
            }
        }
    }

    /// Counts a response other than success.
    pub(crate) fn refused(&self, api: Api, reason: &str) {
        self.refused_from(api, reason, None, Caller::address());
    }

    /// Counts a response other than success to a call: its method and path, or its full name.
    pub(crate) fn refused_call(&self, api: Api, reason: &str, call: &str) {
        self.refused_from(api, reason, Some(call), Caller::address());
    }

    /// Counts a response other than success to a caller at this address, if it is known.
    pub(crate) fn refused_from(
        &self,
        api: Api,
        reason: &str,
        call: Option<&str>,
        from: Option<IpAddr>,
    ) {
        let Some(row) = reason::row(reason) else { return };
        let refusal = OfRefusal { reason: row.reason, api: APIS[api as usize].1 };
        self.refusals.get_or_create(&refusal).inc();
        if DENIED.contains(&row.reason)
            && let Some(audit) = self.audit.get()
        {
            let principal = Caller::principal();
            let Some(left_out) = audit.pass_denied(from, principal.name()) else { return };
            let record = AuditRecord::new("denied", AuditOutcome::Refused(row.reason));
            let name = principal.known();
            let record = record.with_some("who", name).principal(name).from(from);
            let record = record.with("api", refusal.api);
            let record = record.with_some("left_out", (left_out > 0).then_some(left_out));
            audit.record(&record.with_some("target", call.map(shortened)));
        }
    }
}

/// A call as it is recorded. A path is as long as its sender likes; a mark shows where it was cut.
fn shortened(call: &str) -> String {
    match call.char_indices().nth(CALL_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &call[..end]),
        None => call.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denied_call_is_recorded_whole_or_with_a_mark_where_it_was_cut() {
        let (metrics, audit) = (RequestMetrics::default(), Arc::new(AuditLog::default()));
        metrics.watch(None, audit.clone());
        let target = |call: Option<&str>| {
            metrics.refused_from(Api::Http, "PERMISSION_DENIED", call, None);
            let record: serde_json::Value = serde_json::from_str(&audit.recent(1)[0]).unwrap();
            assert!(record.get("who").is_none() && record.get("principal").is_none(), "{record}");
            record.get("target").map(|it| it.as_str().unwrap().to_owned())
        };
        assert_eq!(target(None), None);
        assert_eq!(target(Some("GET /")).as_deref(), Some("GET /"));
        let longest = "é".repeat(CALL_CHARS_MAX);
        assert_eq!(target(Some(&longest)).as_deref(), Some(&*longest));
        let cut = target(Some(&(longest.clone() + "/more"))).unwrap();
        assert_eq!(cut, longest + "…");
    }

    #[test]
    fn apis_and_classes_stand_where_their_numbers_say() {
        for (at, (api, _)) in APIS.iter().enumerate() {
            assert_eq!(*api as usize, at);
        }
        for (at, (class, _)) in CLASSES.iter().enumerate() {
            assert_eq!(*class as usize, at);
        }
    }

    #[test]
    fn calls_are_counted_by_what_they_are_about() {
        let of = |path| RequestClass::of_call(path);
        assert_eq!(of("/tenure.v1.LockService/TryLock"), Some(RequestClass::Acquire));
        assert_eq!(of("/tenure.v1.LockService/Unlock"), Some(RequestClass::Release));
        assert_eq!(of("/tenure.v1.LockService/LeaseGrant"), Some(RequestClass::Grant));
        assert_eq!(of("/tenure.v1.ClusterService/Leave"), Some(RequestClass::Admin));
        assert_eq!(of("/tenure.v1.SessionService/Open"), None);
        assert_eq!(of("/grpc.health.v1.Health/Check"), None);
    }
}
