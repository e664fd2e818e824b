//! Tests that abandoning an acquire request gives up its place or locks only with the last request for them.

use crate::script::check;

#[test]
fn an_attempt_that_was_given_up_never_takes_the_lock_from_its_own_retry() {
    check(
        "
         0s  level 2                       raised
         0s  A lease 60s                   granted
         0s  B lease 60s                   granted
         1s  A lock deploy once=k          held token=1 (place=1)
         2s  A lock deploy once=k          held token=1 (place=1)
         3s  A abandon of=k place=1        abandoned
         4s  B lock deploy                 queued ahead=0
         5s  A lock deploy once=k          held token=1 (place=1)
         5s  show deploy                   A token=1 | B
         6s  A abandon of=k place=1        abandoned
         6s  A abandon of=k place=1        abandoned, given up; B held token=2
    ",
    );
}

#[test]
fn a_retry_under_the_lease_alone_counts_like_one_with_a_key() {
    check(
        "
         0s  level 2                       raised
         0s  A lease 60s                   granted
         0s  B lease 60s                   granted
         1s  A lock deploy                 held token=1 (place=1)
         2s  A lock deploy                 held token=1 (place=1)
         3s  A abandon place=1             abandoned
         4s  B lock deploy try             refused held
         5s  A abandon place=1             abandoned, given up
         5s  B lock deploy try             held token=2
    ",
    );
}

#[test]
fn when_every_attempt_was_given_up_a_later_retry_asks_anew() {
    check(
        "
         0s  level 2                       raised
         0s  A lease 60s                   granted
         1s  A lock deploy once=k          held token=1 (place=1)
         1s  A abandon of=k place=1        abandoned, given up
         1s  list                          nothing
         2s  A lock deploy once=k          held token=2 (place=2)
         3s  A lock other #1/0             held token=3 (place=3)
         3s  A abandon of-seq=1 place=3    abandoned, given up
         4s  A lock other #1/0             held token=4 (place=4)
    ",
    );
}

#[test]
fn a_place_in_the_queue_is_given_up_by_its_last_ask_and_those_behind_it_go_on() {
    check(
        "
         0s  level 2                       raised
         0s  A lease 60s                   granted
         0s  B lease 60s                   granted
         0s  C lease 60s                   granted
         1s  A lock data shared            held token=1
         1s  B lock data wait=30s once=b   queued ahead=0 (place=2)
         1s  C lock data shared            queued ahead=1
         2s  B lock data wait=30s once=b   queued ahead=0 (place=2)
         3s  B abandon of=b place=2        abandoned
         3s  show data                     A token=1 shared | B C shared
         4s  B abandon of=b place=2        abandoned, given up; C held token=2
    ",
    );
}

#[test]
fn an_ask_for_several_locks_is_given_up_as_one() {
    check(
        "
         0s  level 2                       raised
         0s  A lease 60s                   granted
         0s  B lease 60s                   granted
         1s  A lock b a c once=k           held a token=1, b token=2, c token=3 (place=1)
         1s  B lock c                      queued ahead=0
         2s  A unlock b                    released
         3s  A abandon of=k place=1        abandoned, given up; B held token=4
         3s  list                          c
    ",
    );
}

#[test]
fn two_keys_for_one_hold_are_counted_apart() {
    check(
        "
         0s  level 2                       raised
         0s  A lease 60s                   granted
         1s  A lock deploy once=k          held token=1 (place=1)
         1s  A lock deploy once=m          held token=1 (place=1)
         2s  A abandon of=k place=1        abandoned
         3s  A abandon of=m place=1        abandoned, given up
         4s  A lock deploy once=k          held token=2 (place=2)
    ",
    );
}

#[test]
fn a_late_one_changes_nothing_for_what_was_asked_since() {
    check(
        "
         0s  level 2                       raised
         0s  A lease 60s                   granted
         1s  A lock deploy once=k          held token=1 (place=1)
         1s  A abandon of=k place=1        abandoned, given up
         2s  A lock deploy once=k          held token=2 (place=2)
         3s  A abandon of=k place=1        abandoned
         3s  A abandon place=7             abandoned
         3s  show deploy                   A token=2
         4s  A unlock deploy               released
         5s  A lock deploy once=k          ended
         5s  A abandon of=k place=2        abandoned
         6s  A lock deploy once=k          held token=3
    ",
    );
}

#[test]
fn one_with_an_id_of_its_own_counts_once_however_often_it_comes() {
    check(
        "
         0s  level 2                              raised
         0s  A lease 60s                          granted
         1s  A lock deploy once=k                 held token=1 (place=1)
         1s  A lock deploy once=k                 held token=1 (place=1)
         2s  A abandon of=k place=1 once=gone     abandoned
         2s  A abandon of=k place=1 once=gone     abandoned
         3s  show deploy                          A token=1
         4s  A lock other #1/0                    held token=2 (place=2)
         4s  A abandon of-seq=1 place=2 #2/0      abandoned, given up
         4s  A abandon of-seq=1 place=2 #2/0      abandoned, given up
    ",
    );
}

#[test]
fn before_the_level_that_brings_it_it_is_not_understood_and_nothing_is_counted() {
    check(
        "
         0s  A lease 60s                          granted
         0s  A lock deploy once=k                 held token=1 (place=1)
         1s  A abandon of=k place=1               refused malformed
         1s  A abandon of=k place=1 once=m        refused malformed
         1s  A abandon place=1 #5/4               refused malformed
         2s  level 2                              raised
         3s  A lock deploy once=k                 held token=1 (place=1)
         4s  A abandon of=k place=1               abandoned
         4s  A abandon of=k place=1               abandoned
         5s  show deploy                          A token=1
    ",
    );
}
