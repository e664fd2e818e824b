//! Tests what the client port refuses and bounds: foreign hosts, floods of requests, long histories.

use crate::alone;
use std::time::Duration;

use crate::alone::Alone;
use prost::Message as _;
use tenure_wire::v1;
use tenure_wire::v1::key_service_client::KeyServiceClient;
use tenure_wire::v1::lock_admin_service_client::LockAdminServiceClient;
use tenure_wire::v1::lock_service_client::LockServiceClient;
use tenure_wire::v1::session_service_client::SessionServiceClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::channel;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const DEADLINE: Duration = Duration::from_secs(60);
/// The most unanswered requests of a session.
const IN_FLIGHT_MAX: usize = 1_024;

async fn soon<T>(it: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, it).await.expect("it takes too long")
}

fn member() -> Alone {
    let dir = tempfile::tempdir().unwrap();
    let settings = alone::settings(dir.path());
    let member = Alone::run(dir, settings);
    member.running.member.read(DEADLINE, |_| ()).unwrap();
    member
}

fn endpoint(member: &Alone) -> Endpoint {
    Endpoint::from_shared(format!("http://{}", member.running.clients)).unwrap()
}

fn connect(member: &Alone) -> Channel {
    endpoint(member).connect_lazy()
}

/// Invalid requests, which are answered at once.
fn invalid(requests: usize) -> v1::SessionRequest {
    v1::SessionRequest { hello: None, requests: vec![v1::Request::default(); requests] }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_gathers_no_more_answers_than_its_limit() {
    let member = member();
    let (to, requests) = channel(1_000);
    // All arrive together. Messages of odd sizes must not add up to more than the limit.
    let sizes = [1, IN_FLIGHT_MAX, 1_000, 1_000, 7, 1_023, 900];
    for size in sizes {
        to.send(invalid(size)).await.unwrap();
    }
    let mut client = SessionServiceClient::new(connect(&member));
    let mut from = soon(client.open(ReceiverStream::new(requests))).await.unwrap().into_inner();
    let (mut answers, mut most) = (0, 0);
    while answers < sizes.iter().sum::<usize>() {
        let message = soon(from.message()).await.unwrap().expect("the session goes on");
        most = most.max(message.answers.len());
        answers += message.answers.len();
    }
    assert!(most <= IN_FLIGHT_MAX, "{most} answers in one message");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_answers_more_queries_than_run_at_a_time() {
    let member = member();
    let (to, requests) = channel(4);
    let get = v1::GetKeyRequest { key: "k".into(), ..Default::default() };
    let query = |id| v1::Request {
        id,
        command: Some(v1::request::Command::GetKey(get.clone())),
        ..Default::default()
    };
    let all = 1..=1_000;
    let requests_all = all.clone().map(query).collect();
    to.send(v1::SessionRequest { hello: None, requests: requests_all }).await.unwrap();
    let mut client = SessionServiceClient::new(connect(&member));
    let mut from = soon(client.open(ReceiverStream::new(requests))).await.unwrap().into_inner();
    let mut answered = Vec::new();
    while answered.len() < 1_000 {
        let message = soon(from.message()).await.unwrap().expect("the session goes on");
        for answer in message.answers {
            assert!(!matches!(answer.result, Some(v1::answer::Result::Error(_))), "{answer:?}");
            answered.push(answer.id);
        }
    }
    answered.sort_unstable();
    assert!(answered.into_iter().eq(all));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_very_many_requests_is_refused_before_it_is_decoded() {
    let member = member();
    let (to, requests) = channel(4);
    to.send(invalid(100_000)).await.unwrap();
    let mut client = SessionServiceClient::new(connect(&member));
    let mut from = soon(client.open(ReceiverStream::new(requests))).await.unwrap().into_inner();
    let message = soon(from.message()).await.unwrap().expect("it is told why");
    assert_eq!(message.closing.unwrap().reason, "TOO_LARGE");
    assert!(soon(from.message()).await.unwrap().is_none());
}

/// The reason with which a gRPC call over HTTP/1.1 with these headers is refused; none if it is not.
async fn asked_over_http1(member: &Alone, headers: &str) -> Option<String> {
    let message = v1::GetLockRequest { lock: "x".into(), ..Default::default() }.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let body = [&[0], &length[..], &message].concat();
    let head = format!(
        "POST /tenure.v1.LockAdminService/Get HTTP/1.1\r\n{headers}Connection: close\r\n\
         Content-Type: application/grpc\r\nTE: trailers\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(member.running.clients).await.unwrap();
    stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    let mut said = Vec::new();
    soon(stream.read_to_end(&mut said)).await.unwrap();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    let reason = said.lines().find_map(|line| line.strip_prefix("tenure-reason: "));
    reason.map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_host_or_origin_gets_no_grpc() {
    let member = member();
    let own = member.running.clients;
    let foreign = Some("HOST_NOT_ALLOWED".to_owned());
    // Over HTTP/1.1, as a page would send it whose name resolves to this member.
    assert_eq!(asked_over_http1(&member, &format!("Host: {own}\r\n")).await, None);
    let same = format!("Host: {own}\r\nOrigin: http://{own}\r\n");
    assert_eq!(asked_over_http1(&member, &same).await, None);
    let page = format!("Host: {own}\r\nOrigin: https://evil.example\r\n");
    for headers in
        ["Host: evil.example\r\n", &format!("Host: evil.example:{}\r\n", own.port()), &page]
    {
        assert_eq!(asked_over_http1(&member, headers).await, foreign, "{headers}");
    }
    // Over HTTP/2, in `:authority`.
    for (host, refused) in [(format!("http://{own}"), false), ("http://evil.example".into(), true)]
    {
        let channel = endpoint(&member).origin(host.parse().unwrap()).connect_lazy();
        let ask = v1::GetLockRequest { lock: "x".into(), ..Default::default() };
        let answer = soon(LockAdminServiceClient::new(channel.clone()).get(ask)).await;
        assert_eq!(answer.is_err(), refused, "{host}: {answer:?}");
        let (_to, requests) = channel_of();
        let session = soon(SessionServiceClient::new(channel).open(requests)).await;
        assert_eq!(session.is_err(), refused, "{host}: a session");
    }
}

fn channel_of()
-> (tokio::sync::mpsc::Sender<v1::SessionRequest>, ReceiverStream<v1::SessionRequest>) {
    let (to, requests) = channel(4);
    to.try_send(v1::SessionRequest { hello: Some(v1::Hello::default()), ..Default::default() })
        .unwrap();
    (to, ReceiverStream::new(requests))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_is_found_behind_thousands_of_other_revisions() {
    let member = member();
    let channel = connect(&member);
    let mut locks = LockServiceClient::new(channel.clone());
    let grant = v1::LeaseGrantRequest { ttl: 600, client_id: "c".into(), ..Default::default() };
    let lease_id = soon(locks.lease_grant(grant)).await.unwrap().into_inner().id;
    let take = v1::TryLockRequest { name: "l".into(), lease_id, ..Default::default() };
    let token = soon(locks.try_lock(take.clone())).await.unwrap().into_inner().fencing_token;
    // More revisions than one turn of the event loop examines.
    let keys = KeyServiceClient::new(channel.clone());
    let mut puts = tokio::task::JoinSet::new();
    for number in 0..1_700 {
        let mut keys = keys.clone();
        let key = format!("k/{number}");
        let put = v1::PutRequest { key, value: b"v".to_vec().into(), ..Default::default() };
        puts.spawn(async move { keys.put(put).await.map(drop) });
    }
    soon(puts.join_all()).await.into_iter().for_each(Result::unwrap);
    let unlock = v1::UnlockRequest { name: "l".into(), lease_id, token };
    soon(locks.unlock(unlock)).await.unwrap();
    let mut admin = LockAdminServiceClient::new(channel);
    let ask = v1::HistoryRequest { lock: "l".into(), ..Default::default() };
    let found = soon(admin.history(ask)).await.unwrap().into_inner();
    assert_eq!(found.batches.len(), 2, "the grant and the release: {found:?}");
    assert!(found.next > found.batches[1].revision);
    let ask = v1::HistoryRequest { lock: "l".into(), limit: 1, ..Default::default() };
    let first = soon(admin.history(ask)).await.unwrap().into_inner();
    assert_eq!((first.batches.len(), first.next), (1, found.batches[1].revision));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_health_of_every_service_can_be_checked() {
    let member = member();
    let descriptor = prost_types(tenure_wire::FILE_DESCRIPTOR_SET);
    assert!(descriptor.len() >= 9, "{descriptor:?}");
    let mut health = HealthClient::new(connect(&member));
    for service in descriptor.into_iter().chain([String::new()]) {
        let ask = HealthCheckRequest { service: service.clone() };
        let answer = soon(health.check(ask)).await;
        let status = answer.map(|it| it.into_inner().status());
        assert_eq!(status.ok(), Some(ServingStatus::Serving), "`{service}`");
    }
}

/// The names of the services in a set of file descriptors, read without a library for them: the services of our
/// package are the words that end in `Service` and have no dot behind the package.
fn prost_types(bytes: &[u8]) -> std::collections::BTreeSet<String> {
    let text = String::from_utf8_lossy(bytes);
    let words = text.split(|it: char| !it.is_ascii_alphanumeric());
    let services = words.filter(|word| word.len() > "Service".len() && word.ends_with("Service"));
    services.map(|name| format!("tenure.v1.{name}")).collect()
}
