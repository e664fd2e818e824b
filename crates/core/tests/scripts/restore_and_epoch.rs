//! Tests the restore of a backup as a new incarnation of the cluster.

use tenure_core::codec::{encode_request, seal_entry};
use tenure_core::outcome::{Answer, Effects};
use tenure_core::request::{Command, LeaseRef, NewLease, Request, RequestId};
use tenure_core::{Machine, StoppedFor};
use tenure_types::{Epoch, Handle, LeaseId, Term};

use crate::script::check;

const BACKUP: &str = "
         0s  A lease 10s               granted
         0s  B lease 60s               granted
         0s  A lock deploy             held token=1
         0s  B lock deploy             queued ahead=0
         0s  A put leased v            written version=1
         0s  put free v                written version=1
         0s  put once v once=abc       written version=1
         0s  B lock deploy #1/0        queued ahead=0
         0s  B lock other once=ask     held token=2
         5s  -                         -
";

fn check_backup(script: &str) {
    check(&format!("{BACKUP}{script}"));
}

#[test]
fn leases_places_grants_and_what_is_bound_to_them_are_gone_and_free_keys_stay() {
    check_backup("
         5s  restore epoch=1           restored
         5s  epoch                     1
         5s  leases                    nothing
         5s  list                      nothing
         5s  keys                      free=v, once=v
         5s  stats                     leases=0 locks=0 grants=0 places=0 keys=2 requests=2 deadlines=1 cut=0
         5s  weight                    202
    ");
}

#[test]
fn every_token_and_revision_is_above_those_of_the_old_incarnation() {
    check_backup(
        "
         5s  revision                  8 (floor 1)
         5s  restore epoch=1 waive     restored
         5s  revision                  281474976710664 (floor 281474976710665)
         5s  events all from 8         compacted, history begins at 281474976710665
         0s  A lock deploy lease=10s   held token=281474976710657 (place=4)
         0s  revision                  281474976710665
         0s  put free w guard=deploy:1  refused guard-failed
    ",
    );
}

#[test]
fn nothing_is_granted_before_the_longest_lease_there_can_be_and_its_delay_would_have_ended() {
    // No lease of the backup lives longer than a minute. A lease that was granted after the backup may.
    check_backup(
        "
         5s  restore epoch=1              restored
         0s  A lock deploy try lease=10s  refused quiet (3660s left)
         0s  leases                       nothing
         0s  A lock deploy lease=3600s    queued ahead=0
        70s  B lock other lease=3600s     queued ahead=0
        70s  C lock deploy lease=3600s    queued ahead=1
        80s  C lock third try             refused quiet (3580s left)
        80s  explain deploy               ahead A C; free in 3580s at the latest; quiet for 3580s
      3500s  renew A B C                  renewed, renewed, renewed
      3659s  -                            -
      3659s  show deploy                  nobody | A C
      3660s  -                            A held token=281474976710657; B held token=281474976710658
      3661s  A unlock deploy              released; C held token=281474976710659
      3662s  C lock third try             held token=281474976710660
    ",
    );
}

#[test]
fn the_quiet_follows_the_limits_of_the_backup_and_what_is_older_than_they() {
    check(
        "
         0s  limits ttl_max_ms=30000 lock_delay_ms=5000   set
         0s  put k v                                      written version=1
         5s  restore epoch=1                              restored
         0s  A lock deploy try lease=10s                  refused quiet (35s left)
    ",
    );
    check(
        "
         0s  A lease 120s                                 granted
         0s  A lock deploy delay=20s                      held token=1
         1s  limits ttl_max_ms=30000 lock_delay_ms=5000   set
         5s  restore epoch=1                              restored
         0s  B lock deploy try lease=10s                  refused quiet (140s left)
    ",
    );
}

#[test]
fn the_operators_word_for_how_long_all_clients_have_stopped_shortens_the_quiet() {
    check_backup(
        "
         5s  restore epoch=1 stopped=3600s  restored
         0s  A lock deploy try lease=10s    refused quiet (60s left)
        30s  restore epoch=2 stopped=3650s  restored
         0s  A lock deploy try lease=10s    refused quiet (10s left)
         0s  restore epoch=3 stopped=3660s  restored
         0s  A lock deploy try lease=10s    held token=844424930131969
    ",
    );
}

#[test]
fn during_the_quiet_keys_and_leases_work() {
    check_backup(
        "
         5s  restore epoch=1           restored
         0s  A lease 10s               granted
         0s  put free w                written version=2
         9s  A renew                   renewed
         9s  due                       24s
    ",
    );
}

#[test]
fn waits_of_the_quiet_can_run_out_or_be_left() {
    check_backup(
        "
         5s  restore epoch=1                    restored
         0s  A lock deploy lease=70s wait=5s    queued ahead=0
         0s  B lock deploy lease=70s            queued ahead=1
         0s  C lock deploy lease=70s            queued ahead=2
         5s  -                                  A wait over
         6s  B leave deploy                     left
         6s  show deploy                        nobody | C
    ",
    );
}

#[test]
fn the_operator_may_waive_the_quiet() {
    check_backup(
        "
         5s  restore epoch=1 waive     restored
         0s  A lock deploy try lease=10s  held token=281474976710657
    ",
    );
}

#[test]
fn a_backup_without_leases_needs_the_quiet_all_the_same() {
    check(
        "
         0s  put k v                      written version=1
         5s  restore epoch=1              restored
         0s  due                          3660s
         0s  A lock deploy try lease=10s  refused quiet (3660s left)
    ",
    );
}

#[test]
fn an_epoch_that_is_not_higher_changes_nothing() {
    check_backup(
        "
         5s  restore epoch=0           refused
         5s  show deploy               A token=1 | B
         5s  restore epoch=3           restored
         5s  restore epoch=3           refused
         5s  restore epoch=2 waive     refused
         5s  epoch                     3
    ",
    );
}

#[test]
fn what_was_asked_with_a_key_is_remembered_and_what_held_by_it_has_ended() {
    check_backup(
        "
         5s  restore epoch=1 waive     restored
         0s  put once v once=abc       written version=1
         0s  put once w once=abc       refused request-id-conflict
         0s  B lock other once=ask     ended
         0s  B lock deploy #1/0        refused lease-not-found
         0s  list                      nothing
    ",
    );
}

#[test]
fn the_clock_goes_on_and_the_first_leader_counts_from_there() {
    check_backup(
        "
         5s  clock                     5s (term 1)
         5s  restore epoch=1           restored
         5s  clock                     5s (term 0)
         1s  -                         -
         1s  clock                     6s (term 1)
    ",
    );
}

#[test]
fn an_old_handle_means_no_lease_of_the_new_incarnation() {
    check_backup(
        "
         5s  restore epoch=1 waive     restored
         0s  A lease 10s               granted
         0s  A renew old-handle        gone
         0s  A renew by-handle         renewed
    ",
    );
}

#[test]
fn limits_outlive_a_restore() {
    check(
        "
         0s  limits slots=8            set
         5s  restore epoch=9           restored
         5s  limit slots               8
         5s  level?                    1
    ",
    );
}

#[test]
fn the_quiet_lasts_as_long_as_anything_in_the_backup_kept_others_out() {
    check(
        "
         0s  A lease 60s                                  granted
         0s  A lock deploy delay=50s                      held token=1
         1s  force deploy token=1                         forced, free in 59s; A lost deploy, forced
         2s  limits ttl_max_ms=1000 lock_delay_ms=0       set
         2s  A revoke                                     revoked
         2s  restore epoch=1                              restored
         0s  due                                          110s
         0s  limits ttl_max_ms=3600000                    set
         0s  B lock deploy lease=600s                     queued ahead=0
       107s  -                                            -
       108s  -                                            B held token=281474976710657
    ",
    );
}

#[test]
fn a_restore_during_the_quiet_of_another_does_not_shorten_it() {
    check(
        "
         0s  restore epoch=1                              restored
         0s  limits ttl_max_ms=60000 lock_delay_ms=0      set
        10s  -                                            -
        10s  restore epoch=2                              restored
         0s  due                                          3660s
         0s  B lock deploy try lease=60s                  refused quiet (3650s left)
    ",
    );
}

fn answer(machine: &mut Machine, command: Command<'_>) -> Answer {
    let mut bytes = Vec::new();
    encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
    let mut effects = Effects::default();
    let payload = seal_entry(Term(1), 0, [bytes.as_slice()]);
    machine.apply(Term(1), Some(&payload), &mut effects);
    effects.outcomes.remove(0).result.unwrap()
}

fn lease(machine: &mut Machine, id: u64) -> Handle {
    let id = LeaseId::new(id).unwrap();
    let new = NewLease { id, ttl_ms: 10_000, client: "a", metadata: &[] };
    match answer(machine, Command::GrantLease(new)) {
        Answer::LeaseGranted(lease) => lease.handle,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_handle_given_after_the_backup_means_no_lease_of_the_restored_cluster() {
    let mut machine = Machine::new(Epoch::default());
    let mut restored = Machine::decode(&machine.encode()).unwrap();
    let lost = lease(&mut machine, 1);
    assert!(restored.restore(Epoch::new(1).unwrap(), StoppedFor::ForGood));
    let new = lease(&mut restored, 2);
    assert_eq!(lost.slot, new.slot, "the test needs the same slot");
    let renewed = answer(&mut restored, Command::Renew(vec![LeaseRef::Handle(lost)]));
    assert_eq!(renewed, Answer::Renewed(vec![None]));
}
