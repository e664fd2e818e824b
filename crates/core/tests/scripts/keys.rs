//! Tests how keys are written, bound to leases and guarded by locks.

use crate::script::check;

#[test]
fn a_key_is_written_read_and_deleted() {
    check(
        "
         0s  put color red         written version=1 (created=1)
         0s  get color             red version=1 (created=1 modified=1)
         1s  put color blue        written version=2 (created=1)
         1s  get color             blue version=2 (created=1 modified=2)
         2s  delete color          deleted
         2s  get color             none
         2s  delete color          absent
         2s  revision              3
         2s  events color from 1   1 key color key_put value=red;
             .. 2 key color key_put value=blue was red@1; 3 key color key_deleted was blue@2
    ",
    );
}

#[test]
fn a_key_that_was_deleted_starts_anew() {
    check(
        "
         0s  put color red         written version=1
         0s  put color red         written version=2
         0s  delete color          deleted
         0s  put color red         written version=1 (created=4)
    ",
    );
}

#[test]
fn a_condition_that_does_not_hold_changes_nothing_and_says_how_the_key_is() {
    check(
        "
         0s  put color red if=absent         written version=1
         0s  put color blue if=absent        refused compare-failed (modified 1)
         0s  put color blue if=modified:7    refused compare-failed (modified 1)
         0s  put color blue if=value:green   refused compare-failed (modified 1)
         0s  put other x if=modified:1       refused compare-failed (no such key)
         0s  put other x if=value:x          refused compare-failed (no such key)
         0s  get color                       red version=1
         0s  put color blue if=modified:1    written version=2
         0s  put color green if=value:blue   written version=3
         0s  delete color if=value:red       refused compare-failed (modified 3)
         0s  delete color if=absent          refused compare-failed (modified 3)
         0s  delete other if=modified:1      refused compare-failed (no such key)
         0s  delete other if=absent          absent
         0s  delete color if=modified:3      deleted
    ",
    );
}

#[test]
fn a_key_bound_to_a_lease_ends_with_it() {
    check("
         0s  A lease 10s           granted
         0s  A put here host1      written version=1
         0s  get here              host1 version=1 leased
         0s  show-lease A          10s of 10s left, keys here
         9s  A renew               renewed
        19s  -                     A expired
        19s  get here              none
        19s  events here from 2    2 key here key_put A value=host1; 3 key here key_deleted A was host1@2
    ");
}

#[test]
fn a_key_is_bound_to_the_lease_that_wrote_it_last() {
    check(
        "
         0s  A lease 10s           granted
         0s  B lease 20s           granted
         0s  A put here a          written version=1
         0s  B put here b          written version=2
        10s  -                     A expired
        10s  get here              b version=2 leased
        11s  put here free         written version=3
        20s  -                     B expired
        20s  get here              free version=3
    ",
    );
}

#[test]
fn a_key_cannot_be_bound_to_a_lease_that_has_ended() {
    check(
        "
         0s  A lease 10s           granted
        10s  A put here a          refused lease-not-found; A expired
        10s  get here              none
    ",
    );
}

#[test]
fn a_guarded_write_happens_only_while_the_lock_is_held_under_that_token() {
    check(
        "
         0s  A lease 10s                      granted
         0s  put file v guard=data:1          refused guard-failed (data)
         0s  A lock data                      held token=1
         1s  put file v1 guard=data:1         written version=1
         1s  put file v2 guard=data:1         written version=2
         1s  put file v guard=data:2          refused guard-failed
         1s  put file v guard=other:1         refused guard-failed (other)
         1s  delete file guard=data:9         refused guard-failed
         2s  A unlock data                    released
         2s  put file v guard=data:1          refused guard-failed
         2s  delete file guard=data:1         refused guard-failed
         3s  A lock data                      held token=2
         3s  delete file guard=data:2         deleted
    ",
    );
}

#[test]
fn a_guard_fails_as_soon_as_the_lock_is_taken_away_even_while_it_cools() {
    check(
        "
         0s  A lease 10s                      granted
         0s  A lock data                      held token=1
         1s  force data token=1               forced, free in 9s; A lost data, forced
         1s  put file v guard=data:1          refused guard-failed
    ",
    );
}

#[test]
fn a_guard_is_checked_before_the_condition_and_both_must_hold() {
    check(
        "
         0s  A lease 10s                          granted
         0s  A lock data                          held token=1
         0s  put file v guard=data:2 if=value:x   refused guard-failed
         0s  put file v guard=data:1 if=value:x   refused compare-failed
         0s  put file v guard=data:1 if=absent    written version=1
    ",
    );
}

#[test]
fn one_of_several_shared_tokens_is_guard_enough() {
    check(
        "
         0s  A lease 10s                      granted
         0s  B lease 10s                      granted
         0s  A lock data shared               held token=1
         0s  B lock data shared               held token=2
         0s  put file a guard=data:1          written version=1
         0s  put file b guard=data:2          written version=2
    ",
    );
}

#[test]
fn a_guard_of_a_lease_that_is_due_fails_before_the_lease_is_cleared_away() {
    check(
        "
         0s  limits ends_per_entry=1          set
         0s  A lease 10s                      granted
         0s  B lease 10s                      granted
         0s  B lock data                      held token=1
        10s  put file v guard=data:1          refused guard-failed; A expired
    ",
    );
}

#[test]
fn a_key_and_a_lock_of_the_same_name_have_nothing_to_do_with_each_other() {
    check(
        "
         0s  A lease 10s           granted
         0s  A lock thing          held token=1
         0s  put thing v           written version=1
         0s  delete thing          deleted
         0s  show thing            A token=1
         0s  events thing from 2   2 thing granted A token=1; 3 key thing key_put value=v;
             .. 4 key thing key_deleted was v@3
    ",
    );
}

#[test]
fn keys_are_listed_in_the_order_of_names_page_by_page() {
    check(
        "
         0s  put app/b 2                   written version=1
         0s  put app/a 1                   written version=1
         0s  put app/c 3                   written version=1
         0s  put apq 4                     written version=1
         0s  put ao 0                      written version=1
         0s  keys app/                     app/a=1, app/b=2, app/c=3
         0s  keys app/ max=2               app/a=1, app/b=2
         0s  keys app/ after=app/b max=2   app/c=3
         0s  keys app/ after=app/c         nothing
         0s  keys app/ after=a             app/a=1, app/b=2, app/c=3
         0s  keys                          ao=0, app/a=1, app/b=2, app/c=3, apq=4
    ",
    );
}

#[test]
fn an_empty_value_is_a_value() {
    check(
        "
         0s  put k \"\"                    written version=1
         0s  get k                         \"\" version=1
         0s  put k x if=value:             written version=2
    ",
    );
}
