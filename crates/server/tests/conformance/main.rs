//! Tests that all APIs do the same, and refuse with the same reasons.
//!
//! Scenario files run every command, and every refusal that a client can cause, through each API of a single member, of
//! a leader and of a follower. A refusal must have the reason, code and effect of the table, and leave the state
//! unchanged.

#[path = "../../../cli/tests/common/authority.rs"]
mod authority;
#[path = "../support/bounded.rs"]
mod bounded;
#[path = "../common/mod.rs"]
mod common;
mod degraded;
#[path = "../support/disk.rs"]
mod disk;
mod faults;
mod grpc;
mod http;
mod json;
#[path = "../support/metrics.rs"]
mod metrics;
mod overload;
#[allow(dead_code, reason = "one function of it is needed")]
#[path = "../../../core/tests/script/patch.rs"]
mod patch;
mod request;
mod run;
mod script;
mod session;
mod stage;
mod table;
mod watch;
mod ws;

use std::collections::BTreeSet;

use common::Members;
use run::{APIS, Run};

/// Every scenario file, in the order in which they run.
const FILES: &[(&str, &str)] = &[
    ("locks", include_str!("scenarios/locks.txt")),
    ("leases", include_str!("scenarios/leases.txt")),
    ("keys", include_str!("scenarios/keys.txt")),
    ("elections", include_str!("scenarios/elections.txt")),
    ("requests", include_str!("scenarios/requests.txt")),
    ("limits", include_str!("scenarios/limits.txt")),
    ("tickets", include_str!("scenarios/tickets.txt")),
    ("cluster", include_str!("scenarios/cluster.txt")),
    ("apis", include_str!("scenarios/apis.txt")),
];

#[test]
fn every_api_keeps_the_table() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scenarios: Vec<_> =
        FILES.iter().flat_map(|(file, text)| script::read(file, text)).collect();
    let runs = APIS.iter().flat_map(|api| [(*api, 1), (*api, 3)]);
    let runs = runs.map(|(api, size)| {
        let (scenarios, runtime) = (scenarios.clone(), runtime.handle().clone());
        std::thread::spawn(move || runtime.block_on(Run::new(api, size).all(&scenarios)))
    });
    let runs = runs.collect::<Vec<_>>().into_iter();
    let handle = runtime.handle().clone();
    let overloaded = std::thread::spawn(move || handle.block_on(overload::all()));
    let handle = runtime.handle().clone();
    let degraded_members = std::thread::spawn(move || handle.block_on(degraded::all()));
    let runs = runs.chain([overloaded, degraded_members]);
    let (mut covered, mut steps) = (BTreeSet::new(), 0);
    let mut failed = Vec::new();
    for run in runs {
        let seen = run.join().unwrap();
        covered.extend(seen.reasons);
        failed.extend(seen.failed);
        steps += seen.steps;
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    let (rows, all) = table::count(&covered);
    println!(
        "{} scenarios x {} apis x 3 shapes, {steps} steps; rows covered {rows}/{all}, {} cannot be provoked here",
        scenarios.len(),
        APIS.len(),
        table::ELSEWHERE.len(),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_are_opened_for_no_foreign_page() {
    let members = Members::found(1);
    let at = members.one(0).clients;
    for path in ["/v1/ws", "/v1/lock-socket"] {
        for (header, value) in
            [("origin", "http://evil.example"), ("origin", "null"), ("host", "evil.example")]
        {
            match ws::upgrade(at, path, header, value).await {
                request::Reply::Refused(fault) => {
                    assert_eq!(fault.how, request::How::Upgrade(403), "{path} {header}: {value}");
                    assert_eq!(fault.reason, "HOST_NOT_ALLOWED");
                }
                other => panic!("{path} {header}: {value}: {other:?}"),
            }
        }
        let own = Box::leak(format!("http://{at}").into_boxed_str());
        let opened = ws::upgrade(at, path, "origin", own).await;
        assert!(matches!(opened, request::Reply::Done(_)), "{opened:?}");
    }
}
