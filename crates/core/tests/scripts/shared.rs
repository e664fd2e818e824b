//! Tests which holders share a lock, and that readers and writers wait in order.

use crate::script::check;

#[test]
fn shared_holders_hold_together_each_with_a_token_of_its_own() {
    check(
        "
         0s  A lease 10s           granted
         0s  B lease 10s           granted
         0s  A lock data shared    held token=1
         0s  B lock data shared    held token=2
         0s  show data             A token=1 shared, B token=2 shared
    ",
    );
}

#[test]
fn an_exclusive_ask_waits_for_every_shared_holder() {
    check(
        "
         0s  A lease 10s           granted
         0s  B lease 10s           granted
         0s  C lease 10s           granted
         0s  A lock data shared    held token=1
         0s  B lock data shared    held token=2
         1s  C lock data           queued ahead=0
         2s  B unlock data         released
         3s  A unlock data         released; C held token=3
    ",
    );
}

#[test]
fn shared_asks_wait_for_an_exclusive_holder_and_are_granted_together() {
    check(
        "
         0s  A lease 10s           granted
         0s  B lease 10s           granted
         0s  C lease 10s           granted
         0s  A lock data           held token=1
         1s  B lock data shared    queued ahead=0
         1s  C lock data shared    queued ahead=1
         2s  A unlock data         released; B held token=2; C held token=3
    ",
    );
}

#[test]
fn no_reader_overtakes_a_waiting_writer() {
    check(
        "
         0s  A lease 10s           granted
         0s  B lease 10s           granted
         0s  C lease 10s           granted
         0s  A lock data shared    held token=1
         1s  B lock data           queued ahead=0
         2s  C lock data shared    queued ahead=1
         2s  C lock data shared try  queued ahead=1
         3s  A unlock data         released; B held token=2
         4s  B unlock data         released; C held token=3
    ",
    );
}

#[test]
fn one_who_does_not_wait_is_refused_behind_a_waiting_writer() {
    check(
        "
         0s  A lease 10s             granted
         0s  B lease 10s             granted
         0s  C lease 10s             granted
         0s  A lock data shared      held token=1
         1s  B lock data             queued ahead=0
         2s  C lock data shared try  refused held (data by A token=1 for 2s, 1 ahead)
    ",
    );
}

#[test]
fn readers_behind_a_writer_who_leaves_move_up_at_once() {
    check(
        "
         0s  A lease 10s           granted
         0s  B lease 10s           granted
         0s  C lease 10s           granted
         0s  D lease 10s           granted
         0s  A lock data shared    held token=1
         1s  B lock data           queued ahead=0
         1s  C lock data shared    queued ahead=1
         1s  D lock data shared    queued ahead=2
         2s  B leave data          left; C held token=2; D held token=3
    ",
    );
}

#[test]
fn a_writer_becomes_a_reader_without_a_gap_and_under_a_new_token() {
    check("
         0s  A lease 10s           granted
         0s  B lease 10s           granted
         0s  C lease 10s           granted
         0s  A lock data           held token=1
         1s  B lock data shared    queued ahead=0
         1s  C lock data           queued ahead=1
         2s  A downgrade data      shared token=2; B held token=3
         2s  show data             A token=2 shared, B token=3 shared | C
         2s  events data from 7    7 data downgraded A token=2 shared; 7 data granted B token=3 shared
         3s  A unlock data token=1  refused not-holder
         3s  A unlock data         released
         4s  B unlock data         released; C held token=4
    ");
}

#[test]
fn only_an_exclusive_hold_can_be_downgraded() {
    check(
        "
         0s  A lease 10s            granted
         0s  A lock data shared     held token=1
         0s  A downgrade data       refused not-exclusive (data)
         0s  A lock pool slots=3    held token=2 slot=0
         0s  A downgrade pool       refused not-exclusive (pool)
         0s  A lock job             held token=3
         0s  A downgrade job token=9  refused not-holder
         0s  B lease 10s            granted
         0s  B downgrade job token=3  refused not-holder
    ",
    );
}

#[test]
fn a_shared_holder_who_asks_for_all_of_it_must_give_back_first() {
    check(
        "
         0s  A lease 10s           granted
         0s  A lock data shared    held token=1
         0s  A lock data           refused overlap (data)
         0s  A lock data shared    held token=1
         0s  A unlock data         released
         0s  A lock data           held token=2
         0s  A downgrade data      shared token=3
         0s  A lock data           refused overlap (data)
         0s  A lock data shared    held token=3
    ",
    );
}

#[test]
fn an_expired_writer_lets_all_readers_in() {
    check(
        "
         0s  A lease 5s            granted
         0s  B lease 10s           granted
         0s  C lease 10s           granted
         0s  A lock data           held token=1
         1s  B lock data shared    queued ahead=0
         1s  C lock data shared    queued ahead=1
         5s  -                     A lost data; A expired; B held token=2; C held token=3
    ",
    );
}
