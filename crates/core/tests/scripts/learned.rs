//! Tests that known bugs of other lock services do not occur here.

use crate::script::check;

#[test]
fn a_release_that_was_never_agreed_on_frees_nothing() {
    check(
        "
         0s  A lease 60s                   granted
         0s  B lease 60s                   granted
         0s  A lock deploy                 held token=1
         0s  B lock deploy                 queued ahead=0
         0s  term 2                        -
         1s  in term 1: A unlock deploy    refused not-leader
         1s  show deploy                   A token=1 | B
    ",
    );
}

#[test]
fn whether_a_grant_stands_depends_on_the_log_alone_and_never_on_when_it_is_replayed() {
    // The second machine of every script replays the same entries after a snapshot. Its only clock is the one in the
    // log.
    check(
        "
         0s  A lease 1s            granted
         0s  A lock deploy         held token=1
         0s  term 2                -
         0s  show deploy           A token=1
       999ms  A renew              renewed
         0s  term 3                -
       999ms  A unlock deploy      released
    ",
    );
}

#[test]
fn a_new_leaders_clock_neither_ends_a_lease_early_nor_keeps_it_long() {
    check(
        "
      5000s  A lease 10s           granted
         0s  term 2                -
      9999ms  show-lease A         10s of 10s left
      9999ms  -                    -
      9999ms  show-lease A         1ms of 10s left
        10s  -                     A expired
    ",
    );
}

#[test]
fn a_clock_that_went_back_never_leaves_a_lock_held_for_ever() {
    check(
        "
        20s  A lease 10s           granted
        20s  A lock deploy         held token=1
         1s  -                     -
         1s  due                   30s
        29s  -                     -
        30s  -                     A lost deploy; A expired
    ",
    );
}

#[test]
fn long_work_renews_instead_of_guessing_its_length() {
    let mut script = String::from("0s  A lease 10s  granted\n0s  A lock job  held token=1\n");
    for minute in 1..=20 {
        script += &format!("{}s  A renew  renewed\n", minute * 9);
    }
    script += "189s  show job  A token=1\n190s  -  A lost job; A expired\n";
    check(&script);
}

#[test]
fn a_holder_is_told_that_its_lock_is_lost_and_sees_it_at_its_next_renewal() {
    check(
        "
         0s  A lease 60s           granted
         0s  B lease 10s           granted
         0s  A lock one            held token=1
         0s  B lock two            held token=2
         1s  force one token=1     forced, free in 59s; A lost one, forced
         2s  A renew               renewed, lost something at 5
        10s  B renew               gone; B lost two; B expired
    ",
    );
}

#[test]
fn two_asks_that_were_under_way_together_never_get_the_same_token() {
    check(
        "
         0s  A lease 60s + B lease 60s                granted + granted
         0s  A lock one + B lock two + A lock three   held token=1 + held token=2 + held token=3
         0s  term 2                                   -
         0s  B lock four + A lock five                held token=4 + held token=5
    ",
    );
}

#[test]
fn zero_is_never_a_valid_token() {
    check(
        "
         0s  A lease 60s               granted
         0s  A unlock deploy token=0   refused malformed
         0s  A lock deploy             held token=1
         0s  A unlock deploy token=0   refused malformed
         0s  show deploy               A token=1
    ",
    );
}

#[test]
fn an_invented_token_however_large_is_not_the_holders_and_blocks_no_client() {
    check(
        "
         0s  A lease 60s                                  granted
         0s  A lock deploy                                held token=1
         0s  A unlock deploy token=18446744073709551615   refused not-holder
         0s  put k v guard=deploy:18446744073709551615    refused guard-failed
         0s  force deploy token=18446744073709551615      refused token-outdated
         0s  put k v guard=deploy:1                       written version=1
         0s  A unlock deploy                              released
         0s  A lock deploy                                held token=2
    ",
    );
}

#[test]
fn the_order_of_those_who_wait_outlives_every_change_of_the_leader() {
    check(
        "
         0s  A lease 60s           granted
         0s  B lease 60s           granted
         0s  C lease 60s           granted
         0s  D lease 60s           granted
         0s  A lock deploy         held token=1
         0s  C lock deploy         queued ahead=0
         0s  term 2                -
         0s  B lock deploy         queued ahead=1
         0s  term 3                -
         0s  D lock deploy         queued ahead=2
         0s  term 9                -
         1s  A unlock deploy       released; C held token=2
         1s  C unlock deploy       released; B held token=3
         1s  B unlock deploy       released; D held token=4
    ",
    );
}

#[test]
fn one_who_connects_again_does_not_queue_behind_itself() {
    check(
        "
         0s  A lease 60s           granted
         0s  B lease 60s           granted
         0s  A lock deploy         held token=1
         0s  B lock deploy #1/0    queued ahead=0 (place=2)
         1s  B lock deploy #1/0    queued ahead=0 (place=2)
         1s  B lock deploy #2/0    queued ahead=0 (place=2)
         2s  A unlock deploy       released; B held token=2
         2s  B lock deploy #1/0    held token=2
         3s  B unlock deploy       released
         3s  show deploy           free
    ",
    );
}

#[test]
fn a_dead_waiter_is_never_granted_anything() {
    check(
        "
         0s  A lease 60s           granted
         0s  B lease 5s            granted
         0s  C lease 60s           granted
         0s  A lock deploy         held token=1
         1s  B lock deploy         queued ahead=0
         1s  C lock deploy         queued ahead=1
         5s  A unlock deploy       released; B expired; C held token=2
    ",
    );
}

#[test]
fn every_ask_that_was_accepted_ends_in_a_grant_a_refusal_or_a_limit_that_passes() {
    check(
        "
         0s  A lease 60s              granted
         0s  B lease 60s              granted
         0s  C lease 60s              granted
         0s  D lease 5s               granted
         0s  A lock deploy            held token=1
         0s  B lock deploy wait=3s    queued ahead=0
         0s  C lock deploy            queued ahead=1
         0s  D lock deploy            queued ahead=2
         0s  E lock deploy try lease=9s  refused held
         3s  -                        B wait over
         5s  -                        D expired
         6s  A unlock deploy          released; C held token=2
         6s  show deploy              C token=2
    ",
    );
}

#[test]
fn the_answers_of_one_entry_stand_in_the_order_of_its_commands() {
    check(
        "
         0s  A lease 60s              granted
         0s  A lock one + A unlock none + A lock two + A lock one
             .. held token=1 + refused not-holder + held token=2 + held token=1
    ",
    );
}

#[test]
fn a_late_release_of_an_old_hold_does_not_free_the_new_one() {
    check(
        "
         0s  A lease 60s              granted
         0s  A lock deploy            held token=1
         1s  A unlock deploy          released
         2s  A lock deploy            held token=2
         3s  A unlock deploy token=1  refused not-holder
         3s  show deploy              A token=2
    ",
    );
}

#[test]
fn a_stuck_lock_is_freed_by_command_and_the_reason_is_on_record() {
    check("
         0s  A lease 1h                            granted
         0s  B lease 1h                            granted
         0s  A lock deploy                         held token=1
         0s  B lock deploy                         queued ahead=0
        60s  force deploy token=1 now reason=hung  forced; A lost deploy, forced; B held token=2
        60s  events deploy from 5                  5 deploy forced A token=1 reason=hung; 5 deploy granted B token=2
    ");
}
