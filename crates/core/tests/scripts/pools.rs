//! Tests how any slot of a pool is requested: of the semaphores below a prefix whose sizes an operator has set.

use crate::script::check;

#[test]
fn a_pool_has_the_slots_that_an_operator_named() {
    check(
        "
         0s  level 13                 raised
         0s  A lease 10s              granted
         0s  B lease 10s              granted
         0s  C lease 10s              granted
         0s  A lock pool=gpu/         refused pool-empty (gpu/)
         0s  resize gpu/a 1           resized
         0s  resize gpu/b 1           resized
         0s  resize gpus 9            resized
         0s  A lock pool=gpu/         held token=1 slot=0
         0s  B lock pool=gpu/         held token=2 slot=0
         0s  C lock pool=gpu/         queued ahead=0
         0s  C lock pool=gpu/         queued ahead=0
         0s  A lock pool=gpu/         held token=1 slot=0
         1s  B unlock gpu/b           released; C held token=3 slot=0
         1s  show gpu/b               C token=3 slot=0
         1s  show gpu/a               A token=1 slot=0
    ",
    );
}

#[test]
fn a_slot_that_is_added_serves_those_who_wait_in_their_order() {
    check(
        "
         0s  level 13                 raised
         0s  A lease 10s              granted
         0s  B lease 10s              granted
         0s  C lease 10s              granted
         0s  resize gpu/a 1           resized
         0s  A lock pool=gpu/         held token=1 slot=0
         0s  B lock pool=gpu/         queued ahead=0
         0s  C lock pool=gpu/         queued ahead=1
         1s  resize gpu/b 1           resized; B held token=2 slot=0
         2s  resize gpu/c 2           resized; C held token=3 slot=0
         2s  show gpu/b               B token=2 slot=0
         2s  show gpu/c               C token=3 slot=0
    ",
    );
}

#[test]
fn a_pool_request_keeps_its_turn_before_later_requests_for_a_slot_that_is_added() {
    check(
        "
         0s  level 13                 raised
         0s  A lease 10s              granted
         0s  B lease 10s              granted
         0s  C lease 10s              granted
         0s  resize gpu/a 1           resized
         0s  A lock pool=gpu/         held token=1 slot=0
         0s  A lock gpu/b slots=1     held token=2 slot=0
         0s  B lock pool=gpu/         queued ahead=0
         0s  C lock gpu/b slots=1     queued ahead=0
         1s  resize gpu/b 1           resized
         1s  show gpu/b               A token=2 slot=0 | B C
         2s  A unlock gpu/b           released; B held token=3 slot=0
    ",
    );
}

#[test]
fn who_waits_leaves_the_queue_of_a_slot_that_is_removed() {
    check(
        "
         0s  level 13                 raised
         0s  A lease 10s              granted
         0s  B lease 10s              granted
         0s  resize gpu/a 1           resized
         0s  resize gpu/b 1           resized
         0s  A lock gpu/a slots=1     held token=1 slot=0
         0s  A lock gpu/b slots=1     held token=2 slot=0
         0s  B lock pool=gpu/         queued ahead=0
         1s  resize gpu/a any         resized
         1s  show gpu/a               A token=1 slot=0
         1s  show gpu/b               A token=2 slot=0 | B
         2s  resize gpu/b any         resized; B wait over: pool-empty (gpu/) (place=3)
    ",
    );
}

#[test]
fn a_slot_may_have_room_for_several() {
    check(
        "
         0s  level 13                 raised
         0s  A lease 10s              granted
         0s  B lease 10s              granted
         0s  C lease 10s              granted
         0s  resize host/a 1          resized
         0s  resize host/b 3          resized
         0s  A lock pool=host/ take=2  held host/b token=1 slot=0, host/b token=2 slot=1
         0s  B lock pool=host/ take=4  refused pool-empty (host/)
         0s  B lock pool=host/ take=2  queued ahead=0
         0s  C lock pool=host/        held token=3 slot=0
         1s  A unlock host/b token=1  released; B held host/b token=4 slot=0, host/b token=5 slot=2
    ",
    );
}

#[test]
fn a_repeated_request_is_answered_with_what_the_lease_has_whichever_slots_there_are() {
    check(
        "
         0s  level 13                   raised
         0s  A lease 10s                granted
         0s  B lease 10s                granted
         0s  C lease 10s                granted
         0s  resize gpu/a 1             resized
         0s  resize gpu/b 1             resized
         0s  A lock pool=gpu/           held token=1 slot=0
         0s  B lock pool=gpu/           held token=2 slot=0
         0s  C lock pool=gpu/           queued ahead=0
         0s  C lock pool=gpu/ take=2    refused overlap (gpu/)
         0s  C lock gpu/b slots=1       refused overlap (gpu/b)
         1s  resize gpu/a any           resized
         1s  A lock pool=gpu/           held token=1 slot=0
         1s  A lock pool=gpu/ take=2    refused overlap (gpu/)
         1s  C lock pool=gpu/           queued ahead=0
         2s  resize gpu/b any           resized; C wait over: pool-empty (gpu/) (place=3)
         2s  B lock pool=gpu/           held token=2 slot=0
         2s  C lock pool=gpu/           refused pool-empty (gpu/)
    ",
    );
}

#[test]
fn who_had_to_stay_out_of_a_queue_joins_it_with_the_next_resize() {
    check(
        "
         0s  level 13              raised
         0s  A lease 10s           granted
         0s  B lease 10s           granted
         0s  resize gpu/a 1        resized
         0s  A lock pool=gpu/      held token=1 slot=0
         0s  B lock gpu/b slots=1  held token=2 slot=0
         0s  B lock pool=gpu/      held token=2 slot=0
         0s  limits locks_per_lease=1  set
         0s  B unlock gpu/b        released
         0s  B lock pool=gpu/      queued ahead=0
         1s  resize gpu/b 1        resized
         1s  show gpu/b            nobody
         1s  limits locks_per_lease=9  set
         2s  resize gpu/b 1        resized; B held token=3 slot=0
         2s  show gpu/b            B token=3 slot=0
    ",
    );
}

/// Found by model seed 45255. The first two requests are numbered, and the state has no room to remember a new one: so
/// the machine looks whether they are about slots that the lease has, before it reads the name of the pool.
#[test]
fn a_pool_without_a_name_is_refused_also_if_the_state_is_full() {
    check(
        "
         0s  level 14                     raised
         0s  A lease 60s                  granted
         0s  B lease 60s                  granted
         0s  resize gpu/a 1               resized
         0s  A lock pool=gpu/             held token=1 slot=0
         0s  limits state_bytes=65536     set
         0s  put k1 a*32768               written version=1
         0s  put k2 a*32768               written version=1
         0s  B lock pool= take=1 #1/0     refused no-space
         0s  A lock pool= take=1 #1/0     refused invalid-name
         0s  A lock pool= take=2 #2/0     refused invalid-name
    ",
    );
}
