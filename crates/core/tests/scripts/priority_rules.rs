//! Tests that a rule of a role permits priorities up to its own, for the names and verbs that it permits.

use crate::script::check;

/// `deployer` may deploy with priorities up to 3 and campaign with up to 1; `oncall` may take locks away. Ana is a
/// deployer, Olga both, Bob may acquire without any priority.
const TEAM: &str = "
         0s  level 15                                            raised
         0s  role deployer acquire@deploy/@3 elect@deploy/@1     done
         0s  role oncall acquire,force@                          done
         0s  role reader acquire,read@                           done
         0s  role root administer@                               done
         0s  principal ana deployer                              done
         0s  principal olga deployer oncall                      done
         0s  principal bob reader                                done
         0s  principal ruth root                                 done
         0s  identity on                                         done
         0s  A lease 1h as=ana                                   granted
         0s  B lease 1h as=bob                                   granted
         0s  C lease 1h as=olga                                  granted
";

#[track_caller]
fn check_team(script: &str) {
    check(&format!("{TEAM}{script}"));
}

#[test]
fn a_rule_permits_priorities_up_to_its_own() {
    check_team(
        "
         1s  B lock deploy/web as=bob               held token=1
         2s  A lock deploy/web priority=4 as=ana    refused forbidden: priority 4, at most 3
         2s  A lock deploy/web priority=3 as=ana    queued ahead=0
         3s  queue deploy/web                       A ahead=0 waits 0s priority=3
    ",
    );
}

#[test]
fn without_such_a_rule_only_priority_0_is_permitted() {
    check_team(
        "
         1s  B lock deploy/web priority=1 as=bob    refused forbidden: priority 1, at most 0
         1s  B lock deploy/web as=bob               held token=1
    ",
    );
}

#[test]
fn who_may_take_a_lock_away_may_use_every_priority() {
    check_team(
        "
         1s  C lock other priority=9 as=olga        held token=1
         1s  C lock deploy/web priority=9 as=olga   held token=2
    ",
    );
}

#[test]
fn a_priority_is_for_the_names_and_the_verb_of_its_rule() {
    // The second role permits to acquire everything, and permits no priorities.
    check_team(
        "
         1s  role reader acquire,read@ as=ruth      done
         1s  principal ana deployer reader as=ruth  done
         2s  A lock other as=ana                    held token=1
         2s  A lock others priority=1 as=ana        refused forbidden: priority 1, at most 0
         2s  A lock deploy/web priority=3 as=ana    held token=2
         3s  A campaign deploy/boss priority=2 as=ana  refused forbidden: priority 2, at most 1
         3s  A campaign deploy/boss priority=1 as=ana  held token=3
    ",
    );
}

#[test]
fn of_several_rules_for_one_name_the_greatest_priority_counts() {
    check_team(
        "
         1s  role hotfix acquire@deploy/web@7 as=ruth    done
         1s  principal ana deployer hotfix as=ruth       done
         2s  A lock deploy/web priority=7 as=ana         held token=1
         2s  A lock deploy/db priority=7 as=ana          refused forbidden: priority 7, at most 3
    ",
    );
}

#[test]
fn a_request_for_several_locks_needs_its_priority_for_each() {
    check_team(
        "
         1s  role deployer acquire@deploy/@3 acquire@test/@1 as=ruth  done
         2s  A lock deploy/web test/web priority=2 as=ana  refused forbidden: priority 2, at most 1
         2s  A lock deploy/web test/web priority=1 as=ana  held deploy/web token=1, test/web token=2
    ",
    );
}

#[test]
fn a_lock_that_may_not_be_acquired_is_refused_for_that_reason() {
    check_team(
        "
         1s  A lock other priority=1 as=ana         refused forbidden: acquire
         1s  A lock deploy/web other priority=9 as=ana  refused forbidden: acquire
    ",
    );
}

#[test]
fn a_change_of_the_rule_holds_from_its_place_in_the_log_on() {
    // Commands of one entry, each by the rules that the one before it has left.
    check_team(
        "
         1s  A lock deploy/1 priority=3 as=ana + role deployer acquire@deploy/@2 as=ruth
             .. held token=1 + done
         2s  role deployer acquire@deploy/@1 as=ruth + A lock deploy/2 priority=2 as=ana
             .. done + refused forbidden: priority 2, at most 1
         3s  A lock deploy/2 priority=1 as=ana      held token=2
    ",
    );
}

#[test]
fn a_place_in_a_queue_keeps_its_priority_when_the_rule_goes() {
    check_team(
        "
         1s  B lock deploy/web as=bob               held token=1
         2s  A lock deploy/web priority=3 as=ana    queued ahead=0
         3s  unrole deployer as=ruth                done
         4s  queue deploy/web                       A ahead=0 waits 1s priority=3
    ",
    );
}

#[test]
fn a_role_is_as_the_caller_has_seen_it_only_if_its_priorities_are_so() {
    check_team(
        "
         1s  role hotfix acquire@deploy/@7 as=ruth                          done
         2s  role hotfix acquire@deploy/@8 seen=acquire@deploy/ as=ruth     refused access-changed
         2s  role hotfix acquire@deploy/@8 seen=acquire@deploy/@6 as=ruth   refused access-changed
         2s  role hotfix acquire@deploy/@8 seen=acquire@deploy/@7 as=ruth   done
    ",
    );
}

#[test]
fn without_identity_every_priority_is_permitted() {
    check(
        "
         0s  level 15                          raised
         0s  role worker acquire@              done
         0s  principal ana worker              done
         0s  A lease 1h as=ana                 granted
         0s  A lock web priority=9 as=ana      held token=1
    ",
    );
}

#[test]
fn below_level_15_no_rule_permits_priorities() {
    check(
        "
         0s  level 14                               raised
         0s  role deployer acquire@deploy/@3        refused malformed
         0s  role deployer acquire@deploy/          done
         0s  role deployer read@ seen=acquire@deploy/@3  refused malformed
         0s  role oncall acquire,force@             done
         0s  principal ana deployer                 done
         0s  principal olga oncall                  done
         0s  identity on                            done
         0s  A lease 1h as=ana                      granted
         0s  B lease 1h as=olga                     granted
         1s  A lock deploy/web priority=1 as=ana    refused forbidden: force
         1s  B lock deploy/web priority=9 as=olga   held token=1
         2s  level 15 as=tenure/member              raised
         2s  A lock deploy/web priority=1 as=ana    refused forbidden: priority 1, at most 0
         2s  role deployer acquire@deploy/@3 as=tenure/member  done
         2s  A lock deploy/web priority=1 as=ana    queued ahead=0
    ",
    );
}
