//! Tests that an abandoned acquire never takes the lock away from the caller's own retry.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::http::{Call, Connection};
use crate::common::{Cluster, wait};
use crate::stage::Transport;

/// How many clients run at once.
const WORKERS: usize = 4;
/// The ttl of leases: longer than the test.
const TTL_MS: u64 = 600_000;
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The delays, in steps of [`STEP`], between sending the first attempt and repeating it.
const STEPS: usize = 16;
const STEP: Duration = Duration::from_micros(250);

/// The successful answer to a retry.
struct AcquiredLock {
    lock: String,
    lease: String,
    token: String,
}

/// The results of all attempts.
#[derive(Default)]
struct Totals {
    acquired: Vec<AcquiredLock>,
    /// Answers other than that the lock was acquired, although no other client wanted it.
    refused: Vec<String>,
}

/// How many acquires to abandon: as many as a campaign sets, or a sample.
fn acquires() -> usize {
    let acquires = std::env::var("TENURE_ACQUIRES").ok();
    acquires.map_or(100, |acquires| acquires.parse().expect("TENURE_ACQUIRES is a number"))
}

fn acquire(lock: &str, lease: &str, key: &str) -> Call {
    let body = json!({ "lease": lease }).to_string();
    Call {
        verb: "POST",
        path: format!("/v1/locks/{lock}?wait=10s"),
        key: Some(key.to_owned()),
        body: Some(("application/json", body)),
    }
}

/// Sends a call. The caller closes the connection without reading the answer.
fn send(cluster: &Cluster, member: usize, call: &Call) -> Connection {
    let mut connection = open(cluster, member);
    connection.send(call).unwrap();
    connection
}

fn open(cluster: &Cluster, member: usize) -> Connection {
    Connection::open(cluster.address(member), cluster.trust.as_ref(), TIMEOUT).unwrap()
}

/// When the caller of an attempt closes the first connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Close {
    /// The caller closes it before it repeats the call.
    Before,
    /// The caller closes it while the repeated call is under way.
    Meanwhile,
}

/// Abandons one acquire and repeats it at once, with the same key. For half of the locks another lease holds the lock
/// at first, so that the attempts wait for it.
fn attempt(cluster: &Cluster, number: usize) -> Result<AcquiredLock, String> {
    // The leader decides sooner than followers, so the attempts alternate between members.
    let member = number % cluster.members.len();
    let close = if number.is_multiple_of(2) { Close::Before } else { Close::Meanwhile };
    // The attempts vary this delay, so that the first call is abandoned in every state of its answer.
    let delay = STEP * u32::try_from(number / 4 % STEPS).unwrap();
    let (lock, key) = (format!("abandoned/{number}"), format!("key-{number}"));
    let lease = (1_000_000 + number).to_string();
    cluster.ok(&format!("lease {lease} {TTL_MS} caller"));
    let held = (number / 2 % 2 == 1).then(|| {
        let holder = (2_000_000 + number).to_string();
        cluster.ok(&format!("lease {holder} {TTL_MS} holder"));
        cluster.ok(&format!("lock {holder} {lock}"));
        holder
    });
    let ask = acquire(&lock, &lease, &key);
    let mut connection = open(cluster, member);
    let mut first = Some(send(cluster, member, &ask));
    if held.is_some() {
        wait("the lock is awaited", || {
            let shown = cluster.ask(member, &format!("explain {lock}"))?;
            (!shown.contains("waiting=0")).then_some(())
        });
    } else {
        std::thread::sleep(delay);
    }
    if close == Close::Before {
        first = None;
    }
    let (status, body) = std::thread::scope(|scope| {
        let retry = scope.spawn(|| {
            // A member that knows no leader says that nothing happened: the caller sends the same call again.
            wait("the retry has an answer", || {
                let answer = connection.call(&ask).unwrap();
                let body = serde_json::from_slice::<Value>(&answer.body).unwrap();
                let unheard = answer.status == 503 && body["error"]["effect"] == "none";
                (!unheard).then_some((answer.status, body))
            })
        });
        if let Some(holder) = held {
            // Both attempts wait when the lock becomes free.
            scope.spawn(move || cluster.ok(&format!("revoke {holder}")));
            std::thread::sleep(delay);
        }
        drop(first);
        retry.join().unwrap()
    });
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if status == 200 && body["acquired"] == true {
        return Ok(AcquiredLock { lock, lease, token: text(&body["token"]) });
    }
    Err(format!("{lock}: {status} {body}"))
}

#[test]
fn a_retry_that_was_told_that_it_has_the_lock_keeps_it() {
    keeps(&Transport::Plain.three().founded(), acquires());
}

/// A part of them: every connection begins with a handshake, which takes most of the time.
#[test]
fn a_retry_under_tls_keeps_the_lock_too() {
    keeps(&Transport::Tls.three().founded(), acquires().div_ceil(4));
}

fn keeps(cluster: &Cluster, acquires: usize) {
    let (next, totals) = (AtomicUsize::new(0), Mutex::new(Totals::default()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= acquires {
                        return;
                    }
                    let outcome = attempt(cluster, number);
                    let mut totals = totals.lock().unwrap();
                    match outcome {
                        Ok(lock) => totals.acquired.push(lock),
                        Err(why) => totals.refused.push(why),
                    }
                }
            });
        }
    });
    let Totals { acquired, refused } = totals.into_inner().unwrap();
    // Every lease lives, and no caller released anything: each lock must still be held as its caller was told.
    let taken: Vec<String> = acquired
        .iter()
        .filter_map(|AcquiredLock { lock, lease, token }| {
            let shown = cluster.ok(&format!("explain {lock}"));
            let kept = shown.contains(&format!("lease={lease} token={token} "));
            (!kept).then(|| format!("{lock}: told lease={lease} token={token}, then {shown}"))
        })
        .collect();
    let (told, stale, lost) = (acquired.len(), refused.len(), taken.len());
    let violations = lost + stale;
    println!(
        "abandoned acquires={acquires} acquired={told} taken={lost} refused={stale} violations={violations}"
    );
    let first = |list: &[String]| list.first().cloned().unwrap_or_default();
    assert!(
        violations == 0,
        "{lost} of {told} locks were taken from a retry, first {:?}; {stale} of {acquires} retries were refused, \
         first {:?}",
        first(&taken),
        first(&refused)
    );
    assert_eq!(told, acquires);
}
