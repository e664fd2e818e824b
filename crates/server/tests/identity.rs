//! Tests that every API resolves its callers, and ends their work when their credentials end.

use crate::alone;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::alone::Alone;
use crate::bounded::{DEADLINE, wait};
use crate::client::{Client, Reply};
use crate::support;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::HeaderValue;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tenure_core::access::{AccessChange, MEMBER, NewCredential, NewPrincipal, NewRule};
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Request, RequestId};
use tenure_server::{HealthListen, RunningServer, ServerSettings, os};
use tenure_types::{Quotas, Verb, VerbSet};
use tenure_wire::status::REASON;
use tenure_wire::v1;
use tenure_wire::v1::election_service_client::ElectionServiceClient;
use tenure_wire::v1::lock_service_client::LockServiceClient;
use tenure_wire::v1::session_service_client::SessionServiceClient;
use tokio::net::TcpStream;
use tokio::sync::mpsc::channel;
use tokio_stream::wrappers::ReceiverStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// The longest time for which work may go on after its credentials have ended. The guide promises that work ends as
/// soon as the change is applied.
const PROMPT: Duration = Duration::from_secs(1);

/// A single member or a follower, with access rules: the principal `ana` may do everything, `bob` may only acquire.
pub(crate) struct IdentityMember {
    pub(crate) member: Alone,
    pub(crate) http: Client,
    /// The other members, if it is a follower.
    others: Vec<RunningServer>,
}

impl Drop for IdentityMember {
    fn drop(&mut self) {
        self.others.iter().for_each(RunningServer::stop);
    }
}

/// An API key.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) text: String,
}

impl IdentityMember {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().to_owned();
        Self::start(&data, dir)
    }

    /// Starts a single member with its data below `data`. `dir` is removed when the stage is dropped.
    pub(crate) fn start(data: &Path, dir: tempfile::TempDir) -> Self {
        let health = HealthListen::At("127.0.0.1:0".into());
        let settings = ServerSettings { health, ..alone::settings(data) };
        Self::with_rules(Alone::run(dir, settings), Vec::new())
    }

    /// A follower of a cluster of three, with identity enabled.
    fn follower() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (_, mut others) = support::found(dir.path(), 3);
        let at = (support::leader(&others) + 1) % 3;
        let follower = others.remove(at);
        let stage = Self::with_rules(Alone::of(dir, follower), others);
        stage.enable();
        stage
    }

    fn with_rules(member: Alone, others: Vec<RunningServer>) -> Self {
        let http = Client::new(member.running.clients, "http");
        let stage = Self { member, http, others };
        wait("it is ready", || (stage.http.get("/readyz").status == 200).then_some(()));
        let all = Verb::ALL.into_iter().fold(VerbSet::default(), VerbSet::with);
        let one = VerbSet::default().with(Verb::Acquire);
        for (name, verbs) in [("everything", all), ("worker", one)] {
            let rules = vec![NewRule { verbs, prefix: "", priority: 0 }];
            stage.change(&AccessChange::PutRole { name, rules });
        }
        stage.principal("ana", "everything", true);
        stage.principal("bob", "worker", true);
        stage
    }

    pub(crate) fn enabled() -> Self {
        let stage = Self::new();
        stage.enable();
        stage
    }

    pub(crate) fn enable(&self) {
        self.change(&AccessChange::SetIdentity { enabled: true });
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

    pub(crate) fn principal(&self, name: &str, role: &str, enabled: bool) {
        let (roles, quotas) = (vec![role], Quotas::default());
        self.change(&AccessChange::PutPrincipal(NewPrincipal { name, enabled, roles, quotas }));
    }

    pub(crate) fn key(&self, principal: &str, expires_ms: Option<u64>) -> Key {
        let id = format!("{:016x}", os::random());
        let secret: String = (0..4).map(|_| format!("{:016x}", os::random())).collect();
        let hash = digest(&SHA256, secret.as_bytes()).as_ref().try_into().unwrap();
        let new = NewCredential { principal, id: &id, name: "test", hash, expires_ms };
        self.change(&AccessChange::PutCredential(new));
        let key = Key { text: format!("tenure_{id}_{secret}"), id };
        if !self.others.is_empty() {
            // The leader has applied it; a follower does so a moment later.
            wait("the key is known", || {
                (self.get("/v1/cluster", &key).status == 200).then_some(())
            });
        }
        key
    }

    pub(crate) fn revoke(&self, key: &Key) {
        self.change(&AccessChange::DeleteCredential { id: &key.id });
    }

    pub(crate) fn get(&self, path: &str, key: &Key) -> Reply {
        self.http.ask("GET", path, &[("Authorization", &key.bearer())], b"")
    }

    pub(crate) fn post(&self, path: &str, key: &Key, body: &Value) -> Reply {
        self.http.json("POST", path, &[("Authorization", &key.bearer())], body)
    }

    pub(crate) fn lease(&self, key: &Key) -> String {
        let granted = self.post("/v1/leases", key, &json!({"ttl_ms": 60_000})).ok();
        granted["lease"].as_str().unwrap().to_owned()
    }

    pub(crate) fn at(&self) -> SocketAddr {
        self.member.running.clients
    }

    pub(crate) fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.at())).unwrap().connect_lazy()
    }

    pub(crate) fn waiters(&self, lock: &str, key: &Key) -> usize {
        let queue = self.get(&format!("/v1/locks/{lock}?view=queue"), key).ok();
        queue["waiters"].as_array().unwrap().len()
    }
}

impl Key {
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.text)
    }

    fn metadata(&self) -> MetadataValue<Ascii> {
        self.bearer().parse().unwrap()
    }

    /// A call with this key.
    pub(crate) fn call<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.metadata_mut().insert("authorization", self.metadata());
        request
    }
}

fn unauthenticated(status: &Status) {
    let reason = status.metadata().get(REASON).map(|it| it.to_str().unwrap());
    assert_eq!((status.code(), reason), (Code::Unauthenticated, Some("UNAUTHENTICATED")));
}

/// A WebSocket.
struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    async fn open(at: SocketAddr, path: &str, key: Option<&Key>) -> Self {
        let mut request = format!("ws://{at}{path}").into_client_request().unwrap();
        if let Some(key) = key {
            let value = HeaderValue::from_str(&key.bearer()).unwrap();
            request.headers_mut().insert("authorization", value);
        }
        Self(connect_async(request).await.unwrap().0)
    }

    async fn say(&mut self, message: Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    /// The next message, or the code with which the socket was closed.
    async fn next(&mut self) -> Result<Value, u16> {
        loop {
            let next = tokio::time::timeout(DEADLINE, self.0.next()).await;
            match next.expect("it came in time").expect("a close frame comes first").unwrap() {
                Message::Text(text) => return Ok(serde_json::from_str(&text).unwrap()),
                Message::Close(frame) => return Err(frame.unwrap().code.into()),
                _ => {}
            }
        }
    }

    async fn ask(&mut self, message: Value) -> Value {
        self.say(message).await;
        self.next().await.unwrap()
    }

    /// Reads until the member closes the session because its credentials are missing or no longer valid. Returns the
    /// text of the error.
    async fn refused(&mut self) -> String {
        loop {
            let message = self.next().await.unwrap();
            if !message["closing"].is_null() {
                assert_eq!(message["closing"]["reason"], "UNAUTHENTICATED", "{message}");
                assert_eq!(self.next().await, Err(4401));
                return message["closing"]["message"].as_str().unwrap().to_owned();
            }
        }
    }
}

#[test]
fn http_resolves_the_caller_of_each_request() {
    let stage = IdentityMember::enabled();
    let (ana, bob) = (stage.key("ana", None), stage.key("bob", None));
    let expired = stage.key("ana", Some(1));
    let wrong = Key {
        text: format!("{}{}", &ana.text[..ana.text.len() - 64], "0".repeat(64)),
        ..ana.clone()
    };
    let unknown =
        Key { text: format!("tenure_{}_{}", "1".repeat(16), "0".repeat(64)), ..ana.clone() };

    assert_eq!(stage.get("/v1/locks", &ana).status, 200);
    let none = stage.http.get("/v1/locks");
    none.refused(401, "UNAUTHENTICATED");
    assert_eq!(none.header("www-authenticate"), Some("Bearer"));
    let refused = stage.get("/v1/locks", &expired).refused(401, "UNAUTHENTICATED");
    assert!(refused["message"].as_str().unwrap().contains("expired"), "{refused}");
    for key in [&wrong, &unknown] {
        stage.get("/v1/locks", key).refused(401, "UNAUTHENTICATED");
    }
    let bearer = ana.bearer();
    let cases: [&[(&str, &str)]; 4] = [
        &[("Authorization", "Basic YTpi")],
        &[("Authorization", "Bearer")],
        &[("Authorization", "Bearer tenure_1")],
        &[("Authorization", &bearer), ("Authorization", &bearer)],
    ];
    for headers in cases {
        stage.http.ask("GET", "/v1/locks", headers, b"").refused(401, "UNAUTHENTICATED");
    }
    for open in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(stage.http.get(open).status, 200, "{open}");
    }
    // Metrics name locks. So the clients' port serves them to operators only; the health listener serves them to all
    // callers.
    stage.http.get("/metrics").refused(401, "UNAUTHENTICATED");
    stage.get("/metrics", &bob).refused(403, "PERMISSION_DENIED");
    assert_eq!(stage.get("/metrics", &ana).status, 200);
    let health = Client::new(stage.member.running.health.unwrap(), "health");
    assert_eq!(health.get("/metrics").status, 200);

    stage.principal("ana", "everything", false);
    let refused = stage.get("/v1/locks", &ana).refused(401, "UNAUTHENTICATED");
    assert!(refused["message"].as_str().unwrap().contains("disabled"), "{refused}");
}

#[test]
fn an_address_that_guesses_keys_is_throttled_and_keys_that_were_right_go_on() {
    let stage = IdentityMember::enabled();
    let ana = stage.key("ana", None);
    assert_eq!(stage.get("/v1/locks", &ana).status, 200);
    let guess = |number: u64| Key {
        id: String::new(),
        text: format!("tenure_{}_{number:064x}", "1".repeat(16)),
    };
    let mut number = 0;
    let refused = wait("guesses are not checked any more", || {
        number += 1;
        let reply = stage.get("/v1/locks", &guess(number));
        (reply.status != 401).then_some(reply)
    });
    refused.refused(503, "OVERLOADED");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(stage.get("/v1/locks", &ana).status, 200, "it was right before");
    let metrics = String::from_utf8(stage.get("/metrics", &ana).body).unwrap();
    let count =
        metrics.lines().find_map(|it| it.strip_prefix("tenure_authentications_throttled_total "));
    assert!(count.is_some_and(|count| count != "0"), "{count:?}");
    let second = stage.key("ana", None);
    wait("new keys are checked again", || {
        (stage.get("/v1/locks", &second).status == 200).then_some(())
    });
}

#[test]
fn without_identity_credentials_are_resolved_and_wrong_ones_refused() {
    let stage = IdentityMember::new();
    let (ana, bob) = (stage.key("ana", None), stage.key("bob", None));
    assert_eq!(stage.http.get("/v1/locks").status, 200);
    let wrong =
        Key { text: format!("tenure_{}_{}", "1".repeat(16), "0".repeat(64)), ..ana.clone() };
    stage.get("/v1/locks", &wrong).refused(401, "UNAUTHENTICATED");
    // A lease that was granted before identity was enabled belongs to the principal all the same.
    let lease = stage.lease(&ana);
    stage.enable();
    let renew = |key: &Key| {
        let path = format!("/v1/leases/{lease}/renew");
        stage.http.ask("POST", &path, &[("Authorization", &key.bearer())], b"").status
    };
    assert_eq!((renew(&ana), renew(&bob)), (200, 404));
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_resolves_the_caller_of_each_call_and_stream() {
    let stage = IdentityMember::enabled();
    let ana = stage.key("ana", None);
    let expired = stage.key("ana", Some(1));
    let mut client = LockServiceClient::new(stage.channel());
    let grant = || v1::LeaseGrantRequest { ttl: 60, ..Default::default() };
    unauthenticated(&client.lease_grant(grant()).await.unwrap_err());
    unauthenticated(&client.lease_grant(expired.call(grant())).await.unwrap_err());
    client.lease_grant(ana.call(grant())).await.unwrap();
    let watches = tokio_stream::pending::<v1::WatchRequest>();
    unauthenticated(&client.watch(watches).await.unwrap_err());
    let requests = tokio_stream::pending::<v1::SessionRequest>();
    let mut sessions = SessionServiceClient::new(stage.channel());
    unauthenticated(&sessions.open(requests).await.unwrap_err());
    HealthClient::new(stage.channel()).check(HealthCheckRequest::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_is_identified_by_its_upgrade_or_its_first_message() {
    let stage = IdentityMember::enabled();
    let ana = stage.key("ana", None);
    let hello = |key: &Key| json!({"hello": {"client": "a", "authorization": key.bearer()}});
    let mut socket = Socket::open(stage.at(), "/v1/ws", Some(&ana)).await;
    assert_eq!(socket.ask(json!({"hello": {"client": "a"}})).await["welcome"]["member"], "m0");
    let mut socket = Socket::open(stage.at(), "/v1/ws", None).await;
    assert_eq!(socket.ask(hello(&ana)).await["welcome"]["member"], "m0");
    // Only the first message may carry credentials.
    socket.say(hello(&ana)).await;
    assert_eq!(socket.next().await.unwrap()["closing"]["reason"], "INVALID_FIELD");
    let mut socket = Socket::open(stage.at(), "/v1/ws", None).await;
    socket.say(json!({"hello": {"client": "a"}})).await;
    socket.refused().await;
    let wrong =
        Key { text: format!("tenure_{}_{}", "1".repeat(16), "0".repeat(64)), ..ana.clone() };
    let mut socket = Socket::open(stage.at(), "/v1/ws", None).await;
    socket.say(hello(&wrong)).await;
    assert!(socket.refused().await.contains("unknown"));
    let at = stage.at();
    let upgrade = format!("ws://{at}/v1/ws").into_client_request().map(|mut request| {
        let value = HeaderValue::from_str(&wrong.bearer()).unwrap();
        request.headers_mut().insert("authorization", value);
        request
    });
    let refused = connect_async(upgrade.unwrap()).await.unwrap_err().to_string();
    assert!(refused.contains("401"), "{refused}");

    let lock = |key: Option<&Key>| match key {
        Some(key) => json!({"commandType": 0, "key": "l", "clientID": "c", "ttl": 60,
            "authorization": key.bearer()}),
        None => json!({"commandType": 0, "key": "l", "clientID": "c", "ttl": 60}),
    };
    let mut plain = Socket::open(at, "/v1/lock-socket", None).await;
    assert_eq!(plain.ask(lock(Some(&ana))).await["success"], true);
    let mut plain = Socket::open(at, "/v1/lock-socket", Some(&ana)).await;
    assert_eq!(plain.ask(lock(None)).await["success"], true);
    let mut plain = Socket::open(at, "/v1/lock-socket", None).await;
    assert_eq!(plain.ask(lock(None)).await["reason"], "UNAUTHENTICATED");
    assert_eq!(plain.next().await, Err(4401));
}

/// Opens one call, stream or socket of each kind that can stay open, all with `key`. Runs `end`, and checks that each
/// of them ends as unauthenticated.
async fn all_ends(stage: &IdentityMember, key: &Key, other: &Key, end: impl FnOnce()) {
    let lease = stage.lease(other);
    stage.post("/v1/locks/taken", other, &json!({"lease": lease})).ok();

    let mut ws = Socket::open(stage.at(), "/v1/ws", Some(key)).await;
    assert!(ws.ask(json!({"hello": {}})).await["welcome"].is_object());
    let ask = json!({"lock": "taken", "lease": stage.lease(key)});
    let queued = ws.ask(json!({"requests": [{"id": 1, "acquire": ask}]})).await;
    assert!(queued["answers"][0]["queued"].is_object(), "{queued}");
    let mut plain = Socket::open(stage.at(), "/v1/lock-socket", Some(key)).await;
    plain.say(json!({"commandType": 0, "key": "taken", "clientID": "p", "ttl": 60})).await;
    let mut client = LockServiceClient::new(stage.channel());
    let (to_watches, requests) = channel(1);
    let watch = v1::WatchRequest { watch_id: 1, key: "quiet".into(), ..Default::default() };
    to_watches.send(watch).await.unwrap();
    let watching = client.watch(key.call(ReceiverStream::new(requests))).await;
    let mut watching = watching.unwrap().into_inner();
    assert!(watching.message().await.unwrap().unwrap().into_fields().created);
    let mut elections = ElectionServiceClient::new(stage.channel());
    let leader = v1::LeaderRequest { name: "quiet".into(), ..Default::default() };
    let mut observing = elections.observe(key.call(leader)).await.unwrap().into_inner();
    let (to_session, requests) = channel(1);
    let hello = Some(v1::Hello { client: "s".into(), ..Default::default() });
    to_session.send(v1::SessionRequest { hello, ..Default::default() }).await.unwrap();
    let mut sessions = SessionServiceClient::new(stage.channel());
    let session = sessions.open(key.call(ReceiverStream::new(requests))).await;
    let mut session = session.unwrap().into_inner();
    assert!(session.message().await.unwrap().unwrap().welcome.is_some());
    let lease: i64 = stage.lease(key).parse().unwrap();
    let lock = v1::LockRequest { name: "taken".into(), lease_id: lease, ..Default::default() };
    let lock = key.call(lock);
    let waiting = tokio::spawn(async move { client.lock(lock).await });
    let bearer = key.bearer();
    let mut events = stage.http.events("/v1/watch?name=quiet", &[("Authorization", &bearer)]);
    let (http, own) = (stage.http.clone(), json!({"lease": stage.lease(key)}));
    let polling = tokio::task::spawn_blocking(move || {
        let path = "/v1/locks/taken?wait=50s";
        http.json("POST", path, &[("Authorization", &bearer)], &own)
    });
    wait("all wait", || (stage.waiters("taken", other) == 4).then_some(()));

    end();
    let began_us = os::now_us();
    wait("the places are gone", || (stage.waiters("taken", other) == 0).then_some(()));
    ws.refused().await;
    assert_eq!(plain.next().await, Err(4401));
    unauthenticated(&watching.message().await.unwrap_err());
    let ended = loop {
        // The first message says that the election has no leader.
        if let Err(ended) = observing.message().await {
            break ended;
        }
    };
    unauthenticated(&ended);
    let closing = session.message().await.unwrap().unwrap().closing.unwrap();
    assert_eq!(closing.reason, "UNAUTHENTICATED");
    unauthenticated(&waiting.await.unwrap().unwrap_err());
    polling.await.unwrap().refused(401, "UNAUTHENTICATED");
    let closing = tokio::task::spawn_blocking(move || events.next()).await.unwrap();
    assert_eq!(
        (&*closing.event, &closing.data["error"]["reason"]),
        ("closing", &json!("UNAUTHENTICATED"))
    );
    let took = Duration::from_micros(os::now_us() - began_us);
    eprintln!("all ended within {took:?}");
    assert!(took < PROMPT, "it took {took:?}");
}

// Retry once: it requires that all of it ends within one second.
#[tokio::test(flavor = "multi_thread")]
async fn all_work_ends_with_a_revoked_key_and_its_places_are_given_up() {
    all_ends_with_a_revoked_key(IdentityMember::enabled()).await;
}

// Retry once: it requires that all of it ends within one second.
#[tokio::test(flavor = "multi_thread")]
async fn all_work_through_a_follower_ends_with_a_revoked_key() {
    all_ends_with_a_revoked_key(IdentityMember::follower()).await;
}

async fn all_ends_with_a_revoked_key(stage: IdentityMember) {
    let (key, other) = (stage.key("ana", None), stage.key("ana", None));
    let mut stays = Socket::open(stage.at(), "/v1/ws", Some(&other)).await;
    assert!(stays.ask(json!({"hello": {}})).await["welcome"].is_object());
    all_ends(&stage, &key, &other, || stage.revoke(&key)).await;
    // Another key of the same principal is not affected.
    let answered = stays.ask(json!({"requests": [{"id": 1, "get_lock": {"name": "taken"}}]})).await;
    assert_eq!(answered["answers"][0]["id"], 1, "{answered}");
}

// Retry once: it requires that all of it ends within one second.
#[tokio::test(flavor = "multi_thread")]
async fn all_work_ends_with_a_disabled_principal_and_its_places_are_removed() {
    let stage = IdentityMember::enabled();
    stage.principal("eve", "everything", true);
    let (key, other) = (stage.key("eve", None), stage.key("ana", None));
    all_ends(&stage, &key, &other, || stage.principal("eve", "everything", false)).await;
}

/// The revisions and causes of what happened to a lock, oldest first.
fn history(stage: &IdentityMember, lock: &str, key: &Key) -> Vec<(u64, Value)> {
    let shown = stage.get(&format!("/v1/locks/{lock}?view=history"), key).ok();
    let mut changes: Vec<(u64, Value)> = shown["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["revision"].as_str().unwrap().parse().unwrap(), it["events"].clone()))
        .collect();
    changes.sort_by_key(|(revision, _)| *revision);
    changes
}

/// Revokes a key, and then its principal. The member must refuse further renewals, the grant must cool until the
/// deadline of its lease, and the next grant must have a larger token. The history must show the revocation before that
/// grant.
#[test]
fn what_a_revoked_key_holds_cools_as_by_force_and_tokens_stay_ordered() {
    const TTL_MS: u64 = 5_000;
    let stage = IdentityMember::follower();
    stage.principal("eve", "everything", true);
    let (key, other) = (stage.key("eve", None), stage.key("ana", None));
    let granted = stage.post("/v1/leases", &key, &json!({"ttl_ms": TTL_MS})).ok();
    let lease = granted["lease"].as_str().unwrap().to_owned();
    let token = |reply: Value| reply["token"].as_str().unwrap().parse::<u64>().unwrap();
    let first = token(stage.post("/v1/locks/held", &key, &json!({"lease": lease})).ok());
    let renew = |by: &Key| {
        let path = format!("/v1/leases/{lease}/renew");
        stage.http.ask("POST", &path, &[("Authorization", &by.bearer())], b"")
    };
    assert_eq!(renew(&key).status, 200);

    stage.revoke(&key);
    let began_us = os::now_us();
    wait("no renewal is taken", || (renew(&key).status == 401).then_some(()));
    let took = Duration::from_micros(os::now_us() - began_us);
    assert!(took < PROMPT, "it took {took:?}");
    // The lease belongs to the principal, so another of its keys can renew it.
    let again = stage.key("eve", None);
    let renewed_us = os::now_us();
    assert_eq!(renew(&again).status, 200);

    stage.principal("eve", "everything", false);
    wait("its grant cools", || {
        let shown = stage.get("/v1/locks/held", &other).ok();
        (shown["lock"]["holders"][0]["state"] == "cooling").then_some(())
    });
    renew(&again).refused(401, "UNAUTHENTICATED");
    let own = json!({"lease": stage.lease(&other)});
    let next = token(stage.post("/v1/locks/held?wait=30s", &other, &own).ok());
    let cooled = Duration::from_micros(os::now_us() - renewed_us);
    // The cluster counts the ttl from a moment after the renewal was sent, in milliseconds of its own clock.
    assert!(cooled >= Duration::from_millis(TTL_MS - 50), "granted again after {cooled:?}");
    assert!(next > first, "{next} after {first}");
    let all = history(&stage, "held", &other);
    let of = |cause: &str| {
        let is = |(_, events): &&(u64, Value)| {
            events.as_array().unwrap().iter().any(|event| event["cause"] == cause)
        };
        all.iter().rfind(is).unwrap_or_else(|| panic!("{cause}: {all:?}")).0
    };
    assert!(of("revoked") < of("granted"), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_end_when_their_key_expires_or_identity_is_enabled() {
    let stage = IdentityMember::new();
    let mut anyone = Socket::open(stage.at(), "/v1/ws", None).await;
    assert!(anyone.ask(json!({"hello": {}})).await["welcome"].is_object());
    let key = stage.key("ana", Some(os::wall_ms() + 1_500));
    let mut ana = Socket::open(stage.at(), "/v1/ws", Some(&key)).await;
    assert!(ana.ask(json!({"hello": {}})).await["welcome"].is_object());
    stage.enable();
    anyone.refused().await;
    assert!(ana.refused().await.contains("expired"));
}

#[test]
fn a_denied_call_is_recorded_with_its_principal_and_address() {
    let stage = IdentityMember::enabled();
    let ana = stage.key("ana", None);
    let headers = [("Authorization", &*ana.bearer())];
    let denied = stage.http.ask("PUT", "/v1/keys/tenure/x", &headers, b"1");
    assert_eq!(denied.status, 403);
    stage.http.get("/v1/locks").refused(401, "UNAUTHENTICATED");
    // Other users of this machine have no credentials.
    let health = Client::new(stage.member.running.health.unwrap(), "health");
    health.get("/debug/audit").refused(403, "PERMISSION_DENIED");
    let records = stage.get("/v1/audit", &ana).ok()["records"].clone();
    let denied = records.as_array().unwrap().iter().filter(|record| record["act"] == "denied");
    let [named, unnamed] = &denied.collect::<Vec<_>>()[..] else { panic!("{records}") };
    assert_eq!((&named["who"], &named["from"]), (&json!("ana"), &json!("127.0.0.1")), "{named}");
    assert_eq!((&unnamed["who"], &unnamed["from"]), (&Value::Null, &json!("127.0.0.1")));
    let targets = [&named["target"], &unnamed["target"]];
    assert_eq!(targets, [&json!("PUT /v1/keys/tenure/x"), &json!("GET /v1/locks")]);
}
