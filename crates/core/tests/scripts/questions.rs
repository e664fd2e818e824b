//! Tests the views of locks, queues and leases, and the explanation for a waiter.

use tenure_core::Machine;

use crate::script::{check, play};

#[test]
fn a_lock_shows_its_holders_its_queue_and_its_dates() {
    check(
        "
         0s  A lease 60s               granted
         0s  B lease 60s               granted
         0s  C lease 60s               granted
         0s  A lock data shared meta=r1  held token=1
         0s  show data                 A token=1 shared meta=r1 (created=4 modified=4 version=1)
         1s  B lock data               queued ahead=0
         1s  show data                 A token=1 shared meta=r1 | B (created=4 modified=4 version=1)
         2s  C lock data shared        queued ahead=1
         3s  A unlock data             released; B held token=2
         3s  show data                 B token=2 | C shared (created=4 modified=7 version=3)
    ",
    );
}

#[test]
fn a_lock_that_is_only_waited_for_was_never_modified() {
    check(
        "
         0s  A lease 60s               granted
         0s  B lease 60s               granted
         0s  A lock b                  held token=1
         0s  B lock a b                queued ahead=0
         0s  show a                    nobody | B (created=4 modified=4 version=0)
         1s  B leave a                 left
         1s  show a                    free
    ",
    );
}

#[test]
fn a_queue_shows_who_waits_since_when_behind_whom_and_for_how_much_longer() {
    check("
         0s  A lease 60s               granted
         0s  B lease 60s               granted
         0s  C lease 60s               granted
         0s  A lock job                held token=1
         1s  B lock job                queued ahead=0
         2s  C lock job other wait=9s  queued ahead=1
         4s  -                         -
         4s  queue job                 B ahead=0 waits 3s (place=2),
             .. C ahead=1 waits 2s gives up in 7s for job&other (place=3 behind=2)
         4s  queue job max=1           B ahead=0 waits 3s
         4s  queue job after=2         C ahead=1 waits 2s gives up in 7s for job&other (place=3 behind=2)
         4s  queue job after=3         nothing
         4s  queue other               C ahead=0 waits 2s gives up in 7s for job&other (place=3)
         4s  queue nothing-here        nothing
    ");
}

#[test]
fn a_lease_shows_what_it_holds_waits_for_and_owns() {
    check("
         0s  A lease 60s meta=hello    granted
         0s  B lease 60s               granted
         0s  A lock z                  held token=1
         0s  A lock b                  held token=2
         0s  B lock q                  held token=3
         0s  A lock q a                queued ahead=0
         0s  A put k2 v                written version=1
         0s  A put k1 v                written version=1
         5s  -                         -
         5s  show-lease A              55s of 60s left, holds b=2 z=1, waits a q, keys k1 k2, meta=hello (created=1)
         5s  show-lease A by-handle    55s of 60s left, holds b=2 z=1, waits a q, keys k1 k2, meta=hello (created=1)
    ");
}

#[test]
fn locks_and_leases_are_listed_in_order_page_by_page() {
    check("
         0s  A lease 60s               granted
         0s  B lease 60s               granted
         0s  C lease 60s               granted
         0s  A lock app/b app/a app/c zoo  held app/a token=1, app/b token=2, app/c token=3, zoo token=4
         0s  list app/                 app/a, app/b, app/c
         0s  list app/ max=2           app/a, app/b
         0s  list app/ after=app/b     app/c
         0s  list                      app/a, app/b, app/c, zoo
         0s  list b                    nothing
         0s  leases max=2              A, B
         0s  leases after=2            C
         0s  leases after=3            nothing
    ");
}

#[test]
fn a_waiter_is_told_who_holds_since_when_who_is_before_it_and_when_it_can_be_free() {
    check("
         0s  A lease 30s               granted
         0s  B lease 60s               granted
         0s  C lease 60s               granted
         2s  A lock job                held token=1
         3s  B lock job                queued ahead=0
         4s  C lock job                queued ahead=1
         5s  -                         -
         5s  explain C job             held by A for 3s; ahead B;
             .. own C ahead=1 waits 1s (place=3 behind=2); chain A job; free in 25s if silent
         5s  explain B job             held by A for 3s; own B ahead=0 waits 2s; chain A job; free in 25s if silent
         5s  explain job               held by A for 3s; ahead B C; chain A job; free in 25s if silent
         5s  explain C job max=0       held by A for 3s; own C ahead=1 waits 1s; chain A job; free in 25s if silent
         5s  explain A job max=1       held by A for 3s; ahead B; chain A job; free in 25s if silent
         5s  explain other             free
    ");
}

#[test]
fn the_chain_says_what_the_holder_itself_waits_for() {
    check(
        "
         0s  A lease 60s               granted
         0s  B lease 60s               granted
         0s  C lease 60s               granted
         0s  D lease 60s               granted
         0s  A lock x                  held token=1
         0s  B lock y                  held token=2
         0s  C lock z                  held token=3
         1s  A lock y                  queued ahead=0
         1s  B lock q z                queued ahead=0
         1s  D lock x                  queued ahead=0
         1s  explain D x               held by A for 1s; own D ahead=0 waits 0s;
             .. chain A x, B y, C z; free in 59s if silent
    ",
    );
}

#[test]
fn a_chain_of_independent_tasks_that_comes_back_says_that_it_goes_on() {
    check(
        "
         0s  A lease 60s               granted
         0s  B lease 60s               granted
         0s  A lock x                  held token=1
         0s  B lock y                  held token=2
         0s  A lock y independent      queued ahead=0
         0s  B lock x independent      queued ahead=0
         0s  explain B x               held by A for 0s; own B ahead=0 waits 0s;
             .. chain A x, B y, ...; free in 60s if silent
    ",
    );
}

#[test]
fn a_lock_with_a_longest_hold_is_free_at_the_latest_at_its_end_whatever_the_holder_does() {
    check("
         0s  A lease 10s               granted
         0s  B lease 60s               granted
         0s  A lock job max=30s delay=2s  held token=1
         0s  B lock job                queued ahead=0
         5s  A renew                   renewed
         5s  explain B job             held by A for 5s; own B ahead=0 waits 5s; chain A job; free in 27s at the latest
        14s  A renew                   renewed
        20s  -                         A lost job, max_hold
        20s  explain B job             held by A for 20s cooling 4s; own B ahead=0 waits 20s; free in 6s at the latest
        24s  -                         A expired
        24s  explain B job             held by A for 24s delayed 2s; own B ahead=0 waits 24s; free in 2s at the latest
        26s  -                         B held token=2
    ");
}

#[test]
fn a_lock_of_several_holders_is_free_when_the_last_of_them_is_gone() {
    check(
        "
         0s  A lease 10s               granted
         0s  B lease 50s               granted
         0s  C lease 60s               granted
         0s  A lock data shared        held token=1
         0s  B lock data shared        held token=2
         0s  C lock data               queued ahead=0
         0s  explain C data            held by A for 0s; held by B for 0s; own C ahead=0 waits 0s;
             .. chain A data; free in 50s if silent
    ",
    );
}

#[test]
fn a_question_changes_nothing() {
    check(
        "
         0s  A lease 10s               granted
         0s  A lock job                held token=1
         9s  show job                  A token=1
        99s  show job                  A token=1
        99s  explain A job             held by A for 0s; chain A job; free in 10s if silent
        99s  clock                     0s
        99s  revision                  2
    ",
    );
}

#[test]
fn locks_are_listed_only_after_all_names_were_sorted_in_bounded_steps() {
    let script: String = (0..25)
        .map(|at| format!("0s  A lock l/{:02}  held token={}\n", at * 7 % 25, at + 1))
        .collect();
    let machine = play(&format!("0s  A lease 60s  granted\n{script}")).machine;
    for _ in 0..2 {
        assert!(machine.sorted_locks(10).is_none(), "a call sorts ten names at most");
    }
    let sorted = machine.sorted_locks(10).expect("the third call sorts the last five");
    let names: Vec<String> = (0..25).map(|at| format!("l/{at:02}")).collect();
    let listed = sorted.locks("", None, 100);
    assert_eq!(listed.iter().map(|lock| lock.lock.to_string()).collect::<Vec<_>>(), names);
}

#[test]
fn a_lease_is_forgotten_once_it_has_ended_and_not_before_it_was_seen() {
    let handle = |script: &str| {
        let machine = play(script).machine;
        machine.leases(None, 9).last().expect("a lease lives").handle
    };
    const FIRST: &str = "
         0s  A lease 60s               granted
    ";
    const SECOND: &str = "
         0s  A lease 60s               granted
         0s  B lease 5s                granted
    ";
    let (a, b) = (handle(FIRST), {
        let machine = play(SECOND).machine;
        let all = machine.leases(None, 9);
        all.iter().find(|lease| lease.client.as_str() == "B").expect("it lives").handle
    });
    // A member whose log is behind has not seen the second lease yet.
    let machine = play(FIRST).machine;
    assert!(!machine.has_forgotten(a) && !machine.has_forgotten(b));
    let machine = play(SECOND).machine;
    assert!(!machine.has_forgotten(a) && !machine.has_forgotten(b));
    let machine = play(
        "
         0s  A lease 60s               granted
         0s  B lease 5s                granted
         1s  B revoke                  revoked
    ",
    )
    .machine;
    assert!(!machine.has_forgotten(a) && machine.has_forgotten(b));
}

/// Plays a lock that so many leases share, each with this metadata.
fn shared(holders: usize, metadata: &str) -> Machine {
    let each =
        |text: &dyn Fn(usize) -> String| (1..=holders).map(text).collect::<Vec<_>>().join(" + ");
    let leases = each(&|at| format!("L{at} lease 60s"));
    let locks = each(&|at| format!("L{at} lock data shared meta={metadata}"));
    let (granted, held) = (each(&|_| "granted".into()), each(&|at| format!("held token={at}")));
    let script = format!("0s  {leases}  {granted}\n0s  {locks}  {held}\n");
    play(&script).machine
}

#[test]
fn a_lock_with_very_many_holders_shows_a_part_of_them_and_how_many_more_there_are() {
    let machine = shared(1_030, "m");
    let shown = machine.lock("data").unwrap();
    assert_eq!((shown.holders.len(), shown.more_holders), (1_024, 6));
    let listed = machine.sorted_locks(usize::MAX).unwrap().locks("", None, 9);
    assert_eq!(listed, [shown]);
    // Fewer if they are large.
    let machine = shared(200, &"m".repeat(4_000));
    let shown = machine.lock("data").unwrap();
    assert_eq!(shown.holders.len() + usize::try_from(shown.more_holders).unwrap(), 200);
    assert!((60..70).contains(&shown.holders.len()), "{}", shown.holders.len());
}
