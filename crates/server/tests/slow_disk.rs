//! Does a leader whose disk is slow go on leading?

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Expect, Put, Request, RequestId};
use tenure_server::{Entrance, Member, Running, Settings, os, start};
use tenure_store::{Disk, File};

const DEADLINE: Duration = Duration::from_secs(60);
/// A little slower than what counts as fast.
const SLOWISH_MS: u64 = 5;
/// Longer than any election timeout.
const SLOW_MS: u64 = 1_500;

/// How long a sync takes besides what it takes. One disk of all in this process is slow at a time:
/// that of the member with this name.
static DELAY_MS: AtomicU64 = AtomicU64::new(0);
static SLOW_SYNCS: AtomicU64 = AtomicU64::new(0);

/// A disk whose log syncs slowly, when told to.
#[derive(Debug)]
struct SlowDisk(Arc<dyn Disk>);

#[derive(Debug)]
struct SlowFile(Arc<dyn File>);

impl Disk for SlowDisk {
    fn make_dir(&self, dir: &str) -> io::Result<()> {
        self.0.make_dir(dir)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(SlowFile(self.0.open(name)?)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(SlowFile(self.0.create(name)?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
}

impl File for SlowFile {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn fill_with_zeros(&self, size: u64) -> io::Result<()> {
        self.0.fill_with_zeros(size)
    }

    fn sync(&self) -> io::Result<Duration> {
        let delay = Duration::from_millis(DELAY_MS.load(Ordering::Relaxed));
        std::thread::sleep(delay);
        if delay >= Duration::from_millis(SLOW_MS) {
            SLOW_SYNCS.fetch_add(1, Ordering::Relaxed);
        }
        Ok(self.0.sync()? + delay)
    }
}

fn wait<T>(what: &str, mut is_so: impl FnMut() -> Option<T>) -> T {
    let until_us = os::now_us() + u64::try_from(DEADLINE.as_micros()).unwrap();
    loop {
        if let Some(found) = is_so() {
            return found;
        }
        assert!(os::now_us() < until_us, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id() * 64 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(10_000 + next % 20_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Three members; the first has the disk that can be slow.
fn found(dir: &Path) -> Vec<Running> {
    let listed = (0..3).map(|at| (format!("m{at}"), format!("127.0.0.1:{}", free_port())));
    let listed: Vec<_> = listed.collect();
    let starting: Vec<_> = (0..3)
        .map(|at| {
            let name = format!("m{at}");
            let mut settings = Settings {
                clients: "127.0.0.1:0".into(),
                members: Some(listed[at].1.clone()),
                entrance: Entrance::Bootstrap(listed.clone()),
                segment_bytes: 1024 * 1024,
                reserve_bytes: 64 * 1024,
                ..Settings::new(&name, dir.join(&name))
            };
            if at == 0 {
                settings.disk = |disk| Arc::new(SlowDisk(disk));
            }
            std::thread::spawn(move || start(settings).unwrap())
        })
        .collect();
    starting.into_iter().map(|one| one.join().unwrap()).collect()
}

fn put(member: &Member, key: &str) -> bool {
    let (expect, guard) = (Expect::Any, None);
    let command = Command::Put(Put { key, value: b"value", lease: None, expect, guard });
    let mut bytes = Vec::new();
    encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
    let fates = member.submit(vec![Bytes::from(bytes)], Duration::ZERO, DEADLINE);
    matches!(&fates[..], [Ok(outcome)] if outcome.result.is_ok())
}

#[test]
fn a_leader_waits_for_its_slow_disk_and_leads_on_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let running = found(dir.path());
    let first = &running[0].member;
    wait("somebody leads", || {
        let status = running[1].member.status().ok()?;
        let leader = running.iter().find(|one| Some(one.member.id()) == status.agreement.leader)?;
        if leader.member.id() != first.id() {
            let wish = tenure_raft::Wish::Transfer(first.id());
            let _ = leader.member.admin(wish, DEADLINE);
        }
        first.status().ok()?.agreement.serving.then_some(())
    });
    assert!(put(first, "before"));

    // A disk that is a little slow shows that it may be slower.
    DELAY_MS.store(SLOWISH_MS, Ordering::Relaxed);
    let before = first.figures().syncs;
    wait("the leader notices", || {
        (put(first, "slow") && first.figures().syncs > before + 2).then_some(())
    });
    let term = first.status().unwrap().agreement.term;

    // Then it is so slow that others would long have elected somebody else.
    DELAY_MS.store(SLOW_MS, Ordering::Relaxed);
    SLOW_SYNCS.store(0, Ordering::Relaxed);
    wait("several slow syncs", || {
        assert!(put(first, "slower"), "it answers, if late");
        (SLOW_SYNCS.load(Ordering::Relaxed) >= 3).then_some(())
    });
    DELAY_MS.store(0, Ordering::Relaxed);
    assert!(put(first, "after"));
    for one in &running {
        let status = one.member.status().unwrap();
        assert_eq!((status.agreement.term, status.agreement.leader), (term, Some(first.id())));
    }
    assert!(first.figures().sync_p99_us >= SLOW_MS * 1000);
    running.iter().for_each(Running::stop);
}
