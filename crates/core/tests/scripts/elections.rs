//! Tests elections: candidacy, the leader's value, hand-over and vacancy.

use crate::script::check;

#[test]
fn the_first_candidate_leads_and_its_value_is_seen() {
    check(
        "
         0s  A lease 10s                 granted
         0s  B lease 10s                 granted
         0s  A campaign boss value=a:1   held token=1
         0s  B campaign boss value=b:1   queued ahead=0
         0s  show boss                   A token=1 leads meta=a:1 | B
         0s  queue boss                  B ahead=0 waits 0s candidate
         0s  events boss from 3          3 boss granted A token=1 value=a:1; 4 boss queued B
    ",
    );
}

#[test]
fn a_leader_proclaims_a_new_value() {
    check(
        "
         0s  A lease 10s                 granted
         0s  B lease 10s                 granted
         0s  A campaign boss value=a:1   held token=1
         1s  A proclaim boss a:2         updated version=2
         1s  show boss                   A token=1 leads meta=a:2
         1s  events boss from 4          4 boss updated A token=1 value=a:2 was a:1@3
         1s  B proclaim boss b token=1   refused not-holder
    ",
    );
}

#[test]
fn a_leader_who_resigns_hands_over_without_a_vacancy() {
    check(
        "
         0s  A lease 10s                 granted
         0s  B lease 10s                 granted
         0s  A campaign boss value=a     held token=1
         0s  B campaign boss value=b     queued ahead=0
         1s  A resign boss               released; B held token=2
         1s  events boss from 5          5 boss released A token=1; 5 boss granted B token=2 value=b
         1s  A resign boss               refused not-holder
    ",
    );
}

#[test]
fn an_election_without_candidates_is_seen_to_be_vacant() {
    check(
        "
         0s  A lease 10s                 granted
         0s  A campaign boss value=a     held token=1
         1s  A resign boss               released
         1s  events boss from 3          3 boss released A token=1; 3 boss vacant
         1s  show boss                   free
    ",
    );
}

#[test]
fn a_leader_whose_power_fails_is_replaced_when_its_lease_ends() {
    check(
        "
         0s  A lease 10s                 granted
         0s  B lease 60s                 granted
         0s  A campaign boss value=a     held token=1
         5s  A renew                     renewed
         6s  B campaign boss value=b     queued ahead=0
        14s  -                           -
        15s  -                           A lost boss; A expired; B held token=2
        15s  show boss                   B token=2 leads meta=b
        16s  A proclaim boss zombie      refused lease-not-found
        16s  put task x guard=boss:1     refused guard-failed
        16s  put task x guard=boss:2     written version=1
    ",
    );
}

#[test]
fn a_leader_whose_lease_ends_without_a_candidate_leaves_a_vacancy() {
    check(
        "
         0s  A lease 10s                 granted
         0s  A campaign boss value=a     held token=1
        10s  -                           A lost boss; A expired
        10s  events all from 3           3 boss expired A token=1; 3 lease expired A; 3 boss vacant
    ",
    );
}

#[test]
fn an_election_is_vacant_while_the_old_leader_cools_or_is_paused() {
    check("
         0s  A lease 10s                       granted
         0s  B lease 60s                       granted
         0s  A campaign boss value=a delay=5s  held token=1
         0s  B campaign boss value=b           queued ahead=0
         1s  force boss token=1                forced, free in 9s; A lost boss, forced
         1s  events boss from 5                5 boss forced A token=1 left=9s; 5 boss vacant
        10s  -                                 A expired
        10s  events boss from 6                6 boss cooled A token=1 left=5s
        15s  -                                 B held token=2
        15s  events boss from 7                7 boss delay_over A token=1; 7 boss granted B token=2 value=b
    ");
}

#[test]
fn several_vacancies_are_told_in_the_order_of_names_after_everything_else() {
    check(
        "
         0s  A lease 10s                 granted
         0s  A campaign north            held token=1
         0s  A campaign east             held token=2
         0s  A lock plain                held token=3
         1s  A revoke                    revoked
         1s  events all from 5           5 north revoked A token=1; 5 east revoked A token=2;
             .. 5 plain revoked A token=3; 5 lease revoked A; 5 east vacant; 5 north vacant
    ",
    );
}

#[test]
fn a_plain_lock_is_never_vacant() {
    check(
        "
         0s  A lease 10s                 granted
         0s  A lock job                  held token=1
         1s  A unlock job                released
         1s  events job from 3           3 job released A token=1
    ",
    );
}

#[test]
fn a_candidate_that_leaves_does_not_touch_the_leader() {
    check(
        "
         0s  A lease 10s                 granted
         0s  B lease 10s                 granted
         0s  A campaign boss value=a     held token=1
         0s  B campaign boss value=b     queued ahead=0
         1s  B leave boss                left
         1s  show boss                   A token=1 leads meta=a
         1s  events boss from 5          5 boss left B
    ",
    );
}
