//! Tests that a holder gives its hold to a lease that waits, without a gap and without an overlap.

use crate::script::check;

#[test]
fn the_named_waiter_has_the_lock_at_once_ahead_of_all_others() {
    check(
        "
         0s  level 10            raised
         0s  A lease 1h          granted
         0s  B lease 1h          granted
         0s  C lease 1h          granted
         0s  A lock web          held token=1
         1s  B lock web          queued ahead=0
         2s  C lock web meta=new  queued ahead=1
         3s  A hand web to C     handed on under token=2; C held token=2
         4s  show web            C token=2 meta=new | B
         5s  A unlock web        refused not-holder (web)
         6s  A hand web to B     refused not-holder (web)
         7s  C unlock web        released; B held token=3
         8s  events web from 8   8 web handed_on A token=1 ttl=3600s renewed=0s; 8 web granted C token=2 value=new;
             .. 9 web released C token=2 ttl=3600s renewed=0s; 9 web granted B token=3
    ",
    );
}

#[test]
fn only_a_lease_that_waits_for_this_lock_alone_can_have_it() {
    check(
        "
         0s  level 10              raised
         0s  A lease 1h            granted
         0s  B lease 1h            granted
         0s  C lease 5s            granted
         0s  H lease 1h            granted
         0s  A lock web            held token=1
         0s  H lock other          held token=2
         1s  A hand web to B       refused not-waiting (web)
         2s  B lock web other      queued ahead=0
         2s  A hand web to B       refused not-waiting (web)
         3s  B leave web           left
         3s  B lock web shared     queued ahead=0
         3s  A hand web to B       refused not-waiting (web)
         4s  B leave web           left
         4s  B lock web            queued ahead=0
         4s  B lock other          queued ahead=0
         4s  A hand web to B       refused not-waiting (web)
         4s  B leave other         left
         4s  C lock web            queued ahead=1
         6s  -                     C expired
         6s  A hand web to C       refused not-waiting (web)
         6s  A hand web to A       refused not-waiting (web)
         7s  show web              A token=1 | B
         8s  A hand web to B       handed on under token=3; B held token=3
    ",
    );
}

#[test]
fn a_waiter_whose_other_wait_is_independent_can_have_it() {
    check(
        "
         0s  level 10                    raised
         0s  A lease 1h                  granted
         0s  B lease 1h                  granted
         0s  H lease 1h                  granted
         0s  A lock web                  held token=1
         0s  H lock other                held token=2
         1s  B lock other independent    queued ahead=0
         2s  B lock web                  queued ahead=0
         3s  A hand web to B             handed on under token=3; B held token=3
    ",
    );
}

#[test]
fn a_shared_hold_and_a_slot_are_handed_on_as_they_are() {
    check(
        "
         0s  level 10              raised
         0s  A lease 1h            granted
         0s  B lease 1h            granted
         0s  C lease 1h            granted
         0s  D lease 1h            granted
         0s  A lock data shared    held token=1
         0s  B lock data shared    held token=2
         1s  C lock data           queued ahead=0
         2s  D lock data shared    queued ahead=1
         3s  A hand data to D      handed on under token=3; D held token=3
         4s  show data             B token=2 shared, D token=3 shared | C
         5s  A lock pool slots=2   held token=4 slot=0
         5s  B lock pool slots=2   held token=5 slot=1
         5s  D lock pool slots=2   queued ahead=0
         6s  A hand pool to D      handed on under token=6; D held token=6 slot=0
         7s  show pool             D token=6 slot=0, B token=5 slot=1
    ",
    );
}

#[test]
fn a_min_hold_goes_on_under_the_new_holder() {
    check(
        "
         0s  level 10              raised
         0s  A lease 1h            granted
         0s  B lease 1h            granted
         0s  A lock job min=60s    held token=1
         1s  B lock job            queued ahead=0
        20s  A hand job to B       handed on under token=2; B held token=2
        21s  B unlock job          released
        22s  show job              B token=2 resting 39002ms
    ",
    );
}

#[test]
fn a_repeated_request_hands_on_once() {
    check(
        "
         0s  level 10                 raised
         0s  A lease 1h               granted
         0s  B lease 1h               granted
         0s  A lock web               held token=1
         1s  B lock web               queued ahead=0
         2s  A hand web to B once=k   handed on under token=2; B held token=2
         3s  B unlock web             released
         4s  A lock web               held token=3
         5s  A hand web to B token=1 once=k  handed on under token=2
         6s  show web                 A token=3
    ",
    );
}

#[test]
fn a_leader_hands_on_its_leadership() {
    check(
        "
         0s  level 10                 raised
         0s  A lease 1h               granted
         0s  B lease 1h               granted
         0s  A campaign boss value=a  held token=1
         1s  B campaign boss value=b  queued ahead=0
         2s  A hand boss to B         handed on under token=2; B held token=2
         3s  events boss from 6       6 boss handed_on A token=1 ttl=3600s renewed=0s; 6 boss granted B token=2 value=b
    ",
    );
}

#[test]
fn below_a_drained_prefix_nothing_is_handed_on() {
    check(
        "
         0s  level 10            raised
         0s  A lease 1h          granted
         0s  B lease 1h          granted
         0s  A lock db/1         held token=1
         1s  B lock db/1         queued ahead=0
         2s  drain db/ by=ops    drained
         3s  A hand db/1 to B    refused draining (db/1 below db/ by ops: )
         4s  show db/1           A token=1 | B
    ",
    );
}

#[test]
fn an_upgrade_of_the_giver_ends_and_one_of_another_waits_for_the_new_holder() {
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
         3s  B hand data to C      handed on under token=3; C held token=3
         4s  A hand data to B      refused not-waiting (data)
         5s  B lock data shared    queued ahead=1
         6s  A hand data to B      handed on under token=4; A wait over; B held token=4
         7s  show data             C token=3 shared, B token=4 shared
    ",
    );
}

#[test]
fn below_level_10_nothing_is_handed_on() {
    check(
        "
         0s  level 9               raised
         0s  A lease 60s           granted
         0s  B lease 60s           granted
         0s  A lock web            held token=1
         0s  B lock web            queued ahead=0
         0s  A hand web to B       refused malformed
    ",
    );
}
