//! Tests how locks are taken away, and that other leases are kept out until the holder has stopped.

use crate::script::check;

const HELD: &str = "
         0s  A lease 10s       granted
         0s  B lease 60s       granted
         0s  A lock deploy     held token=1
         1s  B lock deploy     queued ahead=0
";

fn check_held(script: &str) {
    check(&format!("{HELD}{script}"));
}

#[test]
fn a_lock_taken_away_cools_until_the_lease_would_have_ended() {
    check_held(
        "
         2s  force deploy token=1 reason=stuck  forced, free in 8s; A lost deploy, forced (token=1)
         2s  show deploy             A token=1 cooling 8s | B
         2s  A unlock deploy         refused not-holder
         2s  show-lease A            8s of 10s left, lost something at 5
         9s  A renew                 renewed, lost something at 5
        10s  -                       B held token=2
        10s  events deploy from 5    5 deploy forced A token=1 left=8s reason=stuck;
             .. 6 deploy cooled A token=1; 6 deploy granted B token=2
    ",
    );
}

#[test]
fn a_holder_that_loses_a_lock_and_the_history_learn_who_took_it_away_and_why() {
    check_held(
        "
         2s  force deploy token=1 by=ops@host reason=stuck  forced, free in 8s;
             .. A lost deploy, forced by ops@host for stuck (token=1)
         2s  events deploy from 5    5 deploy forced A token=1 left=8s by=ops@host reason=stuck
         3s  revoke B by=ops@host reason=gone now  revoked; B revoked by ops@host for gone
    ",
    );
}

#[test]
fn a_renewal_after_the_lock_was_taken_away_does_not_make_others_wait_longer() {
    check_held(
        "
         2s  force deploy token=1    forced, free in 8s; A lost deploy, forced
         5s  A renew                 renewed, lost something at 5
        10s  -                       B held token=2
        10s  show-lease A            5s of 10s left, lost something at 5
    ",
    );
}

#[test]
fn a_holder_that_says_it_has_stopped_lets_the_next_one_start() {
    check_held(
        "
         2s  force deploy token=1    forced, free in 8s; A lost deploy, forced
         3s  A stopped deploy        stopped; B held token=2
         3s  A stopped deploy        refused not-cooling (deploy)
    ",
    );
}

#[test]
fn only_the_holder_that_was_told_to_stop_can_say_so() {
    check_held(
        "
         2s  A stopped deploy             refused not-cooling (deploy)
         2s  force deploy token=1         forced, free in 8s; A lost deploy, forced
         3s  B stopped deploy token=1     refused not-cooling (deploy)
         3s  A stopped deploy token=2     refused not-cooling (deploy)
         3s  A stopped deploy created=9   refused not-cooling (deploy)
         3s  A stopped other token=1      refused not-cooling (other)
         3s  show deploy                  A token=1 cooling 7s | B
    ",
    );
}

#[test]
fn a_holder_whose_lease_was_revoked_can_still_say_that_it_has_stopped() {
    check_held(
        "
         2s  revoke A                revoked; A lost deploy, revoked; A revoked
         3s  A stopped deploy        stopped; B held token=2
    ",
    );
}

#[test]
fn taking_away_at_once_hands_over_at_once() {
    check_held(
        "
         2s  force deploy token=1 now  forced; A lost deploy, forced; B held token=2
         2s  show-lease A              8s of 10s left, lost something at 5
         2s  A put k v guard=deploy:1  refused guard-failed
    ",
    );
}

#[test]
fn taking_away_again_changes_nothing_and_at_once_ends_the_cooling() {
    check_held(
        "
         2s  force deploy token=1      forced, free in 8s; A lost deploy, forced
         4s  force deploy token=1      forced, free in 6s
         4s  revision                  5
         5s  force deploy token=1 now  forced; B held token=2
    ",
    );
}

#[test]
fn taking_away_needs_the_token_that_the_operator_looked_at() {
    check_held(
        "
         2s  force deploy token=2    refused token-outdated (deploy by A token=1 for 2s)
         2s  force other token=1     refused token-outdated (other by nobody)
         2s  show deploy             A token=1 | B
         3s  A unlock deploy         released; B held token=2
         4s  force deploy token=1    refused token-outdated (deploy by B token=2 for 1s)
         4s  show deploy             B token=2
    ",
    );
}

#[test]
fn one_of_several_shared_holders_is_taken_away_alone() {
    check(
        "
         0s  A lease 10s            granted
         0s  B lease 20s            granted
         0s  C lease 60s            granted
         0s  A lock data shared     held token=1
         0s  B lock data shared     held token=2
         0s  C lock data            queued ahead=0
         1s  force data token=2     forced, free in 19s; B lost data, forced
         1s  show data              A token=1 shared, B token=2 shared cooling 19s | C
         2s  A unlock data          released
         3s  B stopped data         stopped; C held token=3
    ",
    );
}

#[test]
fn a_reader_may_come_beside_a_reader_that_cools() {
    check(
        "
         0s  A lease 10s            granted
         0s  B lease 20s            granted
         0s  A lock data shared     held token=1
         1s  force data token=1     forced, free in 9s; A lost data, forced
         1s  B lock data shared     held token=2
         1s  A lock data shared     held token=3
    ",
    );
}

#[test]
fn one_who_lost_a_lock_may_queue_for_it_again() {
    check_held(
        "
         2s  force deploy token=1    forced, free in 8s; A lost deploy, forced
         3s  A lock deploy           queued ahead=1
         4s  A stopped deploy        stopped; B held token=2
         5s  B unlock deploy         released; A held token=3
    ",
    );
}

#[test]
fn the_pause_after_an_expired_lease_keeps_every_waiter_out() {
    check("
         0s  A lease 10s               granted
         0s  B lease 60s               granted
         0s  A lock deploy delay=5s    held token=1
         1s  B lock deploy             queued ahead=0
        10s  -                         A lost deploy; A expired
        10s  show deploy               A token=1 delayed 5s | B
        10s  C lock deploy try lease=10s  refused held (deploy by A token=1 for 10s delayed 5s, 1 ahead)
        15s  -                         B held token=2
        15s  events deploy from 5      5 deploy expired A token=1 left=5s;
             .. 6 deploy delay_over A token=1; 6 deploy granted B token=2
    ");
}

#[test]
fn there_is_no_pause_after_an_end_that_the_holder_asked_for() {
    check(
        "
         0s  A lease 10s               granted
         0s  B lease 60s               granted
         0s  A lock deploy delay=5s    held token=1
         1s  B lock deploy delay=5s    queued ahead=0
         2s  A unlock deploy           released; B held token=2
         3s  A lock deploy             queued ahead=0
         4s  B revoke                  revoked; A held token=3
    ",
    );
}

#[test]
fn the_pause_follows_the_cooling() {
    check(
        "
         0s  A lease 10s               granted
         0s  B lease 60s               granted
         0s  A lock deploy delay=5s    held token=1
         1s  B lock deploy             queued ahead=0
         2s  force deploy token=1      forced, free in 8s; A lost deploy, forced
        10s  -                         A expired
        10s  show deploy               A token=1 delayed 5s | B
        10s  events deploy from 6      6 deploy cooled A token=1 left=5s
        10s  force deploy token=1 now  refused token-outdated
        15s  -                         B held token=2
    ",
    );
}

#[test]
fn the_pause_begins_when_the_holder_says_it_has_stopped_or_is_stopped_at_once() {
    check(
        "
         0s  A lease 10s               granted
         0s  B lease 60s               granted
         0s  A lock one delay=5s       held token=1
         0s  A lock two delay=5s       held token=2
         0s  A lock three delay=5s     held token=3
         0s  B lock one                queued ahead=0
         2s  force one token=1         forced, free in 8s; A lost one, forced
         3s  A stopped one             stopped
         3s  show one                  A token=1 delayed 5s | B
         3s  A stopped one             refused not-cooling
         4s  force two token=2 now     forced, free in 5s; A lost two, forced
         4s  force three token=3       forced, free in 6s; A lost three, forced
         4s  force three token=3 now   forced, free in 5s
         8s  -                         B held token=4
         9s  -                         -
         9s  list                      one
    ",
    );
}

#[test]
fn revoking_by_another_with_a_pause() {
    check(
        "
         0s  A lease 10s               granted
         0s  A lock one delay=5s       held token=1
         2s  revoke A now              revoked; A lost one, revoked; A revoked
         2s  show one                  A token=1 delayed 5s
         7s  -                         -
         7s  show one                  free
    ",
    );
}

#[test]
fn a_lock_with_a_longest_hold_is_taken_away_one_ttl_before_so_that_it_is_free_in_time() {
    check(
        "
         0s  A lease 10s               granted
         0s  B lease 60s               granted
         0s  A lock deploy max=30s     held token=1
         1s  B lock deploy             queued ahead=0
         9s  A renew                   renewed
        18s  A renew                   renewed
        20s  -                         A lost deploy, max_hold
        20s  show deploy               A token=1 cooling 8s | B
        20s  A renew                   renewed, lost something at 5
        28s  -                         B held token=2
    ",
    );
}

#[test]
fn a_longest_hold_must_be_longer_than_the_ttl() {
    check(
        "
         0s  A lease 10s               granted
         0s  A lock deploy max=10s     refused max-hold-too-short (ttl 10s)
         0s  B lock deploy max=10s lease=10s  refused max-hold-too-short (ttl 10s)
         0s  A lock deploy max=10001ms  held token=1
         1ms  -                         A lost deploy, max_hold
    ",
    );
}

#[test]
fn a_lock_given_back_in_time_is_not_taken_away_from_the_next() {
    check(
        "
         0s  A lease 10s               granted
         0s  B lease 60s               granted
         0s  A lock deploy max=20s     held token=1
         9s  A unlock deploy           released
         9s  B lock deploy             held token=2
        30s  -                         A expired
        30s  show deploy               B token=2
    ",
    );
}

#[test]
fn the_longest_hold_outlives_a_downgrade_and_an_update() {
    check(
        "
         0s  A lease 10s               granted
         0s  A lock deploy max=20s     held token=1
         5s  A downgrade deploy        shared token=2
         5s  A update deploy x         updated version=3
         9s  A renew                   renewed
        10s  -                         A lost deploy, max_hold (token=2)
    ",
    );
}

#[test]
fn a_lease_and_a_longest_hold_that_end_together_end_once() {
    check(
        "
         0s  A lease 10s               granted
         0s  A lock deploy max=20s     held token=1
        10s  -                         A lost deploy; A expired
        10s  show deploy               free
        10s  events deploy from 3      3 deploy expired A token=1
    ",
    );
}

#[test]
fn one_grant_of_several_can_be_taken_away() {
    check(
        "
         0s  A lease 10s               granted
         0s  A lock a b                held a token=1, b token=2
         1s  force b token=2           forced, free in 9s; A lost b, forced
         1s  A lock a                  held token=1
         1s  A lock a b                refused overlap (a)
    ",
    );
}
