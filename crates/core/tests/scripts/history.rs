//! Tests the history of events: its content, its pages and its floor.

use crate::script::check;

#[test]
fn one_who_reads_and_then_watches_from_the_next_revision_misses_nothing() {
    check(
        "
         0s  put config 1              written version=1
         0s  get config                1 version=1 (created=1 modified=1)
         0s  revision                  1
         1s  put config 2              written version=2
         1s  put other x               written version=1
         2s  put config 3              written version=3
         2s  events config from 2      2 key config key_put value=2 was 1@1;
             .. 4 key config key_put value=3 was 2@2 (next 5)
         2s  events config from 5      nothing (next 5)
         3s  delete config             deleted
         3s  events config from 5      5 key config key_deleted was 3@4 (next 6)
    ",
    );
}

#[test]
fn every_change_of_a_lock_says_why() {
    check("
         0s  A lease 10s               granted
         0s  B lease 60s               granted
         0s  A lock x max=20s meta=m   held token=1
         0s  B lock x wait=3s          queued ahead=0
         3s  -                         B wait over
         4s  A update x n              updated version=2
         4s  A downgrade x             shared token=2
         5s  B lock x                  queued ahead=0
         5s  B leave x                 left
         9s  A renew                   renewed
        10s  -                         A lost x, max_hold
        19s  -                         A expired
        20s  A lease 10s               granted
        20s  A lock x delay=1s         held token=3
        21s  force x token=3 reason=r  forced, free in 9s; A lost x, forced
        22s  A stopped x               stopped
        23s  -                         -
        24s  A lock x                  held token=4
        24s  A unlock x                released
        24s  events x from 1           3 x granted A token=1 value=m; 4 x queued B; 5 x wait_timeout B;
             .. 6 x updated A token=1 value=n was m@3; 7 x downgraded A token=2 shared;
             .. 8 x queued B; 9 x left B; 10 x max_hold A token=2 shared left=9s;
             .. 11 x cooled A token=2 shared; 13 x granted A token=3;
             .. 14 x forced A token=3 left=9s reason=r; 15 x cooled A token=3 left=1s;
             .. 16 x delay_over A token=3; 17 x granted A token=4; 18 x released A token=4
    ");
}

#[test]
fn the_settings_and_leases_have_a_history_too() {
    check("
         0s  limits slots=8            set
         0s  A lease 10s               granted
        10s  -                         A expired
        10s  events all from 1         1 settings limits_set; 2 lease lease_granted A; 3 lease expired A
        10s  events A* from 1          nothing (next 4)
    ");
}

#[test]
fn all_that_one_command_does_has_one_revision() {
    check("
         0s  A lease 10s               granted
         0s  B lease 10s               granted
         0s  A lock a b                held a token=1, b token=2
         0s  B lock a b                queued ahead=0
         1s  A revoke                  revoked; B held a token=3, b token=4
         1s  events all from 5         5 a revoked A token=1; 5 b revoked A token=2; 5 lease revoked A;
             .. 5 a granted B token=3 (place=2); 5 b granted B token=4 (place=2) (next 6)
         1s  revision                  5
    ");
}

#[test]
fn a_name_or_the_beginning_of_names_can_be_watched() {
    check(
        "
         0s  A lease 60s               granted
         0s  A lock app/db             held token=1
         0s  A lock app/db2            held token=2
         0s  put app/conf 1            written version=1
         0s  put application 1         written version=1
         0s  events app/db from 1      2 app/db granted A token=1 (place=1) (next 6)
         0s  events app/* from 1       2 app/db granted A token=1; 3 app/db2 granted A token=2;
             .. 4 key app/conf key_put value=1
         0s  events ap from 1          nothing
         0s  events * from 1           2 app/db granted A token=1; 3 app/db2 granted A token=2;
             .. 4 key app/conf key_put value=1; 5 key application key_put value=1
    ",
    );
}

#[test]
fn history_is_read_in_pages_of_revisions_looked_at() {
    check(
        "
         0s  put a 1                   written version=1
         0s  put b 1                   written version=1
         0s  put a 2                   written version=2
         0s  events a from 1 max=2     1 key a key_put value=1 (next 3)
         0s  events a from 3 max=2     3 key a key_put value=2 was 1@1 (next 4)
         0s  events b from 3 max=1     nothing (next 4)
         0s  events b from 9           nothing (next 9)
         0s  events b from 1 max=0     nothing (next 1)
    ",
    );
}

#[test]
fn history_is_forgotten_by_command_up_to_a_revision() {
    check(
        "
         0s  put a 1                   written version=1
         0s  put a 2                   written version=2
         0s  put a 3                   written version=3
         0s  compact 3                 kept from 3
         0s  revision                  3 (floor 3)
         0s  events a from 2           compacted, history begins at 3
         0s  events a from 3           3 key a key_put value=3 was 2@2
         0s  compact 2                 kept from 3
         0s  compact 5                 refused future-revision (asked 5, newest 3)
         0s  compact 4                 kept from 4
         0s  revision                  3 (floor 4)
         0s  events a from 3           compacted, history begins at 4
         0s  events a from 4           nothing (next 4)
         1s  put a 4                   written version=4
         1s  events a from 4           4 key a key_put value=4 was 3@3
    ",
    );
}

#[test]
fn from_level_14_on_a_compaction_is_recorded_and_keeps_the_newest_thousand_revisions() {
    let mut script = String::from("0s  level 14                   raised\n");
    script.push_str("0s  put a 0                    written version=1\n");
    // Three revisions so far; the compaction has one too.
    script.push_str("0s  compact 3 as=ops           kept from 1\n");
    script.push_str("0s  events all from 3          3 settings history_compacted as=ops value=1\n");
    for version in 2..1_100 {
        script.push_str(&format!("0s  put a {version}    written version={version}\n"));
    }
    script.push_str("0s  revision                   1101 (floor 1)\n");
    script.push_str("0s  compact 90 as=ops          kept from 90\n");
    script.push_str("0s  compact 1103 as=ops        kept from 103\n");
    script.push_str(
        "0s  compact 1105               refused future-revision (asked 1105, newest 1103)\n",
    );
    script.push_str("0s  revision                   1103 (floor 103)\n");
    script.push_str(
        "0s  events all from 1102       1102 settings history_compacted as=ops value=90; ",
    );
    script.push_str("1103 settings history_compacted as=ops value=103\n");
    check(&script);
}

#[test]
fn compaction_moves_no_revision_and_no_state() {
    check(
        "
         0s  A lease 60s               granted
         0s  A lock deploy             held token=1
         0s  compact 3                 kept from 3
         0s  revision                  2 (floor 3)
         0s  show deploy               A token=1 (created=2 modified=2 version=1)
    ",
    );
}

#[test]
fn history_keeps_as_many_revisions_as_allowed() {
    check(
        "
         0s  limits history_revisions=3   set
         0s  put a 1                      written version=1
         0s  put a 2                      written version=2
         0s  revision                     3 (floor 1)
         0s  put a 3                      written version=3
         0s  revision                     4 (floor 2)
         0s  events a from 1              compacted, history begins at 2
         0s  limits history_revisions=1   set
         0s  revision                     5 (floor 5)
         0s  events all from 5            5 settings limits_set
    ",
    );
}

#[test]
fn history_keeps_as_many_bytes_as_allowed_and_always_the_newest_revision() {
    check(
        "
         0s  limits history_bytes=4096    set
         0s  put a x*1300                 written version=1
         0s  put b x*1300                 written version=1
         0s  put c x*1300                 written version=1
         0s  revision                     4 (floor 1)
         0s  put d x*1300                 written version=1
         0s  revision                     5 (floor 3)
         0s  put e x*9000                 written version=1
         0s  revision                     6 (floor 6)
         0s  events e from 6              6 key e key_put value=9000 bytes
         0s  put f x                      written version=1
         0s  revision                     7 (floor 7)
    ",
    );
}

#[test]
fn what_is_due_emits_one_revision_for_all_that_ends() {
    check(
        "
         0s  A lease 10s               granted
         0s  B lease 10s               granted
        10s  -                         A expired; B expired
        10s  revision                  3
        10s  events all from 3         3 lease expired A; 3 lease expired B
    ",
    );
}

#[test]
fn locks_that_a_client_gives_back_with_its_lease_are_released() {
    check(
        "
         0s  A lease 10s               granted
         0s  A lock a                  held token=1
         0s  A revoke                  revoked
         0s  events all from 3         3 a revoked A token=1; 3 lease revoked A (next 4)
         1s  level 4                   raised
         1s  A lease 10s               granted
         1s  A lock a                  held token=2
         1s  A revoke                  revoked
         1s  events all from 7  7 a released A token=2 ttl=10s renewed=1s; 7 lease revoked A ttl=10s renewed=1s (next 8)
    ",
    );
}

#[test]
fn administrative_events_name_the_principal_from_level_4_on() {
    check(
        "
         0s  level 3 as=olga                        raised
         0s  A lease 60s                            granted
         0s  B lease 60s                            granted
         0s  A lock a                               held token=1
         0s  A lock b                               held token=2
         1s  limits slots=8 as=olga                 set
         1s  force a token=1 by=ops as=olga         forced, free in 59001ms; A lost a, forced by ops (token=1)
         1s  put tenure/x v as=tenure/member        written version=1
         2s  level 4 as=olga                        raised
         2s  limits slots=9 as=olga                 set
         2s  limits slots=10                        set
         2s  force b token=2 by=ops as=olga         forced, free in 58001ms; A lost b, forced by ops (token=2)
         2s  force b token=2 by=ann now as=ruth     forced
         2s  revoke B as=ruth                       revoked; B revoked
         2s  put tenure/x w as=tenure/member/olga   written version=2
         2s  put plain v as=olga                    written version=1
         2s  delete tenure/x as=tenure/member       deleted
         2s  events all from 6                      6 settings limits_set;
             .. 7 a forced A token=1 left=59001ms by=ops; 8 key tenure/x key_put value=v;
             .. 9 settings level_raised as=olga; 10 settings limits_set as=olga; 11 settings limits_set;
             .. 12 b forced A token=2 left=58001ms by=ops as=olga ttl=60s renewed=0s;
             .. 13 b cooled A token=2 by=ann reason=forced without waiting as=ruth;
             .. 14 lease revoked B as=ruth ttl=60s renewed=0s; 15 key tenure/x key_put as=olga value=w was v@8;
             .. 16 key plain key_put value=v; 17 key tenure/x key_deleted as=tenure/member was w@15 (next 18)
    ",
    );
}
