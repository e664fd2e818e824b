//! Tests that an HTTP client can do everything, and is refused as the table says.

#[path = "../support/bounded.rs"]
mod bounded;
mod client;
#[path = "../common/mod.rs"]
mod common;
mod console;
mod cut;
mod guide;
mod members;
mod membership;
mod metrics;
mod refusals;
mod resources;
mod schema;
mod streams;

use client::Client;
use members::Members;

/// The tests that must pass on every member: alone, leading or following.
const EVERYWHERE: &[fn(&Client)] = &[
    resources::leases_live_and_end,
    resources::locks_are_taken_looked_at_changed_and_released,
    resources::several_locks_are_taken_at_once,
    resources::long_polls_wait_leave_or_keep_their_place,
    resources::the_same_key_has_the_same_answer,
    resources::locks_are_taken_away,
    resources::elections_have_a_leader,
    resources::keys_are_bytes_with_conditions,
    resources::limits_and_members_are_shown,
    console::locks_are_found_by_more_than_their_prefix,
    console::the_summary_names_who_waits_longest,
    console::the_past_of_all_locks_is_searched,
    console::the_page_is_served_and_says_how,
    streams::changes_are_streamed_and_resumed,
    streams::elections_are_observed,
];

#[test]
fn everything_works_on_a_member_alone() {
    let alone = Members::start(1);
    let client = alone.client(0, "alone");
    EVERYWHERE.iter().for_each(|it| it(&client));
}

#[test]
fn everything_works_on_a_leader_and_on_a_follower() {
    let three = Members::start(3);
    let leader = three.leader();
    for (at, name) in [(leader, "leader"), ((leader + 1) % 3, "follower")] {
        let client = three.client(at, name);
        EVERYWHERE.iter().for_each(|it| it(&client));
    }
}
