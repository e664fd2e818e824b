//! Tests that an exclusive lock has one holder and passes to the waiters in order.

use crate::script::check;

#[test]
fn an_available_lock_is_granted_with_a_token() {
    check(
        "
         0s  A lease 10s       granted
         0s  show deploy       free
         1s  A lock deploy     held token=1
         1s  show deploy       A token=1 (created=2 modified=2 version=1)
    ",
    );
}

#[test]
fn an_available_lock_is_granted_to_one_who_does_not_want_to_wait() {
    check(
        "
         0s  A lease 10s       granted
         1s  A lock deploy try  held token=1
    ",
    );
}

#[test]
fn an_available_lock_takes_no_room_and_needs_no_deleting() {
    check("
         0s  A lease 10s       granted
         0s  weight            129
         1s  A lock deploy     held token=1
         1s  weight            295
         2s  A unlock deploy   released
         2s  show deploy       free
         2s  weight            129
         2s  stats             leases=1 locks=0 grants=0 places=0 keys=0 requests=0 deadlines=1 cut=0
    ");
}

#[test]
fn releasing_hands_over_to_the_first_waiter_who_is_told() {
    check(
        "
         0s  A lease 10s       granted
         0s  B lease 10s       granted
         0s  A lock deploy     held token=1
         1s  B lock deploy     queued ahead=0
         2s  A unlock deploy   released; B held token=2
         2s  show deploy       B token=2 (created=3 modified=5 version=3)
    ",
    );
}

#[test]
fn the_end_of_the_lease_hands_over_to_the_first_waiter_who_is_told() {
    check(
        "
         0s  A lease 10s       granted
         0s  B lease 30s       granted
         0s  A lock deploy     held token=1
         1s  B lock deploy     queued ahead=0
        10s  -                 A lost deploy; A expired; B held token=2
    ",
    );
}

#[test]
fn renewing_the_lease_keeps_the_lock_and_its_token() {
    check(
        "
         0s  A lease 10s       granted
         0s  A lock deploy     held token=1
         9s  A renew           renewed
        15s  A renew           renewed
        20s  show deploy       A token=1 (created=2 modified=2 version=1)
    ",
    );
}

#[test]
fn a_holder_who_asks_again_is_shown_the_token_it_has() {
    check(
        "
         0s  A lease 10s       granted
         0s  A lock deploy     held token=1
         1s  A lock deploy     held token=1
         1s  A lock deploy try  held token=1
         1s  revision          2
         2s  A unlock deploy   released
         2s  show deploy       free
    ",
    );
}

#[test]
fn another_who_asks_for_a_held_lock_waits() {
    check(
        "
         0s  A lease 10s       granted
         0s  B lease 10s       granted
         0s  A lock deploy     held token=1
         1s  B lock deploy     queued ahead=0
         1s  show deploy       A token=1 | B
    ",
    );
}

#[test]
fn one_who_does_not_wait_is_told_who_holds_since_when_and_how_many_wait() {
    check(
        "
         0s  A lease 10s       granted
         0s  B lease 10s       granted
         0s  C lease 10s       granted
         0s  A lock deploy     held token=1
         3s  B lock deploy try      refused held (deploy by A token=1 for 3s, 0 ahead)
         3s  B lock deploy wait=0s  refused held (deploy by A token=1 for 3s, 0 ahead)
         4s  B lock deploy     queued ahead=0
         5s  C lock deploy try  refused held (deploy by A token=1 for 5s, 1 ahead)
         5s  show deploy       A token=1 | B
    ",
    );
}

#[test]
fn only_the_holder_can_release_a_lock() {
    check(
        "
         0s  A lease 10s              granted
         0s  B lease 10s              granted
         0s  A lock deploy            held token=1
         1s  B unlock deploy token=1  refused not-holder (deploy)
         1s  A unlock other           refused not-holder (other)
         1s  show deploy              A token=1
    ",
    );
}

#[test]
fn a_paused_holder_who_comes_back_with_its_old_token_changes_nothing() {
    check(
        "
         0s  A lease 10s                    granted
         0s  B lease 60s                    granted
         0s  A lock data                    held token=1
         1s  put file from-A guard=data:1    written version=1
         2s  B lock data                    queued ahead=0
        10s  -                              A lost data; A expired; B held token=2
        11s  put file from-B guard=data:2    written version=2
        12s  put file stale guard=data:1    refused guard-failed (data)
        12s  A unlock data token=1          refused lease-not-found
        13s  A lease 10s                    granted
        13s  A unlock data token=1          refused not-holder (data)
        13s  A unlock data token=2          refused not-holder (data)
        13s  get file                       from-B version=2
        13s  show data                      B token=2
    ",
    );
}

#[test]
fn many_who_wait_for_one_lock_get_it_one_by_one_in_the_order_in_which_they_came() {
    let mut script = String::from("0s  A lease 5m  granted\n0s  A lock migrate  held token=1\n");
    for pod in 1..=40 {
        script += &format!("1s  P{pod} lock migrate lease=5m  queued ahead={}\n", pod - 1);
    }
    script += "2s  A unlock migrate  released; P1 held token=2\n";
    for pod in 1..40 {
        let (next, token) = (pod + 1, pod + 2);
        script += &format!("3s  P{pod} unlock migrate  released; P{next} held token={token}\n");
    }
    script += "4s  P40 unlock migrate  released\n4s  show migrate  free\n";
    check(&script);
}

#[test]
fn a_release_tells_exactly_one_waiter() {
    check(
        "
         0s  A lease 10s       granted
         0s  B lease 10s       granted
         0s  C lease 10s       granted
         0s  D lease 10s       granted
         0s  A lock deploy     held token=1
         0s  B lock deploy     queued ahead=0
         0s  C lock deploy     queued ahead=1
         0s  D lock deploy     queued ahead=2
         1s  A unlock deploy   released; B held token=2
         1s  show deploy       B token=2 | C D
    ",
    );
}

#[test]
fn a_lock_begins_anew_after_all_holders_and_waiters_have_left() {
    check(
        "
         0s  A lease 10s       granted
         0s  A lock deploy     held token=1
         1s  A unlock deploy   released
         2s  A lock deploy     held token=2
         2s  show deploy       A token=2 (created=4 modified=4 version=1)
    ",
    );
}

#[test]
fn a_lock_and_a_lease_can_be_had_with_one_command_or_not_at_all() {
    check("
         0s  A lock deploy lease=10s      held token=1 (place=1)
         0s  events all from 1            1 lease lease_granted A; 1 deploy granted A token=1 (place=1) (next 2)
         1s  B lock deploy lease=10s      queued ahead=0
         2s  C lock deploy try lease=10s  refused held
         2s  leases                       A, B
         3s  A lock other lease=10s       held token=2
         3s  leases                       A, B
         3s  A lock third lease=20s       refused lease-exists
    ");
}

#[test]
fn metadata_stands_beside_the_holder_and_can_be_replaced_by_it_alone() {
    check(
        "
         0s  A lease 10s                granted
         0s  B lease 10s                granted
         0s  A lock deploy meta=host1   held token=1
         0s  show deploy                A token=1 meta=host1
         1s  A update deploy host2      updated version=2
         1s  show deploy                A token=1 meta=host2
         1s  B update deploy x token=1  refused not-holder
         1s  A update deploy x token=2  refused not-holder
         1s  events deploy from 4       4 deploy updated A token=1 value=host2 was host1@3
         2s  A update deploy \"\"       updated version=3
         2s  events deploy from 5       5 deploy updated A token=1 value=\"\" was host2@4
         2s  show deploy                A token=1
    ",
    );
}
