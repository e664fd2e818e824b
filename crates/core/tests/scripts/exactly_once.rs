//! Tests that a repeated request is answered and not executed again.

use crate::script::check;

#[test]
fn a_repeated_ask_is_told_how_it_stands_and_asks_nothing_again() {
    check(
        "
         0s  A lease 60s             granted
         0s  B lease 60s             granted
         0s  A lock deploy #1/0      held token=1 (place=1)
         0s  A lock deploy #1/0      held token=1 (place=1)
         0s  B lock deploy #1/0      queued ahead=0 (place=2)
         0s  B lock deploy #1/0      queued ahead=0 (place=2)
         0s  revision                4
         1s  A unlock deploy #2/0    released; B held token=2
         1s  B lock deploy #1/0      held token=2 (place=2)
         1s  A lock deploy #1/0      ended
         1s  show deploy             B token=2
    ",
    );
}

#[test]
fn a_release_that_comes_twice_does_not_release_what_was_taken_since() {
    check(
        "
         0s  A lease 60s                   granted
         0s  A lock deploy #1/0            held token=1
         1s  A unlock deploy token=1 #2/0  released
         2s  A lock deploy #3/0            held token=2
         3s  A unlock deploy token=1 #2/0  released
         3s  show deploy                   A token=2
    ",
    );
}

#[test]
fn a_wait_that_ran_out_is_remembered_as_ended() {
    check(
        "
         0s  A lease 60s                 granted
         0s  B lease 60s                 granted
         0s  A lock deploy               held token=1
         0s  B lock deploy wait=2s #1/0  queued ahead=0
         2s  -                           B wait over
         3s  B lock deploy wait=2s #1/0  ended
         3s  show deploy                 A token=1
    ",
    );
}

#[test]
fn a_refusal_is_remembered_as_it_was() {
    check(
        "
         0s  A lease 60s             granted
         0s  A unlock deploy #1/0    refused not-holder
         0s  A lock deploy #2/0      held token=1
         0s  A unlock deploy #1/0    refused not-holder
         0s  show deploy             A token=1
    ",
    );
}

#[test]
fn the_same_number_for_another_command_is_refused() {
    check(
        "
         0s  A lease 60s             granted
         0s  A lock deploy #1/0      held token=1
         0s  A lock other #1/0       refused request-id-conflict
         0s  A lock deploy shared #1/0  refused request-id-conflict
         0s  list                    deploy
    ",
    );
}

#[test]
fn what_is_done_is_forgotten_and_never_runs_again() {
    check("
         0s  A lease 60s               granted
         0s  A put-free k 1 #1/0       written version=1
         0s  A put-free k 2 #2/0       written version=2
         0s  weight                    419
         0s  stats                     leases=1 locks=0 grants=0 places=0 keys=1 requests=2 deadlines=1 cut=0
         1s  A put-free k 3 #3/2       written version=3
         1s  stats                     leases=1 locks=0 grants=0 places=0 keys=1 requests=1 deadlines=1 cut=0
         1s  A put-free k 1 #1/0       refused request-stale
         1s  A put-free k 2 #2/0       refused request-stale
         1s  A put-free k 3 #3/0       written version=3
         1s  get k                     3 version=3
         1s  A put-free k 9 #4/4       refused request-stale
    ");
}

#[test]
fn numbers_may_come_in_any_order_within_the_window() {
    check(
        "
         0s  A lease 60s               granted
         0s  A put-free k c #256/0     written version=1
         0s  A put-free k d #257/0     refused request-window (256)
         0s  A put-free k a #2/0       written version=2
         0s  A put-free k b #7/0       written version=3
         0s  A put-free k a #2/0       written version=2
         0s  A put-free k c #256/0     written version=1
         0s  A put-free k d #257/1     written version=4
         0s  A put-free k e #258/1     refused request-window
    ",
    );
}

#[test]
fn the_numbers_of_one_lease_are_not_those_of_another() {
    check(
        "
         0s  A lease 60s               granted
         0s  B lease 60s               granted
         0s  A put-free k a #1/0       written version=1
         0s  B put-free k b #1/0       written version=2
         0s  A put-free k a #1/0       written version=1
    ",
    );
}

#[test]
fn numbers_end_with_their_lease() {
    check("
         0s  A lease 10s               granted
         0s  A put-free k a #1/0       written version=1
         5s  A revoke #2/0             revoked
         5s  A revoke #2/0             refused lease-not-found
         5s  A put-free k a #1/0       refused lease-not-found
         5s  stats                     leases=0 locks=0 grants=0 places=0 keys=1 requests=0 deadlines=0 cut=0
         6s  A lease 10s               granted
         6s  A put-free k b #1/0       written version=2
    ");
}

#[test]
fn a_repetition_is_recognised_after_the_leader_has_changed() {
    check(
        "
         0s  A lease 60s               granted
         0s  B lease 60s               granted
         0s  A lock deploy #1/0        held token=1
         0s  B lock deploy #1/0        queued ahead=0 (place=2)
         0s  put k v once=abc          written version=1
         0s  term 2                    -
         1s  A lock deploy #1/0        held token=1
         1s  B lock deploy #1/0        queued ahead=0 (place=2)
         1s  put k v once=abc          written version=1
         1s  get k                     v version=1
    ",
    );
}

#[test]
fn what_an_earlier_leader_sealed_was_not_done_and_may_be_sent_again() {
    check(
        "
         0s  A lease 60s                      granted
         0s  term 2                           -
         1s  in term 1: A put-free k v #1/0   refused not-leader
         1s  A put-free k v #1/0              written version=1
         1s  A put-free k v #1/0              written version=1
    ",
    );
}

#[test]
fn a_key_of_the_asker_is_as_good_as_a_number() {
    check(
        "
         0s  put k v once=abc          written version=1
         1s  put k v once=abc          written version=1
         1s  put k w once=abc          refused request-id-conflict
         1s  put k w once=def          written version=2
         1s  get k                     w version=2
         1s  put k v once=abc          written version=1
    ",
    );
}

#[test]
fn keys_of_different_askers_are_different() {
    check("
         0s  put k v once=abc as=ann   written version=1
         0s  put k v once=abc as=bob   written version=2
         0s  put k v once=abc          written version=3
         0s  put k v once=abc as=ann   written version=1
         0s  stats                     leases=0 locks=0 grants=0 places=0 keys=1 requests=3 deadlines=0 cut=0
    ");
}

#[test]
fn a_key_is_remembered_for_ten_minutes_and_then_forgotten() {
    check("
         0s  put k v once=abc          written version=1
       600s  put k v once=abc          written version=1
  600001ms   put k v once=abc          written version=2
  600001ms   stats                     leases=0 locks=0 grants=0 places=0 keys=1 requests=1 deadlines=0 cut=0
    ");
}

#[test]
fn a_lease_and_a_lock_asked_for_with_one_key_are_had_once() {
    check(
        "
         0s  A lock deploy lease=10s once=go   held token=1 (place=1)
         1s  A lock deploy lease=10s once=go   held token=1 (place=1)
         1s  revision                          1
        10s  A lock deploy lease=10s once=go   ended; A lost deploy; A expired
        11s  A lease 10s                       granted
        11s  A lock deploy                     held token=2
        11s  A lock deploy lease=10s once=go   ended
    ",
    );
}

#[test]
fn a_repeated_ask_of_several_locks_shows_those_that_are_left() {
    check(
        "
         0s  A lease 60s               granted
         0s  A lock a b c #1/0         held a token=1, b token=2, c token=3
         1s  A unlock b                released
         1s  A lock a b c #1/0         held a token=1, c token=3
         2s  force a token=1 now       forced; A lost a, forced
         2s  A lock a b c #1/0         held token=3
         3s  A unlock c                released
         3s  A lock a b c #1/0         ended
    ",
    );
}

#[test]
fn a_key_must_be_a_name() {
    check(
        "
         0s  put k v once=\"\"               refused invalid-name
         0s  put k v once=x*513              refused invalid-name (name_bytes is 512, asked 513)
         0s  put k v once=abc as=x*513       refused invalid-name (name_bytes is 512, asked 513)
         0s  put k v once=abc as=x*512       written version=1
    ",
    );
}

#[test]
fn an_owner_gets_as_many_records_as_are_free_and_takes_none_from_others() {
    check(
        "
         0s  level 14                       raised
         0s  limits requests=4              set
         0s  put k a once=1 as=mallory      written version=1
         0s  put k b once=2 as=mallory      written version=2
         0s  put k c once=3 as=mallory      refused requests-full (requests is 2, asked 3)
         0s  put h a once=1 as=ana          written version=1
         0s  put h a once=1 as=ana          written version=1
         0s  put h b once=2 as=ana          refused requests-full (requests is 1, asked 2)
         0s  put g a once=1 as=joe          written version=1
         0s  put f a once=1 as=eve          refused requests-full (requests is 4, asked 5)
         0s  put k a once=1 as=mallory      written version=1
         0s  put h a once=1 as=ana          written version=1
       601s  put k d once=3 as=mallory      written version=3
    ",
    );
    check(
        "
         0s  level 14                       raised
         0s  limits request_bytes=500       set
         0s  put k a once=1 as=mallory      written version=1
         0s  put k b once=2 as=mallory      written version=2
         0s  put k c once=3 as=mallory      refused requests-full (request_bytes is 228, asked 272)
         0s  put h a once=1 as=ana          written version=1
    ",
    );
}

#[test]
fn without_principals_a_lease_has_its_own_share() {
    check(
        "
         0s  level 14                       raised
         0s  limits requests=6              set
         0s  A lease 60s                    granted
         0s  B lease 60s                    granted
         0s  A lock a1 once=1               held token=1
         0s  A lock a2 once=2               held token=2
         0s  A lock a3 once=3               held token=3
         0s  A lock a4 once=4               refused requests-full (requests is 3, asked 4)
         0s  put k a once=5                 written version=1
         0s  put k b once=6                 written version=2
         0s  put k c once=8                 refused requests-full (requests is 1, asked 3)
         0s  B lock b once=7                held token=4
         0s  B lock b once=7                held token=4
         0s  A lock a1 once=1               held token=1
         1s  A revoke                       revoked
         1s  A lock a1 once=1               ended
    ",
    );
}

#[test]
fn before_level_14_one_owner_may_take_all_records() {
    check(
        "
         0s  level 13                       raised
         0s  limits requests=3              set
         0s  put k a once=1 as=mallory      written version=1
         0s  put k b once=2 as=mallory      written version=2
         0s  put k c once=3 as=mallory      written version=3
         0s  put h a once=1 as=ana          refused requests-full (requests is 3, asked 4)
         0s  level 14                       raised
         0s  limits requests=6              set
         0s  put k d once=4 as=mallory      refused requests-full (requests is 3, asked 4)
         0s  put h a once=1 as=ana          written version=1
    ",
    );
}

#[test]
fn numbered_requests_count_against_the_bytes_of_their_owner() {
    check(
        "
         0s  level 14                          raised
         0s  quotas bytes=200                  done
         0s  A lease 60s as=ana                granted
         0s  A put-free k v #1/0 as=ana        written version=1
         0s  A put-free k w #2/0 as=ana        written version=2
         0s  A put-free k x #3/0 as=ana        refused quota-exceeded: bytes 200, asked 290
         0s  A lock x #4/0 as=ana              refused quota-exceeded: bytes 200, asked 290
         0s  A lock x as=ana                   held token=1
         0s  A lock x #5/0 as=ana              held token=1
         0s  A unlock y #6/0 as=ana            refused not-holder
         0s  A unlock x #7/0 as=ana            released
         0s  A unlock x #7/0 as=ana            released
         0s  stats                             leases=1 locks=0 grants=0 places=0 keys=1 requests=3 deadlines=1 cut=0
         0s  A put-free k x #8/7 as=ana        written version=3
         0s  B lease 60s as=bob                granted
         0s  B put-free b v #1/0 as=bob        written version=1
    ",
    );
    check(
        "
         0s  level 13                          raised
         0s  quotas bytes=200                  done
         0s  A lease 60s as=ana                granted
         0s  A put-free k v #1/0 as=ana        written version=1
         0s  A put-free k w #2/0 as=ana        written version=2
         0s  A put-free k x #3/0 as=ana        written version=3
         0s  level 14                          raised
         0s  A put-free k y #4/0 as=ana        refused quota-exceeded: bytes 200, asked 386
         0s  A put-free k y #5/4 as=ana        written version=4
    ",
    );
}

#[test]
fn a_full_state_remembers_what_changed_something_and_nothing_else() {
    check(
        "
         0s  level 14                       raised
         0s  limits state_bytes=65536       set
         0s  A lease 60s                    granted
         0s  A lock x                       held token=1
         0s  put k1 a*32768                 written version=1
         0s  put k2 a*32768                 written version=1
         0s  A lock y #1/0                  refused no-space
         0s  A lock x #2/0                  held token=1
         0s  A unlock z #3/0                refused not-holder
         0s  A unlock x #4/0                released
         0s  A unlock x #4/0                released
         0s  stats                          leases=1 locks=0 grants=0 places=0 keys=2 requests=1 deadlines=1 cut=0
         0s  delete k1                      deleted
         0s  A lock y #1/0                  held token=2
         0s  A unlock z #3/0                refused not-holder
         0s  stats                          leases=1 locks=1 grants=1 places=0 keys=1 requests=3 deadlines=1 cut=0
    ",
    );
}
