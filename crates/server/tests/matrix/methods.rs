//! Tests every method of HTTP on every call of every API, with and without credentials.
//!
//! A member that requires identity serves no call for a caller without credentials, whatever method the request has; it
//! serves a gRPC call to a known caller only with the method POST.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use serde_json::json;
use tenure_server::ServerSettings;
use tenure_wire::status::REASON;
use tenure_wire::v1;
use tonic::transport::{Channel, Endpoint};
use tower::Service as _;

use super::session;
use super::stage::{enable, found, key};
use super::{Api, SOCKETS, calls};
use crate::alone::{self, Alone};
use crate::bounded::{DEADLINE, wait};
use crate::client::{Client, Reply};
use crate::common::soon;

const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"];
const REFUSED: &str = "UNAUTHENTICATED";

/// Why a member knows its callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// Identity is enabled.
    ByRules,
    /// The member's settings require credentials, and identity is not enabled.
    BySettings,
}

/// A member that requires credentials, and the credentials of the principal `owner`.
struct MethodMember {
    member: Alone,
    http: Client,
    bearer: String,
}

impl MethodMember {
    fn new(known: Known) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let require_identity = known == Known::BySettings;
        let settings = ServerSettings { require_identity, ..alone::settings(dir.path()) };
        let member = Alone::run(dir, settings);
        let handle = &member.running.member;
        wait("it leads", || handle.read(DEADLINE, |_| ()).ok());
        match known {
            Known::ByRules => enable(handle),
            Known::BySettings => found(handle),
        }
        let (_, bearer) = key(handle, "owner");
        let http = Client::new(member.running.clients, "methods");
        Self { member, http, bearer }
    }

    fn at(&self) -> SocketAddr {
        self.member.running.clients
    }

    fn channel(&self) -> Channel {
        let at = format!("http://{}", self.at());
        Endpoint::from_shared(at).unwrap().timeout(DEADLINE).connect_lazy()
    }

    /// The status of a key, as the owner reads it.
    fn key_status(&self, key: &str) -> u16 {
        let headers = [("Authorization", &*self.bearer)];
        self.http.ask("GET", &format!("/v1/keys/{key}"), &headers, b"").status
    }
}

/// A message in the frame of gRPC.
fn framed(message: &[u8]) -> Bytes {
    let len = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &len[..], message].concat().into()
}

fn put(key: &str) -> Bytes {
    let put = v1::PutRequest { key: key.to_owned(), value: Bytes::from("v"), ..Default::default() };
    framed(&put.encode_to_vec())
}

/// Sends a gRPC call over HTTP/2 with any method. Returns its reason, or `OK` for an answer without one.
async fn call(
    channel: &mut Channel,
    method: &str,
    path: &str,
    bearer: Option<&str>,
    message: Bytes,
) -> String {
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    let request = match bearer {
        Some(bearer) => request.header("authorization", bearer),
        None => request,
    };
    let request = request.body(tonic::body::Body::new(Full::new(message))).unwrap();
    std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
    let response = soon(channel.call(request)).await.unwrap();
    let text = |headers: &http::HeaderMap, name: &str| {
        headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    };
    if let Some(reason) = text(response.headers(), REASON) {
        return reason;
    }
    let body = soon(response.into_body().collect()).await.unwrap();
    let trailers = body.trailers().cloned().unwrap_or_default();
    text(&trailers, REASON).unwrap_or_else(|| "OK".to_owned())
}

/// The reason of a response over HTTP/1.1; its status if it has none.
fn reason(reply: &Reply) -> String {
    let json: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let reason = reply.header(REASON).or_else(|| json["error"]["reason"].as_str());
    reason.map_or_else(|| reply.status.to_string(), str::to_owned)
}

async fn no_method_gets_past_the_credentials(known: Known) {
    let stage = MethodMember::new(known);
    let (mut channel, mut asked) = (stage.channel(), 0);
    let mut wrong = Vec::new();
    for (api, name, requires) in calls() {
        for method in METHODS {
            let found = match api {
                Api::Grpc => {
                    let path = format!("/tenure.v1.{name}");
                    let found = call(&mut channel, method, &path, None, framed(b"")).await;
                    let headers = [("Content-Type", "application/grpc")];
                    let other = stage.http.ask(method, &path, &headers, &framed(b""));
                    if known_reason(&other) != found {
                        wrong.push(format!("{method} {path} over HTTP/1.1: {}", reason(&other)));
                    }
                    found
                }
                Api::Http => {
                    let path = path_of(&name);
                    let open = requires.starts_with("nothing, not even");
                    if open && (name.starts_with(method) || method == "HEAD") {
                        continue;
                    }
                    known_reason(&stage.http.ask(method, &path, &[], b""))
                }
                // Their requests come in messages, which have no method.
                Api::SessionGrpc | Api::SessionWs | Api::LockSocket => continue,
            };
            asked += 1;
            let is_open = requires.starts_with("nothing, not even") && found == "UNKNOWN_VERB";
            if found != REFUSED && !is_open {
                wrong.push(format!("{api:?} {method} {name}: {found}"));
            }
        }
    }
    println!("methods {known:?} asked={asked} wrong={}", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(asked > 7 * 80, "only {asked} calls were made");
}

/// The reason of a refusal. A response to HEAD has no body, so its status stands for it.
fn known_reason(reply: &Reply) -> String {
    match reply.status {
        401 => REFUSED.to_owned(),
        405 => "UNKNOWN_VERB".to_owned(),
        _ => reason(reply),
    }
}

/// The path of a route, with a name where the route has one.
fn path_of(route: &str) -> String {
    let path = route.split_once(' ').unwrap().1;
    path.split('/')
        .map(|part| if part.starts_with('{') { "own" } else { part })
        .collect::<Vec<_>>()
        .join("/")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_method_gets_past_the_credentials_once_identity_is_enabled() {
    no_method_gets_past_the_credentials(Known::ByRules).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_method_gets_past_the_credentials_that_the_settings_require() {
    no_method_gets_past_the_credentials(Known::BySettings).await;
}

/// Writes a key with every method, over gRPC on both versions of HTTP, and checks which writes had an effect.
async fn a_call_has_an_effect_only_as_post(known: Known) {
    let stage = MethodMember::new(known);
    let mut channel = stage.channel();
    let path = "/tenure.v1.KeyService/Put";
    for method in METHODS {
        for bearer in [None, Some(&*stage.bearer)] {
            let expected = match (bearer, method) {
                (None, _) => REFUSED,
                (Some(_), "POST") => "OK",
                (Some(_), _) => "UNKNOWN_VERB",
            };
            let served = expected == "OK";
            let name = |version| format!("own/{method}-{}-{version}", bearer.is_some());
            let found = call(&mut channel, method, path, bearer, put(&name(2))).await;
            assert_eq!(found, expected, "{method} over HTTP/2, credentials: {}", bearer.is_some());
            let headers = [
                ("Content-Type", "application/grpc"),
                ("Authorization", bearer.unwrap_or_default()),
            ];
            stage.http.ask(method, path, &headers, &put(&name(1)));
            for version in [1, 2] {
                let status = stage.key_status(&name(version));
                assert_eq!(status, if served { 200 } else { 404 }, "{} {known:?}", name(version));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grpc_call_has_an_effect_only_as_post_of_a_known_caller() {
    for known in [Known::ByRules, Known::BySettings] {
        a_call_has_an_effect_only_as_post(known).await;
    }
}

#[test]
fn a_known_caller_is_served_only_with_the_methods_of_a_route() {
    let stage = MethodMember::new(Known::ByRules);
    let routes: BTreeSet<String> =
        calls().into_iter().filter(|call| call.0 == Api::Http).map(|call| call.1).collect();
    let paths: BTreeSet<&str> =
        routes.iter().map(|route| route.split_once(' ').unwrap().1).collect();
    for path in paths {
        for method in METHODS {
            let route = format!("{method} {path}");
            if routes.contains(&route) || method == "HEAD" {
                continue;
            }
            let headers = [("Authorization", &*stage.bearer)];
            let reply = stage.http.ask(method, &path_of(&route), &headers, b"");
            assert_eq!((reply.status, &*reason(&reply)), (405, "UNKNOWN_VERB"), "{route}");
        }
    }
}

/// Asks for a socket with any method. Returns the status of the response.
fn upgrade(stage: &MethodMember, method: &str, path: &str, bearer: Option<&str>) -> u16 {
    use std::io::{BufRead as _, BufReader, Write as _};

    let stream = std::net::TcpStream::connect(stage.at()).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let bearer = bearer.map(|bearer| format!("Authorization: {bearer}\r\n")).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{bearer}\r\n",
        stage.at(),
    );
    (&stream).write_all(head.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_opens_only_as_get_and_serves_nothing_without_credentials() {
    for known in [Known::ByRules, Known::BySettings] {
        let stage = MethodMember::new(known);
        for route in SOCKETS {
            let path = route.trim_start_matches("GET ");
            for method in METHODS {
                for bearer in [None, Some(&*stage.bearer)] {
                    let status = upgrade(&stage, method, path, bearer);
                    assert_eq!(status == 101, method == "GET", "{method} {path}: {status}");
                }
            }
        }
        let grant = json!({"id": 1, "grant_lease": {"ttl_ms": 60_000}});
        let outcome = session::ask_ws(stage.at(), None, &grant).await;
        assert_eq!(outcome.word, REFUSED, "{known:?}");
        let outcome = session::ask_ws(stage.at(), Some(&stage.bearer), &grant).await;
        assert_eq!(outcome.word, "OK", "{known:?}");
    }
}
