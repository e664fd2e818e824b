//! Tests that a shared hold becomes exclusive once there is no other holder, without being lost on the way.

use crate::script::check;

#[test]
fn the_only_holder_becomes_exclusive_at_once() {
    check(
        "
         0s  level 10              raised
         0s  A lease 1h            granted
         0s  B lease 1h            granted
         0s  A lock data shared    held token=1
         1s  A upgrade data        held token=2
         2s  B lock data shared    queued ahead=0
         3s  show data             A token=2 | B shared
         4s  A unlock data token=1  refused not-holder (data)
         5s  A downgrade data      shared token=3; B held token=4
         6s  events data from 4    4 data granted A token=1 shared; 5 data upgraded A token=2; 6 data queued B shared;
             .. 7 data downgraded A token=3 shared; 7 data granted B token=4 shared
    ",
    );
}

#[test]
fn it_waits_as_a_shared_holder_until_the_others_have_released() {
    check(
        "
         0s  level 10              raised
         0s  A lease 1h            granted
         0s  B lease 1h            granted
         0s  C lease 1h            granted
         0s  A lock data shared    held token=1
         0s  B lock data shared    held token=2
         1s  A upgrade data        queued ahead=0
         2s  C lock data shared    queued ahead=1
         3s  show data             A token=1 shared, B token=2 shared | A C shared
         4s  B unlock data         released; A held token=3
         5s  A unlock data         released; C held token=4
         6s  events data from 7    7 data queued A reason=upgrade; 8 data queued C shared;
             .. 9 data released B token=2 shared ttl=3600s renewed=0s; 9 data upgraded A token=3;
             .. 10 data released A token=3 ttl=3600s renewed=0s; 10 data granted C token=4 shared
    ",
    );
}

#[test]
fn it_goes_before_those_that_wait_already() {
    check(
        "
         0s  level 10                    raised
         0s  A lease 1h                  granted
         0s  B lease 1h                  granted
         0s  C lease 1h                  granted
         0s  A lock data shared          held token=1
         0s  B lock data shared          held token=2
         1s  C lock data priority=9      queued ahead=0
         2s  A upgrade data              queued ahead=0
         3s  queue data                  A ahead=0 waits 0s, C ahead=1 waits 1s priority=9
         4s  B unlock data               released; A held token=3
         5s  A unlock data               released; C held token=4
    ",
    );
}

#[test]
fn the_second_of_two_holders_that_want_it_is_refused() {
    check(
        "
         0s  level 10                      raised
         0s  A lease 1h                    granted
         0s  B lease 1h                    granted
         0s  A lock data shared            held token=1
         0s  B lock data shared            held token=2
         1s  A upgrade data                queued ahead=0
         2s  B upgrade data                refused deadlock: B data, A data
         3s  B upgrade data independent    refused deadlock: B data, A data
         4s  B upgrade data try            refused held (data by A token=1 for 4s, 0 ahead)
         5s  B unlock data                 released; A held token=3
    ",
    );
}

#[test]
fn a_longer_ring_is_refused_too() {
    check(
        "
         0s  level 10              raised
         0s  A lease 1h            granted
         0s  B lease 1h            granted
         0s  A lock data shared    held token=1
         0s  B lock data shared    held token=2
         0s  A lock own            held token=3
         1s  B lock own            queued ahead=0
         2s  A upgrade data        refused deadlock: A data, B own
         3s  A unlock own          released; B held token=4
         4s  A upgrade data        queued ahead=0
    ",
    );
}

#[test]
fn a_wait_that_ends_leaves_the_shared_hold() {
    check(
        "
         0s  level 10                raised
         0s  A lease 1h              granted
         0s  B lease 1h              granted
         0s  C lease 1h              granted
         0s  A lock data shared      held token=1
         0s  B lock data shared      held token=2
         1s  A upgrade data wait=5s  queued ahead=0
         2s  C lock data shared      queued ahead=1
         7s  -                       A wait over; C held token=3
         8s  show data               A token=1 shared, B token=2 shared, C token=3 shared
         9s  A upgrade data          queued ahead=0
        10s  A leave data            left
        11s  A leave data            already held token=1
        12s  A upgrade data try      refused held (data by B token=2 for 12s, 0 ahead)
    ",
    );
}

#[test]
fn a_hold_that_ends_takes_its_upgrade_with_it() {
    check(
        "
         0s  level 10                raised
         0s  A lease 60s             granted
         0s  B lease 1h              granted
         0s  C lease 1h              granted
         0s  A lock data shared      held token=1
         0s  B lock data shared      held token=2
         1s  A upgrade data          queued ahead=0
         2s  A unlock data           released; A wait over
         3s  A lock data shared      held token=3
         4s  A upgrade data          queued ahead=0
         5s  force data token=3      forced, free in 55001ms; A wait over; A lost data, forced
         6s  queue data              nothing
         7s  A stopped data          stopped
         8s  A lock data shared      held token=4
         9s  A upgrade data          queued ahead=0
        10s  C lock data             queued ahead=1
        60s  B renew                 renewed
        61s  -                       A lost data; A expired
        62s  B unlock data           released; C held token=5
    ",
    );
}

#[test]
fn asking_again_gives_the_present_standing() {
    check(
        "
         0s  level 10                       raised
         0s  A lease 1h                     granted
         0s  B lease 1h                     granted
         0s  A lock data shared             held token=1
         0s  B lock data shared             held token=2
         1s  A upgrade data once=k          queued ahead=0
         2s  A upgrade data                 queued ahead=0
         3s  A lock data shared             held token=1
         4s  A lock data                    refused overlap (data)
         5s  B unlock data                  released; A held token=3
         6s  A upgrade data once=k          held token=3
         7s  A upgrade data resume          held token=3
         8s  A downgrade data               shared token=4
         9s  A upgrade data resume          ended
        10s  B upgrade data                 refused not-holder (data)
        11s  A lock slot slots=2            held token=5 slot=0
        12s  A upgrade slot                 refused not-holder (slot)
    ",
    );
}

#[test]
fn an_abandoned_upgrade_never_costs_the_hold() {
    check(
        "
         0s  level 10                 raised
         0s  A lease 1h               granted
         0s  B lease 1h               granted
         0s  A lock data shared       held token=1 (place=1)
         0s  B lock data shared       held token=2 (place=2)
         1s  A upgrade data           queued ahead=0 (place=3)
         2s  A abandon place=3        abandoned, given up
         3s  A upgrade data           queued ahead=0 (place=4)
         4s  B unlock data            released; A held token=3 (place=4)
         5s  A abandon place=4        abandoned
         6s  show data                A token=3
    ",
    );
}

#[test]
fn a_drained_prefix_does_not_hold_it_back() {
    check(
        "
         0s  level 10              raised
         0s  A lease 1h            granted
         0s  B lease 1h            granted
         0s  A lock db/1 shared    held token=1
         0s  B lock db/1 shared    held token=2
         1s  drain db/             drained
         2s  A upgrade db/1        queued ahead=0
         3s  B unlock db/1         released; A held token=3
    ",
    );
}

#[test]
fn it_keeps_the_longest_and_the_least_hold() {
    check(
        "
          0s  level 10                          raised
          0s  A lease 10s                       granted
          0s  A lock data shared max=60s min=120s  held token=1
          9s  A renew                           renewed
         10s  A upgrade data                    held token=2
         18s  A renew                           renewed
         27s  A renew                           renewed
         36s  A renew                           renewed
         45s  A renew                           renewed
         50s  -                                 A lost data, max_hold
         51s  A stopped data                    stopped
         52s  show data                         A token=2 resting 69001ms
    ",
    );
}

#[test]
fn below_level_10_there_are_no_upgrades() {
    check(
        "
         0s  level 9               raised
         0s  A lease 60s           granted
         0s  A lock data shared    held token=1
         0s  A upgrade data        refused malformed
    ",
    );
}
