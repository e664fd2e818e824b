//! Runs members in one process, over real sockets and disks.
#![allow(dead_code, reason = "each test binary uses a part of this")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Expect, Put, Request, RequestId};
use tenure_server::{MemberHandle, RunningServer, ServerSettings, StartMode, start};

pub(crate) use crate::bounded::{DEADLINE, invite, listed, start_all, wait};

/// The settings of one initial member of a cluster.
pub(crate) fn settings(dir: &Path, at: usize, listed: &[(String, String)]) -> ServerSettings {
    let name = format!("m{at}");
    ServerSettings {
        clients: "127.0.0.1:0".into(),
        members: Some(listed[at].1.clone()),
        entrance: StartMode::Bootstrap(listed.to_vec()),
        segment_bytes: 256 * 1024,
        reserve_bytes: 64 * 1024,
        snapshot_entries: 100,
        ..ServerSettings::new(&name, dir.join(&name))
    }
}

/// Founds a cluster.
pub(crate) fn found(dir: &Path, size: usize) -> (Vec<(String, String)>, Vec<RunningServer>) {
    let listed = listed(size);
    let running = start_all((0..size).map(|at| settings(dir, at, &listed)).collect());
    (listed, running)
}

/// Waits for a leader that serves.
pub(crate) fn leader(running: &[RunningServer]) -> usize {
    wait("a member leads", || {
        running.iter().position(|one| one.member.status().is_ok_and(|s| s.agreement.serving))
    })
}

/// Writes a key, and returns whether it was written.
pub(crate) fn put(member: &MemberHandle, key: &str) -> bool {
    let value = b"value";
    let put = Put { key, value, lease: None, expect: Expect::Any, guard: None };
    let mut bytes = Vec::new();
    let command = Command::Put(put);
    encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
    let fates = member.submit(vec![Bytes::from(bytes)], Duration::ZERO, DEADLINE);
    fates.iter().all(|fate| fate.as_ref().is_ok_and(|outcome| outcome.result.is_ok()))
}

/// Makes one member miss more than the log keeps, and catch up by snapshot while writes go on.
pub(crate) fn catch_up(running: &mut [RunningServer], again: impl Fn(usize) -> ServerSettings) {
    let behind = (leader(running) + 1) % 3;
    let last = running[behind].member.status().unwrap().agreement.last.index;
    running[behind].stop();
    let leading = running[leader(running)].member.clone();
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
        running[behind] = start(again(behind)).unwrap();
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
        let seen = |one: &RunningServer| {
            let status = one.member.status().unwrap();
            (status.agreement.applied, status.hash)
        };
        running.iter().all(|one| seen(one) == seen(&running[0])).then_some(())
    });
}
