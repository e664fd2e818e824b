//! Tests that a panic in a thread on whose reports the event loop relies ends the member, in a build that unwinds too.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::SyncedBy;
use crate::support::{leader, listed, put, settings, start_all, wait};
use tenure_server::{End, RunningServer, ServerSettings};
use tenure_store::File;

fn sync_but_of_no_snapshot(file: &dyn File) -> io::Result<Duration> {
    assert_ne!(std::thread::current().name(), Some("tenure-snapshot"), "planted");
    file.sync()
}

#[test]
fn a_panic_in_the_thread_that_writes_a_snapshot_ends_the_member() {
    let dir = tempfile::tempdir().unwrap();
    let running = start_all(vec![ServerSettings {
        disk: |disk| Arc::new(SyncedBy(disk, sync_but_of_no_snapshot)),
        ..settings(dir.path(), 0, &listed(1))
    }]);
    let member = &running[leader(&running)].member;
    let end = wait("the member ends", || {
        put(member, "key");
        member.ended()
    });
    assert_eq!(end, End::Panic { thread: "tenure-snapshot" });
    running.iter().for_each(RunningServer::stop);
}
