//! Tests how the numbered slots of a semaphore are granted.

use crate::script::check;

#[test]
fn as_many_hold_as_there_are_slots_each_with_its_own() {
    check(
        "
         0s  A lease 10s           granted
         0s  B lease 10s           granted
         0s  C lease 10s           granted
         0s  A lock pool slots=2   held token=1 slot=0
         0s  B lock pool slots=2   held token=2 slot=1
         0s  C lock pool slots=2   queued ahead=0
         1s  A unlock pool         released; C held token=3 slot=0
         1s  show pool             C token=3 slot=0, B token=2 slot=1
    ",
    );
}

#[test]
fn the_lowest_free_slot_is_given_first() {
    check(
        "
         0s  A lease 10s           granted
         0s  B lease 10s           granted
         0s  C lease 10s           granted
         0s  A lock pool slots=3   held token=1 slot=0
         0s  B lock pool slots=3   held token=2 slot=1
         0s  C lock pool slots=3   held token=3 slot=2
         1s  B unlock pool         released
         1s  A unlock pool         released
         2s  B lock pool slots=3   held token=4 slot=0
         2s  A lock pool slots=3   held token=5 slot=1
    ",
    );
}

#[test]
fn all_must_agree_on_the_number_of_slots_while_the_semaphore_exists() {
    check(
        "
         0s  A lease 10s           granted
         0s  B lease 10s           granted
         0s  A lock pool slots=2   held token=1 slot=0
         0s  B lock pool slots=3   refused other-kind (pool has 2 slots)
         0s  B lock pool           refused other-kind (pool has 2 slots)
         0s  B lock pool shared    refused other-kind (pool has 2 slots)
         0s  B lock plain          held token=2
         0s  A lock plain slots=2  refused other-kind (plain has no slots)
         1s  A unlock pool         released
         1s  B lock pool slots=3   held token=3 slot=0
    ",
    );
}

#[test]
fn one_lease_has_one_slot_at_most() {
    check(
        "
         0s  A lease 10s           granted
         0s  A lock pool slots=2   held token=1 slot=0
         0s  A lock pool slots=2   held token=1 slot=0
         0s  A lock pool slots=3   refused overlap (pool)
         0s  show pool             A token=1 slot=0
    ",
    );
}

#[test]
fn the_slot_of_an_expired_lease_goes_to_the_first_who_waits() {
    check(
        "
         0s  A lease 5s            granted
         0s  B lease 10s           granted
         0s  C lease 10s           granted
         0s  B lock pool slots=2   held token=1 slot=0
         0s  A lock pool slots=2   held token=2 slot=1
         0s  C lock pool slots=2   queued ahead=0
         5s  -                     A lost pool; A expired; C held token=3 slot=1
    ",
    );
}

#[test]
fn a_slot_that_cools_is_not_granted() {
    check(
        "
         0s  A lease 10s           granted
         0s  B lease 10s           granted
         0s  A lock pool slots=1   held token=1 slot=0
         0s  B lock pool slots=1   queued ahead=0
         1s  force pool token=1    forced, free in 9s; A lost pool, forced
         2s  A stopped pool        stopped; B held token=2 slot=0
    ",
    );
}

#[test]
fn a_semaphore_of_one_slot_is_a_lock_with_a_slot() {
    check(
        "
         0s  A lease 10s           granted
         0s  B lease 10s           granted
         0s  A lock pool slots=1   held token=1 slot=0
         0s  B lock pool slots=1 try  refused held (pool by A token=1 for 0s, 0 ahead)
    ",
    );
}
