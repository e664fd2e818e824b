//! Tests that the limits of the caller bound its calls while no member answers.

use std::time::Duration;

use tenure::{Client, Error};
use tokio::time::Instant;

use super::Alone;
use crate::wire::{Wire, WireState};

/// The timeout of the client. A call that takes a good part of it has ignored the limit of its caller.
const TIMEOUT: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_millis(500);

async fn client(wire: &Wire) -> Client {
    let builder = Client::builder().address(wire.address()).name("a").ttl(TTL);
    builder.timeout(TIMEOUT).connect().await.unwrap()
}

/// Runs a call, and checks that it ended long before the timeout of the client.
async fn bounded<T>(what: &str, call: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let done = tokio::time::timeout(TIMEOUT * 2, call).await.expect(what);
    println!("{what} returned after {:?}", began.elapsed());
    assert!(began.elapsed() < TIMEOUT / 6, "{what} took {:?}", began.elapsed());
    done
}

async fn calls_are_bounded(outage: WireState) {
    let member = Alone::start();
    let wire = Wire::to(member.running.clients);
    let client = client(&wire).await;
    let lease = client.lease(TTL).await.unwrap();
    let (own, under) = (client.lock("own").await.unwrap(), lease.lock("under").await.unwrap());
    let (tell, started) = tokio::sync::oneshot::channel();
    let running = client.clone();
    let run = tokio::spawn(async move {
        let work = async move |_: &tenure::Guard| {
            tell.send(()).unwrap();
            std::future::pending::<Result<(), Error>>().await
        };
        running.run("run", work).await
    });
    started.await.unwrap();
    wire.set(outage);
    let waited = bounded("wait", client.lock("x").wait(LIMIT).into_future()).await;
    assert!(matches!(waited, Err(Error::Unavailable | Error::Unknown { .. })), "{waited:?}");
    let waited = bounded("wait", lease.lock("x").wait(LIMIT).into_future()).await;
    assert!(waited.is_err(), "{waited:?}");
    let tried = bounded("no_wait", client.lock("x").no_wait().into_future()).await;
    assert!(matches!(tried, Err(Error::Unavailable | Error::Unknown { .. })), "{tried:?}");
    let tried = bounded("no_wait", lease.lock("x").no_wait().into_future()).await;
    assert!(tried.is_err(), "{tried:?}");
    let run = bounded("run", run).await.unwrap();
    assert!(matches!(run, Err(Error::Lost(_))), "{run:?}");
    for guard in [own, under] {
        guard.lost().await;
        let released = bounded("release", guard.release()).await;
        assert!(matches!(released, Err(Error::Lost(_))), "{released:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_the_caller_hold_when_the_server_is_killed() {
    calls_are_bounded(WireState::Cut).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_the_caller_hold_when_the_server_is_frozen() {
    calls_are_bounded(WireState::Frozen).await;
}

/// Sets the default quotas of the member, as its local administrator.
fn set_quotas(member: &Alone, quotas: &str) {
    use std::io::{Read, Write};
    let at = member.running.clients;
    let key = std::fs::read_to_string(member.data().join("admin.key")).unwrap();
    let mut stream = std::net::TcpStream::connect(at).unwrap();
    let length = quotas.len();
    write!(
        stream,
        "PUT /v1/access/quotas HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\
         authorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{quotas}",
        key.trim()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// The cluster has refused every attempt, so the caller learns why, and that nothing has happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_a_rate_refuses_to_the_end_reports_the_refusal() {
    let member = Alone::start();
    let client = member.client("a").await;
    let lease = client.lease(TIMEOUT).await.unwrap();
    tokio::task::block_in_place(|| set_quotas(&member, r#"{"requests_per_second": 0}"#));
    let is_refused = |it: &Result<tenure::Guard, Error>| match it {
        Err(Error::Failed { reason, .. }) => reason == "QUOTA",
        _ => false,
    };
    let own = bounded("own", client.lock("x").wait(LIMIT).into_future()).await;
    assert!(is_refused(&own), "{own:?}");
    let under = bounded("under", lease.lock("x").wait(LIMIT).into_future()).await;
    assert!(is_refused(&under), "{under:?}");
    let tried = bounded("no_wait", lease.lock("x").no_wait().into_future()).await;
    assert!(is_refused(&tried), "{tried:?}");
    tokio::task::block_in_place(|| set_quotas(&member, "{}"));
    let guard = bounded("after", client.lock("x").into_future()).await.unwrap();
    guard.release().await.unwrap();
}
