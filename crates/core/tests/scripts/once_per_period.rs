//! Tests that a lock with a min hold is not granted again before that time has passed since its grant.

use crate::script::check;

#[test]
fn a_lock_that_is_released_early_rests_until_its_min_hold_is_over() {
    check(
        "
         0s  level 6                raised
         0s  A lease 60s            granted
         0s  B lease 60s            granted
        10s  A lock hourly min=30s  held token=1
        15s  A unlock hourly        released
        15s  show hourly            A token=1 resting 25001ms
        15s  B lock hourly try      refused held (hourly by A token=1 for 5s resting 25001ms, 0 ahead)
        16s  B lock hourly          queued ahead=0
        40s  -                      -
     40001ms  -                      B held token=2
        42s  B unlock hourly        released
        42s  show hourly            free
    ",
    );
}

#[test]
fn a_hold_that_outlasts_the_min_hold_leaves_no_rest() {
    check(
        "
         0s  level 6                raised
         0s  A lease 60s            granted
         0s  A lock hourly min=30s  held token=1
        31s  A unlock hourly        released
        31s  show hourly            free
    ",
    );
}

#[test]
fn the_event_of_the_release_tells_for_how_long_the_lock_rests() {
    check(
        "
         0s  level 6                raised
         0s  A lease 60s            granted
         0s  A lock hourly min=30s  held token=1
        10s  A unlock hourly        released
     30001ms  -                      -
     30001ms  events hourly from 4   4 hourly released A token=1 left=20001ms ttl=60s renewed=0s;
             .. 5 hourly min_hold_over A token=1 (next 6)
     30001ms  show hourly            free
    ",
    );
}

#[test]
fn the_former_holder_waits_like_everybody_else() {
    check(
        "
         0s  level 6                raised
         0s  A lease 60s            granted
         0s  A lock hourly min=30s  held token=1
         1s  A unlock hourly        released
         2s  A lock hourly try      refused held (hourly by A token=1 for 2s resting 28001ms, 0 ahead)
         3s  A lock hourly          queued ahead=0
     30001ms  -                      A held token=2
    ",
    );
}

#[test]
fn the_rest_comes_after_the_cooling_and_the_lock_delay() {
    check(
        "
         0s  level 6                         raised
         0s  A lease 10s                     granted
         0s  B lease 60s                     granted
         0s  A lock hourly min=30s delay=5s  held token=1
         1s  B lock hourly                   queued ahead=0
         2s  force hourly token=1            forced, free in 8001ms; A lost hourly, forced
         2s  show hourly                     A token=1 cooling 8001ms | B
     10001ms  -                               A expired
     10001ms  show hourly                     A token=1 delayed 5001ms | B
     15002ms  -                               -
     15002ms  show hourly                     A token=1 resting 14999ms | B
     30001ms  -                               B held token=2
    ",
    );
}

#[test]
fn a_lock_whose_holder_died_rests_too() {
    check(
        "
         0s  level 6                raised
         0s  A lease 10s            granted
         0s  B lease 60s            granted
         0s  A lock hourly min=30s  held token=1
         1s  B lock hourly          queued ahead=0
     10001ms  -                      A lost hourly; A expired
     10001ms  show hourly            A token=1 resting 20s | B
     30001ms  -                      B held token=2
    ",
    );
}

#[test]
fn an_operator_ends_a_rest_by_force() {
    check(
        "
         0s  level 6                                      raised
         0s  A lease 60s                                  granted
         0s  B lease 60s                                  granted
         0s  A lock hourly min=30s                        held token=1
         1s  A unlock hourly                              released
         2s  B lock hourly                                queued ahead=0
         3s  force hourly token=1 by=eva reason=failed    forced; B held token=2
         3s  events hourly from 7                         7 hourly min_hold_over A token=1 by=eva reason=failed;
             .. 7 hourly granted B token=2 (place=2) (next 8)
         4s  force hourly token=1                         refused token-outdated (hourly by B token=2 for 1s)
    ",
    );
}

#[test]
fn a_grant_that_its_caller_never_heard_of_leaves_no_rest() {
    check(
        "
         0s  level 6                       raised
         0s  A lease 60s                   granted
         0s  A lock hourly min=30s once=k  held token=1
         1s  A abandon of=k place=1        abandoned, given up
         1s  show hourly                   free
    ",
    );
}

#[test]
fn each_slot_of_a_semaphore_rests_for_itself() {
    check(
        "
         0s  level 6                      raised
         0s  A lease 60s                  granted
         0s  B lease 60s                  granted
         0s  C lease 60s                  granted
         0s  A lock api slots=2 min=10s   held token=1 slot=0
         4s  B lock api slots=2 min=10s   held token=2 slot=1
         5s  A unlock api                 released
         5s  B unlock api                 released
         5s  C lock api slots=2           queued ahead=0
     10001ms  -                            C held token=3 slot=0
     10001ms  show api                     C token=3 slot=0, B token=2 slot=1 resting 4s
     14001ms  -                            -
     14001ms  show api                     C token=3 slot=0
    ",
    );
}

#[test]
fn a_shared_hold_that_rests_keeps_out_exclusive_ones_only() {
    check(
        "
         0s  level 6                    raised
         0s  A lease 60s                granted
         0s  B lease 60s                granted
         0s  A lock data shared min=9s  held token=1
         1s  A unlock data              released
         2s  B lock data shared try     held token=2
         3s  B unlock data              released
         4s  B lock data try            refused held (data by A token=1 for 4s resting 5001ms, 0 ahead)
    ",
    );
}

#[test]
fn a_downgrade_does_not_begin_the_min_hold_again() {
    check(
        "
         0s  level 6              raised
         0s  A lease 60s          granted
         0s  A lock data min=10s  held token=1
         5s  A downgrade data     shared token=2
         6s  A unlock data        released
         6s  show data            A token=2 shared resting 4001ms
    ",
    );
}

#[test]
fn a_lease_that_waits_for_a_resting_lock_is_not_deadlocked() {
    check(
        "
         0s  level 6              raised
         0s  A lease 60s          granted
         0s  B lease 60s          granted
         0s  A lock one min=20s   held token=1
         0s  B lock two           held token=2
         1s  A unlock one         released
         1s  B lock one           queued ahead=0
         1s  A lock two           queued ahead=0
    ",
    );
}

#[test]
fn explain_tells_when_the_rest_is_over() {
    check(
        "
         0s  level 6                raised
         0s  A lease 60s            granted
         0s  A lock hourly min=90s  held token=1
         0s  explain hourly         held by A for 0s; chain A hourly; free in 90001ms if silent
         1s  A unlock hourly        released
         1s  explain hourly         held by A for 1s resting 89001ms; free in 89001ms at the latest
    ",
    );
}

#[test]
fn a_min_hold_is_bounded_by_the_longest_hold_allowed() {
    check(
        "
         0s  level 6                raised
         0s  limits max_hold_ms=60000  set
         0s  A lease 10s            granted
         0s  A lock hourly min=61s  refused invalid-max-hold (max_hold_ms is 60000, asked 61000)
         0s  A lock hourly min=60s  held token=1
    ",
    );
}

#[test]
fn below_level_6_a_min_hold_cannot_be_asked_for() {
    check(
        "
         0s  level 5                        raised
         0s  A lease 60s                    granted
         0s  A lock hourly min=30s once=k   refused malformed
         0s  A lock hourly once=k           held token=1
    ",
    );
}

#[test]
fn a_restore_forgets_rests_and_does_not_wait_for_them() {
    check(
        "
         0s  level 6                                    raised
         0s  limits ttl_max_ms=10000 lock_delay_ms=0    set
         0s  A lease 10s                                granted
         0s  A lock hourly min=1h                       held token=1
         1s  A unlock hourly                            released
         2s  restore epoch=1                            restored
         2s  show hourly                                free
         2s  due                                        11001ms
    ",
    );
}
