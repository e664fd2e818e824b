//! Tests the SDK against a cluster of one member.

#[path = "../../../server/tests/support/alone.rs"]
mod alone;
mod errors;
mod fenced;
mod history;
mod limits;
mod logs;
mod losses;
mod policy;
mod restored;
mod shutdown;
mod wire;
mod work;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use alone::Alone;
use tenure::{Cause, Change, Client, Error, Guard, Refusal, Standing, Urgency};

const DEADLINE: Duration = Duration::from_secs(60);

impl Alone {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings = alone::settings(dir.path());
        Self::run(dir, settings)
    }

    async fn client(&self, name: &str) -> Client {
        let address = self.running.clients.to_string();
        Client::builder().address(address).name(name).connect().await.unwrap()
    }
}

/// Waits until a condition holds.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting)
        .await
        .unwrap_or_else(|_| panic!("waited too long: {what}"));
}

async fn waiting(client: &Client, lock: &str) -> u64 {
    client.show(lock).await.unwrap().map_or(0, |lock| lock.waiting)
}

fn cause<T>(result: &Result<T, Error>) -> Option<Cause> {
    match result {
        Err(Error::Lost(lost)) => Some(lost.cause()),
        _ => None,
    }
}

fn refusal(result: Result<Guard, Error>) -> Refusal {
    match result {
        Err(Error::Refused(refusal)) => refusal,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was granted"),
    }
}

#[tokio::test]
async fn a_lock_is_held_refused_to_others_and_handed_over_in_order() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let first = a.lock("deploy").await.unwrap();
    first.check().unwrap();
    assert_eq!(first.standing(), Standing::Valid);

    let Refusal::Held(held) = refusal(b.lock("deploy").no_wait().await) else { panic!("not held") };
    assert_eq!(held.holder.as_ref().unwrap().client.as_str(), "a");
    assert!(held.to_string().starts_with("lock `deploy` is held by a for "), "{held}");
    let timed = refusal(b.lock("deploy").wait(Duration::from_millis(50)).await);
    assert_eq!(timed, Refusal::WaitTimeout);

    let ahead = Arc::new(AtomicU64::new(u64::MAX));
    let seen = ahead.clone();
    let asking = b.lock("deploy").on_queued(move |ahead| seen.store(ahead, Ordering::Release));
    let second = tokio::spawn(async move { asking.await });
    until("b queues", async || ahead.load(Ordering::Acquire) == 0).await;
    let token = first.token();
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(second.token() > token);
    second.release().await.unwrap();
    assert!(a.show("deploy").await.unwrap().is_none());
}

#[tokio::test]
async fn dropping_a_guard_or_an_ask_gives_everything_back() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let held = a.lock("deploy").await.unwrap();
    // Once with a lease of its own, and once under a lease that continues.
    let lease = b.lease(Duration::from_secs(60)).await.unwrap();
    let own = b.lock("deploy");
    let own = tokio::spawn(async move { own.await });
    let under = lease.lock("deploy");
    let under = tokio::spawn(async move { under.await });
    until("both queue", async || waiting(&a, "deploy").await == 2).await;
    own.abort();
    under.abort();
    until("both left", async || waiting(&a, "deploy").await == 0).await;
    drop(held);
    until("it is free", async || a.show("deploy").await.unwrap().is_none()).await;
    lease.lock("deploy").await.unwrap().release().await.unwrap();
    lease.revoke().await.unwrap();
}

#[tokio::test]
async fn modes_slots_and_several_locks_at_once() {
    let member = Alone::start();
    let client = member.client("a").await;
    let lease = client.lease(Duration::from_secs(30)).await.unwrap();
    let other = client.lease(Duration::from_secs(30)).await.unwrap();
    let one = lease.lock("cache").shared().await.unwrap();
    let two = other.lock("cache").shared().await.unwrap();
    assert!(matches!(refusal(client.lock("cache").no_wait().await), Refusal::Held(_)));
    one.release().await.unwrap();
    two.release().await.unwrap();

    let permit = lease.lock("workers").slots(2).await.unwrap();
    let second = other.lock("workers").slots(2).await.unwrap();
    assert_eq!((permit.slot(), second.slot()), (Some(0), Some(1)));
    assert!(second.token() > permit.token());

    let both = lease.lock_all(["b", "a"]).metadata("both").await.unwrap();
    let names: Vec<&str> = both.locks().map(|lock| lock.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    both.check().unwrap();
    assert!(matches!(refusal(client.lock("a").no_wait().await), Refusal::Held(_)));
    both.release().await.unwrap();

    let mut guard = lease.lock("doc").await.unwrap();
    let token = guard.token();
    guard.downgrade().await.unwrap();
    assert!(guard.token() > token);
    guard.check().unwrap();
    other.lock("doc").shared().no_wait().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_guard_proves_what_it_holds_and_no_more_once_it_is_lost() {
    let member = Alone::start();
    let client = member.client("a").await;
    let mut guard = client.lock("doc").await.unwrap();
    let ticket = guard.ticket().await.unwrap();
    assert_eq!(ticket.split('.').count(), 3);
    assert_eq!(guard.ticket().await.unwrap(), ticket, "the same grant, the same ticket");
    guard.downgrade().await.unwrap();
    assert_ne!(guard.ticket().await.unwrap(), ticket, "another token");
    let lease = client.lease(Duration::from_secs(30)).await.unwrap();
    let both = lease.lock_all(["b", "a"]).await.unwrap();
    let tickets = both.tickets().await.unwrap();
    assert_eq!(tickets.len(), 2);
    assert_eq!(both.ticket().await.unwrap(), tickets[0]);
    client.force("doc", guard.token(), "a test", Urgency::StopFirst).await.unwrap();
    assert_eq!(guard.lost().await, Cause::Forced);
    assert!(matches!(guard.ticket().await, Err(Error::Lost { .. })));
}

#[tokio::test]
async fn a_second_lock_through_one_lease_waits_inside_the_process() {
    let member = Alone::start();
    let client = member.client("a").await;
    let lease = client.lease(Duration::from_secs(30)).await.unwrap();
    let first = lease.lock("deploy").await.unwrap();
    assert!(matches!(refusal(lease.lock("deploy").no_wait().await), Refusal::Held(_)));
    let again = lease.lock("deploy");
    let second = tokio::spawn(async move { again.await });
    let third = refusal(lease.lock("deploy").wait(Duration::from_millis(20)).await);
    assert_eq!(third, Refusal::WaitTimeout);
    assert!(!second.is_finished());
    let token = first.token();
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(second.token() > token, "it is a grant of its own");
}

#[tokio::test]
async fn run_gives_the_lock_back_and_hands_out_the_result() {
    let member = Alone::start();
    let client = member.client("a").await;
    // Run it as a spawned task, to show that the whole future is `Send`.
    let own = client.clone();
    let work = async move |guard: &Guard| {
        tokio::task::yield_now().await;
        Ok::<_, Error>(guard.token())
    };
    let token = tokio::spawn(async move { own.run("deploy", work).await }).await.unwrap().unwrap();
    assert!(token.get() > 0);
    assert!(client.show("deploy").await.unwrap().is_none());
}

#[tokio::test]
async fn elections_are_won_proclaimed_observed_and_resigned() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let mut seen = b.election("billing").observe().await.unwrap();
    assert_eq!(seen.next().await.unwrap(), Some(Change::Vacant));
    let lead = a.election("billing").campaign("one").await.unwrap();
    let value = |change: Option<Change>| match change {
        Some(Change::Leader(leader)) => String::from_utf8(leader.value.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(value(seen.next().await.unwrap()), "one");
    lead.proclaim("two").await.unwrap();
    assert_eq!(value(seen.next().await.unwrap()), "two");
    assert_eq!(b.election("billing").leader().await.unwrap().unwrap().client, "a");
    lead.resign().await.unwrap();
    assert_eq!(seen.next().await.unwrap(), Some(Change::Vacant));
}

#[tokio::test]
async fn keys_have_conditions_and_guards_and_watches_tell_every_change_once() {
    let member = Alone::start();
    let client = member.client("a").await;
    let mut watch = client.watch_prefix("conf").await.unwrap();
    let first = client.key("config").if_absent().put("v1").await.unwrap();
    let refused = client.key("config").if_absent().put("v2").await;
    assert!(matches!(refused, Err(Error::Refused(Refusal::CompareFailed { .. }))));
    let guard = client.lock("ledger").await.unwrap();
    let second =
        client.key("config").guarded_by(&guard).if_modified(first).put("v2").await.unwrap();
    let found = client.key("config").get().await.unwrap().unwrap();
    assert_eq!((&found.value[..], found.modified, found.version), (&b"v2"[..], second, 2));
    let stale = client.key("config").guarded_by(&guard);
    guard.release().await.unwrap();
    assert!(matches!(stale.put("v3").await, Err(Error::Refused(Refusal::GuardFailed { .. }))));
    assert!(client.key("config").delete().await.unwrap());
    // The repeated request is answered and not executed again.
    for _ in 0..2 {
        let id = tenure::RequestId::from("job-7".to_owned());
        client.key("once").again(id).put("1").await.unwrap();
    }
    assert_eq!(client.key("once").get().await.unwrap().unwrap().version, 1);

    let mut revisions = Vec::new();
    for _ in 0..3 {
        revisions.push(watch.next().await.unwrap().unwrap().revision);
    }
    assert_eq!(revisions[..2], [first, second]);
    // A watch from a revision returns the same history.
    let mut again = client.watch("config").from(second).await.unwrap();
    assert_eq!(again.next().await.unwrap().unwrap().revision, second);
}

#[tokio::test]
async fn a_grace_that_does_not_fit_and_a_cluster_that_is_not_there_are_said_so() {
    let member = Alone::start();
    let client = member.client("a").await;
    let nine = Duration::from_secs(9);
    assert!(matches!(client.lock("x").grace(nine).await, Err(Error::LeaseTiming(_))));
    let unreachable = Client::builder().address("127.0.0.1:1").timeout(Duration::from_millis(200));
    let error = unreachable.connect().await.unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with("no member answered within "), "{said}");
    assert!(said.ends_with(": 127.0.0.1:1 refused"), "{said}");
    let Error::Unreachable { tried, .. } = error else { panic!("{error:?}") };
    assert!(tried.iter().any(|it| it.address == "127.0.0.1:1" && it.outcome.contains("refused")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_take_turns_one_at_a_time_and_none_is_forgotten() {
    let member = Alone::start();
    let inside = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..16 {
        let client = member.client(&format!("c{number}")).await;
        let (inside, lease) =
            (inside.clone(), client.lease(Duration::from_secs(60)).await.unwrap());
        tasks.spawn(async move {
            let mut last = None;
            for round in 0..20 {
                // Alternate between a lease of its own and one that continues.
                let own = round % 2 == 0;
                let guard =
                    if own { client.lock("x").await } else { lease.lock("x").await }.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::AcqRel), 0, "no other client is inside");
                tokio::task::yield_now().await;
                assert!(last < Some(guard.token()), "tokens only grow");
                last = Some(guard.token());
                inside.fetch_sub(1, Ordering::AcqRel);
                guard.release().await.unwrap();
            }
        });
    }
    // A lost wake-up would leave every task waiting.
    tokio::time::timeout(DEADLINE, tasks.join_all()).await.unwrap();
}

// Stopping a member blocks, so the client runs on another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_of_another_cluster_is_never_taken_for_one_of_ours() {
    let (ours, other) = (Alone::start(), Alone::start());
    let addresses = format!("{},{}", ours.running.clients, other.running.clients);
    let client = Client::builder().addresses(&addresses).name("a").timeout(Duration::from_secs(2));
    let client = client.connect().await.unwrap();
    // In both clusters the first lease has the same numbers; only the cluster id tells them apart.
    let guard = client.lock("deploy").ttl(Duration::from_secs(2)).await.unwrap();
    let stranger = |it: &tenure::Tried| {
        it.outcome.contains("another cluster") || it.outcome.contains("not the one")
    };
    until("the stranger is refused", async || client.tried().iter().any(stranger)).await;
    let refused = client.tried().into_iter().find(stranger).unwrap().address;
    let first = if refused == other.running.clients.to_string() { &ours } else { &other };
    let second = if refused == other.running.clients.to_string() { &other } else { &ours };
    let twin = Client::connect(second.running.clients.to_string()).await.unwrap();
    let held = twin.lock("deploy").ttl(Duration::from_secs(60)).await.unwrap();
    first.running.stop();
    let lost = guard.lost().await;
    assert!(
        matches!(lost.cause(), Cause::Unreachable { .. }),
        "no member there renews our lease: {lost:?}"
    );
    assert!(matches!(
        client.key("a").put("1").await,
        Err(Error::Unavailable | Error::Unknown { .. })
    ));
    held.release().await.unwrap();
}

#[test]
fn the_blocking_client_does_the_same_without_a_runtime() {
    let member = Alone::start();
    let client = tenure::blocking::Client::connect(member.running.clients.to_string()).unwrap();
    let guard = client.lock("deploy").acquire().unwrap();
    guard.check().unwrap();
    let refused = client.lock("deploy").with(tenure::LockAsk::no_wait).acquire();
    assert!(matches!(refused, Err(Error::Refused(Refusal::Held(_)))));
    drop(guard);
    client.lock("deploy").acquire().unwrap().release().unwrap();

    let both = client.lock_all(["gpu/b", "gpu/a"]).acquire().unwrap();
    assert_eq!(both.locks().map(|lock| &*lock.name).collect::<Vec<_>>(), ["gpu/a", "gpu/b"]);
    let any = client.lock_any(["gpu/a", "gpu/c"]).acquire().unwrap();
    assert_eq!(any.name(), "gpu/c");
    both.release().unwrap();
    client.resize("pool/a", Some(1)).unwrap();
    let slot = client.pool("pool/").acquire().unwrap();
    assert_eq!(slot.name(), "pool/a");
}

#[test]
fn the_blocking_client_changes_holds_and_closes_prefixes() {
    let member = Alone::start();
    let client = tenure::blocking::Client::connect(member.running.clients.to_string()).unwrap();
    let other = tenure::blocking::Client::connect(member.running.clients.to_string()).unwrap();
    let reader = client.lock("data").with(tenure::LockAsk::shared).acquire().unwrap();
    let second = other.lock("data").with(tenure::LockAsk::shared).acquire().unwrap();
    let still = reader.upgrade(Duration::from_secs(2)).unwrap_err();
    assert!(matches!(still.error, Error::Refused(Refusal::WaitTimeout)), "{still:?}");
    let reader = still.guard.expect("it is held as before");
    reader.check().unwrap();
    second.release().unwrap();
    let shared = reader.token();
    let mut writer = reader.upgrade(Duration::from_secs(30)).unwrap();
    let exclusive = writer.token();
    assert!(exclusive > shared);
    assert_eq!(writer.progress(1).unwrap(), None);
    writer.downgrade().unwrap();
    assert!(writer.token() > exclusive);
    writer.release().unwrap();

    let old = client.lock("web").acquire().unwrap();
    let lease = other.block_on(async |it| it.lease(Duration::from_secs(30)).await).unwrap();
    let to = lease.id();
    let still = old.hand_on(to).unwrap_err();
    assert!(matches!(still.error, Error::Refused(Refusal::NotWaiting { .. })), "{still:?}");
    let old = still.guard.expect("it is held as before");
    let waiting = other.clone();
    let next = std::thread::spawn(move || waiting.block_on(async |_| lease.lock("web").await));
    while client.block_on(async |it| it.show("web").await).unwrap().unwrap().waiting == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let given = old.hand_on(to).unwrap();
    let next = next.join().unwrap().unwrap();
    assert_eq!(next.token(), given);
    other.block_on(async |_| next.release().await).unwrap();

    client.drain("db/", "new disks").unwrap();
    let drained = client.drains().unwrap();
    assert_eq!(drained.iter().map(|it| it.prefix.as_str()).collect::<Vec<_>>(), ["db/"]);
    assert!(client.undrain("db/").unwrap());
    assert!(!client.undrain("db/").unwrap());
}

#[tokio::test]
async fn a_guard_is_taken_again_from_itself_and_the_last_one_gives_the_lock_back() {
    let member = Alone::start();
    let client = member.client("a").await;
    let mut outer = client.lock("deploy").await.unwrap();
    let inner = outer.reenter().unwrap();
    assert_eq!(inner.token(), outer.token());
    // The other guard would not know the new token.
    let refused = outer.downgrade().await;
    assert!(
        matches!(refused, Err(Error::Failed { ref reason, .. }) if reason == "GUARD_SHARED"),
        "{refused:?}"
    );
    inner.release().await.unwrap();
    outer.check().unwrap();
    assert!(matches!(refusal(client.lock("deploy").no_wait().await), Refusal::Held(_)));
    drop(outer.reenter().unwrap());
    outer.check().unwrap();
    let last = outer.reenter().unwrap();
    drop(outer);
    last.check().unwrap();
    last.release().await.unwrap();
    client.lock("deploy").no_wait().await.unwrap().release().await.unwrap();

    let lost = client.lock("deploy").await.unwrap();
    client.force("deploy", lost.token(), "a test", Urgency::Now).await.unwrap();
    lost.lost().await;
    assert_eq!(cause(&lost.reenter()), Some(Cause::Forced));
}

#[tokio::test]
async fn several_locks_on_a_lease_of_their_own_come_and_go_together() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let held = a.lock("two").await.unwrap();
    let asking = b.lock_all(["one", "two", "three"]);
    let asking = tokio::spawn(async move { asking.await });
    until("b queues", async || waiting(&a, "two").await == 1).await;
    held.release().await.unwrap();
    let all = asking.await.unwrap().unwrap();
    assert_eq!(all.locks().count(), 3);
    assert!(matches!(refusal(a.lock("three").no_wait().await), Refusal::Held(_)));
    all.release().await.unwrap();
    for lock in ["one", "two", "three"] {
        a.lock(lock).no_wait().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn one_that_waits_for_long_does_not_hold_up_the_other_requests_of_its_lease() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let held = a.lock("slow").await.unwrap();
    let lease = b.lease(Duration::from_secs(60)).await.unwrap();
    let slow = lease.lock("slow").independent();
    let slow = tokio::spawn(async move { slow.await });
    until("b queues", async || waiting(&a, "slow").await == 1).await;
    // More requests than the cluster remembers, behind one that is not answered.
    for _ in 0..300 {
        lease.lock("fast").await.unwrap().release().await.unwrap();
    }
    assert!(!slow.is_finished());
    held.release().await.unwrap();
    slow.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_release_whose_caller_does_not_wait_is_still_done() {
    let member = Alone::start();
    let client = member.client("a").await;
    let lease = client.lease(Duration::from_secs(60)).await.unwrap();
    let (own, under) = (client.lock("own").await.unwrap(), lease.lock("under").await.unwrap());
    for (lock, guard) in [("own", own), ("under", under)] {
        let mut release = Box::pin(guard.release());
        assert!(polled_once(&mut release).await.is_pending());
        drop(release);
        until("it is free", async || client.show(lock).await.unwrap().is_none()).await;
    }
    // Only that one lock was released. Its lease continues, and the next request in the process proceeds once the
    // client has received the answer.
    lease.check().unwrap();
    let next = tokio::time::timeout(Duration::from_secs(60), lease.lock("under")).await;
    next.expect("it is its turn").unwrap().release().await.unwrap();
}

async fn polled_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await
}

#[test]
fn a_caller_that_waits_for_an_answer_is_told_when_the_runtime_of_the_client_ends() {
    let member = Alone::start();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // This runtime runs only inside `block_on`, so what the client queues later is not sent.
    let (theirs, ours) = (runtime(), runtime());
    let (lease, guard) = theirs.block_on(async {
        let client = member.client("a").await;
        let lease = client.lease(Duration::from_secs(60)).await.unwrap();
        let guard = lease.lock("held").await.unwrap();
        (lease, guard)
    });
    ours.block_on(async {
        let asking = lease.lock("asked").wait(Duration::from_secs(2));
        let mut asking = Box::pin(asking.into_future());
        let mut release = Box::pin(guard.release());
        assert!(polled_once(&mut asking).await.is_pending());
        assert!(polled_once(&mut release).await.is_pending());
        theirs.shutdown_background();
        let released = tokio::time::timeout(DEADLINE, release).await.expect("it is told");
        assert!(matches!(released, Err(Error::Unknown { .. })), "{released:?}");
        let asked = tokio::time::timeout(DEADLINE, asking).await.expect("it is told");
        assert!(matches!(asked, Err(Error::Unavailable | Error::Unknown { .. })), "{asked:?}");
    });
}

/// The sum of a metric of the member over all label sets that contain `label`.
async fn figure(member: &Alone, name: &str, label: &str) -> u64 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = member.running.clients;
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let ask = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
    let lines: Vec<&str> = lines.collect();
    assert!(!lines.is_empty(), "no figure begins with `{name}` and has `{label}`");
    let number = |line: &&str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    lines.iter().map(number).sum()
}

#[tokio::test]
async fn all_leases_of_a_client_are_renewed_by_one_command() {
    const LEASES: u64 = 40;
    let member = Alone::start();
    let client = member.client("a").await;
    let mut leases = Vec::new();
    for _ in 0..LEASES {
        leases.push(client.lease(Duration::from_secs(6)).await.unwrap());
    }
    let renewed = async || figure(&member, "tenure_renewals_total", "").await;
    until("each is renewed three times", async || renewed().await >= LEASES * 3).await;
    let commands = figure(&member, "tenure_request_seconds_count", "\"renew\"").await;
    let renewed = renewed().await;
    // The leases were granted one after the other, and are renewed together from the first renewal on.
    assert!(commands > 0 && commands <= renewed / 10, "{commands} commands, {renewed} renewals");
    leases.iter().for_each(|lease| lease.check().unwrap());
}

#[tokio::test]
async fn a_watch_is_a_stream_of_events_and_ends_after_an_error_that_stays() {
    use tokio_stream::StreamExt;
    let member = Alone::start();
    let client = member.client("a").await;
    let mut watch = client.watch("deploy").await.unwrap();
    let guard = client.lock("deploy").metadata("5.2").await.unwrap();
    let batch = StreamExt::next(&mut watch).await.unwrap().unwrap();
    let event = &batch.events[0];
    assert_eq!((event.cause, event.name.as_str()), (tenure::EventCause::Granted, "deploy"));
    assert_eq!((event.token, &event.value[..]), (Some(guard.token()), &b"5.2"[..]));
    let future = tenure::Revision(1 << 40);
    let mut early = match client.watch("deploy").from(future).await {
        Ok(watch) => watch,
        Err(error) => return assert!(matches!(error, Error::Refused(_)), "{error}"),
    };
    assert!(StreamExt::next(&mut early).await.unwrap().is_err());
    assert!(StreamExt::next(&mut early).await.is_none());
}

#[tokio::test]
async fn a_cancellation_token_is_cancelled_with_the_lock() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let guard = a.lock("deploy").await.unwrap();
    let token = guard.cancellation().token();
    assert!(!token.is_cancelled());
    b.force("deploy", guard.token(), "a test", Urgency::StopFirst).await.unwrap();
    tokio::time::timeout(DEADLINE, token.cancelled()).await.expect("it is cancelled");
    assert!(guard.cancellation().token().is_cancelled(), "one that comes later, too");
}
