//! Tests that several locks are acquired at once, all or none.

use crate::script::check;

#[test]
fn several_free_locks_are_granted_together_in_the_order_of_their_names() {
    check(
        "
         0s  A lease 10s       granted
         0s  A lock c a b      held a token=1, b token=2, c token=3
         0s  show-lease A      10s of 10s left, holds a=1 b=2 c=3
    ",
    );
}

#[test]
fn while_one_of_several_locks_is_held_none_is_granted() {
    check(
        "
         0s  A lease 10s       granted
         0s  B lease 10s       granted
         0s  A lock b          held token=1
         1s  B lock a b c      queued ahead=0
         1s  show a            nobody | B
         1s  show c            nobody | B
         2s  A unlock b        released; B held a token=2, b token=3, c token=4
    ",
    );
}

#[test]
fn a_free_lock_that_a_waiter_needs_with_others_is_kept_for_it() {
    check(
        "
         0s  A lease 10s       granted
         0s  B lease 10s       granted
         0s  C lease 10s       granted
         0s  A lock b          held token=1
         1s  B lock a b        queued ahead=0
         2s  C lock a try      refused held (a by nobody, 1 ahead)
         2s  C lock a          queued ahead=1
         3s  A unlock b        released; B held a token=2, b token=3
         4s  B unlock a        released; C held token=4
    ",
    );
}

#[test]
fn the_ahead_of_several_locks_is_that_of_the_longest_queue() {
    check(
        "
         0s  A lease 10s       granted
         0s  B lease 10s       granted
         0s  C lease 10s       granted
         0s  D lease 10s       granted
         0s  A lock a b        held a token=1, b token=2
         0s  B lock a          queued ahead=0
         0s  C lock a          queued ahead=1
         0s  D lock a b        queued ahead=2
         0s  queue b           D ahead=0 waits 0s for a&b
    ",
    );
}

#[test]
fn locks_of_one_ask_may_be_of_different_kinds() {
    check(
        "
         0s  A lease 10s                     granted
         0s  B lease 10s                     granted
         0s  A lock a b:shared c:slots-2     held a token=1, b token=2, c token=3 slot=0
         0s  B lock b:shared c:slots-2       held b token=4, c token=5 slot=1
         0s  B lock a:shared d               queued ahead=0
         1s  A unlock a                      released; B held a token=6, d token=7
    ",
    );
}

#[test]
fn each_of_several_locks_is_given_back_by_itself() {
    check(
        "
         0s  A lease 10s       granted
         0s  B lease 10s       granted
         0s  A lock a b        held a token=1, b token=2
         0s  B lock a          queued ahead=0
         1s  A unlock a        released; B held token=3
         1s  show b            A token=2
         1s  A lock b          held token=2
    ",
    );
}

#[test]
fn the_same_ask_again_in_any_order_is_the_same_ask() {
    check(
        "
         0s  A lease 10s       granted
         0s  B lease 10s       granted
         0s  A lock a b        held a token=1, b token=2
         0s  A lock b a        held a token=1, b token=2
         0s  B lock a b        queued ahead=0 (place=2)
         0s  B lock b a        queued ahead=0 (place=2)
    ",
    );
}

#[test]
fn asks_of_one_lease_that_overlap_are_refused() {
    check(
        "
         0s  A lease 10s       granted
         0s  B lease 10s       granted
         0s  A lock a b        held a token=1, b token=2
         0s  A lock a          refused overlap (a)
         0s  A lock b c        refused overlap (b)
         0s  A lock a b c      refused overlap (a)
         0s  B lock b c        queued ahead=0
         0s  B lock c          refused overlap (c)
         0s  B lock b          refused overlap (b)
         0s  B lock a b c      refused overlap (b)
         0s  B lock d          held token=3
    ",
    );
}

#[test]
fn a_lock_named_twice_is_refused() {
    check(
        "
         0s  A lease 10s              granted
         0s  A lock b a b             refused duplicate-lock (b)
         0s  A lock a a:shared        refused duplicate-lock (a)
         0s  A lock                   refused too-many-locks-in-ask (locks_per_ask is 64, asked 0)
         0s  list                     nothing
    ",
    );
}

#[test]
fn places_of_several_locks_are_served_in_one_order_everywhere() {
    check(
        "
         0s  A lease 60s       granted
         0s  B lease 60s       granted
         0s  C lease 60s       granted
         0s  D lease 60s       granted
         0s  A lock a b c      held a token=1, b token=2, c token=3
         1s  B lock a b        queued ahead=0
         1s  C lock b c        queued ahead=1
         1s  D lock c          queued ahead=1
         2s  A unlock c        released
         2s  A unlock b        released
         3s  A unlock a        released; B held a token=4, b token=5
         4s  B unlock b        released; C held b token=6, c token=7
         5s  C unlock c        released; D held token=8
    ",
    );
}

#[test]
fn leaving_gives_up_every_lock_of_the_ask_and_lets_others_through() {
    check(
        "
         0s  A lease 60s       granted
         0s  B lease 60s       granted
         0s  C lease 60s       granted
         0s  D lease 60s       granted
         0s  A lock b          held token=1
         0s  B lock a b c      queued ahead=0
         0s  C lock a          queued ahead=1
         0s  D lock c          queued ahead=1
         1s  B leave c         left; C held token=2; D held token=3
         1s  events all from 9  9 a left B (place=2); 9 b left B (place=2); 9 c left B (place=2);
             .. 9 a granted C token=2 (place=3); 9 c granted D token=3 (place=4) (next 10)
    ",
    );
}

#[test]
fn an_expired_waiter_for_several_locks_lets_the_others_through() {
    check(
        "
         0s  A lease 60s       granted
         0s  B lease 5s        granted
         0s  C lease 60s       granted
         0s  A lock b          held token=1
         0s  B lock a b        queued ahead=0
         0s  C lock a          queued ahead=1
         5s  -                 B expired; C held token=2
    ",
    );
}
