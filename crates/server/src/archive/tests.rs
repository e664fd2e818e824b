//! Tests the archive: what it keeps over crashes, what it removes, what it finds.

use std::path::Path;

use tenure_core::Machine;
use tenure_core::codec::{encode_request, seal_labelled};
use tenure_core::event::WallClock;
use tenure_core::outcome::Effects;
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, LeaseRef, NewLease, Purpose, Request,
    RequestId, Revoker,
};
use tenure_types::{Epoch, LeaseId, Limit, Mode, Term};

use super::writer::segment_files;
use super::*;

/// A machine whose events the archive gets.
pub(super) struct Past {
    pub(super) machine: Machine,
    pub(super) clock_ms: u64,
}

impl Past {
    pub(super) fn new() -> Self {
        let mut past = Self { machine: Machine::new(Epoch::default()), clock_ms: 0 };
        past.apply(&[Command::RaiseLevel { level: tenure_core::LEVEL_MAX }]);
        past
    }

    fn apply(&mut self, commands: &[Command<'_>]) {
        let encoded: Vec<Vec<u8>> = commands
            .iter()
            .map(|command| {
                let mut bytes = Vec::new();
                let (principal, id, command) = ("", RequestId::None, command.clone());
                encode_request(&Request { principal, id, command }, &mut bytes);
                bytes
            })
            .collect();
        let labelled = self.machine.level() >= tenure_core::request::LEVEL_RECORDS;
        let wall = labelled.then_some(WallClock { unix_ms: 1_000_000 + self.clock_ms });
        let requests = encoded.iter().map(Vec::as_slice);
        let entry = seal_labelled(Term(1), self.clock_ms, wall, requests);
        self.machine.apply(Term(1), Some(&entry), &mut Effects::default());
    }

    /// A client takes a lock with a lease of its own.
    pub(super) fn acquire(&mut self, lease: u64, lock: &str) {
        self.ask(lease, Asks::One(Ask { lock, mode: Mode::Exclusive }));
    }

    /// A client takes any one of several locks with a lease of its own.
    pub(super) fn acquire_any(&mut self, lease: u64, locks: &[&str]) {
        let ask = |lock| Ask { lock, mode: Mode::Exclusive };
        self.ask(lease, Asks::Many(locks.iter().copied().map(ask).collect()));
    }

    /// A client takes any slot of a pool with a lease of its own.
    pub(super) fn acquire_pool(&mut self, lease: u64, pool: &str) {
        self.ask(lease, Asks::Pool(Ask { lock: pool, mode: Mode::Slot { of: 1, take: 1 } }));
    }

    /// A client takes the slot of a semaphore that has one.
    pub(super) fn acquire_slot(&mut self, lease: u64, lock: &str) {
        self.ask(lease, Asks::One(Ask { lock, mode: Mode::Slot { of: 1, take: 1 } }));
    }

    /// An operator sets the number of slots of a semaphore, or leaves it to the requests.
    pub(super) fn resize(&mut self, lock: &str, slots: Option<u32>) {
        self.apply(&[Command::Resize { lock, slots, by: "ops" }]);
    }

    /// A client requests locks with a lease of its own; of several, one is enough.
    fn ask(&mut self, lease: u64, locks: Asks<'_>) {
        let client = format!("client-{lease}");
        let id = LeaseId::new(lease).unwrap();
        let new = NewLease { id, ttl_ms: 10_000, client: &client, metadata: b"" };
        self.apply(&[Command::Acquire(Acquire {
            lease: AskLease::New(new),
            any: matches!(locks, Asks::Many(_)),
            locks,
            wait: AskWait::Unlimited,
            metadata: b"",
            lock_delay_ms: 0,
            max_hold_ms: None,
            min_hold_ms: 0,
            progress_within_ms: 0,
            supersede: None,
            resume: false,
            priority: 0,
            purpose: Purpose::Lock,
            independent: false,
        })]);
    }

    /// A client gives all back.
    pub(super) fn revoke(&mut self, lease: u64) {
        let lease = LeaseRef::Id(LeaseId::new(lease).unwrap());
        self.apply(&[Command::Revoke { lease, by: Revoker::Holder }]);
    }

    /// Time passes.
    pub(super) fn wait(&mut self, ms: u64) {
        self.clock_ms += ms;
        self.apply(&[]);
    }

    /// One short hold of a lock.
    pub(super) fn cycle(&mut self, lock: &str) {
        self.clock_ms += 1;
        self.acquire(1, lock);
        self.revoke(1);
    }

    pub(super) fn from(&self, from: u64) -> RevisionRecords {
        let most = Most { revisions: usize::MAX, bytes: usize::MAX };
        self.machine.records(Revision(from), most).expect("the history has it")
    }
}

/// Records of these locks, from a revision on, each held once.
pub(super) fn records(from: u64, locks: &[&str]) -> RevisionRecords {
    let mut past = Past::new();
    locks.iter().for_each(|lock| past.cycle(lock));
    past.from(from)
}

fn keep(bytes_max: u64) -> ArchiveSettings {
    ArchiveSettings { bytes_max, ..ArchiveSettings::default() }
}

/// A writer that reads the history of nothing.
pub(super) fn writer(dir: &Path, bytes_max: u64) -> (ArchiveWriter, Arc<Archive>) {
    let archive = Arc::new(Archive::default());
    let read = Box::new(|_| None);
    std::fs::create_dir_all(dir).unwrap();
    let mut writer =
        ArchiveWriter::new(dir.join("archive"), keep(bytes_max), archive.clone(), read);
    writer.load().unwrap();
    writer.show();
    (writer, archive)
}

/// A writer that reads the history of a machine which has lost everything before a revision.
pub(super) fn holey(dir: &Path, past: &mut Past, floor: u64) -> (ArchiveWriter, Arc<Archive>) {
    // This command has a revision too.
    let kept = past.machine.revision().0 + 2 - floor;
    past.apply(&[Command::SetLimits(vec![(Limit::HistoryRevisions, kept)])]);
    assert_eq!(past.machine.floor(), Revision(floor));
    let archive = Arc::new(Archive::default());
    let machine = Machine::decode(&past.machine.encode()).unwrap();
    let read = Box::new(move |from| Some(machine.records(from, PART)));
    let path = dir.join(ARCHIVE_DIR);
    std::fs::create_dir_all(dir).unwrap();
    let mut writer = ArchiveWriter::new(path, keep(1 << 20), archive.clone(), read);
    writer.load().unwrap();
    (writer, archive)
}

pub(super) fn all_of(lock: &str) -> ArchiveQuery {
    ArchiveQuery {
        subject: ArchiveSubject::Lock(lock.to_owned()),
        since_ms: None,
        until_ms: None,
        client: None,
        lost: false,
        cause: None,
        before: Revision(u64::MAX),
        max: usize::MAX,
    }
}

pub(super) fn revisions(archive: &Archive, query: &ArchiveQuery) -> Vec<u64> {
    archive.search(query).unwrap().batches.iter().map(|batch| batch.revision.0).collect()
}

#[test]
fn what_was_shown_survives_a_crash_and_nothing_comes_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut past = Past::new();
    (0..5).for_each(|_| past.cycle("deploy"));
    let (mut first, archive) = writer(dir.path(), 1 << 20);
    first.add_now(past.from(1));
    let shown = revisions(&archive, &all_of("deploy"));
    assert_eq!(shown.len(), 10);
    let (whole, next) = (past.from(1).next(), first.next().unwrap());
    assert_eq!(whole, next);
    // Killed in the middle of a write: at any byte of the frame, readers had not seen it, and a restart removes it.
    past.cycle("deploy");
    for torn in [0, 1, 7, 9, 20, 60] {
        first.load().unwrap();
        first.add_torn(past.from(next.0), torn);
        assert_eq!(revisions(&archive, &all_of("deploy")), shown, "not synced, so not shown");
        let (again, restarted) = writer(dir.path(), 1 << 20);
        assert_eq!(revisions(&restarted, &all_of("deploy")), shown, "torn at {torn}");
        assert_eq!(again.next(), Some(next));
    }
    // After the restart the member offers again what it applies again.
    let (mut again, restarted) = writer(dir.path(), 1 << 20);
    again.add_now(past.from(1));
    again.add_now(past.from(3));
    let found = revisions(&restarted, &all_of("deploy"));
    assert_eq!(found.len(), 12);
    assert!(found.windows(2).all(|pair| pair[0] > pair[1]), "newest first, none twice: {found:?}");
}

#[test]
fn a_prefix_that_floods_shortens_its_own_past_and_the_newest_thousand_of_each_stay() {
    let dir = tempfile::tempdir().unwrap();
    let mut past = Past::new();
    let bytes_max = 512 << 10;
    let (mut writer, archive) = writer(dir.path(), bytes_max);
    (0..20).for_each(|_| past.cycle("deploy"));
    (0..600).for_each(|_| past.cycle("team/job"));
    let mut next = 1;
    for _ in 0..12 {
        (0..500).for_each(|_| past.cycle("bench/x"));
        let records = past.from(next);
        next = records.next().0;
        writer.add_now(records);
    }
    let bytes: u64 = archive.segments().iter().map(|it| it.len).sum();
    assert!(bytes <= bytes_max, "{bytes}");
    assert_eq!(revisions(&archive, &all_of("deploy")).len(), 40, "all of it");
    assert_eq!(revisions(&archive, &all_of("team/job")).len(), 1_200);
    let flood = revisions(&archive, &all_of("bench/x"));
    assert!((1_000..11_000).contains(&flood.len()), "{}", flood.len());
    assert_eq!(flood[0] + 1, next, "the newest are there");
    assert!(flood.windows(2).all(|pair| pair[0] == pair[1] + 1), "only the oldest are gone");
    // Each lock is told where its own past begins.
    let begins = |lock| archive.search(&all_of(lock)).unwrap().begins.unwrap();
    assert_eq!(begins("deploy"), Revision(1));
    let begin = begins("bench/x").0;
    assert!(begin <= flood[flood.len() - 1] && begin > 1_000, "{begin}");
    // A restart reads the same.
    let (_, restarted) = super::tests::writer(dir.path(), bytes_max);
    assert_eq!(revisions(&restarted, &all_of("bench/x")), flood);
    assert_eq!(restarted.search(&all_of("bench/x")).unwrap().begins, Some(Revision(begin)));
    // The files stay few.
    let files = segment_files(&dir.path().join("archive")).unwrap().len();
    assert!(files < 150, "{files}");
}

#[test]
fn floors_that_do_not_fit_give_way_from_the_oldest_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut past = Past::new();
    let bytes_max = 64 << 10;
    let (mut writer, archive) = writer(dir.path(), bytes_max);
    let mut next = 1;
    // Each has fewer events than the floor, and together they do not fit.
    for prefix in ["a", "b", "c", "d", "e", "f"] {
        (0..150).for_each(|_| past.cycle(prefix));
        let records = past.from(next);
        next = records.next().0;
        writer.add_now(records);
    }
    let bytes: u64 = archive.segments().iter().map(|it| it.len).sum();
    assert!(bytes <= bytes_max, "{bytes}");
    assert_eq!(revisions(&archive, &all_of("f")).len(), 300, "the newest stay");
    assert!(revisions(&archive, &all_of("a")).len() < 300, "the oldest go");
    assert!(archive.search(&all_of("a")).unwrap().begins > Some(Revision(1)), "and it is said");
}

#[test]
fn what_is_too_old_goes_whatever_its_floor() {
    let dir = tempfile::tempdir().unwrap();
    let mut past = Past::new();
    let (mut writer, archive) = writer(dir.path(), 1 << 20);
    (0..5).for_each(|_| past.cycle("deploy"));
    writer.add_now(past.from(1));
    let written_ms = crate::os::wall_ms();
    while crate::os::wall_ms() <= written_ms {
        std::thread::yield_now();
    }
    writer.retain(true).unwrap();
    writer.show();
    assert_eq!(revisions(&archive, &all_of("deploy")).len(), 10, "not old enough");
    writer.keep.age_max = Duration::ZERO;
    writer.retain(true).unwrap();
    writer.show();
    assert_eq!(revisions(&archive, &all_of("deploy")).len(), 0);
    // What comes next goes on where it ended.
    past.cycle("deploy");
    writer.add_now(past.from(writer.next().unwrap().0));
    assert_eq!(revisions(&archive, &all_of("deploy")).len(), 2);
}

#[test]
fn a_merge_that_a_crash_cut_leaves_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut past = Past::new();
    (0..400).for_each(|_| past.cycle("deploy"));
    let (mut writer, archive) = writer(dir.path(), 1 << 20);
    let half = past.machine.revision().0 / 2;
    let most = Most { revisions: usize::try_from(half).unwrap(), bytes: usize::MAX };
    writer.add_now(past.machine.records(Revision(1), most).unwrap());
    writer.seal().unwrap();
    writer.add_now(past.from(half + 1));
    writer.seal().unwrap();
    writer.show();
    let all = revisions(&archive, &all_of("deploy"));
    // The second file comes back, as if the crash had been before its removal.
    let files = segment_files(&dir.path().join("archive")).unwrap();
    let (_, last) = files.last().unwrap();
    let copy = std::fs::read(last).unwrap();
    let (_, first) = &files[0];
    let joined = [std::fs::read(first).unwrap(), copy[8..].to_vec()].concat();
    std::fs::write(first, joined).unwrap();
    let (_, restarted) = super::tests::writer(dir.path(), 1 << 20);
    assert_eq!(revisions(&restarted, &all_of("deploy")), all);
}

#[test]
fn what_the_history_has_lost_is_marked_as_a_hole() {
    let dir = tempfile::tempdir().unwrap();
    let mut past = Past::new();
    (0..5).for_each(|_| past.cycle("deploy"));
    let early = past.from(1);
    (0..5).for_each(|_| past.cycle("deploy"));
    let newest = past.machine.revision();
    let floor = newest.0 - 3;
    let (mut writer, archive) = holey(dir.path(), &mut past, floor);
    let next = early.next();
    writer.add_now(early);
    writer.catch_up_now();
    let found = archive.search(&all_of("deploy")).unwrap();
    assert_eq!(found.holes, [RevisionRange { from: next, next: Revision(floor) }]);
    assert_eq!(found.batches[0].revision, newest);
    let (_, restarted) = super::tests::writer(dir.path(), 1 << 20);
    assert_eq!(restarted.search(&all_of("deploy")).unwrap().holes, found.holes);
    assert_eq!(archive.metrics.holes.get(), 1);
}

#[test]
fn searches_select_by_time_client_and_loss_and_go_on_where_they_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let mut past = Past::new();
    past.wait(1_000);
    past.acquire(1, "deploy");
    past.acquire(2, "deploy");
    past.wait(20_000);
    past.wait(1_000);
    past.acquire(3, "other");
    let (mut writer, archive) = writer(dir.path(), 1 << 20);
    writer.add_now(past.from(1));
    let lost = archive.search(&ArchiveQuery { lost: true, ..all_of("deploy") }).unwrap();
    let causes: Vec<_> =
        lost.batches.iter().flat_map(|it| &it.events).map(|it| it.cause.word()).collect();
    assert_eq!(causes, ["expired"]);
    let client =
        |client: &str| ArchiveQuery { client: Some(client.to_owned()), ..all_of("deploy") };
    assert_eq!(
        revisions(&archive, &client("client-2")).len(),
        2,
        "queued, and left with its lease"
    );
    assert_eq!(revisions(&archive, &client("client-3")).len(), 0);
    let since = |since_ms| ArchiveQuery { since_ms: Some(since_ms), ..all_of("deploy") };
    assert_eq!(revisions(&archive, &since(1_005_000)).len(), 1);
    assert_eq!(revisions(&archive, &since(1_900_000)).len(), 0);
    let until = ArchiveQuery { until_ms: Some(1_005_000), ..all_of("deploy") };
    assert_eq!(revisions(&archive, &until).len(), 2);
    let prefix = ArchiveQuery { subject: ArchiveSubject::Prefix(String::new()), ..all_of("") };
    assert_eq!(revisions(&archive, &prefix).len(), 4);
    // Page by page.
    let mut query = ArchiveQuery { max: 1, ..all_of("deploy") };
    let mut pages = Vec::new();
    loop {
        let page = archive.search(&query).unwrap();
        pages.extend(page.batches.iter().map(|batch| batch.revision.0));
        let Some(before) = page.more_before else { break };
        query.before = before;
    }
    assert_eq!(pages, revisions(&archive, &all_of("deploy")));
}

#[test]
fn a_full_queue_never_blocks_and_says_that_something_was_left_out() {
    let archive = Archive::default();
    let records = Arc::new(records(1, &["deploy"]));
    let fit = WAITING_BYTES / records.bytes();
    (0..fit + 10).for_each(|_| archive.leave(Some(&records)));
    let items = archive.take(true).unwrap();
    assert_eq!(items.len(), fit + 1);
    assert!(matches!(items.back(), Some(ArchiveItem::Behind)));
    assert_eq!(archive.metrics.skipped.get(), 1);
}
