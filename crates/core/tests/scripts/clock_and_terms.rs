//! Tests how the machine's clock advances, and that it survives a change of leader.

use crate::script::check;

#[test]
fn a_new_leader_goes_on_from_the_clock_it_finds() {
    check(
        "
         1s  A lease 10s       granted
         8s  -                 -
         8s  clock             8s (term 1)
         0s  term 2            -
         0s  clock             8s (term 2)
         1s  -                 -
         1s  clock             9s (term 2)
         3s  -                 A expired
    ",
    );
}

#[test]
fn an_election_never_shortens_a_lease() {
    check(
        "
         0s  A lease 10s       granted
         0s  A lock deploy     held token=1
         9s  -                 -
         0s  term 2            -
         0s  show-lease A      1s of 10s left, holds deploy=1
      999ms  -                 -
      999ms  show deploy       A token=1
         1s  -                 A lost deploy; A expired
    ",
    );
}

#[test]
fn an_election_does_not_give_every_lease_its_full_time_again() {
    check(
        "
         0s  A lease 10s       granted
         9s  -                 -
         0s  term 2            -
      500ms  -                 -
         0s  term 3            -
      500ms  -                 A expired
    ",
    );
}

#[test]
fn leases_locks_queues_and_tokens_outlive_every_election() {
    check(
        "
         0s  A lease 60s       granted
         0s  B lease 60s       granted
         0s  C lease 60s       granted
         0s  A lock deploy     held token=1
         1s  B lock deploy     queued ahead=0
         2s  C lock deploy     queued ahead=1
         0s  term 2            -
         0s  show deploy       A token=1 | B C
         0s  term 5            -
         1s  A unlock deploy   released; B held token=2
         2s  B unlock deploy   released; C held token=3
    ",
    );
}

#[test]
fn a_clock_that_counts_backwards_stands_still() {
    check(
        "
        10s  A lease 10s       granted
         5s  -                 -
         5s  clock             10s
         5s  show-lease A      10s of 10s left
        19s  -                 -
        20s  -                 A expired
    ",
    );
}

#[test]
fn a_clock_that_jumps_ends_what_is_due_and_never_revives_it() {
    check(
        "
         0s  A lease 10s       granted
         0s  A lock deploy     held token=1
        24h  -                 A lost deploy; A expired
         1s  A renew           gone
         1s  clock             86400s
    ",
    );
}

#[test]
fn a_count_beyond_the_range_of_the_clock_stops_at_its_end() {
    check(
        "
         0s                      A lease 10s     granted
         18446744073709551615ms  -               A expired
         18446744073709551615ms  clock           1152921504606846975ms
         18446744073709551615ms  B lease 10s     granted
         18446744073709551615ms  show-lease B    none
         18446744073709551615ms  -               B expired
         18446744073709551615ms  -               -
    ",
    );
}

#[test]
fn an_entry_sealed_by_an_earlier_leader_does_nothing_at_all() {
    check(
        "
         0s  A lease 10s                 granted
         0s  B lease 60s                 granted
         0s  A lock deploy               held token=1
         0s  term 2                      -
        30s  in term 1: B lock deploy    refused not-leader
        30s  clock                       0s (term 2)
        30s  show deploy                 A token=1
        30s  in term 1: A renew + A unlock deploy  refused not-leader + refused not-leader
         9s  -                           -
         9s  show-lease A                1s of 10s left, holds deploy=1
    ",
    );
}

#[test]
fn a_renewal_that_an_isolated_leader_took_does_not_count() {
    // No caller gets an answer from the old leader: the entry that it sealed is not committed in its term. If the entry
    // gets into the log of a later term, the machine refuses its commands. The lease ends by the replicated clock.
    check(
        "
         0s  A lease 10s             granted
         0s  A lock deploy           held token=1
         9s  -                       -
         0s  term 2                  -
      900ms  in term 1: A renew      refused not-leader
         1s  B lock deploy lease=10s  held token=2; A lost deploy; A expired
         1s  A unlock deploy         refused lease-not-found
         1s  A put result x guard=deploy:1  refused guard-failed
    ",
    );
}

#[test]
fn an_entry_of_the_log_itself_moves_no_clock_and_ends_nothing() {
    check(
        "
         0s  A lease 1s        granted
     999ms  -                 -
         0s  term 2            -
         9s  term 2            -
         9s  clock             999ms (term 2)
         0s  term 7            -
         0s  show-lease A      1ms of 1s left
    ",
    );
}

#[test]
fn an_entry_that_cannot_be_read_changes_only_whose_count_is_followed() {
    check(
        "
         5s  A lease 10s       granted
         5s  unreadable entry  -
         5s  clock             5s (term 1)
         5s  revision          1
    ",
    );
}

#[test]
fn a_command_that_cannot_be_read_is_refused_and_the_others_run() {
    check(
        "
         0s  A lease 10s + unreadable + A lock deploy  granted + refused malformed + held token=1
    ",
    );
}

#[test]
fn commands_of_one_entry_run_in_order_at_one_moment() {
    check(
        "
         0s  A lease 10s + B lease 10s + A lock deploy + B lock deploy
             .. granted + granted + held token=1 + queued ahead=0
         1s  A unlock deploy + A lock deploy  released + queued ahead=0; B held token=2
         1s  revision          6
    ",
    );
}

#[test]
fn what_is_due_ends_before_any_command_of_the_entry_can_see_it() {
    check(
        "
         0s  A lease 10s       granted
         0s  A lock deploy     held token=1
        10s  A unlock deploy + A lease 10s + A lock deploy
             .. refused lease-not-found + granted + held token=2; A lost deploy; A expired
    ",
    );
}

#[test]
fn the_next_thing_due_is_known_in_advance() {
    check(
        "
         0s  due                            nothing
         0s  A lease 60s                    granted
         0s  due                            60s
         0s  B lease 60s                    granted
         0s  A lock deploy max=70s delay=3s  held token=1
         0s  due                            10s
         1s  B lock deploy wait=5s          queued ahead=0
         1s  due                            6s
         6s  -                              B wait over
         6s  due                            10s
        10s  -                              A lost deploy, max_hold
        10s  A renew                        renewed, lost something at 6
        10s  due                            60s
    ",
    );
}
