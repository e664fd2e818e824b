//! Tests where a watch starts and how it ends.

use std::time::Duration;

use tenure_core::request::Command;
use tenure_server::watch::{BatchForm, OwnedFilter, Start, WatchOptions, WatchStep};
use tenure_types::Revision;

use crate::checker::{MARKS, Seen, check, expected, follow, step};
use crate::cluster::{Cluster, done, encode, put, wait};

fn keys(number: usize) -> Vec<bytes::Bytes> {
    (0..number).map(|at| put(&format!("key/{}", at % 50), b"value")).collect()
}

fn marked() -> WatchOptions {
    WatchOptions { progress: Some(MARKS), ..WatchOptions::default() }
}

#[test]
fn a_revision_ahead_is_waited_for_and_nothing_below_it_is_handed_out() {
    let cluster = Cluster::found(1);
    let now = done(cluster.member(), keys(10));
    let from = Revision(now.0 + 6);
    cluster.runtime.block_on(async {
        let mut watch = cluster.hubs[0].watch(OwnedFilter::All, Start::From(from), marked());
        let waited = tokio::time::timeout(MARKS * 5, watch.next()).await;
        assert!(waited.is_err(), "neither events nor marks before it is reached: {waited:?}");
        let last = tokio::task::block_in_place(|| done(cluster.member(), keys(20)));
        let mut seen = Vec::new();
        follow(&mut watch, last, &mut seen).await.expect("it goes on");
        let history = tokio::task::block_in_place(|| cluster.history());
        check(&expected(&history, &OwnedFilter::All, from), &seen, last).unwrap();
    });
    cluster.stop();
}

#[test]
fn now_is_after_what_was_acknowledged_and_before_what_comes() {
    let cluster = Cluster::found(3);
    for round in 0..20 {
        let before = done(cluster.member(), keys(1));
        let hub = &cluster.hubs[round % 3];
        let mut watch = hub.watch(OwnedFilter::All, Start::Now, WatchOptions::default());
        let from = cluster.runtime.block_on(watch.started()).unwrap();
        assert!(from > before, "nothing that was acknowledged is handed out");
        let after = done(cluster.member(), keys(1));
        let WatchStep::Batch(first) = cluster.runtime.block_on(step(&mut watch)) else {
            panic!("there is an event");
        };
        assert!(from <= after && first.revision == from, "the first event is the first after now");
    }
    cluster.stop();
}

#[test]
fn what_was_compacted_is_said_and_never_skipped() {
    let cluster = Cluster::found(1);
    let last = done(cluster.member(), keys(5_000));
    let history = cluster.history();
    cluster.runtime.block_on(async {
        let hub = &cluster.hubs[0];
        let mut old =
            hub.watch(OwnedFilter::All, Start::From(Revision(1)), WatchOptions::default());
        let mut live = hub.watch(OwnedFilter::All, Start::From(last), marked());
        let mut seen_live = Vec::new();
        follow(&mut live, last, &mut seen_live).await.expect("it goes on");
        let mut seen = Vec::new();
        let reached = follow(&mut old, Revision(10), &mut seen).await.expect("it goes on");
        assert!(reached < last, "it is still reading");
        // The newest 1,000 revisions stay, whatever is asked.
        let keep = Revision(last.0 - 999);
        let after = tokio::task::block_in_place(|| {
            done(cluster.member(), vec![encode(Command::Compact { keep: last })]);
            done(cluster.member(), keys(10))
        });
        // What the watch had read before is delivered; then it learns that the rest is gone.
        let end = follow(&mut old, after, &mut seen).await.expect_err("it has ended");
        assert!(matches!(end, WatchStep::Compacted { floor } if floor == keep), "{end:?}");
        assert!(matches!(old.next().await, WatchStep::Compacted { .. }), "and it says so again");
        let Some(Seen::Batch(newest)) = seen.last() else { panic!("it has seen something") };
        check(&expected(&history, &OwnedFilter::All, Revision(1)), &seen, newest.revision).unwrap();
        assert!(newest.revision < keep);
        let mut below =
            hub.watch(OwnedFilter::Exact("x".into()), Start::From(Revision(7)), marked());
        assert!(matches!(step(&mut below).await, WatchStep::Compacted { floor } if floor == keep));
        // A live watch is not affected.
        follow(&mut live, after, &mut seen_live).await.expect("it goes on");
        let all = tokio::task::block_in_place(|| cluster.history());
        check(&expected(&all, &OwnedFilter::All, last), &seen_live, after).unwrap();
    });
    cluster.stop();
}

#[test]
fn a_slow_consumer_is_told_and_loses_nothing_by_going_on_from_there() {
    let cluster = Cluster::found(1);
    let filter = OwnedFilter::Prefix("key/".into());
    cluster.runtime.block_on(async {
        let hub = &cluster.hubs[0];
        let options = WatchOptions { unread_max: Duration::ZERO, ..marked() };
        let mut watch = hub.watch(filter.clone(), Start::From(Revision(1)), options);
        let mut seen = Vec::new();
        let live = tokio::task::block_in_place(|| done(cluster.member(), keys(3)));
        follow(&mut watch, live, &mut seen).await.expect("it goes on");
        let mark = step(&mut watch).await;
        assert!(matches!(mark, WatchStep::Progress(at) if at >= live), "it is live: {mark:?}");
        let last = tokio::task::block_in_place(|| {
            let last = done(cluster.member(), keys(1_500));
            wait("it is given up", || (hub.metrics().slow == 1).then_some(()));
            last
        });
        let end = follow(&mut watch, last, &mut seen).await.expect_err("it has ended");
        let WatchStep::SlowConsumer { resume } = end else { panic!("{end:?}") };
        let mut watch = hub.watch(filter.clone(), Start::From(resume), marked());
        follow(&mut watch, last, &mut seen).await.expect("it goes on");
        let history = tokio::task::block_in_place(|| cluster.history());
        check(&expected(&history, &filter, Revision(1)), &seen, last).unwrap();
    });
    cluster.stop();
}

#[test]
fn a_buffer_is_bounded_in_bytes_too() {
    let cluster = Cluster::found(1);
    cluster.runtime.block_on(async {
        let hub = &cluster.hubs[0];
        let options = WatchOptions { unread_max: Duration::ZERO, ..marked() };
        let mut watch = hub.watch(OwnedFilter::All, Start::Now, options);
        let from = watch.started().await.unwrap();
        let mark = step(&mut watch).await;
        assert!(matches!(mark, WatchStep::Progress(_)), "it is live: {mark:?}");
        let large = vec![7; 8 * 1024];
        tokio::task::block_in_place(|| {
            // Each is less than the event loop copies in one turn; together they are more than a buffer holds.
            for _ in 0..5 {
                done(cluster.member(), (0..40).map(|_| put("large", &large)).collect());
            }
            wait("it is given up", || (hub.metrics().slow == 1).then_some(()));
        });
        let end = step(&mut watch).await;
        assert!(matches!(end, WatchStep::SlowConsumer { resume } if resume == from), "{end:?}");
    });
    cluster.stop();
}

#[test]
fn a_burst_that_no_buffer_holds_ends_no_watch_that_reads_it() {
    let cluster = Cluster::found(1);
    cluster.runtime.block_on(async {
        let hub = &cluster.hubs[0];
        let unread_max = Duration::from_secs(3_600);
        let options = WatchOptions { unread_max, ..marked() };
        let mut watch = hub.watch(OwnedFilter::All, Start::Now, options);
        let from = watch.started().await.unwrap();
        let mark = step(&mut watch).await;
        assert!(matches!(mark, WatchStep::Progress(_)), "it is live: {mark:?}");
        let last = tokio::task::block_in_place(|| {
            let last = done(cluster.member(), keys(5_000));
            wait("it is behind", || (hub.metrics().lag_worst >= 5_000).then_some(()));
            last
        });
        let mut seen = Vec::new();
        follow(&mut watch, last, &mut seen).await.expect("it goes on");
        let history = tokio::task::block_in_place(|| cluster.history());
        check(&expected(&history, &OwnedFilter::All, from), &seen, last).unwrap();
        assert_eq!((hub.metrics().slow, hub.metrics().watches), (0, 1));
        drop(watch);
        assert_eq!(hub.metrics().watches, 0);
    });
    cluster.stop();
}

#[test]
fn a_batch_is_encoded_once_for_all_who_watch_the_same() {
    let cluster = Cluster::found(1);
    cluster.runtime.block_on(async {
        let hub = &cluster.hubs[0];
        let filter = OwnedFilter::Exact("one".into());
        let watch = || hub.watch(filter.clone(), Start::Now, marked());
        let mut watches: Vec<_> = (0..5).map(|_| watch()).collect();
        for watch in &mut watches {
            let mark = step(watch).await;
            assert!(matches!(mark, WatchStep::Progress(_)), "it is live: {mark:?}");
        }
        tokio::task::block_in_place(|| done(cluster.member(), vec![put("one", b"1")]));
        let mut encoded = 0;
        for watch in &mut watches {
            let batch = loop {
                match step(watch).await {
                    WatchStep::Batch(batch) => break batch,
                    WatchStep::Progress(_) => {}
                    end => panic!("{end:?}"),
                }
            };
            let bytes = batch.form(BatchForm::Json, |batch| {
                encoded += 1;
                bytes::Bytes::from(batch.revision.to_string())
            });
            assert_eq!(bytes, batch.revision.to_string());
        }
        assert_eq!(encoded, 1);
    });
    cluster.stop();
}

#[test]
fn a_member_that_ends_closes_its_watches() {
    let cluster = Cluster::found(1);
    let hub = &cluster.hubs[0];
    let starts = [Start::Now, Start::From(Revision(1)), Start::From(Revision(1 << 40))];
    let reading: Vec<_> = starts
        .map(|start| {
            let mut watch = hub.watch(OwnedFilter::All, start, marked());
            cluster.runtime.spawn(async move {
                let mut seen = Vec::new();
                follow(&mut watch, Revision(u64::MAX), &mut seen).await
            })
        })
        .into();
    cluster.stop();
    for one in reading {
        let end = cluster.runtime.block_on(one).unwrap();
        assert!(matches!(end, Err(WatchStep::Closed)), "{end:?}");
    }
    let mut late = hub.watch(OwnedFilter::All, Start::Now, WatchOptions::default());
    assert!(matches!(cluster.runtime.block_on(step(&mut late)), WatchStep::Closed));
}
