//! Lists every call of every API with what it requires of its caller. This is the only such table.
//!
//! The code that serves a call decides: for commands `required` in core, for reads and watches the `ReadScope` and
//! `PrincipalAction` that the call passes to dispatch. The table is what users read, as
//! `docs/reference/permissions.md`. The tests compare it with the APIs, so that no call is missing.

use tenure_types::Verb;

use self::Requires::{
    AnyOf, Below, Cluster, Each, Explain, Known, KnownSoon, LeaseOrAll, Name, Nothing, OwnLease,
    OwnOrAdminister, OwnOrForce, ReadOrObserve, Resumes, Signs, Somewhere,
};
use self::Verb::{Acquire, Administer, Elect, Force, Keys, Observe, Operate, Read};

/// An API.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum CallApi {
    /// A gRPC method.
    Grpc,
    /// An HTTP route.
    Http,
    /// A request inside a session, over gRPC or a WebSocket.
    Session,
    /// A message of the lock socket.
    LockSocket,
}

/// What a call requires once identity is enabled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Requires {
    /// Not even credentials.
    Nothing,
    /// Credentials of an enabled principal.
    Known,
    /// The same, in the upgrade or in the first message.
    KnownSoon,
    /// Credentials of an enabled principal. Only its own leases are resumed.
    Resumes,
    /// The caller's own lease.
    OwnLease,
    /// The caller's own lease, or `force` for the cluster.
    OwnOrForce,
    /// About another principal than the caller: `administer` for the cluster.
    OwnOrAdminister,
    /// Of another's lease: `read` for the cluster.
    LeaseOrAll,
    /// One of these verbs, for some name.
    Somewhere(&'static [Verb]),
    /// This verb, for the name.
    Name(Verb),
    /// One of these verbs, for the name.
    AnyOf(&'static [Verb]),
    /// `acquire` for each lock, or `elect` for an election.
    Each,
    /// This verb, for some name below the prefix. The answer has what is permitted.
    Below(Verb),
    /// `read` for the lock, or a lease of the caller that holds it or waits for it.
    Explain,
    /// `read` for the name; to follow it, `observe`.
    ReadOrObserve,
    /// `sign` for the lock, and the caller's own lease.
    Signs,
    /// This verb, for the cluster.
    Cluster(Verb),
}

/// The verbs for which a lease is of use.
const LEASED: Requires = Somewhere(&[Acquire, Keys, Elect]);
/// The verbs for which a lock is held.
const HELD: Requires = AnyOf(&[Acquire, Elect]);

/// Every call: its API, its name there, and what it requires.
pub(crate) const CALLS: &[(CallApi, &str, Requires)] = &[
    (CallApi::Grpc, "AccessService/Can", OwnOrAdminister),
    (CallApi::Grpc, "AccessService/CreateApiKey", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/DeleteCertificateRule", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/DeleteIssuer", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/DeletePrincipal", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/DeleteRole", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/EnablePrincipal", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/GetPrincipal", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/ListApiKeys", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/ListCertificateRules", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/ListIssuers", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/ListPrincipals", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/ListRoles", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/PutCertificateRule", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/PutIssuer", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/PutPrincipal", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/PutRole", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/RevokeApiKey", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/RotateApiKey", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/SetDefaultQuotas", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/SetIdentity", Cluster(Administer)),
    (CallApi::Grpc, "AccessService/Status", Known),
    (CallApi::Grpc, "ClusterService/Add", Cluster(Operate)),
    (CallApi::Grpc, "ClusterService/CancelInvitation", Cluster(Operate)),
    (CallApi::Grpc, "ClusterService/Invite", Cluster(Operate)),
    (CallApi::Grpc, "ClusterService/Leave", Cluster(Operate)),
    (CallApi::Grpc, "ClusterService/ListInvitations", Cluster(Operate)),
    (CallApi::Grpc, "ClusterService/Members", Known),
    (CallApi::Grpc, "ClusterService/Promote", Cluster(Operate)),
    (CallApi::Grpc, "ClusterService/Remove", Cluster(Operate)),
    (CallApi::Grpc, "ClusterService/Status", Known),
    (CallApi::Grpc, "ClusterService/TransferLeadership", Cluster(Operate)),
    (CallApi::Grpc, "ElectionService/Campaign", Name(Elect)),
    (CallApi::Grpc, "ElectionService/Leader", Name(Read)),
    (CallApi::Grpc, "ElectionService/Observe", Name(Observe)),
    (CallApi::Grpc, "ElectionService/Proclaim", HELD),
    (CallApi::Grpc, "ElectionService/Resign", OwnLease),
    (CallApi::Grpc, "KeyService/Delete", Name(Keys)),
    (CallApi::Grpc, "KeyService/Get", Name(Read)),
    (CallApi::Grpc, "KeyService/List", Below(Read)),
    (CallApi::Grpc, "KeyService/Put", Name(Keys)),
    (CallApi::Grpc, "LeaseService/Get", LeaseOrAll),
    (CallApi::Grpc, "LeaseService/List", LeaseOrAll),
    (CallApi::Grpc, "LeaseService/Revoke", OwnOrForce),
    (CallApi::Grpc, "LockAdminService/Acquire", Each),
    (CallApi::Grpc, "LockAdminService/Downgrade", HELD),
    (CallApi::Grpc, "LockAdminService/Drain", Name(Operate)),
    (CallApi::Grpc, "LockAdminService/Explain", Explain),
    (CallApi::Grpc, "LockAdminService/Force", Name(Force)),
    (CallApi::Grpc, "LockAdminService/Get", Name(Read)),
    (CallApi::Grpc, "LockAdminService/HandOn", HELD),
    (CallApi::Grpc, "LockAdminService/History", Name(Read)),
    (CallApi::Grpc, "LockAdminService/Leave", OwnLease),
    (CallApi::Grpc, "LockAdminService/List", Below(Read)),
    (CallApi::Grpc, "LockAdminService/ListDrains", Known),
    (CallApi::Grpc, "LockAdminService/Progress", HELD),
    (CallApi::Grpc, "LockAdminService/Queue", Name(Read)),
    (CallApi::Grpc, "LockAdminService/Release", OwnLease),
    (CallApi::Grpc, "LockAdminService/Resize", Name(Operate)),
    (CallApi::Grpc, "LockAdminService/Stopped", OwnLease),
    (CallApi::Grpc, "LockAdminService/Undrain", Name(Operate)),
    (CallApi::Grpc, "LockAdminService/Update", HELD),
    (CallApi::Grpc, "LockService/LeaseGrant", LEASED),
    (CallApi::Grpc, "LockService/LeaseKeepAlive", LEASED),
    (CallApi::Grpc, "LockService/LeaseRevoke", OwnLease),
    (CallApi::Grpc, "LockService/Lock", Name(Acquire)),
    (CallApi::Grpc, "LockService/TryLock", Name(Acquire)),
    (CallApi::Grpc, "LockService/Unlock", OwnLease),
    (CallApi::Grpc, "LockService/Watch", Below(Observe)),
    (CallApi::Grpc, "MaintenanceService/Audit", Cluster(Administer)),
    (CallApi::Grpc, "MaintenanceService/Backup", Cluster(Operate)),
    (CallApi::Grpc, "MaintenanceService/Compact", Cluster(Operate)),
    (CallApi::Grpc, "MaintenanceService/Hash", Cluster(Operate)),
    (CallApi::Grpc, "MaintenanceService/RaiseLevel", Cluster(Operate)),
    (CallApi::Grpc, "MaintenanceService/SetLimits", Cluster(Operate)),
    (CallApi::Grpc, "SessionService/Open", Known),
    (CallApi::Grpc, "TicketService/Keys", Known),
    (CallApi::Grpc, "TicketService/RotateKey", Cluster(Operate)),
    (CallApi::Grpc, "TicketService/Sign", Signs),
    (CallApi::Http, "GET /.well-known/jwks.json", Nothing),
    (CallApi::Http, "GET /healthz", Nothing),
    (CallApi::Http, "GET /metrics", Cluster(Operate)),
    (CallApi::Http, "GET /openapi.json", Nothing),
    (CallApi::Http, "GET /readyz", Nothing),
    (CallApi::Http, "GET /v1/access", Known),
    (CallApi::Http, "GET /v1/access/can", OwnOrAdminister),
    (CallApi::Http, "GET /v1/access/certificate-rules", Cluster(Administer)),
    (CallApi::Http, "DELETE /v1/access/certificate-rules/{rule}", Cluster(Administer)),
    (CallApi::Http, "PUT /v1/access/certificate-rules/{rule}", Cluster(Administer)),
    (CallApi::Http, "PUT /v1/access/identity", Cluster(Administer)),
    (CallApi::Http, "GET /v1/access/issuers", Cluster(Administer)),
    (CallApi::Http, "DELETE /v1/access/issuers/{issuer}", Cluster(Administer)),
    (CallApi::Http, "PUT /v1/access/issuers/{issuer}", Cluster(Administer)),
    (CallApi::Http, "GET /v1/access/keys", Cluster(Administer)),
    (CallApi::Http, "DELETE /v1/access/keys/{key}", Cluster(Administer)),
    (CallApi::Http, "PUT /v1/access/keys/{key}", Cluster(Administer)),
    (CallApi::Http, "POST /v1/access/keys/{key}/rotate", Cluster(Administer)),
    (CallApi::Http, "GET /v1/access/principals", Cluster(Administer)),
    (CallApi::Http, "DELETE /v1/access/principals/{principal}", Cluster(Administer)),
    (CallApi::Http, "GET /v1/access/principals/{principal}", Cluster(Administer)),
    (CallApi::Http, "PATCH /v1/access/principals/{principal}", Cluster(Administer)),
    (CallApi::Http, "PUT /v1/access/principals/{principal}", Cluster(Administer)),
    (CallApi::Http, "PUT /v1/access/quotas", Cluster(Administer)),
    (CallApi::Http, "GET /v1/access/roles", Cluster(Administer)),
    (CallApi::Http, "DELETE /v1/access/roles/{role}", Cluster(Administer)),
    (CallApi::Http, "PUT /v1/access/roles/{role}", Cluster(Administer)),
    (CallApi::Http, "GET /v1/access/usage", Cluster(Administer)),
    (CallApi::Http, "GET /v1/audit", Cluster(Administer)),
    (CallApi::Http, "GET /v1/cluster", Known),
    (CallApi::Http, "GET /v1/cluster/invitations", Cluster(Operate)),
    (CallApi::Http, "POST /v1/cluster/invitations", Cluster(Operate)),
    (CallApi::Http, "DELETE /v1/cluster/invitations/{invitation}", Cluster(Operate)),
    (CallApi::Http, "POST /v1/cluster/keys/rotate", Cluster(Operate)),
    (CallApi::Http, "POST /v1/cluster/level", Cluster(Operate)),
    (CallApi::Http, "GET /v1/cluster/members", Known),
    (CallApi::Http, "POST /v1/cluster/members", Cluster(Operate)),
    (CallApi::Http, "DELETE /v1/cluster/members/{member}", Cluster(Operate)),
    (CallApi::Http, "POST /v1/cluster/members/{member}", Cluster(Operate)),
    (CallApi::Http, "GET /v1/console", Known),
    (CallApi::Http, "DELETE /v1/console/session", Known),
    (CallApi::Http, "POST /v1/console/session", Known),
    (CallApi::Http, "DELETE /v1/drains", Name(Operate)),
    (CallApi::Http, "GET /v1/drains", Known),
    (CallApi::Http, "POST /v1/drains", Name(Operate)),
    (CallApi::Http, "DELETE /v1/elections/{name}", OwnLease),
    (CallApi::Http, "GET /v1/elections/{name}", ReadOrObserve),
    (CallApi::Http, "POST /v1/elections/{name}", Name(Elect)),
    (CallApi::Http, "PUT /v1/elections/{name}", HELD),
    (CallApi::Http, "POST /v1/force", Name(Force)),
    (CallApi::Http, "GET /v1/history", Name(Read)),
    (CallApi::Http, "GET /v1/keys", Below(Read)),
    (CallApi::Http, "DELETE /v1/keys/{key}", Name(Keys)),
    (CallApi::Http, "GET /v1/keys/{key}", Name(Read)),
    (CallApi::Http, "PUT /v1/keys/{key}", Name(Keys)),
    (CallApi::Http, "GET /v1/leases", LeaseOrAll),
    (CallApi::Http, "POST /v1/leases", LEASED),
    (CallApi::Http, "POST /v1/leases/renew", LEASED),
    (CallApi::Http, "DELETE /v1/leases/{lease}", OwnOrForce),
    (CallApi::Http, "GET /v1/leases/{lease}", LeaseOrAll),
    (CallApi::Http, "POST /v1/leases/{lease}/renew", LEASED),
    (CallApi::Http, "GET /v1/limits", Known),
    (CallApi::Http, "PATCH /v1/limits", Cluster(Operate)),
    (CallApi::Http, "GET /v1/lock-socket", KnownSoon),
    (CallApi::Http, "GET /v1/locks", Below(Read)),
    (CallApi::Http, "POST /v1/locks", Each),
    (CallApi::Http, "DELETE /v1/locks/{lock}", OwnLease),
    (CallApi::Http, "GET /v1/locks/{lock}", Explain),
    (CallApi::Http, "PATCH /v1/locks/{lock}", HELD),
    (CallApi::Http, "POST /v1/locks/{lock}", Name(Acquire)),
    (CallApi::Http, "GET /v1/member", Known),
    (CallApi::Http, "GET /v1/overview", Below(Read)),
    (CallApi::Http, "DELETE /v1/semaphores/{lock}", Name(Operate)),
    (CallApi::Http, "PUT /v1/semaphores/{lock}", Name(Operate)),
    (CallApi::Http, "POST /v1/tickets", Signs),
    (CallApi::Http, "GET /v1/watch", Below(Observe)),
    (CallApi::Http, "GET /v1/ws", KnownSoon),
    (CallApi::Session, "acquire", Each),
    (CallApi::Session, "delete", Name(Keys)),
    (CallApi::Session, "downgrade", HELD),
    (CallApi::Session, "drain", Name(Operate)),
    (CallApi::Session, "explain", Explain),
    (CallApi::Session, "force", Name(Force)),
    (CallApi::Session, "get_key", Name(Read)),
    (CallApi::Session, "get_lease", LeaseOrAll),
    (CallApi::Session, "get_lock", Name(Read)),
    (CallApi::Session, "grant_lease", LEASED),
    (CallApi::Session, "hand_on", HELD),
    (CallApi::Session, "hello", Known),
    (CallApi::Session, "leave", OwnLease),
    (CallApi::Session, "progress", HELD),
    (CallApi::Session, "put", Name(Keys)),
    (CallApi::Session, "release", OwnLease),
    (CallApi::Session, "renew", LEASED),
    (CallApi::Session, "resume", Resumes),
    (CallApi::Session, "resize", Name(Operate)),
    (CallApi::Session, "revoke", OwnOrForce),
    (CallApi::Session, "stopped", OwnLease),
    (CallApi::Session, "undrain", Name(Operate)),
    (CallApi::Session, "update", HELD),
    (CallApi::LockSocket, "acquire", Name(Acquire)),
    (CallApi::LockSocket, "release", OwnLease),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    use prost::Message;
    use tenure_wire::FILE_DESCRIPTOR_SET;
    use tenure_wire::json::session;
    use utoipa::PartialSchema;

    use super::*;
    use crate::api::{http, request_filter, ws};

    /// The part of a set of file descriptors that names services and the requests of a session.
    #[derive(Message)]
    struct FileSet {
        #[prost(message, repeated, tag = "1")]
        files: Vec<File>,
    }

    #[derive(Message)]
    struct File {
        #[prost(message, repeated, tag = "4")]
        messages: Vec<Described>,
        #[prost(message, repeated, tag = "6")]
        services: Vec<Described>,
    }

    /// A message with its fields, or a service with its methods.
    #[derive(Message)]
    struct Described {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, repeated, tag = "2")]
        parts: Vec<Part>,
    }

    #[derive(Message)]
    struct Part {
        #[prost(string, tag = "1")]
        name: String,
        /// Of a field: the number of its `oneof`.
        #[prost(int32, optional, tag = "9")]
        oneof: Option<i32>,
    }

    fn listed(api: CallApi) -> BTreeSet<String> {
        let rows: Vec<_> = CALLS.iter().filter(|row| row.0 == api).map(|row| row.1).collect();
        let names: BTreeSet<String> = rows.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(names.len(), rows.len(), "a call of {api:?} is listed twice");
        names
    }

    #[test]
    fn every_grpc_method_is_listed() {
        let set = FileSet::decode(FILE_DESCRIPTOR_SET).unwrap();
        let services = set.files.iter().flat_map(|file| &file.services);
        let methods = services.flat_map(|service| {
            service.parts.iter().map(|method| format!("{}/{}", service.name, method.name))
        });
        assert_eq!(methods.collect::<BTreeSet<_>>(), listed(CallApi::Grpc));
    }

    #[test]
    fn every_http_route_is_listed() {
        // A description of HTTP routes has no WebSockets.
        let sockets = ws::PATHS.map(|path| format!("GET {path}"));
        let routes: BTreeSet<_> = http::described_routes().into_iter().chain(sockets).collect();
        assert_eq!(routes, listed(CallApi::Http));
    }

    #[test]
    fn every_request_of_a_session_is_listed() {
        let set = FileSet::decode(FILE_DESCRIPTOR_SET).unwrap();
        let mut messages = set.files.iter().flat_map(|file| &file.messages);
        let request = messages.find(|message| message.name == "Request").unwrap();
        let commands = request.parts.iter().filter(|field| field.oneof.is_some());
        let mut commands: BTreeSet<_> = commands.map(|field| field.name.clone()).collect();
        let schema = serde_json::to_value(session::Request::schema()).unwrap();
        let fields = schema["properties"].as_object().unwrap().keys().cloned();
        let of_all = ["id", "seq", "done", "deadline_ms", "idempotency_key", "traceparent"];
        let over_socket: BTreeSet<_> = fields.filter(|it| !of_all.contains(&&**it)).collect();
        assert_eq!(commands, over_socket, "gRPC and WebSockets have the same requests");
        // Beside requests, messages have parts that begin a session. Over gRPC the leases to resume are in the hello.
        let schema = serde_json::to_value(session::ClientMessage::schema()).unwrap();
        let parts = schema["properties"].as_object().unwrap().keys().cloned();
        commands.extend(parts.filter(|part| part != "requests"));
        assert_eq!(commands, listed(CallApi::Session));
    }

    #[test]
    fn calls_without_credentials_are_those_that_the_filter_lets_through() {
        for (api, call, requires) in CALLS {
            let path = match api {
                CallApi::Grpc => format!("/tenure.v1.{call}"),
                CallApi::Http => call.split_once(' ').unwrap().1.to_owned(),
                CallApi::Session | CallApi::LockSocket => continue,
            };
            let open = request_filter::is_open(&path);
            assert_eq!(open, *requires == Nothing, "{call}");
        }
    }

    impl Requires {
        fn text(self) -> String {
            let verbs = |verbs: &[Verb]| {
                let names: Vec<_> = verbs.iter().map(|verb| format!("`{}`", verb.name())).collect();
                names.join(" or ")
            };
            match self {
                Nothing => "nothing, not even credentials".to_owned(),
                Known => "a known principal".to_owned(),
                KnownSoon => "a known principal, by the upgrade or by the first message".to_owned(),
                Resumes => "a known principal; leases of others are left out".to_owned(),
                OwnLease => "the caller's own lease".to_owned(),
                OwnOrForce => "the caller's own lease, or `force` for the cluster".to_owned(),
                OwnOrAdminister => {
                    "nothing more about the caller; `administer` for the cluster about others"
                        .to_owned()
                }
                LeaseOrAll => "own leases; `read` for the cluster for all others".to_owned(),
                Somewhere(some) => format!("{} for some name", verbs(some)),
                Name(verb) => format!("`{}`", verb.name()),
                AnyOf(some) => verbs(some),
                Each => "`acquire` for each lock; for an election `elect`".to_owned(),
                Below(verb) => {
                    format!("`{}` for some name in question; the rest is left out", verb.name())
                }
                Explain => "`read`; an explanation also with the own lease".to_owned(),
                ReadOrObserve => "`read`; with `view=observe` `observe`".to_owned(),
                Signs => "`sign`, and the caller's own lease".to_owned(),
                Cluster(verb) => format!("`{}` for the cluster", verb.name()),
            }
        }
    }

    fn page() -> String {
        let mut page = INTRODUCTION.to_owned();
        for (api, title, column) in [
            (CallApi::Grpc, "gRPC", "method"),
            (CallApi::Http, "HTTP", "route"),
            (CallApi::Session, "Sessions, over gRPC and WebSockets", "request"),
            (CallApi::LockSocket, "The lock socket", "message"),
        ] {
            let _ = write!(page, "\n## {title}\n\n| {column} | requires |\n|---|---|\n");
            for (_, call, requires) in CALLS.iter().filter(|row| row.0 == api) {
                let _ = writeln!(page, "| `{call}` | {} |", requires.text());
            }
        }
        page
    }

    const INTRODUCTION: &str = "# Permissions

<!-- Printed from the table in the code: TENURE_FIX=1 cargo test -p tenure-server --lib calls -->

What each call of each API requires of its caller once identity is enabled. As long as it is not, every caller may make
every call, with two exceptions: only members write keys below `tenure/`, and calls that change the rules of access
require `administer` (`UNAUTHENTICATED` without credentials).

- A verb is required for the lock, key or election that the call names, unless the table says otherwise: a rule of one
  of the caller's roles must have the verb and a prefix with which the name begins.
- A request with a priority also requires, for each lock, a rule with the same verb that permits this priority, or
  `force`.
- *For the cluster*: the prefix of the rule must be empty.
- *The caller's own lease*: the lease of another principal is answered as if it did not exist. A lease from before
  identity was enabled has no owner, and every known principal that names it may use it.
- A caller without valid credentials gets `UNAUTHENTICATED`, one that lacks a verb `PERMISSION_DENIED` with the verb.
  If the verb was taken away while the command was on its way, the reason is `FORBIDDEN`.
- The health listener asks for no credentials. Its metrics then name no locks, its `/debug/audit` is refused, and the
  rest of its `/debug/…` is for callers on the same machine. The gRPC services for health and reflection need no
  credentials either.
";

    #[test]
    fn the_reference_is_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/permissions.md");
        if std::env::var_os("TENURE_FIX").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(kept == page(), "docs/reference/permissions.md is old: run with TENURE_FIX=1");
    }
}
