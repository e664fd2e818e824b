//! Tests locks over etcd: one holder, growing tokens, and a stop in time.

use std::time::Duration;

use tenure_backends::{Cause, Error, Etcd, Guard, Locks};

use crate::scenario::{DEADLINE, contend, is_lost_in_time, outlives_its_ttl, serves, wakes};
use crate::servers::Server;

/// Long enough that only an event, and no expiry, can wake a waiter in time.
const LONG: Duration = Duration::from_secs(60);
/// With room for a machine that is busy with other tests.
const SHORT: Duration = Duration::from_secs(6);

fn locks(server: &Server, ttl: Duration) -> Locks<Etcd> {
    locks_at(&server.address, ttl)
}

fn locks_at(addresses: &str, ttl: Duration) -> Locks<Etcd> {
    let etcd = Etcd::new(addresses).unwrap();
    let builder = Locks::builder(etcd).ttl(ttl).window(ttl * 5 / 6);
    builder.timeout(Duration::from_secs(4)).start().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_never_overlap_tokens_only_grow_and_no_event_is_missed() {
    let Some(server) = Server::etcd().await else { return };
    let tokens = contend(|| locks(&server, LONG), 6, 6, Guard::token).await;
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    wakes(&locks(&server, LONG), &locks(&server, LONG), LONG).await;
    serves(&locks(&server, LONG), &locks(&server, LONG)).await;
    // No instance writes between the pages of another.
    let lines = crate::lock_over_etcd::run(&locks(&server, LONG)).await.unwrap();
    assert_eq!(lines, ["page 1", "page 2"].repeat(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_outlives_its_ttl_and_a_dead_holders_does_not() {
    let Some(server) = Server::etcd().await else { return };
    let locks_of_a = locks(&server, SHORT);
    // A holder whose runtime is gone renews nothing and releases nothing.
    let address = server.address.clone();
    let dead = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let locks = Locks::builder(Etcd::new(&address).unwrap()).ttl(SHORT).start().unwrap();
            let guard = locks.lock("orphan").await.unwrap();
            let token = guard.token();
            std::mem::forget(guard);
            token
        })
    });
    let token = dead.join().unwrap();
    let orphaned = async { locks_of_a.lock("orphan").wait(DEADLINE).await.unwrap() };
    let ((), next) = tokio::join!(outlives_its_ttl(&locks_of_a, SHORT), orphaned);
    assert!(next.token() > token);
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_is_a_loss_in_time_and_waiters_go_on_when_it_is_back() {
    let Some(mut server) = Server::etcd().await else { return };
    let a = locks(&server, SHORT);
    let guard = a.lock("deploy").await.unwrap();
    let token = guard.token();
    is_lost_in_time(guard, SHORT, || server.kill()).await;
    let unreachable = a.lock("deploy").await;
    assert!(matches!(unreachable, Err(Error::Unavailable { .. })), "{unreachable:?}");
    let patient = Locks::builder(Etcd::new(&server.address).unwrap()).timeout(DEADLINE);
    let asking = patient.start().unwrap().lock("deploy");
    let waiting = tokio::spawn(async move { asking.await });
    server.restart().await;
    // The dead holder's key expires after the restart, and the revisions continue.
    let next = tokio::time::timeout(DEADLINE, waiting).await.unwrap().unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_of_three_costs_no_lock_and_waiters_are_served() {
    let Some(mut servers) = Server::etcds::<3>().await else { return };
    let all = servers.each_ref().map(|server| server.address.clone()).join(",");
    let ttl = Duration::from_secs(15);
    let (a, b) = (locks_at(&all, ttl), locks_at(&all, ttl));
    let guard = a.lock("deploy").await.unwrap();
    let (token, asking) = (guard.token(), b.lock("deploy").wait(DEADLINE));
    let waiting = tokio::spawn(async move { asking.await });
    leader(&mut servers).await.kill();
    // The other members have a quorum: a held lock stays held beyond its ttl, and can be released.
    outlives_its_ttl(&a, ttl).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
    let next = tokio::time::timeout(DEADLINE, waiting).await.unwrap().unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// Waits until a member leads, and returns it.
async fn leader(servers: &mut [Server]) -> &mut Server {
    let leads = async {
        loop {
            for (at, server) in servers.iter().enumerate() {
                let status = post(&server.address, "/v3/maintenance/status", "{}").await;
                let number = |name: &str| {
                    let (_, rest) = status.split_once(&format!("\"{name}\":\""))?;
                    rest.split_once('"').map(|(number, _)| number)
                };
                if number("leader").is_some() && number("leader") == number("member_id") {
                    return at;
                }
            }
        }
    };
    let at = tokio::time::timeout(DEADLINE, leads).await.expect("a member leads");
    &mut servers[at]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_another_client_deleted_is_a_lost_lock() {
    let Some(server) = Server::etcd().await else { return };
    let locks = locks(&server, SHORT);
    let guard = locks.lock("deploy").await.unwrap();
    // Any client of etcd can delete the key.
    let body = "{\"key\":\"dGVudXJlL2RlcGxveQ==\"}";
    let answer = post(&server.address, "/v3/kv/deleterange", body).await;
    assert!(answer.contains("\"deleted\":\"1\""), "{answer}");
    assert_eq!(tokio::time::timeout(DEADLINE, guard.lost()).await.unwrap(), Cause::Gone);
    assert!(guard.check().is_err());
}

/// Sends one POST to etcd's own gateway, over a plain socket.
async fn post(address: &str, path: &str, body: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
