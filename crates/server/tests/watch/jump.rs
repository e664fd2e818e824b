//! Tests that cursors go on, or learn that they cannot, when a snapshot replaces a member's state.

use tenure_core::request::Command;
use tenure_server::watch::{OwnedFilter, Start, WatchOptions, WatchStep};
use tenure_types::{Limit, Revision};

use crate::checker::{MARKS, Seen, check, expected, follow};
use crate::cluster::{Cluster, done, encode, put, wait};

#[test]
fn cursors_go_on_or_are_told_after_a_snapshot_is_installed() {
    let mut cluster = Cluster::found(3);
    let behind = (cluster.leader() + 1) % 3;
    let early = done(cluster.member(), (0..200).map(|_| put("early", b"1")).collect());
    cluster.all_at(early);
    let old = cluster.history();
    let index = cluster.running[behind].member.status().unwrap().agreement.last.index;
    cluster.running[behind].stop();
    let mut written = 0;
    let mut write = |cluster: &Cluster| {
        written += 1;
        done(cluster.member(), vec![put(&format!("key/{}", written % 10), b"2")])
    };
    let middle = (0..50).map(|_| write(&cluster)).last().unwrap();
    // The first one leaves the newest write and itself.
    for revisions in [2, Limit::HistoryRevisions.default_value()] {
        let limits = vec![(Limit::HistoryRevisions, revisions)];
        done(cluster.member(), vec![encode(Command::SetLimits(limits))]);
    }
    wait("its entries are gone", || {
        write(&cluster);
        (cluster.member().status().unwrap().agreement.base.index > index).then_some(())
    });
    cluster.restart(behind);
    let hub = cluster.hubs[behind].clone();
    let options = WatchOptions { progress: Some(MARKS), ..WatchOptions::default() };
    // From within the member's history, from just after it, and from revisions that only the snapshot brings.
    let starts = [Revision(early.0 - 50), early.next(), middle, Revision(middle.0 + 20)];
    let watches = starts.map(|from| hub.watch(OwnedFilter::All, Start::From(from), options));
    let to = write(&cluster);
    let reading: Vec<_> = watches
        .into_iter()
        .map(|mut watch| {
            cluster.runtime.spawn(async move {
                let mut seen = Vec::new();
                let end = follow(&mut watch, to, &mut seen).await;
                (seen, end)
            })
        })
        .collect();
    let ends = reading.into_iter().map(|one| cluster.runtime.block_on(one).unwrap());
    let ends: Vec<_> = starts.into_iter().zip(ends).collect();
    let base = cluster.running[behind].member.status().unwrap().agreement.base.index;
    assert!(base > index, "a snapshot was installed");
    let history = cluster.history();
    for (from, (seen, end)) in ends {
        if from < middle {
            // What the member had before may have been delivered, without a gap; then the compaction is reported.
            assert!(
                matches!(end, Err(WatchStep::Compacted { floor }) if floor == middle),
                "{end:?}"
            );
            let reached = seen.iter().rev().find_map(|seen| match seen {
                Seen::Batch(batch) => Some(batch.revision),
                Seen::Mark(_) => None,
            });
            let expected = expected(&old, &OwnedFilter::All, from);
            check(&expected, &seen, reached.unwrap_or_default()).unwrap();
        } else {
            assert!(end.is_ok(), "{end:?}");
            check(&expected(&history, &OwnedFilter::All, from), &seen, to).unwrap();
        }
    }
    cluster.stop();
}
