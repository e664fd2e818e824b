//! Tests that nothing leaks past a missing permission: lists, single reads, explanations, refusals, watches, tickets,
//! metrics and backups.

use crate::alone;
use std::time::Duration;

use crate::alone::Alone;
use crate::bounded::{DEADLINE, wait};
use crate::client::{Client, Reply};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD;
use bytes::Bytes;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tenure_core::access::{AccessChange, MEMBER, NewCredential, NewPrincipal, NewRule};
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Request, RequestId};
use tenure_server::{HealthListen, ServerSettings, os};
use tenure_types::{Quotas, Verb, VerbSet};
use tenure_wire::status::REASON;
use tenure_wire::v1;
use tenure_wire::v1::answer::Result as Answered;
use tenure_wire::v1::cluster_service_client::ClusterServiceClient;
use tenure_wire::v1::election_service_client::ElectionServiceClient;
use tenure_wire::v1::lock_admin_service_client::LockAdminServiceClient;
use tenure_wire::v1::maintenance_service_client::MaintenanceServiceClient;
use tenure_wire::v1::request::Command as Asked;
use tenure_wire::v1::session_service_client::SessionServiceClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const TEAM: [Verb; 6] =
    [Verb::Read, Verb::Acquire, Verb::Keys, Verb::Elect, Verb::Observe, Verb::Sign];
const BLIND: [Verb; 3] = [Verb::Acquire, Verb::Keys, Verb::Elect];

/// A member with identity. Ana works below `a/` and Bob below `b/`. Una works below `a/` and may read nothing. Rob may
/// read everything, Olga operates the cluster, and Nil may do nothing.
struct PermissionMember {
    member: Alone,
    http: Client,
}

/// The credentials of a principal.
struct Key {
    bearer: String,
}

impl PermissionMember {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let health = HealthListen::At("127.0.0.1:0".into());
        let settings = ServerSettings { health, ..alone::settings(dir.path()) };
        let member = Alone::run(dir, settings);
        let http = Client::new(member.running.clients, "http");
        let stage = Self { member, http };
        wait("it leads", || (stage.http.get("/readyz").status == 200).then_some(()));
        stage.role("a", &TEAM, "a/");
        stage.role("b", &TEAM, "b/");
        stage.role("blind", &BLIND, "a/");
        stage.role("reader", &[Verb::Read, Verb::Observe], "");
        stage.role("ops", &[Verb::Operate], "");
        stage.change(&AccessChange::SetIdentity { enabled: true });
        stage
    }

    fn change(&self, change: &AccessChange<'_>) {
        let mut bytes = Vec::new();
        let command = Command::SetAccess(change.clone());
        let request = Request { principal: MEMBER, id: RequestId::None, command };
        encode_request(&request, &mut bytes);
        let member = &self.member.running.member;
        let outcomes = member.submit(vec![Bytes::from(bytes)], Duration::ZERO, DEADLINE);
        assert!(outcomes[0].as_ref().unwrap().result.is_ok(), "{outcomes:?}");
    }

    fn role(&self, name: &str, verbs: &[Verb], prefix: &str) {
        let rules = vec![NewRule { verbs: VerbSet::from_verbs(verbs), prefix, priority: 0 }];
        self.change(&AccessChange::PutRole { name, rules });
    }

    /// Creates a principal and its key.
    fn principal<const N: usize>(&self, name: &str, roles: [&str; N]) -> Key {
        let (roles, quotas) = (roles.to_vec(), Quotas::default());
        self.change(&AccessChange::PutPrincipal(NewPrincipal {
            name,
            enabled: true,
            roles,
            quotas,
        }));
        let id = format!("{:016x}", os::random());
        let secret: String = (0..4).map(|_| format!("{:016x}", os::random())).collect();
        let hash = digest(&SHA256, secret.as_bytes()).as_ref().try_into().unwrap();
        let new = NewCredential { principal: name, id: &id, name: "", hash, expires_ms: None };
        self.change(&AccessChange::PutCredential(new));
        Key { bearer: format!("Bearer tenure_{id}_{secret}") }
    }

    fn get(&self, key: &Key, path: &str) -> Reply {
        self.http.ask("GET", path, &[("Authorization", &key.bearer)], b"")
    }

    fn post(&self, key: &Key, path: &str, body: &Value) -> Reply {
        self.http.json("POST", path, &[("Authorization", &key.bearer)], body)
    }

    fn put(&self, key: &Key, path: &str) {
        let put = self.http.ask("PUT", path, &[("Authorization", &key.bearer)], b"value");
        assert_eq!(put.status, 200);
    }

    fn lease(&self, key: &Key, client: &str) -> String {
        let asked = json!({"ttl_ms": 60_000, "client": client});
        let granted = self.post(key, "/v1/leases", &asked).ok();
        granted["lease"].as_str().unwrap().to_owned()
    }

    /// Acquires a lock and returns its token.
    fn lock(&self, key: &Key, lock: &str, lease: &str) -> String {
        let held = self.post(key, &format!("/v1/locks/{lock}"), &json!({"lease": lease})).ok();
        held["token"].as_str().unwrap().to_owned()
    }

    fn channel(&self) -> Channel {
        let at = format!("http://{}", self.member.running.clients);
        Endpoint::from_shared(at).unwrap().connect_lazy()
    }

    /// Reads a list page by page.
    fn pages(&self, key: &Key, path: &str, field: &str, name: &str) -> Vec<String> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.get(key, &format!("{path}?limit=2{after}")).ok();
            let records = page[field].as_array().unwrap();
            assert!(records.len() <= 2, "{page}");
            all.extend(records.iter().map(|it| it[name].as_str().unwrap().to_owned()));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return all,
            }
        }
    }
}

impl Key {
    fn call<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.metadata_mut().insert("authorization", self.bearer.parse().unwrap());
        request
    }
}

/// A principal lacks this verb.
fn denied(reply: &Reply, verb: &str) {
    let body = reply.refused(403, "PERMISSION_DENIED");
    let message = body["message"].as_str().unwrap();
    assert!(message.contains(&format!("`{verb}`")), "{body}");
}

fn denied_status(status: &Status, verb: &str) {
    let reason = status.metadata().get(REASON).map(|it| it.to_str().unwrap());
    assert_eq!((status.code(), reason), (Code::PermissionDenied, Some("PERMISSION_DENIED")));
    assert!(status.message().contains(&format!("`{verb}`")), "{status:?}");
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

#[test]
fn lists_have_what_is_readable_in_full_pages() {
    let stage = PermissionMember::new();
    let (ana, bob) = (stage.principal("ana", ["a"]), stage.principal("bob", ["b"]));
    let both = stage.principal("both", ["b", "a"]);
    let (una, rob) = (stage.principal("una", ["blind"]), stage.principal("rob", ["reader"]));
    let mut leases = Vec::new();
    for (key, prefix) in [(&ana, "a/"), (&bob, "b/")] {
        let lease = stage.lease(key, "worker");
        for name in names(prefix, 5) {
            stage.lock(key, &name, &lease);
            stage.put(key, &format!("/v1/keys/{name}"));
        }
        leases.push(lease);
    }
    let all: Vec<_> = names("a/", 5).into_iter().chain(names("b/", 5)).collect();
    for (path, field, name) in [("/v1/locks", "locks", "lock"), ("/v1/keys", "keys", "key")] {
        assert_eq!(stage.pages(&ana, path, field, name), names("a/", 5));
        assert_eq!(stage.pages(&bob, path, field, name), names("b/", 5));
        assert_eq!(stage.pages(&both, path, field, name), all);
        let read: Vec<_> = stage.pages(&rob, path, field, name);
        assert_eq!(
            read.into_iter().filter(|it| !it.starts_with("tenure/")).collect::<Vec<_>>(),
            all
        );
        denied(&stage.get(&una, path), "read");
        denied(&stage.get(&ana, &format!("{path}?prefix=b")), "read");
    }
    let own = |key: &Key| stage.pages(key, "/v1/leases", "leases", "lease");
    assert_eq!((own(&ana), own(&bob)), (leases[..1].to_vec(), leases[1..].to_vec()));
    assert_eq!((own(&una), own(&rob).len()), (Vec::new(), 2));
}

#[test]
fn what_may_not_be_read_is_refused_and_the_lease_of_another_does_not_exist() {
    let stage = PermissionMember::new();
    let (ana, bob) = (stage.principal("ana", ["a"]), stage.principal("bob", ["b"]));
    let (rob, nil) = (stage.principal("rob", ["reader"]), stage.principal("nil", []));
    let lease = stage.lease(&bob, "bob's worker");
    let token = stage.lock(&bob, "b/x", &lease);
    stage.put(&bob, "/v1/keys/b/k");
    let paths = [
        "/v1/locks/b/x".to_owned(),
        "/v1/locks/b/x?view=queue".to_owned(),
        "/v1/locks/b/x?view=history".to_owned(),
        "/v1/locks/b/x?view=history&archive=true".to_owned(),
        "/v1/locks/b/?view=history&archive=true&prefix=true".to_owned(),
        "/v1/locks/b/x?view=explain".to_owned(),
        format!("/v1/locks/b/x?view=explain&lease={lease}"),
        "/v1/keys/b/k".to_owned(),
        "/v1/elections/b/x".to_owned(),
    ];
    for path in &paths {
        assert_eq!(stage.get(&bob, path).status, 200, "{path}");
        assert_eq!(stage.get(&rob, path).status, 200, "{path}");
        denied(&stage.get(&ana, path), "read");
        denied(&stage.get(&nil, path), "read");
        denied(&stage.get(&ana, &path.replace("b/", "b/no-such-")), "read");
    }
    // A prefix that has names of others is not searched, not even for the own ones.
    for prefix in ["a", "b"] {
        let path = format!("/v1/locks/{prefix}?view=history&archive=true&prefix=true");
        denied(&stage.get(&ana, &path), "read");
    }
    let own = stage.get(&ana, "/v1/locks/a/?view=history&archive=true&prefix=true");
    assert_eq!(own.ok()["changes"], json!([]), "nothing of others is below it");
    let shown = format!("/v1/leases/{lease}");
    assert_eq!(stage.get(&bob, &shown).ok()["client"], "bob's worker");
    assert_eq!(stage.get(&rob, &shown).ok()["client"], "bob's worker");
    stage.get(&ana, &shown).refused(404, "LEASE_NOT_FOUND");
    stage.get(&ana, "/v1/leases/12345").refused(404, "LEASE_NOT_FOUND");
    // What every known principal may read tells nothing of names.
    for path in ["/v1/cluster", "/v1/cluster/members", "/v1/limits", "/v1/member"] {
        let shown = String::from_utf8(stage.get(&nil, path).body).unwrap();
        assert!(!shown.contains("b/") && !shown.contains("bob"), "{shown}");
    }
    // A ticket is for the principal of the lease, whatever others know of it.
    let both = stage.principal("both", ["a", "b"]);
    let sign = json!({"lease": lease, "lock": "b/x", "token": token});
    let signed = stage.post(&bob, "/v1/tickets", &sign).ok()["ticket"].as_str().unwrap().to_owned();
    let claims = URL_SAFE_NO_PAD.decode(signed.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!((&claims["principal"], &claims["lock"]), (&json!("bob"), &json!("b/x")));
    stage.post(&both, "/v1/tickets", &sign).refused(404, "LEASE_NOT_FOUND");
    denied(&stage.post(&ana, "/v1/tickets", &sign), "sign");
}

#[test]
fn a_waiter_that_may_not_read_learns_only_of_itself() {
    let stage = PermissionMember::new();
    let (ana, una) = (stage.principal("ana", ["a"]), stage.principal("una", ["blind"]));
    let both = stage.principal("both", ["a", "b"]);
    let lease = stage.lease(&ana, "ana's worker");
    let token = stage.lock(&ana, "a/x", &lease);
    let own = stage.lease(&una, "una's worker");
    let held = stage.post(&una, "/v1/locks/a/x", &json!({"lease": own}));
    let told = held.refused(423, "HELD");
    assert!(told["holder"].is_null(), "{told}");
    let seen = stage.lease(&ana, "another");
    let told = stage.post(&ana, "/v1/locks/a/x", &json!({"lease": seen})).refused(423, "HELD");
    assert_eq!(told["holder"]["client"], "ana's worker");

    std::thread::scope(|scope| {
        let waits =
            scope.spawn(|| stage.post(&una, "/v1/locks/a/x?wait=30s", &json!({"lease": own})));
        let queue = |key: &Key| stage.get(key, "/v1/locks/a/x?view=queue").ok()["waiters"].clone();
        wait("it waits", || (queue(&ana).as_array().unwrap().len() == 1).then_some(()));
        let explain = format!("/v1/locks/a/x?view=explain&lease={own}");
        let told = stage.get(&una, &explain).ok();
        assert_eq!(told["own"]["client"], "una's worker", "{told}");
        assert!(!told.to_string().contains("ana's worker"), "{told}");
        let told = stage.get(&ana, &format!("/v1/locks/a/x?view=explain&lease={lease}")).ok();
        assert!(told.to_string().contains("ana's worker"), "{told}");
        denied(&stage.get(&una, "/v1/locks/a/x?view=explain"), "read");
        denied(&stage.get(&una, &format!("/v1/locks/a/x?view=explain&lease={lease}")), "read");
        // A place for several locks names those that the reader of one of them may read.
        let of_both = stage.lease(&both, "both");
        let locks = json!({"lease": of_both, "locks": [{"lock": "a/x"}, {"lock": "b/y"}]});
        let several = scope.spawn({
            let (stage, both) = (&stage, &both);
            move || stage.post(both, "/v1/locks?wait=30s", &locks).ok()
        });
        wait("it waits", || (queue(&ana).as_array().unwrap().len() == 2).then_some(()));
        assert!(queue(&both).to_string().contains("b/y"));
        assert!(!queue(&ana).to_string().contains("b/y"), "{}", queue(&ana));
        let release = |key: &Key, lease: &str, token: &str| {
            let path = format!("/v1/locks/a/x?lease={lease}&token={token}");
            stage.http.ask("DELETE", &path, &[("Authorization", &key.bearer)], b"").ok();
        };
        release(&ana, &lease, &token);
        let held = waits.join().unwrap().ok();
        release(&una, &own, held["token"].as_str().unwrap());
        several.join().unwrap();
    });
}

#[test]
fn a_summary_has_what_its_reader_may_read_now() {
    let stage = PermissionMember::new();
    let (ana, both) = (stage.principal("ana", ["a"]), stage.principal("both", ["a", "b"]));
    let lease = stage.lease(&ana, "ana's worker");
    let token = stage.lock(&ana, "a/x", &lease);
    let of_both = stage.lease(&both, "both");
    let summary = |key: &Key| stage.get(key, "/v1/overview").ok();
    let shows = |key: &Key, part: &str| {
        wait(part, || summary(key).to_string().contains(part).then_some(()));
    };
    std::thread::scope(|scope| {
        let locks = json!({"lease": of_both, "locks": [{"lock": "a/x"}, {"lock": "b/y"}]});
        let several = scope.spawn({
            let (stage, both) = (&stage, &both);
            move || stage.post(both, "/v1/locks?wait=30s", &locks).ok()
        });
        // The first that waits for `a/x` also waits for `b/y`, which Ana may not read.
        wait("it waits", || (summary(&ana)["waiters"] == 1).then_some(()));
        assert!(!summary(&ana).to_string().contains("b/y"), "{}", summary(&ana));
        shows(&both, "b/y");
        let path = format!("/v1/locks/a/x?lease={lease}&token={token}");
        stage.http.ask("DELETE", &path, &[("Authorization", &ana.bearer)], b"").ok();
        several.join().unwrap();
    });
    stage.change(&AccessChange::PutPrincipal(NewPrincipal {
        name: "both",
        enabled: true,
        roles: vec!["a"],
        quotas: Quotas::default(),
    }));
    // Also a summary that was made a moment ago is not shown under other rules.
    assert!(!summary(&both).to_string().contains("b/"), "{}", summary(&both));
}

#[test]
fn watches_deliver_what_may_be_observed_when_they_deliver_it() {
    let stage = PermissionMember::new();
    let (ana, bob) = (stage.principal("ana", ["a"]), stage.principal("bob", ["b"]));
    let headers = [("Authorization", &*ana.bearer)];
    denied(&stage.get(&ana, "/v1/watch?prefix=b/"), "observe");
    denied(&stage.get(&ana, "/v1/watch?name=b/k"), "observe");
    denied(&stage.get(&ana, "/v1/elections/b/e?view=observe"), "observe");
    let mut all = stage.http.events("/v1/watch", &headers);
    let mut one = stage.http.events("/v1/watch?name=a/k", &headers);
    let mut observed = stage.http.events("/v1/elections/a/k?view=observe", &headers);
    assert_eq!((&*all.any().event, &*one.any().event), ("progress", "progress"));
    assert_eq!(observed.next().event, "vacant");
    // Each of these would be seen before the next event of `a/` if it were delivered.
    for (key, path) in [(&bob, "/v1/keys/b/k"), (&ana, "/v1/keys/a/k"), (&bob, "/v1/keys/b/l")] {
        stage.put(key, path);
    }
    stage.lease(&bob, "worker");
    stage.put(&ana, "/v1/keys/a/l");
    let seen = [all.next(), all.next()].map(|sent| (sent.event, sent.data.to_string()));
    for ((event, data), name) in seen.iter().zip(["a/k", "a/l"]) {
        assert!(event == "change" && data.contains(name) && !data.contains("b/"), "{data}");
    }
    assert!(one.next().data.to_string().contains("a/k"));

    // The role loses the verb, then something happens: in this order in the log.
    let without: Vec<_> = TEAM.into_iter().filter(|verb| *verb != Verb::Observe).collect();
    stage.role("a", &without, "a/");
    stage.put(&ana, "/v1/keys/a/k");
    for watch in [&mut all, &mut one, &mut observed] {
        let sent = watch.next();
        let data = sent.data.to_string();
        assert_eq!(sent.event, "closing", "{data}");
        assert!(data.contains("PERMISSION_DENIED") && !data.contains("a/k"), "{data}");
    }
}

#[test]
fn the_history_of_a_watch_is_filtered_too() {
    let stage = PermissionMember::new();
    let (ana, bob) = (stage.principal("ana", ["a"]), stage.principal("bob", ["b"]));
    for (key, path) in [(&bob, "/v1/keys/b/k"), (&ana, "/v1/keys/a/k")] {
        stage.put(key, path);
    }
    let mut past = stage.http.events("/v1/watch?from=1", &[("Authorization", &*ana.bearer)]);
    let first = past.next();
    let data = first.data.to_string();
    assert!(first.event == "change" && data.contains("a/k") && !data.contains("b/k"), "{data}");
}

#[test]
fn metrics_name_locks_only_to_operators() {
    let stage = PermissionMember::new();
    let (ana, olga) = (stage.principal("ana", ["a"]), stage.principal("olga", ["ops"]));
    stage.role("ana", &[Verb::Acquire], "");
    let worker = stage.principal("worker", ["ana"]);
    let lease = stage.lease(&worker, "worker");
    stage.lock(&worker, "secret/x", &lease);
    let health = Client::new(stage.member.running.health.unwrap(), "health");
    let label = "prefix=\"secret\"";
    let text = |reply: Reply| String::from_utf8(reply.body).unwrap();
    wait("operators see it", || text(stage.get(&olga, "/metrics")).contains(label).then_some(()));
    let requests = text(stage.get(&olga, "/metrics"));
    assert!(
        requests.contains("tenure_principal_requests_total{principal=\"worker\"}"),
        "{requests}"
    );
    let open = text(health.get("/metrics"));
    assert!(!open.contains("worker"), "{open}");
    assert!(open.contains("\ntenure_leases ") && !open.contains("secret"), "{open}");
    denied(&stage.get(&ana, "/metrics"), "operate");
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_operate_and_others_do_not() {
    let stage = PermissionMember::new();
    let (ana, olga) = (stage.principal("ana", ["a"]), stage.principal("olga", ["ops"]));
    let mut maintenance = MaintenanceServiceClient::new(stage.channel());
    let mut cluster = ClusterServiceClient::new(stage.channel());
    let backup = |key: &Key| key.call(v1::BackupRequest::default());
    denied_status(&maintenance.backup(backup(&ana)).await.unwrap_err(), "operate");
    assert!(maintenance.backup(backup(&olga)).await.is_ok());
    let hash = |key: &Key| key.call(v1::HashRequest::default());
    denied_status(&maintenance.hash(hash(&ana)).await.unwrap_err(), "operate");
    assert!(maintenance.hash(hash(&olga)).await.is_ok());
    let compact = |key: &Key| key.call(v1::CompactRequest::default());
    denied_status(&maintenance.compact(compact(&ana)).await.unwrap_err(), "operate");
    let promote = || v1::PromoteMemberRequest { member_id: 77 };
    denied_status(&cluster.promote(ana.call(promote())).await.unwrap_err(), "operate");
    let error = cluster.promote(olga.call(promote())).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound, "{error:?}");
    let transfer = ana.call(v1::TransferLeadershipRequest::default());
    denied_status(&cluster.transfer_leadership(transfer).await.unwrap_err(), "operate");
    assert!(cluster.members(ana.call(v1::MembersRequest::default())).await.is_ok());
}

/// A session over gRPC.
struct Session {
    requests: tokio::sync::mpsc::Sender<v1::SessionRequest>,
    responses: tonic::Streaming<v1::SessionResponse>,
    losses: Vec<v1::Lost>,
    asked: u64,
}

impl Session {
    async fn open(stage: &PermissionMember, key: &Key) -> Self {
        let (requests, rest) = tokio::sync::mpsc::channel(8);
        let hello = Some(v1::Hello { client: "session".into(), ..Default::default() });
        requests.send(v1::SessionRequest { hello, requests: Vec::new() }).await.unwrap();
        let sent = key.call(tokio_stream::wrappers::ReceiverStream::new(rest));
        let responses = SessionServiceClient::new(stage.channel()).open(sent).await.unwrap();
        Self { requests, responses: responses.into_inner(), losses: Vec::new(), asked: 0 }
    }

    async fn ask(&mut self, command: Asked) -> Answered {
        self.asked += 1;
        let id = self.asked;
        let request = v1::Request { id, command: Some(command), ..Default::default() };
        let message = v1::SessionRequest { hello: None, requests: vec![request] };
        self.requests.send(message).await.unwrap();
        loop {
            for answer in self.next_answers().await {
                if answer.id == id {
                    return answer.result.unwrap();
                }
            }
        }
    }

    async fn next_answers(&mut self) -> Vec<v1::Answer> {
        let message = tokio::time::timeout(DEADLINE, self.responses.message()).await.unwrap();
        let message = message.unwrap().expect("the session goes on");
        self.losses.extend(message.losses);
        message.answers
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_of_another_principals_lease_brings_no_notices_of_it() {
    let stage = PermissionMember::new();
    let (ana, bob) = (stage.principal("ana", ["a"]), stage.principal("bob", ["b"]));
    stage.role("force", &[Verb::Force], "a/");
    let max = stage.principal("max", ["force"]);
    let mut hers = Session::open(&stage, &ana).await;
    let granted =
        hers.ask(Asked::GrantLease(v1::NewLease { ttl_ms: 60_000, ..Default::default() }));
    let Answered::LeaseGranted(lease) = granted.await else { panic!("no lease") };
    let acquire = v1::AcquireRequest {
        lock: "a/x".into(),
        lease_slot: lease.lease_slot,
        lease_generation: lease.lease_generation,
        ..Default::default()
    };
    let Answered::Acquired(held) = hers.ask(Asked::Acquire(acquire)).await else {
        panic!("not held")
    };
    let renew = |generation| {
        let (generations, slots) = (vec![generation], vec![lease.lease_slot]);
        Asked::Renew(v1::RenewRequest { generations, slots, leases: Vec::new() })
    };
    let mut his = Session::open(&stage, &bob).await;
    // Handles are small numbers, so a stranger can guess them.
    for generation in 1..=lease.lease_generation {
        let Answered::Renewed(renewed) = his.ask(renew(generation)).await else {
            panic!("not answered")
        };
        assert_eq!(renewed.ttl_ms, [0], "it does not exist for Bob");
    }
    let force = json!({"lock": "a/x", "token": held.token.to_string(), "reason": "stuck"});
    stage.post(&max, "/v1/force", &force).ok();
    while hers.losses.is_empty() {
        hers.next_answers().await;
    }
    // His session gets notices before later answers.
    his.ask(renew(1)).await;
    assert!(his.losses.is_empty(), "{:?}", his.losses);
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_reads_and_observers_are_decided_alike() {
    let stage = PermissionMember::new();
    let (ana, bob) = (stage.principal("ana", ["a"]), stage.principal("bob", ["b"]));
    let mut locks = LockAdminServiceClient::new(stage.channel());
    let mut elections = ElectionServiceClient::new(stage.channel());
    let get = |lock: &str| v1::GetLockRequest { lock: lock.into(), ..Default::default() };
    denied_status(&locks.get(ana.call(get("b/x"))).await.unwrap_err(), "read");
    assert!(locks.get(bob.call(get("b/x"))).await.is_ok());
    let history = |lock: &str| v1::HistoryRequest { lock: lock.into(), ..Default::default() };
    denied_status(&locks.history(ana.call(history("b/x"))).await.unwrap_err(), "read");
    let leader = |name: &str| v1::LeaderRequest { name: name.into(), ..Default::default() };
    denied_status(&elections.leader(ana.call(leader("b/e"))).await.unwrap_err(), "read");
    let mut observed = elections.observe(ana.call(leader("b/e"))).await.unwrap().into_inner();
    denied_status(&observed.message().await.unwrap_err(), "observe");
    let mut observed = elections.observe(ana.call(leader("a/e"))).await.unwrap().into_inner();
    assert!(observed.message().await.unwrap().unwrap().leader.is_none());
}

/// The calls in the reference that need credentials: methods and routes.
fn calls() -> (Vec<String>, Vec<(String, String)>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/permissions.md");
    let page = std::fs::read_to_string(path).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let rows: Vec<_> = rows.filter(|(_, requires)| !requires.starts_with("nothing")).collect();
    let methods = rows.iter().filter(|(call, _)| call.contains("Service/"));
    let methods = methods.map(|(call, _)| format!("/tenure.v1.{call}")).collect();
    let routes = rows.iter().filter_map(|(call, _)| call.split_once(' '));
    (methods, routes.map(|(verb, path)| (verb.to_owned(), path.to_owned())).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_listed_call_is_served_without_credentials() {
    let stage = PermissionMember::new();
    let (methods, routes) = calls();
    assert!(methods.len() > 40 && routes.len() > 30, "{methods:?} {routes:?}");
    for method in methods {
        let mut client = tonic::client::Grpc::new(stage.channel());
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<(), ()>::default();
        let path = method.parse().unwrap();
        let refused = client.unary(tonic::Request::new(()), path, codec).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{method}");
    }
    for (verb, path) in routes {
        let path = path.replace(['{', '}'], "");
        stage.http.ask(&verb, &path, &[], b"").refused(401, "UNAUTHENTICATED");
    }
}

#[test]
fn a_priority_beyond_the_roles_is_refused_with_the_greatest_that_is_permitted() {
    let stage = PermissionMember::new();
    let verbs = VerbSet::from_verbs(&[Verb::Acquire, Verb::Elect, Verb::Read]);
    let rules = vec![NewRule { verbs, prefix: "deploy/", priority: 3 }];
    stage.change(&AccessChange::PutRole { name: "deployer", rules });
    stage.role("forcer", &[Verb::Acquire, Verb::Force], "");
    let bot = stage.principal("bot", ["deployer"]);
    let olga = stage.principal("olga", ["forcer"]);
    let lease = stage.lease(&bot, "bot");
    let ask = |key: &Key, lock: &str, lease: &str, priority: u32| {
        let body = json!({"lease": lease, "priority": priority});
        stage.post(key, &format!("/v1/locks/{lock}"), &body)
    };
    let refused = ask(&bot, "deploy/web", &lease, 4).refused(403, "PERMISSION_DENIED");
    let fields = ["limit", "asked", "bound"].map(|field| refused[field].clone());
    assert_eq!(fields, [json!("force"), json!(4), json!(3)], "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("priority 4 is not permitted"), "{refused}");
    assert!(message.contains("up to 3"), "{refused}");
    ask(&bot, "deploy/web", &lease, 3).ok();
    // The verb of the request decides, not the priority.
    denied(&ask(&bot, "other", &lease, 1), "acquire");
    let lease = stage.lease(&olga, "olga");
    ask(&olga, "deploy/db", &lease, 9).ok();
}
