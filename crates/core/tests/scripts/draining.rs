//! Tests that nothing is granted below a drained prefix, that holders finish, and that opening it grants in order.

use tenure_types::Name;

use crate::script::{check, play};

#[test]
fn a_drained_prefix_grants_nothing_and_its_holders_finish() {
    check(
        "
         0s  level 7                                  raised
         0s  A lease 60s                              granted
         0s  B lease 60s                              granted
         0s  A lock db/1                              held token=1
         1s  drain db/ by=ops reason=disks            drained
         2s  B lock db/1                              queued ahead=0
         2s  B lock db/2                              queued ahead=0
         3s  A renew                                  renewed
         4s  A unlock db/1                            released
         4s  show db/1                                nobody | B
         5s  A lock web                               held token=2
         6s  undrain db/                              opened; B held token=3; B held token=4
    ",
    );
}

#[test]
fn who_does_not_wait_is_told_who_drained_it_and_why() {
    check(
        "
         0s  level 7                        raised
         0s  A lease 60s                    granted
         0s  B lease 60s                    granted
         0s  A lock db/1                    held token=1
         1s  drain db/ by=ops reason=disks  drained
         2s  B lock db/2 try                refused draining (db/2 below db/ by ops: disks)
         2s  B lock db/1 try                refused draining (db/1 below db/ by ops: disks)
         2s  B lock web db/3 try            refused draining (db/3 below db/ by ops: disks)
         2s  B lock db/2 wait=0s            refused draining (db/2 below db/ by ops: disks)
         3s  B lock db/2 wait=2s            queued ahead=0
         6s  -                              B wait over
    ",
    );
}

#[test]
fn waiters_are_granted_in_the_order_in_which_they_asked() {
    check(
        "
         0s  level 7             raised
         0s  A lease 60s         granted
         0s  B lease 60s         granted
         0s  C lease 60s         granted
         0s  drain db/           drained
         1s  C lock db/1         queued ahead=0
         2s  A lock db/1         queued ahead=1
         3s  B lock db/1 shared  queued ahead=2
         4s  undrain db/         opened; C held token=1
         5s  C unlock db/1       released; A held token=2
         6s  A unlock db/1       released; B held token=3
    ",
    );
}

#[test]
fn a_request_for_several_locks_waits_if_one_of_them_is_drained() {
    check(
        "
         0s  level 7          raised
         0s  A lease 60s      granted
         0s  B lease 60s      granted
         0s  drain db/        drained
         1s  A lock db/1 web  queued ahead=0
         2s  B lock web       queued ahead=1
         3s  undrain db/      opened; A held db/1 token=1, web token=2
    ",
    );
}

#[test]
fn the_longest_drained_prefix_counts_and_each_is_opened_alone() {
    check(
        "
         0s  level 7                             raised
         0s  A lease 60s                         granted
         0s  drain db/ by=ops reason=disks       drained
         0s  drain db/eu/ by=eve reason=network  drained
         1s  A lock db/eu/1 try                  refused draining (db/eu/1 below db/eu/ by eve: network)
         1s  A lock db/us/1 try                  refused draining (db/us/1 below db/ by ops: disks)
         2s  A lock db/eu/1                      queued ahead=0
         3s  undrain db/eu/                      opened
         4s  undrain db/eu/                      open already
         5s  undrain db/                         opened; A held token=1
    ",
    );
}

#[test]
fn the_empty_prefix_is_that_of_every_lock() {
    check(
        "
         0s  level 7         raised
         0s  A lease 60s     granted
         0s  drain \"\"        drained
         1s  A lock web      queued ahead=0
         2s  undrain \"\"      opened; A held token=1
    ",
    );
}

#[test]
fn a_semaphore_keeps_its_holders_and_gets_no_new_ones() {
    check(
        "
         0s  level 7              raised
         0s  A lease 60s          granted
         0s  B lease 60s          granted
         0s  A lock pool slots=2  held token=1 slot=0
         1s  drain pool           drained
         2s  B lock pool slots=2  queued ahead=0
         3s  left pool            1
         4s  A unlock pool        released
         4s  left pool            0
         5s  undrain pool         opened; B held token=2 slot=0
    ",
    );
}

#[test]
fn a_holder_may_downgrade_and_its_election_is_not_filled_again() {
    check(
        "
         0s  level 7           raised
         0s  A lease 60s       granted
         0s  B lease 60s       granted
         0s  A lock db/1       held token=1
         0s  A campaign db/2   held token=2
         1s  drain db/         drained
         2s  A downgrade db/1  shared token=3
         3s  B campaign db/2   queued ahead=0
         4s  A resign db/2     released
         4s  events db/2 from 8  8 db/2 queued B; 9 db/2 released A token=2 ttl=60s renewed=0s;
             .. 9 db/2 vacant
         5s  undrain db/       opened; B held token=4
    ",
    );
}

#[test]
fn draining_again_replaces_the_reason_and_keeps_the_beginning() {
    check(
        "
         0s  level 7                         raised
         0s  drain db/ by=ops reason=disks   drained
         5s  drain db/ by=ops reason=disks   drained
         5s  revision                        2
         7s  drain db/ by=eve reason=late    drained
         9s  -                               -
         9s  drains                          db/ for 9s by eve: late
         9s  events all from 2               2 settings drained by=ops reason=disks value=db/;
             .. 3 settings drained by=eve reason=late value=db/
    ",
    );
}

#[test]
fn a_watch_of_a_prefix_sees_what_is_drained_above_and_below_it() {
    check(
        "
         0s  level 7            raised
         0s  drain db/eu/       drained
         0s  drain web          drained
         1s  undrain db/eu/     opened
         2s  events db/* from 1       2 settings drained value=db/eu/; 4 settings undrained value=db/eu/
         2s  events db/eu/1/* from 1  2 settings drained value=db/eu/; 4 settings undrained value=db/eu/
         2s  events db/us/* from 1    nothing
         2s  events db/eu/1 from 1    nothing
    ",
    );
}

#[test]
fn explain_says_that_a_lock_is_drained_by_whom_and_why() {
    check(
        "
         0s  level 7                        raised
         0s  A lease 60s                    granted
         0s  B lease 60s                    granted
         0s  drain db/ by=ops reason=disks  drained
         1s  A lock db/1                    queued ahead=0
         3s  -                              -
         3s  explain db/1                   ahead A; free now; drained db/ for 3s by ops: disks
         3s  explain A db/1                 own A ahead=0 waits 2s; free now; drained db/ for 3s by ops: disks
    ",
    );
}

#[test]
fn waiting_below_a_drained_prefix_is_no_deadlock() {
    check(
        "
         0s  level 7          raised
         0s  A lease 60s      granted
         0s  B lease 60s      granted
         0s  A lock web       held token=1
         1s  drain db/        drained
         2s  A lock db/1      queued ahead=0
         3s  B lock db/1      queued ahead=1
         4s  B lock web       queued ahead=0
    ",
    );
}

#[test]
fn only_who_may_operate_the_prefix_drains_it() {
    check(
        "
         0s  level 7                                  raised
         0s  role eu operate@db/eu/                   done
         0s  principal olga eu                        done
         0s  role all administer@\"\"                   done
         0s  principal root all                       done
         0s  identity on as=root                      done
         1s  drain db/eu/ as=olga reason=disks        drained
         1s  drains                                   db/eu/ for 0s as olga: disks
         1s  drain db/ as=olga                        refused forbidden: operate
         1s  drain \"\" as=olga                         refused forbidden: operate
         1s  undrain db/eu/ as=root                   refused forbidden: operate
         2s  undrain db/eu/ as=olga                   opened
    ",
    );
}

#[test]
fn below_level_7_nothing_can_be_drained() {
    check(
        "
         0s  level 6       raised
         0s  drain db/     refused malformed
         0s  undrain db/   refused malformed
         0s  level 7       raised
         0s  drain db/     drained
    ",
    );
}

#[test]
fn a_drained_prefix_survives_a_restore() {
    check(
        "
         0s  level 7                        raised
         0s  A lease 10s                    granted
         0s  drain db/ by=ops reason=disks  drained
         1s  restore epoch=1 waive          restored
         2s  A lease 10s                    granted
         2s  drains                         db/ for 2s by ops: disks
         2s  A lock db/1 try                refused draining (db/1 below db/ by ops: disks)
    ",
    );
}

#[test]
fn a_prefix_is_a_name_and_the_reason_is_bounded() {
    check(
        "
         0s  level 7                   raised
         0s  drain a^G                 refused invalid-name
         0s  drain x*513               refused invalid-name (name_bytes is 512, asked 513)
         0s  drain db/ reason=x*4097   refused metadata-too-long (metadata_bytes is 4096, asked 4097)
         0s  drain db/ by=a^G          refused invalid-name
         0s  undrain a^G               refused invalid-name
         0s  drains                    nothing
    ",
    );
}

#[test]
fn a_thousand_prefixes_can_be_drained_and_no_more() {
    use std::fmt::Write as _;

    let mut script = String::from("0s  level 7  raised\n");
    for number in 0..1_000 {
        writeln!(script, "0s  drain p{number}/  drained").unwrap();
    }
    script += "0s  drain one-more/  refused drains-full (max 1000)\n";
    script += "0s  drain p7/ reason=again  drained\n";
    script += "0s  undrain p7/  opened\n";
    script += "0s  drain one-more/  drained\n";
    check(&script);
}

#[test]
fn cooling_holders_may_still_be_at_work_and_are_counted() {
    let machine = play(
        "
         0s  level 7                                     raised
         0s  A lease 60s                                 granted
         0s  B lease 60s                                 granted
         0s  A lock db/1                                 held token=1
         0s  A lock db/2 min=30s                         held token=2
         0s  B lock web                                  held token=3
         1s  drain db/                                   drained
         2s  force db/1 token=1 by=ops reason=stuck      forced, free in 58001ms; A lost db/1, forced by ops for stuck
         2s  A unlock db/2                               released
    ",
    )
    .machine;
    let sorted = machine.sorted_locks(usize::MAX).unwrap();
    let counted = |prefix: &str, after: Option<&Name>, max| {
        let left = sorted.holders_left(prefix, after, max);
        (left.holders, left.last)
    };
    // db/1 cools, db/2 only rests.
    assert_eq!(counted("db/", None, 10), (1, None));
    assert_eq!(counted("", None, 10), (2, None));
    assert_eq!(counted("none", None, 10), (0, None));
    // What one read does not count is counted by the next.
    let (holders, last) = counted("", None, 2);
    assert_eq!((holders, last.as_ref().map(Name::as_str)), (1, Some("db/2")));
    assert_eq!(counted("", last.as_ref(), 2), (1, None));
    let one_by_one = |mut after: Option<Name>| {
        let mut holders = 0;
        loop {
            let left = sorted.holders_left("", after.as_ref(), 1);
            holders += left.holders;
            match left.last {
                Some(last) => after = Some(last),
                None => return holders,
            }
        }
    };
    assert_eq!(one_by_one(None), 2);
}
