//! Tests how any one of several locks is requested.

use crate::script::check;

#[test]
fn the_first_free_lock_by_name_is_granted_at_once() {
    check(
        "
         0s  level 13                   raised
         0s  A lease 10s                granted
         0s  B lease 10s                granted
         0s  C lease 10s                granted
         0s  A lock gpu/1               held token=1
         0s  B lock gpu/2 gpu/1 any-of  held token=2
         0s  C lock gpu/3 gpu/4 any-of  held token=3
         0s  show gpu/2                 B token=2
         0s  show gpu/3                 C token=3
         0s  show gpu/4                 free
    ",
    );
}

#[test]
fn who_has_to_wait_waits_for_all_of_them_and_gets_the_first_that_is_released() {
    check(
        "
         0s  level 13               raised
         0s  A lease 10s            granted
         0s  B lease 10s            granted
         0s  C lease 10s            granted
         0s  A lock a               held token=1
         0s  B lock b               held token=2
         0s  C lock a b any-of try  refused held (a by A token=1 for 0s, 0 ahead)
         0s  C lock a b any-of      queued ahead=0
         0s  show a                 A token=1 | C
         0s  show b                 B token=2 | C
         1s  B unlock b             released; C held token=3
         1s  show a                 A token=1
    ",
    );
}

#[test]
fn each_queue_stays_in_its_own_order() {
    check(
        "
         0s  level 13           raised
         0s  A lease 10s        granted
         0s  B lease 10s        granted
         0s  C lease 10s        granted
         0s  D lease 10s        granted
         0s  A lock a           held token=1
         0s  A lock b           held token=2
         0s  B lock a           queued ahead=0
         0s  C lock a b any-of  queued ahead=0
         0s  D lock a b any-of  queued ahead=1
         1s  A unlock a         released; B held token=3
         2s  A unlock b         released; C held token=4
         3s  C unlock b         released; D held token=5
         3s  show a             B token=3
    ",
    );
}

#[test]
fn asking_again_is_answered_with_what_the_lease_has() {
    check(
        "
         0s  level 13           raised
         0s  A lease 10s        granted
         0s  B lease 10s        granted
         0s  A lock a b any-of  held token=1
         0s  A lock a b any-of  held token=1
         0s  A lock b a any-of  held token=1
         0s  A lock b           held token=2
         0s  B lock a b any-of  queued ahead=0
         0s  B lock a b any-of  queued ahead=0
         0s  B lock a b         refused overlap (a)
         0s  B lock a           refused overlap (a)
         0s  B leave b          left
         0s  show a             A token=1
    ",
    );
}

#[test]
fn a_drained_lock_is_not_chosen() {
    check(
        "
         0s  level 13               raised
         0s  A lease 10s            granted
         0s  B lease 10s            granted
         0s  drain a                drained
         0s  A lock a b any-of      held token=1
         0s  B lock a b any-of      queued ahead=0
         0s  drain b                drained
         1s  A unlock b             released
         1s  A lock a b any-of try  refused draining (a below a: )
         2s  undrain b              opened; B held token=2
    ",
    );
}

#[test]
fn the_other_queues_are_told_in_the_revision_of_the_grant() {
    check(
        "
         0s  level 13           raised
         0s  A lease 10s        granted
         0s  B lease 10s        granted
         0s  A lock a           held token=1
         0s  A lock b           held token=2
         0s  B lock a b any-of  queued ahead=0
         1s  A unlock a         released; B held token=3
         1s  events all from 6  6 a queued B reason=any; 6 b queued B reason=any; \
             7 a released A token=1 ttl=10s renewed=0s; 7 b granted_elsewhere B; 7 a granted B token=3
    ",
    );
}

#[test]
fn a_wait_for_any_ends_with_its_lease_and_its_limit_everywhere() {
    check(
        "
         0s  level 13                   raised
         0s  A lease 30s                granted
         0s  B lease 10s                granted
         0s  C lease 30s                granted
         0s  A lock a                   held token=1
         0s  A lock b                   held token=2
         0s  B lock a b any-of          queued ahead=0
         0s  C lock a b any-of wait=5s  queued ahead=1
         6s  A renew                    renewed; C wait over
         6s  show a                     A token=1 | B
        11s  A renew                    renewed; B expired
        11s  show a                     A token=1
        11s  show b                     A token=2
    ",
    );
}

#[test]
fn below_its_level_the_machine_does_not_know_choices() {
    check(
        "
         0s  level 12           raised
         0s  A lease 10s        granted
         0s  A lock a b any-of  refused malformed
         0s  A lock pool=gpu/   refused malformed
    ",
    );
}

#[test]
fn a_wait_of_which_one_way_out_is_left_is_no_deadlock() {
    check(
        "
         0s  level 13           raised
         0s  A lease 10s        granted
         0s  B lease 10s        granted
         0s  C lease 10s        granted
         0s  A lock a           held token=1
         0s  B lock b           held token=2
         0s  C lock c           held token=3
         0s  B lock a           queued ahead=0
         0s  A lock b c any-of  queued ahead=0
         1s  C unlock c         released; A held token=4
    ",
    );
}

#[test]
fn a_wait_of_which_every_way_is_blocked_is_a_deadlock() {
    check(
        "
         0s  level 13           raised
         0s  A lease 10s        granted
         0s  B lease 10s        granted
         0s  A lock a           held token=1
         0s  B lock b           held token=2
         0s  B lock c           held token=3
         0s  B lock a           queued ahead=0
         0s  A lock b c any-of  refused deadlock: A b, B a
    ",
    );
}

#[test]
fn a_request_that_left_one_queue_is_recognised() {
    check(
        "
         0s  level 13                    raised
         0s  A lease 10s                 granted
         0s  B lease 10s                 granted
         0s  resize a 2                  resized
         0s  resize b 2                  resized
         0s  A lock a slots=2of2         held a token=1 slot=0, a token=2 slot=1
         0s  A lock b slots=2of2         held b token=3 slot=0, b token=4 slot=1
         0s  B lock a b slots=2of2 any-of  queued ahead=0
         1s  resize b 1                  resized
         1s  B lock a b slots=2of2 any-of  queued ahead=0
         1s  show b                      A token=3 slot=0, A token=4 slot=1
         2s  A revoke                    revoked; B held a token=5 slot=0, a token=6 slot=1
    ",
    );
}
