//! Tests that ten thousand watches of one key see an event once each while commits go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tenure_server::os;
use tenure_server::watch::{OwnedFilter, Start, WatchOptions, WatchStep};

use crate::checker::step;
use crate::cluster::{Cluster, done, put, wait};

const WATCHES: usize = 10_000;

#[test]
fn ten_thousand_watches_of_a_key_hear_once_each_while_commits_go_on() {
    let cluster = Cluster::found(1);
    let hub = &cluster.hubs[0];
    let ready = Arc::new(AtomicUsize::new(0));
    let heard = Arc::new(AtomicUsize::new(0));
    let options =
        WatchOptions { progress: Some(Duration::from_secs(1)), ..WatchOptions::default() };
    let reading: Vec<_> = (0..WATCHES)
        .map(|_| {
            let mut watch = hub.watch(OwnedFilter::Exact("storm".into()), Start::Now, options);
            let (ready, heard) = (ready.clone(), heard.clone());
            cluster.runtime.spawn(async move {
                watch.started().await.expect("the member runs");
                ready.fetch_add(1, Ordering::SeqCst);
                let mut at = None;
                loop {
                    match step(&mut watch).await {
                        WatchStep::Batch(batch) => {
                            assert_eq!(at, None, "once");
                            assert_eq!(batch.events.len(), 1, "one event");
                            heard.fetch_add(1, Ordering::SeqCst);
                            at = Some(batch.revision);
                        }
                        // Every event up to here was delivered, and there was one.
                        WatchStep::Progress(mark) if at.is_some_and(|at| mark > at) => return at,
                        WatchStep::Progress(_) => {}
                        end => panic!("{end:?}"),
                    }
                }
            })
        })
        .collect();
    wait("all have started", || (ready.load(Ordering::SeqCst) == WATCHES).then_some(()));
    let over = AtomicBool::new(false);
    let committed_at = Gap::default();
    let (storm, calm_us, gap_us, heard_us) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                done(cluster.member(), vec![put("other", b"1")]);
                committed_at.note();
            }
        });
        // The longest gap without the storm, then with it.
        wait("commits go on", || (committed_at.commits() > 300).then_some(()));
        let calm_us = committed_at.longest();
        let begun_us = os::now_us();
        let storm = done(cluster.member(), vec![put("storm", b"1")]);
        wait("all have heard", || (heard.load(Ordering::SeqCst) == WATCHES).then_some(()));
        let heard_us = os::now_us() - begun_us;
        // A commit that the storm delays counts once it is done.
        let commits = committed_at.commits();
        wait("commits go on", || (committed_at.commits() >= commits + 2).then_some(()));
        let gap_us = committed_at.longest();
        over.store(true, Ordering::SeqCst);
        writer.join().unwrap();
        (storm, calm_us, gap_us, heard_us)
    });
    for one in reading {
        assert_eq!(cluster.runtime.block_on(one).unwrap(), Some(storm), "the event of the storm");
    }
    println!(
        "{WATCHES} watches heard within {} ms; longest gap between commits {} ms, {} ms before",
        heard_us / 1_000,
        gap_us / 1_000,
        calm_us / 1_000,
    );
    assert_eq!(hub.metrics().slow, 0);
    cluster.stop();
}

/// The longest time between two commits since the last query.
#[derive(Default)]
struct Gap(std::sync::Mutex<(u64, u64, u64)>);

impl Gap {
    fn note(&self) {
        let mut within = self.0.lock().unwrap();
        let now_us = os::now_us();
        let gap_us = if within.0 == 0 { 0 } else { now_us - within.0 };
        *within = (now_us, within.1.max(gap_us), within.2 + 1);
    }

    fn commits(&self) -> u64 {
        self.0.lock().unwrap().2
    }

    fn longest(&self) -> u64 {
        std::mem::take(&mut self.0.lock().unwrap().1)
    }
}
