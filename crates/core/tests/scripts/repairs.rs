//! Tests the gaps that level 12 closes: what the machine does from it on, and what older logs still replay.

use crate::script::check;

/// The same script at level 11, with other expectations, and at level 12.
#[track_caller]
fn before_and_after(script: &str, changed: &[(&str, &str)]) {
    let mut before = script.replace("level 12", "level 11");
    for (after, was) in changed {
        assert!(before.contains(after), "`{after}` is not in the script");
        before = before.replace(after, was);
    }
    check(&before);
    check(script);
}

#[test]
fn who_cannot_leave_any_more_costs_no_memory_for_each_slot() {
    // A name of 200 bytes, three slots: the record at level 11 has the name three times.
    before_and_after(
        "
         0s  level 12                          raised
         0s  A lease 10s                       granted
         0s  A lock n*200 slots=3of4           held n*200 token=1 slot=0, n*200 token=2 slot=1, n*200 token=3 slot=2
         1s  weight                            617
         1s  A leave n*200 #1/0                already held n*200 token=1 slot=0, n*200 token=2 slot=1, \
             n*200 token=3 slot=2
         1s  weight                            713
    "
        .replace("held n*200", &format!("held {}", "n".repeat(200)))
        .replace(", n*200", &format!(", {}", "n".repeat(200)))
        .as_str(),
        &[("713", "1313")],
    );
}

#[test]
fn a_repeated_request_to_leave_tells_what_is_held_now() {
    before_and_after(
        "
         0s  level 12                      raised
         0s  A lease 10s                   granted
         0s  A lock pool slots=2of4        held pool token=1 slot=0, pool token=2 slot=1
         1s  A leave pool #1/0             already held pool token=1 slot=0, pool token=2 slot=1
         2s  A unlock pool token=1         released
         2s  A leave pool #1/0             already held token=2 slot=1
         3s  A unlock pool token=2         released
         3s  A leave pool #1/0             left
    ",
        &[
            (
                "already held token=2 slot=1",
                "already held pool token=1 slot=0, pool token=2 slot=1",
            ),
            (
                "A leave pool #1/0             left",
                "A leave pool #1/0             already held pool token=1 slot=0, pool token=2 slot=1",
            ),
        ],
    );
}

#[test]
fn a_hold_that_cannot_be_handed_on_in_a_full_state_leaves_no_long_reason() {
    before_and_after(
        "
         0s  level 12                        raised
         0s  A lease 60s                     granted
         0s  B lease 60s                     granted
         0s  A lock job                      held token=1
         0s  B lock job                      queued ahead=0
         0s  drain job reason=r*4000         drained
         0s  put k v*30000                   written version=1
         0s  put l v*32000                   written version=1
         0s  limits state_bytes=65536        set
         1s  A hand job to B #1/0            refused no-space (state_bytes is 65536, asked 66778)
         1s  weight                          66874
    ",
        &[
            (
                "refused no-space (state_bytes is 65536, asked 66778)",
                &format!("refused draining (job below job: {})", "r".repeat(4000)),
            ),
            ("66874", "70880"),
        ],
    );
}

#[test]
fn a_lock_that_rests_still_counts_against_the_quota() {
    before_and_after(
        "
         0s  level 12                              raised
         0s  role all all@\"\"                     done
         0s  principal ana all locks=1 bytes=10    done
         0s  A lease 60s as=ana                    granted
         0s  A lock x-1 min=1h meta=metadata as=ana  held token=1
         1s  A unlock x-1 as=ana                   released
         1s  A lock x-2 min=1h as=ana              refused quota-exceeded: locks 1, asked 2
         2s  A put x-3 v as=ana                    refused quota-exceeded: bytes 10, asked 12
         3s  force x-1 token=1                     forced
         3s  A lock x-2 min=1h as=ana              held token=2
    ",
        &[
            ("refused quota-exceeded: locks 1, asked 2", "held token=2"),
            ("refused quota-exceeded: bytes 10, asked 12", "written version=1"),
        ],
    );
}

#[test]
fn locks_that_rest_count_from_the_level_on_also_if_they_rested_before() {
    check(
        "
         0s  level 11                              raised
         0s  role all all@\"\"                     done
         0s  principal ana all locks=1             done
         0s  A lease 60s as=ana                    granted
         0s  A lock x-1 min=10s as=ana             held token=1
         1s  A unlock x-1 as=ana                   released
         1s  level 12                              raised
         2s  A lock x-2 as=ana                     refused quota-exceeded: locks 1, asked 2
        11s  -                                     -
        12s  A lock x-2 as=ana                     held token=2
    ",
    );
}

#[test]
fn the_metadata_of_several_slots_is_in_the_event_of_the_first() {
    before_and_after(
        "
         0s  level 12                          raised
         0s  A lease 10s                       granted
         0s  A lock a:slots-2of3 b:slots-2of3 meta=m  held a token=1 slot=0, a token=2 slot=1, \
             b token=3 slot=0, b token=4 slot=1
         0s  events all from 3    3 a granted A token=1 slot=0 value=m; 3 a granted A token=2 slot=1;
             .. 3 b granted A token=3 slot=0 value=m; 3 b granted A token=4 slot=1
    ",
        &[
            ("granted A token=2 slot=1", "granted A token=2 slot=1 value=m"),
            ("granted A token=4 slot=1", "granted A token=4 slot=1 value=m"),
        ],
    );
}

#[test]
fn free_slots_between_held_ones_are_taken_in_order() {
    check(
        "
         0s  level 12                          raised
         0s  A lease 60s                       granted
         0s  B lease 60s                       granted
         0s  A lock pool slots=6of7            held pool token=1 slot=0, pool token=2 slot=1, \
             pool token=3 slot=2, pool token=4 slot=3, pool token=5 slot=4, pool token=6 slot=5
         1s  A unlock pool token=1             released
         1s  A unlock pool token=3             released
         1s  A unlock pool token=4             released
         2s  B lock pool slots=4of7            held pool token=7 slot=0, pool token=8 slot=2, \
             pool token=9 slot=3, pool token=10 slot=6
    ",
    );
}

#[test]
fn an_upgrade_at_once_that_closes_a_ring_is_refused() {
    before_and_after(
        "
         0s  level 12                raised
         0s  A lease 1h              granted
         0s  B lease 1h              granted
         0s  H lease 1h              granted
         0s  A lock a shared         held token=1
         0s  H lock b                held token=2
         0s  B lock z                held token=3
         1s  B lock a:shared b       queued ahead=0
         2s  A lock z                queued ahead=0 (place=5)
         3s  A upgrade a             refused deadlock: A z, B a
         4s  H unlock b              released; B held a token=4, b token=5
         5s  B unlock a              released
         5s  A upgrade a             held token=6 (place=6)
    ",
        &[
            ("refused deadlock: A z, B a", "held token=4"),
            ("released; B held a token=4, b token=5", "released"),
            (
                "5s  B unlock a              released",
                "5s  show a                  A token=4 | B shared",
            ),
            ("held token=6 (place=6)", "held token=4 (place=6)"),
        ],
    );
}

#[test]
fn an_upgrade_at_once_past_those_whom_only_a_drain_holds_back_is_searched_too() {
    before_and_after(
        "
         0s  level 12                raised
         0s  A lease 1h              granted
         0s  B lease 1h              granted
         0s  A lock a shared         held token=1
         0s  B lock z                held token=2
         1s  drain a                 drained
         1s  B lock a shared         queued ahead=0
         2s  A lock z                queued ahead=0
         3s  A upgrade a             refused deadlock: A z, B a
         4s  undrain a               opened; B held token=3
    ",
        &[("refused deadlock: A z, B a", "held token=3"), ("opened; B held token=3", "opened")],
    );
}

#[test]
fn an_upgrade_at_once_past_others_that_close_no_ring_is_granted() {
    check(
        "
         0s  level 12                raised
         0s  A lease 1h              granted
         0s  B lease 1h              granted
         0s  A lock a shared         held token=1
         1s  B lock a                queued ahead=0
         2s  A upgrade a             held token=2 (place=3)
         3s  A unlock a              released; B held token=3 (place=2)
         4s  A lock n                held token=4 (place=4)
    ",
    );
}

#[test]
fn a_request_is_recognised_after_its_semaphore_was_resized() {
    before_and_after(
        "
         0s  level 12                 raised
         0s  A lease 60s              granted
         0s  B lease 60s              granted
         0s  A lock pool slots=3of3   held pool token=1 slot=0, pool token=2 slot=1, pool token=3 slot=2
         0s  B lock pool slots=3      queued ahead=0
         1s  resize pool 2            resized
         1s  B lock pool slots=3      queued ahead=0
         2s  resize pool any          resized
         2s  B lock pool slots=3      queued ahead=0 (place=2)
         3s  A lock pool slots=3of3   held pool token=1 slot=0, pool token=2 slot=1, pool token=3 slot=2 (place=1)
    ",
        &[
            ("queued ahead=0 (place=2)", "refused overlap (pool)"),
            (
                "A lock pool slots=3of3   held pool token=1 slot=0, pool token=2 slot=1, pool token=3 slot=2 (place=1)",
                "A lock pool slots=3of3   refused overlap (pool)",
            ),
        ],
    );
}

#[test]
fn who_holds_more_slots_than_are_left_is_told_so_when_it_asks_again() {
    before_and_after(
        "
         0s  level 12                 raised
         0s  A lease 60s              granted
         0s  B lease 60s              granted
         0s  A lock pool slots=3of3   held pool token=1 slot=0, pool token=2 slot=1, pool token=3 slot=2
         1s  resize pool 2            resized
         2s  A lock pool slots=3of3   held pool token=1 slot=0, pool token=2 slot=1, pool token=3 slot=2
         2s  B lock pool slots=3of3   refused invalid-slots (slots is 2, asked 3)
         2s  N lock pool slots=3of3 lease=60s  refused invalid-slots (slots is 2, asked 3)
         2s  limits slots=1           set
         2s  A lock pool slots=3of3   held pool token=1 slot=0, pool token=2 slot=1, pool token=3 slot=2 (place=1)
         2s  B lock pool slots=1of3   refused invalid-slots (slots is 1, asked 2)
    ",
        &[
            (
                "2s  A lock pool slots=3of3   held pool token=1 slot=0, pool token=2 slot=1, pool token=3 slot=2\n",
                "2s  A lock pool slots=3of3   refused invalid-slots (slots is 2, asked 3)\n",
            ),
            (
                "held pool token=1 slot=0, pool token=2 slot=1, pool token=3 slot=2 (place=1)",
                "refused invalid-slots (slots is 1, asked 2)",
            ),
        ],
    );
}

#[test]
fn a_min_hold_that_was_handed_on_lasts_although_the_receiver_is_abandoned() {
    before_and_after(
        "
         0s  level 12              raised
         0s  A lease 1h            granted
         0s  B lease 1h            granted
         0s  C lease 1h            granted
         0s  A lock job min=60s    held token=1
         0s  B lock job once=k     queued ahead=0 (place=2)
         0s  C lock job            queued ahead=1
        20s  A hand job to B       handed on under token=2; B held token=2
        21s  B abandon place=2 of=k  abandoned
        22s  B unlock job          released
        60s  show job              B token=2 resting 38002ms | C
    ",
        &[
            (
                "abandoned\n        22s  B unlock job          released",
                "abandoned, given up; C held token=3",
            ),
            ("B token=2 resting 38002ms | C", "C token=3"),
        ],
    );
}

#[test]
fn a_hold_that_was_handed_on_without_a_min_hold_can_be_abandoned() {
    check(
        "
         0s  level 12              raised
         0s  A lease 1h            granted
         0s  B lease 1h            granted
         0s  C lease 1h            granted
         0s  A lock job min=10s    held token=1
         0s  B lock job once=k     queued ahead=0 (place=2)
         0s  C lock job            queued ahead=1
        20s  A hand job to B       handed on under token=2; B held token=2
        21s  B abandon place=2 of=k  abandoned, given up; C held token=3
    ",
    );
}

#[test]
fn what_was_named_under_longer_names_can_be_opened_and_left_to_the_requests() {
    before_and_after(
        "
         0s  level 12              raised
         0s  drain p*100           drained
         0s  resize s*100 3        resized
         1s  limits name_bytes=16  set
         1s  drain q*100           refused invalid-name (name_bytes is 16, asked 100)
         1s  resize s*100 4        refused invalid-name (name_bytes is 16, asked 100)
         2s  undrain p*100         opened
         2s  resize s*100 any      resized
         2s  drains                nothing
    ",
        &[
            ("opened", "refused invalid-name (name_bytes is 16, asked 100)"),
            (
                "any      resized\n         2s  drains                nothing",
                "any      refused invalid-name (name_bytes is 16, asked 100)",
            ),
        ],
    );
}

#[test]
fn explain_does_not_count_the_hold_that_waits_to_be_upgraded() {
    check(
        "
         0s  level 12              raised
         0s  A lease 60s           granted
         0s  Y lease 5s            granted
         0s  A lock data shared    held token=1
         0s  Y lock data shared    held token=2
         0s  explain data          held by A for 0s; held by Y for 0s; chain A data; free in 60001ms if silent
         1s  A upgrade data        queued ahead=0
         1s  explain data          held by A for 1s; held by Y for 1s; ahead A; chain A data, Y data;
             .. free in 4001ms if silent
    ",
    );
}

#[test]
fn an_upgrade_that_ends_with_its_hold_is_told_so() {
    before_and_after(
        "
         0s  level 12                raised
         0s  A lease 60s             granted
         0s  B lease 1h              granted
         0s  A lock data shared      held token=1
         0s  B lock data shared      held token=2
         1s  A upgrade data          queued ahead=0
         2s  A unlock data           released; A wait over: not-holder (data) (place=3)
         3s  A lock data shared      held token=3
         4s  A upgrade data wait=5s  queued ahead=0
         9s  -                       -
        10s  -                       A wait over
        11s  A upgrade data          queued ahead=0
        12s  force data token=3      forced, free in 48001ms; A wait over: not-holder (data) (place=6); \
             A lost data, forced (token=3)
    ",
        &[
            ("A wait over: not-holder (data) (place=3)", "A wait over (place=3)"),
            ("A wait over: not-holder (data) (place=6)", "A wait over (place=6)"),
        ],
    );
}
