//! Tests backups of a member, and what a restored cluster keeps, drops and grants.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use bytes::Bytes;
use tenure_core::codec::encode_request;
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, Expect, LeaseRef, NewLease, Purpose, Put,
    Request, RequestId,
};
use tenure_core::{Compacted, Filter};
use tenure_server::backup::{BackupError, TakeError, Verified, take};
use tenure_server::restore::{RestoreOptions, RestoreOrigin, Restored, StoppedFor, restore};
use tenure_server::{MemberHandle, RunningServer, ServerSettings, StartMode, start};
use tenure_types::{LeaseId, Mode, Refusal, Token};

const DEADLINE: Duration = Duration::from_secs(60);
const TTL_MS: u64 = 2_000;
/// The longest ttl and the longest lock-delay that a new cluster allows.
const UNKNOWN_MS: u64 = 3_600_000 + 1 + 60_000 + 1;
const SEGMENT_BYTES: u32 = 256 * 1024;

fn run(data: &Path) -> RunningServer {
    let running = start(ServerSettings {
        clients: "127.0.0.1:0".into(),
        entrance: StartMode::Alone,
        segment_bytes: SEGMENT_BYTES,
        reserve_bytes: 64 * 1024,
        ..ServerSettings::new("a", data)
    });
    let running = running.unwrap();
    running.member.read(DEADLINE, |_| ()).unwrap();
    running
}

fn submit(member: &MemberHandle, command: Command<'_>) -> Outcome {
    let mut bytes = Vec::new();
    encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
    member.submit(vec![Bytes::from(bytes)], Duration::ZERO, DEADLINE).pop().unwrap().unwrap()
}

fn put(member: &MemberHandle, key: &str) -> Outcome {
    let put = Put { key, value: b"value", lease: None, expect: Expect::Any, guard: None };
    submit(member, Command::Put(put))
}

fn lease(member: &MemberHandle, id: u64) {
    let id = LeaseId::new(id).unwrap();
    let new = NewLease { id, ttl_ms: TTL_MS, client: "ana", metadata: &[] };
    submit(member, Command::GrantLease(new)).result.unwrap();
}

fn lock(member: &MemberHandle, id: u64, wait: AskWait) -> Result<Option<Token>, Refusal> {
    let acquire = Acquire {
        lease: AskLease::Existing(LeaseRef::Id(LeaseId::new(id).unwrap())),
        locks: Asks::One(Ask { lock: "deploy", mode: Mode::Exclusive }),
        any: false,
        wait,
        metadata: &[],
        lock_delay_ms: 0,
        max_hold_ms: None,
        min_hold_ms: 0,
        progress_within_ms: 0,
        supersede: None,
        resume: false,
        priority: 0,
        purpose: Purpose::Lock,
        independent: false,
    };
    match submit(member, Command::Acquire(acquire)).result? {
        Answer::Acquired(acquired) => Ok(Some(acquired.grants.as_slice()[0].token)),
        Answer::Queued(_) => Ok(None),
        other => panic!("{other:?}"),
    }
}

fn back_up(member: &MemberHandle, path: &Path) {
    let backup = take(member, DEADLINE).unwrap();
    let mut file = Vec::new();
    backup.write(&mut file).unwrap();
    assert_eq!(file.len() as u64, backup.bytes());
    std::fs::write(path, file).unwrap();
}

fn wanted(from: RestoreOrigin, data: PathBuf) -> RestoreOptions {
    RestoreOptions {
        from,
        data,
        cluster: None,
        epoch: None,
        above: None,
        ledger: None,
        stopped: StoppedFor::ForMs(0),
        names: None,
        segment_bytes: SEGMENT_BYTES,
    }
}

#[test]
fn nothing_is_granted_in_the_quiet_period_and_old_cursors_are_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let running = run(&dir.path().join("first"));
    let member = &running.member;
    lease(member, 1);
    lease(member, 2);
    let old = lock(member, 1, AskWait::No).unwrap().unwrap();
    assert_eq!(lock(member, 2, AskWait::Unlimited), Ok(None));
    let cursor = put(member, "kept").revision;
    let file = dir.path().join("backup");
    back_up(member, &file);
    put(member, "after the backup");
    running.stop();
    let clock_ms = Verified::read(&file, tenure_core::LEVEL_MAX).unwrap().machine.clock_ms();

    let data = dir.path().join("second");
    // A client that got a lease after the backup may have it as long as the limits allow.
    let whole =
        restore(&wanted(RestoreOrigin::Backup(file.clone()), dir.path().join("whole"))).unwrap();
    assert_eq!(whole.quiet_ms, Some(UNKNOWN_MS));
    // All clients were stopped for nearly that long.
    let stopped = StoppedFor::ForMs(UNKNOWN_MS - TTL_MS);
    let less =
        RestoreOptions { stopped, ..wanted(RestoreOrigin::Backup(file.clone()), data.clone()) };
    let restored = restore(&less).unwrap();
    let quiet_ms = restored.quiet_ms.unwrap();
    assert_eq!(quiet_ms, TTL_MS);
    let running = run(&data);
    let member = running.member.clone();
    assert_eq!(member.lineage(), &restored.lineage);
    assert_eq!(member.lineage().cluster, restored.before.cluster);
    let (kept, after, stats) = member
        .read(DEADLINE, |m| (m.key("kept").is_some(), m.key("after the backup"), m.stats()))
        .unwrap();
    assert!(kept && after.is_none());
    assert_eq!((stats.leases, stats.locks, stats.places, stats.grants), (0, 0, 0, 0));
    let floor = member.read(DEADLINE, tenure_core::Machine::floor).unwrap();
    let asked = member.read(DEADLINE, move |m| m.events(cursor, Filter::All, 10).err());
    assert_eq!(asked, Ok(Some(Compacted { floor })));
    assert!(floor > cursor);

    // A client that does not wait gets the reason; one that waits gets the lock after the period, not before.
    lease(&member, 1);
    assert!(matches!(lock(&member, 1, AskWait::No), Err(Refusal::Quiet { .. })));
    let new = loop {
        // Renewing keeps the lease alive as long as it takes.
        match lock(&member, 1, AskWait::Unlimited) {
            Ok(Some(token)) => break token,
            Ok(None) => {
                let id = LeaseRef::Id(LeaseId::new(1).unwrap());
                submit(&member, Command::Renew(vec![id])).result.unwrap();
            }
            Err(refusal) => panic!("{refusal}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let granted_at_ms = member.read(DEADLINE, tenure_core::Machine::clock_ms).unwrap();
    assert!(granted_at_ms >= clock_ms + quiet_ms, "{granted_at_ms} {clock_ms} {quiet_ms}");
    assert!(new > old && new.epoch() == Some(restored.lineage.epoch));
    running.stop();
}

#[test]
fn a_waived_quiet_period_grants_at_once_and_each_restore_is_a_life_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let running = run(&dir.path().join("first"));
    lease(&running.member, 1);
    let old = lock(&running.member, 1, AskWait::No).unwrap().unwrap();
    let file = dir.path().join("backup");
    back_up(&running.member, &file);
    running.stop();

    let mut lives: Vec<Restored> = Vec::new();
    for incarnation in 1..=3 {
        let data = dir.path().join(format!("life {incarnation}"));
        let wanted = wanted(RestoreOrigin::Backup(file.clone()), data.clone());
        let restored = restore(&RestoreOptions { stopped: StoppedFor::ForGood, ..wanted }).unwrap();
        assert_eq!((restored.lineage.epoch.get(), restored.quiet_ms), (incarnation, None));
        let running = run(&data);
        lease(&running.member, 1);
        let new = lock(&running.member, 1, AskWait::No).unwrap().unwrap();
        assert!(new > old && new.epoch().unwrap().get() == incarnation);
        running.stop();
        assert!(lives.iter().all(|one| one.lineage.incarnation != restored.lineage.incarnation));
        assert!(lives.iter().all(|one| one.member != restored.member));
        lives.push(restored);
    }
    // A restored cluster is backed up and restored like any other.
    let again = run(&dir.path().join("life 3"));
    let file = dir.path().join("another");
    back_up(&again.member, &file);
    again.stop();
    let wanted = wanted(RestoreOrigin::Backup(file), dir.path().join("life 4"));
    let restored = restore(&wanted).unwrap();
    assert_eq!(restored.before, lives[2].lineage);
    assert_eq!(restored.lineage.epoch.get(), 4);
    assert_eq!(restored.quiet_ms, Some(UNKNOWN_MS));
}

#[test]
fn every_damaged_byte_of_a_backup_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let running = run(&dir.path().join("data"));
    put(&running.member, "key");
    let path = dir.path().join("backup");
    back_up(&running.member, &path);
    // One backup at a time; the next is possible once the first is over.
    let first = take(&running.member, DEADLINE).unwrap();
    assert!(matches!(take(&running.member, DEADLINE), Err(TakeError::Busy)));
    drop(first);
    let (done, second) = channel();
    let member = running.member.clone();
    std::thread::spawn(move || done.send(take(&member, DEADLINE).is_ok()));
    assert_eq!(second.recv_timeout(DEADLINE), Ok(true));
    running.stop();

    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Verified::read(&path, tenure_core::LEVEL_MAX).map(|verified| verified.head)
    };
    let good = std::fs::read(&path).unwrap();
    let head = read(&good).unwrap();
    assert_eq!(head.file_bytes(), good.len() as u64);
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert!(read(&bad).is_err(), "byte {at}");
    }
    for cut in (0..good.len()).step_by(7) {
        assert!(read(&good[..cut]).is_err(), "cut at {cut}");
    }
    assert!(matches!(read(&[&good[..], b"x"].concat()), Err(BackupError::Damaged(_))));
    assert!(matches!(read(b"once upon a time there was"), Err(BackupError::Other)));
}
