//! Attacks over HTTP/1.1: costly reads, answers that are not read, JSON bombs, and requests of foreign web pages.

use std::io::{Read, Write};
use std::time::Duration;

use super::sockets::upgrade;
use crate::hostile::flood::{Reads, Round, flood};
use crate::raw::bearer_line;

/// How many connections one attack has.
const CONNECTIONS: usize = 8;
/// How long a foreign page waits for its answer.
const ANSWER: Duration = Duration::from_secs(10);

fn get(host: &str, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{}\r\n", bearer_line()).into_bytes()
}

fn post(host: &str, path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         {}Content-Length: {}\r\n\r\n{body}",
        bearer_line(),
        body.len()
    )
    .into_bytes()
}

/// Sends the same requests again and again, several on their way at a time.
fn pour(round: &Round<'_>, reads: Reads, requests: &[Vec<u8>]) {
    let part = requests.concat();
    flood(round, round.target.leader, CONNECTIONS, reads, b"", |_| part.clone());
}

/// Asks for long pages and reads none.
pub(super) fn unread_answers(round: &Round<'_>) {
    let host = round.host();
    let paths = ["/v1/keys?prefix=large&limit=1000", "/openapi.json"];
    pour(round, Reads::Nothing, &paths.map(|path| get(&host, path)));
}

/// Lists everything, again and again.
pub(super) fn long_lists(round: &Round<'_>) {
    let host = round.host();
    let paths = [
        "/v1/leases?limit=1000",
        "/v1/locks?limit=1000",
        "/v1/keys?prefix=large&limit=1000",
        "/v1/locks?limit=1000&stale=true",
    ];
    pour(round, Reads::All, &paths.map(|path| get(&host, path)));
}

/// Reads the whole history of a busy lock, and what its waiters would like to know.
pub(super) fn long_histories(round: &Round<'_>) {
    let host = round.host();
    let paths = [
        "/v1/locks/honest/0?view=history&limit=1000",
        "/v1/locks/absent?view=history&limit=1000&from=1",
        "/v1/locks/honest/0?view=explain&limit=1000",
    ];
    pour(round, Reads::All, &paths.map(|path| get(&host, path)));
}

/// Searches the whole archive for what it does not have, over many connections.
pub(super) fn archive_searches(round: &Round<'_>) {
    let host = round.host();
    let paths = [
        "/v1/locks/honest?view=history&archive=true&prefix=true&limit=1000&client=absent",
        "/v1/locks/honest?view=history&archive=true&prefix=true&limit=1000&lost=true",
        "/v1/locks/honest/0?view=history&archive=true&limit=1000",
    ];
    pour(round, Reads::All, &paths.map(|path| get(&host, path)));
}

/// Reads the metrics, which count locks by prefix, and the state of the member.
pub(super) fn metrics(round: &Round<'_>) {
    let host = round.host();
    pour(round, Reads::All, &["/metrics", "/v1/member"].map(|path| get(&host, path)));
}

/// Sends JSON that is deeply nested.
pub(super) fn deep_json(round: &Round<'_>) {
    let host = round.host();
    let body = format!(r#"{{"leases":{}"#, "[".repeat(60_000));
    let object = r#"{"new_lease":"#.repeat(5_000);
    let requests = [post(&host, "/v1/leases/renew", &body), post(&host, "/v1/locks/x", &object)];
    pour(round, Reads::All, &requests);
}

/// Sends JSON with very many elements.
pub(super) fn long_json(round: &Round<'_>) {
    let host = round.host();
    let leases = format!(r#"{{"leases":[{}1]}}"#, "1,".repeat(100_000));
    let locks =
        format!(r#"{{"locks":[{}{{}}],"new_lease":{{"ttl_ms":5000}}}}"#, "{},".repeat(20_000));
    let requests = [post(&host, "/v1/leases/renew", &leases), post(&host, "/v1/locks", &locks)];
    pour(round, Reads::All, &requests);
}

/// Sends what a browser sends for a foreign page, or for a name that was rebound to this address. The member must
/// refuse all of it.
pub(super) fn foreign_pages(round: &Round<'_>) {
    let (host, foreign) = (round.host(), "attacker.example");
    let force = r#"{"lock":"honest/0","token":"1","reason":"none","now":true}"#;
    let requests = [
        get(foreign, "/v1/locks/honest/0"),
        post(foreign, "/v1/force", force),
        upgrade(foreign, "/v1/ws", ""),
        upgrade(&host, "/v1/ws", "Origin: http://attacker.example\r\n"),
        format!(
            "POST /v1/force HTTP/1.1\r\nHost: {host}\r\nOrigin: http://attacker.example\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{force}",
            force.len()
        )
        .into_bytes(),
    ];
    while !round.is_over() {
        for request in &requests {
            let Some(mut stream) = round.dial(round.target.leader) else { continue };
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(ANSWER)).unwrap();
            let mut status = [0; 12];
            let answered = stream.write_all(request).and_then(|()| stream.read_exact(&mut status));
            // A page that shows no credentials is refused for that reason, once identity is enabled.
            let refused = [b"HTTP/1.1 403", b"HTTP/1.1 401"];
            if answered.is_ok() && !refused.contains(&&status) {
                let asked = String::from_utf8_lossy(request);
                let status = String::from_utf8_lossy(&status);
                round.complain(format!("a foreign page got {status:?} for {asked:?}"));
                return;
            }
        }
    }
}
