//! Tests how long a lease lives and what ends with it.

use crate::script::check;

#[test]
fn an_expired_holder_loses_the_lock_to_the_first_waiter() {
    check(
        "
         1s  A lease 10s       granted
         1s  B lease 60s       granted
         2s  A lock deploy     held token=1
         3s  B lock deploy     queued ahead=0
        11s  -                 A lost deploy; A expired; B held token=2
        12s  A unlock deploy   refused lease-not-found
        12s  show deploy       B token=2
    ",
    );
}

#[test]
fn a_lease_lives_until_its_ttl_has_passed_and_not_one_moment_longer() {
    check(
        "
             1s  A lease 10s   granted
        10999ms  -             -
        10999ms  show-lease A  1ms of 10s left
            11s  -             A expired
            11s  show-lease A  none
    ",
    );
}

#[test]
fn keep_alive_counts_the_ttl_anew() {
    check(
        "
         1s  A lease 10s       granted
         1s  A lock deploy     held token=1
         9s  A renew           renewed
         9s  show-lease A      10s of 10s left, holds deploy=1
        18s  A renew           renewed
        27s  -                 -
        27s  show deploy       A token=1
        28s  -                 A lost deploy; A expired
    ",
    );
}

#[test]
fn a_renewal_emits_no_event_and_moves_no_revision() {
    check(
        "
         1s  A lease 10s       granted
         5s  A renew           renewed
         5s  revision          1
         5s  events all from 1  1 lease lease_granted A
    ",
    );
}

#[test]
fn expiry_wins_against_a_renewal_that_comes_at_the_same_moment() {
    check(
        "
         0s  A lease 30s       granted
         0s  B lease 60s       granted
         0s  A lock deploy     held token=1
        10s  B lock deploy     queued ahead=0
        30s  A renew           gone; A lost deploy; A expired; B held token=2
    ",
    );
}

#[test]
fn a_renewal_that_was_under_way_too_long_finds_no_lease_and_brings_nothing_back() {
    check(
        "
         0s  A lease 30s       granted
         0s  A lock deploy     held token=1
        30s  -                 A lost deploy; A expired
        30s  B lease 30s       granted
        30s  B lock deploy     held token=2
        35s  A renew           gone
        35s  show deploy       B token=2
        35s  A lock deploy     refused lease-not-found
        36s  A lease 30s       granted
        36s  A lock deploy     queued ahead=0
    ",
    );
}

#[test]
fn several_leases_are_renewed_at_once_and_each_is_answered() {
    check(
        "
         0s  A lease 5s        granted
         0s  B lease 20s       granted
         0s  C lease 20s       granted
         6s  renew A B C       gone, renewed, renewed; A expired
         6s  show-lease B      20s of 20s left
         6s  show-lease C      20s of 20s left
    ",
    );
}

#[test]
fn asking_for_a_lease_again_with_the_same_words_is_the_same_lease() {
    check(
        "
         0s  A lease 10s meta=x  granted (created=1)
         5s  A lease 10s meta=x  granted (created=1)
         5s  show-lease A        5s of 10s left, meta=x
         5s  revision            1
    ",
    );
}

#[test]
fn a_lease_number_in_use_is_refused_to_any_other_request() {
    check(
        "
         0s  A lease 10s id=7          granted
         1s  B lease 10s id=7          refused lease-exists (lease 7)
         1s  A lease 20s               refused lease-exists
         1s  A lease 10s meta=x        refused lease-exists
         1s  leases                    A
    ",
    );
}

#[test]
fn a_lease_number_may_be_used_again_after_its_lease_ended() {
    check(
        "
         0s  A lease 10s id=7          granted (created=1)
         5s  A revoke                  revoked
         6s  B lease 20s id=7          granted (created=3)
         6s  leases                    B
    ",
    );
}

#[test]
fn a_stale_handle_never_means_the_lease_that_came_after() {
    check(
        "
         0s  A lease 10s               granted
         0s  A renew by-handle         renewed
         5s  A revoke                  revoked
         6s  A lease 10s               granted
         6s  A renew old-handle        gone
         6s  A lock deploy old-handle  refused lease-not-found
         6s  A lock deploy by-handle   held token=1
         6s  A unlock deploy old-handle  refused lease-not-found
         6s  A revoke old-handle       refused lease-not-found
         6s  A put k v old-handle      refused lease-not-found
         7s  show deploy               A token=1
    ",
    );
}

#[test]
fn revoking_on_the_holders_own_word_frees_its_locks_at_once_and_sends_no_notice() {
    check(
        "
         0s  A lease 10s              granted
         0s  B lease 10s              granted
         0s  A lock deploy delay=5s   held token=1
         1s  B lock deploy            queued ahead=0
         2s  A revoke                 revoked; B held token=2
         2s  A revoke                 refused lease-not-found
    ",
    );
}

#[test]
fn revoking_by_another_lets_the_holder_stop_first() {
    check(
        "
         0s  A lease 10s             granted
         0s  B lease 60s             granted
         0s  A lock deploy           held token=1
         1s  B lock deploy           queued ahead=0
         2s  revoke A reason=stuck   revoked; A lost deploy, revoked; A revoked
         2s  show deploy             A token=1 cooling 8s | B
         9s  -                       -
        10s  -                       B held token=2
    ",
    );
}

#[test]
fn revoking_by_another_at_once_hands_over_at_once() {
    check(
        "
         0s  A lease 10s             granted
         0s  B lease 60s             granted
         0s  A lock deploy           held token=1
         1s  B lock deploy           queued ahead=0
         2s  revoke A now by=ops reason=stuck  revoked; A lost deploy, revoked by ops; A revoked by ops for stuck;
             .. B held token=2
    ",
    );
}

#[test]
fn everything_bound_to_a_lease_ends_with_it_and_those_who_watch_see_it_in_order() {
    check(
        "
         0s  A lease 10s       granted
         0s  B lease 60s       granted
         0s  B lock other      held token=1
         0s  A lock beta       held token=2
         0s  A lock alpha      held token=3
         0s  A lock other      queued ahead=0
         0s  A put key2 v2     written version=1
         0s  A put key1 v1     written version=1
         0s  put free v        written version=1
        10s  -                 A lost beta; A lost alpha; A expired
        10s  events all from 10  10 other expired A (place=4); 10 beta expired A token=2;
             .. 10 alpha expired A token=3; 10 key key1 key_deleted A was v1@8;
             .. 10 key key2 key_deleted A was v2@7; 10 lease expired A (next 11)
        10s  keys              free=v
        10s  list              other
        10s  show-lease A      none
    ",
    );
}

#[test]
fn a_lease_that_ends_is_never_granted_what_it_gives_back() {
    check(
        "
         0s  A lease 10s       granted
         0s  B lease 60s       granted
         0s  A lock one        held token=1
         0s  B lock two        held token=2
         0s  A lock two three  queued ahead=0
         5s  A revoke          revoked
         5s  list              two
         5s  show two          B token=2
    ",
    );
}

#[test]
fn what_is_due_ends_in_slices_but_counts_as_ended_at_once() {
    check(
        "
         0s  limits ends_per_entry=1  set
         0s  A lease 10s       granted
         0s  B lease 10s       granted
         0s  A lock one        held token=1
         0s  B lock two        held token=2
        10s  -                 A lost one; A expired
        10s  due               10s
        10s  show two          B token=2
        10s  leases            nothing
        10s  show-lease B      none
        11s  C lock two lease=10s  held token=3; B lost two; B expired
        11s  due               21s
    ",
    );
}

#[test]
fn a_lease_that_waits_for_its_slice_can_do_nothing_more() {
    check(
        "
         0s  limits ends_per_entry=1  set
         0s  A lease 10s       granted
         0s  B lease 10s       granted
         0s  B lock two        held token=1
        10s  B renew           gone; A expired
    ",
    );
    check(
        "
         0s  limits ends_per_entry=1  set
         0s  A lease 10s       granted
         0s  B lease 10s       granted
         0s  C lease 10s       granted
         0s  C lock two        held token=1
        10s  C unlock two      refused lease-not-found; A expired
        10s  C put k v         refused lease-not-found; B expired
        10s  C lease 10s       granted; C lost two; C expired
    ",
    );
}

#[test]
fn a_number_whose_lease_waits_for_its_slice_is_still_taken() {
    check(
        "
         0s  limits ends_per_entry=1  set
         0s  A lease 10s id=1  granted
         0s  B lease 10s id=2  granted
        10s  B lease 10s       refused lease-exists; A expired
        10s  B lease 10s       granted; B expired
    ",
    );
}

#[test]
fn nothing_is_granted_to_a_waiter_whose_lease_is_due_but_not_yet_ended() {
    check(
        "
         0s  limits ends_per_entry=1  set
         0s  A lease 10s        granted
         0s  B lease 10s        granted
         0s  C lease 60s        granted
         0s  A lock deploy      held token=1
         1s  B lock deploy      queued ahead=0
         1s  C lock deploy      queued ahead=1
        10s  -                  A lost deploy; A expired; C held token=2
        10s  -                  B expired
        10s  events deploy from 8  8 deploy expired A token=1; 8 deploy expired B;
             .. 8 deploy granted C token=2
    ",
    );
}
