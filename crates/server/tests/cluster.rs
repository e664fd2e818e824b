//! Members in one process, over real sockets and disks: do they catch up, and keep strangers out?

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Expect, Put, Request, RequestId};
use tenure_server::{Entrance, Member, Running, Settings, os, start};

const DEADLINE: Duration = Duration::from_secs(60);

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

/// A port that is free, and stays so: below those that the system gives to connections.
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

fn settings(dir: &Path, at: usize, listed: &[(String, String)]) -> Settings {
    let name = format!("m{at}");
    Settings {
        clients: "127.0.0.1:0".into(),
        members: Some(listed[at].1.clone()),
        entrance: Entrance::Bootstrap(listed.to_vec()),
        segment_bytes: 256 * 1024,
        reserve_bytes: 64 * 1024,
        snapshot_entries: 100,
        ..Settings::new(&name, dir.join(&name))
    }
}

fn found(dir: &Path, size: usize) -> (Vec<(String, String)>, Vec<Running>) {
    let listed = (0..size).map(|at| (format!("m{at}"), format!("127.0.0.1:{}", free_port())));
    let listed: Vec<_> = listed.collect();
    let starting: Vec<_> = (0..size)
        .map(|at| {
            let settings = settings(dir, at, &listed);
            std::thread::spawn(move || start(settings).unwrap())
        })
        .collect();
    let running = starting.into_iter().map(|one| one.join().unwrap()).collect();
    (listed, running)
}

fn leader(running: &[Running]) -> usize {
    wait("a member leads", || {
        running.iter().position(|one| one.member.status().is_ok_and(|s| s.agreement.serving))
    })
}

fn put(member: &Member, key: &str) -> bool {
    let value = b"value";
    let put = Put { key, value, lease: None, expect: Expect::Any, guard: None };
    let mut bytes = Vec::new();
    let command = Command::Put(put);
    encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
    let fates = member.submit(vec![Bytes::from(bytes)], Duration::ZERO, DEADLINE);
    fates.iter().all(|fate| fate.as_ref().is_ok_and(|outcome| outcome.result.is_ok()))
}

#[test]
fn a_member_far_behind_catches_up_by_snapshot_while_writes_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (listed, mut running) = found(dir.path(), 3);
    let behind = (leader(&running) + 1) % 3;
    let last = running[behind].member.status().unwrap().agreement.last.index;
    running[behind].stop();
    let leading = running[leader(&running)].member.clone();
    let mut written = 0;
    wait("its entries are gone", || {
        assert!(put(&leading, &format!("key/{written}")));
        written += 1;
        (leading.status().unwrap().agreement.base.index > last).then_some(())
    });

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut more = 0;
            while !stop.load(Ordering::Acquire) {
                assert!(put(&leading, &format!("more/{more}")));
                more += 1;
            }
            more
        });
        running[behind] = start(settings(dir.path(), behind, &listed)).unwrap();
        let member = &running[behind].member;
        wait("it has caught up", || {
            let (its, leads) = (member.status().unwrap(), leading.status().unwrap());
            let base = its.agreement.base.index;
            (base > last && its.agreement.applied.index + 50 > leads.agreement.committed)
                .then_some(())
        });
        stop.store(true, Ordering::Release);
        assert!(writer.join().unwrap() > 0);
    });
    wait("all have the same state", || {
        let seen = |one: &Running| {
            let status = one.member.status().unwrap();
            (status.agreement.applied, status.hash)
        };
        running.iter().all(|one| seen(one) == seen(&running[0])).then_some(())
    });
    running.iter().for_each(Running::stop);
}

#[test]
fn strangers_are_refused_and_nonsense_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let (_, running) = found(dir.path(), 1);
    let id = running[leader(&running)].member.id();
    let port = running[0].members.unwrap();
    let life = |cluster: &str, epoch: u16, incarnation: u64, to: &str| {
        let life = format!("cluster {cluster}\nepoch {epoch}\nincarnation {incarnation:016x}");
        ask(port, format!("hello 1\n{life}\nfrom 1\nto {to}\nlevel 1").as_bytes())
    };
    let (cluster, id) = (&running[0].cluster, id.to_string());
    assert!(life("another", 0, 0, &id).starts_with("refused this member is of cluster"));
    assert!(life(cluster, 1, 0, &id).starts_with("refused the cluster was restored"));
    assert!(life(cluster, 0, 7, &id).starts_with("refused this is another restore"));
    assert!(life(cluster, 0, 0, "2").starts_with("refused this is member"));
    assert!(life(cluster, 0, 0, &id).starts_with("hello 1\n"));
    // Whoever belongs to another life is not taken for a newcomer either.
    let join = |life: &str| ask(port, format!("join 9 x h:1 h:2\nlevel 1{life}").as_bytes());
    let other = format!("\ncluster {cluster}\nepoch 0\nincarnation 0000000000000007");
    assert!(join(&other).starts_with("refused this is another restore"));
    assert!(join("").starts_with("joined 1\n"));
    assert!(ask(port, b"who 1").starts_with("i-am "));
    assert_eq!(ask(port, b"\xff\xfe"), "", "no answer to nonsense");
    assert_eq!(ask(port, b"done 1"), "refused this is an answer, not a question");
    // A length that nobody may announce.
    let mut stream = TcpStream::connect(port).unwrap();
    stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "it hangs up");
    running[0].stop();
}

fn ask(port: SocketAddr, text: &[u8]) -> String {
    let mut stream = TcpStream::connect(port).unwrap();
    stream.write_all(&u32::try_from(text.len()).unwrap().to_le_bytes()).unwrap();
    stream.write_all(text).unwrap();
    let mut length = [0; 4];
    if stream.read_exact(&mut length).is_err() {
        return String::new();
    }
    let mut answer = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

#[test]
fn commands_of_many_threads_share_entries_and_all_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (_, running) = found(dir.path(), 1);
    let member = &running[leader(&running)].member;
    let before = member.status().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..32 {
            scope.spawn(move || {
                (0..25).for_each(|at| assert!(put(member, &format!("{thread}/{at}"))));
            });
        }
    });
    let after = member.status().unwrap();
    assert_eq!(after.revision.0 - before.revision.0, 32 * 25, "each command has its revision");
    let entries = after.agreement.applied.index - before.agreement.applied.index;
    assert!(entries < 32 * 25, "{entries} entries");
    running[0].stop();
}
