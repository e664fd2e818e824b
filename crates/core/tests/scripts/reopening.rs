//! Tests that opening a prefix, and the end of the quiet period, serve a bounded number of queues in each entry.

use crate::script::check;

#[test]
fn a_prefix_with_few_waiters_opens_in_one_entry() {
    check(
        "
         0s  level 14         raised
         0s  A lease 60s      granted
         0s  B lease 60s      granted
         0s  drain db/        drained
         1s  A lock db/1      queued ahead=0
         1s  B lock db/2      queued ahead=0
         2s  undrain db/      opened; A held token=1; B held token=2
         2s  stats            leases=2 locks=2 grants=2 places=0 keys=0 requests=0 deadlines=2 cut=0
    ",
    );
}

#[test]
fn the_queues_of_many_leases_are_served_over_several_entries_in_the_order_of_leases() {
    check(
        "
         0s  level 14                 raised
         0s  limits ends_per_entry=2  set
         0s  A lease 60s              granted
         0s  B lease 60s              granted
         0s  C lease 60s              granted
         0s  drain db/                drained
         1s  C lock db/1              queued ahead=0
         1s  A lock db/3              queued ahead=0
         1s  B lock db/2              queued ahead=0
         2s  undrain db/              opened; A held token=1
         2s  show db/2                nobody | B
         2s  stats                    leases=3 locks=3 grants=1 places=2 keys=0 requests=0 deadlines=4 cut=0
         2s  -                        B held token=2
         2s  -                        C held token=3
         2s  -                        -
         2s  stats                    leases=3 locks=3 grants=3 places=0 keys=0 requests=0 deadlines=3 cut=0
    ",
    );
}

#[test]
fn a_queue_that_is_not_served_yet_keeps_its_order_when_others_join_it() {
    check(
        "
         0s  level 14                 raised
         0s  limits ends_per_entry=1  set
         0s  A lease 60s              granted
         0s  B lease 60s              granted
         0s  C lease 60s              granted
         0s  drain \"\"                 drained
         1s  B lock x                 queued ahead=0
         1s  A lock y                 queued ahead=0
         2s  undrain \"\"               opened; A held token=1
         2s  C lock x try             refused held; B held token=2
         2s  -                        -
         2s  -                        -
         3s  B unlock x               released
    ",
    );
}

#[test]
fn an_explanation_says_that_a_free_lock_is_still_to_be_served() {
    check(
        "
         0s  level 14                 raised
         0s  limits ends_per_entry=1  set
         0s  A lease 60s              granted
         0s  B lease 60s              granted
         0s  C lease 60s              granted
         0s  C lock db/3              held token=1
         0s  drain db/                drained
         1s  B lock db/2              queued ahead=0
         1s  B lock db/3              queued ahead=0
         2s  undrain db/              opened
         2s  explain db/2             ahead B; free now; to be served, for 0s
         2s  explain db/3             held by C for 2s; ahead B; chain C db/3; free in 58001ms if silent
         2s  -                        B held token=2
    ",
    );
}

#[test]
fn prefixes_that_open_in_one_entry_are_served_in_one_slice() {
    check(
        "
         0s  level 14                        raised
         0s  A lease 60s                     granted
         0s  B lease 60s                     granted
         0s  drain db/                       drained
         0s  drain web/                      drained
         1s  A lock web/1                    queued ahead=0
         1s  B lock db/1                     queued ahead=0
         2s  undrain db/ + undrain web/      opened + opened; B held token=1
         2s  -                               A held token=2
         2s  stats                           leases=2 locks=2 grants=2 places=0 keys=0 requests=0 deadlines=2 cut=0
    ",
    );
}

#[test]
fn a_second_prefix_that_opens_meanwhile_is_served_in_another_round() {
    check(
        "
         0s  level 14                 raised
         0s  limits ends_per_entry=2  set
         0s  A lease 60s              granted
         0s  B lease 60s              granted
         0s  C lease 60s              granted
         0s  drain db/                drained
         0s  drain web/               drained
         1s  A lock web/1             queued ahead=0
         1s  B lock db/1              queued ahead=0
         1s  C lock db/2              queued ahead=0
         2s  undrain db/              opened
         2s  undrain web/             opened; B held token=1
         3s  -                        C held token=2
         3s  -                        A held token=3
    ",
    );
}

#[test]
fn prefixes_that_open_again_and_again_keep_no_lease_waiting() {
    check(
        "
         0s  level 14                 raised
         0s  limits ends_per_entry=1  set
         0s  A lease 60s              granted
         0s  B lease 60s              granted
         0s  C lease 60s              granted
         0s  drain db/                drained
         1s  C lock db/1              queued ahead=0
         2s  undrain db/              opened
         2s  drain x/ + undrain x/    drained + opened
         2s  drain x/ + undrain x/    drained + opened; C held token=1
    ",
    );
}

#[test]
fn what_is_due_ends_while_queues_are_served() {
    check(
        "
         0s  level 14                              raised
         0s  limits ends_per_entry=2               set
         0s  A lease 60s                           granted
         0s  B lease 60s                           granted
         0s  C lease 2s                            granted
         0s  D lease 60s                           granted
         0s  E lease 60s                           granted
         0s  C lock deploy                         held token=1
         0s  drain db/                             drained
         1s  A lock db/1                           queued ahead=0
         1s  E lock db/2                           queued ahead=0
         1s  D lock deploy wait=2s                 queued ahead=0
         2s  undrain db/                           opened; A held token=2
         3s  drain x/ + undrain x/                 drained + opened; C lost deploy; C expired; D held token=3
         3s  drain x/ + undrain x/                 drained + opened; E held token=4
    ",
    );
}

#[test]
fn nothing_is_left_to_do_when_nobody_waits() {
    check(
        "
         0s  level 14         raised
         0s  A lease 60s      granted
         0s  drain db/        drained
         1s  undrain db/      opened
         1s  stats            leases=1 locks=0 grants=0 places=0 keys=0 requests=0 deadlines=1 cut=0
    ",
    );
}

#[test]
fn the_end_of_the_quiet_period_serves_queues_over_several_entries() {
    check(
        "
         0s  level 14                                                      raised
         0s  limits ends_per_entry=2 ttl_max_ms=60000 lock_delay_ms=5000   set
         5s  restore epoch=1                                               restored
         0s  A lock x lease=60s                                            queued ahead=0
         0s  B lock y lease=60s                                            queued ahead=0
        50s  renew A B                                                     renewed, renewed
        66s  -                                                             A held token=281474976710657
        66s  -                                                             B held token=281474976710658
        66s  -                                                             -
        66s  list                                                          x, y
    ",
    );
}

#[test]
fn events_tell_which_limits_and_which_level_were_set() {
    check(
        "
         0s  level 13                                    raised
         0s  limits ends_per_entry=7                     set
         0s  level 14                                    raised
         0s  limits ends_per_entry=9 lock_delay_ms=5000  set
         0s  events all from 1  1 settings level_raised; 2 settings limits_set;
             .. 3 settings level_raised value=14;
             .. 4 settings limits_set value=ends_per_entry=9 lock_delay_ms=5000
    ",
    );
}
