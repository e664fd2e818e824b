//! Tests how several slots of a semaphore are requested together, and how its number of slots is set.

use crate::script::check;

#[test]
fn all_slots_of_a_request_are_granted_together_each_with_its_own_token() {
    check(
        "
         0s  level 11                    raised
         0s  A lease 10s                 granted
         0s  B lease 10s                 granted
         0s  A lock pool slots=3of4      held pool token=1 slot=0, pool token=2 slot=1, pool token=3 slot=2
         0s  B lock pool slots=2of4      queued ahead=0
         0s  show pool                   A token=1 slot=0, A token=2 slot=1, A token=3 slot=2 | B 2 of 4
         1s  A unlock pool token=2       released; B held pool token=4 slot=1, pool token=5 slot=3
         1s  show pool                   A token=1 slot=0, B token=4 slot=1, A token=3 slot=2, B token=5 slot=3
    ",
    );
}

#[test]
fn a_large_request_is_not_passed_by_small_ones_that_would_fit() {
    check(
        "
         0s  level 11                    raised
         0s  A lease 10s                 granted
         0s  B lease 10s                 granted
         0s  C lease 10s                 granted
         0s  A lock pool slots=4         held token=1 slot=0
         0s  B lock pool slots=4of4      queued ahead=0
         0s  C lock pool slots=4         queued ahead=1
         0s  C leave pool                left
         0s  C lock pool slots=4 try     refused held (pool by A token=1 for 0s, 1 ahead)
         0s  C lock pool slots=4         queued ahead=1
         1s  A unlock pool               released; B held pool token=2 slot=0, pool token=3 slot=1, \
             pool token=4 slot=2, pool token=5 slot=3
         2s  B unlock pool token=3       released; C held token=6 slot=1
    ",
    );
}

#[test]
fn slots_are_given_back_one_by_one_and_all_with_the_lease() {
    check(
        "
         0s  level 11                    raised
         0s  A lease 10s                 granted
         0s  B lease 10s                 granted
         0s  A lock pool slots=2of2      held pool token=1 slot=0, pool token=2 slot=1
         0s  B lock pool slots=2of2      queued ahead=0
         1s  A unlock pool token=1       released
         1s  A lock pool slots=2of2      refused overlap (pool)
         1s  A lock pool slots=2         held token=2 slot=1
         2s  A revoke                    revoked; B held pool token=3 slot=0, pool token=4 slot=1
    ",
    );
}

#[test]
fn asking_again_for_the_same_slots_is_the_same_request() {
    check(
        "
         0s  level 11                    raised
         0s  A lease 10s                 granted
         0s  B lease 10s                 granted
         0s  A lock pool slots=2of3      held pool token=1 slot=0, pool token=2 slot=1
         0s  A lock pool slots=2of3      held pool token=1 slot=0, pool token=2 slot=1
         0s  A lock pool slots=3of3      refused overlap (pool)
         0s  B lock pool slots=2of3      queued ahead=0
         0s  B lock pool slots=2of3      queued ahead=0
         0s  B lock pool slots=3         refused overlap (pool)
    ",
    );
}

#[test]
fn a_request_for_more_slots_than_there_are_is_refused() {
    check(
        "
         0s  level 11                      raised
         0s  limits locks_per_lease=3      set
         0s  A lease 10s                   granted
         0s  A lock pool slots=5of4        refused invalid-slots (slots is 4, asked 5)
         0s  A lock pool slots=4of4        refused too-many-locks (locks_per_lease is 3, asked 4)
         0s  A lock pool slots=3of4        held pool token=1 slot=0, pool token=2 slot=1, pool token=3 slot=2
         0s  A lock plain                  refused too-many-locks (locks_per_lease is 3, asked 4)
         0s  B lease 10s                   granted
         0s  limits locks_per_lease=10000 slots=2000  set
         0s  B lock large slots=1025of2000  refused invalid-slots (slots is 1024, asked 1025)
    ",
    );
}

#[test]
fn below_its_level_the_machine_does_not_know_shares_and_sizes() {
    check(
        "
         0s  level 10                    raised
         0s  A lease 10s                 granted
         0s  A lock pool slots=2of4      refused malformed
         0s  resize pool 3               refused malformed
         0s  A lock pool slots=4         held token=1 slot=0
    ",
    );
}

#[test]
fn two_that_hold_a_part_and_want_the_rest_are_a_deadlock() {
    check(
        "
         0s  level 11                    raised
         0s  A lease 10s                 granted
         0s  B lease 10s                 granted
         0s  A lock a slots=2of3         held a token=1 slot=0, a token=2 slot=1
         0s  B lock b slots=2of3         held b token=3 slot=0, b token=4 slot=1
         0s  A lock b slots=2of3         queued ahead=0
         0s  B lock a slots=1of3         held token=5 slot=2
         0s  B unlock a                  released
         0s  B lock a slots=2of3         refused deadlock: B a, A b
    ",
    );
}

#[test]
fn a_larger_semaphore_grants_at_once_in_the_order_of_the_queue() {
    check(
        "
         0s  level 11                    raised
         0s  A lease 10s                 granted
         0s  B lease 10s                 granted
         0s  C lease 10s                 granted
         0s  D lease 10s                 granted
         0s  A lock pool slots=1         held token=1 slot=0
         0s  B lock pool slots=1         queued ahead=0
         0s  C lock pool slots=1         queued ahead=1
         1s  resize pool 2 by=ops        resized; B held token=2 slot=1
         1s  D lock pool slots=1         queued ahead=1
         1s  D lock pool slots=5         queued ahead=1
         2s  resize pool 4               resized; C held token=3 slot=2; D held token=4 slot=3
    ",
    );
}

#[test]
fn a_smaller_semaphore_keeps_its_holders_and_grants_when_they_are_few_enough() {
    check(
        "
         0s  level 11                    raised
         0s  A lease 10s                 granted
         0s  B lease 10s                 granted
         0s  C lease 10s                 granted
         0s  D lease 10s                 granted
         0s  A lock pool slots=3         held token=1 slot=0
         0s  B lock pool slots=3         held token=2 slot=1
         0s  C lock pool slots=3         held token=3 slot=2
         0s  D lock pool slots=3         queued ahead=0
         1s  resize pool 1               resized
         1s  show pool                   A token=1 slot=0, B token=2 slot=1, C token=3 slot=2 | D
         2s  A unlock pool               released
         2s  C unlock pool               released
         2s  show pool                   B token=2 slot=1 | D
         3s  B unlock pool               released; D held token=4 slot=0
    ",
    );
}

#[test]
fn who_waits_for_more_slots_than_are_left_is_told() {
    check(
        "
         0s  level 11                    raised
         0s  A lease 10s                 granted
         0s  B lease 10s                 granted
         0s  C lease 10s                 granted
         0s  A lock pool slots=4         held token=1 slot=0
         0s  B lock pool slots=4of4      queued ahead=0
         0s  C lock pool slots=2of4      queued ahead=1
         1s  resize pool 3               resized; B wait over: invalid-slots (slots is 3, asked 4) (place=2); \
             C held pool token=2 slot=1, pool token=3 slot=2 (place=3)
         1s  B lock pool slots=4of4      refused invalid-slots (slots is 3, asked 4)
    ",
    );
}

#[test]
fn a_size_that_was_set_holds_while_nobody_uses_the_semaphore() {
    check(
        "
         0s  level 11                    raised
         0s  resize pool 2               resized
         0s  show pool                   nobody
         0s  A lease 10s                 granted
         0s  A lock pool                 refused other-kind (pool has 2 slots)
         0s  A lock pool slots=7of9      refused invalid-slots (slots is 2, asked 7)
         0s  A lock pool slots=2of9      held pool token=1 slot=0, pool token=2 slot=1
         1s  A revoke                    revoked
         1s  B lease 10s                 granted
         1s  B lock pool slots=1         held token=3 slot=0
         1s  resize pool any             resized
         1s  A lease 10s                 granted
         1s  A lock pool slots=1         refused other-kind (pool has 2 slots)
         2s  B unlock pool               released
         2s  A lock pool slots=1         held token=4 slot=0
    ",
    );
}

#[test]
fn a_lock_without_slots_gets_none() {
    check(
        "
         0s  level 11                    raised
         0s  A lease 10s                 granted
         0s  A lock deploy               held token=1
         0s  resize deploy 2             refused other-kind (deploy has no slots)
         0s  resize pool 0               refused invalid-slots (slots is 1024, asked 0)
         0s  resize pool 2000            refused invalid-slots (slots is 1024, asked 2000)
         0s  resize pool any             resized
    ",
    );
}

#[test]
fn a_number_that_is_set_already_changes_nothing_below_level_13() {
    // A release of levels 11 and 12 leaves the place of C to the entry in which its lease ends.
    let script = |level: u8, places: u8| {
        format!(
            "
         0s  level {level}              raised
         0s  limits ends_per_entry=1    set
         0s  A lease 60s                granted
         0s  B lease 2s                 granted
         0s  C lease 2s                 granted
         0s  resize pool 1              resized
         0s  A lock pool slots=1        held token=1 slot=0
         0s  C lock pool slots=1        queued ahead=0
         3s  resize pool 1              resized; B expired
         3s  stats                      leases=2 locks=1 grants=1 places={places} keys=0 requests=0 deadlines=2 cut=0
    "
        )
    };
    check(&script(11, 1));
    check(&script(12, 1));
    check(&script(13, 0));
}
