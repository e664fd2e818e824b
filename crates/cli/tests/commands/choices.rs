//! Tests that a command runs under any one of several locks, or under any slot of a pool, and that its wait is shown.

use crate::stage::{Live, changes, json, lease, ok, one, run, wait};

/// Prints the lock that it runs under.
const NAME: [&str; 4] = ["--", "sh", "-c", "echo under=$TENURE_LOCK"];

/// Prints the lock that it runs under, and waits for a signal.
const STAY: [&str; 4] = ["--", "sh", "-c", "echo under=$TENURE_LOCK; exec sleep 300"];

fn hold(lock: &str, lease: &str, more: &[&str]) -> String {
    ok(&[&["try", lock, "--lease", lease], more].concat()).trim().to_owned()
}

/// How many clients wait for a lock.
fn waiters(lock: &str) -> usize {
    json(&["queue", lock]).len()
}

/// The causes of the events of a lock, in order.
fn causes(lock: &str) -> Vec<String> {
    let changes = changes(lock);
    let events = changes.iter().filter_map(|change| change["events"].as_array()).flatten();
    events.map(|event| event["cause"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn any_one_of_several_locks_is_enough_and_the_command_knows_which() {
    let any = ["run", "-q", "--any", "choice/b", "choice/a"];
    assert_eq!(ok(&[&any[..], &NAME].concat()), "under=choice/a\n", "the first by name");
    let holder = lease("holder");
    let a = hold("choice/a", &holder, &[]);
    assert_eq!(ok(&[&any[..], &NAME].concat()), "under=choice/b\n");
    let b = hold("choice/b", &holder, &[]);

    let held = run(&[&any[..], &["--wait", "0"], &NAME].concat());
    assert_eq!(held.code, 75, "{held:?}");
    assert!(held.err.contains("one of locks `choice/b`, `choice/a` is held"), "{held:?}");
    let late = run(&[&any[..], &["--wait", "50ms"], &NAME].concat());
    assert_eq!(late.code, 75, "{late:?}");
    assert!(late.err.contains("waiting for one of locks `choice/b`, `choice/a`"), "{late:?}");

    let waiting = ["run", "--any", "choice/a", "choice/b", "--client", "chooser"];
    let mut waiting = Live::start(&[&waiting[..], &NAME].concat());
    wait("it waits for both", || (waiters("choice/b") == 1).then_some(()));
    waiting.says("tenure: waiting for one of locks `choice/a`, `choice/b`, you are next");
    let waiter = &one(&["explain", "choice/a"])["ahead"][0];
    assert_eq!(waiter["any"], true, "{waiter}");
    assert_eq!(waiter["locks"], serde_json::json!(["choice/a", "choice/b"]), "{waiter}");
    let text = ok(&["explain", "choice/b"]);
    assert!(text.contains("for any of choice/a, choice/b"), "{text}");
    let text = ok(&["queue", "choice/a"]);
    assert!(text.contains("exclusive, any of choice/a, choice/b"), "{text}");
    ok(&["unlock", "choice/b", "--lease", &holder, "--token", &b]);
    waiting.says("under=choice/b");
    assert_eq!(waiting.ends(), Some(0), "{:?}", waiting.said());
    assert_eq!(waiters("choice/a"), 0, "it has left the queue of the other lock");

    let last = causes("choice/a");
    assert!(last.ends_with(&["queued".to_owned(), "granted_elsewhere".to_owned()]), "{last:?}");
    let text = ok(&["history", "choice/a"]);
    assert!(text.contains("for any of several locks"), "{text}");
    assert!(text.lines().any(|it| it.contains("granted elsewhere  chooser")), "{text}");
    ok(&["unlock", "choice/a", "--lease", &holder, "--token", &a]);
}

#[test]
fn a_run_that_waits_for_any_lock_is_interrupted_and_leaves_all_queues() {
    let holder = lease("holder");
    let tokens = ["leaves/a", "leaves/b"].map(|lock| (lock, hold(lock, &holder, &[])));
    let any = ["run", "--any", "leaves/a", "leaves/b"];
    let mut waiting = Live::start(&[&any[..], &NAME].concat());
    wait("it waits for both", || (waiters("leaves/b") == 1).then_some(()));
    assert_eq!(waiting.interrupt(), Some(130));
    waiting.says("left the queue of one of locks `leaves/a`, `leaves/b`");
    for (lock, token) in tokens {
        assert_eq!(waiters(lock), 0);
        ok(&["unlock", lock, "--lease", &holder, "--token", &token]);
    }
}

#[test]
fn any_slot_of_a_pool_is_enough_also_one_that_is_added() {
    let pool = ["run", "-q", "--pool", "pool/gpu/"];
    let empty = run(&[&pool[..], &NAME].concat());
    assert_eq!(empty.code, 1, "{empty:?}");
    assert!(
        empty.err.contains("error: pool `pool/gpu/` has no slot for this request"),
        "{empty:?}"
    );
    assert!(empty.err.contains("tenure resize pool/gpu/0 1"), "{empty:?}");
    ok(&["resize", "pool/gpu/0", "1"]);
    ok(&["resize", "pool/gpu/1", "2"]);
    let two = [&pool[..], &["--take", "2", "--", "sh", "-c", "echo $TENURE_LOCK $TENURE_SLOTS"]];
    assert_eq!(ok(&two.concat()), "pool/gpu/1 0,1\n", "the other one is too small");
    let mut first = Live::start(&[&pool[..], &STAY].concat());
    first.says("under=pool/gpu/0");
    let holder = lease("holder");
    hold("pool/gpu/1", &holder, &["--slots", "2", "--take", "2"]);

    let held = run(&[&pool[..], &["--wait", "0"], &NAME].concat());
    assert_eq!(held.code, 75, "{held:?}");
    assert!(held.err.contains("pool `pool/gpu/` is held"), "{held:?}");
    assert!(held.err.contains("held by  pool/gpu/0: "), "each slot with its holder: {held:?}");
    assert!(held.err.contains("held by  pool/gpu/1: "), "{held:?}");
    assert!(held.err.contains("look     tenure locks pool/gpu/"), "{held:?}");
    let waiting = ["run", "--pool", "pool/gpu/", "--client", "trainer"];
    let mut waiting = Live::start(&[&waiting[..], &NAME].concat());
    wait("it waits for both", || (waiters("pool/gpu/1") == 1).then_some(()));
    waiting.says("tenure: waiting for pool `pool/gpu/`, you are next");
    let waiter = &one(&["explain", "pool/gpu/0"])["ahead"][0];
    assert_eq!(waiter["pool"], "pool/gpu/", "{waiter}");
    let text = ok(&["explain", "pool/gpu/0"]);
    assert!(text.contains("for any slot of pool pool/gpu/"), "{text}");
    let text = ok(&["queue", "pool/gpu/1"]);
    assert!(text.contains("slots 2, any slot of pool pool/gpu/"), "{text}");
    ok(&["resize", "pool/gpu/2", "1"]);
    waiting.says("under=pool/gpu/2");
    assert_eq!(waiting.ends(), Some(0), "{:?}", waiting.said());
    assert_eq!((waiters("pool/gpu/0"), waiters("pool/gpu/1")), (0, 0));
    first.signal("-TERM");
    first.ends();
}

#[test]
fn a_run_whose_pool_loses_its_last_slot_is_refused() {
    ok(&["resize", "lastly/0", "1"]);
    let holder = lease("holder");
    hold("lastly/0", &holder, &["--slots", "1"]);
    let mut waiting = Live::start(&[&["run", "--pool", "lastly/"][..], &NAME].concat());
    wait("it waits", || (waiters("lastly/0") == 1).then_some(()));
    ok(&["resize", "lastly/0", "--unset"]);
    waiting.says("error: pool `lastly/` has no slot for this request");
    assert_eq!(waiting.ends(), Some(1), "{:?}", waiting.said());
}

#[test]
fn arguments_that_contradict_a_choice_are_refused() {
    let wrong: [&[&str]; 5] = [
        &["--pool", "--any", "wrong/"],
        &["--pool", "--slots", "2", "wrong/"],
        &["--pool", "--shared", "wrong/"],
        &["--pool", "wrong/", "other/"],
        &["--take", "2", "wrong/"],
    ];
    for flags in wrong {
        let ran = run(&[&["run"][..], flags, &["--", "true"]].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.starts_with("error: "), "{ran:?}");
    }
    let ran = run(&["run", "--pool", "wrong/", "other/", "--", "true"]);
    assert!(ran.err.contains("tenure run --pool wrong/ -- COMMAND"), "{ran:?}");
}
