//! Tests that the checks pass what the machine does, and catch every promise that is broken on purpose.

use tenure_core::Filter;
use tenure_core::event::{Batch, Cause, Event, Subject, TimeLabel, WallClock};
use tenure_types::{LeaseId, PlaceNumber, Revision, Token};

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_core::RevisionRecords;

use super::frame::{ArchiveFrame, RevisionRange};
use super::segment::ArchiveSegment;
use super::tests::Past;
use super::verify::{HandoverKind, Promise, Verifier, VerifyReport, verify_dirs};
use super::writer::{segment_files, segment_name};

/// A lock that is handed over in two ways: its holder expires, and its holder gives it back.
fn honest() -> Vec<Batch> {
    let mut past = Past::new();
    past.acquire(1, "deploy");
    past.wait(100);
    past.acquire(2, "deploy");
    past.acquire(3, "deploy");
    past.wait(10_000);
    past.revoke(2);
    past.acquire(4, "other");
    past.machine.events(Revision(1), Filter::All, 1_000).unwrap().batches
}

fn check(batches: &[Batch]) -> VerifyReport {
    let mut verifier = Verifier::default();
    batches.iter().for_each(|batch| verifier.add(batch));
    verifier.finish()
}

/// The place of the first event with this cause.
fn find(batches: &[Batch], cause: Cause) -> (usize, usize) {
    let found = batches.iter().enumerate().find_map(|(at, batch)| {
        let number = batch.events.iter().position(|it| it.cause == cause && it.token.is_some());
        number.map(|number| (at, number))
    });
    found.unwrap_or_else(|| panic!("no {cause:?}"))
}

#[test]
fn what_the_machine_does_keeps_every_promise() {
    let report = check(&honest());
    assert_eq!(report.broken, []);
    let kinds: Vec<_> = report.handovers.iter().map(|(_, it)| it.kind).collect();
    assert_eq!(kinds, [HandoverKind::Expired, HandoverKind::GivenBack]);
    let margin = report.handovers[0].1.margin_ms;
    // Renewed at 0, a ttl of 10 s, ended by the entry at 10.1 s.
    assert_eq!(margin, 100);
}

/// The events of requests for any of several locks, and for any slot of a pool that gets a slot and loses one.
fn choices() -> Vec<Batch> {
    let mut past = Past::new();
    past.acquire(1, "a");
    past.acquire(2, "b");
    past.acquire(3, "b");
    past.acquire_any(4, &["a", "b"]);
    past.acquire_any(5, &["a", "b"]);
    past.wait(1);
    past.revoke(1);
    past.revoke(2);
    past.revoke(3);
    past.resize("gpu/0", Some(1));
    past.acquire_pool(6, "gpu/");
    past.wait(1);
    past.acquire_pool(7, "gpu/");
    // The one who waits for the pool has asked first, and joins this queue last.
    past.acquire_slot(8, "gpu/1");
    past.wait(1);
    past.acquire_slot(9, "gpu/1");
    past.wait(1);
    past.resize("gpu/1", Some(1));
    past.revoke(8);
    past.acquire_pool(10, "gpu/");
    past.resize("gpu/0", None);
    past.revoke(7);
    past.revoke(9);
    past.revoke(10);
    past.machine.events(Revision(1), Filter::All, 1_000).unwrap().batches
}

fn is_lock(subject: &Subject, lock: &str) -> bool {
    matches!(subject, Subject::Lock(name) if name.as_str() == lock)
}

/// The leases that were granted a lock, in order.
fn holders(batches: &[Batch], lock: &str) -> Vec<u64> {
    let events = batches.iter().flat_map(|batch| &batch.events);
    let of_lock = |event: &&Event| event.cause == Cause::Granted && is_lock(&event.subject, lock);
    events.filter(of_lock).filter_map(|event| event.lease).map(LeaseId::get).collect()
}

#[test]
fn requests_for_any_of_several_locks_keep_every_promise() {
    let batches = choices();
    assert_eq!(holders(&batches, "a"), [1, 4]);
    assert_eq!(holders(&batches, "b"), [2, 3, 5]);
    assert_eq!(holders(&batches, "gpu/0"), [6]);
    assert_eq!(holders(&batches, "gpu/1"), [8, 7, 9, 10], "in the order in which they asked");
    let events = || batches.iter().flat_map(|batch| &batch.events);
    let elsewhere = events().filter(|event| event.cause == Cause::GrantedElsewhere).count();
    assert_eq!(elsewhere, 3, "4 and 5 leave one queue each, and 7 leaves that of gpu/0");
    let report = check(&batches);
    assert_eq!(report.broken, []);
    // Also if only the newer part of the events is known, wherever it begins.
    for first in 1..batches.len() {
        assert_eq!(check(&batches[first..]).broken, [], "from {first}");
    }
}

#[test]
fn a_request_for_a_pool_that_is_passed_in_a_new_queue_is_caught() {
    let mut batches = choices();
    let granted = batches
        .iter_mut()
        .flat_map(|it| &mut it.events)
        .filter(|event| event.cause == Cause::Granted && is_lock(&event.subject, "gpu/1"));
    // The second and the third grant change places.
    let mut granted: Vec<&mut Event> = granted.collect();
    let (seven, nine) = (granted[1].place, granted[2].place);
    (granted[1].place, granted[2].place) = (nine, seven);
    let broken: Vec<Promise> = check(&batches).broken.iter().map(|it| it.promise).collect();
    assert!(broken.contains(&Promise::FirstCome), "{broken:?}");
}

type Plant = fn(&mut Vec<Batch>);

/// Moves a batch to another time of the cluster's clock.
fn at(batch: &mut Batch, clock_ms: u64) {
    batch.label = Some(TimeLabel { wall: WallClock { unix_ms: 0 }, clock_ms });
}

/// Every way in which a promise is broken here.
fn planted() -> [(&'static str, Promise, Plant); 13] {
    [
        ("the end of a hold is missing", Promise::OneHolder, |all| {
            let (batch, number) = find(all, Cause::Released);
            all[batch].events.remove(number);
        }),
        ("a second holder of an exclusive lock", Promise::OneHolder, |all| {
            let (batch, number) = find(all, Cause::Granted);
            let mut second = all[batch].events[number].clone();
            second.token = second.token.map(|token| Token::from_u64(token.get() + 100).unwrap());
            second.lease = LeaseId::new(77);
            all[batch].events.push(second);
        }),
        ("granted while it is being revoked", Promise::OneHolder, |all| {
            let (batch, number) = find(all, Cause::Expired);
            let event = &mut all[batch].events[number];
            (event.cause, event.left_ms) = (Cause::Forced, Some(5_000));
        }),
        ("a token that was there before", Promise::TokensGrow, |all| {
            let first = find(all, Cause::Granted);
            let token = all[first.0].events[first.1].token;
            let last = all.iter_mut().rev().flat_map(|it| &mut it.events);
            let mut last = last.filter(|it| it.cause == Cause::Granted);
            last.next().unwrap().token = token;
        }),
        ("a waiter that is overtaken", Promise::FirstCome, |all| {
            let granted = all.iter_mut().flat_map(|it| &mut it.events);
            let mut granted = granted.filter(|it| it.cause == Cause::Granted);
            let second = granted.nth(1).unwrap();
            second.place = second.place.map(|place| PlaceNumber(place.0 + 1));
        }),
        ("a lease that expired before its ttl was over", Promise::NotEarly, |all| {
            let (batch, _) = find(all, Cause::Expired);
            at(&mut all[batch], 9_000);
        }),
        ("a renewal that was forgotten", Promise::NotEarly, |all| {
            let (batch, number) = find(all, Cause::Expired);
            all[batch].events[number].renewed_ms = Some(5_000);
        }),
        ("a revocation that ended early", Promise::NotEarly, |all| take_away(all, 5_000, 7_000)),
        ("a lock-delay that ended early", Promise::NotEarly, |all| {
            let (batch, number) = find(all, Cause::Expired);
            all[batch].events[number].left_ms = Some(3_000);
            let event = all[batch].events[number].clone();
            let over = Event { cause: Cause::DelayOver, left_ms: None, ..event };
            let rest = all[batch].events.split_off(number + 1);
            let mut next = Batch { revision: all[batch].revision, label: None, events: rest };
            next.events.insert(0, over);
            at(&mut next, 11_000);
            all.insert(batch + 1, next);
        }),
        ("granted while it rests", Promise::OneHolder, |all| {
            let (batch, number) = find(all, Cause::Released);
            all[batch].events[number].left_ms = Some(5_000);
        }),
        ("a min hold that ended early", Promise::NotEarly, |all| rest(all, 5_000, 4_999, None)),
        ("a longest hold whose end is not waited for", Promise::NotEarly, |all| {
            let (batch, number) = find(all, Cause::Expired);
            all[batch].events[number].cause = Cause::MaxHold;
            at(&mut all[batch], 5_000);
        }),
        ("a grant before the lock was given back", Promise::NotEarly, |all| {
            let (batch, number) = find(all, Cause::Released);
            let clock_ms = all[batch].label.expect("a labelled revision").clock_ms;
            let events = all[batch].events.split_off(number + 1);
            let mut next = Batch { revision: all[batch].revision, label: None, events };
            at(&mut next, clock_ms - 50);
            all.insert(batch + 1, next);
        }),
    ]
}

/// Lets the lock that is given back rest for this long, and ends the rest after another time, for a reason.
fn rest(all: &mut Vec<Batch>, left_ms: u64, lasts_ms: u64, reason: Option<&str>) {
    let (batch, number) = find(all, Cause::Released);
    let clock_ms = all[batch].label.expect("a labelled revision").clock_ms;
    all[batch].events[number].left_ms = Some(left_ms);
    let event = all[batch].events[number].clone();
    let (cause, reason) = (Cause::MinHoldOver, reason.map(Box::from));
    let over = Event { cause, reason, left_ms: None, ttl_ms: None, renewed_ms: None, ..event };
    let mut events = all[batch].events.split_off(number + 1);
    events.insert(0, over);
    let mut next = Batch { revision: all[batch].revision, label: None, events };
    at(&mut next, clock_ms + lasts_ms);
    all.insert(batch + 1, next);
}

#[test]
fn a_rest_ends_at_its_time_or_for_a_reason() {
    for (lasts_ms, reason) in [(5_000, None), (100, Some("forced without waiting"))] {
        let mut batches = honest();
        rest(&mut batches, 5_000, lasts_ms, reason);
        assert_eq!(check(&batches).broken, [], "after {lasts_ms} ms");
    }
}

#[test]
fn every_promise_that_is_broken_on_purpose_is_caught() {
    for (what, promise, plant) in planted() {
        let mut batches = honest();
        plant(&mut batches);
        let broken = check(&batches).broken;
        assert!(broken.iter().any(|it| it.promise == promise), "{what}: {broken:?}");
    }
}

/// Turns the expiry into a revocation at one clock whose cooling ends at another, without a reason.
fn take_away(all: &mut Vec<Batch>, forced_ms: u64, cooled_ms: u64) {
    let (batch, number) = find(all, Cause::Expired);
    let deadline_ms = 10_000;
    let event = all[batch].events[number].clone();
    let mut rest = all[batch].events.split_off(number);
    rest[0] = Event {
        cause: Cause::Cooled,
        left_ms: None,
        ttl_ms: None,
        renewed_ms: None,
        ..event.clone()
    };
    let left_ms = Some(deadline_ms - forced_ms);
    all[batch].events.push(Event { cause: Cause::Forced, left_ms, ..event });
    at(&mut all[batch], forced_ms);
    let mut next = Batch { revision: all[batch].revision, label: None, events: rest };
    at(&mut next, cooled_ms);
    all.insert(batch + 1, next);
}

#[test]
fn a_lock_that_was_taken_away_has_a_margin_unless_it_was_taken_at_once() {
    let mut batches = honest();
    take_away(&mut batches, 5_000, 10_001);
    let report = check(&batches);
    assert_eq!(report.broken, []);
    assert_eq!(report.handovers[0].1.kind, HandoverKind::TakenAway);
    assert_eq!(report.handovers[0].1.margin_ms, 1);
    // Without waiting: no promise, so nothing is broken, and it is counted apart.
    let mut batches = honest();
    let (batch, number) = find(&batches, Cause::Expired);
    batches[batch].events[number].cause = Cause::Forced;
    batches[batch].events.retain(|event| event.cause != Cause::Expired);
    at(&mut batches[batch], 5_000);
    let report = check(&batches);
    assert_eq!(report.broken, []);
    assert_eq!(report.handovers[0].1.kind, HandoverKind::Unprotected);
    assert_eq!(report.handovers[0].1.promised_margin_ms(), None);
}

#[test]
fn what_is_missing_is_unknown_and_not_broken() {
    let batches = honest();
    let (granted, _) = find(&batches, Cause::Granted);
    let mut verifier = Verifier::default();
    // The first holder's end is in a hole, and so is a part of the queue.
    for batch in &batches[..=granted] {
        verifier.add(batch);
    }
    let next = batches[batches.len() - 1].revision;
    verifier.skip(RevisionRange { from: batches[granted].revision.next(), next });
    verifier.add(&batches[batches.len() - 1]);
    let report = verifier.finish();
    assert_eq!((report.broken.len(), report.holes.len()), (0, 1));
    // Neither is what came before the archive.
    assert_eq!(check(&batches[batches.len() / 2..]).broken, []);
}

/// Numbers the batches anew: a plant may have made two of one.
fn renumbered(mut batches: Vec<Batch>) -> Vec<Batch> {
    let first = batches[0].revision.0;
    for (batch, revision) in batches.iter_mut().zip(first..) {
        batch.revision = Revision(revision);
    }
    batches
}

/// Writes an archive of one segment.
fn write(dir: &Path, batches: &[Batch]) {
    std::fs::create_dir_all(dir).unwrap();
    let records = Arc::new(RevisionRecords::of(batches).unwrap());
    let from = records.from();
    let frame = ArchiveFrame::Records { written_ms: 1, records };
    ArchiveSegment::write(&dir.join(segment_name(from)), from, &[frame]).unwrap();
}

/// The archives with broken promises, which the tests of the command line read too. Each directory has the archives of
/// one cluster.
fn broken_archives(root: &Path) -> Vec<(String, Promise)> {
    let mut all = Vec::new();
    let mut add = |what: &str, promise, archives: &[Vec<Batch>]| {
        let name = what.replace(' ', "-");
        for (batches, member) in archives.iter().zip(["a", "b"]) {
            write(&root.join(&name).join(member), &renumbered(batches.clone()));
        }
        all.push((name, promise));
    };
    for (what, promise, plant) in planted() {
        let mut batches = honest();
        plant(&mut batches);
        add(what, promise, &[batches]);
    }
    let mut other = honest();
    let (batch, number) = find(&other, Cause::Released);
    other[batch].events[number].lease = LeaseId::new(99);
    add("two members that disagree", Promise::SameEverywhere, &[honest(), other]);
    // Written without new numbers: a revision is missing.
    let mut lacking = honest();
    lacking.remove(3);
    let name = "a revision that is missing".replace(' ', "-");
    write(&root.join(&name).join("a"), &lacking);
    all.push((name, Promise::NothingUnmarked));
    all
}

/// Writes an archive with a segment for each revision. Returns the files.
fn write_segments(dir: &Path, batches: &[Batch]) -> Vec<PathBuf> {
    batches.iter().for_each(|batch| write(dir, std::slice::from_ref(batch)));
    segment_files(dir).unwrap().into_iter().map(|(_, path)| path).collect()
}

/// Changes one byte of a file.
fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_segment_that_is_missing_damaged_or_set_aside_is_reported() {
    let whole = tempfile::tempdir().unwrap();
    write_segments(whole.path(), &honest());
    assert_eq!(verify_dirs(&[whole.path().to_owned()]).unwrap().damaged, []);
    // What is done to an archive, and whether a promise is broken by it and a file is damaged.
    type Harm = fn(&[PathBuf]);
    let harms: [(&str, Harm, (bool, bool)); 6] = [
        ("removed", |all| std::fs::remove_file(&all[2]).unwrap(), (true, false)),
        ("a byte of a frame", |all| flip(&all[2], 30), (false, true)),
        ("a byte of the beginning", |all| flip(&all[2], 3), (false, true)),
        ("emptied", |all| std::fs::write(&all[2], []).unwrap(), (false, true)),
        (
            "cut",
            |all| std::fs::write(&all[2], &std::fs::read(&all[2]).unwrap()[..40]).unwrap(),
            (false, true),
        ),
        (
            "set aside",
            |all| std::fs::rename(&all[2], all[2].with_extension("damaged")).unwrap(),
            (false, true),
        ),
    ];
    for (what, harm, expected) in harms {
        let dir = tempfile::tempdir().unwrap();
        let files = write_segments(dir.path(), &honest());
        harm(&files);
        let dirs = [dir.path().to_owned(), whole.path().to_owned()];
        let alone = verify_dirs(&dirs[..1]).unwrap();
        let unmarked = alone.broken.iter().any(|it| it.promise == Promise::NothingUnmarked);
        assert_eq!((unmarked, !alone.damaged.is_empty()), expected, "{what}: {alone:?}");
        assert_eq!(alone.holes.len(), 1, "{what}: {alone:?}");
        // Another archive has the events: they are checked, and the damage is still reported.
        let both = verify_dirs(&dirs).unwrap();
        assert_eq!(both.holes, [], "{what}");
        assert_eq!((!both.broken.is_empty(), !both.damaged.is_empty()), expected, "{what}");
    }
}

#[test]
fn the_end_of_the_last_segment_may_be_incomplete_but_not_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let batches = honest();
    let records = |batch| RevisionRecords::of(std::slice::from_ref(batch)).unwrap().into();
    let frames =
        batches.iter().map(|it| ArchiveFrame::Records { written_ms: 1, records: records(it) });
    let frames: Vec<_> = frames.collect();
    let from = batches[0].revision;
    let path = dir.path().join(segment_name(from));
    ArchiveSegment::write(&path, from, &frames).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let dirs = [dir.path().to_owned()];
    let cut = verify_dirs(&dirs).unwrap();
    assert_eq!((cut.revisions, cut.damaged.len()), (batches.len() as u64 - 1, 0), "{cut:?}");
    assert!(cut.archives[0].incomplete_bytes > 0, "{cut:?}");
    std::fs::write(&path, &bytes).unwrap();
    flip(&path, 30);
    let damaged = verify_dirs(&dirs).unwrap();
    assert_eq!(damaged.damaged[0].path, path, "{damaged:?}");
}

#[test]
fn frames_that_are_written_while_a_segment_is_read_are_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let batches = honest();
    let records = |batch| RevisionRecords::of(std::slice::from_ref(batch)).unwrap().into();
    let frames =
        batches.iter().map(|it| ArchiveFrame::Records { written_ms: 1, records: records(it) });
    let frames: Vec<_> = frames.collect();
    let from = batches[0].revision;
    let path = dir.path().join(segment_name(from));
    ArchiveSegment::write(&path, from, &frames).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let mut last = Vec::new();
    frames[frames.len() - 3..].iter().for_each(|frame| frame.put(&mut last));
    std::fs::write(&path, &bytes[..bytes.len() - last.len()]).unwrap();
    let file = File::open(&path).unwrap();
    let segment = ArchiveSegment::open(&path, file, from).unwrap().unwrap();
    // The member goes on writing; the last of three frames is not complete yet.
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let mut cut = Vec::new();
    frames.last().unwrap().put(&mut cut);
    let tail = segment.unread_tail().unwrap();
    assert_eq!((tail.bytes, tail.goes_on), (cut.len() as u64 - 1, false));
}

#[test]
fn a_directory_without_segments_is_no_archive() {
    let dir = tempfile::tempdir().unwrap();
    let error = verify_dirs(&[dir.path().to_owned()]).unwrap_err();
    assert!(error.cause.to_string().contains("it has no segment"), "{error:?}");
    // One that has just begun has a segment without events.
    ArchiveSegment::create(dir.path().join(segment_name(Revision(1))), Revision(1)).unwrap();
    let begun = verify_dirs(&[dir.path().to_owned()]).unwrap();
    assert_eq!((begun.revisions, begun.damaged.len()), (0, 0), "{begun:?}");
}

fn members(dir: &Path) -> Vec<PathBuf> {
    ["a", "b"].map(|member| dir.join(member)).into_iter().filter(|it| it.is_dir()).collect()
}

#[test]
fn every_broken_promise_is_caught_in_archives_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken-archives");
    let broken = broken_archives(dir.path());
    assert_eq!(broken.len(), 15);
    if std::env::var_os("TENURE_FIX").is_some() {
        let _ = std::fs::remove_dir_all(&kept);
        broken_archives(&kept);
    }
    for (name, promise) in broken {
        let made = members(&dir.path().join(&name));
        let report = verify_dirs(&made).unwrap();
        assert!(report.broken.iter().any(|it| it.promise == promise), "{name}: {report:?}");
        // The kept ones are the same, byte for byte: the format has not changed.
        for (made, kept) in made.iter().zip(members(&kept.join(&name))) {
            let bytes = |dir: &Path| std::fs::read(&segment_files(dir).unwrap()[0].1).unwrap();
            assert!(bytes(made) == bytes(&kept), "{name} is old: run with TENURE_FIX=1");
        }
        assert_eq!(made.len(), members(&kept.join(&name)).len(), "{name}: run with TENURE_FIX=1");
    }
}

#[test]
fn what_one_archive_lacks_another_one_has() {
    let dir = tempfile::tempdir().unwrap();
    let batches = honest();
    let (half, all) = (batches.len() / 2, [dir.path().join("a"), dir.path().join("b")]);
    // The first has the beginning and the end, the second has the middle.
    let hole = RevisionRange { from: batches[2].revision, next: batches[half + 1].revision };
    std::fs::create_dir_all(&all[0]).unwrap();
    let records = |batches: &[Batch]| RevisionRecords::of(batches).unwrap();
    let frames = [
        ArchiveFrame::Records { written_ms: 1, records: records(&batches[..2]).into() },
        ArchiveFrame::Hole(hole),
        ArchiveFrame::Records { written_ms: 1, records: records(&batches[half + 1..]).into() },
    ];
    let from = batches[0].revision;
    ArchiveSegment::write(&all[0].join(segment_name(from)), from, &frames).unwrap();
    write(&all[1], &batches[1..=half + 1]);
    let report = verify_dirs(&all).unwrap();
    assert_eq!((report.broken.len(), report.holes.len()), (0, 0), "{report:?}");
    assert_eq!(report.handovers.len(), 2);
    assert_eq!(report.archives[0].holes, [hole]);
    let margins = report.margins().unwrap();
    assert_eq!((margins.count, margins.p50_ms, margins.p99_ms, margins.min_ms), (1, 100, 100, 100));
    // Alone it has a hole, and nothing is concluded over it.
    let alone = verify_dirs(&all[..1]).unwrap();
    assert_eq!((alone.broken.len(), &alone.holes[..]), (0, &[hole][..]), "{alone:?}");
}
