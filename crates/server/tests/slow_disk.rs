//! Tests that a leader with a slow disk keeps leading.

use crate::support;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::disk::SyncedBy;
use crate::support::{DEADLINE, put, settings, start_all, wait};
use tenure_server::{RunningServer, ServerSettings};
use tenure_store::File;

/// A little slower than a disk that counts as fast.
const SLOWISH_MS: u64 = 5;
/// Longer than any election timeout.
const SLOW_MS: u64 = 1_500;

/// The extra duration of a sync. Only the disk of the first member is slow.
static DELAY_MS: AtomicU64 = AtomicU64::new(0);
static SLOW_SYNCS: AtomicU64 = AtomicU64::new(0);

/// Syncs after the configured delay.
fn sync_slowly(file: &dyn File) -> io::Result<Duration> {
    let delay = Duration::from_millis(DELAY_MS.load(Ordering::Relaxed));
    std::thread::sleep(delay);
    if delay >= Duration::from_millis(SLOW_MS) {
        SLOW_SYNCS.fetch_add(1, Ordering::Relaxed);
    }
    Ok(file.sync()? + delay)
}

/// Starts three members; the first has the disk that can be slow.
fn found(dir: &Path) -> Vec<RunningServer> {
    let listed = support::listed(3);
    // No snapshot is taken meanwhile: it would sync too.
    let of = |at| ServerSettings {
        segment_bytes: 1024 * 1024,
        snapshot_entries: 1_000_000,
        ..settings(dir, at, &listed)
    };
    let slow = ServerSettings { disk: |disk| Arc::new(SyncedBy(disk, sync_slowly)), ..of(0) };
    start_all(vec![slow, of(1), of(2)])
}

// Retry once: a machine that stalls for an election timeout causes an election of its own.
#[test]
fn a_leader_waits_for_its_slow_disk_and_leads_on_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let running = found(dir.path());
    let first = &running[0].member;
    wait("a member leads", || {
        let status = running[1].member.status().ok()?;
        let leader = running.iter().find(|one| Some(one.member.id()) == status.agreement.leader)?;
        if leader.member.id() != first.id() {
            let request = tenure_raft::AdminRequest::Transfer(first.id());
            let _ = leader.member.admin(request, DEADLINE);
        }
        first.status().ok()?.agreement.serving.then_some(())
    });
    assert!(put(first, "before"));

    // A disk that is a little slow makes the leader move its syncs to the sync thread.
    DELAY_MS.store(SLOWISH_MS, Ordering::Relaxed);
    let before = first.metrics().syncs;
    wait("the leader notices", || {
        (put(first, "slow") && first.metrics().syncs > before + 2).then_some(())
    });
    let term = first.status().unwrap().agreement.term;

    // Now the disk is so slow that a blocked leader would have lost its leadership long ago.
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
    assert!(first.metrics().sync_p99_us >= SLOW_MS * 1000);
    running.iter().for_each(RunningServer::stop);
}
