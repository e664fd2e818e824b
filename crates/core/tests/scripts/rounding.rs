//! Tests that promised durations last a millisecond longer from level 2 on, because leaders round their counts down.

use crate::script::check;

#[test]
fn a_lease_ends_one_millisecond_after_its_ttl_so_that_it_never_ends_before() {
    check(
        "
         0s  level 2           raised
         1s  A lease 10s       granted
         1s  A lock deploy     held token=1
         1s  show-lease A      10001ms of 10s left, holds deploy=1
         5s  A renew           renewed
        15s  -                 -
        15s  show deploy       A token=1
     15001ms  -                 A lost deploy; A expired
    ",
    );
}

#[test]
fn a_lease_of_an_earlier_level_keeps_its_deadline_until_it_is_renewed() {
    check(
        "
         0s  A lease 10s       granted
         0s  B lease 10s       granted
         0s  level 2           raised
         1s  B renew           renewed
        10s  -                 A expired
        11s  -                 -
     11001ms  -                 B expired
    ",
    );
}

#[test]
fn a_lock_that_was_taken_away_cools_for_all_the_time_its_lease_had() {
    check(
        "
         0s  level 2              raised
         0s  A lease 10s          granted
         0s  B lease 60s          granted
         0s  A lock deploy        held token=1
         1s  B lock deploy        queued ahead=0
         2s  force deploy token=1  forced, free in 8001ms; A lost deploy, forced
        10s  -                    -
     10001ms  -                    A expired; B held token=2
    ",
    );
}

#[test]
fn a_lock_delay_lasts_one_millisecond_longer_and_none_stays_none() {
    check(
        "
         0s  level 2               raised
         0s  A lease 10s           granted
         0s  B lease 60s           granted
         0s  A lock one delay=5s   held token=1
         0s  A lock two            held token=2
         0s  B lock one            queued ahead=0
         0s  B lock two            queued ahead=0
         1s  revoke A now          revoked; A lost one, revoked; A lost two, revoked; A revoked; B held token=3
         1s  show one              A token=1 delayed 5001ms | B
         6s  -                     -
      6001ms  -                     B held token=4
    ",
    );
}

#[test]
fn a_waiter_waits_for_all_the_time_that_it_was_willing_to() {
    check(
        "
         0s  level 2                raised
         0s  A lease 60s            granted
         0s  B lease 60s            granted
         0s  A lock deploy          held token=1
         0s  B lock deploy wait=5s  queued ahead=0
         1s  B lock deploy wait=5s  queued ahead=0
         6s  -                      -
      6001ms  -                      B wait over
    ",
    );
}

#[test]
fn a_longest_hold_is_no_promise_to_its_holder_and_ends_when_it_is_reached() {
    check(
        "
         0s  level 2                 raised
         0s  A lease 10s             granted
         0s  B lease 60s             granted
         0s  A lock job max=30s      held token=1
         0s  B lock job              queued ahead=0
        10s  A renew                 renewed
        19s  A renew                 renewed
        19s  explain job             held by A for 19s; ahead B; chain A job; free in 11001ms at the latest
        20s  -                       A lost job, max_hold
        20s  show job                A token=1 cooling 9001ms | B
        29s  -                       -
     29001ms  -                       A expired; B held token=2
    ",
    );
}

#[test]
fn a_restored_cluster_is_quiet_for_as_long_as_a_lease_and_a_delay_could_have_lasted() {
    check(
        "
         0s  level 2                      raised
         5s  restore epoch=1              restored
         0s  A lock deploy try lease=10s  refused quiet (3660002ms left)
         0s  A lock deploy lease=3600s    queued ahead=0
      3500s  renew A                      renewed
   3660001ms  -                            -
   3660002ms  -                            A held token=281474976710657
    ",
    );
}
