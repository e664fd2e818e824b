//! Tests that the machine accepts from each principal what its roles permit, and nothing else.

use crate::script::check;

/// Two teams, an operator and an administrator.
const TEAMS: &str = "
         0s  level 3                                             raised
         0s  role a acquire,keys,elect,read@a/                    done
         0s  role b acquire,keys,elect@b/                        done
         0s  role ops force,operate,read@                        done
         0s  role root administer@                               done
         0s  principal ana a                                     done
         0s  principal bob b                                     done
         0s  principal joe b a                                   done
         0s  principal olga ops                                  done
         0s  principal ruth root                                 done
         0s  identity on                                         done
";

#[track_caller]
fn check_teams(script: &str) {
    check(&format!("{TEAMS}{script}"));
}

#[test]
fn below_the_level_the_command_cannot_be_read() {
    check(
        "
         0s  level 2                      raised
         0s  identity on                  refused malformed
         0s  level 3                      raised
         0s  identity on as=x             done
         0s  identity off as=x            refused forbidden: administer
         0s  identity off as=tenure/member  done
    ",
    );
}

#[test]
fn a_role_permits_its_verbs_below_its_prefix() {
    check_teams(
        "
         1s  A lease 60s as=ana           granted
         1s  A lock a/x as=ana            held token=1
         1s  A lock b/x as=ana            refused forbidden: acquire
         1s  A lock a/y b/y as=ana        refused forbidden: acquire
         1s  A campaign a/e as=ana        held token=2
         1s  put a/k v as=ana             written version=1
         1s  put b/k v as=ana             refused forbidden: keys
         1s  put tenure/x v as=ana        refused forbidden: keys
         1s  put tenure/x v as=tenure/member  written version=1
         1s  limits slots=8 as=ana        refused forbidden: operate
         1s  limits slots=8 as=olga       set
         1s  principal eve as=olga        refused forbidden: administer
         1s  principal eve as=ruth        done
    ",
    );
}

#[test]
fn a_principal_that_changes_its_own_rules_is_bound_by_them_at_once() {
    // Each command follows another one of the same principal, so its rules are at hand.
    check_teams(
        "
         1s  role self administer@ acquire@own/ as=ruth  done
         1s  principal ruth root self as=ruth            done
         1s  A lease 60s as=ruth          granted
         1s  A lock own/x as=ruth         held token=1
         1s  A lock own/y as=ruth         held token=2
         1s  principal ruth root as=ruth  done
         1s  A lock own/z as=ruth         refused forbidden: acquire
         1s  principal ruth root self as=ruth  done
         1s  A lock own/z as=ruth         held token=3
         1s  role self administer@ as=ruth     done
         1s  A lock own/q as=ruth         refused forbidden: acquire
    ",
    );
}

#[test]
fn strangers_and_disabled_principals_are_refused_everything() {
    check_teams(
        "
         1s  principal off-duty a off as=ruth  done
         1s  A lease 60s                  refused forbidden: acquire
         1s  A lease 60s as=eve           refused forbidden: acquire
         1s  A lease 60s as=off-duty      refused forbidden: acquire
         1s  A lease 60s as=eve once=k    refused forbidden: acquire
         1s  put a/k v as=eve             refused forbidden: keys
         1s  force a/x token=1 as=eve     refused forbidden: force
    ",
    );
}

#[test]
fn the_lease_of_another_principal_does_not_exist() {
    check_teams(
        "
         1s  A lease 60s as=ana           granted
         1s  A lock a/x as=ana            held token=1
         2s  renew A as=joe               gone
         2s  A unlock a/x as=joe          refused lease-not-found
         2s  A lock a/y as=joe            refused lease-not-found
         2s  A leave a/x as=joe           refused lease-not-found
         2s  A update a/x v as=joe        refused lease-not-found
         2s  A downgrade a/x as=joe       refused lease-not-found
         2s  A put a/k v as=joe           refused lease-not-found
         2s  A revoke as=joe              refused lease-not-found
         2s  revoke A as=joe              refused lease-not-found
         2s  A lease 60s as=joe           refused lease-exists
         2s  A lock a/x #1/0 as=joe       refused lease-not-found
         2s  A abandon place=1 as=joe     abandoned
         2s  put a/k v guard=a/x:1 as=joe   refused guard-failed
         2s  put a/k v guard=a/x:1 as=ana   written version=1
         3s  force a/x token=1 as=olga    forced, free in 58001ms; A lost a/x, forced
         4s  A stopped a/x as=joe         refused not-cooling
         4s  A stopped a/x as=ana         stopped
         5s  revoke A as=olga             revoked; A revoked
    ",
    );
}

#[test]
fn a_lease_from_before_identity_stays_usable() {
    check(
        "
         0s  level 3                      raised
         0s  A lease 60s                  granted
         0s  A lock a/x                   held token=1
         0s  role a acquire@a/            done
         0s  principal ana a              done
         0s  identity on                  done
         1s  renew A                      refused forbidden: acquire
         1s  renew A as=ana               renewed
         2s  A unlock a/x as=ana          released
    ",
    );
}

#[test]
fn a_refusal_names_the_holder_only_to_those_who_may_read_the_lock() {
    check_teams(
        "
         1s  A lease 60s as=joe           granted
         1s  A lock a/x b/x as=joe        held a/x token=1, b/x token=2
         1s  B lease 60s as=bob           granted
         1s  C lease 60s as=ana           granted
         2s  B lock b/x try as=bob        refused held (b/x by nobody, 0 ahead)
         2s  C lock a/x try as=ana        refused held (a/x by A token=1 for 1s, 0 ahead)
         2s  force b/x token=7 as=olga    refused token-outdated (b/x by A token=2 for 1s)
    ",
    );
}

#[test]
fn with_its_principal_a_lease_ends_as_by_force() {
    check_teams(
        "
         1s  A lease 60s as=ana           granted
         1s  A lock a/x as=ana            held token=1
         1s  J lease 120s as=joe          granted
         1s  J lock a/x as=joe            queued ahead=0
         1s  A lock a/y as=ana            held token=2
         1s  J lock a/y as=joe            queued ahead=0
         2s  unprincipal ana as=ruth      done
         2s  renew A as=ana               refused forbidden: acquire;
         ..  A lost a/x, revoked; A lost a/y, revoked; A revoked
         3s  principal ana a as=ruth      done
         3s  A renew as=ana               gone
         3s  A lease 60s as=ana           granted
        62s  -                            J held token=3; J held token=4
    ",
    );
}

#[test]
fn the_leases_of_a_revoked_principal_end_a_bounded_number_at_a_time() {
    check_teams(
        "
         0s  limits ends_per_entry=2 as=olga   set
         1s  A lease 60s as=ana           granted
         1s  B lease 60s as=ana           granted
         1s  C lease 60s as=ana           granted
         1s  A lock a/x as=ana            held token=1
         1s  principal ana a off as=ruth  done
         1s  principal ana a as=ruth      done; A lost a/x, revoked; A revoked
         1s  renew B C as=ana             gone, gone; B revoked; C revoked
    ",
    );
}

#[test]
fn a_quota_bounds_what_one_principal_has() {
    check_teams(
        "
         1s  principal ana a leases=2 locks=2 places=1 as=ruth   done
         1s  quotas keys=1 bytes=20 as=ruth                      done
         1s  A lease 60s as=ana                     granted
         1s  B lease 60s as=ana                     granted
         1s  C lease 60s as=ana                     refused quota-exceeded: leases 2, asked 3
         1s  C lock a/z lease=60s as=ana            refused quota-exceeded: leases 2, asked 3
         1s  A lock a/x a/y a/z as=ana              refused quota-exceeded: locks 2, asked 3
         1s  A lock a/x as=ana                      held token=1
         1s  J lease 60s as=joe                     granted
         1s  J lock a/y as=joe                      held token=2
         1s  A lock a/y as=ana                      queued ahead=0
         1s  B lock a/z as=ana                      refused quota-exceeded: locks 2, asked 3
         1s  put a/1 0123456789abcdef0 as=ana       written version=1
         1s  put a/1 0123456789abcdef01 as=ana      refused quota-exceeded: bytes 20, asked 21
         1s  put a/2 v as=ana                       refused quota-exceeded: keys 1, asked 2
         1s  put a/2 v as=joe                       written version=1
         1s  delete a/1 as=ana                      deleted
         1s  put a/2 w as=ana                       written version=2
         1s  put a/3 v as=joe                       written version=1
    ",
    );
}

#[test]
fn a_refusal_names_who_set_the_quota_from_level_5_on() {
    check_teams(
        "
         1s  level 4 as=olga                                     raised
         1s  quotas keys=0 leases=0 as=ruth                      done
         1s  put a/1 v as=ana                                    refused quota-exceeded: keys 0, asked 1
         1s  level 5 as=olga                                     raised
         1s  put a/1 v as=ana                                    refused quota-exceeded: keys 0, asked 1
         2s  principal rita root as=ruth                         done
         2s  quotas keys=1 leases=0 as=ruth                      done
         2s  put a/1 v as=ana                                    written version=1
         2s  put a/2 v as=ana                                    refused quota-exceeded: keys 1 by ruth, asked 2
         2s  A lease 60s as=ana                                  refused quota-exceeded: leases 0, asked 1
         3s  quotas keys=1 leases=1 as=tenure/member/rita        done
         3s  put a/2 v as=ana                                    refused quota-exceeded: keys 1 by ruth, asked 2
         3s  A lease 60s as=ana                                  granted
         3s  B lease 60s as=ana                                  refused quota-exceeded: leases 1 by rita, asked 2
         4s  principal ana a leases=2 as=ruth                    done
         4s  principal ana a b leases=2 as=rita                  done
         4s  B lease 60s as=ana                                  granted
         4s  C lease 60s as=ana                                  refused quota-exceeded: leases 2 by ruth, asked 3
         4s  put a/2 v as=ana                                    refused quota-exceeded: keys 1 by ruth, asked 2
    ",
    );
}

#[test]
fn a_change_can_depend_on_what_its_caller_has_seen() {
    check_teams(
        "
         1s  role b read@b/ seen=none as=ruth              refused malformed
         1s  level 4 as=olga                               raised
         1s  role b read@b/ seen=none as=ruth              refused access-changed
         1s  role b read@b/ seen=acquire,keys,elect@b/ as=ruth  done
         1s  role b all@b/ seen=acquire,keys,elect@b/ as=ruth   refused access-changed
         1s  unrole b seen=all@b/ as=ruth                  refused access-changed
         1s  unrole b seen=read@b/ as=ruth                 done
         1s  role b read@b/ seen=read@b/ as=ruth           refused access-changed
         1s  role b read@b/ seen=none as=ruth              done
         2s  A lease 60s as=ana                            granted
         2s  principal ana a off seen=b as=ruth            refused access-changed
         2s  principal ana a off seen=none as=ruth         refused access-changed
         2s  renew A as=ana                                renewed
         2s  principal ana a b seen=a as=ruth              done
         2s  principal ana a off seen=a as=ruth            refused access-changed
         2s  credential ana key-1 as=ruth                  done
         2s  unprincipal bob seen=b as=ruth                done
         2s  principal bob b seen=b as=ruth                refused access-changed
         2s  principal bob b seen=none as=ruth             done
         2s  principal bob b leases=1 as=ruth              done
         2s  principal bob a seen=b as=ruth                refused access-changed
         2s  principal bob a seen=b as=ana                 refused forbidden: administer
    ",
    );
}
