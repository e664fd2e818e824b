//! Tests that exceeding a limit is refused with its own reason before anything changes.

use crate::script::check;

#[test]
fn names_are_neither_empty_nor_too_long_and_have_no_control_characters() {
    check(
        "
         0s  A lease 60s                    granted
         0s  B lease 60s client=\"\"        refused invalid-name
         0s  B lease 60s client=x*513       refused invalid-name (name_bytes is 512, asked 513)
         0s  B lease 60s client=a^Gb        refused invalid-name
         0s  A lock \"\"                    refused invalid-name
         0s  A lock x*513                   refused invalid-name (name_bytes is 512, asked 513)
         0s  A lock a^Gb                    refused invalid-name
         0s  A unlock \"\"                  refused invalid-name
         0s  A leave x*513                  refused invalid-name
         0s  A downgrade a^Gb               refused invalid-name
         0s  A update a^Gb v                refused invalid-name
         0s  A stopped a^Gb                 refused invalid-name
         0s  force a^Gb token=1             refused invalid-name
         0s  put x*513 v                    refused invalid-name
         0s  put \"\" v                     refused invalid-name
         0s  put k v guard=a^Gb:1           refused invalid-name
         0s  delete a^Gb                    refused invalid-name
         0s  limits name_bytes=3            set
         0s  A lock four                    refused invalid-name (name_bytes is 3, asked 4)
         0s  put abc v                      written version=1
         0s  A lock abc                     held token=1
    ",
    );
}

#[test]
fn metadata_and_reasons_are_not_too_long() {
    check(
        "
         0s  limits metadata_bytes=4        set
         0s  A lease 60s meta=12345         refused metadata-too-long (metadata_bytes is 4, asked 5)
         0s  A lease 60s meta=1234          granted
         0s  A lock x meta=12345            refused metadata-too-long
         0s  A lock x meta=1234             held token=1
         0s  A update x 12345               refused metadata-too-long
         0s  B lock y lease=60s lease-meta=12345  refused metadata-too-long
         0s  force x token=1 reason=12345   refused metadata-too-long
         0s  revoke A reason=12345          refused metadata-too-long
         0s  show x                         A token=1 meta=1234
    ",
    );
}

#[test]
fn values_are_not_too_long() {
    check(
        "
         0s  limits value_bytes=4           set
         0s  put k 12345                    refused value-too-long (value_bytes is 4, asked 5)
         0s  put k 1234                     written version=1
    ",
    );
}

#[test]
fn a_ttl_is_neither_too_short_nor_too_long() {
    check("
         0s  A lease 999ms                  refused invalid-ttl (ttl_min_ms is 1000, asked 999)
         0s  A lease 3600001ms              refused invalid-ttl (ttl_max_ms is 3600000, asked 3600001)
         0s  A lock x lease=999ms           refused invalid-ttl
         0s  A lease 1h                     granted
         0s  B lease 1s                     granted
         0s  limits ttl_min_ms=1            set
         0s  C lease 1ms                    granted
         1ms  -                             C expired
    ");
}

#[test]
fn waits_pauses_and_longest_holds_have_bounds() {
    check("
         0s  limits wait_ms=5000 lock_delay_ms=4000 max_hold_ms=90000  set
         0s  A lease 60s                    granted
         0s  A lock x wait=5001ms           refused invalid-wait (wait_ms is 5000, asked 5001)
         0s  A lock x delay=4001ms          refused invalid-lock-delay (lock_delay_ms is 4000, asked 4001)
         0s  A lock x max=90001ms           refused invalid-max-hold (max_hold_ms is 90000, asked 90001)
         0s  A lock x wait=5s delay=4s max=90s  held token=1
    ");
}

#[test]
fn an_ask_names_a_bounded_number_of_locks() {
    check("
         0s  limits locks_per_ask=2         set
         0s  A lease 60s                    granted
         0s  A lock a b c                   refused too-many-locks-in-ask (locks_per_ask is 2, asked 3)
         0s  A lock                         refused too-many-locks-in-ask (locks_per_ask is 2, asked 0)
         0s  A lock a b                     held a token=1, b token=2
    ");
}

#[test]
fn a_semaphore_has_a_bounded_number_of_slots() {
    check(
        "
         0s  A lease 60s                    granted
         0s  A lock pool slots=0            refused invalid-slots (slots is 1024, asked 0)
         0s  A lock pool slots=1025         refused invalid-slots (slots is 1024, asked 1025)
         0s  A lock pool slots=1024         held token=1 slot=0
    ",
    );
}

#[test]
fn a_queue_has_a_bounded_length() {
    check(
        "
         0s  limits waiters_per_lock=1      set
         0s  A lease 60s                    granted
         0s  B lease 60s                    granted
         0s  C lease 60s                    granted
         0s  A lock b                       held token=1
         0s  B lock b                       queued ahead=0 (place=2)
         0s  C lock a b                     refused queue-full (waiters_per_lock is 1, asked 2)
         0s  D lock b lease=60s             refused queue-full
         0s  leases                         A, B, C
         0s  list                           b
         0s  limits waiters_per_lock=2      set
         0s  C lock a b                     queued ahead=1 (place=3)
    ",
    );
}

#[test]
fn a_lease_holds_and_awaits_a_bounded_number_of_locks() {
    check(
        "
         0s  limits locks_per_lease=3       set
         0s  A lease 60s                    granted
         0s  B lease 60s                    granted
         0s  B lock x                       held token=1
         0s  A lock a                       held token=2
         0s  A lock x                       queued ahead=0
         0s  A lock b c                     refused too-many-locks (locks_per_lease is 3, asked 4)
         0s  A lock b                       held token=3
         0s  A lock c                       refused too-many-locks
         0s  A unlock a                     released
         0s  A lock c                       held token=4
    ",
    );
}

#[test]
fn a_lease_has_a_bounded_number_of_keys() {
    check(
        "
         0s  limits keys_per_lease=1        set
         0s  A lease 60s                    granted
         0s  A put k1 v                     written version=1
         0s  A put k2 v                     refused too-many-keys (keys_per_lease is 1, asked 2)
         0s  A put k1 w                     written version=2
         0s  put k2 v                       written version=1
         0s  A put k2 v                     refused too-many-keys
         0s  get k2                         v version=1
    ",
    );
}

#[test]
fn there_is_a_bounded_number_of_leases() {
    check(
        "
         0s  limits leases=1                set
         0s  A lease 60s                    granted
         0s  B lease 60s                    refused too-many-leases (leases is 1, asked 2)
         0s  B lock x lease=60s             refused too-many-leases
         0s  A lease 60s                    granted
         0s  A lock x lease=60s             held token=1
         0s  A revoke                       revoked
         0s  B lease 60s                    granted
    ",
    );
}

#[test]
fn a_full_state_refuses_whatever_grows_and_nothing_else() {
    check(
        "
         0s  limits state_bytes=65536       set
         0s  A lease 60s                    granted
         0s  B lease 60s                    granted
         0s  A lock x meta=abc              held token=1
         0s  B lock x                       queued ahead=0
         0s  put k1 a*32768                 written version=1
         0s  put k2 a*32768                 written version=1
         0s  weight                         66250
         0s  C lease 60s                    refused no-space (state_bytes is 65536, asked 66250)
         0s  B lock y                       refused no-space
         0s  C lock y lease=60s             refused no-space
         0s  put k3 v                       refused no-space
         0s  put k1 v                       refused no-space
         0s  A update x abcd                refused no-space
         0s  A update x ab                  updated version=2
         0s  A lease 60s                    granted
         0s  A renew                        renewed
         0s  B lock x                       queued ahead=0
         0s  A unlock x                     released; B held token=2
         0s  delete k1                      deleted
         0s  put k3 v                       written version=1
    ",
    );
}

#[test]
fn remembered_requests_without_a_lease_are_bounded_in_number_and_bytes() {
    check(
        "
         0s  limits requests=1              set
         0s  put k v once=a                 written version=1
         0s  put k w once=b                 refused requests-full (requests is 1, asked 2)
         0s  put k v once=a                 written version=1
         0s  put k w                        written version=2
       601s  put k x once=b                 written version=3
    ",
    );
    check(
        "
         0s  limits request_bytes=129       set
         0s  put k v once=a                 written version=1
         0s  put k w once=b                 refused requests-full (request_bytes is 129, asked 129)
         0s  get k                          v version=1
    ",
    );
}

#[test]
fn one_command_renews_and_sets_a_bounded_number() {
    check(
        "
         0s  A lease 60s                    granted
         1s  A renew times=4097             refused too-many-in-command (max 4096)
         1s  show-lease A                   59s of 60s left
         1s  limits slots=8 times=33        refused too-many-in-command (max 32)
         1s  limit slots                    1024
         1s  limits slots=8 times=32        set
         1s  limit slots                    8
    ",
    );
}

#[test]
fn limits_are_set_all_or_none_and_within_their_own_bounds() {
    check(
        "
         0s  limits slots=8 leases=0        refused invalid-limit (leases to 0)
         0s  limits slots=0                 refused invalid-limit (slots to 0)
         0s  limits name_bytes=513          refused invalid-limit (name_bytes to 513)
         0s  limit slots                    1024
         0s  limits                         set
         0s  revision                       0
         0s  limits slots=8 leases=5        set
         0s  limit leases                   5
         0s  events all from 1              1 settings limits_set
    ",
    );
}

#[test]
fn a_limit_below_what_exists_takes_nothing_away() {
    check(
        "
         0s  A lease 60s                    granted
         0s  B lease 60s                    granted
         0s  A lock a b c                   held a token=1, b token=2, c token=3
         0s  limits leases=1 locks_per_lease=1 ttl_max_ms=1000  set
         0s  A lock d                       refused too-many-locks (locks_per_lease is 1, asked 4)
         9s  A renew                        renewed
         9s  show-lease A                   60s of 60s left, holds a=1 b=2 c=3
    ",
    );
}

#[test]
fn the_level_moves_only_up_and_only_as_far_as_is_known() {
    check(
        "
         0s  level?                         1
         0s  level 1                        raised
         0s  level 2                        raised
         0s  level 3                        raised
         0s  level 4                        raised
         0s  level 5                        raised
         0s  level 6                        raised
         0s  level 7                        raised
         0s  level 8                        raised
         0s  level 9                        raised
         0s  level 10                       raised
         0s  level 12                       raised
         0s  level 13                       raised
         0s  level 14                       raised
         0s  level 15                       raised
         0s  level 16                       refused invalid-level (15 to 15)
         0s  level 0                        refused invalid-level (15 to 15)
         0s  revision                       13
    ",
    );
}

#[test]
fn when_the_tokens_of_an_epoch_are_used_up_nothing_more_is_granted() {
    check(
        "
         0s  A lease 60s                    granted
         0s  B lease 60s                    granted
         0s  tokens left 3                  -
         0s  A lock x                       held token=281474976710653
         0s  B lock x                       queued ahead=0
         0s  A lock y z w                   refused tokens-exhausted
         0s  A lock y                       held token=281474976710654
         0s  A lock z                       held token=281474976710655
         0s  A lock w                       refused tokens-exhausted
         0s  A downgrade y                  refused tokens-exhausted
         1s  A unlock x                     released
         1s  show x                         nobody | B
         1s  B lock x                       queued ahead=0
         1s  A unlock z                     released
         2s  restore epoch=1 waive          restored
         2s  B lock x lease=60s             held token=281474976710657
    ",
    );
}

#[test]
fn an_ask_whose_last_token_went_to_those_before_it_is_refused() {
    check(
        "
         0s  E lease 9s                     granted
         0s  D lease 10s                    granted
         0s  A lease 60s                    granted
         0s  B lease 60s                    granted
         0s  C lease 60s                    granted
         0s  limits ends_per_entry=1        set
         0s  tokens left 2                  -
         0s  A lock x shared                held token=281474976710654
         0s  D lock x                       queued ahead=0
         0s  B lock x shared                queued ahead=1
        10s  C lock x shared try            refused tokens-exhausted; E expired; B held token=281474976710655
    ",
    );
}
