//! Tests which waits are refused as deadlocks, and which similar ones are not.

use crate::script::check;

const FOUR: &str = "
         0s  A lease 60s       granted
         0s  B lease 60s       granted
         0s  C lease 60s       granted
         0s  D lease 60s       granted
";

fn check_four(script: &str) {
    check(&format!("{FOUR}{script}"));
}

#[test]
fn a_ring_of_two_is_refused_and_named_from_the_asker_on() {
    check_four(
        "
         1s  A lock x          held token=1
         1s  B lock y          held token=2
         2s  A lock y          queued ahead=0 (place=3)
         3s  B lock x          refused deadlock: B x, A y
         3s  show x            A token=1
         4s  B unlock y        released; A held token=3
         5s  B lock x          queued ahead=0 (place=4)
    ",
    );
}

#[test]
fn a_ring_of_three_is_refused_and_named_from_the_asker_on() {
    check_four(
        "
         1s  A lock x          held token=1
         1s  B lock y          held token=2
         1s  C lock z          held token=3
         2s  A lock y          queued ahead=0
         2s  B lock z          queued ahead=0
         3s  C lock x          refused deadlock: C x, A y, B z
         3s  C lock x wait=1s  refused deadlock: C x, A y, B z
         3s  C lock x try      refused held
    ",
    );
}

#[test]
fn a_ring_may_pass_through_asks_for_several_locks() {
    check_four(
        "
         1s  A lock x          held token=1
         1s  B lock y          held token=2
         2s  A lock q y        queued ahead=0
         3s  B lock r x        refused deadlock: B x, A y
         3s  list              q, x, y
    ",
    );
}

#[test]
fn a_ring_may_pass_through_a_queue() {
    // B is ahead of A in the queue of x, and needs a lock that A holds.
    check_four(
        "
         1s  C lock x          held token=1
         1s  A lock y          held token=2
         2s  B lock x y        queued ahead=0
         3s  A lock x          refused deadlock: A x, B y
    ",
    );
}

#[test]
fn a_reader_behind_a_writer_that_waits_for_the_readers_friend_is_a_ring() {
    check_four(
        "
         1s  A lock y          held token=1
         1s  B lock x shared   held token=2
         2s  B lock y          queued ahead=0
         2s  C lock x          queued ahead=0
         3s  A lock x shared   refused deadlock: A x, C x, B y
    ",
    );
}

#[test]
fn one_lease_that_waits_twice_can_close_a_ring() {
    check_four(
        "
         1s  C lock x          held token=1
         1s  B lock y          held token=2
         2s  A lock x          queued ahead=0
         2s  B lock x          queued ahead=1
         3s  A lock y          refused deadlock: A y, B x
    ",
    );
}

#[test]
fn a_full_semaphore_whose_holders_all_wait_for_the_asker_is_a_ring() {
    check_four(
        "
         1s  A lock pool slots=2   held token=1 slot=0
         1s  B lock pool slots=2   held token=2 slot=1
         1s  C lock y              held token=3
         2s  B lock y              queued ahead=0
         2s  A lock y              queued ahead=1
         3s  C lock pool slots=2   refused deadlock: C pool, A y
    ",
    );
}

#[test]
fn waits_that_converge_on_one_lock_are_no_ring() {
    check_four(
        "
         1s  A lock x          held token=1
         1s  B lock y          held token=2
         1s  C lock z          held token=3
         2s  B lock x          queued ahead=0
         2s  C lock x          queued ahead=1
         2s  D lock y z        queued ahead=0
         3s  A unlock x        released; B held token=4
    ",
    );
}

#[test]
fn a_chain_without_an_end_in_itself_is_no_ring() {
    check_four(
        "
         1s  A lock x          held token=1
         1s  B lock y          held token=2
         1s  C lock z          held token=3
         2s  C lock y          queued ahead=0
         2s  B lock x          queued ahead=0
         3s  A lock w          held token=4
         3s  D lock w          queued ahead=0
         3s  D lock z          queued ahead=0
    ",
    );
}

#[test]
fn shared_holders_do_not_block_each_other() {
    // B waits for A, and A waits only for D: B's shared hold of x does not block A's.
    check_four(
        "
         1s  B lock x shared   held token=1
         1s  A lock q          held token=2
         1s  D lock v          held token=3
         2s  A lock x:shared v  queued ahead=0
         3s  B lock q          queued ahead=0
         4s  D unlock v        released; A held v token=4, x token=5
         5s  A unlock q        released; B held token=6
    ",
    );
}

#[test]
fn one_of_two_shared_holders_who_goes_on_does_not_free_a_writer() {
    check_four(
        "
         1s  A lock x shared   held token=1
         1s  B lock x shared   held token=2
         1s  C lock y          held token=3
         2s  A lock y          queued ahead=0
         3s  C lock x          refused deadlock: C x, A y
         4s  A leave y         left
         4s  C lock x          queued ahead=0
    ",
    );
}

#[test]
fn a_semaphore_with_a_slot_to_spare_closes_no_ring() {
    check_four(
        "
         1s  B lock pool slots=2     held token=1 slot=0
         1s  A lock q                held token=2
         1s  D lock v                held token=3
         2s  A lock pool:slots-2 v   queued ahead=0
         3s  B lock q                queued ahead=0
         4s  D unlock v              released; A held pool token=4 slot=1, v token=5
    ",
    );
}

#[test]
fn a_semaphore_one_of_whose_holders_goes_on_closes_no_ring() {
    check_four(
        "
         1s  A lock pool slots=2   held token=1 slot=0
         1s  B lock pool slots=2   held token=2 slot=1
         1s  C lock y              held token=3
         2s  A lock y              queued ahead=0
         3s  C lock pool slots=2   queued ahead=0
         4s  B unlock pool         released; C held token=4 slot=1
    ",
    );
}

#[test]
fn one_whose_lease_is_ending_closes_no_ring() {
    check(
        "
         0s  limits ends_per_entry=1  set
         0s  D lease 10s        granted
         0s  A lease 10s        granted
         0s  B lease 60s        granted
         1s  A lock x           held token=1
         1s  B lock y           held token=2
         2s  A lock y           queued ahead=0
        10s  B lock x           queued ahead=0; D expired
        10s  -                  A lost x; A expired; B held token=3
    ",
    );
}

#[test]
fn an_independent_task_of_the_same_lease_closes_no_ring() {
    check_four(
        "
         1s  A lock x               held token=1
         1s  B lock y               held token=2
         2s  A lock y independent   queued ahead=0
         3s  B lock x               queued ahead=0
         4s  A unlock x             released; B held token=3
         5s  B unlock y             released; A held token=4
    ",
    );
    check_four(
        "
         1s  A lock x               held token=1
         1s  B lock y               held token=2
         2s  A lock y               queued ahead=0
         3s  B lock x independent   queued ahead=0
    ",
    );
}

#[test]
fn the_same_two_tasks_that_are_not_independent_are_a_ring() {
    check_four(
        "
         1s  A lock x               held token=1
         1s  B lock y               held token=2
         1s  C lock z               held token=3
         2s  A lock z independent   queued ahead=0
         2s  A lock y               queued ahead=0
         3s  B lock x               refused deadlock: B x, A y
    ",
    );
}

#[test]
fn one_who_has_nothing_can_wait_for_anything() {
    check_four(
        "
         1s  A lock x          held token=1
         1s  B lock x          queued ahead=0
         1s  C lock x          queued ahead=1
         2s  D lock y          held token=2
         2s  A lock y          queued ahead=0
         2s  C lock y          queued ahead=1
    ",
    );
}

#[test]
fn a_lock_that_cools_or_is_paused_closes_no_ring() {
    check_four(
        "
         1s  A lock x delay=5s   held token=1
         1s  B lock y            held token=2
         2s  A lock y            queued ahead=0
         3s  force x token=1     forced, free in 57s; A lost x, forced
         4s  B lock x            queued ahead=0
         5s  A stopped x         stopped
        10s  -                   B held token=3
    ",
    );
}

#[test]
fn a_ring_that_was_refused_can_be_broken_by_leaving() {
    check_four(
        "
         1s  A lock x          held token=1
         1s  B lock y          held token=2
         2s  A lock y          queued ahead=0
         3s  B lock x          refused deadlock: B x, A y
         4s  A leave y         left
         5s  B lock x          queued ahead=0
         6s  A lock y          refused deadlock: A y, B x
    ",
    );
}

#[test]
fn a_search_that_would_take_too_long_lets_the_ask_wait() {
    let waiters = 10_001;
    let asks: Vec<String> = (0..waiters).map(|n| format!("W{n} lock x lease=60s")).collect();
    let answers: Vec<String> = (0..waiters).map(|n| format!("queued ahead={n}")).collect();
    check(&format!(
        "
         0s  limits waiters_per_lock=20000  set
         0s  A lease 60s                    granted
         0s  B lease 60s                    granted
         0s  B lock x                       held token=1
         0s  A lock y                       held token=2
         0s  B lock y                       queued ahead=0
         1s  {}  {}
         2s  A lock x                       queued ahead={waiters}
         2s  stats  leases=10003 locks=2 grants=2 places=10003 keys=0 requests=0 deadlines=10003 cut=1
        ",
        asks.join(" + "),
        answers.join(" + "),
    ));
}

#[test]
fn the_searches_of_one_entry_share_a_budget_from_level_three_on() {
    // Each of the last 40 asks would search the whole queue of `big`.
    let waiters = 3_000;
    let joined = |one: &dyn Fn(usize) -> String, many: usize| {
        (0..many).map(one).collect::<Vec<_>>().join(" + ")
    };
    for (level, cut) in [(2, 0), (3, 24)] {
        check(&format!(
            "
         0s  level {level}  raised
         0s  H lock big lease=60s  held token=1
         0s  {}  {}
         0s  {}  {}
         0s  {}  {}
         1s  {}  {}
         1s  stats  leases=3081 locks=41 grants=41 places=3080 keys=0 requests=0 deadlines=3081 cut={cut}
        ",
            joined(&|n| format!("W{n} lock big lease=60s"), waiters),
            joined(&|n| format!("queued ahead={n}"), waiters),
            joined(&|n| format!("A{n} lock a{n} lease=60s"), 40),
            joined(&|n| format!("held token={}", n + 2), 40),
            joined(&|n| format!("B{n} lock a{n} lease=60s"), 40),
            joined(&|_| String::from("queued ahead=0"), 40),
            joined(&|n| format!("A{n} lock big"), 40),
            joined(&|n| format!("queued ahead={}", waiters + n), 40),
        ));
    }
}

#[test]
fn a_request_that_passes_others_is_refused_if_one_before_it_waits_for_its_lock() {
    let before = "
         0s  A lease 1h                     granted
         0s  B lease 1h                     granted
         0s  C lease 1h                     granted
         0s  H lease 1h                     granted
         0s  H lock queue                   held token=1
         0s  A lock own                     held token=2
         1s  B lock queue own priority=2    queued ahead=0
         2s  C lock queue                   queued ahead=1
    ";
    check(&format!(
        "
         0s  level 10                       raised
        {before}
        10s  A lock queue priority=1        refused deadlock: A queue, B own
        11s  A unlock own                   released
        12s  A lock queue priority=1        queued ahead=1
    "
    ));
    // Older levels did not see the places before it.
    check(&format!(
        "
         0s  level 9                        raised
        {before}
        10s  A lock queue priority=1        queued ahead=1
    "
    ));
}

#[test]
fn a_request_whose_other_work_goes_on_may_wait_behind_one_that_waits_for_its_lock() {
    check(
        "
         0s  level 10                              raised
         0s  A lease 1h                            granted
         0s  B lease 1h                            granted
         0s  C lease 1h                            granted
         0s  H lease 1h                            granted
         0s  H lock queue                          held token=1
         0s  A lock own                            held token=2
         1s  B lock queue own priority=2           queued ahead=0
         2s  C lock queue                          queued ahead=1
        10s  A lock queue priority=1 independent   queued ahead=1
    ",
    );
}
