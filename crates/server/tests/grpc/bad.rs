//! Tests that invalid gRPC calls are refused with a reason and change nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tenure_server::os;
use tenure_wire::v1;
use tonic::Code;

use crate::common::{DEADLINE, Members, soon};
use crate::{Clients, nothing, refused};

/// The head of the response to an HTTP/1.1 request, in lower case.
fn post(to: SocketAddr, path: &str, headers: &[&str], body: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut request = format!("POST {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n");
    request += &format!("content-length: {}\r\n", body.len());
    headers.iter().for_each(|header| request += &format!("{header}\r\n"));
    stream.write_all(request.as_bytes()).unwrap();
    stream.write_all(b"\r\n").unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).to_lowercase();
    answer.split("\r\n\r\n").next().unwrap().to_owned()
}

fn framed(message: &[u8], compressed: u8) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&[compressed][..], &length.to_be_bytes(), message].concat()
}

#[track_caller]
fn says(head: &str, code: Code, reason: &str) {
    assert!(head.contains(&format!("grpc-status: {}", code as i32)), "{head}");
    assert!(head.contains(&format!("tenure-reason: {}", reason.to_lowercase())), "{head}");
    assert!(head.contains("tenure-effect: none"), "{head}");
}

#[test]
fn what_is_no_call_is_told_why_and_changes_nothing() {
    let members = Members::found(1);
    let to = members.one(0).clients;
    let before = members.one(0).member.status().unwrap().revision;
    let grpc = "content-type: application/grpc";
    let path = "/tenure.v1.LockService/LeaseGrant";
    let grant = framed(&[0x08, 60], 0);

    for kind in ["content-type: text/plain", "content-type: application/grpcx", "accept: */*"] {
        let head = post(to, path, &[kind], &grant);
        assert!(head.starts_with("http/1.1 415"), "{head}");
        says(&head, Code::Unimplemented, "UNSUPPORTED_MEDIA");
    }
    for path in
        ["/tenure.v1.LockService/Steal", "/tenure.v1.Nothing/Get", "/tenure.v2.LockService/Lock"]
    {
        says(&post(to, path, &[grpc], &grant), Code::Unimplemented, "UNKNOWN_OPERATION");
    }
    let head = post(to, path, &[grpc], &framed(b"\xff\xff\xff", 0));
    says(&head, Code::InvalidArgument, "MALFORMED");
    for encoding in ["grpc-encoding: gzip", "grpc-encoding: zstd"] {
        let head = post(to, path, &[grpc, encoding], &framed(b"\x1f\x8b", 1));
        says(&head, Code::Unimplemented, "UNSUPPORTED_MEDIA");
    }
    for timeout in ["grpc-timeout: soon", "grpc-timeout: 5", "grpc-timeout: -1S"] {
        says(&post(to, path, &[grpc, timeout], &grant), Code::InvalidArgument, "INVALID_FIELD");
    }
    let head = post(to, path, &[grpc, "idempotency-key: "], &grant);
    says(&head, Code::InvalidArgument, "INVALID_FIELD");
    let head = post(to, "/nowhere", &["content-type: application/json"], b"{}");
    assert!(head.starts_with("http/1.1 404"), "{head}");
    assert_eq!(members.one(0).member.status().unwrap().revision, before, "nothing was done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_long_is_refused_before_it_is_read() {
    let members = Members::found(1);
    let mut clients = Clients::new(&members.connect(0));
    let long = v1::PutRequest { key: "k".into(), value: vec![0; 3 << 20].into(), ..nothing() };
    let error = refused(clients.keys.put(long).await, Code::ResourceExhausted, "TOO_LARGE");
    assert_eq!(error.bound, 2 << 20);
    let fits = v1::PutRequest { key: "k".into(), value: vec![0; 40_000].into(), ..nothing() };
    refused(clients.keys.put(fits).await, Code::InvalidArgument, "VALUE_TOO_LONG");
    // The same in the middle of a stream.
    let names = (0..3).map(|_| v1::WatchRequest { key: "n".repeat(3 << 20), ..nothing() });
    let names: Vec<_> = names.collect();
    let mut stream = clients.lock.watch(tokio_stream::iter(names)).await.unwrap().into_inner();
    let status = soon(stream.message()).await.unwrap_err();
    crate::told(&status, Code::ResourceExhausted, "TOO_LARGE");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_a_call_waits_for_its_deadline_and_says_whether_it_may_have_happened() {
    let mut members = Members::found(2);
    tokio::task::block_in_place(|| members.stop(1));
    let to = members.one(0).clients;
    // Send the request by hand: the library's client would give up by its own clock, at the same moment.
    let headers = ["content-type: application/grpc", "grpc-timeout: 1200m"];
    let path = "/tenure.v1.KeyService/Put";
    let started = os::now_us();
    let head = tokio::task::block_in_place(|| post(to, path, &headers, &framed(b"\x0a\x01k", 0)));
    let took = Duration::from_micros(os::now_us() - started);
    let (none, unknown) = ("tenure-reason: no_leader", "tenure-reason: unknown_outcome");
    let told = head.contains(none) && head.contains("tenure-effect: none")
        || head.contains(unknown) && head.contains("tenure-effect: unknown");
    assert!(told && took >= Duration::from_millis(1_100), "{head} after {took:?}");
    let mut clients = Clients::new(&members.connect(0));
    // The member still answers stale reads from its own state.
    let stale = v1::GetKeyRequest { key: "k".into(), stale: true };
    assert!(clients.keys.get(stale).await.unwrap().into_inner().kv.is_none());
}
