//! Tests that many watches see every event once and in order, with many writers and several members.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;

use tenure_core::request::{Command, Expect};
use tenure_server::watch::{OwnedFilter, Start, WatchOptions};
use tenure_types::Revision;

use crate::checker::{MARKS, Seen, check, expected, follow};
use crate::cluster::{Cluster, done, encode, put};

/// Pseudo-random numbers from a seed.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % end
    }
}

const NAMES: [&str; 9] = ["a", "a/1", "a/1/x", "a/2", "ab", "b", "b/1", "c", "ä/1"];
const PREFIXES: [&str; 8] = ["", "a", "a/", "a/1", "b", "c/", "ä", "nobody"];

fn draw_filter(draw: &mut Draw) -> OwnedFilter {
    let at = |draw: &mut Draw, from: &[&str]| {
        from[usize::try_from(draw.below(from.len() as u64)).unwrap()].to_owned()
    };
    match draw.below(4) {
        0 => OwnedFilter::All,
        1 => OwnedFilter::Exact(at(draw, &NAMES)),
        _ => OwnedFilter::Prefix(at(draw, &PREFIXES)),
    }
}

/// Writes for a while; returns the last revision.
fn write(cluster: &Cluster, seed: u64, acknowledged: &AtomicU64) -> Revision {
    let mut draw = Draw(seed);
    let member = cluster.member();
    let mut last = Revision(0);
    for _ in 0..100 {
        let commands = (0..=draw.below(4)).map(|_| {
            let key = NAMES[usize::try_from(draw.below(NAMES.len() as u64)).unwrap()];
            if draw.below(5) == 0 {
                return encode(Command::Delete { key, expect: Expect::Any, guard: None });
            }
            put(key, &draw.0.to_le_bytes())
        });
        last = done(member, commands.collect());
        acknowledged.fetch_max(last.0, Ordering::SeqCst);
    }
    last
}

#[test]
fn watches_with_any_filter_and_start_see_every_event_once_and_in_order() {
    let cluster = Cluster::found(3);
    let acknowledged = AtomicU64::new(0);
    write(&cluster, 1, &acknowledged);
    let before = cluster.member().status().unwrap().revision;
    let watched: Vec<_> = std::thread::scope(|scope| {
        let writers: Vec<_> = (2..6)
            .map(|seed| {
                scope.spawn({
                    let (cluster, acknowledged) = (&cluster, &acknowledged);
                    move || write(cluster, seed, acknowledged)
                })
            })
            .collect();
        let mut draw = Draw(7);
        let mut watches: Vec<_> = (0..90)
            .map(|number| {
                let filter = draw_filter(&mut draw);
                let start = match draw.below(3) {
                    0 => Start::Now,
                    1 => Start::From(Revision(1 + draw.below(before.0))),
                    _ => Start::From(Revision(before.0 + draw.below(300))),
                };
                let options = WatchOptions { progress: Some(MARKS), ..WatchOptions::default() };
                let watch = cluster.hubs[number % 3].watch(filter.clone(), start, options);
                let known = acknowledged.load(Ordering::SeqCst);
                (watch, filter, start, known)
            })
            .collect();
        let end = writers.into_iter().map(ScopedJoinHandle::join);
        let reading: Vec<_> = watches
            .drain(..)
            .map(|(mut watch, filter, start, known)| {
                cluster.runtime.spawn(async move {
                    let from = watch.started().await.expect("the member runs");
                    if start == Start::Now {
                        assert!(
                            from.0 > known,
                            "now is after what was acknowledged: {from} {known}"
                        );
                    }
                    let mut seen = Vec::new();
                    let mut reached = Revision(0);
                    while reached.0 < LAST.load(Ordering::SeqCst) {
                        reached = follow(&mut watch, reached, &mut seen).await.expect("it goes on");
                    }
                    (filter, from, seen)
                })
            })
            .collect();
        let last = end.map(|last| last.unwrap()).max().unwrap();
        LAST.store(last.0, Ordering::SeqCst);
        reading.into_iter().map(|one| cluster.runtime.block_on(one).unwrap()).collect()
    });
    let history = cluster.history();
    let last = Revision(LAST.load(Ordering::SeqCst));
    let mut handed_out = 0;
    for (filter, from, seen) in &watched {
        let expected = expected(&history, filter, *from);
        check(&expected, seen, last).unwrap_or_else(|fault| panic!("{filter:?} {from}: {fault}"));
        handed_out += seen.iter().filter(|seen| matches!(seen, Seen::Batch(_))).count();
    }
    assert!(handed_out > 5_000, "only {handed_out} batches were handed out");
    cluster.stop();
}

/// The last revision written, once it is known.
static LAST: AtomicU64 = AtomicU64::new(u64::MAX);

#[test]
fn a_cursor_that_hops_between_members_misses_nothing() {
    let cluster = Cluster::found(3);
    let acknowledged = AtomicU64::new(0);
    let filter = OwnedFilter::Prefix("a".into());
    let (seen, last) = std::thread::scope(|scope| {
        let writers: Vec<_> = (1..4)
            .map(|seed| {
                scope.spawn({
                    let (cluster, acknowledged) = (&cluster, &acknowledged);
                    move || write(cluster, seed, acknowledged)
                })
            })
            .collect();
        let mut draw = Draw(3);
        let mut seen: Vec<Seen> = Vec::new();
        let mut next = Revision(1);
        let mut hops = 0;
        let mut last = None;
        let mut writers = Some(writers);
        while last.is_none_or(|last| next <= last) {
            let options = WatchOptions { progress: Some(MARKS), ..WatchOptions::default() };
            let hub = &cluster.hubs[usize::try_from(draw.below(3)).unwrap()];
            let mut watch = hub.watch(filter.clone(), Start::From(next), options);
            for _ in 0..=draw.below(30) {
                let step = follow(&mut watch, Revision(0), &mut seen);
                next = cluster.runtime.block_on(step).expect("it goes on").next();
            }
            hops += 1;
            if writers.as_ref().is_some_and(|all| all.iter().all(ScopedJoinHandle::is_finished)) {
                let all = writers.take().into_iter().flatten();
                last = all.map(|writer| writer.join().unwrap()).max();
            }
        }
        assert!(hops > 3, "it hopped {hops} times");
        (seen, last.unwrap())
    });
    let expected = expected(&cluster.history(), &filter, Revision(1));
    check(&expected, &seen, last).unwrap();
    cluster.stop();
}
