//! Tests that the newest request of a group replaces the older waiters of that group, and no other waiter.

use crate::script::check;

#[test]
fn the_newest_request_of_a_group_replaces_its_older_waiters() {
    check(
        "
         0s  level 7                      raised
         0s  A lease 60s                  granted
         0s  B lease 60s                  granted
         0s  C lease 60s                  granted
         0s  A lock web supersede=main    held token=1
         1s  B lock web supersede=main    queued ahead=0
         2s  C lock web supersede=main    queued ahead=0; B superseded by C
         2s  show web                     A token=1 | C
         3s  events web from 7            7 web queued C; 7 web superseded B by=C reason=main
         4s  A unlock web                 released; C held token=2
    ",
    );
}

#[test]
fn a_holder_is_never_replaced_and_other_waiters_stay() {
    check(
        "
         0s  level 7                      raised
         0s  A lease 60s                  granted
         0s  B lease 60s                  granted
         0s  C lease 60s                  granted
         0s  D lease 60s                  granted
         0s  A lock web supersede=main    held token=1
         1s  B lock web                   queued ahead=0
         2s  C lock web supersede=other   queued ahead=1
         3s  D lock web supersede=main    queued ahead=2
         3s  show web                     A token=1 | B C D
    ",
    );
}

#[test]
fn the_newest_joins_the_queue_at_its_end() {
    check(
        "
         0s  level 7                     raised
         0s  A lease 60s                 granted
         0s  B lease 60s                 granted
         0s  C lease 60s                 granted
         0s  D lease 60s                 granted
         0s  A lock web                  held token=1
         1s  B lock web supersede=main   queued ahead=0
         2s  C lock web                  queued ahead=1
         3s  D lock web supersede=main   queued ahead=1; B superseded by D
         4s  A unlock web                released; C held token=2
    ",
    );
}

#[test]
fn a_request_that_does_not_wait_replaces_nobody() {
    check(
        "
         0s  level 7                         raised
         0s  A lease 60s                     granted
         0s  B lease 60s                     granted
         0s  C lease 60s                     granted
         0s  A lock web                      held token=1
         1s  B lock web supersede=main       queued ahead=0
         2s  C lock web supersede=main try   refused held (web by A token=1 for 2s, 1 ahead)
         2s  show web                        A token=1 | B
    ",
    );
}

#[test]
fn a_group_is_of_one_lock() {
    check(
        "
         0s  level 7                     raised
         0s  A lease 60s                 granted
         0s  B lease 60s                 granted
         0s  C lease 60s                 granted
         0s  A lock web api              held api token=1, web token=2
         1s  B lock web supersede=main   queued ahead=0
         2s  C lock api supersede=main   queued ahead=0
         2s  show web                    A token=2 | B
    ",
    );
}

#[test]
fn a_request_for_several_locks_is_replaced_as_a_whole() {
    check(
        "
         0s  level 7                         raised
         0s  A lease 60s                     granted
         0s  B lease 60s                     granted
         0s  C lease 60s                     granted
         0s  D lease 60s                     granted
         0s  A lock web                      held token=1
         1s  B lock web api supersede=main   queued ahead=0
         2s  C lock api                      queued ahead=1
         3s  D lock web supersede=main       queued ahead=0; B superseded by D; C held token=2
         3s  show api                        C token=2
    ",
    );
}

#[test]
fn the_newest_is_granted_at_once_if_only_the_older_one_was_in_the_way() {
    check(
        "
         0s  level 7                            raised
         0s  A lease 60s                        granted
         0s  B lease 60s                        granted
         0s  C lease 60s                        granted
         0s  A lock data shared                 held token=1
         1s  B lock data supersede=main         queued ahead=0
         2s  C lock data supersede=main shared  held token=2; B superseded by C
    ",
    );
}

#[test]
fn asking_again_keeps_the_place_and_the_group() {
    check(
        "
         0s  level 7                     raised
         0s  A lease 60s                 granted
         0s  B lease 60s                 granted
         0s  C lease 60s                 granted
         0s  A lock web                  held token=1
         1s  B lock web supersede=main   queued ahead=0 (place=2)
         2s  B lock web                  queued ahead=0 (place=2)
         2s  queue web                   B ahead=0 waits 1s group=main
         4s  C lock web supersede=main   queued ahead=0; B superseded by C
    ",
    );
}

#[test]
fn a_request_that_was_replaced_and_is_resumed_does_not_replace_the_newer_one() {
    check(
        "
         0s  level 7                            raised
         0s  A lease 60s                        granted
         0s  B lease 60s                        granted
         0s  C lease 60s                        granted
         0s  A lock web                         held token=1
         1s  B lock web supersede=main          queued ahead=0
         1s  B lock web supersede=main resume   queued ahead=0
         2s  C lock web supersede=main          queued ahead=0; B superseded by C
         3s  B lock web supersede=main resume   ended
         3s  show web                           A token=1 | C
         4s  A unlock web                       released; C held token=2
         5s  C lock web supersede=main resume   held token=2
    ",
    );
}

#[test]
fn the_repetition_of_a_request_that_was_replaced_is_over() {
    check(
        "
         0s  level 7                            raised
         0s  A lease 60s                        granted
         0s  B lease 60s                        granted
         0s  C lease 60s                        granted
         0s  A lock web                         held token=1
         1s  B lock web supersede=main once=k   queued ahead=0
         2s  C lock web supersede=main          queued ahead=0; B superseded by C
         3s  B lock web supersede=main once=k   ended
    ",
    );
}

#[test]
fn groups_of_different_principals_are_different() {
    check(
        "
         0s  level 7                               raised
         0s  role all acquire@\"\"                   done
         0s  principal ana all                     done
         0s  principal bob all                     done
         0s  identity on                           done
         0s  A lease 60s as=ana                    granted
         0s  B lease 60s as=ana                    granted
         0s  C lease 60s as=bob                    granted
         0s  D lease 60s as=ana                    granted
         0s  A lock web as=ana                     held token=1
         1s  B lock web supersede=main as=ana      queued ahead=0
         2s  C lock web supersede=main as=bob      queued ahead=1
         3s  D lock web supersede=main as=ana      queued ahead=1; B superseded by D
    ",
    );
}

#[test]
fn a_request_that_is_refused_as_a_deadlock_replaces_nobody() {
    check(
        "
         0s  level 7                     raised
         0s  A lease 60s                 granted
         0s  B lease 60s                 granted
         0s  C lease 60s                 granted
         0s  A lock web                  held token=1
         0s  C lock api                  held token=2
         1s  B lock web supersede=main   queued ahead=0
         2s  A lock api                  queued ahead=0
         3s  C lock web supersede=main   refused deadlock: C web, A api
         3s  show web                    A token=1 | B
    ",
    );
}

#[test]
fn a_group_has_a_name_like_any_other() {
    check(
        "
         0s  level 7                      raised
         0s  A lease 60s                  granted
         0s  A lock web supersede=a^G     refused invalid-name
         0s  A lock web supersede=x*513   refused invalid-name (name_bytes is 512, asked 513)
         0s  A lock web supersede=\"\"      refused invalid-name
    ",
    );
}

#[test]
fn below_level_7_nothing_is_superseded_or_resumed() {
    check(
        "
         0s  level 6                     raised
         0s  A lease 60s                 granted
         0s  A lock web supersede=main   refused malformed
         0s  A lock web resume           refused malformed
         0s  A lock web                  held token=1
    ",
    );
}
