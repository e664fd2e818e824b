//! Tests wait limits and leaving the queue.

use crate::script::check;

const HELD: &str = "
         0s  A lease 60s       granted
         0s  B lease 60s       granted
         0s  C lease 60s       granted
         0s  A lock deploy     held token=1
";

fn check_held(script: &str) {
    check(&format!("{HELD}{script}"));
}

#[test]
fn a_wait_with_a_limit_is_over_when_the_limit_has_passed() {
    check_held(
        "
         1s  B lock deploy wait=5s   queued ahead=0
         2s  C lock deploy           queued ahead=1
    5999ms  -                        -
         6s  -                       B wait over
         6s  events deploy from 7    7 deploy wait_timeout B
         6s  show deploy             A token=1 | C
         7s  A unlock deploy         released; C held token=2
    ",
    );
}

#[test]
fn a_lock_that_comes_free_in_time_is_granted_and_the_limit_forgotten() {
    check_held(
        "
         1s  B lock deploy wait=5s   queued ahead=0
         5s  A unlock deploy         released; B held token=2
         9s  -                       -
         9s  show deploy             B token=2
    ",
    );
}

#[test]
fn a_limit_that_passes_at_the_moment_the_holder_expires_ends_the_wait() {
    check_held(
        "
         0s  B lock deploy wait=60s  queued ahead=0
        30s  C renew                 renewed
        30s  B renew                 renewed
        40s  C lock deploy           queued ahead=1
        60s  -                       B wait over; A lost deploy; A expired; C held token=2
    ",
    );
}

#[test]
fn a_wait_that_is_over_is_not_a_refusal_of_the_next_ask() {
    check_held(
        "
         1s  B lock deploy wait=2s   queued ahead=0 (place=2)
         3s  -                       B wait over (place=2)
         4s  B lock deploy wait=2s   queued ahead=0 (place=3)
    ",
    );
}

#[test]
fn asking_again_keeps_the_place() {
    check_held(
        "
         1s  B lock deploy           queued ahead=0 (place=2)
         1s  C lock deploy           queued ahead=1 (place=3)
         2s  B lock deploy           queued ahead=0 (place=2)
         2s  B lock deploy try       queued ahead=0 (place=2)
         2s  revision                6
         2s  show deploy             A token=1 | B C
    ",
    );
}

#[test]
fn asking_again_with_another_limit_replaces_the_old_one() {
    check_held(
        "
         1s  B lock deploy wait=5s   queued ahead=0
         3s  B lock deploy wait=10s  queued ahead=0
         6s  queue deploy            B ahead=0 waits 2s gives up in 10s
         6s  -                       -
         6s  queue deploy            B ahead=0 waits 5s gives up in 7s
         7s  B lock deploy try       queued ahead=0
         7s  queue deploy            B ahead=0 waits 6s gives up in 6s
         7s  B lock deploy           queued ahead=0
         7s  queue deploy            B ahead=0 waits 6s
        14s  -                       -
        14s  show deploy             A token=1 | B
    ",
    );
}

#[test]
fn asking_again_can_shorten_the_wait() {
    check_held(
        "
         1s  B lock deploy           queued ahead=0
         3s  B lock deploy wait=1s   queued ahead=0
         4s  -                       B wait over
    ",
    );
}

#[test]
fn asking_again_in_another_mode_is_refused() {
    check_held(
        "
         1s  B lock deploy           queued ahead=0
         1s  B lock deploy shared    refused overlap (deploy)
         1s  B lock deploy slots=2   refused overlap (deploy)
    ",
    );
}

#[test]
fn leaving_gives_the_place_up_and_the_others_move_up() {
    check_held(
        "
         1s  B lock deploy           queued ahead=0
         1s  C lock deploy           queued ahead=1
         2s  B leave deploy          left
         2s  queue deploy            C ahead=0 waits 1s (place=3)
         2s  B leave deploy          refused not-waiting (deploy)
         3s  A unlock deploy         released; C held token=2
    ",
    );
}

#[test]
fn leaving_too_late_says_what_is_held_so_that_it_can_be_given_back() {
    check_held(
        "
         1s  B lock deploy other     queued ahead=0
         2s  A unlock deploy         released; B held deploy token=2, other token=3
         3s  B leave deploy          already held deploy token=2, other token=3
         3s  B leave other           already held deploy token=2, other token=3
         3s  B leave nothing-else    refused not-waiting
         3s  C leave deploy          refused not-waiting
         4s  B unlock deploy         released
         4s  B leave other           already held token=3
    ",
    );
}

#[test]
fn one_who_waits_and_dies_is_passed_over() {
    check(
        "
         0s  A lease 60s       granted
         0s  B lease 5s        granted
         0s  C lease 60s       granted
         0s  A lock deploy     held token=1
         1s  B lock deploy     queued ahead=0
         1s  C lock deploy     queued ahead=1
         5s  -                 B expired
         6s  A unlock deploy   released; C held token=2
    ",
    );
}

#[test]
fn a_holder_and_its_first_waiter_who_die_together_hand_over_to_the_second() {
    check(
        "
         0s  A lease 5s        granted
         0s  B lease 5s        granted
         0s  C lease 60s       granted
         0s  A lock deploy     held token=1
         0s  B lock deploy     queued ahead=0
         0s  C lock deploy     queued ahead=1
         5s  -                 A lost deploy; A expired; B expired; C held token=2
    ",
    );
}

#[test]
fn a_waiter_keeps_its_place_by_renewing_its_lease() {
    check(
        "
         0s  A lease 60s       granted
         0s  B lease 5s        granted
         0s  A lock deploy     held token=1
         1s  B lock deploy     queued ahead=0
         5s  B renew           gone; B expired
    ",
    );
    check(
        "
         0s  A lease 60s       granted
         0s  B lease 5s        granted
         0s  A lock deploy     held token=1
         1s  B lock deploy     queued ahead=0
         4s  B renew           renewed
         8s  B renew           renewed
        12s  A unlock deploy   released; B held token=2
    ",
    );
}

#[test]
fn one_lease_may_wait_for_several_locks_apart() {
    check(
        "
         0s  A lease 60s       granted
         0s  B lease 60s       granted
         0s  A lock one two    held one token=1, two token=2
         0s  B lock one        queued ahead=0
         0s  B lock two        queued ahead=0
         0s  show-lease B      60s of 60s left, waits one two
         1s  A unlock two      released; B held token=3
         1s  show-lease B      59s of 60s left, holds two=3, waits one
    ",
    );
}

#[test]
fn an_ask_clears_away_places_of_leases_that_are_due_even_if_it_is_refused_itself() {
    check(
        "
         0s  limits ends_per_entry=1  set
         0s  D lease 10s       granted
         0s  B lease 10s       granted
         0s  A lease 60s       granted
         0s  C lease 60s       granted
         0s  A lock deploy     held token=1
         0s  B lock deploy     queued ahead=0
        10s  C lock deploy try  refused held (deploy by A token=1 for 10s, 0 ahead); D expired
        10s  events all from 8  8 lease expired D; 9 deploy expired B (place=2) (next 10)
    ",
    );
}
