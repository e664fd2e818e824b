//! Runs a member with identity, the callers of the matrix, and what a row of it needs.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tenure_core::access::{AccessChange, MEMBER, NewCredential, NewPrincipal, NewRule};
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Request, RequestId};
use tenure_server::{MemberHandle, RunningServer, ServerSettings, os};
use tenure_types::{Quotas, Verb, VerbSet};
use tonic::transport::{Channel, Endpoint};

use super::callers::{self, CallerWay, Credentials, Signers};
use crate::alone::{self, Alone};
use crate::bounded::{DEADLINE, wait};
use crate::client::{Client, Reply};
use crate::support;

/// Stands in everything that the owner writes and that only a reader may learn: client names, metadata, values.
pub(super) const HIDDEN: &str = "hidden";

/// The verbs for names. The owner has them below `own/`, the caller with the wrong prefix below `other/`.
const FOR_NAMES: [Verb; 7] =
    [Verb::Read, Verb::Acquire, Verb::Keys, Verb::Elect, Verb::Observe, Verb::Sign, Verb::Force];

/// Changes the access rules, as a member does it.
pub(super) fn change(member: &MemberHandle, change: &AccessChange<'_>) {
    let mut bytes = Vec::new();
    let command = Command::SetAccess(change.clone());
    encode_request(&Request { principal: MEMBER, id: RequestId::None, command }, &mut bytes);
    let outcomes = member.submit(vec![Bytes::from(bytes)], Duration::ZERO, DEADLINE);
    assert!(outcomes[0].as_ref().unwrap().result.is_ok(), "{outcomes:?}");
}

/// Gives a principal a key. Returns the id and the header for it.
pub(super) fn key(member: &MemberHandle, principal: &str) -> (String, String) {
    let id = format!("{:016x}", os::random());
    let secret: String = (0..4).map(|_| format!("{:016x}", os::random())).collect();
    let hash = digest(&SHA256, secret.as_bytes()).as_ref().try_into().unwrap();
    let new = NewCredential { principal, id: &id, name: "", hash, expires_ms: None };
    change(member, &AccessChange::PutCredential(new));
    let bearer = format!("Bearer tenure_{id}_{secret}");
    (id, bearer)
}

/// Creates the principals `owner`, `twin` with the same role, `other` and `nil`, and enables identity.
pub(super) fn enable(member: &MemberHandle) {
    found(member);
    change(member, &AccessChange::SetIdentity { enabled: true });
}

/// Creates the principals.
pub(super) fn found(member: &MemberHandle) {
    let rule =
        |verbs: &[Verb], prefix| NewRule { verbs: VerbSet::from_verbs(verbs), prefix, priority: 0 };
    let own = vec![rule(&FOR_NAMES, "own/"), rule(&[Verb::Operate, Verb::Administer], "")];
    let other = vec![rule(&Verb::ALL, "other/")];
    for (name, rules) in [("owner", own), ("other", other)] {
        change(member, &AccessChange::PutRole { name, rules });
    }
    for (name, role) in [("owner", "owner"), ("twin", "owner"), ("other", "other")] {
        put_principal(member, name, vec![role]);
    }
    put_principal(member, "nil", Vec::new());
}

fn put_principal(member: &MemberHandle, name: &str, roles: Vec<&str>) {
    let quotas = Quotas::default();
    let new = NewPrincipal { name, enabled: true, roles, quotas };
    change(member, &AccessChange::PutPrincipal(new));
}

/// The columns of the matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Column {
    NoIdentity,
    /// A key that no principal has.
    UnknownKey,
    /// A key of the owner that was revoked.
    RevokedKey,
    /// A known principal without any role.
    NoRole,
    /// A known principal that has every verb, for other names.
    WrongPrefix,
    /// A known principal that has the owner's role, for calls about the owner's lease.
    OthersLease,
    Right,
}

impl Column {
    /// The right caller comes last: it succeeds only if the others have had no effect.
    pub(super) const ALL: [Self; 7] = [
        Self::NoIdentity,
        Self::UnknownKey,
        Self::RevokedKey,
        Self::NoRole,
        Self::WrongPrefix,
        Self::OthersLease,
        Self::Right,
    ];

    pub(super) fn is_known(self) -> bool {
        !matches!(self, Self::NoIdentity | Self::UnknownKey | Self::RevokedKey)
    }
}

/// A member with identity, and the credentials of each column.
pub(super) struct MatrixMember {
    pub(super) member: Alone,
    /// The other members, if it is a follower.
    others: Vec<RunningServer>,
    pub(super) http: Client,
    pub(super) credentials: Credentials,
    ways: Vec<(Column, CallerWay)>,
    /// A limit and its value.
    limit: (String, u64),
    /// The level in force.
    level: u32,
}

/// What exists for one row: a lease of the owner that holds a lock and leads an election, and a key.
pub(super) struct Row {
    pub(super) number: usize,
    pub(super) lease: i64,
    pub(super) created: i64,
    pub(super) token: u64,
    pub(super) leadership: u64,
    /// The id of a key of the row's own principal.
    pub(super) key: String,
    pub(super) limit: (String, u64),
    pub(super) level: u32,
}

impl Row {
    /// A name that only this row uses.
    pub(super) fn name(&self, what: &str) -> String {
        format!("own/{}/{what}", self.number)
    }

    /// The row's own principal, role, rule or issuer.
    pub(super) fn spare(&self) -> String {
        format!("spare-{}", self.number)
    }

    /// An id of a key that does not exist yet.
    pub(super) fn new_key(&self) -> String {
        format!("{:016x}", 0xfeed_0000_0000_u64 + self.number as u64)
    }
}

impl Drop for MatrixMember {
    fn drop(&mut self) {
        self.others.iter().for_each(RunningServer::stop);
    }
}

impl MatrixMember {
    pub(super) fn new(credentials: Credentials) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let certified = credentials == Credentials::Certificates;
        let signers = certified.then(|| Signers::new(dir.path()));
        let tls = signers.as_ref().map(Signers::server);
        let settings = ServerSettings { tls, ..alone::settings(dir.path()) };
        let member = Alone::run(dir, settings);
        let handle = &member.running.member;
        wait("it leads", || handle.read(DEADLINE, |_| ()).ok());
        Self::with(member, Vec::new(), credentials, signers.as_ref())
    }

    /// A follower of a cluster of three, whose callers have API keys.
    pub(super) fn follower() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (_, mut others) = support::found(dir.path(), 3);
        let at = (support::leader(&others) + 1) % 3;
        let member = Alone::of(dir, others.remove(at));
        let http = Client::new(member.running.clients, "http");
        wait("it is ready", || (http.get("/readyz").status == 200).then_some(()));
        let stage = Self::with(member, others, Credentials::Keys, None);
        for (column, way) in &stage.ways {
            let Some(bearer) = &way.bearer else { continue };
            let status = if column.is_known() { 200 } else { 401 };
            let ask = || http.ask("GET", "/v1/cluster", &[("Authorization", bearer)], b"").status;
            wait("it knows the keys", || (ask() == status).then_some(()));
        }
        stage
    }

    fn with(
        member: Alone,
        others: Vec<RunningServer>,
        credentials: Credentials,
        signers: Option<&Signers>,
    ) -> Self {
        let handle = &member.running.member;
        enable(handle);
        let ways = callers::ways(handle, member.running.clients, credentials, signers);
        let right = ways.iter().find(|it| it.0 == Column::Right).unwrap();
        let http = Client::new(right.1.at, "http");
        let (limit, level) = ((String::new(), 0), 0);
        let mut stage = Self { member, others, http, credentials, ways, limit, level };
        wait("it knows the owner", || {
            (stage.owner("GET", "/v1/limits", &Value::Null).status == 200).then_some(())
        });
        let limits = stage.owner("GET", "/v1/limits", &Value::Null).ok();
        let first = &limits["limits"][0];
        stage.limit =
            (first["limit"].as_str().unwrap().to_owned(), first["value"].as_u64().unwrap());
        let access = stage.owner("GET", "/v1/access", &Value::Null).ok();
        stage.level = access["level"].as_u64().unwrap().try_into().unwrap();
        stage
    }

    /// Whether it is the only member of its cluster.
    pub(super) fn is_alone(&self) -> bool {
        self.others.is_empty()
    }

    fn way(&self, column: Column) -> &CallerWay {
        &self.ways.iter().find(|it| it.0 == column).unwrap().1
    }

    /// The header of a caller; none for one that has a certificate, or nothing.
    pub(super) fn bearer(&self, column: Column) -> Option<&str> {
        self.way(column).bearer.as_deref()
    }

    /// Where a caller reaches the member.
    pub(super) fn at(&self, column: Column) -> SocketAddr {
        self.way(column).at
    }

    pub(super) fn channel(&self, column: Column) -> Channel {
        let at = format!("http://{}", self.at(column));
        Endpoint::from_shared(at).unwrap().timeout(DEADLINE).connect_lazy()
    }

    /// Sends a request of the owner.
    pub(super) fn owner(&self, verb: &str, path: &str, body: &Value) -> Reply {
        let headers = [("Authorization", self.bearer(Column::Right).unwrap_or_default())];
        if body.is_null() {
            return self.http.ask(verb, path, &headers, b"");
        }
        self.http.json(verb, path, &headers, body)
    }

    fn lease(&self) -> (i64, i64) {
        let granted =
            self.owner("POST", "/v1/leases", &json!({"ttl_ms": 600_000, "client": HIDDEN})).ok();
        let number = |field: &str| granted[field].as_str().unwrap().parse().unwrap();
        (number("lease"), number("created"))
    }

    /// Prepares what the row of this call needs.
    pub(super) fn row(&self, number: usize, call: &str) -> Row {
        let (lease, created) = self.lease();
        let mut row = Row {
            number,
            lease,
            created,
            token: 0,
            leadership: 0,
            key: String::new(),
            limit: self.limit.clone(),
            level: self.level,
        };
        let held = json!({"lease": lease.to_string(), "metadata": HIDDEN});
        let token = |reply: &Value| reply["token"].as_str().unwrap().parse().unwrap();
        let path = format!("/v1/locks/{}", row.name("lock"));
        row.token = token(&self.owner("POST", &path, &held).ok());
        let path = format!("/v1/elections/{}", row.name("election"));
        let campaign = json!({"lease": lease.to_string(), "value": HIDDEN});
        row.leadership = token(&self.owner("POST", &path, &campaign).ok()["leader"]);
        let path = format!("/v1/keys/{}", row.name("key"));
        let headers = [("Authorization", self.bearer(Column::Right).unwrap_or_default())];
        assert_eq!(self.http.ask("PUT", &path, &headers, HIDDEN.as_bytes()).status, 200);
        if call.to_lowercase().contains("leave") {
            self.queue(&row);
        }
        if call.to_lowercase().contains("stopped") {
            let force = json!({"lock": row.name("lock"), "token": row.token.to_string(),
                "reason": "the holder shall stop"});
            self.owner("POST", "/v1/force", &force).ok();
        }
        if call.contains("ccess") {
            let (handle, spare) = (&self.member.running.member, row.spare());
            put_principal(handle, &spare, Vec::new());
            row.key = key(handle, &spare).0;
        }
        row
    }

    /// Lets the lease of the row wait for a lock.
    fn queue(&self, row: &Row) {
        let path = format!("/v1/locks/{}", row.name("queue"));
        let (holder, _) = self.lease();
        self.owner("POST", &path, &json!({"lease": holder.to_string()})).ok();
        let waits = json!({"lease": row.lease.to_string()});
        let queued = self.owner("POST", &format!("{path}?keep=true"), &waits);
        assert_eq!(queued.status, 202, "{}", queued.value());
    }
}
