//! Tests that a lock over a store is never held by two clients and never waited for in vain, under delays, losses and
//! partitions.
//!
//! Several clients want the same lock again and again, over a store in memory on virtual time. One seed decides the
//! fate of every message. Each step of work that a check allowed while the store names another holder is a violation of
//! T4. A client that still waits when all others are long done is a lost notification. Planted bugs must be caught
//! within the same number of schedules.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::virtual_time;

use crate::{Action, Error, Fate, Locks, Memory, Way, plant};

const SCHEDULES: u64 = 400;
const TTL: Duration = Duration::from_secs(10);
const ROUNDS: u32 = 4;
/// Longer than all rounds of all clients take, with every crash waited out.
const TIMEOUT: Duration = Duration::from_secs(3_600);
const LOCK: &str = "lock";

/// What happened in all schedules together.
#[derive(Default, Debug)]
struct BackendScheduleCounts {
    grants: AtomicU64,
    steps: AtomicU64,
    losses: AtomicU64,
    waits: AtomicU64,
    cuts: AtomicU64,
    unavailable: AtomicU64,
}

fn bump(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

fn ms(rng: &mut fastrand::Rng, most: u64) -> Duration {
    Duration::from_millis(rng.u64(0..=most))
}

/// Usually fast, sometimes slow, now and then lost.
fn way(rng: &mut fastrand::Rng, wild: bool) -> Way {
    match rng.u8(..20) {
        0 if wild => Way::Never,
        1 | 2 => Way::After(ms(rng, if wild { 8_000 } else { 900 })),
        3..9 => Way::After(ms(rng, 300)),
        _ => Way::After(ms(rng, 20)),
    }
}

fn script(store: &Memory, seed: u64) {
    let rng = Mutex::new(fastrand::Rng::with_seed(seed ^ 0x5eed));
    let wild = !seed.is_multiple_of(3);
    store.script(move |call| {
        let mut rng = rng.lock().unwrap();
        let there = way(&mut rng, wild);
        // A lost event breaks its watch; that happens in wild schedules only, too.
        let back = if call.action == Action::Event { there } else { way(&mut rng, wild) };
        Fate { there, back }
    });
}

/// Runs one client: rounds of waiting, working, and releasing in one of several ways.
async fn client(
    store: Memory,
    mut rng: fastrand::Rng,
    wild: bool,
    counts: &BackendScheduleCounts,
) -> Result<(), String> {
    let locks =
        Locks::builder(store.clone()).ttl(TTL).start().map_err(|error| error.to_string())?;
    for _ in 0..ROUNDS {
        tokio::time::sleep(ms(&mut rng, 2_000)).await;
        let waited = rng.bool().then(|| Duration::from_secs(3_000));
        let asked = match waited {
            Some(wait) => locks.lock(LOCK).wait(wait).await,
            None => locks.lock(LOCK).await,
        };
        let guard = match asked {
            Ok(guard) => guard,
            Err(Error::Held { .. }) => return Err("waited in vain".to_owned()),
            Err(Error::Unavailable { .. }) if wild => {
                bump(&counts.unavailable);
                continue;
            }
            Err(other) => return Err(other.to_string()),
        };
        bump(&counts.grants);
        bump(&counts.waits);
        let cut = wild && rng.u8(..4) == 0;
        if cut {
            bump(&counts.cuts);
            store.partition();
        }
        let steps = if rng.bool() { 4 } else { 30 };
        for _ in 0..rng.u32(0..steps) {
            // No time passes between the check and the step.
            if guard.check().is_err() {
                bump(&counts.losses);
                break;
            }
            bump(&counts.steps);
            let holder = store.holder(LOCK);
            if holder != Some(guard.token()) {
                return Err(format!("T4: a step under {} while {holder:?} holds", guard.token()));
            }
            tokio::time::sleep(ms(&mut rng, 1_000)).await;
        }
        match rng.u8(..3) {
            0 => drop(guard),
            _ => drop(guard.release().await),
        }
        if cut {
            tokio::time::sleep(ms(&mut rng, 20_000)).await;
            store.heal();
        }
    }
    Ok(())
}

async fn world(seed: u64, counts: &BackendScheduleCounts) -> Result<(), String> {
    let _virtual = virtual_time::enter();
    let (store, mut rng) = (Memory::new(), fastrand::Rng::with_seed(seed));
    script(&store, seed);
    let wild = !seed.is_multiple_of(3);
    let mut clients = Vec::new();
    for at in 0..rng.u64(2..=4) {
        let name = format!("client-{at}");
        clients.push(client(
            store.client(&name),
            fastrand::Rng::with_seed(rng.u64(..)),
            wild,
            counts,
        ));
    }
    let mut all = Vec::new();
    for client in clients {
        all.push(Box::pin(client));
    }
    let all_clients = async {
        // Polls all of them on this task, in the order of their timers.
        let mut results = vec![None; all.len()];
        std::future::poll_fn(|context| {
            for (result, client) in results.iter_mut().zip(&mut all) {
                if result.is_none()
                    && let std::task::Poll::Ready(done) = client.as_mut().poll(context)
                {
                    *result = Some(done);
                }
            }
            if results.iter().all(Option::is_some) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
        results.into_iter().flatten().collect::<Result<Vec<()>, String>>()
    };
    match tokio::time::timeout(TIMEOUT, all_clients).await {
        Ok(done) => done.map(|_| ()),
        Err(_) => Err("waited in vain".to_owned()),
    }
}

/// Returns the first violation among the schedules, with its seed.
fn find(counts: &BackendScheduleCounts) -> Option<(u64, String)> {
    (0..SCHEDULES).find_map(|seed| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let found = runtime.block_on(world(seed, counts)).err();
        found.map(|violation| (seed, violation))
    })
}

#[test]
fn one_holder_at_a_time_and_no_waiter_waits_in_vain() {
    let counts = BackendScheduleCounts::default();
    if let Some((seed, violation)) = find(&counts) {
        panic!("seed {seed}: {violation}");
    }
    println!("{SCHEDULES} schedules: {counts:?}");
    // A schedule in which nothing goes wrong proves nothing.
    let many = |count: &AtomicU64| count.load(Ordering::Relaxed);
    assert!(many(&counts.grants) > 1_000 && many(&counts.steps) > 10_000, "{counts:?}");
    assert!(many(&counts.losses) > 100 && many(&counts.cuts) > 100, "{counts:?}");
}

#[test]
fn a_watch_that_begins_after_the_try_misses_the_event() {
    plant::select(Some("watch_after_try"));
    let found = find(&BackendScheduleCounts::default());
    plant::select(None);
    let (seed, violation) = found.expect("the planted bug was not caught");
    println!("caught watch_after_try after {} schedules: {violation}", seed + 1);
    assert_eq!(violation, "waited in vain");
}

#[test]
fn a_lock_that_was_given_back_cancels_no_work() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let _virtual = virtual_time::enter();
        let store = Memory::new();
        // A renewal that is on its way during the release finds that the key is gone.
        store.script(|call| match call.action {
            Action::Swap => Fate::after(Duration::from_secs(1)),
            _ => Fate::default(),
        });
        let locks = Locks::builder(store.clone()).ttl(TTL).start().unwrap();
        let guard = locks.lock(LOCK).await.unwrap();
        let stop = guard.cancellation();
        tokio::time::sleep(TTL / 3 + Duration::from_millis(500)).await;
        guard.release().await.unwrap();
        tokio::time::sleep(TTL * 2).await;
        assert!(!stop.is_cancelled());
        // A lock whose key another client deletes is lost as soon as a renewal finds out.
        let guard = locks.lock(LOCK).await.unwrap();
        assert!(store.delete(LOCK));
        assert_eq!(guard.lost().await, tenure::Cause::Gone);
        assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
    });
}

/// How long after the last renewal a polling thread is told to stop, while the runtime is blocked.
fn told_after(ttl: Duration) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move {
        let builder = Locks::builder(Memory::new()).ttl(ttl).window(ttl * 2 / 5);
        let locks = builder.start().unwrap();
        let before = tenure::engine::now();
        let guard = locks.lock(LOCK).await.unwrap();
        let stop = guard.cancellation();
        let work = std::thread::spawn(move || {
            while !stop.is_cancelled() {
                std::thread::sleep(Duration::from_millis(1));
            }
            tenure::engine::now().since(before)
        });
        // Nothing on the runtime runs until long after the store has given the lock away.
        while tenure::engine::now().since(before) < ttl * 5 / 4 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(guard.check().is_err(), "a check compares the clock, whichever task runs");
        // Only now may a timer of the runtime fire.
        tokio::time::sleep(Duration::from_millis(1)).await;
        work.join().unwrap()
    })
}

#[test]
fn work_is_told_to_stop_by_a_thread_even_if_the_runtime_is_blocked() {
    let ttl = Duration::from_secs(2);
    let told = told_after(ttl);
    assert!(told < ttl, "told after {told:?} of a ttl of {ttl:?}");
    plant::select(Some("timer_on_the_runtime_only"));
    let told = told_after(ttl);
    plant::select(None);
    assert!(told >= ttl, "the planted bug was not caught: told after {told:?}");
}
