//! Tests that holes are filled with what another archive has, and that nothing else is taken.

use std::path::Path;

use tenure_core::codec::Malformed;
use tenure_core::{Machine, RevisionRecords};
use tenure_raft::MemberId;

use super::frame::ArchiveFrame;
use super::tests::{Past, all_of, holey, revisions, writer};
use super::verify::verify_dirs;
use super::writer::segment_files;
use super::*;

/// The past of a lock, the archive that has all of it, and one that lacks its middle.
struct TwoArchives {
    dir: tempfile::TempDir,
    past: Past,
    whole: Arc<Archive>,
    /// Keeps the files of `whole` in use.
    _writer: ArchiveWriter,
    lacking: ArchiveWriter,
    archive: Arc<Archive>,
    hole: RevisionRange,
}

fn two(cycles: usize) -> TwoArchives {
    let dir = tempfile::tempdir().unwrap();
    let mut past = Past::new();
    let (mut whole_writer, whole) = writer(&dir.path().join("whole"), 1 << 20);
    (0..cycles).for_each(|_| past.cycle("deploy"));
    let early_past =
        Past { machine: Machine::decode(&past.machine.encode()).unwrap(), clock_ms: 0 };
    (0..cycles).for_each(|_| past.cycle("deploy"));
    add_all(&mut whole_writer, &past, past.machine.revision());
    let floor = past.machine.revision().0 - 3;
    let hole = RevisionRange { from: early_past.machine.revision().next(), next: Revision(floor) };
    let (mut lacking, archive) = holey(&dir.path().join("lacking"), &mut past, floor);
    add_all(&mut lacking, &early_past, early_past.machine.revision());
    lacking.catch_up_now();
    assert_eq!(archive.search(&all_of("deploy")).unwrap().holes, [hole]);
    TwoArchives { dir, past, whole, _writer: whole_writer, lacking, archive, hole }
}

/// Adds everything up to a revision, in pieces as small as those of the turns of a member.
fn add_all(writer: &mut ArchiveWriter, past: &Past, upto: Revision) {
    let mut at = Revision(1);
    while at <= upto {
        let records = past.machine.records(at, Most { revisions: 50, bytes: usize::MAX }).unwrap();
        at = records.next();
        writer.add_now(records);
    }
}

fn restarted(dir: &Path) -> Arc<Archive> {
    writer(dir, 1 << 20).1
}

/// Takes parts from an archive, as the thread does, until nothing changes.
fn fill_from(lacking: &mut ArchiveWriter, hole: RevisionRange, from: &Archive) {
    let mut at = hole.from;
    while at < hole.next {
        let part = from.part(RevisionRange { from: at, next: hole.next }).unwrap();
        let next = part.range().next;
        assert!(next > at, "the search goes on");
        let part = ArchivePart::decode(part.range(), &part.encode()).expect("it is whole");
        lacking.fill(&Filling::unanswered(part)).unwrap();
        at = next;
    }
}

#[test]
fn a_hole_is_filled_and_stays_filled_after_a_restart() {
    // The second past is larger than a segment, so that the segment with the hole becomes several.
    for cycles in [5, 800] {
        let mut at = two(cycles);
        fill_from(&mut at.lacking, at.hole, &at.whole);
        let all = revisions(&at.whole, &all_of("deploy"));
        assert_eq!(all.len(), 4 * cycles);
        let known = at.hole.next.0 - at.hole.from.0;
        assert_eq!(at.archive.metrics.filled.get(), known);
        let path = at.dir.path().join("lacking");
        for archive in [&at.archive, &restarted(&path)] {
            assert_eq!(revisions(archive, &all_of("deploy")), all);
            assert_eq!(archive.search(&all_of("deploy")).unwrap().holes, []);
        }
        // What comes next is added behind it.
        at.past.cycle("deploy");
        at.lacking.add_now(at.past.from(at.lacking.next().unwrap().0));
        assert_eq!(revisions(&at.archive, &all_of("deploy")).len(), all.len() + 2);
        let report = verify_dirs(&[path.join(ARCHIVE_DIR)]).unwrap();
        assert_eq!((report.broken.len(), report.holes.len()), (0, 0), "{report:?}");
        let longest = at.archive.segments().iter().map(|it| it.len).max().unwrap();
        assert!(longest <= 3 * SMALL_SEGMENT, "{longest}: segments stay small");
    }
}

/// The size of segments of an archive of 1 MiB.
const SMALL_SEGMENT: u64 = 16 * 1024;

#[test]
fn a_crash_before_the_old_segment_is_replaced_leaves_the_hole_and_loses_nothing() {
    let mut at = two(800);
    let path = at.dir.path().join("lacking");
    let before: Vec<_> = segment_files(&path.join(ARCHIVE_DIR)).unwrap();
    let old: Vec<_> = before.iter().map(|(_, path)| std::fs::read(path).unwrap()).collect();
    fill_from(&mut at.lacking, at.hole, &at.whole);
    // The old segment is back, beside the new ones.
    for ((_, path), bytes) in before.iter().zip(old) {
        std::fs::write(path, bytes).unwrap();
    }
    let again = restarted(&path);
    let found = again.search(&all_of("deploy")).unwrap();
    assert_eq!(found.holes, [at.hole]);
    let left = segment_files(&path.join(ARCHIVE_DIR)).unwrap();
    assert_eq!(left, before, "what the old one covers is removed");
}

#[test]
fn what_the_other_archive_lacks_too_stays_a_hole() {
    let mut at = two(20);
    let (from, next) = (at.hole.from.0, at.hole.next.0);
    // It has only the second half of what is missing.
    let (mut other, archive) = writer(&at.dir.path().join("other"), 1 << 20);
    let half = RevisionRange { from: Revision(u64::midpoint(from, next)), next: at.hole.next };
    let part = at.whole.part(half).unwrap();
    for frame in part.frames() {
        let ArchiveFrame::Records { records, .. } = frame else { panic!("{frame:?}") };
        other.add_now(RevisionRecords::clone(records));
    }
    fill_from(&mut at.lacking, at.hole, &archive);
    let left = RevisionRange { from: at.hole.from, next: half.from };
    assert_eq!(at.archive.search(&all_of("deploy")).unwrap().holes, [left]);
    // An archive that does not reach that far has nothing to say.
    let beyond = RevisionRange { from: Revision(1_000_000), next: Revision(1_000_009) };
    assert_eq!(at.whole.part(beyond).unwrap().range().next, beyond.from);
    // The rest comes from a third one.
    fill_from(&mut at.lacking, left, &at.whole);
    assert_eq!(at.archive.search(&all_of("deploy")).unwrap().holes, []);
}

#[test]
fn a_segment_that_is_gone_is_filled_too() {
    let mut at = two(600);
    fill_from(&mut at.lacking, at.hole, &at.whole);
    let all = revisions(&at.archive, &all_of("deploy"));
    let path = at.dir.path().join("lacking");
    let files = segment_files(&path.join(ARCHIVE_DIR)).unwrap();
    assert!(files.len() > 3, "{files:?}");
    let (first, gone) = &files[1];
    std::fs::write(gone, b"nothing of an archive").unwrap();
    let (mut again, archive) = writer(&path, 1 << 20);
    let hole = RevisionRange { from: *first, next: files[2].0 };
    assert_eq!(archive.search(&all_of("deploy")).unwrap().holes, [hole]);
    fill_from(&mut again, hole, &at.whole);
    assert_eq!(archive.search(&all_of("deploy")).unwrap().holes, []);
    assert_eq!(revisions(&archive, &all_of("deploy")), all);
    assert_eq!(revisions(&restarted(&path), &all_of("deploy")), all);
}

/// Records of some revisions without others.
fn without(records: &RevisionRecords, revision: u64) -> Result<RevisionRecords, Malformed> {
    let mut bytes = Vec::new();
    for record in records.iter().filter(|record| record.revision.0 != revision) {
        record.put_some(&mut bytes, |_| true);
    }
    RevisionRecords::decode(&bytes)
}

#[test]
fn an_answer_that_lacks_a_revision_or_has_another_one_is_not_taken() {
    let at = two(5);
    let part = at.whole.part(at.hole).unwrap();
    let bytes = part.encode();
    let RevisionRange { from, next } = at.hole;
    assert!(ArchivePart::decode(at.hole, &bytes).is_some());
    for wrong in [
        RevisionRange { from, next: next.next() },
        RevisionRange { from, next: Revision(next.0 - 1) },
        RevisionRange { from: from.next(), next },
        RevisionRange { from: Revision(from.0 - 1), next },
    ] {
        assert_eq!(ArchivePart::decode(wrong, &bytes), None, "{wrong:?}");
    }
    let [ArchiveFrame::Records { records, .. }] = part.frames() else { panic!("{part:?}") };
    for missing in from.0..next.0 {
        let records = Arc::new(without(records, missing).unwrap());
        let mut bytes = Vec::new();
        ArchiveFrame::Records { written_ms: 1, records }.put(&mut bytes);
        assert_eq!(ArchivePart::decode(at.hole, &bytes), None, "without {missing}");
    }
    for at_byte in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at_byte] ^= 0x10;
        assert_eq!(ArchivePart::decode(at.hole, &bad), None, "{at_byte}");
    }
}

/// Two other members: the first fails, the second has everything.
struct Others {
    whole: Arc<Archive>,
    asked: Arc<Mutex<Vec<u64>>>,
}

impl OtherArchives for Others {
    fn members(&self) -> Vec<MemberId> {
        [1, 2].map(|id| MemberId::new(id).unwrap()).into()
    }

    fn ask(&self, member: MemberId, range: RevisionRange) -> std::io::Result<ArchivePart> {
        self.asked.lock().unwrap().push(member.get());
        if member.get() == 1 { Err(std::io::Error::other("down")) } else { self.whole.part(range) }
    }
}

#[test]
fn the_thread_asks_the_other_members_until_nothing_is_missing() {
    let mut at = two(50);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let others = Others { whole: at.whole.clone(), asked: asked.clone() };
    let archive = at.archive.clone();
    let filler = std::thread::spawn(move || super::fill::run(&archive, &others));
    // This thread writes, as the thread of a member does.
    while !at.archive.search(&all_of("deploy")).unwrap().holes.is_empty() {
        for item in at.archive.take(true).unwrap() {
            let ArchiveItem::Fill(filling) = item else { panic!("only parts are left here") };
            at.lacking.fill(&filling).unwrap();
        }
    }
    at.archive.close();
    filler.join().unwrap();
    assert!(asked.lock().unwrap().starts_with(&[1, 2]), "{asked:?}");
    assert_eq!(revisions(&at.archive, &all_of("deploy")).len(), 200);
}
