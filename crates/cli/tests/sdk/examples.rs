//! Tests that the examples work against a real member.
#![allow(dead_code, reason = "examples have a `main`, which is not what is called here")]

#[path = "../../../../examples/leader_election.rs"]
mod leader_election;
#[path = "../../../../examples/migration_guard.rs"]
mod migration_guard;
#[path = "../../../../examples/postgres_advisory_lock.rs"]
mod postgres_advisory_lock;
#[path = "../../../../examples/read_write_cache.rs"]
mod read_write_cache;
#[path = "../../../../examples/singleton_cron.rs"]
mod singleton_cron;
#[path = "../../../../examples/worker_pool.rs"]
mod worker_pool;

use crate::common::Cluster;
use crate::{addresses, client, runtime};

/// Examples that need other systems: the file of the test that runs each one, and its call.
const ELSEWHERE: [(&str, &str, &str); 2] = [
    (
        "lock_over_etcd",
        include_str!("../../../backends/tests/stores/etcd.rs"),
        "crate::lock_over_etcd::run(",
    ),
    ("pause_over_redlock", include_str!("../guarded/pause.rs"), "match run(places)"),
];

#[test]
fn every_example_runs() {
    let (cluster, runtime) = (Cluster::found(1), runtime());
    runtime.block_on(async {
        let client = client(&addresses(&cluster), "example").await;
        assert_eq!(migration_guard::run(&client).await.unwrap(), 1);
        assert_eq!(singleton_cron::run(&client).await.unwrap(), [1, 1, 1]);
        let led = leader_election::run(&client).await.unwrap();
        assert_eq!(led, ["no leader", "10.0.0.5:9000", "10.0.0.5:9001", "10.0.0.6:9000"]);
        let most = worker_pool::run(&client).await.unwrap();
        assert!((1..=3).contains(&most), "{most} at once");
        let read = read_write_cache::run(&client).await.unwrap();
        assert_eq!(read, ["empty", "version 2", "version 2", "version 2"]);
        let committed = postgres_advisory_lock::run(&client).await.unwrap();
        assert_eq!(committed, ["reserved", "paid"]);
    });
    // Every file in the directory must be run above.
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let text = include_str!("examples.rs");
    for file in std::fs::read_dir(dir).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let stem = name.trim_end_matches(".rs");
        let here = format!("{stem}::run(");
        let elsewhere = ELSEWHERE.iter().find(|(known, ..)| *known == stem);
        let (text, call) = elsewhere.map_or((text, &*here), |(_, text, call)| (*text, *call));
        assert!(text.contains(call), "{name} is run nowhere");
    }
}
