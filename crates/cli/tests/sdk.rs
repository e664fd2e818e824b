//! Do guards of the SDK keep their promise while members are killed and stopped, and clients are?

mod common;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Cluster, wait};
use tenure::{Cause, Client, Error, Standing};
use tenure_server::os;

/// Says to a second process of the test below that it is the client to be stopped, and where the cluster is.
const HELPER: &str = "TENURE_SDK_HELPER";
const PAUSED: &str = "a_client_stopped_for_longer_than_its_ttl_does_nothing_when_it_goes_on";

fn addresses(cluster: &Cluster) -> String {
    let one = |it: &common::One| format!("127.0.0.1:{}", it.clients);
    cluster.members.iter().map(one).collect::<Vec<_>>().join(",")
}

async fn client(addresses: &str, name: &str) -> Client {
    let builder = Client::builder().addresses(addresses).name(name);
    builder.timeout(Duration::from_secs(30)).connect().await.unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A guard's whole life in one interval of the machine's clock, as its own checks saw it.
#[derive(Clone, Copy, Debug)]
struct Span {
    token: u64,
    from_us: u64,
    to_us: u64,
}

/// Two intervals that have a moment in common.
fn overlap(spans: &[Span]) -> Option<(Span, Span)> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable_by_key(|span| span.from_us);
    sorted.windows(2).find(|pair| pair[1].from_us < pair[0].to_us).map(|pair| (pair[0], pair[1]))
}

#[test]
fn guards_stay_valid_while_leaders_are_killed_and_stopped() {
    let mut cluster = Cluster::found(3);
    let runtime = runtime();
    let (addresses, ttl) = (addresses(&cluster), Duration::from_secs(15));
    let client = runtime.block_on(client(&addresses, "holder"));
    let guard = runtime.block_on(async { client.lock("deploy").ttl(ttl).await }).unwrap();
    let lease = runtime.block_on(client.lease(ttl)).unwrap();
    let shared = runtime.block_on(async { lease.lock("cache").shared().await }).unwrap();
    let mut doubts = guard.standings();
    // Killed: the connection ends at once.
    let leader = cluster.leader();
    cluster.kill(leader);
    let (put, next) = runtime.block_on(async {
        (client.key("a").put("1").await, client.lock("other").await.unwrap().release().await)
    });
    put.unwrap();
    next.unwrap();
    cluster.start(leader, &[]);
    cluster.agree(&[0, 1, 2]);
    // Stopped: the connection stays, and nobody answers.
    let leader = cluster.leader();
    cluster.members[leader].process.as_ref().unwrap().signal("-STOP");
    runtime.block_on(client.key("b").put("2")).unwrap();
    // Held over more than one whole ttl since the stop: renewals found another way.
    let until_us = os::now_us() + u64::try_from(ttl.as_micros()).unwrap();
    wait("a ttl passes", || {
        guard.check().unwrap();
        shared.check().unwrap();
        (os::now_us() > until_us).then_some(())
    });
    cluster.members[leader].process.as_ref().unwrap().signal("-CONT");
    assert!(!matches!(*doubts.borrow_and_update(), Standing::Lost(_)));
    runtime.block_on(guard.release()).unwrap();
    runtime.block_on(shared.release()).unwrap();
}

#[test]
fn fifty_waiters_are_served_in_order_over_failovers() {
    const WAITERS: u64 = 50;
    let mut cluster = Cluster::found(3);
    let runtime = runtime();
    let addresses = addresses(&cluster);
    let client = runtime.block_on(client(&addresses, "waiters"));
    let first = runtime.block_on(async { client.lock("deploy").await }).unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..WAITERS {
        let queued = Arc::new(AtomicBool::new(false));
        let (rung, served) = (queued.clone(), served.clone());
        let asking = client.lock("deploy").on_queued(move |_| rung.store(true, Ordering::Release));
        tasks.push(runtime.spawn(async move {
            let guard = asking.await?;
            served.lock().unwrap().push((number, guard.token()));
            guard.check()?;
            guard.release().await
        }));
        wait("it queues", || queued.load(Ordering::Acquire).then_some(()));
    }
    // One leader dies while all wait, the next in the middle of serving them.
    let leader = cluster.leader();
    cluster.kill(leader);
    cluster.leader();
    runtime.block_on(first.release()).unwrap();
    wait("some are served", || (served.lock().unwrap().len() > 5).then_some(()));
    cluster.start(leader, &[]);
    cluster.agree(&[0, 1, 2]);
    let leader = cluster.leader();
    cluster.kill(leader);
    for task in tasks {
        runtime.block_on(task).unwrap().unwrap();
    }
    let served = served.lock().unwrap();
    let order: Vec<u64> = served.iter().map(|(number, _)| *number).collect();
    assert_eq!(order, (0..WAITERS).collect::<Vec<_>>());
    assert!(served.is_sorted_by(|a, b| a.1 < b.1), "tokens only grow");
}

#[test]
fn every_write_happens_once_and_every_watch_tells_it_once_over_failovers() {
    const WRITES: u64 = 300;
    let mut cluster = Cluster::found(3);
    let runtime = runtime();
    let addresses = addresses(&cluster);
    let writer = runtime.block_on(client(&addresses, "writer"));
    let watcher = runtime.block_on(client(&addresses, "watcher"));
    let mut watch = runtime.block_on(async { watcher.watch("count").await }).unwrap();
    let written = Arc::new(Mutex::new(Vec::new()));
    let seen = written.clone();
    let writing = runtime.spawn(async move {
        for number in 0..WRITES {
            let revision = writer.key("count").put(number.to_string()).await.unwrap();
            seen.lock().unwrap().push(revision);
        }
        writer.key("count").get().await.unwrap().unwrap().version
    });
    let watching = runtime.spawn(async move {
        let mut told = Vec::new();
        while (told.len() as u64) < WRITES {
            let batch = watch.next().await.unwrap().unwrap();
            assert_eq!(batch.events.len(), 1);
            told.push(batch.revision);
        }
        told
    });
    for part in 1..3 {
        let half = usize::try_from(WRITES).unwrap() * part / 3;
        wait("writes go on", || (written.lock().unwrap().len() >= half).then_some(()));
        let leader = cluster.leader();
        cluster.kill(leader);
        cluster.leader();
        cluster.start(leader, &[]);
    }
    assert_eq!(runtime.block_on(writing).unwrap(), WRITES, "each was done once");
    let told = runtime.block_on(watching).unwrap();
    assert!(told.is_sorted_by(|a, b| a < b));
    assert_eq!(told.len() as u64, WRITES);
}

/// Takes the lock again and again; each hold until its own check says no or its time is over. With `deaf` it goes on
/// for as long as it had planned, whatever the check says.
async fn cycle(client: Client, deaf: bool, stop: Arc<AtomicBool>, spans: Arc<Mutex<Vec<Span>>>) {
    let mut round = 0_u64;
    while !stop.load(Ordering::Acquire) {
        let ask = client.lock("deploy").ttl(Duration::from_millis(1_000));
        let Ok(guard) = ask.wait(Duration::from_secs(2)).await else { continue };
        round += 1;
        let (token, from_us) = (guard.token().get(), os::now_us());
        // Every other time nobody hears of it any more: longer than its ttl.
        let unheard = round.is_multiple_of(2);
        client.drop_renewals(unheard);
        let plan_us = if unheard { 2_500_000 } else { 200_000 };
        let mut to_us = from_us;
        while os::now_us() < from_us + plan_us {
            // Before: what is recorded was surely before the check.
            let now_us = os::now_us();
            if guard.check().is_err() && !deaf {
                break;
            }
            to_us = now_us;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        client.drop_renewals(false);
        spans.lock().unwrap().push(Span { token, from_us, to_us });
        drop(guard);
    }
}

fn histories(deaf: bool) -> Vec<Span> {
    let mut cluster = Cluster::found(3);
    let runtime = runtime();
    let addresses = addresses(&cluster);
    let (stop, spans) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let tasks: Vec<_> = (0..3)
        .map(|number| {
            let client = runtime.block_on(client(&addresses, &format!("c{number}")));
            runtime.spawn(cycle(client, deaf, stop.clone(), spans.clone()))
        })
        .collect();
    let some = |more: usize| {
        let seen = spans.lock().unwrap().len();
        wait("holds go on", || (spans.lock().unwrap().len() >= seen + more).then_some(()));
    };
    some(6);
    let leader = cluster.leader();
    cluster.kill(leader);
    some(6);
    cluster.start(leader, &[]);
    some(3);
    stop.store(true, Ordering::Release);
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    let spans = spans.lock().unwrap();
    spans.clone()
}

#[test]
fn two_guards_that_are_valid_by_their_own_checks_never_overlap() {
    let spans = histories(false);
    assert!(spans.len() >= 15);
    assert!(overlap(&spans).is_none(), "{:?}", overlap(&spans));
    let mut spans = spans;
    spans.sort_unstable_by_key(|span| span.from_us);
    assert!(spans.is_sorted_by(|a, b| a.token < b.token), "later holders have larger tokens");
}

#[test]
fn clients_that_ignore_their_loss_do_overlap() {
    // Without this the test above could be one that cannot fail.
    assert!(overlap(&histories(true)).is_some());
}

/// What the process does that the test below stops and lets go on.
fn hold_and_report(addresses: &str) {
    let runtime = runtime();
    runtime.block_on(async {
        let client = client(addresses, "helper").await;
        let guard = client.lock("deploy").ttl(Duration::from_secs(2)).await.unwrap();
        // Each effect right behind its own check.
        let cause = loop {
            match guard.check() {
                Ok(()) => client.key("helper/effects").put("1").await.unwrap(),
                Err(Error::Lost { cause }) => break cause,
                Err(other) => panic!("{other}"),
            };
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        client.key("helper/lost").put(cause.word()).await.unwrap();
    });
}

/// A process of this test binary that holds the lock.
struct Helper(Child);

impl Helper {
    fn start(addresses: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", PAUSED]).env(HELPER, addresses);
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_client_stopped_for_longer_than_its_ttl_does_nothing_when_it_goes_on() {
    if let Ok(addresses) = std::env::var(HELPER) {
        return hold_and_report(&addresses);
    }
    let cluster = Cluster::found(3);
    let runtime = runtime();
    let addresses = addresses(&cluster);
    let other = runtime.block_on(client(&addresses, "other"));
    let helper = Helper::start(&addresses);
    let has = |key: &str| runtime.block_on(other.key(key).get()).unwrap();
    wait("the helper holds", || has("helper/effects"));
    helper.signal("-STOP");
    let next = runtime.block_on(async { other.lock("deploy").await }).unwrap();
    let before = has("helper/effects").unwrap().version;
    helper.signal("-CONT");
    let lost = wait("the helper notices", || has("helper/lost"));
    // One write may have been on its way when it was stopped: that is what the token is for.
    let after = has("helper/effects").unwrap().version;
    assert!(after <= before + 1, "{before} effects, then {after}");
    // On a busy machine a try may have failed before the stop.
    let words =
        [Cause::Stalled { late: Duration::ZERO }, Cause::Unreachable { silent: Duration::ZERO }];
    assert!(words.iter().any(|it| it.word().as_bytes() == lost.value), "{:?}", lost.value);
    next.check().unwrap();
}
