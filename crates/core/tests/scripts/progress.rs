//! Tests that a holder that promised progress loses its lock when its number does not grow in time.

use crate::script::check;

#[test]
fn a_holder_that_is_stuck_is_asked_to_stop_and_loses_the_lock() {
    check(
        "
         0s  level 9                     raised
         0s  A lease 20s                 granted
         0s  B lease 60s                 granted
         0s  A lock copy progress=10s    held token=1
         5s  A progress copy 1           noted, due in 10001ms
         6s  B lock copy                 queued ahead=0
        10s  A renew                     renewed
        12s  A renew                     renewed
        15s  -                           -
     15001ms  -                           A lost copy, no_progress
     15001ms  show copy                   A token=1 cooling 17s | B
        20s  A stopped copy              stopped; B held token=2
    ",
    );
}

#[test]
fn a_holder_that_does_not_answer_keeps_others_out_until_its_lease_would_have_ended() {
    check(
        "
         0s  level 9                     raised
         0s  A lease 20s                 granted
         0s  B lease 60s                 granted
         0s  A lock copy progress=10s    held token=1
         0s  B lock copy                 queued ahead=0
         9s  A renew                     renewed
     10001ms  -                           A lost copy, no_progress
        11s  A renew                     renewed, lost something at 6
     29000ms  -                           -
     29001ms  -                           B held token=2
    ",
    );
}

#[test]
fn only_a_larger_number_is_progress() {
    check(
        "
         0s  level 9                     raised
         0s  A lease 60s                 granted
         0s  A lock copy progress=10s    held token=1
         1s  A progress copy 0           noted, due in 9001ms
         2s  A progress copy 5           noted, due in 10001ms
         3s  A progress copy 5           noted, due in 9001ms
         4s  A progress copy 4           noted, due in 8001ms
         4s  explain copy                held by A for 4s; chain A copy; at 5 for 2s, more is due in 8001ms;
             .. free in 56001ms if silent
         5s  A progress copy 6           noted, due in 10001ms
    ",
    );
}

#[test]
fn one_report_counts_for_all_locks_of_the_request() {
    check(
        "
         0s  level 9                     raised
         0s  A lease 60s                 granted
         0s  A lock a b progress=10s     held a token=1, b token=2
         0s  A lock c progress=10s       held token=3
         8s  A progress b 1              noted, due in 10001ms
     10001ms  -                           A lost c, no_progress
     18001ms  -                           A lost a, no_progress;
             .. A lost b, no_progress
    ",
    );
}

#[test]
fn a_downgrade_keeps_the_promise_and_what_was_reported() {
    check(
        "
         0s  level 9                     raised
         0s  A lease 60s                 granted
         0s  A lock copy progress=10s    held token=1
         5s  A progress copy 3           noted, due in 10001ms
         6s  A downgrade copy            shared token=2
         7s  A update copy half          updated version=3
     15001ms  -                           A lost copy, no_progress
    ",
    );
}

#[test]
fn a_waiter_promises_nothing_before_it_holds_the_lock() {
    check(
        "
         0s  level 9                     raised
         0s  A lease 60s                 granted
         0s  B lease 60s                 granted
         0s  A lock copy                 held token=1
         0s  B lock copy progress=10s    queued ahead=0
        30s  A unlock copy               released; B held token=2
     40000ms  -                           -
     40001ms  -                           B lost copy, no_progress
    ",
    );
}

#[test]
fn a_lock_that_is_released_in_time_is_not_lost() {
    check(
        "
         0s  level 9                     raised
         0s  A lease 60s                 granted
         0s  A lock copy progress=10s    held token=1
         9s  A unlock copy               released
        11s  A progress copy 1           refused not-holder (copy)
        30s  show copy                   free
    ",
    );
}

#[test]
fn the_history_tells_the_cause_and_the_number() {
    check(
        "
         0s  level 9                            raised
         0s  A lease 20s                        granted
         0s  A lock copy progress=10s delay=5s  held token=1
     10001ms  -                                  A lost copy, no_progress
        12s  A stopped copy                     stopped
     17001ms  -                                  -
     17001ms  events copy from 4                 4 copy no_progress A token=1 left=10s
             .. reason=the number stayed at 0 for 10000 ms ttl=20s renewed=0s;
             .. 5 copy cooled A token=1 left=5001ms reason=the holder has stopped;
             .. 6 copy delay_over A token=1 (next 7)
    ",
    );
}

#[test]
fn a_report_without_a_promise_changes_nothing() {
    check(
        "
         0s  level 9                     raised
         0s  A lease 60s                 granted
         0s  A lock copy                 held token=1
         1s  A progress copy 1           noted, nothing due
         1s  due                         60001ms
         2s  A progress copy 1 token=9   refused not-holder (copy)
         2s  A progress other 1 token=1  refused not-holder (other)
    ",
    );
}

#[test]
fn below_its_level_a_promise_and_a_report_are_refused() {
    check(
        "
         0s  level 8                     raised
         0s  A lease 60s                 granted
         0s  A lock copy                 held token=1
         0s  A lock slow progress=10s    refused malformed
         0s  A progress copy 1           refused malformed
         0s  level 9                     raised
         0s  A lock slow progress=10s    held token=2
         0s  A progress copy 1           noted, nothing due
    ",
    );
}

#[test]
fn a_promise_is_within_the_limit_of_holds() {
    check(
        "
         0s  level 9                      raised
         0s  A lease 60s                  granted
         0s  limits max_hold_ms=10000     set
         0s  A lock copy progress=11s     refused invalid-max-hold (max_hold_ms is 10000, asked 11000)
         0s  A lock copy progress=10s     held token=1
    ",
    );
}
