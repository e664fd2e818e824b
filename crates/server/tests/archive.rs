//! Tests that members archive events, show them after restarts, and get from others what they could not record.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Request, RequestId};
use tenure_server::archive::verify::verify_dirs;
use tenure_server::{RunningServer, ServerSettings, start};
use tenure_types::Limit;

use crate::alone::settings;
use crate::bounded::wait;
use crate::client::Client;
use crate::metrics;
use crate::support;

const TIMEOUT: Duration = Duration::from_secs(60);

fn run<T>(settings: ServerSettings, work: impl FnOnce(&RunningServer, &Client) -> T) -> T {
    let running = start(settings).unwrap();
    running.member.read(TIMEOUT, |_| ()).unwrap();
    let done = work(&running, &Client::new(running.clients, "past"));
    running.stop();
    done
}

fn submit(running: &RunningServer, command: Command<'_>) {
    let mut bytes = Vec::new();
    encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
    let mut outcomes = running.member.submit(vec![bytes.into()], Duration::ZERO, TIMEOUT);
    outcomes.remove(0).unwrap().result.unwrap();
}

/// A client takes the lock and ends its lease.
fn cycle(at: &Client, lock: &str) {
    let lease = at.lease(60_000);
    at.post(&format!("/v1/locks/{lock}"), &json!({ "lease": lease })).ok();
    at.delete(&format!("/v1/leases/{lease}")).ok();
}

fn past(at: &Client, lock: &str, more: &str) -> Value {
    at.get(&format!("/v1/locks/{lock}?view=history&archive=true&limit=1000{more}")).ok()
}

fn revisions(past: &Value) -> Vec<u64> {
    let changes = past["changes"].as_array().unwrap();
    changes.iter().map(|it| it["revision"].as_str().unwrap().parse().unwrap()).collect()
}

#[test]
fn the_past_outlives_the_history_and_restarts_and_nothing_of_it_comes_twice() {
    let dir = tempfile::tempdir().unwrap();
    let first = run(settings(dir.path()), |running, at| {
        (0..20).for_each(|_| cycle(at, "deploy"));
        // The cluster itself keeps almost nothing.
        submit(running, Command::SetLimits(vec![(Limit::HistoryRevisions, 4)]));
        let found = wait("the archive has it", || {
            let found = past(at, "deploy", "");
            (revisions(&found).len() == 40).then_some(found)
        });
        let kept = at.get("/v1/locks/deploy?view=history").ok();
        assert!(revisions(&kept).len() <= 4, "{kept}");
        let event = &found["changes"][0]["events"][0];
        assert_eq!(event["cause"], "released", "a client that ends its lease gives back: {event}");
        assert_eq!(event["ttl_ms"], 60_000);
        assert!(event["at"].as_str().unwrap().ends_with('Z'), "{event}");
        assert!(found["archive"]["begins"].is_string(), "{found}");
        assert!(found["archive"]["begins_at"].is_string(), "{found}");
        revisions(&found)
    });
    for more in 1..3 {
        run(settings(dir.path()), |_, at| {
            let found = revisions(&past(at, "deploy", ""));
            assert!(found.ends_with(&first), "{found:?}: the same as before, and no more");
            cycle(at, "deploy");
            wait("what is new comes once, too", || {
                let found = revisions(&past(at, "deploy", ""));
                assert!(found.windows(2).all(|pair| pair[0] > pair[1]), "{found:?}");
                (found.len() == first.len() + 2 * more).then_some(())
            });
        });
    }
    let report = verify_dirs(&[dir.path().join("m0/archive")]).unwrap();
    assert_eq!((report.broken.len(), report.holes.len()), (0, 0), "{report:?}");
    assert_eq!(report.grants, 22);
}

#[test]
fn searches_by_time_client_loss_and_prefix_are_answered_page_by_page() {
    let dir = tempfile::tempdir().unwrap();
    run(settings(dir.path()), |_, at| {
        cycle(at, "jobs/a");
        cycle(at, "jobs/b");
        let lease = at.lease(60_000);
        at.post("/v1/locks/jobs/a", &json!({ "lease": lease })).ok();
        at.delete(&format!("/v1/leases/{lease}?reason=gone")).ok();
        let lost = past(at, "jobs/a", "&lost=true");
        assert_eq!(revisions(&lost).len(), 1, "{lost}");
        assert_eq!(lost["changes"][0]["events"][0]["cause"], "revoked");
        assert_eq!(revisions(&past(at, "jobs/", "&prefix=true&lost=true")).len(), 1);
        assert!(revisions(&past(at, "jobs/", "&prefix=true")).len() >= 6);
        assert_eq!(revisions(&past(at, "jobs/a", "&since=2099-01-01T00:00:00Z")), [0; 0]);
        assert_eq!(revisions(&past(at, "jobs/a", "&until=2001-01-01T00:00:00Z")), [0; 0]);
        assert_eq!(revisions(&past(at, "jobs/a", "&client=nobody")), [0; 0]);
        let all = revisions(&past(at, "jobs/a", ""));
        let (mut pages, mut before) = (Vec::new(), String::new());
        loop {
            let page =
                at.get(&format!("/v1/locks/jobs/a?view=history&archive=true&limit=1{before}")).ok();
            pages.extend(revisions(&page));
            let Some(next) = page["before"].as_str() else { break };
            before = format!("&before={next}");
        }
        assert_eq!(pages, all);
        for wrong in [
            "&lost=true",
            "&since=2026-03-02T03:14:00Z",
            "&archive=true&since=soon",
            "&archive=true&from=1",
        ] {
            at.get(&format!("/v1/locks/jobs/a?view=history{wrong}")).refused(400, "INVALID_FIELD");
        }
    });
}

#[test]
fn a_member_without_an_archive_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let keep = tenure_server::ArchiveSettings { bytes_max: 0, ..Default::default() };
    run(ServerSettings { archive: keep, ..settings(dir.path()) }, |_, at| {
        cycle(at, "deploy");
        let found = past(at, "deploy", "");
        assert_eq!(revisions(&found).len(), 2);
        assert!(found["archive"]["begins"].is_null(), "{found}");
    });
    assert!(!Path::new(&dir.path().join("m0/archive")).exists());
}

#[test]
fn a_hole_that_a_snapshot_leaves_is_filled_from_another_member() {
    let dir = tempfile::tempdir().unwrap();
    let (listed, mut running) = support::found(dir.path(), 3);
    let leader = support::leader(&running);
    submit(&running[leader], Command::SetLimits(vec![(Limit::HistoryRevisions, 8)]));
    let behind = (leader + 1) % 3;
    let last = running[behind].member.status().unwrap().agreement.last.index;
    running[behind].stop();
    let leader = support::leader(&running[..]);
    (0..10).for_each(|_| cycle(&Client::new(running[leader].clients, "past"), "deploy"));
    // The others have compacted the log, and the history no longer has the lock's events.
    let leading = running[leader].member.clone();
    let cycled = leading.status().unwrap().agreement.last.index;
    let mut written = 0;
    wait("its entries are gone", || {
        assert!(support::put(&leading, &format!("key/{written}")));
        written += 1;
        (leading.status().unwrap().agreement.base.index > cycled.max(last) + 20).then_some(())
    });
    running[behind] = start(support::settings(dir.path(), behind, &listed)).unwrap();
    let at = Client::new(running[behind].clients, "past");
    let found = wait("the hole is filled", || {
        let found = past(&at, "deploy", "");
        let holes = found["archive"]["holes"].as_array().unwrap();
        (holes.is_empty() && revisions(&found).len() == 20).then_some(found)
    });
    let elsewhere = past(&Client::new(running[leader].clients, "past"), "deploy", "");
    assert_eq!(found["changes"], elsewhere["changes"], "the same as on the member that has it all");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let metric = |series| runtime.block_on(metrics::metric(running[behind].clients, series));
    assert!(metric("tenure_archive_holes_total") >= 1.0, "there was a hole");
    assert!(metric("tenure_archive_revisions_filled_total") >= 20.0);
    running.iter().for_each(RunningServer::stop);
    // All archives agree, and what one member lacks another one has.
    let archives = ["m0", "m1", "m2"].map(|name| dir.path().join(name).join("archive"));
    let report = verify_dirs(&archives).unwrap();
    assert_eq!((report.broken.len(), report.holes.len()), (0, 0), "{report:?}");
    assert_eq!(report.grants, 10);
}
